// Engine fixture: engine shm that misbehaves on purpose, in one named way, to show that the watchdog, the checker and
// the diagnoser notice. Options:
//   fault     a row of one of the two tables below, or one of time: late_write, early, deferred, never_complete; or counts
//             (malformed count facts); absent: none
//   phase     open | register | connect | transfer | midway | complete | release | remove_peer | deregister | close | exit:
//             when a fault of the process strikes (default transfer), and when deferred bytes finally move (the last five).
//             midway = half of the descriptors have been moved; complete = all bytes are there, completion not yet reported;
//             exit = static destructors of the plug-in
//   side      producer | consumer | any: whose agent misbehaves (default any)
//   bytes     how much flood_stdout writes (default 64 MiB; 0 = unlimited) and eat_memory takes at most (default 4 GiB)
//   delay_us  of late_write, early and sleep (default 75,000)
//   every     N: a fault of the data strikes only in every N-th transfer of an agent (default 1)
//   claims    claims to make in addition to the true ones: "device_evidence=executed,arch=sm_90"
//   canary    passes (default) | fails | killed | hangs: the canary after a worker hung or died
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

#include "engines/support/shared_memory.hpp"

namespace kvcts::engines {
namespace {

struct Knobs {
  std::uint64_t bytes{0};
  std::chrono::microseconds delay{75'000};
};

// ---- faults of the process: what strikes at a phase
// -------------------------------------------------------------------------

[[noreturn]] void sleep_for_ever() {
  for (;;) pause();
}

void spin(const Knobs&) {
  std::atomic<std::uint64_t> rounds{0};
  for (;;) rounds.fetch_add(1, std::memory_order_relaxed);
}

void sleep_in_read(const Knobs&) {
  int ends[2];
  if (pipe(ends) != 0) throw Failure{KVCTS_E_NO_RESOURCES, "pipe"};
  char byte = 0;
  while (read(ends[0], &byte, 1) < 0) {  // no one writes: only a signal ends it
  }
}

void ignore_sigterm(const Knobs&) {
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) signal(number, SIG_IGN);
  sleep_for_ever();
}

/// Returns once the child has left the group and session that a watchdog might kill.
void fork_escape(const Knobs&) {
  int ends[2];
  if (pipe(ends) != 0) throw Failure{KVCTS_E_NO_RESOURCES, "pipe"};
  const pid_t child = fork();
  if (child == 0) {
    setsid();
    for (const int number : {SIGTERM, SIGINT, SIGHUP}) signal(number, SIG_IGN);
    close(ends[0]);
    close(ends[1]);
    sleep_for_ever();
  }
  close(ends[1]);
  char byte = 0;
  while (read(ends[0], &byte, 1) < 0 && errno == EINTR) {
  }
  close(ends[0]);
}

void fork_escape_and_hang(const Knobs& knobs) {
  fork_escape(knobs);
  sleep_for_ever();
}

void stop_itself(const Knobs&) { raise(SIGSTOP); }

void flood_stdout(const Knobs& knobs) {
  std::string page(65536, '#');
  for (std::size_t at = 79; at < page.size(); at += 80) page[at] = '\n';
  const bool endless = knobs.bytes == 0;
  for (std::uint64_t written = 0; endless || written < knobs.bytes; written += page.size()) {
    std::size_t sent = 0;
    while (sent < page.size()) {
      const auto part = write(STDOUT_FILENO, page.data() + sent, page.size() - sent);
      if (part < 0 && errno != EINTR && errno != EAGAIN) return;
      if (part > 0) sent += static_cast<std::size_t>(part);
    }
  }
}

void eat_memory(const Knobs& knobs) {
  constexpr std::uint64_t step = 16u << 20;
  for (std::uint64_t eaten = 0; eaten < knobs.bytes; eaten += step) {
    void* meal = mmap(nullptr, step, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (meal == MAP_FAILED) {
      std::fprintf(stderr, "fixture: no more memory after %llu MiB\n", static_cast<unsigned long long>(eaten >> 20));
      std::abort();  // as an uncaught std::bad_alloc would
    }
    std::memset(meal, 0x5a, step);
  }
}

__attribute__((no_sanitize("undefined"))) void segv(const Knobs&) {  // a real fault, in sanitized builds too
  volatile int* volatile nowhere = nullptr;
  *nowhere = 1;
}

void abrt(const Knobs&) { std::abort(); }

void bus(const Knobs&) {
  // A page of a mapping beyond the end of its file.
  const int file = memfd_create("kvcts-bus", MFD_CLOEXEC);
  auto* page = static_cast<volatile char*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  page[0] = 1;
}

void exit0(const Knobs&) { _exit(0); }
void exit3(const Knobs&) { _exit(3); }

/// Writes garbage to every stream socket of this process: one of them is the channel to the suite.
void garbage(const Knobs&) {
  constexpr std::string_view nonsense = "\xff\xff\xff\x7fthis is not a frame {\"op\": \x01\x02\x03";
  for (int fd = 3; fd < 1024; ++fd) {
    int domain = 0, type = 0;
    socklen_t length = sizeof domain;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) != 0 || domain != AF_UNIX) continue;
    length = sizeof type;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_STREAM) continue;
    [[maybe_unused]] const auto sent = send(fd, nonsense.data(), nonsense.size(), MSG_NOSIGNAL);
  }
}

