// Engine saboteur: engine shm, wrong on purpose, in one way of the tables below. `kvcts sabotage` puts it in the place of a case's
// engine, to show that the suite would notice. Unlike the fixture it goes wrong in the bytes only, never as a process. Options:
//   fault     a row of a table; "none" (the control that must not be caught)
//   n         its amount: bytes, copies or bits, as the row says; may be negative
//   pick      last | every: which moves a row about a tail or a length is about (default last)
//   to        next | half: how far a wrong region is off, in regions of the same side: the next one, or half of the list on
//   dtype     of the elements, for rows that change numbers: bf16, fp16, fp32, e4m3fn, e5m2
//   delay_ms  of what comes late (default 60)
// A row that cannot be wrong with a list (one copy to exchange, a shift that leaves the memory) leaves it as it is.
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <thread>
#include <tuple>

#include "engines/support/shared_memory.hpp"

namespace kvcts::engines {
namespace {

using Moves = std::vector<Move>;

struct Extent {
  std::byte* address{nullptr};
  std::uint64_t bytes{0};
  bool holds(const std::byte* at) const { return at >= address && at < address + bytes; }
};

/// What a row may look at.
struct Job {
  std::int64_t n{1};
  bool every{false}, half{false};
  std::string dtype;
  std::size_t request{0};              ///< requests that this connection has prepared before
  std::vector<Extent> local, remote;   ///< registered here; of the latest peer. In order
  std::vector<std::byte> previous;     ///< what the request before delivered, end to end

