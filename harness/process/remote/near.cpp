#include "process/remote/near.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstring>
#include <list>
#include <map>
#include <stdexcept>

#include "process/memory_file.hpp"
#include "process/pointers.hpp"
#include "process/procfs.hpp"
#include "process/remote/installed.hpp"
#include "process/remote/secure_channel.hpp"
#include "process/remote/sockets.hpp"
#include "process/status.hpp"
#include "process/status_view.hpp"

extern char** environ;  // NOLINT

namespace kvcts::process {

namespace {

using nlohmann::json;

constexpr int start_ms = 60'000, proof_ms = 5'000, end_ms = 8'000, lost_ms = 500;
constexpr std::size_t most_waiting = 16;  ///< connections that have not proven themselves

struct Gone : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The process that starts far: ssh or srun.
class Starter {
 public:
  explicit Starter(std::vector<std::string> words) {
    int in[2], stderr_pipe[2];
    if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(stderr_pipe, O_CLOEXEC) != 0) throw Gone("no pipe");
    stdin_.reset(in[1]);
    stderr_.reset(stderr_pipe[0]);
    const UniqueFd theirs(in[0]), their_stderr(stderr_pipe[1]);
    ::fcntl(stderr_.get(), F_SETFL, O_NONBLOCK);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, theirs.get(), 0);
    for (const int stream : {1, 2}) ::posix_spawn_file_actions_adddup2(&actions, their_stderr.get(), stream);
    std::vector<char*> pointers = pointers_to(words);
    const int error = ::posix_spawnp(&pid_, pointers[0], &actions, nullptr, pointers.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    if (error != 0) throw Gone(words[0] + ": " + std::strerror(error));
  }
  /// far ends with its input; what started it has a moment to follow.
  ~Starter() {
    stdin_.reset();
    for (int waited = 0; pid_ > 0 && waited < patience_ms_; waited += 10) {
      if (ended()) return;
      ::usleep(10'000);
    }
    if (pid_ > 0 && ::kill(pid_, SIGKILL) == 0) ::waitpid(pid_, nullptr, 0);
  }
  Starter(const Starter&) = delete;
  Starter& operator=(const Starter&) = delete;

  /// One that has ended already, and does not read it, is seen to have ended.
  void write_line(const std::string& line) const {
    [[maybe_unused]] const auto written = ::write(stdin_.get(), line.data(), line.size());
  }
  int stderr_pipe() const { return stderr_.get(); }
  /// What it said last, in a line.
  const std::string& words() {
    char buffer[4096];
    for (ssize_t got = 0; (got = ::read(stderr_.get(), buffer, sizeof buffer)) > 0;)
      words_ = (words_ + std::string(buffer, static_cast<std::size_t>(got))).substr(0, 2000);
    while (!words_.empty() && (words_.back() == '\n' || words_.back() == '\r')) words_.pop_back();
    return words_;
  }
  bool ended() {
    if (pid_ > 0 && ::waitpid(pid_, &status_, WNOHANG) != pid_) return false;
    pid_ = 0;
    return true;
  }
  /// far cannot be reached: no use to wait for it.
  void is_lost() { patience_ms_ = lost_ms; }
  std::string ending() const {
    return WIFSIGNALED(status_) ? "ended by signal " + std::to_string(WTERMSIG(status_))
                                : "ended with status " + std::to_string(WEXITSTATUS(status_));
  }

 private:
  pid_t pid_{0};
  int status_{0}, patience_ms_{end_ms};
  UniqueFd stdin_, stderr_;
  std::string words_;
};

/// A process there, as the supervisor passed its ends here.
struct NearChild {
  UniqueFd out, err;
  std::optional<Channel> channel;
  Mapping page;
  std::int64_t entered{0};  ///< when its phase began, by the other host's clock
};

struct Line {
  Channel channel;
  std::map<std::uint64_t, NearChild> children;
};

class Near {
 public:
  explicit Near(UniqueFd socket) { lines_[0].channel = Channel(std::move(socket)); }

