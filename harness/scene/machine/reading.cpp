// A read: gathers elements of a request into a separate output, as raw bytes or decoded.
#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "layout/checked.hpp"
#include "scene/machine/recorder.hpp"

namespace kvcts::scenario {

using layout::Axis;
using layout::Component;
using layout::checked::floor_div;

namespace {

std::int64_t size(const std::vector<std::int64_t>& list) { return static_cast<std::int64_t>(list.size()); }

// By coordinate in a larger output; by order in one of equal size, where a coordinate may occur twice.
std::vector<std::int64_t> places(const std::vector<std::int64_t>& own, const std::vector<std::int64_t>& all) {
  std::vector<std::int64_t> at(own.size());
  if (own == all) {
    std::iota(at.begin(), at.end(), 0);
    return at;
  }
  std::unordered_map<std::int64_t, std::int64_t> first;
  for (std::size_t i = 0; i < all.size(); ++i) first.emplace(all[i], static_cast<std::int64_t>(i));
  for (std::size_t i = 0; i < own.size(); ++i) {
    const auto found = first.find(own[i]);
    at[i] = found == first.end() ? size(all) : found->second;
  }
  return at;
}

bool is_narrow(const CodeRow& row) { return layout::bits(row.plane->plane().dtype) <= 8; }

// A section of a read, and its place in the output.
struct Placed {
  Placed(const OutputSection& own, const OutputSection& in)
      : part(own),
        whole(in),
        kv(places(own.kv, in.kv)),
        layers(places(own.layers, in.layers)),
        tokens(places(own.tokens, in.tokens)),
        heads(places(own.heads, in.heads)),
        channels(places(own.channels, in.channels)),
        in_order(!own.channels.empty() &&
                 std::adjacent_find(own.channels.begin(), own.channels.end(),
                                    [](auto c, auto next) { return next != c + 1; }) == own.channels.end()) {}
  /// Bit in the output where a row begins, by the positions of its coordinates in the part's lists.
  std::int64_t row(std::size_t k, std::size_t l, std::size_t t, std::size_t h) const {
    return whole.begin * 8 +
           (((kv[k] * size(whole.layers) + layers[l]) * size(whole.tokens) + tokens[t]) * size(whole.heads) + heads[h]) *
               whole.row_bits();
  }

  const OutputSection& part;
  const OutputSection& whole;
  std::vector<std::int64_t> kv, layers, tokens, heads, channels;
  bool in_order;  ///< channels follow each other
};

}  // namespace

struct Recorder::Reading {
  Reading(Recorder& recorder, const Action& action)
      : on(recorder), a(action), now(recorder.request(action.request)), out(recorder.space_.output(action.output)) {
    for (const View& view : a.from) {
      const ViewLocator& at = on.locator(view);
      sources.emplace_back(&at, on.table_of(now, at, a.from_blocks));
    }
  }

  void row(const Placed& at, std::int64_t kv, std::int64_t layer, std::int64_t token, std::int64_t head, std::int64_t begin);
  bool as_one(const Placed& at, const std::vector<CodeRow>& found, std::int64_t begin);
  void decode(const Placed& at, const std::vector<CodeRow>& found, const std::vector<CodeRow>& scales,
              const std::vector<CodeRow>& globals, std::int64_t begin);
  DecodeOp::Code code(const std::vector<CodeRow>& rows, std::int64_t channel);

