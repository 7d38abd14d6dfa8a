#include "case/outcome.hpp"

#include <array>
#include <nlohmann/json.hpp>
#include <ostream>
#include <stdexcept>

namespace kvcts {
namespace {

/// A word of a vocabulary, in the order of its enum.
template <class Enum>
struct Row {
  Enum value;
  std::string_view name, meaning, advice;
};
template <class Enum>
constexpr std::array<Row<Enum>, 0> rows{};

template <>
constexpr std::array<Row<Outcome>, outcome_count> rows<Outcome>{{
    {Outcome::pass, "PASS", "Every byte of every region on both sides is right, including guards, padding and free blocks.",
     ""},
    {Outcome::fail, "FAIL",
     "Bytes are wrong, counts disagree, or the code under test raised an undeclared exception. A fault class names the "
     "cause.",
     "Read the diagnosis; `kvcts repro ID` shows the copies and the first wrong bytes as coordinates."},
    {Outcome::refused, "REFUSED", "The code under test declined cleanly, before any byte moved.",
     "Right where the pair cannot be moved correctly; a finding where it can."},
    {Outcome::hang, "HANG",
     "A phase passed its deadline. Stalled: no progress. Runaway: progress, but too slow to end in time.",
     "The result has the stacks and what the memory looked like; `kvcts repro ID --hold` keeps it alive for a debugger."},
    {Outcome::crash, "CRASH", "The process under test died or broke the protocol; the signal or exit status is given.",
     "The result has the phase, the last output and the bytes written until then."},
    {Outcome::flaky, "FLAKY",
     "Some tries of one case failed and some did not (`kvcts run --repeat`, `--retry-failures`). Never a pass.",
     "The result shown is that of the first failing try; its repro line repeats until the failure comes back."},
    {Outcome::unsupported, "UNSUPPORTED",
     "Backend, architecture, engine or connector declare that they cannot do this; the constraint has the reason.",
     "Nothing was run. `kvcts list --reasons` shows the reasons."},
    {Outcome::skipped, "SKIPPED", "This machine lacks something that the case needs; the result names it.",
     "`kvcts doctor` shows what is missing. The run is incomplete unless the suite lists it as optional; `kvcts run "
     "--require NAME` makes it a failure."},
    {Outcome::not_run, "NOT_RUN", "Time ran out, or the run was interrupted, before this case.",
     "The run is incomplete; `kvcts run --resume DIR` continues it."},
    {Outcome::error, "ERROR", "The suite itself failed. This says nothing about the code under test.",
     "Please report it with the output of `kvcts repro ID`."},
}};

template <>
constexpr std::array<Row<Phase>, phase_count> rows<Phase>{{
    {Phase::resolve, "resolve", "Names of the catalogue become numbers: layouts, block ids, expected outcome.", ""},
    {Phase::allocate, "allocate", "The checker makes fresh memory files for every region of both sides.", ""},
    {Phase::generate, "generate", "The checker poisons all memory and writes the producer's tags.", ""},
    {Phase::registration, "register",
     "The connector inspects its tensors; the engine registers the regions and meets its peer.", ""},
    {Phase::plan, "plan", "The connector turns two caches and two block tables into copies.", ""},
    {Phase::transfer, "transfer", "The engine receives the copies and moves the bytes.", ""},
    {Phase::complete, "complete", "The suite polls the engine until it reports completion.", ""},
    {Phase::read_back, "read back", "A reader gathers keys and values as an attention kernel would.", ""},
    {Phase::compare, "compare", "The checker compares every byte of every region with the oracle.", ""},
    {Phase::diagnose, "diagnose", "The checker searches for the simplest fault that explains all observed bytes.", ""},
}};

template <>
constexpr std::array<Row<Evidence>, evidence_count> rows<Evidence>{{
    {Evidence::modelled, "modelled",
     "The case ran on this CPU with the facts of that architecture. No code of the architecture was executed.", ""},
    {Evidence::compiled, "compiled", "Code for the architecture was compiled, not executed.", ""},
    {Evidence::executed, "executed",
     "Code ran on a device of exactly that architecture, which the suite itself found on this machine.", ""},
}};

template <>
constexpr std::array<Row<Verdict>, verdict_count> rows<Verdict>{{
    {Verdict::as_expected, "as expected", "The outcome is one that the case declares.", ""},
    {Verdict::unexpected, "unexpected", "The outcome is not one that the case declares.",
     "`kvcts repro ID` runs the case alone."},
    {Verdict::xfail, "XFAIL", "The case failed as a waiver in cases/waivers predicts, with reason, owner and last day.", ""},
    {Verdict::xpass, "XPASS", "The case ended as declared, although a waiver predicts a failure.",
     "The defect may be fixed: remove the waiver."},
    {Verdict::expired_waiver, "expired waiver",
     "A waiver covers the failure, but its last day has passed. Counts as a failure.",
     "Fix the defect or renew the waiver."},
    {Verdict::skipped, "skipped", "Not judged: the machine lacks something.", ""},
    {Verdict::not_run, "not run", "Not judged: the case was not reached.", ""},
    {Verdict::error, "error", "Not judged: the suite itself failed.", ""},
}};

template <>
constexpr std::array<Row<HangKind>, 2> rows<HangKind>{{
    {HangKind::stalled, "stalled", "", ""},
    {HangKind::runaway, "runaway", "", ""},
}};

template <>
constexpr std::array<Row<DiagnosedBy>, 3> rows<DiagnosedBy>{{
    {DiagnosedBy::nothing, "nothing", "", ""},
    {DiagnosedBy::count, "count", "", ""},
    {DiagnosedBy::events, "events", "", ""},
}};

// The classes partition published reports of KV-cache faults, in the order of the collection they come from, so that lists
// in reports keep one order.
template <>
constexpr std::array<Row<FaultClass>, fault_class_count> rows<FaultClass>{{
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
    {FaultClass::raised, "raised", "The code under test raised an exception that no other class explains.",
     "Look at the line that raised; the traceback is below stderr."},
    {FaultClass::capability_mismatch, "capability-mismatch",
     "The architecture, kernel or engine does not support this dtype, layout or size.",
     "Refuse the combination cleanly at start; see the constraint in the catalogue."},
}};

/// False: a row is missing or at another place.
template <class Enum>
constexpr bool in_order() {
  for (std::size_t i = 0; i < rows<Enum>.size(); ++i)
    if (static_cast<std::size_t>(rows<Enum>[i].value) != i || (i > 0 && rows<Enum>[i].name.empty())) return false;
  return !rows<Enum>.empty();
}
static_assert(in_order<Outcome>());
static_assert(in_order<Phase>());
static_assert(in_order<Evidence>());
static_assert(in_order<Verdict>());
static_assert(in_order<HangKind>());
static_assert(in_order<DiagnosedBy>());
static_assert(in_order<FaultClass>());

template <class Enum>
const Row<Enum>& row_of(Enum value) {
  return rows<Enum>.at(static_cast<std::size_t>(value));
}

template <class Enum>
std::optional<Enum> by_name(std::string_view wanted) {
  for (const Row<Enum>& row : rows<Enum>)
    if (row.name == wanted) return row.value;
  return std::nullopt;
}

}  // namespace

std::string_view name(Outcome value) { return row_of(value).name; }
std::string_view meaning(Outcome value) { return row_of(value).meaning; }
std::string_view advice(Outcome value) { return row_of(value).advice; }
std::string_view name(Phase value) { return row_of(value).name; }
std::string_view meaning(Phase value) { return row_of(value).meaning; }
std::string_view advice(Phase value) { return row_of(value).advice; }
std::string_view name(Evidence value) { return row_of(value).name; }
std::string_view meaning(Evidence value) { return row_of(value).meaning; }
std::string_view advice(Evidence value) { return row_of(value).advice; }
std::string_view name(Verdict value) { return row_of(value).name; }
std::string_view meaning(Verdict value) { return row_of(value).meaning; }
std::string_view advice(Verdict value) { return row_of(value).advice; }
std::string_view name(FaultClass value) { return row_of(value).name; }
std::string_view meaning(FaultClass value) { return row_of(value).meaning; }
std::string_view advice(FaultClass value) { return row_of(value).advice; }
std::string_view name(HangKind value) { return row_of(value).name; }
std::string_view name(DiagnosedBy value) { return row_of(value).name; }

std::optional<Outcome> outcome_from_name(std::string_view wanted) { return by_name<Outcome>(wanted); }
std::optional<Phase> phase_from_name(std::string_view wanted) { return by_name<Phase>(wanted); }
std::optional<Evidence> evidence_from_name(std::string_view wanted) { return by_name<Evidence>(wanted); }
std::optional<Verdict> verdict_from_name(std::string_view wanted) { return by_name<Verdict>(wanted); }
std::optional<HangKind> hang_from_name(std::string_view wanted) { return by_name<HangKind>(wanted); }
std::optional<DiagnosedBy> diagnosed_by_from_name(std::string_view wanted) { return by_name<DiagnosedBy>(wanted); }
std::optional<FaultClass> fault_class_from_name(std::string_view wanted) { return by_name<FaultClass>(wanted); }

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
    for (const auto& row : rows<FaultClass>)
      if (row.value != FaultClass::none) out.push_back(row.value);
    return out;
  }();
  return all;
}

}  // namespace kvcts