  void serve(const json& host) {
    meet(host);
    std::int64_t next_word = 0;
    while (!lines_.empty() && lines_.contains(0)) {
      far_->flush();
      wait();
      while (auto message = pump_far()) from_far(*message);
      for (auto at = lines_.begin(); at != lines_.end();) at = serve_line(at) ? std::next(at) : lines_.erase(at);
      if (silence_.too_long(now_ns() / ns_per_ms))
        throw Gone("no word from it for " + std::to_string(silence_ms / 1000) + " s");
      if (now_ns() < next_word) continue;
      next_word = now_ns() + alive_ms * ns_per_ms;
      far_->queue({{"op", "alive"}});
    }
  }

  /// Then the supervisor need not wait for what is left of it.
  void give_up() {
    if (starter_) starter_->is_lost();
    lines_.clear();
  }

 private:
  /// Starts far and takes the connection that has the key. Whoever else connects is closed, and hinders none.
  void meet(const json& host) {
    Listener listener = listen_anywhere();
    const RunKey key = new_run_key();
    starter_.emplace(host.at("start").get<std::vector<std::string>>());
    starter_->write_line(
        json{{"key", to_hex(key)}, {"addresses", own_addresses()}, {"port", listener.port}, {"name", host.at("name")}}
            .dump() +
        "\n");
    struct Caller {
      SecureChannel channel;
      std::int64_t since_ns;
    };
    std::list<Caller> callers;
    const std::int64_t deadline = now_ns() + start_ms * ns_per_ms;
    json hello;
    while (hello.is_null()) {
      if (starter_->ended()) throw Gone(start_answer() + starter_->ending());
      if (now_ns() > deadline)
        throw Gone(start_answer() + "it did not connect within " + std::to_string(start_ms / 1000) + " s");
      std::vector<pollfd> entries{{listener.socket.get(), POLLIN, 0}, {lines_[0].channel.fd(), POLLRDHUP, 0}};
      for (const Caller& caller : callers) entries.push_back({caller.channel.fd(), POLLIN, 0});
      ::poll(entries.data(), entries.size(), 50);
      if ((entries[1].revents & (POLLHUP | POLLRDHUP)) != 0) throw Gone("the supervisor left");
      for (;;) {
        UniqueFd socket(::accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!socket) break;
        without_delay(socket.get());
        if (callers.size() == most_waiting) callers.pop_front();
        callers.push_back({SecureChannel(std::move(socket), key, End::near), now_ns()});
      }
      for (auto caller = callers.begin(); caller != callers.end() && hello.is_null();) {
        bool keep = now_ns() - caller->since_ns < proof_ms * ns_per_ms;
        try {
          caller->channel.flush();
          if (auto first = caller->channel.pump()) {
            hello = std::move(*first);
            far_.emplace(std::move(caller->channel));
          }
        } catch (const FrameError&) {
          keep = false;
        }
        caller = keep && hello.is_null() ? std::next(caller) : callers.erase(caller);
      }
    }
    const json here = installed_digests();
    for (const auto& [kind, digest] : here.items())
      if (const std::string theirs = hello.at("installed").value(kind, ""); theirs != digest)
        throw Gone("it has other " + kind + " than this machine (" + theirs + ", here " + digest.get<std::string>() +
                   "): install the same version on both");
    json event = {{"event", "host"},
                  {"name", hello.value("name", "")},
                  {"address", own_rail(host, hello)},
                  {"interface", hello.value("interface", "")},
                  {"near_name", host_name()},
                  {"near_address", own_address(far_->fd())},
                  {"near_interface", interface_of(own_address(far_->fd()))},
                  {"isolation", hello.value("isolation", "")}};
    lines_[0].channel.queue(event);
  }

