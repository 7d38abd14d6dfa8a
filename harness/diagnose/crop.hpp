// The part of a large case that a search plays: a few wrong layers and blocks, and right ones beside them.
#pragma once

#include <map>
#include <set>

#include "case/case.hpp"
#include "case/provenance.hpp"

namespace kvcts::diagnose {

struct Crop {
  bool whole{true};
  std::set<std::int64_t> layers;
  std::map<std::uint32_t, std::set<std::int64_t>> tokens;  ///< by generation
  bool keeps(const Provenance& provenance) const;          ///< an element
};

/// `wrong`: which content has wrong bytes. All of it where the transfer moves up to 512 KiB.
Crop crop_of(const ResolvedCase& resolved, const Crop& wrong);

}  // namespace kvcts::diagnose
