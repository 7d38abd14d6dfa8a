#include "diagnose/symbolic_replay.hpp"

namespace kvcts::scenario {

namespace {

std::int64_t byte_of(std::int64_t bit) { return bit >= 0 ? bit / 8 : -((7 - bit) / 8); }

}  // namespace

void SymbolicReplay::until(std::size_t end) {
  for (; next_ < end; ++next_) {
    const ProgramOp& op = program_.ops[next_];
    switch (op.kind) {
      case ProgramOp::Kind::copy:
        copy(op);
        break;
      case ProgramOp::Kind::nibble: {
        const std::int64_t from = byte_of(op.src);
        set_nibble(op.dst_buffer, op.dst, symbols_.nibble(id_at(op.src_buffer, from), op.src != from * 8));
        break;
      }
      case ProgramOp::Kind::row:
        row(program_.rows[op.extra]);
        break;
      case ProgramOp::Kind::pattern:
        pattern(op);
        break;
      case ProgramOp::Kind::decode:
        decode(op);
        break;
      case ProgramOp::Kind::check:
        break;
    }
  }
}

SymbolId SymbolicReplay::id_at(int buffer, std::int64_t offset) {
  const SymbolId id = images_[static_cast<std::size_t>(buffer)].at(offset);
  return id != hole ? id : fresh_id(program_.buffers[static_cast<std::size_t>(buffer)], offset, symbols_);
}

void SymbolicReplay::copy(const ProgramOp& op) {
  std::vector<SymbolId> ids(static_cast<std::size_t>(op.n));
  for (std::int64_t i = 0; i < op.n; ++i) ids[static_cast<std::size_t>(i)] = id_at(op.src_buffer, op.src + i);
  for (std::int64_t i = 0; i < op.n; ++i) set(op.dst_buffer, op.dst + i, ids[static_cast<std::size_t>(i)]);
}

void SymbolicReplay::set_nibble(int buffer, std::int64_t bit, Nibble nibble) {
  const std::int64_t at = byte_of(bit);
  const bool high = bit != at * 8;
  const Nibble other = symbols_.nibble(id_at(buffer, at), !high);
  set(buffer, at, high ? symbols_.join(other, nibble) : symbols_.join(nibble, other));
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
  Symbol symbol = symbol_of(op);
  for (std::int64_t i = 0; i < op.count; ++i) {
    std::int64_t bit = op.bit + i * op.stride;
    symbol.channel = op.first + i, symbol.byte = 0;
    if (width == 4) {
      set_nibble(op.buffer, op.high_nibble_first ? bit ^ 4 : bit, symbols_.nibble(symbol));
      continue;
    }
    for (; symbol.byte < width / 8; ++symbol.byte) set(op.buffer, byte_of(bit) + symbol.byte, symbols_.intern(symbol));
  }
}

void SymbolicReplay::pattern(const ProgramOp& op) {
  const auto& pattern = program_.patterns[op.extra];
  for (std::int64_t i = 0; i < op.n; ++i) {
    Symbol symbol{.kind = Symbol::Kind::poison, .buffer = op.dst_buffer, .offset = op.dst + i};
    if (!pattern.empty())
      symbol = {.kind = Symbol::Kind::constant, .byte = pattern[static_cast<std::size_t>(i) % pattern.size()]};
    const SymbolId id = symbols_.intern(symbol);
    if (op.src == 0)
      set(op.dst_buffer, op.dst + i, id);
    else
      set_nibble(op.dst_buffer, op.dst * 8 + (op.src == 2 ? 4 : 0), symbols_.nibble(id, op.src == 2));
  }
}

std::uint32_t SymbolicReplay::reference(const DecodeOp::Code& code, Symbol* element) {
  if (code.buffer < 0) return 0;
  const int width = layout::bits(code.dtype);
  const std::int64_t at = byte_of(code.bit);
  Symbol mixed{.kind = Symbol::Kind::code, .dtype = code.dtype, .pieces = {hole, hole, hole, hole}};
  if (width == 4) {
    const Nibble half = symbols_.nibble(id_at(code.buffer, at), code.bit != at * 8);
    mixed.pieces[0] = half.byte, mixed.halves = half.high ? 1 : 0;
  } else {
    for (int i = 0; i < width / 8; ++i) mixed.pieces[static_cast<std::size_t>(i)] = id_at(code.buffer, at + i);
  }
  Symbol first = symbols_.at(mixed.pieces[0]);
  bool one = first.kind == Symbol::Kind::tag && first.dtype == code.dtype && first.byte == 0;
  for (int i = 1; i < width / 8; ++i)
    one = one && mixed.pieces[static_cast<std::size_t>(i)] == mixed.pieces[0] + static_cast<SymbolId>(i);
  if (one && element) {
    *element = first;
    if (width == 4 && mixed.halves != 0) ++element->channel;
    return 0;
  }
  return (one && width >= 8 ? mixed.pieces[0] : symbols_.intern(mixed)) + 1;
}

void SymbolicReplay::decode(const ProgramOp& op) {
  const DecodeOp& d = program_.decodes[op.extra];
  Symbol symbol{.dtype = d.code.dtype};
  symbol.whole = reference(d.code, &symbol);
  symbol.kind = Symbol::Kind::number;
  symbol.high_nibble_first = false;
  if (d.power > 0) symbol.scale = reference(d.scale, nullptr), symbol.global_scale = reference(d.global_scale, nullptr);
  symbol.power = symbol.scale == 0 && symbol.global_scale == 0 ? std::uint8_t{0} : static_cast<std::uint8_t>(d.power);
  for (symbol.byte = 0; symbol.byte < 4; ++symbol.byte) set(op.dst_buffer, op.dst + symbol.byte, symbols_.intern(symbol));
}

}  // namespace kvcts::scenario
