// Who lies in the memories of a case with two sides and in its reader's output, stretch by stretch: what belongs there, and
// where the bytes that are there come from. Drawings and findings are made of it.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "case/case.hpp"
#include "case/provenance.hpp"
#include "case/result.hpp"
#include "diagnose/crop.hpp"
#include "diagnose/findings/extents.hpp"
#include "diagnose/owners.hpp"
#include "diagnose/reported_run.hpp"

namespace kvcts::diagnose {

/// A region before the transfer, expected and found: whole files, guards included. Group -1: the reader's output.
struct RegionBytes {
  RegionRef region;
  std::span<const std::uint8_t> before, expected, found;
};

/// Bytes of one row of channels, or bytes without a place in the layout.
struct RegionExtent {
  std::int64_t at{0}, bytes{0};  ///< in the file
  std::int64_t bits{8};          ///< of a channel
  Provenance location;           ///< element: its place in this region
  Provenance should, did;        ///< element: its place in the producer
  int source{-1};                ///< where the bytes come from: regions(producer), then those added; -1: not known
  std::int64_t source_offset{0};
  bool wrong{false};
};

class RegionExtents {
 public:
  /// Limits on the bytes of a side, for they are searched, and on stretches: a region that would pass it is cut short, and
  /// nothing is found. Beyond `cut_whole` only what a search plays is cut, and findings are those of a small transfer.
  static constexpr std::size_t most_bytes = std::size_t{1} << 30, cut_whole = std::size_t{72} << 20,
                               most_extents = 1'000'000;

  /// `producer`: whole files in the order of regions(producer), as the transfer should have found and left them.
  RegionExtents(const ResolvedCase& resolved, std::vector<std::span<const std::uint8_t>> producer);
  /// Cuts a region into stretches; their bytes must live as long as this. A producer's: only if it was changed. The output
  /// comes last.
  void add(const RegionBytes& region);
  /// Looks up every wrong stretch in the producer's files; one of the output also in the consumer's.
  void search();
  /// Of sources that are known in part only: wrong bytes from anywhere else need no explanation.
  void mask_unknown() { masks_unknown_ = true; }
  /// Bytes that are forgiven.
  std::int64_t unexplained() const;
  /// `moves`, `moves_from`, `bytes_left_out` of `$defs/picture`: stretches around the first wrong byte; null if none is.
  nlohmann::json moves() const;
  std::vector<Finding> what_happened() const;
  /// What is wrong, where lower() has it, and what need not be compared there.
  scenario::ReportedRun reported(const scenario::AddressSpace& space, const Crop& crop = {}) const;
  /// What a search about these bytes plays.
  Crop crop() const;
  /// Of the region that was added as this number, ascending; right bytes where nothing belongs are in none. More than
  /// most_extents: cut short.
  const std::vector<RegionExtent>& extents(std::size_t region) const { return regions_.at(region).extents; }

 private:
  struct Region {
    RegionBytes data;
    std::int64_t base{0};
    std::vector<RegionExtent> extents;
    std::vector<std::pair<std::int64_t, std::int64_t>> tails{};  ///< in the file: what may come along with the last block
    bool tail_came{false};
  };
  class Origins;
  Owners owners_of(const Region& region) const;
  RegionExtent row_at(const Region& region, const Owners& owners, std::int64_t at) const;
  void each_wrong_row(const Region& region, const std::function<void(const RegionExtent&)>& body) const;
  void cut_region(Region& region);
  void cut_large();
  static void add_tail(Region& region, const RegionExtent& row);
  void cut_output(Region& region);
  void cut_row(Region& region, const RegionExtent& row);
  void add_content(const RegionRef& source, int memory, int region, std::vector<findings::Extent>& facts) const;
  static findings::Extent extent_of(const Region& region, const RegionExtent& one);
  void report_output(const scenario::AddressSpace& space, scenario::ReportedRun& out) const;
  scenario::Patch patch(const Region& region, const RegionExtent& one, scenario::BufferAddress at,
                        const scenario::AddressSpace& space) const;
  /// Wrong, and from nowhere that is known.
  static bool is_unknown(const RegionExtent& one);
  static Provenance at_sight(const Region& region, const RegionExtent& one);
  const ResolvedCase& case_;
  std::vector<std::span<const std::uint8_t>> producer_;
  std::vector<RegionRef> sources_;
  std::vector<Region> regions_;
  std::size_t extents_{0};
  bool masks_unknown_{false}, large_{false};
  Crop crop_;  ///< of a large one
};

}  // namespace kvcts::diagnose
