// Which class a fault has when several fit: the first family below that predicts every byte. Within a family the simplest
// comes first. The order: what never happened, before what happened in part; facts of a table or a key, before geometry; a
// plain change of one number, before another order of axes; anything exact, before two causes at once.
#include "diagnose/precedence.hpp"
#include "diagnose/workshop.hpp"

namespace kvcts::script {

namespace {

thread_local std::optional<std::vector<Family>> fewer;

}  // namespace

const std::vector<Family>& families() {
  if (fewer) return *fewer;
  static const std::vector<Family> all{
      {"nothing happened", propose_skips},
      {"options", propose_options},
      {"keys", propose_keys},
      {"several keys", propose_stores},
      {"several registrations", propose_registered},
      {"another time", propose_orders},
      {"a part is missing", propose_subsets},
      {"other ids", propose_lists},
      {"ids of another unit or time", propose_tables},
      {"where it went", propose_ways_out},
      {"a part of a step", propose_parts},
      {"another memory or request", propose_memories},
      {"more or fewer tokens", propose_lengths},
      {"raw copies", propose_raw},
      {"a list of copies", propose_copies},
      {"narrow arithmetic", propose_arithmetic},
      {"a wrong layout", propose_layouts},
      {"ids, whatever they are", propose_any_lists},
      {"the same mistake in several steps", propose_together},
      {"one linear map", propose_fits},
      {"ids beyond the pool", propose_beyond},
      {"the same belief in every step", propose_everywhere},
      {"scales", propose_scales},
      {"a wrong base", propose_offsets},
      {"any order of axes", propose_far_layouts},
      {"part by part", propose_part_by_part},
      {"a piece of a step", propose_pieces},
      {"a belief in some steps", propose_some_beliefs},
  };
  return all;
}

WithoutFamily::WithoutFamily(const std::string& name) {
  std::vector<Family> others = families();
  std::erase_if(others, [&](const Family& family) { return family.name == name; });
  fewer = std::move(others);
}

WithoutFamily::~WithoutFamily() { fewer.reset(); }

}  // namespace kvcts::script
