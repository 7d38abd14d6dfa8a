// Faults of code that moves bytes: transformations of the list of pieces, and of the bytes in transit. A family reads what
// it needs to know of a fault (how many bytes, which pieces) off the found bytes; its prediction must then hold for every
// byte.
#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <tuple>

#include "diagnose/sides/hypotheses.hpp"
#include "diagnose/sides/pieces.hpp"
#include "scene/oracle/oracle.hpp"

namespace kvcts::diagnose {

using layout::Axis;

namespace {

using Images = std::vector<std::vector<std::uint8_t>>;

Variant image(FaultClass fault_class, std::string words, Images consumer) {
  Variant v{fault_class, std::move(words), {}};
  v.images = Variant::Predicted{std::move(consumer), {}};
  return v;
}

std::string bytes_words(std::int64_t n) { return std::to_string(n) + (n == 1 ? " byte" : " bytes"); }
std::string of(std::size_t k, std::size_t n) { return std::to_string(k) + " of " + std::to_string(n); }

enum class State { arrived, untouched, other };

/// State of a stretch of a piece. A stretch that does not change counts as arrived.
State state(const Scene& scene, const Piece& p, std::int64_t begin, std::int64_t end) {
  const auto at = static_cast<std::size_t>(p.to + begin), n = static_cast<std::size_t>(end - begin);
  const auto& seen = scene.consumer[p.to_file];
  if (std::memcmp(seen.data() + at, scene.consumer_expected[p.to_file].data() + at, n) == 0) return State::arrived;
  return std::memcmp(seen.data() + at, scene.consumer_before[p.to_file].data() + at, n) == 0 ? State::untouched
                                                                                             : State::other;
}
State state(const Scene& scene, const Piece& p) { return state(scene, p, 0, p.bytes); }

// ---- some pieces never moved ---------------------------------------------------------------------------------------

/// A class for a set of pieces that did not arrive: what only they have in common.
std::pair<FaultClass, std::string> what_is_missing(const std::vector<Piece>& all, const std::vector<bool>& missing) {
  const auto exactly = [&](auto&& belongs) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (missing[i] != belongs(all[i])) return false;
    }
    return true;
  };
  if (exactly([](const Piece& p) { return p.component != layout::Component::data; }))
    return {FaultClass::scale_lost, "the scales were not moved, the codes were"};
  std::set<std::int64_t> layers, kinds;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (missing[i]) layers.insert(all[i].first[Axis::layer]), kinds.insert(all[i].first[Axis::kv]);
  }
  if (exactly([&](const Piece& p) { return layers.contains(p.first[Axis::layer]); })) {
    std::string names;
    for (const auto layer : layers) names += (names.empty() ? "" : ", ") + std::to_string(layer);
    return {FaultClass::layer_missing, "layer " + names + " was not moved, the others were"};
  }
  if (kinds.size() == 1 && exactly([&](const Piece& p) { return p.first[Axis::kv] == *kinds.begin(); })) {
    return {FaultClass::layer_missing, *kinds.begin() == 0 ? "K was not moved, V was" : "V was not moved, K was"};
  }
  const auto count = static_cast<std::size_t>(std::count(missing.begin(), missing.end(), true));
  std::size_t scales = 0, lost = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].component != layout::Component::data) ++scales, lost += missing[i];
  }
  if (lost == count) return {FaultClass::scale_lost, of(count, scales) + " pieces of scales were not moved, all codes were"};
  // A list that ends early, in any of the orders in which lists are made.
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t>;
  const auto layer = [](const Piece& p) { return p.first[Axis::layer]; };
  const auto kind = [](const Piece& p) { return p.first[Axis::kv]; };
  using Order = std::function<Key(const Piece&)>;
  for (const Order& key :
       {Order([](const Piece&) { return Key{}; }), Order([&](const Piece& p) { return Key{layer(p), kind(p), p.token}; }),
        Order([&](const Piece& p) { return Key{layer(p), p.token, kind(p)}; }),
        Order([&](const Piece& p) { return Key{p.token, layer(p), kind(p)}; }),
        Order([&](const Piece& p) { return Key{kind(p), layer(p), p.token}; })}) {
    std::vector<std::size_t> order(all.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return key(all[i]); });
    const auto lost_from = std::ranges::find_if(order, [&](std::size_t i) { return missing[i]; });
    const auto first = static_cast<std::size_t>(lost_from - order.begin());
    if (first + count == all.size() && first > 0)
      return {FaultClass::truncated, "only the first " + of(first, all.size()) + " pieces were moved"};
  }
  return {FaultClass::false_success,
          of(count, all.size()) + " pieces never arrived, and the transfer was reported as complete"};
}

}  // namespace

