// Which class a fault has when several fit: the cheapest that predicts every byte; those that cost little more are said
// beside it. Within a family the simplest comes first. The order: what never happened, before what happened in part; facts
// of a table or a key, before geometry; ids, each a number that is wrong, before sizes that nothing declares, unless many
// are wrong; a plain change of one number, before another order of axes; anything exact, before two causes at once.
#include "diagnose/precedence.hpp"
#include "diagnose/workshop.hpp"

namespace kvcts::script {

namespace {

thread_local std::optional<std::vector<Family>> fewer;

}  // namespace

const std::vector<Family>& families() {
  if (fewer) return *fewer;
  static const std::vector<Family> all{
      {"nothing happened", 1.0, propose_skips},
      {"options", 1.1, propose_options},
      {"keys", 1.1, propose_keys},
      {"several keys", 1.2, propose_stores},
      {"several registrations", 1.2, propose_registered},
      {"another time", 1.3, propose_orders},
      {"a part is missing", 1.4, propose_subsets},
      {"other ids", 1.5, propose_lists},
      {"ids of another unit or time", 1.6, propose_tables},
      {"where it went", 1.7, propose_ways_out},
      {"something extra", 1.8, propose_extra},
      {"ids, whatever they are", 1.9, propose_shown_lists},
      {"several at another time", 1.9, propose_orders_together},
      {"a part of a step", 2.0, propose_parts},
      {"another memory or request", 2.0, propose_memories},
      {"content where no step puts it", 2.05, propose_strays},
      {"an id beside the pool", 2.1, propose_beside},
      {"more or fewer tokens", 2.1, propose_lengths},
      {"the piece of a step that is wrong", 2.2, propose_plain_pieces, true},
      {"raw copies", 2.2, propose_raw},
      {"a list of copies", 2.3, propose_copies},
      {"narrow arithmetic", 2.4, propose_arithmetic},
      {"a wrong layout", 2.6, propose_layouts},
      {"the same mistake in several steps", 2.8, propose_together},
      {"one linear map", 3.0, propose_fits},
      {"ids beyond the pool", 3.0, propose_beyond},
      {"the same belief in every step", 3.1, propose_everywhere},
      {"scales", 3.2, propose_scales},
      {"a wrong base", 3.3, propose_offsets},
      {"an unlikely mistake in several steps", 3.34, propose_alike},
      {"any order of axes", 3.4, propose_far_layouts},
      {"part by part", 3.5, propose_part_by_part},
      {"a piece of a step", 3.6, propose_pieces, true},
      {"a belief in some steps", 3.7, propose_some_beliefs},
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