  /// The region that an address lies in, its list and place in it; nullptr: in none.
  std::tuple<const std::vector<Extent>*, std::size_t> find(const std::byte* at) const {
    for (const auto* list : {&remote, &local}) {
      for (std::size_t i = 0; i < list->size(); ++i) {
        if ((*list)[i].holds(at)) return {list, i};
      }
    }
    return {nullptr, 0};
  }
  bool inside(const std::byte* at, std::int64_t shift, std::uint64_t bytes) const {
    const auto [list, i] = find(at);
    if (list == nullptr) return false;
    const auto start = (at - (*list)[i].address) + shift;
    return start >= 0 && static_cast<std::uint64_t>(start) + bytes <= (*list)[i].bytes;
  }
};

Move* last_of(Moves& moves) {
  const auto last = std::max_element(moves.begin(), moves.end(), [](const Move& a, const Move& b) { return a.to + a.bytes < b.to + b.bytes; });
  return last == moves.end() ? nullptr : &*last;
}

/// The moves that the option `pick` is about.
std::vector<Move*> picked(Moves& moves, const Job& job) {
  std::vector<Move*> out;
  if (job.every) {
    for (auto& move : moves) out.push_back(&move);
  } else if (Move* last = last_of(moves)) {
    out.push_back(last);
  }
  return out;
}

// ---- what becomes of a list before anything moves ------------------------------------------------------------------

void nothing(Moves& moves, const Job&) { moves.clear(); }
void after_warm_up(Moves& moves, const Job& job) {
  if (job.request > 0) moves.clear();
}
/// The first n of the list, in 16ths.
void part(Moves& moves, const Job& job) { moves.resize(moves.size() * static_cast<std::size_t>(job.n) / 16); }
void drop_every(Moves& moves, const Job& job) {
  std::size_t i = 0;
  std::erase_if(moves, [&](const Move&) { return ++i % static_cast<std::size_t>(job.n) == 0; });
}
void short_tail(Moves& moves, const Job& job) {
  for (Move* move : picked(moves, job)) move->bytes -= std::min(move->bytes, static_cast<std::uint64_t>(job.n));
}
void overrun(Moves& moves, const Job& job) {
  for (Move* move : picked(moves, job)) move->bytes += static_cast<std::uint64_t>(job.n);
}
void shift_to(Moves& moves, const Job& job) {
  for (auto& move : moves) {
    if (!job.inside(move.to, job.n, move.bytes)) return;
  }
  for (auto& move : moves) move.to += job.n;
}
void shift_from(Moves& moves, const Job& job) {
  for (auto& move : moves) {
    if (!job.inside(move.from, job.n, move.bytes)) return;
  }
  for (auto& move : moves) move.from += job.n;
}
/// To the same offset of another region of the same size.
void other_region(Moves& moves, const Job& job) {
  for (auto& move : moves) {
    const auto [list, i] = job.find(move.to);
    if (list == nullptr) continue;
    const Extent& other = (*list)[(i + (job.half ? list->size() / 2 : 1)) % list->size()];
    if (other.bytes == (*list)[i].bytes) move.to = other.address + (move.to - (*list)[i].address);
  }
}
/// The destination's offset in its region keeps n bits, as a product in too narrow a type does.
void narrow(Moves& moves, const Job& job) {
  for (auto& move : moves) {
    const auto [list, i] = job.find(move.to);
    if (list == nullptr) continue;
    const auto offset = static_cast<std::uint64_t>(move.to - (*list)[i].address) & ((std::uint64_t{1} << job.n) - 1);
    move.to = (*list)[i].address + offset;
    move.bytes = std::min(move.bytes, (*list)[i].bytes - offset);
  }
}
void exchange(Moves& moves, const Job&) {
  for (std::size_t i = 0; i + 1 < moves.size(); ++i) {
    if (moves[i].bytes != moves[i + 1].bytes || moves[i].bytes == 0) continue;
    std::swap(moves[i].from, moves[i + 1].from);
    return;
  }
}
/// Every n-th copy delivers what the one before it did.
void repeat(Moves& moves, const Job& job) {
  for (auto i = static_cast<std::size_t>(job.n); i < moves.size(); i += static_cast<std::size_t>(job.n)) {
    if (moves[i].bytes <= moves[i - 1].bytes) moves[i].from = moves[i - 1].from;
  }
}
void reverse_direction(Moves& moves, const Job&) {
  for (auto& move : moves) {
    auto* from = const_cast<std::byte*>(move.from);
    move.from = std::exchange(move.to, from);
  }
}

std::uint64_t weak_sum(const std::byte* at, std::uint64_t bytes) {
  std::byte sum{};
  for (std::uint64_t i = 0; i < bytes; ++i) sum ^= at[i];
  return std::to_integer<std::uint64_t>(sum);
}
/// Skips what looks the same at the other side already: n bits of a xor over the bytes.
void skip_same(Moves& moves, const Job& job) {
  const std::uint64_t mask = (std::uint64_t{1} << job.n) - 1;
  std::erase_if(moves, [&](const Move& move) { return ((weak_sum(move.from, move.bytes) ^ weak_sum(move.to, move.bytes)) & mask) == 0; });
}
/// Sends a block once and repeats it for every later one with the same n bits.
void deduplicate(Moves& moves, const Job& job) {
  const std::uint64_t mask = (std::uint64_t{1} << job.n) - 1;
  std::map<std::pair<std::uint64_t, std::uint64_t>, const std::byte*> known;
  for (auto& move : moves) {
    const auto [it, fresh] = known.try_emplace({move.bytes, weak_sum(move.from, move.bytes) & mask}, move.from);
    if (!fresh) move.from = it->second;
  }
}

struct ListFault {
  std::string_view name;
  void (*edit)(Moves&, const Job&);
};
constexpr std::array list_faults{ListFault{"nothing", nothing},
                                 ListFault{"after_warm_up", after_warm_up},
                                 ListFault{"part", part},
                                 ListFault{"drop_every", drop_every},
                                 ListFault{"short_tail", short_tail},
                                 ListFault{"overrun", overrun},
                                 ListFault{"shift_to", shift_to},
                                 ListFault{"shift_from", shift_from},
                                 ListFault{"other_region", other_region},
                                 ListFault{"narrow", narrow},
                                 ListFault{"exchange", exchange},
                                 ListFault{"repeat", repeat},
                                 ListFault{"reverse_direction", reverse_direction},
                                 ListFault{"skip_same", skip_same},
                                 ListFault{"deduplicate", deduplicate}};

// ---- what becomes of the bytes once all have moved -----------------------------------------------------------------

using Done = std::span<const Move>;

/// Applies `change` to every whole element of Word in the destination.
template <class Word, class Change>
void each(Done moves, Change&& change) {
  for (const Move& move : moves) {
    for (std::uint64_t at = 0; at + sizeof(Word) <= move.bytes; at += sizeof(Word)) {
      Word word;
      std::memcpy(&word, move.to + at, sizeof word);
      word = change(word);
      std::memcpy(move.to + at, &word, sizeof word);
    }
  }
}

/// The fields of a float format: sign | exponent | mantissa.
struct Format {
  std::string_view dtype;
  int bits, exponent, mantissa;
};
constexpr std::array formats{Format{"fp32", 32, 8, 23}, Format{"fp16", 16, 5, 10}, Format{"bf16", 16, 8, 7}, Format{"e4m3fn", 8, 4, 3},
                             Format{"e5m2", 8, 5, 2}};

template <class Change>
void each_number(Done moves, const Job& job, Change&& change) {
  for (const Format& format : formats) {
    if (format.dtype != job.dtype) continue;
    const auto one = [&](auto word) { return static_cast<decltype(word)>(change(static_cast<std::uint32_t>(word), format)); };
    if (format.bits == 32) each<std::uint32_t>(moves, one);
    if (format.bits == 16) each<std::uint16_t>(moves, one);
    if (format.bits == 8) each<std::uint8_t>(moves, one);
  }
}

std::uint32_t exponent_of(std::uint32_t code, const Format& f) { return code >> f.mantissa & ((1u << f.exponent) - 1); }
std::uint32_t mantissa_of(std::uint32_t code, const Format& f) { return code & ((1u << f.mantissa) - 1); }
bool is_nan(std::uint32_t code, const Format& f) {
  const bool top = exponent_of(code, f) == (1u << f.exponent) - 1;
  return top && (f.dtype == "e4m3fn" ? mantissa_of(code, f) == 7 : mantissa_of(code, f) != 0);
}

void one_nan(Done moves, const Job& job) {
  each_number(moves, job, [](std::uint32_t code, const Format& f) {
    if (!is_nan(code, f)) return code;
    const std::uint32_t top = ((1u << f.exponent) - 1) << f.mantissa;
    return f.dtype == "e4m3fn" ? 0x7fu : top | 1u << (f.mantissa - 1);
  });
}
void no_negative_zero(Done moves, const Job& job) {
  each_number(moves, job, [](std::uint32_t code, const Format& f) { return code == 1u << (f.bits - 1) ? 0u : code; });
}
void no_subnormals(Done moves, const Job& job) {
  each_number(moves, job, [](std::uint32_t code, const Format& f) { return exponent_of(code, f) == 0 ? code & 1u << (f.bits - 1) : code; });
}
/// Numbers read with an exponent bias n larger than they were written with, as fn and fnuz differ by one.
void other_bias(Done moves, const Job& job) {
  each_number(moves, job, [&](std::uint32_t code, const Format& f) {
    const std::uint32_t e = exponent_of(code, f), n = static_cast<std::uint32_t>(job.n);
    return e > n ? code - (n << f.mantissa) : code & 1u << (f.bits - 1);
  });
}
void swap_bytes(Done moves, const Job& job) {
  if (job.n == 2) each<std::uint16_t>(moves, [](std::uint16_t w) { return static_cast<std::uint16_t>(w >> 8 | w << 8); });
  if (job.n == 4) each<std::uint32_t>(moves, [](std::uint32_t w) { return __builtin_bswap32(w); });
  if (job.n == 8) each<std::uint64_t>(moves, [](std::uint64_t w) { return __builtin_bswap64(w); });
}
void swap_nibbles(Done moves, const Job&) {
  each<std::uint8_t>(moves, [](std::uint8_t b) { return static_cast<std::uint8_t>(b >> 4 | b << 4); });
}
void zero(Done moves, const Job&) {
  each<std::uint8_t>(moves, [](std::uint8_t) { return std::uint8_t{0}; });
}
/// Writes zeros behind the last move, up to a multiple of n bytes of its destination.
void pad(Done moves, const Job& job) {
  Moves list(moves.begin(), moves.end());
  const Move* last = last_of(list);
  if (last == nullptr) return;
  const auto [regions, i] = job.find(last->to);
  if (regions == nullptr) return;
  const auto end = static_cast<std::uint64_t>(last->to + last->bytes - (*regions)[i].address), n = static_cast<std::uint64_t>(job.n);
  for (std::uint64_t at = end; at % n != 0; ++at) (*regions)[i].address[at] = std::byte{0};
}
void wipe_source(Done moves, const Job&) {
  for (const Move& move : moves) std::memset(const_cast<std::byte*>(move.from), 0, move.bytes);
}
void swap_into_source(Done moves, const Job&) {  // moved, not copied: the source gets the neighbour's bytes
  for (std::size_t i = 0; i + 1 < moves.size(); i += 2) {
    std::memcpy(const_cast<std::byte*>(moves[i].from), moves[i + 1].from, std::min(moves[i].bytes, moves[i + 1].bytes));
  }
}
/// Delivers what the request before did.
void previous(Done moves, const Job& job) {
  std::size_t at = 0;
  for (const Move& move : moves) {
    const auto bytes = std::min<std::size_t>(move.bytes, job.previous.size() - at);
    std::memcpy(move.to, job.previous.data() + at, bytes);
    at += bytes;
  }
}

struct DoneFault {
  std::string_view name;
  void (*after)(Done, const Job&);
};
constexpr std::array done_faults{DoneFault{"one_nan", one_nan},
                                 DoneFault{"no_negative_zero", no_negative_zero},
                                 DoneFault{"no_subnormals", no_subnormals},
                                 DoneFault{"other_bias", other_bias},
                                 DoneFault{"swap_bytes", swap_bytes},
                                 DoneFault{"swap_nibbles", swap_nibbles},
                                 DoneFault{"zero", zero},
                                 DoneFault{"pad", pad},
                                 DoneFault{"wipe_source", wipe_source},
                                 DoneFault{"swap_into_source", swap_into_source},
                                 DoneFault{"previous", previous}};

template <class Rows>
auto row(const Rows& rows, std::string_view name) -> decltype(rows.data()) {
  for (const auto& one : rows) {
    if (one.name == name) return &one;
  }
  return nullptr;
}

std::int64_t signed_number(const OpenArgs& args, const std::string& key, std::int64_t fallback) {
  const std::string text = args.take(key, std::to_string(fallback));
  std::size_t used = 0;
  std::int64_t value = 0;
  try {
    value = std::stoll(text, &used);
  } catch (const std::exception&) {
  }
  if (used != text.size() || text.empty()) throw Failure{KVCTS_E_INVALID, "option " + key + " is \"" + text + "\", expected a whole number"};
  return value;
}

class SaboteurEngine final : public SharedMemoryEngine {
 public:
  static constexpr const char* engine_name = "saboteur";
  static const char* engine_version() { return "1"; }