void pieces_missing(const Scene& scene, Proposals& out) {
  for (const auto& list : {pieces_of(scene), rows_of(scene)}) {  // rows only if larger units do not fit
    std::vector<bool> missing;
    std::vector<Piece> rest;
    for (const auto& p : list) {
      const State s = state(scene, p);
      missing.push_back(s == State::untouched);
      if (s == State::other) break;
      if (s == State::arrived) rest.push_back(p);
    }
    if (missing.size() != list.size() || rest.size() == list.size() || list.empty() || rest.empty()) continue;
    const auto [fault_class, words] = what_is_missing(list, missing);
    out.push_back(image(fault_class, words, moved(scene, rest)));
    return;
  }
}

// ---- pieces of another length --------------------------------------------------------------------------------------

void pieces_cut_or_long(const Scene& scene, Proposals& out) {
  const auto list = pieces_of(scene);
  if (list.empty()) return;
  // Any piece can be the last of its list, including each region's last one.
  std::vector<std::size_t> ends;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (i + 1 == list.size() || list[i + 1].to_file != list[i].to_file) ends.push_back(i);
  }
  const auto propose = [&](FaultClass fault_class, const std::string& words, auto&& change) {
    auto changed = list;
    change(changed);
    out.push_back(image(fault_class, words, moved(scene, changed)));
  };
  const auto unwritten = [&](const Piece& p) {  // at its end; ignores unchanged bytes
    std::int64_t n = 0;
    while (n < p.bytes && state(scene, p, p.bytes - n - 1, p.bytes) != State::arrived &&
           scene.consumer[p.to_file][static_cast<std::size_t>(p.to_end() - n - 1)] ==
               scene.consumer_before[p.to_file][static_cast<std::size_t>(p.to_end() - n - 1)]) {
      ++n;
    }
    return n;
  };
  std::set<std::int64_t> lengths;
  for (const auto& p : list) {
    if (lengths.size() < 4 && unwritten(p) > 0) lengths.insert(unwritten(p));
  }
  for (const auto n : lengths) {
    propose(FaultClass::truncated, "every piece ends " + bytes_words(n) + " early", [&](auto& all) {
      for (auto& p : all) p.bytes -= std::min(p.bytes, n);
    });
  }
  for (const auto i : ends) {
    if (const auto n = unwritten(list[i]); n > 0) {
      propose(FaultClass::truncated, "the last piece ends " + bytes_words(n) + " early",
              [&](auto& all) { all[i].bytes -= n; });
    }
  }
  // Changed bytes after the end. A page is worth a guess even if its last bytes are unchanged by chance.
  for (const auto i : ends) {
    const Piece& p = list[i];
    const auto &seen = scene.consumer[p.to_file], &before = scene.consumer_before[p.to_file];
    std::int64_t n = 0;
    for (auto at = p.to_end(); at < static_cast<std::int64_t>(seen.size()); ++at) {
      if (seen[static_cast<std::size_t>(at)] != before[static_cast<std::size_t>(at)]) n = at + 1 - p.to_end();
    }
    if (n == 0) continue;
    for (const auto length : {n, (n + 4095) / 4096 * 4096}) {
      propose(FaultClass::over_read, "the last piece continues for " + bytes_words(length),
              [&](auto& all) { all[i].bytes += length; });
    }
    auto padded = moved(scene, list);
    std::fill_n(padded[p.to_file].begin() + p.to_end(), n, std::uint8_t{0});
    out.push_back(
        image(FaultClass::over_read, bytes_words(n) + " after the last piece were set to zero", std::move(padded)));
  }
}

// ---- pieces at another place ---------------------------------------------------------------------------------------

namespace {

/// The only place of `needle` in a file, or nothing when it is absent or there twice.
std::optional<std::int64_t> find_once(ByteView file, ByteView needle) {
  const auto at = std::search(file.begin(), file.end(), needle.begin(), needle.end());
  if (at == file.end() || std::search(at + 1, file.end(), needle.begin(), needle.end()) != file.end()) return std::nullopt;
  return at - file.begin();
}

}  // namespace

