// A played scenario, byte by byte: where each byte lies, what must be there and what is. For tests that hold words against
// bytes: everything comes from the declared layout by plain loops, nothing from attributions, facts or names.
#pragma once

#include <array>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "diagnose/explain.hpp"
#include "diagnose/observe.hpp"
#include "layout/testing/brute.hpp"
#include "scene/machine/sequence.hpp"
#include "scene/truth/truth.hpp"

namespace kvcts::scenario::sentences {

enum Part : std::uint8_t { component, request, layer, kv, token, block, slot, head, channel, parts };
using At = std::array<std::int64_t, parts>;
inline constexpr std::int64_t nowhere = -1;

/// A value in several passes: enough to tell any two apart.
inline constexpr int seen_passes = 16;
using Value = std::array<std::uint8_t, seen_passes>;

/// A byte of an element: coordinates without block and slot, and which byte of its code.
struct Element {
  At at{};
  int byte{0};
  auto operator<=>(const Element&) const = default;
};

struct Byte {
  int buffer{0};
  std::int64_t offset{0};
  bool wrong{false};
  bool located{false};  ///< the declared layout has an element there
  bool meant{false};    ///< which must be there: request and token are known
  Element place;        ///< block and slot too
  Value must{}, is{}, fresh{}, poison{};
};

class ExecutedScenario {
 public:
  static constexpr std::uint64_t seed = 1;

  explicit ExecutedScenario(const Scenario& s) : scenario(s), space(s), truth(truth_of(without_faults(s), space, symbols)) {
    program = record(scenario, space, actual_sequence(scenario));
    seen = observe(program, seed, seen_passes);
    Expectation expectation(truth, space, symbols, seed);
    mismatch = compare(seen, truth, expectation, space);
    if (mismatch.ranges.empty()) return;
    check = mismatch.ranges.front().check;
    read_bytes(expectation);
    name_elements();
    for (const auto& [name, memory] : scenario.memories) element_run(name, memory);
    for (const Step& step : scenario.steps)
      if (step.intended.op == Operation::read) element_run(step.intended);
  }

  std::int64_t wrong() const {
    std::int64_t out = 0;
    for (const Byte& byte : bytes) out += byte.wrong;
    return out;
  }
  const Buffer& buffer_of(const Byte& byte) const { return space.buffers()[static_cast<std::size_t>(byte.buffer)]; }
  const Byte* at(BufferAddress place) const {
    const Buffer& b = space.buffers()[static_cast<std::size_t>(place.buffer)];
    if (place.offset < -b.guard_below || place.offset >= b.bytes + b.guard_above) return nullptr;
    return &bytes[first_[static_cast<std::size_t>(place.buffer)] + static_cast<std::size_t>(place.offset + b.guard_below)];
  }

  Scenario scenario;
  SymbolTable symbols;
  AddressSpace space;
  Truth truth;
  CopyProgram program;
  Observation seen;
  Mismatch mismatch;
  std::size_t check{0};
  std::vector<Byte> bytes;  ///< of all buffers, guards included
  std::map<Value, std::set<Element>> elements;
  std::map<Value, std::vector<BufferAddress>> before;  ///< what lay where before the first step

 private:
  void read_bytes(Expectation& expectation) {
    const Checkpoint& at = *expectation.at(seen.checks[check]);
    for (const Buffer& b : space.buffers()) {
      first_.push_back(bytes.size());
      const std::size_t begin = bytes.size();
      for (std::int64_t i = -b.guard_below; i < b.bytes + b.guard_above; ++i) {
        Byte byte;
        byte.buffer = b.ordinal, byte.offset = i;
        for (std::size_t pass = 0; pass < seen_passes; ++pass) {
          const Bytes& all = seen.bytes[pass][check];
          byte.is[pass] = all.at(b.ordinal, i), byte.fresh[pass] = all.fresh(b.ordinal, i);
          byte.poison[pass] = all.poison(b.ordinal, i);
        }
        if (!b.zeroed || i < 0 || i >= b.bytes) before[byte.fresh].push_back({b.ordinal, i});
        bytes.push_back(byte);
      }
      for (int pass = 0; pass < seen_passes; ++pass) {
        const auto& must = expectation.dense(at, b.ordinal, pass);
        for (std::size_t i = 0; i < must.size(); ++i) bytes[begin + i].must[static_cast<std::size_t>(pass)] = must[i];
      }
    }
    for (Byte& byte : bytes) byte.wrong = byte.is != byte.must && matters(at, byte.buffer, byte.offset);
  }

  /// The byte of an element in every pass; of 4-bit codes two channels, from the even one on.
  static Value value_of(const Element& e, const layout::Plane& plane) {
    Symbol symbol{.kind = Symbol::Kind::tag, .component = plane.component, .dtype = plane.dtype};
    symbol.high_nibble_first = plane.high_nibble_first;
    symbol.generation = static_cast<std::uint32_t>(e.at[request]);
    const bool one = plane.component == layout::Component::global_scale;  // per layer and K or V
    symbol.kv = e.at[kv], symbol.layer = e.at[layer];
    if (!one) symbol.token = e.at[token], symbol.head = e.at[head], symbol.channel = e.at[channel];
    Value out{};
    for (int pass = 0; pass < seen_passes; ++pass) {
      std::uint32_t code = content_code(symbol, seed, pass);
      if (layout::bits(plane.dtype) == 4) {
        Symbol next = symbol;
        ++next.channel;
        const std::uint32_t second = content_code(next, seed, pass);
        code = plane.high_nibble_first ? code << 4 | second : second << 4 | code;
      }
      out[static_cast<std::size_t>(pass)] = static_cast<std::uint8_t>(code >> (8 * e.byte));
    }
    return out;
  }