  explicit SaboteurEngine(const OpenArgs& args) : SharedMemoryEngine(engine_name, args) {
    const std::string fault = args.take("fault", "none"), pick = args.take("pick", "last"), to = args.take("to", "next");
    job_.n = signed_number(args, "n", 1);
    job_.dtype = args.take("dtype", "");
    delay_ = std::chrono::milliseconds(args.take_number("delay_ms", 60));
    args.finish();
    if (pick != "last" && pick != "every") throw Failure{KVCTS_E_INVALID, "pick is \"" + pick + "\", expected last or every"};
    if (to != "next" && to != "half") throw Failure{KVCTS_E_INVALID, "to is \"" + to + "\", expected next or half"};
    job_.every = pick == "every", job_.half = to == "half";
    list_ = row(list_faults, fault);
    done_ = row(done_faults, fault);
    late_write_ = fault == "late_write";
    early_success_ = fault == "early_success";
    other_request_ = fault == "other_request";
    if (list_ == nullptr && done_ == nullptr && !late_write_ && !early_success_ && !other_request_ && fault != "none") {
      throw Failure{KVCTS_E_INVALID, "there is no fault \"" + fault + "\"; the tables are in the engine's source, saboteur.cpp"};
    }
    if (job_.n == 0 || ((fault == "drop_every" || fault == "repeat" || fault == "pad") && job_.n < 0)) {
      throw Failure{KVCTS_E_INVALID, "n is " + std::to_string(job_.n) + ", expected 1 or more for fault " + fault};
    }
  }

