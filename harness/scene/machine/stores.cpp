// Objects of stores: what a put takes from its views and a get returns, in object order.
#include <algorithm>
#include <tuple>

#include "scene/machine/recorder.hpp"

namespace kvcts::scenario {

using layout::Axis;
using nlohmann::json;

namespace {

std::string key_text(const std::map<std::string, std::string>& key) {
  std::string out;
  for (const auto& [field, value] : key) out += field + "=" + value + ";";
  return out;
}

}  // namespace

std::vector<Stored> Recorder::stored(const Action& a) {
  const bool put = a.op == Operation::put;
  const RequestNow& now = request(a.request);
  const StepSelection pick = put ? a.pick : destinations(a);
  // If several views hold the same element, read the first and write all.
  struct Held {
    CodeRow row;
    std::size_t view;
    std::array<std::int64_t, 5> key;
    std::int64_t channel;
  };
  std::vector<Held> rows_held;
  const auto& views = put ? a.from : a.to;
  for (std::size_t v = 0; v < views.size(); ++v) {
    const ViewLocator& view = locator(views[v]);
    for (const CodeRow& row : rows(view, now, table_of(now, view, put ? a.from_blocks : a.to_blocks), pick, a.parts)) {
      const auto source = [&](const Picks& from, const Picks& to, std::int64_t coordinate) {
        return put ? coordinate : source_of(from, to, coordinate);
      };
      rows_held.push_back({row,
                           v,
                           {static_cast<std::int64_t>(row.component), source(a.pick.kv, a.pick_to.kv, row.kv),
                            source(a.pick.layers, a.pick_to.layers, row.layer),
                            row.whole ? row.token : source(a.pick.tokens, a.pick_to.tokens, row.token),
                            source(a.pick.heads, a.pick_to.heads, row.head)},
                           row.plane->domain().lo[Axis::channel]});
    }
  }
  std::stable_sort(rows_held.begin(), rows_held.end(),
                   [](const Held& x, const Held& y) { return std::tie(x.key, x.channel) < std::tie(y.key, y.channel); });

  std::vector<Stored> out;
  std::int64_t at = 0, before = 0;
  for (std::size_t i = 0; i < rows_held.size(); ++i) {
    const Held& held = rows_held[i];
    const bool again = i > 0 && rows_held[i - 1].view != held.view && rows_held[i - 1].key == held.key &&
                       rows_held[i - 1].channel == held.channel;
    if (again && put) continue;
    if (again)
      at = before;
    else
      before = at;
    const layout::Box& box = held.row.plane->domain();
    if (const auto whole = contiguous_bits(held.row); whole && !pick.channels) {
      out.push_back({held.key, held.channel, box.hi[Axis::channel] - box.lo[Axis::channel], *whole, at});
      at += whole->width;
      continue;
    }
    for (std::int64_t c = box.lo[Axis::channel]; c < box.hi[Axis::channel]; ++c) {
      if (pick.channels && std::find(pick.channels->begin(), pick.channels->end(), c) == pick.channels->end()) continue;
      const auto one = bits_at(held.row, c);
      if (!one) continue;
      out.push_back({held.key, put ? c : source_of(a.pick.channels, a.pick_to.channels, c), 1, *one, at});
      at += one->width;
    }
  }
  return out;
}

std::vector<Stored> Recorder::stored_in(const std::string& step, const Action& action, std::int64_t& bits, bool& part) {
  const auto end_of = [](const std::vector<Stored>& codes) {
    return codes.empty() ? 0 : codes.back().at + codes.back().bits_at.width;
  };
  std::vector<Stored> own = stored(action);
  bits = end_of(own), part = false;
  const auto meant =
      std::find_if(scenario_.steps.begin(), scenario_.steps.end(), [&](const Step& s) { return s.name == step; });
  if (meant == scenario_.steps.end() || meant->intended.op != action.op || meant->intended == action) return own;
  const std::vector<Stored> whole = stored(meant->intended);
  if (end_of(whole) <= bits) return own;
  std::map<std::array<std::int64_t, 5>, std::vector<const Stored*>> places;
  for (const Stored& codes : whole) places[codes.row].push_back(&codes);
  std::vector<Stored> placed = own;
  for (Stored& codes : placed) {
    const auto found = places.find(codes.row);
    if (found == places.end()) return own;
    const auto in = std::find_if(found->second.begin(), found->second.end(), [&](const Stored* w) {
      return codes.channel >= w->channel && codes.channel + codes.count <= w->channel + w->count &&
             codes.bits_at.width * w->count == w->bits_at.width * codes.count;
    });
    if (in == found->second.end()) return own;
    codes.at = (*in)->at + (codes.channel - (*in)->channel) * (codes.bits_at.width / codes.count);
  }
  bits = end_of(whole), part = true;
  return placed;
}

void Recorder::put(const StepExecution& execution) {
  const Action& a = execution.action;
  auto& shelf = now_.stores[a.store];
  const std::string key = key_text(a.key);
  std::int64_t bits = 0;
  bool part = false;
  const std::vector<Stored> codes = stored_in(execution.step, a, bits, part);
  // Parts of one object that one step puts consecutively fill it.
  const auto known = shelf.find(key);
  const bool more = part && known != shelf.end() && known->second.step == execution.step && !known->second.parts.empty() &&
                    known->second.bytes == (bits + 7) / 8;
  const bool there = known != shelf.end() && !more;
  event(execution, {{"store", a.store}, {"key", a.key}, {"there", there}});
  if (there && a.on_exists == "keep") return;
  Blob blob = more ? known->second : Blob{temporary((bits + 7) / 8), (bits + 7) / 8, execution.step, {}};
  std::vector<BitRun> runs;
  std::int64_t moved = 0;
  for (const Stored& c : codes) {
    add_bits(runs, c.bits_at, {blob.buffer, c.at, c.bits_at.width}, false);
    if (part) blob.parts.emplace_back(c.at, c.at + c.bits_at.width);
    moved += c.bits_at.width;
  }
  if (stopped_by(execution, post(runs, a.splits), true)) return;
  event(execution, {{"bytes_moved", (moved + 7) / 8}});
  emit(runs);
  std::sort(blob.parts.begin(), blob.parts.end());
  shelf[key] = std::move(blob);
}

void Recorder::get(const StepExecution& execution) {
  const Action& a = execution.action;
  const auto& shelf = now_.stores[a.store];
  const auto found = shelf.find(key_text(a.key));
  event(execution, {{"store", a.store}, {"key", a.key}, {"hit", found != shelf.end()}});
  if (found == shelf.end()) return;
  const Blob& blob = found->second;
  std::int64_t bits = 0, moved = 0;
  bool part = false;
  std::vector<BitRun> runs;
  // Skip what the object lacks.
  const auto has = [&](std::int64_t begin, std::int64_t end) {
    if (end > blob.bytes * 8) return false;
    if (blob.parts.empty()) return true;
    const auto after = std::upper_bound(blob.parts.begin(), blob.parts.end(), std::pair(begin, INT64_MAX));
    return after != blob.parts.begin() && std::prev(after)->second >= end;
  };
  for (const Stored& c : stored_in(execution.step, a, bits, part)) {
    if (has(c.at, c.at + c.bits_at.width)) {
      add_bits(runs, {blob.buffer, c.at, c.bits_at.width}, c.bits_at, false);
      moved += c.bits_at.width;
      continue;
    }
    const auto width = static_cast<int>(c.bits_at.width / c.count);
    for (std::int64_t i = 0; i < c.count; ++i) {
      if (!has(c.at + i * width, c.at + (i + 1) * width)) continue;
      add_bits(runs, {blob.buffer, c.at + i * width, width}, {c.bits_at.buffer, c.bits_at.bit + i * width, width}, false);
      moved += width;
    }
  }
  if (stopped_by(execution, post(runs, a.splits), true)) return;
  event(execution, {{"bytes_moved", (moved + 7) / 8}, {"moved", true}});
  emit(runs);
}

}  // namespace kvcts::scenario
