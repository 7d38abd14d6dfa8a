#include "diagnose/diagnose.hpp"

#include <algorithm>
#include <cstring>
#include <regex>

#include "layout/layout.hpp"
#include "oracle/oracle.hpp"
#include "reader/flashinfer_decode.hpp"

namespace kvcts::diagnose {

namespace {

std::string with_commas(std::int64_t n) {
  std::string s = std::to_string(n);
  for (auto i = static_cast<std::ptrdiff_t>(s.size()) - 3; i > 0; i -= 3) s.insert(static_cast<std::size_t>(i), ",");
  return s;
}

bool untouched(const Scene& scene) {
  for (std::size_t i = 0; i < scene.consumer.size(); ++i) {
    if (std::memcmp(scene.consumer[i].data(), scene.consumer_before[i].data(), scene.consumer[i].size()) != 0) return false;
  }
  return !scene.consumer.empty();
}

// How many of the wrong bytes a variant predicts; -1 when it predicts a byte differently that is right (it explains too much).
struct Fit {
  std::int64_t explained{0};
  std::int64_t in_tails{0};  ///< of these: what slots behind the last token may hold
  bool exact{false};
};

/// What the slots behind the last token may hold besides, region by region: what came along with their blocks.
using Tails = std::vector<std::vector<std::uint8_t>>;
Tails tails_of(const Scene& scene) {
  Tails tails;
  for (const auto& target : regions(scene.truth, Side::consumer)) {
    const auto& expected = scene.consumer_expected[tails.size()];
    tails.emplace_back(expected.begin(), expected.end());
    oracle::write_whole_block_alternative(scene.truth, target, scene.producer, tails.back());
  }
  return tails;
}

Fit fit_images(const Scene& scene, const Variant::Predicted& images, const Tails& tails) {
  Fit result{0, 0, images.consumer.size() == scene.consumer.size() && (scene.source_wrong == 0 || images.producer.size() == scene.producer.size())};
  if (!result.exact) return result;
  const auto compare = [&](const std::vector<ByteView>& seen, const std::vector<std::vector<std::uint8_t>>& predicted, const std::vector<ByteView>& expected,
                           const Tails* besides) {
    for (std::size_t i = 0; i < seen.size(); ++i) {
      for (std::size_t b = 0; b < seen[i].size(); ++b) {
        if (seen[i][b] != predicted[i][b]) {
          result.exact = false;
        } else if (seen[i][b] != expected[i][b]) {
          ++result.explained;
          result.in_tails += besides != nullptr && seen[i][b] == (*besides)[i][b];
        }
      }
    }
  };
  compare(scene.consumer, images.consumer, scene.consumer_expected, &tails);
  if (!images.producer.empty()) compare(scene.producer, images.producer, scene.producer_expected, nullptr);
  return result;
}

Fit fit(const Scene& scene, const Variant& variant, const Tails& tails) {
  Fit result{0, 0, scene.source_wrong == 0};
  if (variant.images) return fit_images(scene, *variant.images, tails);
  const auto& transformed = variant.transformed;
  const auto targets = regions(transformed, Side::consumer);
  if (targets.size() != scene.consumer.size()) return {};
  std::vector<std::uint8_t> predicted, alternative;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const auto& seen = scene.consumer[i];
    predicted.resize(seen.size());
    if (variant.maps) predict_moved(scene, *variant.maps, i, predicted, &transformed);
    else oracle::write_expected(transformed, targets[i], scene.pass, predicted);
    const auto count = [&](std::size_t b) {
      if (seen[b] == scene.consumer_expected[i][b]) return;
      ++result.explained;
      result.in_tails += seen[b] == tails[i][b];
    };
    if (std::memcmp(predicted.data(), seen.data(), seen.size()) == 0) {
      for (std::size_t b = 0; b < seen.size(); ++b) count(b);
      continue;
    }
    alternative = predicted;
    if (!variant.maps) oracle::write_whole_block_alternative(transformed, targets[i], scene.producer, alternative);
    // All of a tail came along or none of it did, as in the comparison (checker/open_case.cpp), where bytes shared by two codes are told, too.
    bool none = true, whole = true;
    for (std::size_t b = 0; b < seen.size(); ++b) {
      const bool shared = (predicted[b] & 0x11) != 0 && seen[b] == alternative[b];
      none = none && (seen[b] == predicted[b] || shared);
      whole = whole && (seen[b] == alternative[b] || (seen[b] == predicted[b] && (predicted[b] & 0x11) != 0));
    }
    result.exact = result.exact && (none || whole);
    for (std::size_t b = 0; b < seen.size(); ++b) {
      if (seen[b] == predicted[b] || seen[b] == alternative[b]) count(b);
    }
  }
  return result;
}

Diagnosis finding(std::string fault_class, bool exact, std::string text) {
  Diagnosis d;
  d.what_to_do = what_to_check(fault_class);
  d.fault_class = std::move(fault_class);
  d.exact = exact;
  d.text = std::move(text);
  return d;
}

}  // namespace