void sleep_a_while(const Knobs& knobs) { std::this_thread::sleep_for(knobs.delay); }

void refuse(const Knobs&) { throw Failure{KVCTS_E_NOT_SUPPORTED, "refused on purpose", 4711}; }

struct ProcessFault {
  std::string_view name;
  void (*strike)(const Knobs&);
};
constexpr std::array<ProcessFault, 16> process_faults{{{"spin", spin},
                                                       {"sleep_in_read", sleep_in_read},
                                                       {"ignore_sigterm", ignore_sigterm},
                                                       {"fork_escape", fork_escape},
                                                       {"fork_escape_and_hang", fork_escape_and_hang},
                                                       {"sigstop", stop_itself},
                                                       {"flood_stdout", flood_stdout},
                                                       {"eat_memory", eat_memory},
                                                       {"segv", segv},
                                                       {"abrt", abrt},
                                                       {"bus", bus},
                                                       {"exit0", exit0},
                                                       {"exit3", exit3},
                                                       {"garbage", garbage},
                                                       {"sleep", sleep_a_while},
                                                       {"refuse", refuse}}};

// ---- faults of the data: what becomes of a list of moves, or of the bytes once it is done
// ------------------------------------

using Moves = std::vector<Move>;

void halve(Moves& moves) {
  std::uint64_t left = 0;
  for (const auto& move : moves) left += move.bytes;
  left /= 2;
  for (auto& move : moves) {
    move.bytes = std::min(move.bytes, left);
    left -= move.bytes;
  }
}

void drop_all(Moves& moves) { moves.clear(); }

void skip_last(Moves& moves) {
  if (!moves.empty()) moves.pop_back();
}

void overrun(Moves& moves) {
  const auto last = std::max_element(moves.begin(), moves.end(),
                                     [](const Move& a, const Move& b) { return a.to + a.bytes < b.to + b.bytes; });
  if (last != moves.end()) ++last->bytes;
}

/// Every move takes the bytes of the next one; a single move swaps its halves.
void wrong_source(Moves& moves) {
  std::erase_if(moves, [](const Move& move) { return move.bytes == 0; });
  if (moves.size() == 1) {
    const Move whole = moves[0];
    const std::uint64_t half = whole.bytes / 2;
    moves = {{whole.to, whole.from + half, half}, {whole.to + half, whole.from, half}};
    return;
  }
  const Moves right = moves;
  for (std::size_t i = 0; i < moves.size(); ++i) {
    const Move& next = right[(i + 1) % right.size()];
    moves[i].from = next.from;
    moves[i].bytes = std::min(moves[i].bytes, next.bytes);
  }
}

void flip_bit(std::span<const Move> moves) {
  if (moves.empty()) return;
  const Move& move = moves[moves.size() / 2];
  if (move.bytes > 0) move.to[move.bytes / 2] ^= std::byte{0x10};
}

void touch_source(std::span<const Move> moves) {
  if (moves.empty() || moves[0].bytes == 0) return;
  const_cast<std::byte*>(moves[0].from)[0] ^= std::byte{0x01};
}

