// Who lies in the destination of a case with two sides, stretch by stretch: what belongs there, and where in the producer's
// memory the bytes that are there come from. Drawings and findings are made of it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "case/case.hpp"
#include "case/provenance.hpp"
#include "case/result.hpp"
#include "diagnose/findings/facts.hpp"

namespace kvcts::checker {

/// A consumer region before, expected and found: whole files, guards included.
struct Arrived {
  RegionRef region;
  std::span<const std::uint8_t> before, expected, found;
};

/// Bytes of one row of channels, or bytes without a place in the layout.
struct Arrival {
  std::int64_t at{0}, bytes{0};  ///< in the file
  std::int64_t bits{8};          ///< of a channel
  Provenance seat;               ///< element: its place in the consumer
  Provenance should, did;        ///< element: its place in the producer
  int home{-1};                  ///< the producer's region from which the bytes come; -1: not known
  std::int64_t home_offset{0};
  bool wrong{false};
};

class Arrivals {
 public:
  /// Limits on the bytes of a side, for they are searched, and on stretches: a region that would pass it is cut short, and
  /// nothing is found.
  static constexpr std::size_t most_bytes = std::size_t{72} << 20, most_stretches = 1'000'000;

  /// `producer`: whole files in the order of regions(producer).
  Arrivals(const ResolvedCase& resolved, std::vector<std::span<const std::uint8_t>> producer);
  /// Cuts a region into stretches; their bytes must live as long as this.
  void add(const Arrived& region);
  /// Looks up every wrong stretch in the producer's files.
  void search();
  /// `moves`, `moves_from`, `bytes_left_out` of `$defs/picture`: stretches around the first wrong byte; null if none is.
  nlohmann::json moves() const;
  std::vector<Finding> what_happened() const;

 private:
  struct Region {
    Arrived arrived;
    std::int64_t base{0};
    std::vector<Arrival> stretches;
  };
  void cut_row(Region& region, const Arrival& row);
  void add_content(const RegionRef& source, int memory, int region, std::vector<findings::Fact>& facts) const;
  static Provenance at_sight(const Region& region, const Arrival& one);
  const ResolvedCase& case_;
  std::vector<std::span<const std::uint8_t>> producer_;
  std::vector<RegionRef> sources_;
  std::vector<Region> regions_;
  std::size_t stretches_{0};
};

}  // namespace kvcts::checker