  static std::string own_rail(const json& host, const json& hello) {
    return host.value("address", "").empty() ? hello.value("address", "") : host.value("address", "");
  }

  std::string start_answer() {
    const std::string words = starter_->words();
    return words.empty() ? "" : words + "; ";
  }

  void wait() {
    std::vector<pollfd> entries{{far_->fd(), static_cast<short>(POLLIN | (far_->output_bytes() > 0 ? POLLOUT : 0)), 0},
                                {starter_->stderr_pipe(), POLLIN, 0}};
    const auto add = [&](Channel& channel) {
      entries.push_back({channel.fd(), static_cast<short>(POLLIN | (channel.has_output() ? POLLOUT : 0)), 0});
    };
    for (auto& [number, line] : lines_) {
      add(line.channel);
      for (auto& [id, child] : line.children)
        if (child.channel) add(*child.channel);
    }
    ::poll(entries.data(), entries.size(), alive_ms);
    starter_->words();
  }

  std::optional<json> pump_far() {
    try {
      auto message = far_->pump();
      if (message) silence_.end();
      return message;
    } catch (const FrameError& fault) {
      const std::string words = starter_->words();
      throw Gone(std::string(fault.what()) + (words.empty() ? "" : "; it said: " + words));
    }
  }

  /// False: the supervisor has closed it.
  bool serve_line(const std::map<std::uint64_t, Line>::iterator& at) {
    auto& [number, line] = *at;
    try {
      line.channel.flush();
      while (auto request = line.channel.pump()) from_supervisor(number, line, *request);
    } catch (const FrameError&) {
      for (auto& [id, child] : line.children) forget_files(number, id);
      far_->queue({{"op", "unline"}, {"line", number}});
      return false;
    }
    for (auto& [id, child] : line.children) {
      if (!child.channel) continue;
      try {
        child.channel->flush();
        while (auto request = child.channel->pump()) to_child(number, id, *request);
      } catch (const FrameError&) {
        child.channel.reset();
        far_->queue({{"op", "hang-up"}, {"line", number}, {"id", id}});
      }
    }
    return true;
  }

  void from_supervisor(std::uint64_t number, Line& line, Message& request) {
    json& body = request.body;
    const std::string op = body.value("op", "");
    if (op == "line") {
      const std::uint64_t next = next_line_++;
      if (request.fds.size() == 1) lines_[next].channel = Channel(std::move(request.fds[0]));
      far_->queue({{"op", "line"}, {"line", next}, {"sandbox", body.value("sandbox", json())}});
      return;
    }
    if (op == "spawn") {
      NearChild& child = line.children[body.at("id").get<std::uint64_t>()];
      child = {};
      std::size_t i = 0;
      const auto next = [&] { return i < request.fds.size() ? std::move(request.fds[i++]) : UniqueFd(); };
      child.out = next(), child.err = next();
      if (i < request.fds.size() && is_socket(request.fds[i].get())) child.channel.emplace(next());
      if (i < request.fds.size() && file_bytes(request.fds[i].get()) == sizeof(StatusPage))
        child.page = Mapping(next().get(), 0);
      body["channel"] = child.channel.has_value();
      body["page"] = static_cast<bool>(child.page);
    }
    far_->queue({{"op", "launcher"}, {"line", number}, {"body", std::move(body)}});
  }

  static bool is_socket(int fd) {
    struct stat info{};
    return ::fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode);
  }

  /// A request to a child. Files that stand for some there become their numbers.
  void to_child(std::uint64_t line, std::uint64_t id, const Message& request) {
    json files = json::array();
    for (const UniqueFd& fd : request.fds) {
      const auto stands_for = files_.find(inode_of(fd.get()));
      if (stands_for == files_.end()) throw Gone("a descriptor of this machine was meant for a process of the other host");
      files.push_back(stands_for->second.number);
    }
    if (request.body.value("op", "") == "close" && request.body.contains("key"))
      forget_files(line, id, request.body["key"].get<std::uint64_t>());
    far_->queue({{"op", "frame"}, {"line", line}, {"id", id}, {"body", request.body}, {"files", std::move(files)}});
  }

