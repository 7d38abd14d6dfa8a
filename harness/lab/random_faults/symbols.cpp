#include "lab/random_faults/symbols.hpp"

#include "diagnose/observe.hpp"
#include "layout/dtype.hpp"

namespace kvcts::scenario {

namespace {

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t z = a * 0x9e3779b97f4a7c15ull + b + 0x632be59bd9b4e019ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// Tracks half bytes because of 4-bit codes: a place is (buffer, nibble).
std::uint64_t place(int buffer, std::int64_t nibble) {
  return (static_cast<std::uint64_t>(buffer) << 52) ^ (static_cast<std::uint64_t>(nibble) & ((1ull << 52) - 1));
}

class Interpreter {
 public:
  explicit Interpreter(const CopyProgram& program) : program_(program) {}
  std::vector<Symbols> run() {
    for (const ProgramOp& op : program_.ops) step(op);
    return std::move(checks_);
  }

 private:
  std::uint64_t get(int buffer, std::int64_t nibble) const {
    const auto found = now_.find(place(buffer, nibble));
    return found != now_.end() ? found->second : fresh(buffer, nibble);
  }
  std::uint64_t fresh(int buffer, std::int64_t nibble) const {
    return mix(mix(7, static_cast<std::uint64_t>(buffer)), static_cast<std::uint64_t>(nibble));
  }
  void set(int buffer, std::int64_t nibble, std::uint64_t value) {
    if (value == fresh(buffer, nibble))
      now_.erase(place(buffer, nibble));
    else
      now_[place(buffer, nibble)] = value;
  }
  std::uint64_t code(const DecodeOp::Code& c) const {
    if (c.buffer < 0) return 0;
    std::uint64_t h = mix(3, static_cast<std::uint64_t>(c.dtype));
    for (int i = 0; i < layout::bits(c.dtype) / 4; ++i) h = mix(h, get(c.buffer, c.bit / 4 + i));
    return h;
  }
  void step(const ProgramOp& op) {
    switch (op.kind) {
      case ProgramOp::Kind::copy: {
        std::vector<std::uint64_t> taken;
        for (std::int64_t i = 0; i < op.n * 2; ++i) taken.push_back(get(op.src_buffer, op.src * 2 + i));
        for (std::int64_t i = 0; i < op.n * 2; ++i) set(op.dst_buffer, op.dst * 2 + i, taken[static_cast<std::size_t>(i)]);
        break;
      }
      case ProgramOp::Kind::nibble:
        set(op.dst_buffer, op.dst / 4, get(op.src_buffer, op.src / 4));
        break;
      case ProgramOp::Kind::row: {
        const RowOp& r = program_.rows[op.extra];
        const int width = layout::bits(r.dtype);
        for (std::int64_t k = 0; k < r.count; ++k) {
          std::int64_t bit = r.bit + k * r.stride;
          if (width == 4 && r.high_nibble_first) bit ^= 4;
          std::uint64_t h = mix(mix(11, static_cast<std::uint64_t>(r.component)), r.generation);
          for (const std::int64_t v : {r.kv, r.layer, r.token, r.head, r.first + k})
            h = mix(h, static_cast<std::uint64_t>(v));
          h = mix(mix(h, static_cast<std::uint64_t>(r.dtype)), std::hash<std::string>{}(r.content));
          for (int i = 0; i < width / 4; ++i) set(r.buffer, bit / 4 + i, mix(h, static_cast<std::uint64_t>(i)));
        }
        break;
      }
      case ProgramOp::Kind::pattern: {
        const auto& pattern = program_.patterns[op.extra];
        for (std::int64_t i = 0; i < op.n; ++i) {
          for (int half = 0; half < 2; ++half) {
            const std::int64_t at = (op.dst + i) * 2 + half;
            set(op.dst_buffer, at,
                pattern.empty() ? fresh(op.dst_buffer, at)
                                : mix(13, pattern[static_cast<std::size_t>(i) % pattern.size()] >> (4 * half) & 0xf));
          }
        }
        break;
      }
      case ProgramOp::Kind::decode: {
        const DecodeOp& d = program_.decodes[op.extra];
        std::uint64_t h = mix(17, code(d.code));
        for (int i = 0; i < d.power; ++i) h = mix(mix(h, code(d.scale)), code(d.global_scale));
        for (int i = 0; i < 8; ++i) set(op.dst_buffer, op.dst * 2 + i, mix(h, static_cast<std::uint64_t>(i)));
        break;
      }
      case ProgramOp::Kind::check: {
        Symbols own;
        for (const auto& [where, value] : now_)
          if ((where >> 52) < program_.own) own.emplace(where, value);
        checks_.push_back(std::move(own));
        break;
      }
    }
  }
  const CopyProgram& program_;
  Symbols now_;
  std::vector<Symbols> checks_;
};

}  // namespace

std::vector<Symbols> symbols_of(const CopyProgram& program) { return Interpreter(program).run(); }

bool same_map(const CopyProgram& a, const CopyProgram& b) {
  return a.checks == b.checks && a.ending.kind == b.ending.kind && reports(a.events) == reports(b.events) &&
         symbols_of(a) == symbols_of(b);
}

}  // namespace kvcts::scenario
