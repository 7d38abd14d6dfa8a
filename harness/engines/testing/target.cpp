#include "engines/testing/target.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "engines/transport/patience.hpp"

namespace kvcts::testing {
namespace {

using nlohmann::json;
using transport::PeerId;
using transport::RegionId;
using transport::Session;
using namespace std::chrono_literals;

std::uint64_t mix(std::uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

std::unique_ptr<Session> open_session(const Placement& setup) {
  for (const auto& [key, value] : setup.environment) setenv(key.c_str(), value.c_str(), 1);
  return std::make_unique<Session>(
      transport::Plugin::load(transport::find_plugin(setup.plugin)),
      transport::OpenOptions{.name = "target", .role = transport::Role::consumer, .options = setup.options});
}

std::string wait_for_notification(Session& session) {
  for (const auto end = std::chrono::steady_clock::now() + 5s; std::chrono::steady_clock::now() < end;) {
    if (auto data = session.take_notification()) return *data;
    session.progress();
    std::this_thread::sleep_for(100us);
  }
  return {};
}

class LocalTarget final : public Target {
 public:
  explicit LocalTarget(const Placement& setup) : session_(open_session(setup)) {}
  RegionId add(const transport::Region& region) override { return session_->register_region(region); }
  void remove(RegionId region) override { session_->deregister(region); }
  std::string metadata(const std::vector<RegionId>& regions) override { return session_->metadata(regions); }
  std::string take_notification() override { return wait_for_notification(*session_); }
  long open_files() override { return count_open_files(); }
  void kill() override { session_.reset(); }

 private:
  std::unique_ptr<Session> session_;
};

/// One datagram per command and reply; JSON, with blobs as arrays of bytes. SEQPACKET keeps them separate.
class ChildTarget final : public Target {
 public:
  explicit ChildTarget(const Placement& setup) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) throw std::runtime_error("socketpair");
    const pid_t parent = getpid();
    child_ = fork();
    if (child_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      close(pair[0]);
      try {
        serve(setup, pair[1]);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "target: %s\n", error.what());
      }
      _exit(0);
    }
    close(pair[1]);
    socket_ = pair[0];
  }
  ~ChildTarget() override {
    close(socket_);
    if (child_ > 0) {
      ::kill(child_, SIGCONT);
      waitpid(child_, nullptr, 0);
    }
  }
  RegionId add(const transport::Region& region) override {
    // The memory file was opened before the fork or is passed through /proc: the child maps it at its own address.
    return call({{"op", "add"},
                 {"pid", getpid()},
                 {"fd", region.fd},
                 {"offset", region.fd_offset},
                 {"bytes", region.bytes},
                 {"access", region.access}});
  }
  void remove(RegionId region) override { call({{"op", "remove"}, {"region", region}}); }
  std::string metadata(const std::vector<RegionId>& regions) override {
    const auto bytes = call({{"op", "metadata"}, {"regions", regions}}).get<std::vector<unsigned char>>();
    return {bytes.begin(), bytes.end()};
  }
  std::string take_notification() override { return call({{"op", "take"}}); }
  long open_files() override { return call({{"op", "files"}}); }
  void kill() override {
    ::kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    child_ = -1;
  }

 private:
  json call(const json& request) {
    const std::string text = request.dump();
    std::string reply(1 << 20, '\0');
    if (send(socket_, text.data(), text.size(), 0) < 0) throw std::runtime_error("the target is gone");
    const auto bytes = recv(socket_, reply.data(), reply.size(), 0);
    if (bytes <= 0) throw std::runtime_error("the target is gone");
    const auto answer = json::parse(reply.substr(0, static_cast<std::size_t>(bytes)));
    if (answer.contains("error")) throw std::runtime_error("target: " + answer["error"].get<std::string>());
    return answer["ok"];
  }

  static void serve(const Placement& setup, int socket) {
    const auto session = open_session(setup);
    std::string buffer(1 << 20, '\0');
    transport::Patience patience;
    for (;;) {
      pollfd ready{socket, POLLIN, 0};
      if (session->progress()) patience.reset();
      if (::poll(&ready, 1, patience.poll_timeout_ms()) == 0) continue;
      patience.reset();
      const auto bytes = recv(socket, buffer.data(), buffer.size(), 0);
      if (bytes <= 0) return;
      const auto request = json::parse(buffer.substr(0, static_cast<std::size_t>(bytes)));
      json reply;
      try {
        reply["ok"] = answer(*session, request);
      } catch (const std::exception& error) {
        reply["error"] = error.what();
      }
      const std::string text = reply.dump();
      if (send(socket, text.data(), text.size(), 0) < 0) return;
    }
  }