std::string what_to_check(const std::string& fault_class) {
  for (const auto& c : fault_classes()) {
    if (c.name == fault_class) return std::string(c.check);
  }
  return "";
}

Diagnosis from_events(const Scene& scene) {
  static const std::regex counts(R"(expected (\d+), got (\d+))");
  for (const auto& event : scene.events) {
    if (!event.is_object() || !event.contains("raised")) continue;
    const auto& raised = event["raised"];
    const std::string text = raised.value("text", "");
    std::smatch m;
    if (std::regex_search(text, m, counts)) {
      return finding("rank-mismatch", true,
                     "expected " + m[1].str() + ", got " + m[2].str() + ": the code unpacks a shape of " + m[1].str() +
                         " dims, the tensor it was handed has " + m[2].str() + " (" + raised.value("type", "exception") + ": " + text +
                         ")");
    }
    return finding("crash", false, raised.value("type", "exception") + ": " + text);
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
    const auto plan = reader::plan_decode(group.requests, rank.geometry.block_size, view.page_size,
                                          c.reader.options.value("variant", "cuda-core"), c.reader.options.value("tile_tokens", 128u));
    std::string text = "cache stored " + is + ", reader told " + told + ": it takes page_size " + std::to_string(view.page_size) +
                       " and " + std::to_string(view.num_heads) + " KV heads from a tensor that has page_size " +
                       std::to_string(rank.geometry.block_size) + " and " + std::to_string(rank.geometry.heads) + "; " + plan.text();
    return finding("axis-permuted", true, std::move(text));
  }
  return {};
}

Diagnosis diagnose(const Scene& scene) {
  if (auto d = from_events(scene); !d.fault_class.empty()) return d;
  if (auto d = from_reader(scene); !d.fault_class.empty()) return d;
  const std::int64_t wrong = scene.wrong_bytes + scene.source_wrong;
  if (wrong == 0) return {};
  if (untouched(scene) && scene.source_wrong == 0) {
    return finding("silently-skipped", true,
                   "nothing arrived: every byte of the consumer is as it was before the transfer, and no error was reported");
  }
  const bool arrived = std::equal(scene.consumer.begin(), scene.consumer.end(), scene.consumer_expected.begin(), scene.consumer_expected.end(),
                                  [](ByteView a, ByteView b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); });
  if (arrived && scene.source_wrong == 0) {
    if (auto d = from_gathering(scene); !d.fault_class.empty()) return d;
    return finding("", false, "unexplained: the cache is right, what the reader gathered is not");
  }
  const Tails tails = tails_of(scene);
  Diagnosis best;
  std::int64_t best_share = 0;
  for (const auto& hypothesis : hypotheses()) {
    std::vector<Variant> variants;
    try {
      hypothesis(scene, variants);
    } catch (const std::exception&) {
      // A hypothesis that cannot be stated for this case is no explanation of it.
    }
    for (const auto& v : variants) {
      Fit f;
      try {
        f = fit(scene, v, tails);
      } catch (const std::exception&) {
        continue;
      }
      f.exact = f.exact && f.explained > 0;  // a prediction without a wrong byte explains none
      const auto share = 100 * (f.explained - f.in_tails) / wrong;
      if (f.exact && best.exact) {
        best.others.push_back(v.fault_class + ": " + v.words);
      } else if (f.exact) {
        best = finding(v.fault_class, true, v.words + ": explains 100 % of " + with_commas(wrong) + " wrong bytes");
      } else if (!best.exact && share > best_share) {
        best_share = share;
        // No class: a name without a byte-for-byte match is only a guess.
        best = finding("", false,
                       "unexplained; best partial explanation (a guess): " + v.fault_class + ", " + v.words + ", which explains " +
                           std::to_string(share) + " % of " + with_commas(wrong) + " wrong bytes");
      }
    }
    if (best.exact) break;
  }
  if (best.text.empty()) best.text = "unexplained: no known transformation of the map predicts these bytes";
  return best;
}

}  // namespace kvcts::diagnose