  struct Position {
    Element place;  ///< without request and token
    std::int64_t byte;
  };
  /// Every byte of a plane.
  static std::vector<Position> positions(const layout::Plane& plane) {
    using L = layout::Axis;
    std::vector<Position> out;
    const bool one = plane.component == layout::Component::global_scale;
    for (const auto& point : layout::testing::points(plane)) {
      Element e;
      e.at = {static_cast<std::int64_t>(plane.component),
              nowhere,
              point.coord[L::layer],
              point.coord[L::kv],
              nowhere,
              one ? nowhere : point.coord[L::block],
              one ? nowhere : point.coord[L::slot],
              one ? nowhere : point.coord[L::head],
              one ? nowhere : point.coord[L::channel]};
      const int bits = layout::bits(plane.dtype);
      if (bits == 4 && e.at[channel] % 2 != 0) continue;
      for (e.byte = 0; e.byte < std::max(1, bits / 8); ++e.byte) out.push_back({e, point.bit / 8 + e.byte});
    }
    return out;
  }

  void name_elements() {
    for (const auto& [name, memory] : scenario.memories)
      for (const layout::Plane& plane : layout::cache_from_text(memory.view.cache).planes) {
        std::set<Element> rows;
        for (Position& position : positions(plane)) {
          position.place.at[block] = position.place.at[slot] = nowhere;
          rows.insert(position.place);
        }
        for (const auto& [r, of] : scenario.requests)
          for (Element e : rows)
            for (std::int64_t t = 0; t < of.tokens; ++t) {
              e.at[request] = of.generation;
              if (plane.component != layout::Component::global_scale) e.at[token] = of.first_token + t;
              elements[value_of(e, plane)].insert(e);
            }
      }
  }

  Byte& byte_at(BufferAddress place) { return const_cast<Byte&>(*at(place)); }

  void mean(Byte& byte, const layout::Plane& plane, std::int64_t generation, std::int64_t t) {
    Element e = byte.place;
    e.at[request] = generation;
    if (plane.component != layout::Component::global_scale) e.at[token] = t;
    if (value_of(e, plane) == byte.must) byte.meant = true, byte.place = e;
  }

  void element_run(const std::string& name, const Memory& memory) {
    const layout::Cache cache = layout::cache_from_text(memory.view.cache);
    View whole;
    whole.of = name;
    const std::vector<BufferAddress> begins = space.addresses(whole, cache);
    for (const layout::Plane& plane : cache.planes) {
      const std::int64_t slots = layout::domain(plane).hi[layout::Axis::slot];
      for (const Position& position : positions(plane)) {
        const BufferAddress begin = begins[static_cast<std::size_t>(plane.allocation)];
        Byte& byte = byte_at({begin.buffer, begin.offset + position.byte});
        byte.located = true, byte.place = position.place;
        for (const auto& [r, of] : scenario.requests) {
          const auto table = of.blocks.find(name);
          if (table == of.blocks.end()) continue;
          if (position.place.at[block] == nowhere) mean(byte, plane, of.generation, nowhere);
          for (std::size_t i = 0; i < table->second.size(); ++i)
            if (table->second[i] == position.place.at[block] && !byte.meant)
              mean(byte, plane, of.generation,
                   of.first_token + static_cast<std::int64_t>(i) * slots + position.place.at[slot]);
        }
      }
    }
  }

  /// What a step reads, in its dense order.
  void element_run(const Action& read) {
    const ScenarioRequest& of = scenario.requests.at(read.request);
    const int output = space.output(read.output);
    const layout::Cache cache = layout::cache_from_text(read.from.front().cache);
    for (const OutputSection& s : output_shape(read, {of.first_token, of.tokens}).sections) {
      const auto plane = std::find_if(cache.planes.begin(), cache.planes.end(),
                                      [&](const layout::Plane& p) { return p.component == s.component; });
      std::int64_t row = s.begin;
      for (const std::int64_t k : s.kv)
        for (const std::int64_t l : s.layers)
          for (const std::int64_t t : s.tokens)
            for (const std::int64_t h : s.heads) {
              for (std::size_t i = 0; i < s.channels.size(); ++i) {
                Element e;
                e.at = {static_cast<std::int64_t>(s.component), nowhere, l, k, nowhere, nowhere, nowhere, h, s.channels[i]};
                if (s.component == layout::Component::global_scale) e.at[head] = e.at[channel] = nowhere;
                if (s.width == 4 && i % 2 != 0) continue;
                for (e.byte = 0; e.byte < std::max(1, s.width / 8); ++e.byte) {
                  Byte& byte = byte_at({output, row + static_cast<std::int64_t>(i) * s.width / 8 + e.byte});
                  byte.located = true, byte.place = e;
                  mean(byte, *plane, of.generation, t);
                }
              }
              row += s.row_bits() / 8;
            }
    }
  }

  std::vector<std::size_t> first_;  ///< of each buffer, into bytes
};

}  // namespace kvcts::scenario::sentences
