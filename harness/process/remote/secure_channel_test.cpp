#include "process/remote/secure_channel.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <functional>

namespace kvcts::process {
namespace {

using nlohmann::json;

struct Ends {
  UniqueFd near, far;
};

Ends connected() {
  auto [one, other] = socket_pair();
  return {std::move(one), std::move(other)};
}

std::string output_of(const std::vector<json>& frames, const RunKey& key, End from) {
  auto [own, other] = socket_pair();
  SecureChannel channel(std::move(own), key, from);
  for (const json& frame : frames) channel.queue(frame);
  channel.flush();
  std::string out(1 << 16, '\0');
  out.resize(static_cast<std::size_t>(::recv(other.get(), out.data(), out.size(), 0)));
  return out;
}

TEST(SecureChannel, CarriesObjectsAndBytesBothWays) {
  Ends ends = connected();
  const RunKey key = new_run_key();
  SecureChannel near(std::move(ends.near), key, End::near), far(std::move(ends.far), key_from_hex(to_hex(key)), End::far);
  const json sent{{"op", "page"}, {"bytes", json::binary({0, 255, 10})}, {"text", std::string(100'000, 'x')}};
  near.queue({{"op", "hello"}});
  near.queue(sent);
  far.queue({{"op", "alive"}});
  EXPECT_FALSE(far.proven());
  std::vector<json> heard;
  for (int i = 0; i < 1000 && heard.size() < 2; ++i) {
    near.flush();
    far.flush();
    if (auto one = far.pump()) heard.push_back(*one);
  }
  ASSERT_EQ(heard.size(), 2U);
  EXPECT_EQ(heard[1], sent);
  EXPECT_TRUE(far.proven());
  EXPECT_EQ(near.pump().value(), json({{"op", "alive"}}));
}

TEST(SecureChannel, RefusesAPeerWithoutTheKey) {
  const RunKey key = new_run_key();
  const std::string right = output_of({{{"op", "hello"}}, {{"op", "alive"}}}, key, End::far);
  constexpr std::size_t header = 24, frame = 4;
  const auto changed = [&](const std::function<void(std::string&)>& change) {
    std::string out = right;
    change(out);
    return out;
  };
  const auto length = [](const std::string& bytes) { return static_cast<unsigned char>(bytes[header]); };
  const std::size_t first = frame + length(right);
  const std::vector<std::pair<const char*, std::string>> tries{
      {"another key", output_of({{{"op", "hello"}}}, new_run_key(), End::far)},
      {"an HTTP request",
       "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: curl\r\nAccept: */*\r\n\r\n" + std::string(99, 'x')},
      {"zeros", std::string(4096, '\0')},
      {"a length of 4 GiB", right.substr(0, header) + std::string(64, '\xff')},
      {"what this end itself sends", output_of({{{"op", "hello"}}}, key, End::near)},
      {"a bit of the text", changed([&](std::string& all) { all[header + frame + 3] ^= 1; })},
      {"a bit of the header", changed([&](std::string& all) { all[5] ^= 1; })},
      {"the second frame first", right.substr(0, header) + right.substr(header + first)},
      {"a shorter frame", changed([&](std::string& all) { --all[header]; })},
      {"a header of another stream", output_of({{{"op", "hello"}}}, key, End::far).substr(0, header) + right.substr(header)},
  };
  for (const auto& [what, bytes] : tries) {
    Ends ends = connected();
    SecureChannel near(std::move(ends.near), key, End::near);
    ASSERT_EQ(::send(ends.far.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    EXPECT_THROW(near.pump(), FrameError) << what;
    EXPECT_FALSE(near.proven()) << what;
  }
}

TEST(SecureChannel, RefusesAReplayedFrame) {
  const RunKey key = new_run_key();
  const std::string right = output_of({{{"op", "hello"}}}, key, End::far), again = right + right.substr(24);
  Ends ends = connected();
  SecureChannel near(std::move(ends.near), key, End::near);
  ::send(ends.far.get(), again.data(), again.size(), 0);
  EXPECT_EQ(near.pump().value(), json({{"op", "hello"}}));
  EXPECT_THROW(near.pump(), FrameError);
}

TEST(SecureChannel, NamesTheDefectOfAKey) {
  EXPECT_THROW(key_from_hex("abc"), std::runtime_error);
  EXPECT_THROW(key_from_hex(std::string(64, 'g')), std::runtime_error);
}

}  // namespace
}  // namespace kvcts::process