void pieces_shifted(const Scene& scene, Proposals& out) {
  const auto list = pieces_of(scene);
  if (list.empty()) return;
  const auto probe = std::min<std::int64_t>(16, list.front().bytes);
  if (probe < 4) return;
  std::set<std::int64_t> sources, targets;
  for (std::size_t i = 0; i < list.size() && sources.size() + targets.size() < 6; i += 1 + list.size() / 4) {
    const Piece& p = list[i];
    if (p.bytes < probe) continue;
    const auto n = static_cast<std::size_t>(probe);
    if (const auto at =
            find_once(scene.producer[p.from_file], scene.consumer[p.to_file].subspan(static_cast<std::size_t>(p.to), n));
        at && *at != p.from)
      sources.insert(*at - p.from);
    if (const auto at =
            find_once(scene.consumer[p.to_file], scene.producer[p.from_file].subspan(static_cast<std::size_t>(p.from), n));
        at && *at != p.to)
      targets.insert(*at - p.to);
  }
  const auto words = [](std::int64_t n) { return bytes_words(std::abs(n)) + (n > 0 ? " further on" : " further back"); };
  for (const auto n : targets) {
    auto all = list;
    for (auto& p : all) p.to += n;
    out.push_back(image(FaultClass::wrong_stride, "everything was written " + words(n), moved(scene, all)));
  }
  for (const auto n : sources) {
    auto all = list;
    for (auto& p : all) p.from += n;
    out.push_back(image(FaultClass::wrong_stride, "everything was read " + words(n), moved(scene, all)));
  }
}

void pieces_in_another_region(const Scene& scene, Proposals& out) {
  const auto list = pieces_of(scene);
  const std::size_t files = scene.consumer.size();
  if (list.empty() || files < 2) return;
  const auto targets = regions(scene.truth, Side::consumer);
  for (std::size_t step = 1; step < files; ++step) {
    auto all = list;
    bool ranks = true;
    for (auto& p : all) {
      const std::size_t to = (p.to_file + step) % files;
      if (scene.consumer[to].size() != scene.consumer[p.to_file].size()) continue;
      ranks =
          ranks && targets[to].rank != targets[p.to_file].rank && targets[to].allocation == targets[p.to_file].allocation;
      p.to_file = to;
    }
    out.push_back(image(ranks ? FaultClass::head_shard_mapping : FaultClass::layer_misrouted,
                        ranks ? "everything went to the same region of another rank"
                              : "everything went to the region " + std::to_string(step) + " further on in the list",
                        moved(scene, all)));
  }
}

void narrow_offsets(const Scene& scene, Proposals& out) {
  const auto list = pieces_of(scene);
  const auto targets = regions(scene.truth, Side::consumer);
  for (int bits = 8; bits < 33; ++bits) {
    const std::int64_t mask = (std::int64_t{1} << bits) - 1;
    auto all = list;
    bool any = false;
    for (auto& p : all) {
      const auto shape = oracle::file_shape(scene.truth, targets[p.to_file].bytes);
      const std::int64_t offset = (p.to - shape.base) & mask;
      any = any || offset != p.to - shape.base;
      p.to = shape.base + offset;
      p.bytes = std::min(p.bytes, shape.bytes - offset);
    }
    if (!any) break;  // from here on every offset fits
    out.push_back(image(FaultClass::int32_overflow, "offsets on the consumer keep " + std::to_string(bits) + " bits",
                        moved(scene, all)));
  }
}

// ---- pieces of other pieces ----------------------------------------------------------------------------------------

namespace {

/// The class for the axes on which exchanged pieces differ. `once`: every delivered piece was delivered once.
std::pair<FaultClass, std::string> class_of_exchange(const std::vector<Piece>& all, const std::vector<std::size_t>& got) {
  bool layer = false, kv = false, head = false, token = false, consistent = true, once = true, component = true;
  std::set<std::size_t> used;
  std::map<std::int64_t, std::int64_t> tokens;
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Piece &want = all[i], &have = all[got[i]];
    once = used.insert(got[i]).second && once;
    const auto [known, fresh] = tokens.try_emplace(want.token, have.token);
    consistent = consistent && (fresh || known->second == have.token);
    if (got[i] == i) continue;
    ++wrong;
    component = component && want.component != layout::Component::data;
    layer = layer || want.first[Axis::layer] != have.first[Axis::layer],
    kv = kv || want.first[Axis::kv] != have.first[Axis::kv];
    head = head || want.first[Axis::head] != have.first[Axis::head], token = token || want.token != have.token;
  }
  const std::string count = of(wrong, all.size()) + " pieces hold what belongs to another ";
  if (component) return {FaultClass::scale_misplaced, count + "group of codes: scales only"};
  if (layer && !kv && !head && !token) return {FaultClass::layer_misrouted, count + "layer"};
  if (kv && !layer && !head && !token)
    return {once ? FaultClass::kv_split_vs_interleaved : FaultClass::region_aliasing,
            once ? "K and V are exchanged" : "both K and V are what one of them should be"};
  if (head && !layer && !kv && !token) return {FaultClass::head_shard_mapping, count + "head"};
  if (token && !layer && !kv && !head && (once || consistent)) return {FaultClass::wrong_block_id, count + "token"};
  if (once) return {FaultClass::wrong_block_id, count + "piece, exchanged among them"};
  return {FaultClass::identity_collision, count + "piece, which is also where it belongs"};
}

