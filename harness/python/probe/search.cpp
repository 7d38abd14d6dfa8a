#include "python/probe/search.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "case/outcome.hpp"
#include "case/text.hpp"
#include "kernels/poison.hpp"
#include "kernels/relayout.hpp"
#include "python/probe/planes.hpp"
#include "scene/faults/variants.hpp"

namespace kvcts::probe {

using kernels::BlockContent;
using layout::Axis;
using layout::Cache;
using layout::Component;
using layout::Plane;

namespace {

std::string join(const std::vector<std::int64_t>& ids) {
  if (ids.size() <= 12) return fmt::format("[{}]", fmt::join(ids, ", "));
  return fmt::format("[{}, ...]", fmt::join(ids.begin(), ids.begin() + 12, ", "));
}

// K instead of V and vice versa.
std::optional<Cache> kv_exchanged(const Cache& cache) {
  Cache out = cache;
  for (Plane& plane : out.planes) {
    bool moded = false;
    for (layout::Mode& mode : plane.modes) {
      if (mode.axis != Axis::kv || mode.extent != 2) continue;
      plane.offset += mode.stride;
      mode.stride = -mode.stride;
      moded = true;
    }
    if (!moded) {
      plane.origin[Axis::kv] = 1 - plane.origin[Axis::kv];
      if (plane.origin[Axis::kv] < 0 || plane.origin[Axis::kv] > 1) return std::nullopt;
    }
  }
  bool both = false;
  for (const Plane& plane : out.planes) both = both || layout::domain(plane).hi[Axis::kv] == 2;
  return both ? std::optional(out) : std::nullopt;
}

std::string order_of(const Cache& cache) {
  for (const Plane& plane : cache.planes) {
    if (plane.component == Component::data) return script::order_words(plane);
  }
  return "";
}

// The class of an order change: K and V move while the other axes keep their order, or axes are exchanged.
FaultClass class_of(std::string a, std::string b) {
  std::erase(a, 'K'), std::erase(b, 'K'), std::erase(a, ' '), std::erase(b, ' ');
  return a == b ? FaultClass::kv_split_vs_interleaved : FaultClass::axis_permuted;
}

bool same_sizes(const Bound& a, const Bound& b) {
  return a.stretches.size() == b.stretches.size() &&
         std::equal(a.stretches.begin(), a.stretches.end(), b.stretches.begin(),
                    [](const Stretch& x, const Stretch& y) { return x.bytes.size() == y.bytes.size(); });
}

// Every single map change that the suite knows, simplest first.
std::vector<script::Variant> changes(const Cache& cache) {
  std::vector<script::Variant> out;
  const auto add = [&](std::vector<script::Variant> more) { std::move(more.begin(), more.end(), std::back_inserter(out)); };
  add(script::permuted(cache, false));
  if (auto swapped = kv_exchanged(cache))
    out.push_back({FaultClass::kv_split_vs_interleaved, "K and V exchanged", std::move(*swapped)});
  add(script::renamed(cache));
  add(script::restrided(cache, {}));
  add(script::reblocked(cache));
  add(script::resized(cache));
  add(script::rescaled(cache));
  add(script::permuted(cache, true));
  return out;
}

}  // namespace

Search::Search(const Question& question, const Damage& damage)
    : question_(question), damage_(damage), blocks_(blocks_of(question.content.requests, question.subject.geometry)) {}

std::int64_t Search::wrong_bytes(const Cache& cache, const std::vector<BlockContent>& blocks) const {
  const Question& q = question_;
  std::int64_t out = 0;
  for (const int a : damage_.allocations) {
    const std::span<const std::uint8_t> bytes = q.bound.stretches[static_cast<std::size_t>(a)].bytes;
    if (!q.content.poison) {
      for (const Plane& plane : cache.planes) {
        if (plane.allocation == a && !blocks.empty())
          out +=
              kernels::check(bytes, plane, blocks, q.content.key, unblocked_generation(q.content), 0, q.threads).wrong_bytes;
      }
      continue;
    }
    std::int64_t here =
        kernels::check(image_of(cache, a, static_cast<std::int64_t>(bytes.size()), blocks, q.content), bytes, 0, q.threads)
            .wrong_bytes;
    if (here > 0 && q.open_tails) {
      for (const auto& tail : tails(q, cache, a)) {
        here -= kernels::check_poison(
                    poison_of(q.content, a), tail.begin,
                    bytes.subspan(static_cast<std::size_t>(tail.begin), static_cast<std::size_t>(tail.end - tail.begin)), 0)
                    .wrong_bytes;
      }
    }
    out += here;
  }
  return out;
}

// Whether the hypothesis predicts what is found at the first wrong places: most are refuted by one byte.
bool Search::plausible(const Cache& cache, const std::vector<BlockContent>& blocks) const {
  for (const Damage::Place& place : damage_.first) {
    const auto bytes = question_.bound.stretches[static_cast<std::size_t>(place.allocation)].bytes;
    const auto end = std::min(place.offset + 8, static_cast<std::int64_t>(bytes.size()));
    for (std::int64_t byte = place.offset; byte < end; ++byte) {
      const auto would = predicted(question_, cache, blocks, place.allocation, byte);
      if (would && *would != bytes[static_cast<std::size_t>(byte)]) return false;
    }
  }
  return true;
}

// Likewise, if the requests were read from the producer through `from`.
bool Search::plausible_read(const Cache& from, const std::vector<Request>& requests) const {
  const Source& source = *question_.source;
  const std::int64_t size = question_.subject.geometry.block_size, theirs = source.subject.geometry.block_size;
  for (const Damage::Place& place : damage_.first) {
    if (place.elements.size() != 1) continue;
    layout::Coord at = place.elements.front().coord;
    const Plane& plane = question_.bound.cache.planes[static_cast<std::size_t>(place.elements.front().plane)];
    if (plane.component != Component::data || layout::bits(plane.dtype) < 8) continue;
    std::optional<std::int64_t> token;
    std::size_t r = 0;
    for (; r < requests.size() && !token; ++r) {
      const auto& mine = question_.content.requests[r].blocks;
      const auto i = std::find(mine.begin(), mine.end(), at[Axis::block]) - mine.begin();
      if (i < static_cast<std::ptrdiff_t>(mine.size())) token = i * size + at[Axis::slot];
    }
    const auto& ids = requests[r ? r - 1 : 0].blocks;
    if (!token || *token / theirs >= static_cast<std::int64_t>(ids.size())) return false;
    const auto here = layout::locate(plane, at);
    at[Axis::block] = ids[static_cast<std::size_t>(*token / theirs)], at[Axis::slot] = *token % theirs;
    const auto there = layout::locate(from, Component::data, at);
    if (!here || !there || here->width != there->width) continue;
    const auto would = source.bound.stretches[static_cast<std::size_t>(there->allocation)].bytes;
    const std::int64_t byte = place.offset - here->bit / 8 + there->bit / 8;
    if (byte < 0 || byte >= static_cast<std::int64_t>(would.size())) return false;
    const auto is = question_.bound.stretches[static_cast<std::size_t>(place.allocation)].bytes;
    if (is[static_cast<std::size_t>(place.offset)] != would[static_cast<std::size_t>(byte)]) return false;
  }
  return true;
}

void Search::found(FaultClass fault_class, std::string words) {
  if (damage_.allocations.size() < question_.bound.stretches.size()) {
    std::vector<std::string> names;
    for (const int a : damage_.allocations)
      names.push_back(question_.subject.cache.allocations[static_cast<std::size_t>(a)].name);
    words += fmt::format(", in {} only", fmt::join(names, ", "));
  }
  const bool known =
      std::ranges::any_of(causes_, [&](const Cause& c) { return c.fault_class == fault_class && c.words == words; });
  if (known || full()) return;
  causes_.push_back({fault_class, std::move(words), 1, !causes_.empty() && fault_class != causes_.front().fault_class});
}

bool Search::attempt(FaultClass fault_class, const std::string& words, const Cache& cache,
                     const std::vector<BlockContent>& blocks) {
  try {
    if (!plausible(cache, blocks) || wrong_bytes(cache, blocks) != 0) return false;
  } catch (const std::exception&) {
    return false;  // no map of this memory
  }
  found(fault_class, words);
  return true;
}

void Search::nothing_arrived() {
  if (blocks_.empty()) return;
  if (question_.content.poison && plausible(question_.bound.cache, {}) && wrong_bytes(question_.bound.cache, {}) == 0) {
    const bool everywhere = damage_.allocations.size() == question_.bound.stretches.size();
    return found(everywhere ? FaultClass::silently_skipped : FaultClass::layer_missing,
                 "nothing arrived: every byte is as it was before");
  }
  for (const int a : damage_.allocations) {
    const auto bytes = question_.bound.stretches[static_cast<std::size_t>(a)].bytes;
    if (std::any_of(bytes.begin(), bytes.end(), [&](std::uint8_t b) { return b != bytes[0]; })) return;
  }
  const auto first = question_.bound.stretches[static_cast<std::size_t>(damage_.allocations.front())].bytes[0];
  found(FaultClass::silently_skipped, fmt::format("nothing arrived: every byte is 0x{:02x}", first));
}

// The correct map with other tokens in it: reads what each slot of the pool holds.
void Search::other_content() {
  if (blocks_.empty()) return;
  const auto& g = question_.subject.geometry;
  // A row of another token differs in most bytes: less than half a row is none.
  for (const Plane& plane : question_.bound.cache.planes) {
    const layout::Box own = layout::domain(plane);
    if (plane.component == Component::data &&
        damage_.bytes * 16 >= (own.hi[Axis::channel] - own.lo[Axis::channel]) * layout::bits(plane.dtype))
      break;
    if (&plane == &question_.bound.cache.planes.back()) return;
  }
  const auto touched = [&](const BlockContent& b) { return damage_.blocks.contains(b.block); };
  Rows rows(question_);
  const layout::Box& box = rows.box();
  layout::Coord at;
  at[Axis::layer] = box.lo[Axis::layer], at[Axis::kv] = box.lo[Axis::kv], at[Axis::head] = box.lo[Axis::head];
  for (const Plane& plane : question_.bound.cache.planes) {  // of a layer with wrong bytes
    if (plane.allocation == damage_.allocations.front() && plane.component == Component::data) {
      const layout::Box own = layout::domain(plane);
      at[Axis::layer] = own.lo[Axis::layer], at[Axis::kv] = own.lo[Axis::kv], at[Axis::head] = own.lo[Axis::head];
      break;
    }
  }
  for (const std::int64_t b : damage_.blocks) {
    at[Axis::block] = b;
    for (at[Axis::slot] = 0; at[Axis::slot] < g.block_size; ++at[Axis::slot]) rows.want(at);
  }
  rows.know_tokens(at[Axis::layer], at[Axis::kv], at[Axis::head]);
  using Place = std::pair<std::int64_t, std::int64_t>;
  using Token = std::pair<std::uint32_t, std::int64_t>;
  std::map<Place, Token> meant, held;
  std::int64_t all = 0, arrived = 0;
  std::vector<BlockContent> blocks;  ///< first those that are right
  for (const BlockContent& b : blocks_) {
    all += b.tokens;
    if (!touched(b)) arrived += b.tokens, blocks.push_back(b);
    for (std::int64_t s = 0; s < b.tokens && touched(b); ++s)
      meant[{b.block, b.first_slot + s}] = {b.generation, b.first_token + s};
  }
  std::set<Place> tail;
  if (question_.open_tails) {
    for (const Request& r : question_.content.requests) {
      for (std::size_t i = 0; i < r.blocks.size() && r.tokens >= 0; ++i) {
        for (std::int64_t s = std::max<std::int64_t>(0, r.tokens - static_cast<std::int64_t>(i) * g.block_size);
             s < g.block_size; ++s)
          tail.insert({r.blocks[i], s});
      }
    }
  }
  for (const std::int64_t b : damage_.blocks) {
    for (std::int64_t s = 0; s < g.block_size; ++s) {
      if (!question_.content.poison && !meant.contains({b, s})) continue;  // not checked
      at[Axis::block] = b, at[Axis::slot] = s;
      if (const auto row = rows.at(at); row && !tail.contains({b, s})) held[{b, s}] = {row->generation, row->token};
    }
  }
  if (held == meant) return;
  for (const auto& [place, token] : held) {
    BlockContent* last = blocks.empty() ? nullptr : &blocks.back();
    if (last && last->block == place.first && last->first_slot + last->tokens == place.second &&
        last->generation == token.first && last->first_token + last->tokens == token.second) {
      ++last->tokens;
    } else {
      blocks.push_back({place.first, token.first, token.second, place.second, 1});
    }
  }
  // Slots that lost their content must hold what was there before; wrong_bytes() checks that.
  if (!plausible(question_.bound.cache, blocks) || wrong_bytes(question_.bound.cache, blocks) != 0) return;

  std::set<std::int64_t> stale, missing, extra, moved;
  std::set<std::uint32_t> generations;
  bool by_block = true;
  for (const auto& [place, token] : meant) {
    const auto is = held.find(place);
    if (is == held.end()) {
      missing.insert(place.first);
    } else if (is->second == token) {
      ++arrived;
    } else if (is->second.first != token.first) {
      stale.insert(place.first), generations.insert(is->second.first);
    } else {
      moved.insert(place.first);
      by_block = by_block && (is->second.second - token.second) % g.block_size == 0;
    }
  }
  for (const auto& [place, token] : held) {
    if (!meant.contains(place)) extra.insert(place.first);
  }
  const auto list = [](const std::set<std::int64_t>& ids) {
    return ids.size() == 1 ? std::to_string(*ids.begin()) : join({ids.begin(), ids.end()});
  };
  const auto block_word = [](const std::set<std::int64_t>& ids) { return ids.size() == 1 ? "block" : "blocks"; };
  if (!stale.empty()) {
    return found(
        FaultClass::stale_block,
        fmt::format("{} {} hold{} generation {} instead of {}", block_word(stale), list(stale), stale.size() == 1 ? "s" : "",
                    fmt::join(generations, ", "), question_.content.requests.front().generation));
  }
  if (moved.empty() && extra.empty()) {
    std::int64_t prefix = 0;
    const Request& r = question_.content.requests.front();
    for (const BlockContent& b : blocks_) {
      if (b.generation != r.generation || b.first_token != prefix) break;
      std::int64_t s = 0;
      while (s < b.tokens && (!touched(b) || held.contains({b.block, b.first_slot + s}))) ++s;
      prefix += s;
      if (s < b.tokens) break;
    }
    if (prefix == arrived)
      return found(FaultClass::truncated, fmt::format("only the first {} of {} tokens arrived", arrived, all));
    return found(FaultClass::truncated, fmt::format("{} of {} tokens never arrived, in {} {}", all - arrived, all,
                                                    block_word(missing), list(missing)));
  }
  if (moved.empty() && missing.empty()) {
    return found(FaultClass::over_read, fmt::format("{} {} hold{} unrequested content", block_word(extra), list(extra),
                                                    extra.size() == 1 ? "s" : ""));
  }
  if (!by_block) return found(FaultClass::wrong_block_size, "tokens are in other slots than theirs");
  // The block list that was really used.
  std::map<Token, std::int64_t> holder;
  for (const auto& [place, token] : held) holder.emplace(token, place.first);
  for (const Request& r : question_.content.requests) {
    std::vector<std::int64_t> used;
    const std::int64_t tokens = r.tokens < 0 ? static_cast<std::int64_t>(r.blocks.size()) * g.block_size : r.tokens;
    for (std::int64_t first = 0; first < tokens; first += g.block_size) {
      const std::int64_t own = r.blocks[static_cast<std::size_t>(first / g.block_size)];
      const auto is = holder.find(Token{r.generation, first});
      used.push_back(!damage_.blocks.contains(own) ? own : is == holder.end() ? -1 : is->second);
    }
    std::vector<std::int64_t> right(r.blocks.begin(), r.blocks.begin() + static_cast<std::ptrdiff_t>(used.size()));
    if (used == right) continue;
    std::string how;
    const auto is = [&](const std::vector<std::int64_t>& candidate, const char* words) {
      if (how.empty() && candidate == used) how = words;
    };
    auto other = right;
    std::reverse(other.begin(), other.end()), is(other, " (reversed)");
    other = right;
    std::sort(other.begin(), other.end()), is(other, " (sorted)");
    other = right;
    std::rotate(other.begin(), other.begin() + 1, other.end()), is(other, " (shifted by one position)");
    other = right;
    std::rotate(other.begin(), other.end() - 1, other.end()), is(other, " (shifted by one position)");
    for (const std::int64_t shift : {1, -1}) {
      other = right;
      for (auto& id : other) id += shift;
      is(other, shift > 0 ? " (ids shifted by 1)" : " (ids shifted by -1)");
    }
    if (question_.source) {
      for (const Request& theirs : question_.source->content.requests) {
        if (theirs.blocks.size() >= used.size())
          is({theirs.blocks.begin(), theirs.blocks.begin() + static_cast<std::ptrdiff_t>(used.size())},
             " (those of the producer)");
      }
    }
    return found(FaultClass::wrong_block_id, fmt::format("blocks {} instead of {}{}", join(used), join(right), how));
  }
  found(FaultClass::wrong_block_id, fmt::format("{} {} hold other blocks of the request", block_word(moved), list(moved)));
}

// Whole layers, K or V, or heads that replace others, or are missing.
void Search::other_axes() {
  if (blocks_.empty()) return;
  Rows rows(question_);
  const layout::Box& box = rows.box();
  const BlockContent& first = blocks_.front();
  rows.know_axes({first.first_token});
  constexpr Axis axes[] = {Axis::layer, Axis::kv, Axis::head};
  std::map<Axis, std::map<std::int64_t, std::int64_t>> to;  ///< coordinate -> the one found there; -1 = none
  std::map<Axis, bool> consistent{{Axis::layer, true}, {Axis::kv, true}, {Axis::head, true}};
  bool any = false;
  layout::Coord at;
  at[Axis::block] = first.block, at[Axis::slot] = first.first_slot;
  for (at[Axis::layer] = box.lo[Axis::layer]; at[Axis::layer] < box.hi[Axis::layer]; ++at[Axis::layer])
    for (at[Axis::kv] = box.lo[Axis::kv]; at[Axis::kv] < box.hi[Axis::kv]; ++at[Axis::kv])
      for (at[Axis::head] = box.lo[Axis::head]; at[Axis::head] < box.hi[Axis::head]; ++at[Axis::head]) {
        const auto row = rows.at(at);
        if (!row) continue;
        const std::int64_t is[] = {row->layer, row->kv, row->head};
        for (std::size_t i = 0; i < std::size(axes); ++i) {
          const auto [known, fresh] = to[axes[i]].emplace(at[axes[i]], is[i]);
          if (!fresh && known->second != is[i]) consistent[axes[i]] = false;
          any = any || at[axes[i]] != is[i];
        }
      }
  const auto rebuilt = [&](Axis axis, const std::map<std::int64_t, std::int64_t>& there) {
    Cache out = question_.bound.cache;
    std::vector<Plane> planes;
    for (const Plane& plane : out.planes) {
      for (Plane& one : apart(plane, axis)) {
        const auto is = there.find(one.origin[axis]);
        if (is == there.end()) continue;  // none
        one.origin[axis] = is->second;
        planes.push_back(std::move(one));
      }
    }
    out.planes = std::move(planes);
    return out;
  };
  for (const Axis axis : axes) {
    if (!consistent[axis] || to[axis].empty()) continue;
    const auto& there = to[axis];
    const auto extent = box.hi[axis] - box.lo[axis];
    const bool moved = std::any_of(there.begin(), there.end(), [](const auto& p) { return p.first != p.second; });
    const bool missing = static_cast<std::int64_t>(there.size()) < extent;
    if (!moved && !missing) continue;
    std::vector<std::string> words;
    for (std::int64_t v = box.lo[axis]; v < box.hi[axis] && words.size() < 6; ++v) {
      const auto is = there.find(v);
      const auto call = [&](std::int64_t x) {
        return axis == Axis::kv ? std::string(x == 0 ? "K" : "V") : fmt::format("{} {}", layout::name(axis), x);
      };
      if (is == there.end())
        words.push_back(call(v) + " never arrived");
      else if (is->second != v)
        words.push_back(call(is->second) + " is at the place of " + call(v));
    }
    const FaultClass fault_class = axis == Axis::kv
                                       ? (moved ? FaultClass::kv_split_vs_interleaved : FaultClass::layer_missing)
                                   : axis == Axis::layer ? (moved ? FaultClass::layer_misrouted : FaultClass::layer_missing)
                                                         : FaultClass::head_shard_mapping;
    const bool exchanged = axis == Axis::kv && there.size() == 2 && moved && there.at(0) == 1 && there.at(1) == 0;
    attempt(fault_class, exchanged ? "K and V are exchanged" : fmt::format("{}", fmt::join(words, "; ")),
            rebuilt(axis, there));
  }
}

void Search::written_otherwise() {
  const Cache& cache = question_.bound.cache;
  // Whole blocks, unchanged from the producer.
  if (question_.source && question_.source->subject.geometry == question_.subject.geometry &&
      same_sizes(question_.source->bound, question_.bound) && !layout::same_map(question_.source->bound.cache, cache)) {
    const Cache& from = question_.source->bound.cache;
    const std::string is = order_of(from), told = order_of(cache);
    if (attempt(class_of(is, told), fmt::format("blocks were moved as they are: written {}, read as {}", is, told), from))
      return;
  }
  std::vector<script::Variant> variants = changes(cache);
  for (const auto& variant : variants) {
    attempt(variant.fault_class, "written: " + variant.words, variant.cache);
    if (full()) return;
  }
}

// Reads the requests' tokens through `from` out of the producer's real bytes, and writes them correctly.
bool Search::attempt_read(FaultClass fault_class, const std::string& words, const Cache& from,
                          const std::vector<Request>& requests) {
  const Source& source = *question_.source;
  const std::int64_t size = question_.subject.geometry.block_size, theirs = source.subject.geometry.block_size;
  const auto rows_agree = [&](const Request& mine, const Request& other, std::int64_t tokens) {
    for (const Plane& plane : question_.bound.cache.planes) {
      if (!std::ranges::count(damage_.allocations, plane.allocation)) continue;
      const layout::Box box = layout::domain(plane);
      for (std::int64_t layer = box.lo[Axis::layer]; layer < box.hi[Axis::layer]; ++layer)
        for (std::int64_t kv = box.lo[Axis::kv]; kv < box.hi[Axis::kv]; ++kv) {
          const Plane* origin = nullptr;
          for (const Plane& candidate : from.planes) {
            const layout::Box theirs_box = layout::domain(candidate);
            const auto holds = [&](Axis axis, std::int64_t value) {
              return theirs_box.lo[axis] <= value && value < theirs_box.hi[axis];
            };
            const auto same = [&](Axis axis) {
              return theirs_box.lo[axis] == box.lo[axis] && theirs_box.hi[axis] == box.hi[axis];
            };
            if (candidate.component == plane.component && candidate.dtype == plane.dtype && holds(Axis::layer, layer) &&
                holds(Axis::kv, kv) && same(Axis::head) && same(Axis::channel)) {
              origin = &candidate;
              break;
            }
          }
          if (!origin) throw layout::Error("the producer has no such rows");
          const auto bytes = static_cast<std::size_t>(kernels::row_bytes(plane, tokens));
          std::vector<std::uint8_t> is(bytes), would(bytes);
          kernels::gather(question_.bound.stretches[static_cast<std::size_t>(plane.allocation)].bytes, plane, {layer, kv},
                          mine.blocks, tokens, is);
          kernels::gather(source.bound.stretches[static_cast<std::size_t>(origin->allocation)].bytes, *origin, {layer, kv},
                          other.blocks, tokens, would);
          if (is != would) return false;
        }
    }
    return true;
  };
  try {
    if (!plausible_read(from, requests)) return false;
    for (const bool all : {false, true}) {
      for (std::size_t i = 0; i < question_.content.requests.size(); ++i) {
        const Request& mine = question_.content.requests[i];
        const std::int64_t tokens = mine.tokens < 0 ? static_cast<std::int64_t>(mine.blocks.size()) * size : mine.tokens;
        const std::int64_t some = all ? tokens : std::min({tokens, size, theirs});
        if (some > 0 && !rows_agree(mine, requests.at(i), some)) return false;
      }
    }
  } catch (const std::exception&) {
    return false;  // a reading that leaves the memory, or has other rows
  }
  if (question_.content.poison) {  // and nothing else was written
    std::int64_t inside = 0;
    for (const Plane& plane : question_.bound.cache.planes) {
      if (!std::ranges::count(damage_.allocations, plane.allocation)) continue;
      inside += kernels::check(question_.bound.stretches[static_cast<std::size_t>(plane.allocation)].bytes, plane, blocks_,
                               question_.content.key, unblocked_generation(question_.content), 0, question_.threads)
                    .wrong_bytes;
    }
    if (damage_.bytes != inside) return false;
  }
  found(fault_class, words);
  return true;
}

void Search::read_otherwise() {
  if (!question_.source || blocks_.empty()) return;
  const Source& source = *question_.source;
  // Identifies the producer's requests by generation.
  std::vector<Request> requests;
  for (const Request& mine : question_.content.requests) {
    const auto theirs = std::find_if(source.content.requests.begin(), source.content.requests.end(),
                                     [&](const Request& r) { return r.generation == mine.generation; });
    if (theirs == source.content.requests.end()) return;
    requests.push_back(*theirs);
  }
  const Cache& from = source.bound.cache;
  for (const auto& variant : changes(from)) {
    attempt_read(variant.fault_class, "read from the producer: " + variant.words, variant.cache, requests);
    if (full()) return;
  }
  const auto with_ids = [&](const std::string& how, auto&& change) {
    std::vector<Request> other = requests;
    for (Request& r : other) change(r.blocks);
    if (other != requests)
      attempt_read(FaultClass::wrong_block_id,
                   fmt::format("blocks {} instead of {} of the producer ({})", join(other.front().blocks),
                               join(requests.front().blocks), how),
                   from, other);
  };
  with_ids("reversed", [](auto& ids) { std::reverse(ids.begin(), ids.end()); });
  with_ids("sorted", [](auto& ids) { std::sort(ids.begin(), ids.end()); });
  with_ids("shifted by one position", [](auto& ids) {
    if (!ids.empty()) std::rotate(ids.begin(), ids.begin() + 1, ids.end());
  });
  with_ids("positions taken for ids", [](auto& ids) {
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i);
  });
  with_ids("ids shifted by 1", [](auto& ids) {
    for (auto& id : ids) ++id;
  });
  with_ids("ids shifted by -1", [](auto& ids) {
    for (auto& id : ids) --id;
  });
  std::size_t i = 0;
  with_ids("those of the consumer", [&](auto& ids) { ids = question_.content.requests[i++].blocks; });
}

Diagnosis Search::run() {
  using Family = void (Search::*)();
  for (const Family family : {&Search::nothing_arrived, &Search::other_content, &Search::other_axes,
                              &Search::written_otherwise, &Search::read_otherwise}) {
    (this->*family)();
    if (!causes_.empty()) return named(std::move(causes_), explains_all(damage_.bytes));
  }
  const auto right =
      std::ranges::count_if(blocks_, [&](const BlockContent& b) { return !damage_.blocks.contains(b.block); });
  Diagnosis out;
  out.text = fmt::format("{}; no known transformation of the map predicts these bytes; {} of {} blocks are right{}",
                         not_identified, right, blocks_.size(),
                         question_.source ? "" : "; give source=, so that readings of the producer are tried, too");
  return out;
}

}  // namespace kvcts::probe
