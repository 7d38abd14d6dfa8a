#include "process/remote/far.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <iostream>
#include <map>
#include <new>
#include <stdexcept>

#include "process/installation.hpp"
#include "process/launcher.hpp"
#include "process/memory_file.hpp"
#include "process/procfs.hpp"
#include "process/remote/installed.hpp"
#include "process/remote/near.hpp"
#include "process/remote/secure_channel.hpp"
#include "process/remote/sockets.hpp"
#include "process/sandbox/sandbox.hpp"
#include "process/status.hpp"
#include "process/status_view.hpp"

namespace kvcts::process {

namespace {

using nlohmann::json;

constexpr int page_ms = 20, connect_ms = 5'000;
constexpr std::size_t most_queued = 8 << 20;  ///< bytes for the supervisor: more is not read from children meanwhile
constexpr const char* checker = "kvcts-checker";

struct FarChild {
  std::optional<Channel> channel;
  UniqueFd out, err;
  MemoryFile page;
  std::string sent_page;
  std::map<std::uint64_t, std::uint64_t> opened;  ///< keys of cases by the seq of the request that opens them
};

struct Launcher {
  pid_t pid{0};    ///< bubblewrap's, if it runs in a sandbox
  pid_t first{0};  ///< then process 1 there
  bool sandboxed{false};
  UniqueFd errors;
  Channel channel;
  std::map<std::uint64_t, FarChild> children;
};

class Far {
 public:
  Far(SecureChannel near, std::string name)
      : near_(std::move(near)), run_("far-" + std::move(name) + "-" + std::to_string(::getpid())) {
    near_.queue({{"op", "hello"},
                 {"name", host_name()},
                 {"address", own_address(near_.fd())},
                 {"interface", interface_of(own_address(near_.fd()))},
                 {"isolation", isolation_text()},
                 {"installed", installed_digests()}});
    launchers_[0] = start(json());
  }

  /// Ends with a FrameError, or when its standard input ends.
  void serve() {
    std::int64_t next_word = 0, next_pages = 0;
    for (;;) {
      near_.flush();
      if (!wait()) return;
      while (auto message = near_.pump()) {
        silence_.end();
        from_near(*message);
      }
      if (silence_.too_long(now_ns() / ns_per_ms)) return;
      for (auto at = launchers_.begin(); at != launchers_.end();)
        at = serve_launcher(*at) ? std::next(at) : launchers_.erase(at);
      if (now_ns() >= next_pages) {
        next_pages = now_ns() + page_ms * ns_per_ms;
        for (auto& [number, launcher] : launchers_)
          for (auto& [id, child] : launcher.children) send_page(number, id, child);
      }
      if (now_ns() < next_word) continue;
      next_word = now_ns() + alive_ms * ns_per_ms;
      near_.queue({{"op", "alive"}});
    }
  }

  /// Ends all that was started here.
  ~Far() {
    for (auto& [number, launcher] : launchers_) end(launcher);
  }
  Far(const Far&) = delete;
  Far& operator=(const Far&) = delete;

 private:
  Launcher start(const json& sandbox) {
    const std::string program = (program_folder() / "kvcts-launcher").string();
    Launcher out;
    out.errors = UniqueFd(::memfd_create("kvcts-sandbox-errors", MFD_CLOEXEC));
    LauncherProcess process;
    if (sandbox.is_null()) {
      process = start_launcher({program, run_}, {}, out.errors.get());
    } else {
      const Sandbox wanted{sandbox.value("granted", std::vector<std::string>{}),
                           sandbox.value("named", std::vector<std::string>{}),
                           sandbox.value("hidden", std::vector<std::string>{})};
      process = start_launcher_in(wanted, {program, run_}, out.errors.get());
      out.sandboxed = true;
    }
    out.pid = process.pid;
    out.channel = Channel(std::move(process.socket));
    return out;
  }

  static void end(Launcher& launcher) {
    launcher.channel.close();
    if (launcher.sandboxed) ::kill(launcher.pid, SIGKILL);  // with all that is in it
    constexpr int patience_ms = 8'000;
    for (int waited = 0; launcher.pid > 0 && waited < patience_ms; waited += 2) {
      if (::waitpid(launcher.pid, nullptr, WNOHANG) != 0) launcher.pid = 0;
      if (launcher.pid > 0) ::usleep(2000);
    }
    if (launcher.pid > 0) ::kill(launcher.pid, SIGKILL);
  }