  static json answer(Session& session, const json& request) {
    const std::string op = request["op"];
    if (op == "add") {
      const std::string path =
          "/proc/" + std::to_string(request["pid"].get<int>()) + "/fd/" + std::to_string(request["fd"].get<int>());
      const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
      const std::size_t offset = request["offset"], bytes = request["bytes"];
      // Where the last one was, if that is free: other memory at an address that the engine knows.
      auto* base =
          static_cast<unsigned char*>(mmap(vacated(), offset + bytes + 1, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
      const RegionId id = session.register_region(
          {.address = base + offset, .bytes = bytes, .fd = fd, .fd_offset = offset, .access = request["access"]});
      close(fd);
      mapped()[id] = {base, offset + bytes + 1};
      return id;
    }
    if (op == "remove") {
      const RegionId id = request["region"];
      session.deregister(id);
      vacated() = mapped()[id].first;
      munmap(mapped()[id].first, mapped()[id].second);
      return nullptr;
    }
    if (op == "metadata") {
      const auto blob = session.metadata(request["regions"].get<std::vector<RegionId>>());
      return std::vector<unsigned char>(blob.begin(), blob.end());
    }
    if (op == "take") return wait_for_notification(session);
    if (op == "files") return count_open_files();
    throw std::runtime_error("unknown command " + op);
  }
  static void*& vacated() {
    static void* at = nullptr;
    return at;
  }
  static std::map<RegionId, std::pair<void*, std::size_t>>& mapped() {
    static std::map<RegionId, std::pair<void*, std::size_t>> all;
    return all;
  }

  pid_t child_{-1};
  int socket_{-1};
};

}  // namespace

namespace {

int memory_file(std::size_t bytes) {
  const int fd = memfd_create("kvcts-test", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) throw std::runtime_error("memfd");
  return fd;
}
unsigned char* map_file(int fd, std::size_t bytes, void* fixed = nullptr) {
  void* at = mmap(fixed, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | (fixed != nullptr ? MAP_FIXED : 0), fd, 0);
  if (at == MAP_FAILED) throw std::runtime_error("mmap");
  return static_cast<unsigned char*>(at);
}

}  // namespace

Memory::Memory(std::size_t bytes) : fd_(memory_file(bytes)), data_(map_file(fd_, bytes)), bytes_(bytes) {}
Memory::~Memory() {
  for (const Earlier& one : earlier_) munmap(one.data, bytes_);
  munmap(data_, bytes_);
  close(fd_);
}
void Memory::exchange() {
  earlier_.push_back({map_file(fd_, bytes_), copy()});
  const int fresh = memory_file(bytes_);
  if (dup3(fresh, fd_, O_CLOEXEC) < 0) throw std::runtime_error("dup3");
  close(fresh);
  map_file(fd_, bytes_, data_);
}
bool Memory::earlier_untouched() const {
  return std::all_of(earlier_.begin(), earlier_.end(),
                     [&](const Earlier& one) { return std::memcmp(one.data, one.bytes.data(), bytes_) == 0; });
}
void Memory::fill(std::uint64_t seed) {
  for (std::size_t i = 0; i < bytes_; i += 8) {
    const std::uint64_t word = mix(seed * 0x10001 + i);
    std::memcpy(data_ + i, &word, std::min<std::size_t>(8, bytes_ - i));
  }
}
transport::Region Memory::region(std::uint64_t offset, std::uint64_t bytes, std::uint32_t access) const {
  return {.address = data_ + offset, .bytes = bytes, .fd = fd_, .fd_offset = offset, .access = access};
}

long count_open_files() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

std::unique_ptr<Target> start_target(const Placement& setup) {
  if (setup.processes == 1) return std::make_unique<LocalTarget>(setup);
  return std::make_unique<ChildTarget>(setup);
}

}  // namespace kvcts::testing