  void claims(kvcts_claims& claims) const override {
    SharedMemoryEngine::claims(claims);
    if (other_request_) claims.max_descriptors = static_cast<std::uint64_t>(job_.n);  // so that several are in flight
  }

  // These hide the base's: the table calls what the most derived class has.
  std::uint64_t add_peer(std::string_view metadata) {
    job_.remote.clear();
    job_.request = 0;  // a connection has a first request of its own
    return SharedMemoryEngine::add_peer(metadata);
  }

 protected:
  void keep(const kvcts_region& region, LocalRegion& local) override {
    SharedMemoryEngine::keep(region, local);
    job_.local.push_back({local.address, local.bytes});
  }
  void forget(std::uint64_t handle, LocalRegion& local) override {
    std::erase_if(job_.local, [&](const Extent& e) { return e.address == local.address; });
    SharedMemoryEngine::forget(handle, local);
  }
  void met(const RemoteRegion& region) override {
    job_.remote.push_back({region.address, region.bytes});
    if (late_write_ || early_success_) kept_.push_back(region.mapping);
  }

  void edit(Moves& moves) override {
    if (list_ != nullptr) list_->edit(moves, job_);
    if (early_success_) later(std::exchange(moves, {}));
    if (other_request_ && job_.request % 2 == 0) moves.clear();  // told complete when the next one is
    ++job_.request;
  }

