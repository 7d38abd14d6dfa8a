// What a bare shape can mean.
//
// A reading assigns the axes to the dimensions: every dimension runs over one axis, or over several adjacent ones joined
// into one ("HC", "NHC", "KC", "BN"), or over nothing (extent 1). It applies only the rules that every layout of the
// catalogue obeys: C is innermost; a block is outside its slots (B before N); K has extent 2; layers appear only if the
// number of layers is known or six dimensions leave nothing else. Axes that a shape may lack: L, K (K and V separate, or a
// latent), H (a latent has one head).
#include <algorithm>
#include <set>

#include "layout/layout.hpp"

namespace kvcts::layout {
namespace {

/// Axes joined into one dimension, in naming order. (KC: vLLM >= 0.26; NHC: vLLM XFORMERS; BN: SGLang pools, LMCache NBBS;
/// HC and KHC: flattened rows; BNHC..: whole allocations.)
constexpr std::array<std::string_view, 8> joins{"BN", "HC", "NHC", "KC", "HKC", "NC", "NHKC", "KHC"};

struct Candidate {
  std::vector<std::string> dims;
  std::set<char> used;
};

class Enumeration {
 public:
  Enumeration(const std::vector<std::int64_t>& shape, const Facts& facts, const std::vector<std::int64_t>& strides)
      : shape_(shape), facts_(facts), strides_(strides) {
    layers_ = facts.layers.has_value() || shape.size() >= 6;
  }

  std::vector<Reading> run() {
    if (shape_.empty() || shape_.size() > 8) return {};
    for (std::int64_t extent : shape_) {
      if (extent < 1) return {};
    }
    if (!strides_.empty() && strides_.size() != shape_.size()) {
      throw Error("readings: " + std::to_string(strides_.size()) + " strides for a shape of " +
                  std::to_string(shape_.size()) + " dimensions; give one stride per dimension or none");
    }
    descend(0);
    return std::move(found_);
  }

 private:
  void descend(std::size_t dim) {
    if (dim == shape_.size()) {
      accept();
      return;
    }
    const auto attempt = [&](std::string_view group) {
      for (char c : group) {
        if (now_.used.contains(c)) return;
      }
      for (char c : group) now_.used.insert(c);
      now_.dims.emplace_back(group);
      descend(dim + 1);
      now_.dims.pop_back();
      for (char c : group) now_.used.erase(c);
    };
    if (shape_[dim] == 1) {
      now_.dims.emplace_back("1");
      descend(dim + 1);
      now_.dims.pop_back();
    }
    const bool last = dim + 1 == shape_.size();
    for (std::string_view axis : {"L", "K", "B", "H", "N", "C"}) {
      if ((axis == "C") != last) continue;
      if (axis == "L" && !layers_) continue;
      if (axis == "K" && shape_[dim] != 2) continue;
      attempt(axis);
    }
    for (std::string_view join : joins) {
      if ((join.back() == 'C') == last) attempt(join);
    }
  }

  std::optional<std::int64_t> fact(Axis axis) const {
    switch (axis) {
      case Axis::layer:
        return facts_.layers;
      case Axis::kv:
        return 2;
      case Axis::block:
        return facts_.blocks;
      case Axis::slot:
        return facts_.block_size;
      case Axis::head:
        return facts_.heads;
      case Axis::channel:
        return facts_.head_dim;
    }
    return std::nullopt;
  }

  void accept() {
    const auto& used = now_.used;
    for (char needed : {'B', 'N', 'C'}) {
      if (!used.contains(needed)) return;
    }
    if (!used.contains('H') && facts_.heads.value_or(1) != 1) return;
    if (!used.contains('L') && facts_.layers.value_or(1) != 1 && shape_.size() >= 6) return;
    Reading reading;
    reading.extents.assign(axis_count, 0);
    std::int64_t block_dim = -1;
    std::int64_t slot_dim = -1;
    for (std::size_t d = 0; d < now_.dims.size(); ++d) {
      const std::string& group = now_.dims[d];
      reading.letters += (d > 0 ? " " : "") + group;
      if (group == "1") continue;
      std::int64_t rest = shape_[d];
      int open = 0;
      Axis last{};
      for (char c : group) {
        const Axis axis = *axis_from_letter(c);
        const auto known = fact(axis);
        if (c == 'B') block_dim = static_cast<std::int64_t>(d);
        if (c == 'N') slot_dim = static_cast<std::int64_t>(d);
        if (!known) {
          ++open;
          last = axis;
          continue;
        }
        if (*known < 1 || rest % *known != 0) return;
        rest /= *known;
        reading.extents[static_cast<std::size_t>(axis)] = *known;
      }
      if (open == 0 && rest != 1) return;
      if (open == 1) reading.extents[static_cast<std::size_t>(last)] = rest;
    }
    if (!outside(static_cast<std::size_t>(block_dim), static_cast<std::size_t>(slot_dim))) return;
    // An extent of one for each named dimension, and a C that is really innermost.
    if (!strides_.empty()) {
      for (std::size_t d = 0; d + 1 < strides_.size(); ++d) {
        if (shape_[d] > 1 && shape_.back() > 1 && strides_[d] < strides_.back()) return;
      }
    }
    found_.push_back(std::move(reading));
  }

  /// B outside N: by the strides if given (a permuted view shows another order), else by position.
  bool outside(std::size_t block, std::size_t slot) const {
    if (block == slot) return true;
    if (!strides_.empty() && shape_[block] > 1 && shape_[slot] > 1) return strides_[block] > strides_[slot];
    return block < slot;
  }

  const std::vector<std::int64_t>& shape_;
  const Facts& facts_;
  const std::vector<std::int64_t>& strides_;
  bool layers_{false};
  Candidate now_;
  std::vector<Reading> found_;
};

}  // namespace

std::vector<Reading> readings(const std::vector<std::int64_t>& shape, const Facts& facts,
                              const std::vector<std::int64_t>& strides) {
  return Enumeration(shape, facts, strides).run();
}

std::string settled_by(const std::vector<Reading>& readings) {
  if (readings.size() <= 1) return "";
  // The fact whose value differs between all readings; 0 (not determined) distinguishes nothing.
  constexpr std::array<std::pair<Axis, std::string_view>, 5> facts{{{Axis::head, "num_kv_heads"},
                                                                    {Axis::slot, "block_size"},
                                                                    {Axis::channel, "head_dim"},
                                                                    {Axis::block, "num_blocks"},
                                                                    {Axis::layer, "num_layers"}}};
  for (const auto& [axis, words] : facts) {
    std::set<std::int64_t> values;
    for (const Reading& r : readings) values.insert(r.extents[static_cast<std::size_t>(axis)]);
    if (values.size() == readings.size() && !values.contains(0)) return std::string(words);
  }
  return "axis names";
}

}  // namespace kvcts::layout