std::uint64_t digest(ByteView bytes) {
  std::uint64_t h = 0xcbf29ce484222325;
  for (const auto b : bytes) h = (h ^ b) * 0x100000001b3;
  return h;
}

}  // namespace

void pieces_of_others(const Scene& scene, Proposals& out) {
  for (const auto& list : {pieces_of(scene), rows_of(scene)}) {
    std::map<std::pair<std::int64_t, std::uint64_t>, std::size_t> known;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const Piece& p = list[i];
      known.try_emplace({p.bytes, digest(scene.producer[p.from_file].subspan(static_cast<std::size_t>(p.from),
                                                                             static_cast<std::size_t>(p.bytes)))},
                        i);
    }
    std::vector<std::size_t> got(list.size());
    auto all = list;
    bool found = !list.empty();
    for (std::size_t i = 0; found && i < list.size(); ++i) {
      const Piece& p = list[i];
      got[i] = i;
      if (state(scene, p) == State::arrived) continue;
      const auto at = known.find({p.bytes, digest(scene.consumer[p.to_file].subspan(static_cast<std::size_t>(p.to),
                                                                                    static_cast<std::size_t>(p.bytes)))});
      found = at != known.end() && p.bytes >= 4;
      if (!found) break;
      got[i] = at->second;
      all[i].from_file = list[got[i]].from_file, all[i].from = list[got[i]].from;
    }
    if (!found) continue;
    const auto [fault_class, words] = class_of_exchange(list, got);
    out.push_back(image(fault_class, words, moved(scene, all)));
    return;
  }
}

// ---- the bytes themselves ------------------------------------------------------------------------------------------

namespace {

struct Format {
  layout::Dtype dtype;
  int bits, exponent, mantissa;
};
constexpr Format formats[] = {{layout::Dtype::fp32, 32, 8, 23},
                              {layout::Dtype::fp16, 16, 5, 10},
                              {layout::Dtype::bf16, 16, 8, 7},
                              {layout::Dtype::e4m3fn, 8, 4, 3},
                              {layout::Dtype::e5m2, 8, 5, 2}};

struct Number {
  const char* words;
  std::uint32_t (*change)(std::uint32_t code, const Format& f);
};
std::uint32_t top(const Format& f) { return ((1u << f.exponent) - 1) << f.mantissa; }
std::uint32_t sign(const Format& f) { return 1u << (f.bits - 1); }
std::uint32_t fraction(std::uint32_t code, const Format& f) { return code & ((1u << f.mantissa) - 1); }
constexpr Number numbers[] = {
    {"every NaN became one and the same",
     [](std::uint32_t code, const Format& f) {
       const bool short_format = f.dtype == layout::Dtype::e4m3fn;
       const bool nan = (code & top(f)) == top(f) && (short_format ? fraction(code, f) == 7 : fraction(code, f) != 0);
       return !nan ? code : short_format ? 0x7fu : top(f) | 1u << (f.mantissa - 1);
     }},
    {"-0 became 0", [](std::uint32_t code, const Format& f) { return code == sign(f) ? 0u : code; }},
    {"subnormal numbers became 0",
     [](std::uint32_t code, const Format& f) { return (code & top(f)) == 0 ? code & sign(f) : code; }},
    {"numbers were read with an exponent bias one larger than they were written with, as fn and fnuz differ",
     [](std::uint32_t code, const Format& f) {
       return (code & top(f)) > 1u << f.mantissa ? code - (1u << f.mantissa) : code & sign(f);
     }}};

}  // namespace

