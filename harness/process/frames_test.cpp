// Frames from an honest, a broken and a hostile peer.
#include "process/frames.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <random>
#include <thread>

#include "process/memory_file.hpp"

namespace kvcts::process {
namespace {

using nlohmann::json;

std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

struct Ends {
  explicit Ends(Channel::Options options = {}) {
    auto [one, other] = socket_pair();
    raw = other.get();
    a = Channel(std::move(one), options);
    b = Channel(std::move(other));
  }
  void write_raw(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t written = ::write(raw, bytes.data(), bytes.size());
      if (written < 0 && errno == EAGAIN)
        std::this_thread::yield();
      else if (written < 0)
        return;  // the reader stopped
      else
        bytes.remove_prefix(static_cast<std::size_t>(written));
    }
  }
  Channel a, b;
  int raw;
};

std::string header(std::uint32_t length) {
  std::string text;
  for (int i = 0; i < 4; ++i) text.push_back(static_cast<char>(length >> (8 * i) & 255));
  return text;
}

FrameFault fault_of(Channel& channel, int timeout_ms = 1000) {
  try {
    const Message message = channel.receive(timeout_ms);
    ADD_FAILURE() << "expected a fault, found " << message.body.dump();
    return FrameFault::io;
  } catch (const FrameError& error) {
    return error.fault;
  }
}

TEST(Frames, DeliverMessagesInOrderAndWhole) {
  Ends ends;
  for (int i = 0; i < 100; ++i) ends.b.send({{"n", i}, {"text", std::string(static_cast<std::size_t>(i) * 7, 'x')}});
  for (int i = 0; i < 100; ++i) {
    const Message message = ends.a.receive(1000);
    EXPECT_EQ(message.body["n"], i);
    EXPECT_EQ(message.body["text"].get<std::string>().size(), static_cast<std::size_t>(i) * 7);
  }
  EXPECT_FALSE(ends.a.pump());
}

TEST(Frames, LargeFramesDoNotBlockTheSender) {
  Ends ends;
  const json large = {{"text", std::string(20 << 20, 'y')}};
  ends.a.queue(large);
  EXPECT_FALSE(ends.a.flush());  // the socket filled up long before; flush() returns anyway
  EXPECT_GT(ends.a.output_bytes(), 1u << 20);
  std::thread reader([&] { EXPECT_EQ(ends.b.receive(20'000).body, large); });
  while (!ends.a.flush()) std::this_thread::yield();
  reader.join();
}

TEST(Frames, KeepDescriptorsWithTheirFrame) {
  Ends ends;
  std::vector<UniqueFd> files;
  std::vector<int> fds;
  for (std::size_t i = 0; i < 7; ++i) {
    files.push_back(create_memory_file("t", (i + 1) * 4096));
    fds.push_back(files.back().get());
  }
  ends.b.send({{"n", 0}});
  ends.b.send({{"n", 1}}, fds);
  ends.b.send({{"n", 2}});
  ends.b.send({{"n", 3}}, std::span(fds).subspan(2, 1));
  EXPECT_TRUE(ends.a.receive(1000).fds.empty());
  const Message second = ends.a.receive(1000);
  ASSERT_EQ(second.fds.size(), 7u);
  for (std::size_t i = 0; i < 7; ++i) EXPECT_EQ(file_bytes(second.fds[i].get()), (i + 1) * 4096);
  EXPECT_TRUE(ends.a.receive(1000).fds.empty());
  const Message fourth = ends.a.receive(1000);
  ASSERT_EQ(fourth.fds.size(), 1u);
  EXPECT_EQ(file_bytes(fourth.fds[0].get()), 3 * 4096u);
}

TEST(Frames, CarryMoreDescriptorsThanOneMessageHolds) {
  Ends ends;
  std::vector<UniqueFd> files;
  std::vector<int> fds;
  for (std::size_t i = 0; i < 600; ++i) {
    files.push_back(create_memory_file("t", 4096 + i));
    fds.push_back(files.back().get());
  }
  std::thread sender([&] { ends.b.send({{"op", "prepare"}}, fds, 10'000); });
  const Message message = ends.a.receive(10'000);
  sender.join();
  EXPECT_EQ(message.body, json({{"op", "prepare"}}));
  ASSERT_EQ(message.fds.size(), 600u);
  for (std::size_t i = 0; i < 600; ++i) EXPECT_EQ(file_bytes(message.fds[i].get()), 4096 + i);
}

TEST(Frames, UnwantedDescriptorsAreDropped) {
  Ends ends({max_frame, false});
  const UniqueFd file = create_memory_file("t", 4096);
  const std::vector<int> fds(40, file.get());
  const std::size_t before = open_descriptors();
  ends.b.send({{"n", 1}}, fds);
  const Message message = ends.a.receive(1000);
  EXPECT_TRUE(message.fds.empty());
  EXPECT_EQ(open_descriptors(), before);
}

TEST(Frames, ReportTheEndOfTheStream) {
  Ends ends;
  ends.b.send({{"n", 1}});
  ends.b.close();
  EXPECT_EQ(ends.a.receive(1000).body["n"], 1);
  EXPECT_EQ(fault_of(ends.a), FrameFault::eof);
}

TEST(Frames, RefuseATruncatedHeaderOrBody) {
  Ends in_header, in_body;
  in_header.write_raw(header(10).substr(0, 2));
  in_header.b.close();
  EXPECT_EQ(fault_of(in_header.a), FrameFault::truncated);
  in_body.write_raw(header(10) + "{\"a\"");
  in_body.b.close();
  EXPECT_EQ(fault_of(in_body.a), FrameFault::truncated);
}

TEST(Frames, AHugeLengthIsRefusedBeforeMemoryIsTaken) {
  Ends ends({1000, true});
  ends.write_raw(header(1001));
  EXPECT_EQ(fault_of(ends.a), FrameFault::oversize);
  Ends longest;
  longest.write_raw(header(0xffffffff));
  EXPECT_EQ(fault_of(longest.a), FrameFault::oversize);
}

TEST(Frames, RefuseAnythingButAJsonObject) {
  for (const std::string text : {"", "x", "[1]", "12", "{\"a\":", "{} {}", "{\"a\":\"\xff\xfe\"}", "null"}) {
    Ends ends;
    ends.write_raw(header(static_cast<std::uint32_t>(text.size())) + text);
    EXPECT_EQ(fault_of(ends.a), FrameFault::malformed) << text;
  }
}

TEST(Frames, DeepNestingIsRefused) {
  for (const std::size_t depth : {101u, 1u << 20}) {
    Ends ends;
    const std::string text = "{\"a\":" + std::string(depth, '[') + std::string(depth, ']') + "}";
    std::thread writer([&] { ends.write_raw(header(static_cast<std::uint32_t>(text.size())) + text); });
    EXPECT_EQ(fault_of(ends.a, 20'000), FrameFault::malformed);
    writer.join();
  }
  Ends quoted;  // brackets in a string are no nesting
  const std::string text = "{\"a\":\"\\\"" + std::string(500, '[') + "\"}";
  quoted.write_raw(header(static_cast<std::uint32_t>(text.size())) + text);
  EXPECT_EQ(quoted.a.receive(1000).body["a"].get<std::string>().size(), 501u);
}

TEST(Frames, TimeOutOnSilenceAndRemainUsable) {
  Ends ends;
  EXPECT_EQ(fault_of(ends.a, 20), FrameFault::timeout);
  ends.write_raw(header(9) + "{\"a\"");
  EXPECT_EQ(fault_of(ends.a, 20), FrameFault::timeout);
  ends.write_raw(": 1 }");
  EXPECT_EQ(ends.a.receive(1000).body["a"], 1);
}

TEST(Frames, RefuseAFrameWithoutItsAnnouncedDescriptors) {
  Ends ends;
  const std::string text = R"({"op":"x","more_fds":3})";
  ends.write_raw(header(static_cast<std::uint32_t>(text.size())) + text);
  ends.b.send({{"op", "y"}});
  EXPECT_EQ(fault_of(ends.a), FrameFault::malformed);
}

TEST(Frames, CarryTextThatIsNotUtf8) {
  Ends ends;
  ends.b.send({{"text", "a\xff\xfe z"}});
  EXPECT_EQ(ends.a.receive(1000).body["text"], "a\xEF\xBF\xBD\xEF\xBF\xBD z");
}

// Any bytes: a message, a typed fault or nothing yet; never a crash, a wait or a lost descriptor.
TEST(Frames, SurviveRandomBytes) {
  std::mt19937 random(20240607);
  const std::string good = [] {
    const std::string body = R"({"op":"transfer","key":17,"list":[1,2,{"a":"b"}]})";
    return header(static_cast<std::uint32_t>(body.size())) + body;
  }();
  const std::size_t before = open_descriptors();
  for (int round = 0; round < 4000; ++round) {
    Ends ends({1 << 16, true});
    std::string bytes = good + good;
    if (round % 2 == 0) {
      for (char& byte : bytes) byte = static_cast<char>(random());
      if (round % 4 == 0) bytes[1] = bytes[2] = bytes[3] = 0;  // a length that fits
    } else {
      for (int flips = 1 + static_cast<int>(random() % 4); flips > 0; --flips)
        bytes[random() % bytes.size()] ^= static_cast<char>(1u << random() % 8);
    }
    bytes.resize(1 + random() % bytes.size());
    ends.write_raw(bytes);
    if (random() % 2 == 0) ends.b.close();
    try {
      for (int i = 0; i < 64; ++i) {
        const auto message = ends.a.pump();
        EXPECT_TRUE(!message || message->body.is_object());
      }
    } catch (const FrameError&) {
    }
  }
  EXPECT_EQ(open_descriptors(), before);
}

}  // namespace
}  // namespace kvcts::process