  bool wait() {
    std::vector<pollfd> entries{{STDIN_FILENO, POLLIN, 0},
                                {near_.fd(), static_cast<short>(POLLIN | (near_.output_bytes() > 0 ? POLLOUT : 0)), 0}};
    const bool reads = near_.output_bytes() < most_queued;
    const auto add = [&](const Channel& channel) {
      entries.push_back({channel.fd(), static_cast<short>((reads ? POLLIN : 0) | (channel.has_output() ? POLLOUT : 0)), 0});
    };
    bool pages = false;
    for (auto& [number, launcher] : launchers_) {
      add(launcher.channel);
      for (auto& [id, child] : launcher.children) {
        if (child.channel) add(*child.channel);
        for (const UniqueFd* stream : {&child.out, &child.err})
          if (*stream && reads) entries.push_back({stream->get(), POLLIN, 0});
        pages = pages || child.page.map;
      }
    }
    ::poll(entries.data(), entries.size(), pages ? page_ms : alive_ms);
    char byte = 0;
    return (entries[0].revents & (POLLIN | POLLHUP)) == 0 || ::read(STDIN_FILENO, &byte, 1) > 0;
  }

  void from_near(json& message) {
    const std::string op = message.value("op", "");
    const auto number = message.value("line", std::uint64_t{0});
    if (op == "line") {
      launchers_[number] = start(message.value("sandbox", json()));
      return;
    }
    const auto found = launchers_.find(number);
    if (op == "alive" || found == launchers_.end()) return;
    Launcher& launcher = found->second;
    if (op == "unline") {
      end(launcher);
      launchers_.erase(found);
    } else if (op == "launcher") {
      to_launcher(number, launcher, message.at("body"));
    } else if (const auto child = launcher.children.find(message.value("id", std::uint64_t{0}));
               child != launcher.children.end()) {
      if (op == "hang-up") child->second.channel.reset();
      if (op == "frame" && child->second.channel) to_child(child->second, message);
    }
  }

  /// A request to a launcher. A spawn gets its pipes, channel and page here, and its program of this installation.
  void to_launcher(std::uint64_t number, Launcher& launcher, json& body) {
    if (body.value("op", "") != "spawn") return send(launcher.channel, body, {});
    const auto id = body.at("id").get<std::uint64_t>();
    FarChild& child = launcher.children[id];
    child = {};
    auto [out, out_end] = stream_pipe();
    auto [err, err_end] = stream_pipe();
    std::vector<int> fds{out_end.get(), err_end.get()};
    UniqueFd theirs;
    const std::string program = std::filesystem::path(body.at("argv").at(0).get<std::string>()).filename();
    const bool ours = program.starts_with("kvcts-");
    body["argv"][0] = ours ? (program_folder() / program).string() : find_tool(program);
    body["mark"] = run_ + "/" + std::to_string(number) + "/" + std::to_string(id);
    if (body.value("channel", false)) {
      auto [own, other] = socket_pair();
      child.channel.emplace(std::move(own), Channel::Options{max_frame, program == checker});
      theirs = std::move(other);
      fds.push_back(theirs.get());
    }
    if (body.value("page", false)) {
      child.page = MemoryFile("kvcts-status", sizeof(StatusPage));
      new (child.page.map.data()) StatusPage();
      fds.push_back(child.page.fd.get());
    }
    child.out = std::move(out), child.err = std::move(err);
    send(launcher.channel, body, fds);
  }

  static void send(Channel& channel, const json& body, std::span<const int> fds) {
    try {
      channel.queue(body, fds);
      channel.flush();
    } catch (const FrameError&) {  // its end is read from the same socket
    }
  }

  void to_child(FarChild& child, json& message) {
    std::vector<int> fds;
    for (const json& number : message.value("files", json::array()))
      if (const auto file = files_.find(number.get<std::uint64_t>()); file != files_.end())
        fds.push_back(file->second.fd.get());
    json& body = message.at("body");
    const std::string op = body.value("op", "");
    const auto key = body.value("key", std::uint64_t{0});
    if (op == "open") child.opened[body.value("seq", std::uint64_t{0})] = key;
    if (op == "close" && child.channel && key != 0)
      std::erase_if(files_, [&](const auto& entry) { return entry.second.of == &child && entry.second.key == key; });
    send(*child.channel, body, fds);
  }

  /// False: it has ended, with all that it started.
  bool serve_launcher(std::pair<const std::uint64_t, Launcher>& entry) {
    auto& [number, launcher] = entry;
    for (auto& [id, child] : launcher.children) serve_child(number, id, child);
    try {
      launcher.channel.flush();
      while (auto event = launcher.channel.pump()) from_launcher(number, launcher, event->body);
      return true;
    } catch (const FrameError&) {
      if (number == 0)
        throw FrameError(FrameFault::eof, "the launcher of this host ended" + first_line_of(launcher.errors.get()));
      near_.queue({{"op", "event"},
                   {"line", number},
                   {"body", {{"event", "launcher-ended"}, {"text", first_line_of(launcher.errors.get())}}}});
      end(launcher);
      return false;
    }
  }

