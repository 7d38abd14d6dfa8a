// Engine attacker: engine shm that, in each transfer, tries to reach the processes that judge it. Option `attack`
// names a row of the table below; the fact "attack" is the outcome: "refused: <why>" or "SUCCEEDED: <what>".
// `target`: the path or word that some attacks need. Bytes are moved correctly, unless `corrupt` is 1.
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

#include "engines/support/shared_memory.hpp"
#include "process/status_view.hpp"

namespace kvcts::engines {
namespace {

constexpr pid_t first_process = 1;  // of the sandbox: the launcher
constexpr int launcher_channel = 3;

std::string refused(const std::string& why) { return "refused: " + why; }
std::string by_errno(bool succeeded, const char* what) {
  return succeeded ? std::string("SUCCEEDED: ") + what : refused(std::strerror(errno));
}

std::string read_all(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

/// Finds the judges by name, as far as /proc shows them. A launcher in the sandbox may be visible.
std::string see_judges(const std::string&) {
  DIR* proc = ::opendir("/proc");
  std::string seen;
  while (const dirent* entry = proc != nullptr ? ::readdir(proc) : nullptr) {
    const std::string name = read_all(std::string("/proc/") + entry->d_name + "/comm");
    if (name == "kvcts\n" || name.starts_with("kvcts-checker") || name == "bwrap\n")
      seen += " " + name.substr(0, name.size() - 1);
  }
  if (proc != nullptr) ::closedir(proc);
  return seen.empty() ? refused("no such process here") : "SUCCEEDED:" + seen;
}

std::string signal_judges(const std::string&) {
  for (const int number : {SIGSTOP, SIGTERM, SIGKILL}) ::kill(first_process, number);
  return ::kill(first_process, 0) == 0 ? refused("it continues") : "SUCCEEDED: it is gone";
}

std::string take_channel(const std::string&) {
  const int pidfd = static_cast<int>(::syscall(SYS_pidfd_open, first_process, 0));
  return by_errno(::syscall(SYS_pidfd_getfd, pidfd, launcher_channel, 0) >= 0, "its channel");
}
std::string trace_judge(const std::string&) {
  return by_errno(::ptrace(PTRACE_ATTACH, first_process, nullptr, nullptr) == 0, "traced");
}
std::string read_judge(const std::string&) { return by_errno(::open("/proc/1/mem", O_RDWR) >= 0, "its memory"); }
std::string copy_judge(const std::string&) {
  char here[8];
  iovec own{here, sizeof here}, other{reinterpret_cast<void*>(0x400000), sizeof here};
  return by_errno(::process_vm_readv(first_process, &own, 1, &other, 1, 0) >= 0, "its memory");
}
std::string list_descriptors(const std::string&) {
  char to[256];
  for (int fd = 0; fd < 64; ++fd) {
    const std::string link = "/proc/1/fd/" + std::to_string(fd);
    if (::readlink(link.c_str(), to, sizeof to) > 0 || ::open(link.c_str(), O_RDWR) >= 0)
      return "SUCCEEDED: descriptor " + std::to_string(fd);
  }
  return refused(std::strerror(errno));
}

std::string read_file(const std::string& target) {
  errno = ENODATA;  // it may be there, and empty
  return by_errno(!read_all(target).empty(), "read");
}
/// A port of the machine that something listens on.
std::string reach_network(const std::string& target) {
  sockaddr_in at{};
  at.sin_family = AF_INET, at.sin_port = htons(static_cast<std::uint16_t>(std::stoi(target)));
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return by_errno(::connect(::socket(AF_INET, SOCK_STREAM, 0), reinterpret_cast<sockaddr*>(&at), sizeof at) == 0,
                  "connected");
}
std::string write_file(const std::string& target) {
  return by_errno(::open(target.c_str(), O_WRONLY | O_APPEND) >= 0, "open for writing");
}
std::string add_file(const std::string& target) {
  return by_errno(::open((target + "/attacker").c_str(), O_WRONLY | O_CREAT, 0600) >= 0, "made");
}

/// Creates files, shared memory and a daemon, so that the test can see that they are gone.
std::string leave_files(const std::string& target) {
  int made = 0;
  for (const char* folder : {"/tmp/", "/dev/shm/", "/var/tmp/", "/run/"})
    made += ::open((folder + target).c_str(), O_WRONLY | O_CREAT, 0600) >= 0;
  return refused(std::to_string(made) + " created, only in the sandbox");
}
std::string leave_memory(const std::string& target) {
  const int id = ::shmget(static_cast<key_t>(std::stol(target)), 4096, IPC_CREAT | 0600);
  return id >= 0 ? refused("created, only in the sandbox") : refused(std::strerror(errno));
}
std::string leave_daemon(const std::string& target) {
  if (::fork() == 0) {
    ::setsid();
    if (::fork() != 0) ::_exit(0);
    ::execlp("sleep", "sleep", target.c_str(), nullptr);
    ::_exit(1);
  }
  ::usleep(50'000);
  return refused("started, only in the sandbox");
}

/// A child that forks and ends, again and again, and belongs to no one.
std::string fork_and_end(const std::string&) {
  if (::fork() == 0) {
    ::setsid();
    ::clearenv();
    for (const std::int64_t until = process::now_ns() + 20'000'000'000; process::now_ns() < until;)
      if (::fork() != 0) ::_exit(0);
    ::_exit(0);
  }
  return refused("begun");
}

std::string fork_without_end(const std::string&) {
  for (;;)
    if (::fork() == 0) ::pause();
}

std::string mount_something(const std::string&) {
  return by_errno(::mount("x", "/mnt", "tmpfs", 0, nullptr) == 0, "mounted");
}
std::string new_namespace(const std::string&) {
  return by_errno(::unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0, "a namespace");
}
std::string into_kernel(const std::string&) {
  const std::array<std::array<long, 2>, 5> calls{
      {{SYS_bpf, 5}, {SYS_keyctl, 0}, {SYS_userfaultfd, 0}, {SYS_perf_event_open, 0}, {SYS_finit_module, 0}}};
  for (const auto& [call, argument] : calls)
    if (::syscall(call, argument, 0, 0, 0, 0) >= 0 || errno != EPERM)
      return "SUCCEEDED: call " + std::to_string(call) + " got through";
  return refused("Operation not permitted");
}
std::string reach_devices(const std::string&) {
  if (::open("/dev/mem", O_RDWR) >= 0 || ::open("/dev/kmsg", O_WRONLY) >= 0) return "SUCCEEDED: a device";
  return by_errno(::mknod("/tmp/mem", S_IFCHR | 0600, makedev(1, 1)) == 0 && ::open("/tmp/mem", O_RDWR) >= 0,
                  "a private device");
}

/// Searches its memory, environment and command line for a word, given backwards: its case id, or the expected
/// outcome.
std::string know_word(const std::string& target) {
  const std::string word(target.rbegin(), target.rend());
  for (const char* file : {"/proc/self/environ", "/proc/self/cmdline"})
    if (read_all(file).find(word) != std::string::npos) return std::string("SUCCEEDED: in ") + file;
  std::ifstream maps("/proc/self/maps");
  std::ifstream memory("/proc/self/mem", std::ios::binary);
  const auto own = reinterpret_cast<std::uintptr_t>(word.data());
  for (std::string line; std::getline(maps, line);) {
    if (line.find(" rw-p ") == std::string::npos || line.find("[stack]") != std::string::npos) continue;
    std::uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx", &begin, &end) != 2 || end - begin > (64u << 20)) continue;
    std::string content(end - begin, 0);
    memory.clear();
    memory.seekg(static_cast<std::streamoff>(begin));
    if (!memory.read(content.data(), static_cast<std::streamsize>(content.size()))) continue;
    for (std::size_t at = content.find(word); at != std::string::npos; at = content.find(word, at + 1)) {
      const std::uintptr_t address = begin + at;
      const bool copy = address == own || (address >= reinterpret_cast<std::uintptr_t>(content.data()) &&
                                           address < reinterpret_cast<std::uintptr_t>(content.data()) + content.size());
      if (!copy) return "SUCCEEDED: in its memory";
    }
  }
  return refused("it is not in reach");
}

/// Hangs, and keeps resetting its status page to a phase that has just begun.
std::string stretch_deadline(const std::string&) {
  process::StatusPage* page = nullptr;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (std::uintptr_t begin = 0;
        line.find("kvcts-status") != std::string::npos && std::sscanf(line.c_str(), "%lx", &begin) == 1)
      page = reinterpret_cast<process::StatusPage*>(begin);
  for (;;) {
    if (page != nullptr) {
      page->phase.store(page->phase.load() == static_cast<std::uint32_t>(Phase::transfer)
                            ? static_cast<std::uint32_t>(Phase::complete)
                            : static_cast<std::uint32_t>(Phase::transfer));
      page->phase_since_ns.store(process::now_ns());
      page->done.fetch_add(1);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

/// Reports completion of a transfer that has moved nothing. The bytes come in the next call, from a thread, or after the
/// reply that it sends in the worker's place; it then serves the worker's channel to the end.
enum class Late : std::uint8_t { no, in_facts, in_a_thread, as_the_worker };

std::string move_late(const std::string&) { return refused("moved after completion was reported"); }

void move(std::span<const Move> moves) {
  for (const Move& one : moves) std::memcpy(one.to, one.from, one.bytes);
}

[[noreturn]] void answer_for_the_worker(std::span<const Move> moves, std::uint64_t bytes) {
  constexpr int channel = 3;
  constexpr int requests_before = 4;  // hello, prepare, connect, plan
  int sequence = requests_before;
  const auto reply = [&](const std::string& more) {
    const std::string text = R"({"ok":true,"seq":)" + std::to_string(++sequence) + more + "}";
    const auto length = static_cast<std::uint32_t>(text.size());
    std::string frame(reinterpret_cast<const char*>(&length), sizeof length);
    frame += text;
    if (::write(channel, frame.data(), frame.size()) < 0) ::_exit(0);
  };
  reply(R"(,"path":{"attack":"refused: answered"},"moved":)" + std::to_string(bytes));
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  move(moves);
  std::string request(1 << 16, 0);
  pollfd entry{channel, POLLIN, 0};
  while (::poll(&entry, 1, -1) > 0 && ::read(channel, request.data(), request.size()) > 0) {
    if (request.find("\"bye\"") < request.find('}')) break;
    reply("");
  }
  ::_exit(0);
}

struct Attack {
  std::string_view name;
  std::string (*make)(const std::string& target);
  Late late{Late::no};
};
constexpr std::array<Attack, 25> attacks{{{"see-judges", see_judges},
                                          {"signal-judges", signal_judges},
                                          {"take-channel", take_channel},
                                          {"trace-judge", trace_judge},
                                          {"read-judge", read_judge},
                                          {"copy-judge", copy_judge},
                                          {"list-descriptors", list_descriptors},
                                          {"read-file", read_file},
                                          {"reach-network", reach_network},
                                          {"write-file", write_file},
                                          {"add-file", add_file},
                                          {"leave-files", leave_files},
                                          {"leave-memory", leave_memory},
                                          {"leave-daemon", leave_daemon},
                                          {"fork-and-end", fork_and_end},
                                          {"fork-without-end", fork_without_end},
                                          {"mount", mount_something},
                                          {"new-namespace", new_namespace},
                                          {"into-kernel", into_kernel},
                                          {"reach-devices", reach_devices},
                                          {"know-word", know_word},
                                          {"stretch-deadline", stretch_deadline},
                                          {"move-in-facts", move_late, Late::in_facts},
                                          {"move-in-a-thread", move_late, Late::in_a_thread},
                                          {"answer-for-the-worker", move_late, Late::as_the_worker}}};

class AttackerEngine final : public SharedMemoryEngine {
 public:
  static constexpr const char* engine_name = "attacker";
  static const char* engine_version() { return "1"; }

  explicit AttackerEngine(const OpenArgs& args) : SharedMemoryEngine(engine_name, args) {
    const std::string name = args.take("attack", "");
    target_ = args.take("target", "");
    corrupt_ = args.take("corrupt", "0") == "1";
    args.finish();
    for (const Attack& attack : attacks)
      if (attack.name == name) attack_ = &attack;
    if (attack_ == nullptr)
      throw Failure{KVCTS_E_INVALID, "unknown attack \"" + name + "\"; the list is in the engine's source, attacker.cpp"};
  }

  ~AttackerEngine() override {
    if (thread_.joinable()) thread_.join();
  }

  std::map<std::string, std::string> facts() override {
    if (attack_->late == Late::in_facts) move(moves_);
    auto out = SharedMemoryEngine::facts();
    if (!result_.empty()) out["attack"] = result_;
    return out;
  }

 protected:
  void edit(std::vector<Move>&) override {
    if (!result_.starts_with("SUCCEEDED")) result_ = attack_->make(target_);
  }
  bool moves_by_itself(std::span<const Move> moves) override {
    moves_ = moves;
    return attack_->late != Late::no;
  }
  bool may_complete(std::span<const Move> moves) override {
    if (attack_->late == Late::as_the_worker) {
      std::uint64_t bytes = 0;
      for (const Move& one : moves) bytes += one.bytes;
      answer_for_the_worker(moves, bytes);
    }
    if (attack_->late == Late::in_a_thread && !thread_.joinable())
      thread_ = std::thread([moves] {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        move(moves);
      });
    if (corrupt_ && !moves.empty() && moves[0].bytes > 0) moves[0].to[0] ^= std::byte{0x10};
    return true;
  }

 private:
  const Attack* attack_{nullptr};
  std::span<const Move> moves_;
  std::thread thread_;
  std::string target_, result_;
  bool corrupt_{false};
};

}  // namespace
}  // namespace kvcts::engines

extern "C" const kvcts_transport* kvcts_transport_entry(std::uint32_t host_abi) {
  return kvcts::engines::table<kvcts::engines::AttackerEngine>(host_abi);
}
