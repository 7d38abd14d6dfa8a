// Which class a fault has when several fit: the cheapest that predicts every byte; those that cost little more are said
// beside it. Of one generator the simplest comes first. The order: what never happened, before what happened in part; facts
// of a table or a key, before geometry; ids, each a number that is wrong, before sizes that nothing declares, unless many
// are wrong; a plain change of one number, before another order of axes.
#include "diagnose/precedence.hpp"
#include "diagnose/hypothesis_search.hpp"

namespace kvcts::scenario {

namespace {

thread_local std::optional<std::vector<HypothesisGenerator>> fewer;
thread_local Proposals* proposals = nullptr;

}  // namespace

// Long, for it is a table: one line per generator.
const std::vector<HypothesisGenerator>& generators() {
  if (fewer) return *fewer;
  using C = FaultClass;
  static const std::vector<HypothesisGenerator> all{
      {"nothing happened", 1.0, generate_skips, {}},
      {"what was claimed",
       1.05,
       generate_claims,
       {C::axis_permuted, C::kv_split_vs_interleaved, C::wrong_stride, C::scale_misplaced, C::scale_swizzle}},
      {"options",
       1.1,
       generate_options,
       {C::scale_lost, C::dtype_reinterpreted, C::stale_block, C::misaligned, C::registration_missing_region,
        C::copy_direction}},
      {"keys", 1.1, generate_keys, {C::identity_collision, C::silently_skipped}},
      {"several keys", 1.2, generate_stores, {C::wrong_block_id, C::identity_collision}},
      {"several registrations", 1.2, generate_registered, {C::registration_missing_region}},
      {"another time", 1.3, generate_orders, {C::stale_block, C::read_before_ready, C::truncated, C::over_read}},
      {"blocks of two sizes", 1.35, generate_one_by_one, {C::wrong_block_size}},
      {"a part is missing",
       1.4,
       generate_subsets,
       {C::layer_missing, C::packed_dim_misread, C::wrong_block_id, C::truncated, C::head_shard_mapping, C::scale_lost}},
      {"other ids",
       1.5,
       generate_lists,
       {C::axis_permuted, C::wrong_block_size, C::head_shard_mapping, C::layer_misrouted, C::region_aliasing,
        C::scale_misplaced, C::dtype_reinterpreted, C::stale_block, C::wrong_block_id, C::truncated, C::int32_overflow}},
      {"ids of another unit or time", 1.6, generate_tables, {C::wrong_block_size, C::stale_block, C::wrong_block_id}},
      {"dim 0 taken for blocks", 1.65, generate_slabs, {C::kv_split_vs_interleaved, C::axis_permuted}},
      {"where it went",
       1.7,
       generate_ways_out,
       {C::kv_split_vs_interleaved, C::head_shard_mapping, C::layer_misrouted, C::wrong_block_id}},
      {"a shift of all", 1.75, generate_shift, {C::wrong_stride}},
      {"something extra", 1.8, generate_extra, {C::stale_block, C::wrong_block_id}},
      {"narrow offsets", 1.85, generate_narrow_offsets, {C::int32_overflow}},
      {"ids, whatever they are", 1.9, generate_shown_lists, {C::stale_block, C::wrong_block_id}},
      {"several at another time", 1.9, generate_orders_together, {C::stale_block, C::read_before_ready}},
      {"another rank", 1.95, generate_other_rank, {C::head_shard_mapping}},
      {"the first pieces only", 1.97, generate_first_pieces, {C::truncated}},
      {"a part of a step", 2.0, generate_parts, {C::head_shard_mapping, C::layer_missing, C::stale_block}},
      {"another memory or request",
       2.0,
       generate_memories,
       {C::head_shard_mapping, C::layer_misrouted, C::region_aliasing, C::scale_misplaced, C::stale_block, C::wrong_block_id,
        C::wrong_stride, C::truncated, C::over_read}},
      {"content where no step puts it", 2.05, generate_unexpected, {C::stale_block, C::wrong_block_id}},
      {"an id beside the pool", 2.1, generate_beside, {C::wrong_block_id}},
      {"more or fewer tokens", 2.1, generate_lengths, {C::truncated, C::over_read}},
      {"pieces of the whole transfer",
       2.15,
       generate_transfer_list,
       {C::truncated, C::false_success, C::scale_lost, C::over_read, C::layer_misrouted}},
      {"the piece of a step that is wrong", 2.2, generate_plain_pieces, {}, true},
      {"a step of all", 2.2, generate_steps, {C::wrong_stride, C::packed_dim_misread}},
      {"an order of axes of all", 2.2, generate_order, {C::axis_permuted, C::kv_split_vs_interleaved}},
      {"raw copies", 2.2, generate_raw, {C::wrong_stride, C::truncated, C::over_read}},
      {"a list of copies", 2.3, generate_copies, {C::wrong_stride, C::truncated, C::over_read}},
      {"narrow arithmetic", 2.4, generate_arithmetic, {C::int32_overflow, C::misaligned}},
      {"a wrong layout",
       2.6,
       generate_layouts,
       {C::axis_permuted, C::kv_split_vs_interleaved, C::wrong_stride, C::wrong_block_size, C::head_shard_mapping,
        C::scale_misplaced, C::dtype_reinterpreted, C::packed_dim_misread}},
      {"the same mistake in several steps", 2.8, generate_together, {}},
      {"one linear map",
       3.0,
       generate_fits,
       {C::axis_permuted, C::kv_split_vs_interleaved, C::wrong_stride, C::scale_misplaced, C::wrong_block_id,
        C::dtype_reinterpreted, C::int32_overflow}},
      {"ids beyond the pool", 3.0, generate_beyond, {C::wrong_block_id}},
      {"the same belief in every step",
       3.1,
       generate_everywhere,
       {C::axis_permuted, C::kv_split_vs_interleaved, C::wrong_stride, C::wrong_block_size, C::head_shard_mapping,
        C::scale_misplaced, C::scale_swizzle, C::packed_dim_misread, C::wrong_block_id}},
      {"scales", 3.2, generate_scales, {C::wrong_stride, C::scale_misplaced, C::scale_swizzle}},
      {"a wrong base", 3.3, generate_offsets, {C::wrong_stride, C::scale_misplaced, C::int32_overflow}},
      {"an unlikely mistake in several steps", 3.34, generate_alike, {}},
      {"part by part", 3.36, generate_part_by_part, {C::kv_split_vs_interleaved, C::layer_misrouted, C::wrong_block_id}},
      {"pieces of others",
       3.38,
       generate_pieces_of_others,
       {C::false_success, C::scale_lost, C::truncated, C::scale_misplaced, C::layer_misrouted, C::kv_split_vs_interleaved,
        C::region_aliasing, C::head_shard_mapping, C::wrong_block_id, C::identity_collision}},
      {"any order of axes", 3.4, generate_far_layouts, {C::axis_permuted, C::kv_split_vs_interleaved, C::scale_misplaced}},
      {"a piece of a step", 3.6, generate_pieces, {}, true},
      {"a belief in some steps", 3.7, generate_some_beliefs, {}},
  };
  return all;
}

Proposals::Proposals() { proposals = this; }
Proposals::~Proposals() { proposals = nullptr; }
Proposals* Proposals::current() { return proposals; }

WithoutGenerator::WithoutGenerator(const std::string& name) {
  std::vector<HypothesisGenerator> others = generators();
  std::erase_if(others, [&](const HypothesisGenerator& generator) { return generator.name == name; });
  fewer = std::move(others);
}

WithoutGenerator::~WithoutGenerator() { fewer.reset(); }

}  // namespace kvcts::scenario
