// Which class a fault has when several fit: the cheapest that predicts every byte; those that cost little more are said
// beside it. Within a family the simplest comes first. The order: what never happened, before what happened in part; facts
// of a table or a key, before geometry; ids, each a number that is wrong, before sizes that nothing declares, unless many
// are wrong; a plain change of one number, before another order of axes.
#include "diagnose/precedence.hpp"
#include "diagnose/workshop.hpp"

namespace kvcts::script {

namespace {

thread_local std::optional<std::vector<Family>> fewer;
thread_local Proposals* proposals = nullptr;

}  // namespace

const std::vector<Family>& families() {
  if (fewer) return *fewer;
  using C = FaultClass;
  static const std::vector<Family> all{
      {"nothing happened", 1.0, propose_skips, {}},
      {"what was claimed",
       1.05,
       propose_claims,
       {C::axis_permuted, C::kv_split_vs_interleaved, C::wrong_stride, C::scale_misplaced, C::scale_swizzle}},
      {"options",
       1.1,
       propose_options,
       {C::scale_lost, C::dtype_reinterpreted, C::stale_block, C::misaligned, C::registration_missing_region,
        C::copy_direction}},
      {"keys", 1.1, propose_keys, {C::identity_collision, C::silently_skipped}},
      {"several keys", 1.2, propose_stores, {C::wrong_block_id, C::identity_collision}},
      {"several registrations", 1.2, propose_registered, {C::registration_missing_region}},
      {"another time", 1.3, propose_orders, {C::stale_block, C::read_before_ready, C::truncated, C::over_read}},
      {"blocks of two sizes", 1.35, propose_one_by_one, {C::wrong_block_size}},
      {"a part is missing",
       1.4,
       propose_subsets,
       {C::layer_missing, C::packed_dim_misread, C::wrong_block_id, C::truncated, C::head_shard_mapping, C::scale_lost}},
      {"other ids",
       1.5,
       propose_lists,
       {C::axis_permuted, C::wrong_block_size, C::head_shard_mapping, C::layer_misrouted, C::region_aliasing,
        C::scale_misplaced, C::dtype_reinterpreted, C::stale_block, C::wrong_block_id, C::truncated, C::int32_overflow}},
      {"ids of another unit or time", 1.6, propose_tables, {C::wrong_block_size, C::stale_block, C::wrong_block_id}},
      {"dim 0 taken for blocks", 1.65, propose_slabs, {C::kv_split_vs_interleaved, C::axis_permuted}},
      {"where it went",
       1.7,
       propose_ways_out,
       {C::kv_split_vs_interleaved, C::head_shard_mapping, C::layer_misrouted, C::wrong_block_id}},
      {"a shift of all", 1.75, propose_shift, {C::wrong_stride}},
      {"something extra", 1.8, propose_extra, {C::stale_block, C::wrong_block_id}},
      {"narrow offsets", 1.85, propose_narrow_offsets, {C::int32_overflow}},
      {"ids, whatever they are", 1.9, propose_shown_lists, {C::stale_block, C::wrong_block_id}},
      {"several at another time", 1.9, propose_orders_together, {C::stale_block, C::read_before_ready}},
      {"another rank", 1.95, propose_other_rank, {C::head_shard_mapping}},
      {"the first pieces only", 1.97, propose_first_pieces, {C::truncated}},
      {"a part of a step", 2.0, propose_parts, {C::head_shard_mapping, C::layer_missing, C::stale_block}},
      {"another memory or request",
       2.0,
       propose_memories,
       {C::head_shard_mapping, C::layer_misrouted, C::region_aliasing, C::scale_misplaced, C::stale_block, C::wrong_block_id,
        C::wrong_stride, C::truncated, C::over_read}},
      {"content where no step puts it", 2.05, propose_strays, {C::stale_block, C::wrong_block_id}},
      {"an id beside the pool", 2.1, propose_beside, {C::wrong_block_id}},
      {"more or fewer tokens", 2.1, propose_lengths, {C::truncated, C::over_read}},
      {"pieces of the whole transfer",
       2.15,
       propose_transfer_list,
       {C::truncated, C::false_success, C::scale_lost, C::over_read, C::layer_misrouted}},
      {"the piece of a step that is wrong", 2.2, propose_plain_pieces, {}, true},
      {"a step of all", 2.2, propose_steps, {C::wrong_stride, C::packed_dim_misread}},
      {"an order of axes of all", 2.2, propose_order, {C::axis_permuted, C::kv_split_vs_interleaved}},
      {"raw copies", 2.2, propose_raw, {C::wrong_stride, C::truncated, C::over_read}},
      {"a list of copies", 2.3, propose_copies, {C::wrong_stride, C::truncated, C::over_read}},
      {"narrow arithmetic", 2.4, propose_arithmetic, {C::int32_overflow, C::misaligned}},
      {"a wrong layout",
       2.6,
       propose_layouts,
       {C::axis_permuted, C::kv_split_vs_interleaved, C::wrong_stride, C::wrong_block_size, C::head_shard_mapping,
        C::scale_misplaced, C::dtype_reinterpreted, C::packed_dim_misread}},
      {"the same mistake in several steps", 2.8, propose_together, {}},
      {"one linear map",
       3.0,
       propose_fits,
       {C::axis_permuted, C::kv_split_vs_interleaved, C::wrong_stride, C::scale_misplaced, C::wrong_block_id,
        C::dtype_reinterpreted, C::int32_overflow}},
      {"ids beyond the pool", 3.0, propose_beyond, {C::wrong_block_id}},
      {"the same belief in every step",
       3.1,
       propose_everywhere,
       {C::axis_permuted, C::kv_split_vs_interleaved, C::wrong_stride, C::wrong_block_size, C::head_shard_mapping,
        C::scale_misplaced, C::scale_swizzle, C::packed_dim_misread, C::wrong_block_id}},
      {"scales", 3.2, propose_scales, {C::wrong_stride, C::scale_misplaced, C::scale_swizzle}},
      {"a wrong base", 3.3, propose_offsets, {C::wrong_stride, C::scale_misplaced, C::int32_overflow}},
      {"an unlikely mistake in several steps", 3.34, propose_alike, {}},
      {"part by part", 3.36, propose_part_by_part, {C::kv_split_vs_interleaved, C::layer_misrouted, C::wrong_block_id}},
      {"pieces of others",
       3.38,
       propose_pieces_of_others,
       {C::false_success, C::scale_lost, C::truncated, C::scale_misplaced, C::layer_misrouted, C::kv_split_vs_interleaved,
        C::region_aliasing, C::head_shard_mapping, C::wrong_block_id, C::identity_collision}},
      {"any order of axes", 3.4, propose_far_layouts, {C::axis_permuted, C::kv_split_vs_interleaved, C::scale_misplaced}},
      {"a piece of a step", 3.6, propose_pieces, {}, true},
      {"a belief in some steps", 3.7, propose_some_beliefs, {}},
  };
  return all;
}

Proposals::Proposals() { proposals = this; }
Proposals::~Proposals() { proposals = nullptr; }
Proposals* Proposals::current() { return proposals; }

WithoutFamily::WithoutFamily(const std::string& name) {
  std::vector<Family> others = families();
  std::erase_if(others, [&](const Family& family) { return family.name == name; });
  fewer = std::move(others);
}

WithoutFamily::~WithoutFamily() { fewer.reset(); }

}  // namespace kvcts::script
