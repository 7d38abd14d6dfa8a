#include "case/outcome.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <ostream>
#include <stdexcept>

namespace kvcts {
namespace {

template <typename Enum, std::size_t N>
std::optional<Enum> by_name(const std::array<std::string_view, N>& names, std::string_view wanted) {
  const auto found = std::find(names.begin(), names.end(), wanted);
  if (found == names.end()) return std::nullopt;
  return static_cast<Enum>(found - names.begin());
}

template <typename Enum, std::size_t N>
std::string_view at(const std::array<std::string_view, N>& names, Enum value) {
  const auto index = static_cast<std::size_t>(value);
  return index < N ? names[index] : std::string_view{"?"};
}

constexpr std::array<std::string_view, outcome_count> outcome_names{
    "PASS", "FAIL", "REFUSED", "HANG", "CRASH", "FLAKY", "UNSUPPORTED", "SKIPPED", "NOT_RUN", "ERROR",
};
constexpr std::array<std::string_view, phase_count> phase_names{
    "resolve", "allocate", "generate", "register", "plan", "transfer", "complete", "read back", "compare", "diagnose",
};
constexpr std::array<std::string_view, evidence_count> evidence_names{"modelled", "compiled", "executed"};
constexpr std::array<std::string_view, 2> hang_names{"stalled", "runaway"};
constexpr std::array<std::string_view, verdict_count> verdict_names{
    "as expected", "unexpected", "XFAIL", "XPASS", "expired waiver", "skipped", "not run", "error",
};

}  // namespace

std::string_view name(Outcome outcome) { return at(outcome_names, outcome); }
std::optional<Outcome> outcome_from_name(std::string_view wanted) { return by_name<Outcome>(outcome_names, wanted); }

std::string_view name(Phase phase) { return at(phase_names, phase); }
std::optional<Phase> phase_from_name(std::string_view wanted) { return by_name<Phase>(phase_names, wanted); }

std::string_view name(Evidence evidence) { return at(evidence_names, evidence); }
std::optional<Evidence> evidence_from_name(std::string_view wanted) { return by_name<Evidence>(evidence_names, wanted); }

std::string_view name(HangKind kind) { return at(hang_names, kind); }
std::optional<HangKind> hang_from_name(std::string_view wanted) { return by_name<HangKind>(hang_names, wanted); }

std::string_view name(Verdict verdict) { return at(verdict_names, verdict); }
std::optional<Verdict> verdict_from_name(std::string_view wanted) { return by_name<Verdict>(verdict_names, wanted); }

namespace {

// The classes partition published reports of KV-cache faults, in the order of the collection they come from, so that lists
// in reports keep one order.
struct FaultClassRow {
  FaultClass fault;
  std::string_view name, meaning, advice;
};
constexpr std::array<FaultClassRow, fault_class_count> fault_class_rows{{
    {FaultClass::none, "", "", ""},
    {FaultClass::axis_permuted, "axis-permuted",
     "The right bytes are read with two named axes exchanged, such as tokens and heads.",
     "Compare the axis order that is declared with the strides of the tensor that is really handed over."},
    {FaultClass::kv_split_vs_interleaved, "kv-split-vs-interleaved",
     "The axis that separates K from V is at another position than assumed, or is missing.",
     "Look where the extent-2 axis stands in shape and strides, and whether V is a separate region."},
    {FaultClass::wrong_stride, "wrong-stride",
     "The axis order is right, but the step between neighbours or the base offset is wrong.",
     "Take strides from the tensor, not from its shape; look for padding, sub-views and bytes used as elements."},
    {FaultClass::wrong_block_size, "wrong-block-size", "One side counts in blocks of another size than the memory has.",
     "Check which block size each id refers to: logical, kernel, page, or one that depends on the TP degree."},
    {FaultClass::head_shard_mapping, "head-shard-mapping", "A rank sends or receives KV heads that belong to another rank.",
     "Work through the head range of every rank for unequal TP degrees and for replicated GQA heads."},
    {FaultClass::layer_missing, "layer-missing", "The cache of a layer, or a whole kind of cache, is never moved.",
     "Compare the list of registered layers with the model's, draft, sliding-window and indexer layers included."},
    {FaultClass::layer_misrouted, "layer-misrouted", "The bytes of one layer arrive in another layer.",
     "Check what pairs layers up: names, order of registration, pipeline offsets, string sorting."},
    {FaultClass::region_aliasing, "region-aliasing", "Two logical tensors share bytes, or two tensors are treated as one.",
     "Compare base addresses and sizes of all registered regions for overlap and duplicates."},
    {FaultClass::scale_lost, "scale-lost", "A quantisation scale is not applied, is applied twice, or was never moved.",
     "Follow the scale from the write to the read; check that scale tensors are in the list of regions."},
    {FaultClass::scale_misplaced, "scale-misplaced",
     "Scales exist but are read or written at the wrong address, or overwrite data.",
     "Compute the byte offset of the scale plane by hand for block 1 and compare it with the code's."},
    {FaultClass::scale_swizzle, "scale-swizzle",
     "Scales are stored in an interleaved order and read in a linear one, or the reverse.",
     "Check whether both sides declare the same scale order, and who converts it."},
    {FaultClass::dtype_reinterpreted, "dtype-reinterpreted", "The bits of one number format are read as another format.",
     "Compare the dtype on the wire with the dtype of both caches, fn against fnuz and fp16 against bf16 too."},
    {FaultClass::packed_dim_misread, "packed-dim-misread",
     "An extent that counts packed elements is used as if it counted logical ones.",
     "Check every use of the last extent of a packed tensor: it is half of head_dim for 4-bit codes."},
    {FaultClass::stale_block, "stale-block",
     "A block shows what an earlier owner wrote, because it was freed or recycled too early.",
     "Check what keeps a block alive until its last reader or writer has finished."},
    {FaultClass::read_before_ready, "read-before-ready", "Nothing orders the reader after the write that it depends on.",
     "Look for the event, fence or completion between producer, transfer and consumer; delay each of them."},
    {FaultClass::wrong_block_id, "wrong-block-id", "The list of blocks is wrong: order, position, group, or kind of id.",
     "Print both id lists next to the copy list; check id 0, null blocks and per-group tables."},
    {FaultClass::truncated, "truncated", "Bytes, tokens or blocks at the end (or in between) are missing.",
     "Check the rounding of tokens to blocks and the length of the last copy."},
    {FaultClass::over_read, "over-read", "More is read than is valid.",
     "Check the length of the last page and the number of pages of a request."},
    {FaultClass::int32_overflow, "int32-overflow",
     "An offset, size, count or id does not fit into 32 bits or fewer, or an unsigned one wraps below zero.",
     "Look for 32-bit products of index and stride; widen before multiplying."},
    {FaultClass::misaligned, "misaligned", "An address or a length breaks an alignment or a registration boundary.",
     "Check the alignment that engine and kernel require against the base address and every offset."},
    {FaultClass::rank_mismatch, "rank-mismatch",
     "A tensor has another number of dimensions, or a cache another number of groups, than the code unpacks.",
     "Look at the line that unpacks the shape; re-view the tensor or refuse it before anything moves."},
    {FaultClass::registration_missing_region, "registration-missing-region",
     "Memory is advertised to the peer but not registered, not fully, or at another base.",
     "Compare base and length of every registration with the addresses that the plan uses."},
    {FaultClass::identity_collision, "identity-collision",
     "Two different contents or formats share one cache key or file name.",
     "Check that the key holds everything that changes the bytes: model, dtype, layout, rank, adapter."},
    {FaultClass::copy_direction, "copy-direction", "Source and destination are exchanged.",
     "Check which side posts, and whether it posts a read or a write."},
    {FaultClass::silently_skipped, "silently-skipped", "Nothing was moved or converted, and no error was reported.",
     "Count bytes moved against bytes planned; look for an empty list or a branch that returns early."},
    {FaultClass::false_success, "false-success", "A transfer that failed, wholly or in part, is reported as complete.",
     "Check the status of every descriptor and what the code does with the first one that fails."},
    {FaultClass::hang_kernel, "hang-kernel", "A compute kernel or a collective never returns.",
     "Check loop bounds that come from page tables and declared layouts, and ranks that do not take part."},
    {FaultClass::hang_transfer, "hang-transfer", "A transfer or handshake reaches no final state.",
     "Check who must make progress on each side, and what happens to requests whose peer is gone."},
    {FaultClass::crash, "crash", "The process died and no other class explains it.",
     "Look at the signal, the stack and the last phase."},
    {FaultClass::capability_mismatch, "capability-mismatch",
     "The architecture, kernel or engine does not support this dtype, layout or size.",
     "Refuse the combination cleanly at start; see the constraint in the catalogue."},
}};
static_assert(
    [] {
      for (std::size_t i = 0; i < fault_class_rows.size(); ++i)
        if (static_cast<std::size_t>(fault_class_rows[i].fault) != i) return false;
      return true;
    }(),
    "the rows are in the order of the enum, and none is missing");

const FaultClassRow& row_of(FaultClass fault) { return fault_class_rows[static_cast<std::size_t>(fault)]; }

}  // namespace

std::string_view name(FaultClass fault) { return row_of(fault).name; }
std::string_view meaning(FaultClass fault) { return row_of(fault).meaning; }
std::string_view advice(FaultClass fault) { return row_of(fault).advice; }

std::optional<FaultClass> fault_class_from_name(std::string_view wanted) {
  for (const FaultClassRow& row : fault_class_rows)
    if (row.name == wanted) return row.fault;
  return std::nullopt;
}

std::ostream& operator<<(std::ostream& out, FaultClass fault) { return out << name(fault); }
void to_json(nlohmann::json& out, FaultClass fault) { out = name(fault); }
void from_json(const nlohmann::json& in, FaultClass& fault) {
  const auto found = fault_class_from_name(in.get_ref<const std::string&>());
  if (!found) throw std::runtime_error("expected a fault class, found " + in.dump());
  fault = *found;
}

const std::vector<FaultClass>& fault_classes() {
  static const std::vector<FaultClass> all = [] {
    std::vector<FaultClass> out;
    for (const FaultClassRow& row : fault_class_rows)
      if (row.fault != FaultClass::none) out.push_back(row.fault);
    return out;
  }();
  return all;
}

}  // namespace kvcts
