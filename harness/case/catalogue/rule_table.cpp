#include "case/catalogue/rule_table.hpp"

#include "case/catalogue/tables.hpp"

namespace kvcts::catalogue {
namespace {

const Table<RuleCopy>& rule_copy_table() {
  static const Table<RuleCopy> table{
      "a copy of a rule",
      {
          optional("local", &RuleCopy::local, identifier(),
                   "region of the initiator, or the word nobody: memory that was never registered"),
          optional("remote", &RuleCopy::remote, identifier(), "region of the target, one of those that connect named"),
          optional("local_at", &RuleCopy::local_at, integer(0), "offset in it"),
          optional("remote_at", &RuleCopy::remote_at, integer(0), "offset in it; may lie outside"),
          optional("bytes", &RuleCopy::bytes, integer(0), "how many"),
          optional("times", &RuleCopy::times, integer(1, 1'000'000),
                   "more than one: as many copies, each `bytes` further on"),
          optional("limit", &RuleCopy::limit, one_of({"alignment", "max_descriptors", "max_bytes"}),
                   "what the engine claims: takes the place of `times` or `bytes`, or moves both offsets"),
          optional("over", &RuleCopy::over, boolean(), "limit: one more than is claimed; alignment: by half of it"),
      }};
  return table;
}

}  // namespace

const Table<RuleStep>& rule_step_table() {
  static const Table<RuleStep> table{
      "a step of a rule",
      {
          required("do", &RuleStep::action,
                   one_of({"register", "deregister", "connect", "disconnect", "prepare", "post",    "poll",   "wait",
                           "transfer", "release",    "cancel",  "check",      "notify",  "take",    "target", "pause",
                           "flush",    "threads",    "others",  "watch",      "reopen",  "exchange"}),
                   "what is done: calls of the transport ABI; transfer is prepare, post and wait; check compares the bytes "
                   "of a request (by the target: as its own process saw them when it took the last notification, else "
                   "now; \"later\" when they have changed since), others all that no request has named; watch: does a byte "
                   "change within the time? threads: four at once make requests, one a copy; reopen: ten more agents come "
                   "and go, what do they leave behind? exchange: other memory takes the address of the side's, and others "
                   "watches both; target changes the target's state"),
          optional("as", &RuleStep::as, identifier(),
                   "a name under which the step's answer is part of what the rule sees; without one it has to go well"),
          optional("side", &RuleStep::side, one_of({"initiator", "target"}), "who does it"),
          optional("region", &RuleStep::region, identifier(), "register, deregister: its name"),
          optional("at", &RuleStep::at, integer(0), "register: where in the side's memory of 4 MiB it begins"),
          optional("bytes", &RuleStep::bytes, integer(0), "register: how long it is"),
          optional("address", &RuleStep::address, integer(-1),
                   "register: this address, whatever is there, in place of the side's memory"),
          optional("memory", &RuleStep::memory, one_of({"host", "cuda", "hip", "other"}), "register: what it is said to be"),
          optional("kind", &RuleStep::kind, one_of({"memory", "file", "object"}), "register: what kind of region"),
          optional("access", &RuleStep::access, one_of({"all", "read", "write"}), "register: what the peer may do there"),
          optional("regions", &RuleStep::regions, list_of(identifier()),
                   "connect: regions of the other side that the blob is about"),
          optional("blob", &RuleStep::blob, one_of({"whole", "cut", "garbage", "empty", "own", "kept"}),
                   "connect: what is loaded; cut: without its last `amount` bytes; own: this side's; kept: the one of the "
                   "last connect"),
          optional("amount", &RuleStep::amount, integer(0), "connect: bytes that are cut off"),
          optional("peer", &RuleStep::peer, identifier(), "connect: its name; then: through which"),
          optional("request", &RuleStep::request, identifier(), "its name"),
          optional("op", &RuleStep::op, direction_codec(), "direction, seen from the initiator"),
          optional("copies", &RuleStep::copies, list_of(object<RuleCopy>(rule_copy_table)),
                   "prepare, transfer: its descriptors"),
          optional("notification", &RuleStep::notification, any_text(), "prepare, transfer, notify: what is sent"),
          optional("within", &RuleStep::within_ms, duration(),
                   "wait, transfer, take, pause, watch: how long at most; then the answer is pending"),
          optional("state", &RuleStep::state, one_of({"idle", "busy", "stopped", "running", "killed"}),
                   "target: idle makes no progress calls, busy does, stopped is stopped by a signal until running"),
      }};
  return table;
}

const Table<RuleEntry>& claim_table() {
  static const Table<RuleEntry> table{
      "a claim",
      {
          required("test", &RuleEntry::id, identifier(), "id"),
          required("title", &RuleEntry::title, text(), "what is asked, one line"),
          required(
              "claim", &RuleEntry::claim, identifier(),
              "a member of kvcts_claims, a bit of one (memories.cuda), or always: the header demands it of every engine"),
          optional("prelude", &RuleEntry::prelude, one_of({"pair", "none"}),
                   "pair: 1 MiB is registered on either side (local, remote) and the initiator connected, before the steps"),
          optional("options", &RuleEntry::options, anything(),
                   "plug-in, or any -> options in place of those of the engine's entry; null leaves one out"),
          optional("when", &RuleEntry::when, map_of(text()), "only asked where these claims have these values"),
          required("steps", &RuleEntry::steps, list_of(object<RuleStep>(rule_step_table)), "what is done, in order"),
          required("holds", &RuleEntry::holds, map_of(one_or_list_of(text())),
                   "the claim's value -> what may be seen; a value that is not there is not asked; always: any value; *: "
                   "any answer"),
          optional("beyond", &RuleEntry::beyond, any_text(),
                   "what of the claim no test can refute without more than this machine has"),
          optional("explain", &RuleEntry::explain, any_text(), "what a plug-in that fails here should look at"),
      }};
  return table;
}

const Table<RuleEntry>& rule_table() {
  static const Table<RuleEntry> table{
      "a rule",
      {
          required("rule", &RuleEntry::id, identifier(), "id"),
          required("title", &RuleEntry::title, text(), "what is asked, one line"),
          optional("known_as", &RuleEntry::known_as, any_text(), "names of it elsewhere"),
          optional("prelude", &RuleEntry::prelude, one_of({"pair", "none"}),
                   "pair: 1 MiB is registered on either side (local, remote) and the initiator connected, before the steps"),
          optional("options", &RuleEntry::options, anything(),
                   "plug-in (nixl, ucx) -> options in place of those of the engine's entry; null leaves one out"),
          optional("environment", &RuleEntry::environment, anything(), "variables in place of those of the entry"),
          required("steps", &RuleEntry::steps, list_of(object<RuleStep>(rule_step_table)), "what is done, in order"),
          required("expect", &RuleEntry::expect, map_of(one_or_more_of(text())),
                   "engine -> what is seen there; a list: any of these, it is racy"),
          optional("once", &RuleEntry::once, boolean(),
                   "waits for limits of half a minute: played once where others are played often"),
          optional("timed", &RuleEntry::timed, identifier(), "the named step whose time counts"),
          optional("promised", &RuleEntry::promised_ms, map_of(duration()),
                   "engine -> how long that step takes at most, by the engine's own limits"),
          optional("promise", &RuleEntry::promise, any_text(), "which limits those are"),
          optional("explain", &RuleEntry::explain, any_text(), "why, and what to do: for the person on call"),
          optional("advice", &RuleEntry::advice, any_text(), "what the author of a connector must not rely on"),
          optional("notes", &RuleEntry::notes, any_text(), "anything else"),
      }};
  return table;
}

}  // namespace kvcts::catalogue
