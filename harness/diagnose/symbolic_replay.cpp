#include "diagnose/symbolic_replay.hpp"

namespace kvcts::scenario {

namespace {

std::int64_t byte_of(std::int64_t bit) { return bit >= 0 ? bit / 8 : -((7 - bit) / 8); }

}  // namespace

void SymbolicReplay::until(std::size_t end) {
  for (; next_ < end; ++next_) {
    const Op& op = program_.ops[next_];
    switch (op.kind) {
      case Op::Kind::copy:
        copy(op);
        break;
      case Op::Kind::nibble: {
        const std::int64_t from = byte_of(op.src);
        set_nibble(op.dst_buffer, op.dst, names_.nibble(id_at(op.src_buffer, from), op.src != from * 8));
        break;
      }
      case Op::Kind::row:
        row(program_.rows[op.extra]);
        break;
      case Op::Kind::pattern:
        pattern(op);
        break;
      case Op::Kind::decode:
        decode(op);
        break;
      case Op::Kind::check:
        break;
    }
  }
}

SymbolId SymbolicReplay::id_at(int buffer, std::int64_t offset) {
  const SymbolId id = images_[static_cast<std::size_t>(buffer)].at(offset);
  return id != hole ? id : fresh_id(program_.buffers[static_cast<std::size_t>(buffer)], offset, names_);
}

void SymbolicReplay::copy(const Op& op) {
  std::vector<SymbolId> ids(static_cast<std::size_t>(op.n));
  for (std::int64_t i = 0; i < op.n; ++i) ids[static_cast<std::size_t>(i)] = id_at(op.src_buffer, op.src + i);
  for (std::int64_t i = 0; i < op.n; ++i) set(op.dst_buffer, op.dst + i, ids[static_cast<std::size_t>(i)]);
}

void SymbolicReplay::set_nibble(int buffer, std::int64_t bit, Nibble nibble) {
  const std::int64_t at = byte_of(bit);
  const bool high = bit != at * 8;
  const Nibble other = names_.nibble(id_at(buffer, at), !high);
  set(buffer, at, high ? names_.join(other, nibble) : names_.join(nibble, other));
}

Symbol symbol_of(const RowOp& row) {
  return {.kind = Symbol::Kind::tag,
          .component = row.component,
          .dtype = row.dtype,
          .codes = row.content == "codes",
          .values = row.content == "values",
          .generation = row.generation,
          .kv = row.kv,
          .layer = row.layer,
          .token = row.token,
          .head = row.head,
          .channel = row.first};
}

void SymbolicReplay::row(const RowOp& op) {
  const int width = layout::bits(op.dtype);
  Symbol who = symbol_of(op);
  for (std::int64_t i = 0; i < op.count; ++i) {
    std::int64_t bit = op.bit + i * op.stride;
    who.channel = op.first + i, who.byte = 0;
    if (width == 4) {
      set_nibble(op.buffer, op.high_nibble_first ? bit ^ 4 : bit, names_.nibble(who));
      continue;
    }
    for (; who.byte < width / 8; ++who.byte) set(op.buffer, byte_of(bit) + who.byte, names_.intern(who));
  }
}

void SymbolicReplay::pattern(const Op& op) {
  const auto& pattern = program_.patterns[op.extra];
  for (std::int64_t i = 0; i < op.n; ++i) {
    Symbol who{.kind = Symbol::Kind::poison, .buffer = op.dst_buffer, .offset = op.dst + i};
    if (!pattern.empty())
      who = {.kind = Symbol::Kind::constant, .byte = pattern[static_cast<std::size_t>(i) % pattern.size()]};
    const SymbolId id = names_.intern(who);
    if (op.src == 0)
      set(op.dst_buffer, op.dst + i, id);
    else
      set_nibble(op.dst_buffer, op.dst * 8 + (op.src == 2 ? 4 : 0), names_.nibble(id, op.src == 2));
  }
}

std::uint32_t SymbolicReplay::reference(const DecodeOp::Code& code, Symbol* element) {
  if (code.buffer < 0) return 0;
  const int width = layout::bits(code.dtype);
  const std::int64_t at = byte_of(code.bit);
  Symbol mixed{.kind = Symbol::Kind::code, .dtype = code.dtype, .pieces = {hole, hole, hole, hole}};
  if (width == 4) {
    const Nibble half = names_.nibble(id_at(code.buffer, at), code.bit != at * 8);
    mixed.pieces[0] = half.byte, mixed.halves = half.high ? 1 : 0;
  } else {
    for (int i = 0; i < width / 8; ++i) mixed.pieces[static_cast<std::size_t>(i)] = id_at(code.buffer, at + i);
  }
  Symbol first = names_.at(mixed.pieces[0]);
  bool one = first.kind == Symbol::Kind::tag && first.dtype == code.dtype && first.byte == 0;
  for (int i = 1; i < width / 8; ++i)
    one = one && mixed.pieces[static_cast<std::size_t>(i)] == mixed.pieces[0] + static_cast<SymbolId>(i);
  if (one && element) {
    *element = first;
    if (width == 4 && mixed.halves != 0) ++element->channel;
    return 0;
  }
  return (one && width >= 8 ? mixed.pieces[0] : names_.intern(mixed)) + 1;
}

void SymbolicReplay::decode(const Op& op) {
  const DecodeOp& d = program_.decodes[op.extra];
  Symbol who{.dtype = d.code.dtype};
  who.whole = reference(d.code, &who);
  who.kind = Symbol::Kind::number;
  who.high_nibble_first = false;
  if (d.power > 0) who.scale = reference(d.scale, nullptr), who.global_scale = reference(d.global_scale, nullptr);
  who.power = who.scale == 0 && who.global_scale == 0 ? std::uint8_t{0} : static_cast<std::uint8_t>(d.power);
  for (who.byte = 0; who.byte < 4; ++who.byte) set(op.dst_buffer, op.dst + who.byte, names_.intern(who));
}

}  // namespace kvcts::scenario