  static ino_t inode_of(int fd) {
    struct stat info{};
    ::fstat(fd, &info);
    return info.st_ino;
  }

  void forget_files(std::uint64_t line, std::uint64_t id, std::optional<std::uint64_t> key = {}) {
    std::erase_if(files_, [&](const auto& entry) {
      const File& file = entry.second;
      return file.line == line && file.id == id && (!key || file.key == *key);
    });
  }

  void from_far(json& message) {
    const std::string op = message.value("op", "");
    const auto number = message.value("line", std::uint64_t{0});
    const auto line = lines_.find(number);
    if (op == "alive" || line == lines_.end()) return;
    if (op == "event") {
      json& event = message.at("body");
      if (event.contains("pid")) event["far_pid"] = std::exchange(event["pid"], -1);
      line->second.channel.queue(event);
      line->second.channel.flush();
      return;
    }
    const auto found = line->second.children.find(message.value("id", std::uint64_t{0}));
    if (found == line->second.children.end()) return;
    NearChild& child = found->second;
    if (op == "frame" && child.channel) {
      std::vector<int> fds;
      for (const json& file : message.value("files", json::array())) {
        File stands_for{create_memory_file("kvcts-far", 1), file.get<std::uint64_t>(), number, found->first,
                        message.value("key", std::uint64_t{0})};
        fds.push_back(stands_for.placeholder.get());
        files_.emplace(inode_of(fds.back()), std::move(stands_for));
      }
      child.channel->queue(message.at("body"), fds);
      child.channel->flush();
    } else if (op == "page" && child.page) {
      copy_page(child, message.at("bytes").get_binary());
    } else if (op == "output") {
      const UniqueFd& to = message.value("stream", 1) == 1 ? child.out : child.err;
      const auto& bytes = message.at("bytes").get_binary();
      // The supervisor reads at once; what a full pipe does not take is lost, as it keeps the end alone anyway.
      if (to) [[maybe_unused]]
        const auto written = ::write(to.get(), bytes.data(), bytes.size());
    } else if (op == "closed") {
      if (const std::string what = message.value("what", ""); what == "channel")
        child.channel.reset();
      else
        (what == "out" ? child.out : child.err).reset();
    }
  }

  static void copy_page(NearChild& child, const std::vector<std::uint8_t>& bytes) {
    if (bytes.size() != sizeof(StatusPage)) return;
    const auto* from = reinterpret_cast<const StatusPage*>(bytes.data());
    auto* to = reinterpret_cast<StatusPage*>(child.page.data());
    const std::int64_t entered = from->phase_since_ns.load();
    const std::int64_t here = entered == child.entered ? to->phase_since_ns.load() : now_ns();
    child.entered = entered;
    std::memcpy(child.page.data(), bytes.data(), bytes.size());
    to->phase_since_ns = here;
  }

  struct File {
    UniqueFd placeholder;  ///< kept open, so that no other file gets its number
    std::uint64_t number{0}, line{0}, id{0}, key{0};
  };

  std::map<std::uint64_t, Line> lines_;
  std::uint64_t next_line_{1};
  std::optional<Starter> starter_;
  std::optional<SecureChannel> far_;
  std::map<ino_t, File> files_;
  Silence silence_;
};

}  // namespace

int run_near(UniqueFd socket, const json& host) {
  Near near(std::move(socket));
  try {
    near.serve(host);
    return 0;
  } catch (const std::exception& fault) {  // the reason is there before the supervisor sees that all is closed
    std::fprintf(stderr, "host %s: %s\n", host.at("name").get<std::string>().c_str(), fault.what());
    near.give_up();
    return 1;
  }
}

}  // namespace kvcts::process
