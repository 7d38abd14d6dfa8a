#include <algorithm>
#include <tuple>

#include "layout/checked.hpp"
#include "scene/machine/recorder.hpp"

namespace kvcts::scenario {

using layout::Axis;
using layout::checked::ceil_div;
using layout::checked::floor_div;

std::int64_t source_of(const Picks& from, const Picks& to, std::int64_t coordinate) {
  if (!to || !from) return coordinate;
  const auto at = std::find(to->rbegin(), to->rend(), coordinate);  // of two at one place, the last
  if (at == to->rend()) return coordinate;
  const auto index = static_cast<std::size_t>(to->rend() - at) - 1;
  return index < from->size() ? (*from)[index] : coordinate;
}

StepSelection destinations(const Action& action) {
  StepSelection out = action.pick;
  const auto over = [](Picks& into, const Picks& with) {
    if (with) into = with;
  };
  over(out.layers, action.pick_to.layers), over(out.kv, action.pick_to.kv), over(out.tokens, action.pick_to.tokens);
  over(out.heads, action.pick_to.heads), over(out.channels, action.pick_to.channels);
  return out;
}

namespace {

// What is adjacent at both ends of a block is one copy, whatever the order of its rows.
void join(std::vector<BitRun>& runs, std::size_t begin) {
  const auto first = runs.begin() + static_cast<std::ptrdiff_t>(begin);
  std::stable_sort(first, runs.end(), [](const BitRun& a, const BitRun& b) {
    return std::tuple(a.src_buffer, a.dst_buffer, a.dst) < std::tuple(b.src_buffer, b.dst_buffer, b.dst);
  });
  std::vector<BitRun> joined;
  for (auto run = first; run != runs.end(); ++run) {
    const bool follows = !joined.empty() && joined.back().src_buffer == run->src_buffer &&
                         joined.back().dst_buffer == run->dst_buffer && joined.back().src + joined.back().n == run->src &&
                         joined.back().dst + joined.back().n == run->dst;
    if (follows)
      joined.back().n += run->n;
    else
      joined.push_back(*run);
  }
  runs.erase(first, runs.end());
  runs.insert(runs.end(), joined.begin(), joined.end());
}

}  // namespace

void Recorder::add_bits(std::vector<BitRun>& runs, const BitRange& from, const BitRange& to, bool new_block) const {
  const std::int64_t n = std::min(from.width, to.width);
  if (!new_block && !runs.empty()) {
    BitRun& last = runs.back();
    if (last.src_buffer == from.buffer && last.dst_buffer == to.buffer && last.src + last.n == from.bit &&
        last.dst + last.n == to.bit) {
      last.n += n;
      return;
    }
  }
  runs.push_back({from.buffer, to.buffer, from.bit, to.bit, n});
}

std::vector<BitRun> Recorder::runs_of_move(const Action& action) {
  std::vector<BitRun> runs;
  const RequestNow& now = request(action.request);
  const StepSelection wanted = destinations(action);
  std::vector<std::pair<const ViewLocator*, Table>> sources;
  for (const View& view : action.from) {
    const ViewLocator& at = locator(view);
    sources.emplace_back(&at, table_of(now, at, action.from_blocks));
  }
  for (const View& view : action.to) {
    const ViewLocator& to = locator(view);
    const Table table = table_of(now, to, action.to_blocks);
    std::int64_t block = -1;
    std::size_t block_begin = runs.size();
    for (const CodeRow& row : rows(to, now, table, wanted, action.parts)) {
      if (row.block != block && !action.splits) join(runs, block_begin);
      if (row.block != block) block_begin = runs.size();
      const std::int64_t kv = source_of(action.pick.kv, action.pick_to.kv, row.kv);
      const std::int64_t layer = source_of(action.pick.layers, action.pick_to.layers, row.layer);
      const std::int64_t head = source_of(action.pick.heads, action.pick_to.heads, row.head);
      const std::int64_t token = row.whole ? row.token : source_of(action.pick.tokens, action.pick_to.tokens, row.token);
      std::vector<CodeRow> found;
      for (const auto& [source, source_table] : sources) {
        found = find_rows(*source, now, source_table, row.component, kv, layer, token, head);
        if (!found.empty()) break;
      }
      if (found.empty()) continue;
      bool new_block = row.block != block;
      block = row.block;
      const layout::Box& box = row.plane->domain();
      const layout::Box& source_box = found.front().plane->domain();
      if (!wanted.channels && !action.pick.channels && box.lo[Axis::channel] == source_box.lo[Axis::channel] &&
          box.hi[Axis::channel] == source_box.hi[Axis::channel]) {
        const auto to_row = contiguous_bits(row), from_row = contiguous_bits(found.front());
        if (to_row && from_row && to_row->width == from_row->width) {
          add_bits(runs, *from_row, *to_row, new_block);
          continue;
        }
      }
      for (std::int64_t c = box.lo[Axis::channel]; c < box.hi[Axis::channel]; ++c) {
        if (wanted.channels && std::find(wanted.channels->begin(), wanted.channels->end(), c) == wanted.channels->end())
          continue;
        const auto to_bits = bits_at(row, c);
        if (!to_bits) continue;
        const std::int64_t from_channel = source_of(action.pick.channels, action.pick_to.channels, c);
        for (const CodeRow& source : found) {
          const auto from_bits = bits_at(source, from_channel);
          if (!from_bits) continue;
          add_bits(runs, *from_bits, *to_bits, new_block);
          new_block = false;
          break;
        }
      }
    }
    if (!action.splits) join(runs, block_begin);
  }
  return runs;
}

bool Recorder::inside(int buffer, std::int64_t offset, std::int64_t bytes) const {
  const Buffer& b = program_.buffers[static_cast<std::size_t>(buffer)];
  return offset >= -b.guard_below && offset + bytes <= b.bytes + b.guard_above;
}

std::optional<Violation> Recorder::bound(BitRun& piece, int buffer, std::int64_t& bit, bool write, bool splits) const {
  if (buffer < 0 || static_cast<std::size_t>(buffer) >= program_.own) return std::nullopt;
  const std::int64_t offset = floor_div(bit, 8);
  std::int64_t bytes = ceil_div(bit + piece.n, 8) - offset;
  for (const std::int64_t edge : program_.buffers[static_cast<std::size_t>(buffer)].boundaries) {
    if (offset >= edge || offset + bytes <= edge) continue;
    if (!splits) return Violation{"straddles a mapping", buffer, offset, bytes, write};
    bytes = edge - offset;
    piece.n = edge * 8 - bit;
  }
  if (needs_registration_.contains(buffer)) {
    static const std::vector<Range> none;
    const auto known = now_.registered.find(buffer);
    const auto& ranges = known == now_.registered.end() ? none : known->second;
    const auto holds =
        std::find_if(ranges.begin(), ranges.end(), [&](const Range& r) { return offset >= r.begin && offset < r.end; });
    if (holds == ranges.end()) return Violation{"not registered", buffer, offset, bytes, write};
    if (offset + bytes > holds->end) {
      const bool next = std::any_of(ranges.begin(), ranges.end(),
                                    [&](const Range& r) { return r.begin <= holds->end && r.end > holds->end; });
      if (!next) return Violation{"not registered", buffer, holds->end, offset + bytes - holds->end, write};
      if (!splits) return Violation{"straddles a registration", buffer, offset, bytes, write};
      piece.n = holds->end * 8 - bit;
      bytes = holds->end - offset;
    }
    bit += (holds->maps - holds->begin) * 8;
  }
  if (inside(buffer, floor_div(bit, 8), bytes)) return std::nullopt;
  return Violation{"outside", buffer, floor_div(bit, 8), bytes, write};
}

std::vector<Violation> Recorder::post(std::vector<BitRun>& runs, bool splits) const {
  std::vector<Violation> against;
  std::vector<BitRun> posted;
  for (BitRun rest : runs) {
    while (rest.n > 0) {
      BitRun piece = rest;
      // Each end may shorten the piece; the loop handles the rest.
      auto bad = bound(piece, piece.src_buffer, piece.src, false, splits);
      if (!bad) bad = bound(piece, piece.dst_buffer, piece.dst, true, splits);
      if (bad)
        against.push_back(*bad);
      else
        posted.push_back(piece);
      rest.src += piece.n, rest.dst += piece.n, rest.n -= piece.n;
    }
  }
  runs = std::move(posted);
  return against;
}

void Recorder::emit_at_once(std::vector<BitRun> runs) {
  std::map<std::pair<int, std::int64_t>, std::int64_t> written;  // (buffer, begin) -> end, in bits, may overlap
  std::int64_t longest = 0;
  for (const BitRun& run : runs) {
    auto& end = written[{run.dst_buffer, run.dst}];
    end = std::max(end, run.dst + run.n);
    longest = std::max(longest, run.n);
  }
  const bool clash = std::any_of(runs.begin(), runs.end(), [&](const BitRun& run) {
    for (auto w = written.lower_bound({run.src_buffer, run.src - longest}); w != written.end(); ++w) {
      if (w->first.first != run.src_buffer || w->first.second >= run.src + run.n) return false;
      if (w->second > run.src) return true;
    }
    return false;
  });
  if (clash) {
    const int buffer = temporary(0);
    std::int64_t at = 0;
    std::vector<BitRun> in = runs;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      // As far into its byte as before, so whole bytes stay whole.
      at += runs[i].src - floor_div(runs[i].src, 8) * 8;
      in[i].dst_buffer = runs[i].src_buffer = buffer;
      in[i].dst = runs[i].src = at;
      at = ceil_div(at + runs[i].n, 8) * 8;
    }
    program_.buffers[static_cast<std::size_t>(buffer)].bytes = at / 8;
    emit(in);
  }
  emit(runs);
}

void Recorder::emit(const std::vector<BitRun>& runs) {
  for (const BitRun& run : runs) {
    if (run.src % 8 == 0 && run.dst % 8 == 0 && run.n % 8 == 0) {
      program_.ops.push_back(
          {ProgramOp::Kind::copy, run.src_buffer, run.dst_buffer, run.src / 8, run.dst / 8, run.n / 8, 0});
      continue;
    }
    for (std::int64_t i = 0; i < run.n; i += 4) {
      program_.ops.push_back({ProgramOp::Kind::nibble, run.src_buffer, run.dst_buffer, run.src + i, run.dst + i, 0, 0});
    }
  }
}

}  // namespace kvcts::scenario