void bytes_changed_on_the_way(const Scene& scene, Proposals& out) {
  const auto list = pieces_of(scene);
  if (list.empty()) return;
  const Images right = moved(scene, list);
  const auto propose = [&](FaultClass fault_class, const std::string& words, auto&& change) {
    Images changed = right;
    for (const auto& p : list)
      change(std::span(changed[p.to_file]).subspan(static_cast<std::size_t>(p.to), static_cast<std::size_t>(p.bytes)));
    out.push_back(image(fault_class, words, std::move(changed)));
  };
  propose(FaultClass::read_before_ready, "zeros arrived: the memory's content before any write",
          [](auto bytes) { std::fill(bytes.begin(), bytes.end(), std::uint8_t{0}); });
  for (const std::size_t n : {2u, 4u, 8u}) {
    propose(FaultClass::dtype_reinterpreted,
            "the bytes of every " + std::to_string(8 * n) + "-bit word are in the other order", [n](auto bytes) {
              for (std::size_t at = 0; at + n <= bytes.size(); at += n)
                std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                             bytes.begin() + static_cast<std::ptrdiff_t>(at + n));
            });
  }
  propose(FaultClass::dtype_reinterpreted, "the two halves of every byte are exchanged", [](auto bytes) {
    for (auto& b : bytes) b = static_cast<std::uint8_t>(b >> 4 | b << 4);
  });
  for (const auto& format : formats) {
    if (format.dtype != scene.truth.groups[0].consumer.scheme.data) continue;
    const auto n = static_cast<std::size_t>(format.bits / 8);
    for (const auto& number : numbers) {
      propose(FaultClass::dtype_reinterpreted, number.words, [&](auto bytes) {
        for (std::size_t at = 0; at + n <= bytes.size(); at += n) {
          std::uint32_t code = 0;
          std::memcpy(&code, bytes.data() + at, n);
          code = number.change(code, format);
          std::memcpy(bytes.data() + at, &code, n);
        }
      });
    }
  }
}

void an_earlier_transfer(const Scene& scene, Proposals& out) {
  for (int pass = 0; pass < scene.pass; ++pass) {
    Images stale;
    const auto targets = regions(scene.truth, Side::consumer);
    for (std::size_t i = 0; i < targets.size(); ++i) {
      stale.emplace_back(scene.consumer[i].size());
      oracle::write_expected(scene.truth, targets[i], pass, stale.back());
    }
    out.push_back(image(FaultClass::stale_block,
                        "what an earlier transfer to the same places delivered (pass " + std::to_string(pass) +
                            ", this is pass " + std::to_string(scene.pass) + ")",
                        std::move(stale)));
  }
}

// ---- the source ----------------------------------------------------------------------------------------------------

void source_changed(const Scene& scene, Proposals& out) {
  if (scene.source_wrong == 0 || scene.producer_expected.size() != scene.producer.size()) return;
  const auto list = pieces_of(scene);
  Images sources;
  for (const auto& file : scene.producer_expected) sources.emplace_back(file.begin(), file.end());
  const auto propose = [&](FaultClass fault_class, const std::string& words, const std::vector<ByteView>& consumer,
                           auto&& change) {
    Variant v{fault_class, words, {}};
    v.images = Variant::Predicted{{}, sources};
    for (const auto& file : consumer) v.images->consumer.emplace_back(file.begin(), file.end());
    for (std::size_t i = 0; i < list.size(); ++i) change(v.images->producer, i);
    out.push_back(std::move(v));
  };
  const auto part = [](auto& file, std::int64_t at, std::int64_t bytes) {
    return std::span(file).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(bytes));
  };
  propose(FaultClass::copy_direction, "the destination was copied over the source", scene.consumer_before,
          [&](Images& files, std::size_t i) {
            const Piece& p = list[i];
            const auto from =
                scene.consumer_before[p.to_file].subspan(static_cast<std::size_t>(p.to), static_cast<std::size_t>(p.bytes));
            std::copy(from.begin(), from.end(), files[p.from_file].begin() + p.from);
          });
  propose(FaultClass::stale_block, "the source was wiped once it had been sent", scene.consumer_expected,
          [&](Images& files, std::size_t i) {
            const auto bytes = part(files[list[i].from_file], list[i].from, list[i].bytes);
            std::fill(bytes.begin(), bytes.end(), std::uint8_t{0});
          });
  propose(FaultClass::stale_block, "every other piece of the source was overwritten with the next one once it had been sent",
          scene.consumer_expected, [&](Images& files, std::size_t i) {
            if (i % 2 != 0 || i + 1 >= list.size()) return;
            const Piece &p = list[i], &next = list[i + 1];
            const auto from = scene.producer_expected[next.from_file].subspan(
                static_cast<std::size_t>(next.from), static_cast<std::size_t>(std::min(p.bytes, next.bytes)));
            std::copy(from.begin(), from.end(), files[p.from_file].begin() + p.from);
          });
}

}  // namespace kvcts::diagnose