  Recorder& on;
  const Action& a;
  const RequestNow& now;
  int out;
  std::vector<std::pair<const ViewLocator*, Table>> sources;
  std::vector<BitRun> runs;
  std::vector<std::pair<DecodeOp, std::int64_t>> decodes;  ///< and the byte in the output
  std::vector<Violation> against;
};

DecodeOp::Code Recorder::Reading::code(const std::vector<CodeRow>& rows, std::int64_t channel) {
  for (const CodeRow& row : rows) {
    if (const auto at = on.bits_at(row, channel)) {
      const std::int64_t offset = floor_div(at->bit, 8);
      if (!on.inside(at->buffer, offset, (at->width + 7) / 8))
        against.push_back({"outside", at->buffer, offset, (at->width + 7) / 8, false});
      else
        return DecodeOp::Code{at->buffer, at->bit, row.plane->plane().dtype};
    }
  }
  return DecodeOp::Code{};
}

/// All channels of the row in one run, if they are adjacent at both ends.
bool Recorder::Reading::as_one(const Placed& at, const std::vector<CodeRow>& found, std::int64_t begin) {
  const OutputSection& part = at.part;
  const auto whole = found.empty() || !at.in_order ? std::nullopt : on.contiguous_bits(found.front());
  if (!whole || whole->width != size(part.channels) * part.width) return false;
  const layout::Box& box = found.front().plane->domain();
  if (box.lo[Axis::channel] != part.channels.front() || box.hi[Axis::channel] != part.channels.back() + 1) return false;
  on.add_bits(runs, *whole, {out, begin + at.channels.front() * part.width, whole->width}, false);
  return true;
}

void Recorder::Reading::decode(const Placed& at, const std::vector<CodeRow>& found, const std::vector<CodeRow>& scales,
                               const std::vector<CodeRow>& globals, std::int64_t begin) {
  // Next to wide codes, scales belong to the narrow ones.
  const bool any_narrow = std::any_of(found.begin(), found.end(), is_narrow);
  std::int64_t groups = 0, width = 0;
  for (const CodeRow& row : scales) groups = std::max(groups, row.plane->domain().hi[Axis::channel]);
  for (const CodeRow& row : found) {
    if (is_narrow(row) == any_narrow) width = std::max(width, row.plane->domain().hi[Axis::channel]);
  }
  for (std::size_t i = 0; i < at.part.channels.size(); ++i) {
    const std::int64_t channel = at.part.channels[i];
    DecodeOp op;
    op.code = code(found, channel);
    if (op.code.buffer < 0) continue;
    const bool scaled = !any_narrow || layout::bits(op.code.dtype) <= 8;
    if (scaled && groups > 0) op.scale = code(scales, channel * groups / width);
    if (scaled && !globals.empty()) op.global_scale = code(globals, globals.front().plane->domain().lo[Axis::channel]);
    op.power = a.scales == "twice" ? 2 : a.scales == "ignored" ? 0 : 1;
    decodes.emplace_back(op, (begin + at.channels[i] * at.part.width) / 8);
  }
}

void Recorder::Reading::row(const Placed& at, std::int64_t kv, std::int64_t layer, std::int64_t token, std::int64_t head,
                            std::int64_t begin) {
  std::vector<CodeRow> found, scales, globals;
  for (const auto& [source, table] : sources) {
    found = on.find_rows(*source, now, table, at.part.component, kv, layer, token, head);
    if (found.empty()) continue;
    if (a.decode && a.scales != "ignored") {
      scales = on.find_scales(*source, now, table, Component::scale, kv, layer, token, head);
      globals = on.find_scales(*source, now, table, Component::global_scale, kv, layer, token, head);
    }
    break;
  }
  if (a.decode && !found.empty()) return decode(at, found, scales, globals, begin);
  if (as_one(at, found, begin)) return;
  for (std::size_t i = 0; i < at.part.channels.size(); ++i) {
    for (const CodeRow& row : found) {
      const auto from = on.bits_at(row, at.part.channels[i]);
      if (!from) continue;
      on.add_bits(runs, *from, {out, begin + at.channels[i] * at.part.width, from->width}, false);
      break;
    }
  }
}

void Recorder::read(const StepExecution& execution) {
  const Action& a = execution.action;
  Reading reading(*this, a);
  const RequestNow& now = reading.now;
  for (const OutputSection& part : output_shape(a, {now.first_token, now.tokens}).sections) {
    // A partial read leaves the rest of the output alone.
    const OutputSection whole = place_in_output(scenario_, execution.step, a, part);
    const Placed at(part, whole);
    for (std::size_t k = 0; k < part.kv.size(); ++k) {
      for (std::size_t l = 0; l < part.layers.size(); ++l) {
        for (std::size_t t = 0; t < part.tokens.size(); ++t) {
          for (std::size_t h = 0; h < part.heads.size(); ++h)
            reading.row(at, part.kv[k], part.layers[l], part.tokens[t], part.heads[h], at.row(k, l, t, h));
        }
      }
    }
  }
  for (const BitRun& run : reading.runs) {
    const std::int64_t offset = floor_div(run.src, 8), bytes = (run.n + 7) / 8;
    if (!inside(run.src_buffer, offset, bytes)) reading.against.push_back({"outside", run.src_buffer, offset, bytes, false});
  }
  event(execution, {{"output", a.output}});
  if (stopped_by(execution, reading.against, false)) return;
  // A hypothesis may read more than fits.
  std::erase_if(reading.runs, [&](const BitRun& run) {
    const std::int64_t bytes = (run.n + 7) / 8;
    return !inside(run.src_buffer, floor_div(run.src, 8), bytes) || !inside(run.dst_buffer, floor_div(run.dst, 8), bytes);
  });
  emit(reading.runs);
  for (const auto& [op, to] : reading.decodes) {
    if (!inside(reading.out, to, 4)) continue;
    program_.ops.push_back({ProgramOp::Kind::decode, -1, reading.out, 0, to, 4, program_.decodes.size()});
    program_.decodes.push_back(op);
  }
}

}  // namespace kvcts::scenario
