// Every single comparison that an axis expression can make about a case, tabulated over the cases that ran.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/triage/triage.hpp"

namespace kvcts::triage {

/// A set of observations.
class Bits {
 public:
  explicit Bits(std::size_t size = 0) : words_((size + 63) / 64) {}
  void set(std::size_t i) { words_[i / 64] |= std::uint64_t{1} << (i % 64); }
  bool has(std::size_t i) const { return words_[i / 64] >> (i % 64) & 1; }
  std::size_t count() const {
    std::size_t n = 0;
    for (const auto w : words_) n += static_cast<std::size_t>(std::popcount(w));
    return n;
  }
  bool empty() const {
    for (const auto w : words_) {
      if (w != 0) return false;
    }
    return true;
  }
  /// The lowest member; requires one.
  std::size_t first() const {
    for (std::size_t i = 0;; ++i) {
      if (words_[i] != 0) return 64 * i + static_cast<std::size_t>(std::countr_zero(words_[i]));
    }
  }
  Bits operator&(const Bits& o) const {
    return join(o, [](auto a, auto b) { return a & b; });
  }
  Bits operator-(const Bits& o) const {
    return join(o, [](auto a, auto b) { return a & ~b; });
  }
  bool contains(const Bits& o) const { return (o - *this).empty(); }
  bool operator==(const Bits&) const = default;
  auto operator<=>(const Bits&) const = default;

 private:
  template <class F>
  Bits join(const Bits& o, F&& f) const {
    Bits out;
    out.words_.resize(words_.size());
    for (std::size_t i = 0; i < words_.size(); ++i) out.words_[i] = f(words_[i], o.words_[i]);
    return out;
  }
  std::vector<std::uint64_t> words_;
};

struct Literal {
  std::string text;
  int cost{0};                    ///< distance from plain: 0 an axis's value, more for facts, relations, orders
  Bits holds;                     ///< for which observations
  std::vector<std::string> also;  ///< other literals that hold for exactly the same observations
};

/// Literals that hold for some failure and not for some passing case; of equivalent ones the plainest.
std::vector<Literal> literals(const std::vector<Observation>& observations, matrix::Space& space);

}  // namespace kvcts::triage
