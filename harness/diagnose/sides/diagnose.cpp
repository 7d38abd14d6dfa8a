#include "diagnose/sides/diagnose.hpp"

#include <algorithm>
#include <cstring>
#include <regex>

#include "case/text.hpp"
#include "diagnose/sides/hypotheses.hpp"
#include "layout/layout.hpp"
#include "scene/oracle/oracle.hpp"
#include "scene/oracle/tail.hpp"
#include "scene/reader/flashinfer_decode.hpp"

namespace kvcts::diagnose {

namespace {

bool untouched(const Scene& scene) {
  for (std::size_t i = 0; i < scene.consumer.size(); ++i) {
    if (std::memcmp(scene.consumer[i].data(), scene.consumer_before[i].data(), scene.consumer[i].size()) != 0) return false;
  }
  return !scene.consumer.empty();
}

/// The cache is right, and what the reader made of it is not.
bool gathered_wrongly(const Scene& scene) {
  return scene.source_wrong == 0 && std::equal(scene.consumer.begin(), scene.consumer.end(), scene.consumer_expected.begin(),
                                               scene.consumer_expected.end(), [](ByteView a, ByteView b) {
                                                 return std::equal(a.begin(), a.end(), b.begin(), b.end());
                                               });
}

// What a variant predicts of the found bytes.
struct Fit {
  std::int64_t explained{0};     ///< wrong bytes that it predicts
  std::int64_t contradicted{0};  ///< right bytes that it predicts to be wrong
  std::int64_t net() const { return explained - contradicted; }
  bool exact{false};  ///< it predicts every byte, and differs from the right map
};

// The right state nearest to the found one: includes what may be copied after the last token (oracle/tail.hpp), region by
// region.
struct Right {
  std::vector<std::vector<std::uint8_t>> consumer;
  std::int64_t wrong{0};  ///< bytes, on both sides
  /// Files of the consumer, those with wrong bytes first: most variants fail there.
  std::vector<std::size_t> order;
  /// Too large to count what a variant explains that is none: what happened is said all the same.
  bool exact_only{false};
};

Right right_of(const Scene& scene) {
  constexpr std::size_t most_for_guesses = 1 << 20;
  Right right;
  std::size_t bytes = 0;
  std::ptrdiff_t wrong_files = 0;
  const bool free_tail = scene.truth.content.kind != "golden";
  const auto targets = regions(scene.truth, Side::consumer);
  for (std::size_t i = 0; i < scene.consumer.size(); ++i) {
    auto& file = right.consumer.emplace_back(scene.consumer_expected[i].begin(), scene.consumer_expected[i].end());
    if (free_tail) oracle::Tail(scene.truth, targets[i]).forgive(scene.producer, scene.consumer[i], file);
    const std::int64_t before = right.wrong;
    for (std::size_t b = 0; b < file.size(); ++b) right.wrong += scene.consumer[i][b] != file[b];
    bytes += file.size();
    right.order.insert(right.wrong > before ? right.order.begin() + wrong_files++ : right.order.end(), i);
  }
  right.exact_only = bytes > most_for_guesses;
  right.wrong += scene.source_wrong;
  return right;
}

/// Counts one file: `predicted` as compared, `must` as required. Returns whether every byte is predicted.
bool count(Fit& result, ByteView seen, ByteView predicted, ByteView must) {
  constexpr std::size_t stretch = 4096;  // most are right, and as predicted
  bool all = true;
  for (std::size_t from = 0; from < seen.size(); from += stretch) {
    const std::size_t to = std::min(from + stretch, seen.size());
    const auto as_seen = [&](ByteView other) {
      return std::memcmp(seen.data() + from, other.data() + from, to - from) == 0;
    };
    if (as_seen(must) && as_seen(predicted)) continue;
    for (std::size_t b = from; b < to; ++b) {
      const bool wrong = seen[b] != must[b], same = seen[b] == predicted[b];
      result.explained += wrong && same;
      result.contradicted += !wrong && !same;
      all = all && same;
    }
  }
  return all;
}

Fit fit_images(const Scene& scene, const Variant::Predicted& images, const Right& right, std::int64_t& work) {
  if (images.consumer.size() != scene.consumer.size()) return {};
  Fit result{0, 0, scene.source_wrong == 0 || images.producer.size() == scene.producer.size()};
  for (std::size_t i = 0; i < scene.consumer.size(); ++i) {
    work += static_cast<std::int64_t>(scene.consumer[i].size());
    result.exact = count(result, scene.consumer[i], images.consumer[i], right.consumer[i]) && result.exact;
  }
  for (std::size_t i = 0; i < images.producer.size(); ++i) {
    const ByteView must = scene.source_wrong == 0 ? scene.producer[i] : scene.producer_expected[i];
    result.exact = count(result, scene.producer[i], images.producer[i], must) && result.exact;
  }
  return result;
}

/// `work`: bytes that were predicted and compared are added.
Fit fit(const Scene& scene, const Variant& variant, const Right& right, std::int64_t& work) {
  if (variant.images) return fit_images(scene, *variant.images, right, work);
  const auto& transformed = variant.transformed;
  const auto targets = regions(transformed, Side::consumer);
  if (targets.size() != scene.consumer.size()) return {};
  Fit result{0, 0, scene.source_wrong == 0};
  bool differs = false;
  std::vector<std::uint8_t> predicted;
  for (const std::size_t i : right.order) {
    const auto& seen = scene.consumer[i];
    predicted.resize(seen.size());
    work += static_cast<std::int64_t>(seen.size());
    if (variant.maps)
      predict_moved(scene, *variant.maps, i, predicted, &transformed);
    else
      oracle::write_expected(transformed, targets[i], scene.pass, predicted);
    differs = differs || std::memcmp(predicted.data(), scene.consumer_expected[i].data(), seen.size()) != 0;
    if (!variant.maps && std::memcmp(predicted.data(), seen.data(), seen.size()) != 0) {
      oracle::Tail(transformed, targets[i]).forgive(scene.producer, seen, predicted);
    }
    // Tails that came along with whole blocks are free by any map.
    for (std::size_t b = 0; variant.maps && b < seen.size(); ++b) {
      if (right.consumer[i][b] == seen[b] && right.consumer[i][b] != scene.consumer_expected[i][b]) predicted[b] = seen[b];
    }
    if (right.exact_only && !std::ranges::equal(seen, predicted)) return {};
    result.exact = count(result, seen, predicted, right.consumer[i]) && result.exact;
  }
  // What the right map also predicts is no cause: the wrong bytes would lie in what both leave open.
  return differs ? result : Fit{};
}

Diagnosis finding(FaultClass fault_class, bool exact, std::string text) {
  Diagnosis d;
  d.what_to_do = advice(fault_class);
  d.fault_class = fault_class;
  d.exact = exact;
  d.text = std::move(text);
  return d;
}

/// Bytes that a search predicts: about 2 s of a core.
constexpr std::int64_t most_work = std::int64_t{1} << 31;

Diagnosis search(const Scene& scene, const std::vector<Hypothesis>& families) {
  if (gathered_wrongly(scene)) {
    return finding(FaultClass::none, false,
                   std::string(not_identified) + ": the cache is right, what the reader gathered is not");
  }
  const Right right = right_of(scene);
  Diagnosis best;
  std::vector<Cause> exact;  // of one family, which is equally plain
  Fit closest;
  std::int64_t work = 0;  // not the clock: a case gets the same search on every machine
  for (const auto& hypothesis : families) {
    Proposals proposals([&](const Variant& v) {
      Fit f;
      if (work > most_work) throw std::runtime_error("enough");  // ends the family
      try {
        f = fit(scene, v, right, work);
      } catch (const std::exception&) {
        return;
      }
      f.exact = f.exact && f.explained > 0;  // a prediction without a wrong byte explains none
      if (f.exact) {
        exact.push_back({v.fault_class, v.words, 1, !exact.empty() && v.fault_class != exact.front().fault_class});
      } else if (exact.empty() && f.net() > closest.net() && 2 * f.net() >= right.wrong) {
        closest = f;
        // No class: a name without a byte-for-byte match is only a guess, and states what contradicts it. One that explains
        // less than half is none.
        best =
            finding(FaultClass::none, false,
                    std::string(not_identified) +
                        "; best partial explanation (a guess): " + std::string(name(v.fault_class)) + ", " + v.words +
                        ": it leaves " + text::thousands(right.wrong - f.explained) + " of " + text::thousands(right.wrong) +
                        " wrong bytes unexplained and contradicts " + text::thousands(f.contradicted) + " that are right");
        best.causes = {{v.fault_class, v.words, static_cast<double>(f.explained) / static_cast<double>(right.wrong)}};
      }
    });
    if (work > most_work) break;
    try {
      hypothesis(scene, proposals);
    } catch (const std::exception&) {
      // A hypothesis that does not apply to this case does not explain it.
    }
    if (!exact.empty()) return named(std::move(exact), explains_all(right.wrong));
  }
  if (best.text.empty()) best.text = not_identified;
  return best;
}

}  // namespace

Diagnosis from_events(const Scene& scene) {
  static const std::regex counts(R"(expected (\d+), got (\d+))");
  for (const auto& event : scene.events) {
    if (!event.is_object() || !event.contains("raised")) continue;
    const auto& raised = event["raised"];
    const std::string text = raised.value("text", "");
    std::smatch m;
    if (std::regex_search(text, m, counts)) {
      return finding(FaultClass::rank_mismatch, true,
                     "expected " + m[1].str() + ", got " + m[2].str() + ": the code unpacks a shape of " + m[1].str() +
                         " dims, the tensor it received has " + m[2].str() + " (" + raised.value("type", "exception") +
                         ": " + text + ")");
    }
    return finding(FaultClass::raised, true, raised.value("type", "exception") + ": " + text);
  }
  return {};
}

Diagnosis from_reader(const Scene& scene) {
  const auto& c = scene.truth;
  if (c.reader.kind != "flashinfer-decode" || c.groups.empty()) return {};
  const auto& group = c.groups.front();
  const auto& rank = group.consumer.ranks.at(0);
  for (const auto& tensor : rank.truth.tensors) {
    const auto n = tensor.dims.size();
    if (n < 4 || tensor.component != layout::Component::data) continue;
    const std::string is = tensor.dims[n - 3].axes + tensor.dims[n - 2].axes + "D";  // "HND" or "NHD" by the declared axes
    const std::string told = c.reader.options.value("label", "");
    if (is == told || (is != "HND" && is != "NHD")) return {};
    const auto view = reader::view_under_label(tensor, told);
    const auto plan =
        reader::plan_decode(group.requests, rank.geometry.block_size, view.page_size,
                            c.reader.options.value("variant", "cuda-core"), c.reader.options.value("tile_tokens", 128u));
    std::string text = "cache stored " + is + ", reader was given " + told + ": it takes page_size " +
                       std::to_string(view.page_size) + " and " + std::to_string(view.num_heads) +
                       " KV heads from a tensor that has page_size " + std::to_string(rank.geometry.block_size) + " and " +
                       std::to_string(rank.geometry.heads) + "; " + plan.text();
    return finding(FaultClass::axis_permuted, true, std::move(text));
  }
  return {};
}

double memory_of_diagnosis(const ResolvedCase& resolved, bool source_wrong) {
  const auto bytes = [&](Side side) {
    double out = 0;
    for (const auto& region : regions(resolved, side))
      out += static_cast<double>(oracle::file_shape(resolved, region.bytes).size);
    return out;
  };
  return 4 * bytes(Side::consumer) + (source_wrong ? 3 * bytes(Side::producer) : 0);
}

Diagnosis at_sight(const Scene& scene) {
  if (auto d = from_events(scene); d.fault_class != FaultClass::none) return d;
  if (auto d = from_reader(scene); d.fault_class != FaultClass::none) return d;
  const std::int64_t wrong = scene.wrong_bytes + scene.source_wrong;
  if (wrong == 0) return {};
  if (untouched(scene) && scene.source_wrong == 0) {
    return finding(
        FaultClass::silently_skipped, true,
        "nothing arrived: every byte of the consumer is as it was before the transfer, and no error was reported");
  }
  if (gathered_wrongly(scene)) return from_gathering(scene);
  return {};
}

Diagnosis diagnose(const Scene& scene) {
  if (Diagnosis d = at_sight(scene); !d.text.empty() || scene.wrong_bytes + scene.source_wrong == 0) return d;
  Diagnosis d = search(scene);
  if (d.exact) return d;
  Diagnosis last = pieces_told_one_by_one(scene);
  return last.exact ? last : d;
}

Diagnosis search(const Scene& scene) { return search(scene, hypotheses()); }

Diagnosis pieces_told_one_by_one(const Scene& scene) { return search(scene, {pieces_of_others}); }

}  // namespace kvcts::diagnose