struct DataFault {
  std::string_view name;
  void (*edit)(Moves&);                  ///< before anything moves
  void (*after)(std::span<const Move>);  ///< after everything has moved
};
constexpr std::array<DataFault, 7> data_faults{{{"partial", halve, nullptr},
                                                {"nothing", drop_all, nullptr},
                                                {"skip_last", skip_last, nullptr},
                                                {"overrun", overrun, nullptr},
                                                {"wrong_source", wrong_source, nullptr},
                                                {"flip_bit", nullptr, flip_bit},
                                                {"touch_source", nullptr, touch_source}}};

template <class Rows>
auto find(const Rows& rows, std::string_view name) -> decltype(rows.data()) {
  for (const auto& row : rows) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

// ---- faults of time: what moves after completion was reported, if ever

constexpr std::array<std::string_view, 5> time_faults{"late_write", "early", "deferred", "never_complete", "counts"};
constexpr std::array<std::string_view, 5> endings{"release", "remove_peer", "deregister", "close", "exit"};

/// A list whose move was deferred, and what keeps its addresses valid.
struct Deferred {
  Moves moves;
  std::vector<std::shared_ptr<void>> kept;
  void operator()() {
    for (const Move& move : std::exchange(moves, {})) std::memmove(move.to, move.from, move.bytes);
  }
};

/// Strikes when the process exits.
struct AtExit {
  Deferred deferred;
  const ProcessFault* process{nullptr};
  Knobs knobs;
  ~AtExit() {
    deferred();
    if (process != nullptr) process->strike(knobs);
  }
};
AtExit at_exit;

class FixtureEngine final : public SharedMemoryEngine {
 public:
  static constexpr const char* engine_name = "fixture";
  static const char* engine_version() { return "1"; }

  static void canary(const OpenArgs& args) {
    const std::string end = args.take("canary", "passes");
    if (end == "killed") ::raise(SIGKILL);
    if (end == "fails") throw Failure{KVCTS_E_BACKEND, "the canary fails on purpose"};
    if (end == "hangs") sleep_for_ever();
  }

  explicit FixtureEngine(const OpenArgs& args) : SharedMemoryEngine(engine_name, args) {
    const std::string fault = args.take("fault", "");
    const std::string phase = args.take("phase", "transfer");
    const std::string side = args.take("side", "any");
    args.take("canary", "");
    claims_ = args.take("claims", "");
    knobs_.delay = std::chrono::microseconds(args.take_number("delay_us", 75'000));
    knobs_.bytes = args.take_number("bytes", fault == "eat_memory" ? 4ull << 30 : 64ull << 20);
    every_ = std::max<std::uint64_t>(1, args.take_number("every", 1));
    args.finish();
    if (std::find(endings.begin(), endings.end(), phase) != endings.end())
      ending_ = phase;
    else
      stage_ = stage_of(phase);
    if (side != "any" && side != "producer" && side != "consumer") {
      throw Failure{KVCTS_E_INVALID, "side is \"" + side + "\", expected producer, consumer or any"};
    }
    const bool mine = side == "any" || (side == "producer") == (args.role == KVCTS_ROLE_PRODUCER);
    process_ = find(process_faults, fault);
    data_ = find(data_faults, fault);
    time_ = fault;
    if (!fault.empty() && process_ == nullptr && data_ == nullptr &&
        std::find(time_faults.begin(), time_faults.end(), fault) == time_faults.end()) {
      throw Failure{KVCTS_E_INVALID, "there is no fault \"" + fault + "\"; the list is in the engine's source, fixture.cpp"};
    }
    if (!mine) {
      process_ = nullptr;
      data_ = nullptr;
      time_.clear();
    }
    if (process_ != nullptr && ending_ == "exit") at_exit.process = process_, at_exit.knobs = knobs_;
    at(Stage::open);
  }
  ~FixtureEngine() override { ends("close"); }

  // These hide the base's: the table calls the most derived class's.
  void release(std::uint64_t request) {
    ends("release");
    SharedMemoryEngine::release(request);
  }
  void remove_peer(std::uint64_t peer) {
    ends("remove_peer");
    SharedMemoryEngine::remove_peer(peer);
  }
  void deregister_region(std::uint64_t region) {
    ends("deregister");
    SharedMemoryEngine::deregister_region(region);
  }
  std::map<std::string, std::string> facts() override {
    auto out = SharedMemoryEngine::facts();
    if (time_ == "counts") out["bytes_written"] = "-1";
    for (std::string_view rest = claims_; !rest.empty();) {
      const std::string_view one = rest.substr(0, rest.find(','));
      rest.remove_prefix(std::min(rest.size(), one.size() + 1));
      out[std::string(one.substr(0, one.find('=')))] = one.substr(std::min(one.size(), one.find('=') + 1));
    }
    return out;
  }

 protected:
  void at(Stage stage) override {
    if (process_ != nullptr && ending_.empty() && stage == stage_) process_->strike(knobs_);
  }

  bool moves_by_itself(std::span<const Move> moves) override {
    if (time_ != "early" && time_ != "deferred") return false;
    deferred_ = {{moves.begin(), moves.end()}, kept_};
    return true;
  }

  void edit(Moves& moves) override {
    strikes_ = data_ != nullptr && ++transfers_ % every_ == 0;
    if (strikes_ && data_->edit != nullptr) data_->edit(moves);
    // Ensures that "midway" is in the middle of the bytes, also for a list of one.
    if (stage_ == Stage::midway && moves.size() == 1 && moves[0].bytes > 1) {
      const Move whole = moves[0];
      const std::uint64_t half = whole.bytes / 2;
      moves = {{whole.to, whole.from, half}, {whole.to + half, whole.from + half, whole.bytes - half}};
    }
  }

  bool may_complete(std::span<const Move> moves) override {
    if (strikes_ && data_->after != nullptr) data_->after(moves);
    if (time_ == "late_write") write_late(moves);
    if (time_ == "early")
      std::thread([later = std::exchange(deferred_, {}), delay = knobs_.delay]() mutable {
        std::this_thread::sleep_for(delay);
        later();
      }).detach();
    if (time_ == "deferred" && ending_ == "exit") at_exit.deferred = std::exchange(deferred_, {});
    return time_ != "never_complete";
  }

  RemoteRegion read_region(BlobReader& blob, Reach& reach) override {
    RemoteRegion region = SharedMemoryEngine::read_region(blob, reach);
    if (!time_.empty()) kept_.push_back(region.mapping);  // what comes late is written through it
    return region;
  }

 private:
  static Stage stage_of(const std::string& phase) {
    constexpr std::array<std::pair<std::string_view, Stage>, 6> rows{{{"open", Stage::open},
                                                                      {"register", Stage::registration},
                                                                      {"connect", Stage::connect},
                                                                      {"transfer", Stage::transfer},
                                                                      {"midway", Stage::midway},
                                                                      {"complete", Stage::complete}}};
    for (const auto& [name, stage] : rows) {
      if (name == phase) return stage;
    }
    throw Failure{KVCTS_E_INVALID, "phase is \"" + phase +
                                       "\", expected open, register, connect, transfer, midway, complete, release, " +
                                       "remove_peer, deregister, close or exit"};
  }

  /// A call that ends something, by its phase name.
  void ends(std::string_view call) {
    if (ending_ != call) return;
    deferred_();
    if (process_ != nullptr) process_->strike(knobs_);
  }

  /// Changes 64 bytes at the end of the last move after the request was reported complete.
  void write_late(std::span<const Move> moves) const {
    if (moves.empty()) return;
    const Move& last = moves.back();
    const std::uint64_t bytes = std::min<std::uint64_t>(64, last.bytes);
    std::byte* where = last.to + (last.bytes - bytes);
    std::thread([where, bytes, delay = knobs_.delay, kept = kept_] {
      std::this_thread::sleep_for(delay);
      for (std::uint64_t i = 0; i < bytes; ++i) where[i] ^= std::byte{0xff};
    }).detach();
  }

  Knobs knobs_;
  std::string claims_;
  Stage stage_{Stage::transfer};
  const ProcessFault* process_{nullptr};
  const DataFault* data_{nullptr};
  std::uint64_t every_{1}, transfers_{0};
  bool strikes_{false};  ///< in the current transfer
  std::string time_;     ///< a fault of time; "": none
  std::string ending_;   ///< the phase, if it is one that ends something
  Deferred deferred_;
  std::vector<std::shared_ptr<void>> kept_;
};

}  // namespace
}  // namespace kvcts::engines

extern "C" const kvcts_transport* kvcts_transport_entry(std::uint32_t host_abi) {
  return kvcts::engines::table<kvcts::engines::FixtureEngine>(host_abi);
}