  bool may_complete(Done moves) override {
    if (done_ != nullptr) {
      std::vector<std::byte> delivered;
      for (const Move& move : moves) delivered.insert(delivered.end(), move.to, move.to + move.bytes);
      done_->after(moves, job_);
      job_.previous = std::move(delivered);
    }
    if (late_write_) write_late(moves);
    return true;
  }

 private:
  void write_late(Done moves) const {
    if (moves.empty()) return;
    const Move& last = moves.back();
    const std::uint64_t bytes = std::min<std::uint64_t>(64, last.bytes);
    std::byte* where = last.to + (last.bytes - bytes);
    std::thread([where, bytes, delay = delay_, kept = kept_] {
      std::this_thread::sleep_for(delay);
      for (std::uint64_t i = 0; i < bytes; ++i) where[i] ^= std::byte{0xff};
    }).detach();
  }
  /// Told complete now, moved in a while.
  void later(Moves moves) const {
    std::thread([moves = std::move(moves), delay = delay_, kept = kept_] {
      std::this_thread::sleep_for(delay);
      for (const Move& move : moves) std::memmove(move.to, move.from, move.bytes);
    }).detach();
  }

  Job job_;
  std::chrono::milliseconds delay_{60};
  const ListFault* list_{nullptr};
  const DoneFault* done_{nullptr};
  bool late_write_{false}, early_success_{false}, other_request_{false};
  std::vector<std::shared_ptr<void>> kept_;
};

}  // namespace
}  // namespace kvcts::engines

extern "C" const kvcts_transport* kvcts_transport_entry(std::uint32_t host_abi) {
  return kvcts::engines::table<kvcts::engines::SaboteurEngine>(host_abi);
}