  void from_launcher(std::uint64_t number, Launcher& launcher, json event) {
    const std::string kind = event.value("event", "");
    if (kind == "spawned" && launcher.sandboxed) {  // the pid on this host
      if (launcher.first == 0) launcher.first = child_in_namespace(launcher.pid, 1);
      event["pid"] = launcher.first != 0 ? child_in_namespace(launcher.first, event.at("pid").get<pid_t>()) : 0;
    }
    if (const auto child = launcher.children.find(event.value("id", std::uint64_t{0})); child != launcher.children.end()) {
      // What it had said and shown before comes first.
      serve_child(number, child->first, child->second);
      if (kind == "killed") {
        std::erase_if(files_, [&](const auto& file) { return file.second.of == &child->second; });
        launcher.children.erase(child);
      }
    }
    near_.queue({{"op", "event"}, {"line", number}, {"body", std::move(event)}});
  }

  void serve_child(std::uint64_t number, std::uint64_t id, FarChild& child) {
    send_page(number, id, child);
    if (near_.output_bytes() >= most_queued) return;
    const auto closed = [&](const char* what) {
      near_.queue({{"op", "closed"}, {"line", number}, {"id", id}, {"what", what}});
    };
    try {
      if (child.channel) child.channel->flush();
      for (int i = 0; i < 16 && child.channel; ++i) {
        auto reply = child.channel->pump();
        if (!reply) break;
        from_child(number, id, child, *reply);
      }
    } catch (const FrameError& fault) {
      if (fault.fault != FrameFault::eof)  // whoever reads it finds no reply in it
        near_.queue({{"op", "frame"}, {"line", number}, {"id", id}, {"body", {{"broken", fault.what()}}}});
      child.channel.reset();
      closed("channel");
    }
    for (const int stream : {1, 2}) {
      UniqueFd& from = stream == 1 ? child.out : child.err;
      char buffer[64 * 1024];
      const ssize_t got = from ? ::read(from.get(), buffer, sizeof buffer) : -1;
      if (got > 0)
        near_.queue({{"op", "output"},
                     {"line", number},
                     {"id", id},
                     {"stream", stream},
                     {"bytes", json::binary(std::vector<std::uint8_t>(buffer, buffer + got))}});
      if (got != 0) continue;
      from.reset();
      closed(stream == 1 ? "out" : "err");
    }
  }

  /// A reply, with files that stay here and travel as numbers.
  void from_child(std::uint64_t number, std::uint64_t id, FarChild& child, Message& reply) {
    json message = {{"op", "frame"}, {"line", number}, {"id", id}, {"body", std::move(reply.body)}};
    const auto opened = child.opened.find(message["body"].value("seq", std::uint64_t{0}));
    for (UniqueFd& fd : reply.fds) {
      const std::uint64_t key = opened != child.opened.end() ? opened->second : 0;
      message["key"] = key;
      message["files"].push_back(next_file_);
      files_.emplace(next_file_++, File{std::move(fd), &child, key});
    }
    if (opened != child.opened.end()) child.opened.erase(opened);
    near_.queue(message);
  }

  void send_page(std::uint64_t number, std::uint64_t id, FarChild& child) {
    if (!child.page.map) return;
    const std::string now(reinterpret_cast<const char*>(child.page.map.data()), child.page.map.size());
    if (now == child.sent_page) return;
    child.sent_page = now;
    near_.queue({{"op", "page"},
                 {"line", number},
                 {"id", id},
                 {"bytes", json::binary(std::vector<std::uint8_t>(now.begin(), now.end()))}});
  }

  struct File {
    UniqueFd fd;
    const FarChild* of;
    std::uint64_t key;
  };

  SecureChannel near_;
  std::string run_;
  std::map<std::uint64_t, Launcher> launchers_;
  std::map<std::uint64_t, File> files_;
  std::uint64_t next_file_{1};
  Silence silence_;
};

}  // namespace

int run_far() {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  try {
    std::string line;
    std::getline(std::cin, line);
    const json asked = json::parse(line);
    const RunKey key = key_from_hex(asked.at("key").get<std::string>());
    const auto port = asked.at("port").get<std::uint16_t>();
    std::string tried;
    UniqueFd socket;
    for (const std::string& address : asked.at("addresses").get<std::vector<std::string>>()) {
      std::string why;
      socket = connect_to(address, port, connect_ms, why);
      if (socket) break;
      tried += (tried.empty() ? "" : ", ") + address + " (" + why + ")";
    }
    if (!socket) throw std::runtime_error("no address of the supervisor's host can be reached: " + tried);
    without_delay(socket.get());
    Far(SecureChannel(std::move(socket), key, End::far), asked.at("name").get<std::string>()).serve();
    return 0;
  } catch (const std::exception& fault) {
    std::fprintf(stderr, "%s\n", fault.what());
    return 1;
  }
}

}  // namespace kvcts::process
