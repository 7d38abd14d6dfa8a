// The operations of steps: one table per operation, twice, as intended and as it happened.
#include <algorithm>
#include <functional>

#include "case/catalogue/scenario_table.hpp"
#include "case/catalogue/scenario_values.hpp"

namespace kvcts::catalogue {

using scenario::Action;
using scenario::Picks;
using scenario::StepSelection;

namespace {

const Table<StepSelection>& selection_table() {
  static const Table<StepSelection> table{
      "a selection",
      {
          optional("layers", &StepSelection::layers, picks(false), "layers, as the model counts them; default all"),
          optional("kv", &StepSelection::kv, picks(true), "K, V (0, 1); default both"),
          optional("tokens", &StepSelection::tokens, picks(false),
                   "positions in the content (first_token of the request counts); default all"),
          optional("heads", &StepSelection::heads, picks(false), "KV heads, as the model counts them; default all"),
          optional("channels", &StepSelection::channels, picks(false), "channels; of scale planes, groups; default all"),
      }};
  return table;
}

using Fields = std::vector<Field<Action>>;

Fields selection(StepSelection Action::* member, const std::string& prefix = "") {
  Fields out;
  for (auto field : selection_table().fields) {
    if (!prefix.empty()) field.doc = "where each of '" + field.key + "' goes, as many; default to itself";
    out.push_back(lift(field, member, prefix));
  }
  return out;
}
const Fields& taken() {
  static const Fields fields = selection(&Action::pick);
  return fields;
}
const Fields& placed() {
  static const Fields fields = selection(&Action::pick_to, "to_");
  return fields;
}

Field<Action> of_request() { return required("request", &Action::request, identifier(), "whose bytes"); }
Field<Action> from_views() {
  return required("from", &Action::from, one_or_list_of(view()),
                  "where they are read; of several views, the first that holds an element");
}
Field<Action> to_views() { return required("to", &Action::to, one_or_list_of(view()), "where they are written"); }
Field<Action> from_ids() {
  return optional("from_blocks", &Action::from_blocks, block_ids(), "there, instead of the request's");
}
Field<Action> to_ids() { return optional("to_blocks", &Action::to_blocks, block_ids(), "there, instead of the request's"); }
Field<Action> part() {
  return optional("parts", &Action::parts, one_of({"all", "data", "scales"}), "data, scales, or both");
}
Field<Action> splits() {
  return optional("splits", &Action::splits, boolean(),
                  "copies are cut where a registration or a mapping ends; false: they straddle");
}
Field<Action> accesses() {
  return optional("otherwise", &Action::otherwise, one_of({"refuse", "go on"}),
                  "refuse: an access outside or not registered is not done; go on: it is");
}
Field<Action> to_string(const char* doc) { return optional("text", &Action::text, any_text(), doc); }
Field<Action> bytes_field(const char* doc, bool needed) {
  return needed ? required("bytes", &Action::bytes, bytes_codec(), doc)
                : optional("bytes", &Action::bytes, bytes_codec(1), doc);
}
Field<Action> range_offset() {
  return optional("offset", &Action::to_offset, offset_codec(), "byte at which the range begins; then name one allocation");
}
Field<Action> waiting_in() {
  return optional("in", &Action::in, one_of({"transfer", "kernel", "handshake"}), "what never ends");
}

// Written whenever there is a second one, even when it is 0.
Field<Action> step_field(const char* key, std::int64_t Action::* member, const char* doc) {
  Field<Action> out = optional(key, member, offset_codec(), doc);
  out.write = [member](const Action& in) { return in.count > 1 ? json(in.*member) : json(nullptr); };
  return out;
}

Fields repeated(bool from) {
  Fields out{optional("count", &Action::count, integer(1, 1 << 20), "how many times")};
  if (from)
    out.push_back(
        step_field("from_step", &Action::from_step, "bytes from one to the next at the source; needed with count > 1"));
  out.push_back(
      step_field("to_step", &Action::to_step, "bytes from one to the next at the destination; needed with count > 1"));
  return out;
}

// When and with what an action executes; an intended action always executes in its place.
Fields timing(const std::string& op) {
  Fields out{
      optional("after", &Action::after, identifier(), "executed behind the step of this name instead"),
      optional("before", &Action::before, identifier(), "executed in front of the step of this name instead"),
  };
  const auto of = [&](std::initializer_list<const char*> names) {
    return std::find(names.begin(), names.end(), op) != names.end();
  };
  if (of({"move"}))
    out.push_back(optional("reads", &Action::reads, one_of({"execute", "issue"}),
                           "issue: the bytes are taken at the step's own place, and written where it is executed"));
  if (of({"write", "move", "fill", "read", "put", "get"})) {
    out.push_back(optional("table", &Action::table, one_of({"execute", "issue"}),
                           "issue: the block table is that of the step's own place"));
  }
  return out;
}

void check_pairs(const Action& action, const Node& node) {
  const auto pair = [&](const Picks& from, const Picks& to, const char* key) {
    if (!to) return;
    const std::string far = std::string("to_") + key;
    if (!from) fail(*node.find(far), "'" + far + "' only with '" + key + "'", std::string("say which ") + key + " go there");
    if (from->size() != to->size()) {
      fail(*node.find(far), "as many as in '" + std::string(key) + "' (" + std::to_string(from->size()) + ")",
           "say for each where it goes");
    }
  };
  pair(action.pick.layers, action.pick_to.layers, "layers");
  pair(action.pick.kv, action.pick_to.kv, "kv");
  pair(action.pick.tokens, action.pick_to.tokens, "tokens");
  pair(action.pick.heads, action.pick_to.heads, "heads");
  pair(action.pick.channels, action.pick_to.channels, "channels");
}

void check_repeats(const Action& action, const Node& node, bool from) {
  for (const char* key : {"from_step", "to_step"}) {
    if (action.count > 1 && (from || key[0] == 't') && !node.find(key))
      fail_missing_key(node, "a step with count > 1", key, "bytes");
  }
}

void check_fill(const Action& action, const Node& node) {
  const bool raw = node.find("to_offset") || node.find("bytes") || node.find("count") || node.find("to_step");
  if (action.request.empty() && !action.to_blocks) {
    for (const char* key : {"layers", "kv", "tokens", "heads", "channels", "parts"}) {
      if (const Node* given = node.find(key))
        fail(*given, std::string("'") + key + "' only with request or to_blocks",
             "say whose elements, or which blocks, are filled");
    }
    if (action.to.size() != 1 || !is_plain(action.to.front())) {
      fail(*node.find("to"), "one memory or allocation",
           "a fill without request and to_blocks fills bytes, which have no layout");
    }
  }
  if (raw + action.to_blocks.has_value() + !action.request.empty() > 1) {
    fail(node, "one of a range of bytes, to_blocks and request", "say in one way which bytes are filled");
  }
  check_repeats(action, node, false);
}

void check_read(const Action& action, const Node& node) {
  const Node *parts = node.find("parts"), *scales = node.find("scales");
  if (action.decode && parts)
    fail(*parts, "no 'parts' in a read with decode",
         "a number has the scales of its code in it; say scales: ignored, or leave decode out");
  if (!action.decode && scales)
    fail(*scales, "'scales' only with decode", "bytes are read as they are; add decode: true, or pick parts");
}

void check_range(const Action& action, const Node& node) {
  if (!action.request.empty() && (node.find("offset") || node.find("bytes")))
    fail(node, "one of request and a range of bytes", "remove one of them");
  if (action.memory.empty() && (node.find("offset") || node.find("bytes")))
    fail_missing_key(node, "a range of bytes", "memory", "a memory or allocation");
  if (!action.request.empty() && action.memory.empty())
    fail_missing_key(node, "a check of a request", "memory", "a memory or allocation");
}

void check_requirement(const Action& action, const Node& node) {
  if (!node.find("expects") && action.needs.empty()) fail(node, "expects and found, or needs", "say what is compared");
  if (!node.find("expects") != !node.find("found")) fail(node, "expects and found together", "add the other one");
}

const std::vector<std::string>& subjects() {
  static const std::vector<std::string> words{
      "dims",       "groups", "heads", "layers", "block_size", "bytes",  "stride", "alignment", "registration", "dtype",
      "capability", "tokens", "key",   "axes",   "kv",         "blocks", "scales", "size",      "width"};
  return words;
}

Op op(const std::string& name, std::string doc, Fields fields, std::function<void(const Action&, const Node&)> check = {},
      Action initial = {}) {
  initial.op = scenario::operation_from_name(name);
  const auto rules = [check](bool actual) {
    return [check, actual](const Action& action, const Node& node) {
      if (actual && !action.after.empty() && !action.before.empty())
        fail(node, "one of after and before", "remove one of them");
      for (const char* key : {"reads", "table"}) {
        const Node* given = actual && action.after.empty() && action.before.empty() ? node.find(key) : nullptr;
        if (given)
          fail(*given, std::string("'") + key + "' only with after or before", "say where the step is executed instead");
      }
      if (check) check(action, node);
    };
  };
  const std::string what = "a '" + name + "' step";
  return {
      name, std::move(doc), {what, fields, rules(false), initial}, {what, join(fields, timing(name)), rules(true), initial}};
}

// One table: each operation with its fields, in the order of the reference.
std::vector<Op> make_ops() {
  Action store;
  store.store = "store";
  Action raising;
  raising.otherwise = "raise";
  const auto otherwise = optional("otherwise", &Action::otherwise, one_of({"refuse", "raise", "crash", "go on"}),
                                  "what the code does when it does not hold");
  const auto store_name = optional("store", &Action::store, identifier(), "which store");
  const auto key = required("key", &Action::key, store_key(), "fields of the key, or one word");
  const auto memory = required("memory", &Action::memory, text(), "memory, or one of its allocations");
  const Fields range{memory, range_offset(), bytes_field("how many; default all from offset on", false)};
  return {
      op("write", "every element of the request gets its tag",
         join<Action>(
             {of_request(), to_views()},
             join(
                 taken(),
                 {to_ids(), part(), accesses(),
                  optional("generation", &Action::generation, generation(), "of what is written; default the request's"),
                  optional(
                      "content", &Action::content, one_of({"tags", "codes", "values"}),
                      "tags; codes: every code of the dtype in turn; values: numbers, encoded as the view's dtype says")}))),
      op("move", "elements of the request from view to view, by coordinate",
         join<Action>({of_request(), from_views(), to_views()},
                      join(join(taken(), placed()), {from_ids(), to_ids(), part(), splits(), accesses()})),
         check_pairs),
      op("copy", "raw bytes",
         join<Action>(
             {required("from", &Action::from, place(), "memory with one allocation, or an allocation"),
              optional("from_offset", &Action::from_offset, offset_codec(), "byte there; beyond the ends are the guards"),
              required("to", &Action::to, place(), "memory with one allocation, or an allocation"),
              optional("to_offset", &Action::to_offset, offset_codec(), "byte there"), bytes_field("how many", true),
              splits(), accesses()},
             repeated(true)),
         [](const Action& action, const Node& node) { check_repeats(action, node, true); }),
      op("fill", "bytes that are not content",
         join<Action>(
             {to_views(), optional("to_offset", &Action::to_offset, offset_codec(), "byte at which the range begins"),
              bytes_field("how many; default all from to_offset on", false)},
             join(join(repeated(false), taken()),
                  {to_ids(), part(), accesses(), optional("request", &Action::request, identifier(), "its elements"),
                   required("value", &Action::value, pattern(), "what every byte becomes")})),
         check_fill),
      op("read", "gathers elements of the request into an output of its own, as a kernel does",
         join<Action>(
             {of_request(), from_views()},
             join(taken(), {from_ids(), part(), accesses(),
                            optional("decode", &Action::decode, boolean(),
                                     "numbers (fp32: code, times scale, times global scale) rather than bytes"),
                            optional("scales", &Action::scales, one_of({"used", "ignored", "twice"}), "of decoded numbers"),
                            optional("output", &Action::output, identifier(), "name of the output; default the step's")})),
         check_read),
      op("register", "from now on only registered bytes of this memory can be moved",
         join(range, {optional("maps", &Action::maps, offset_codec(),
                               "byte where the registration really begins; default offset")})),
      op("unregister", "takes a registration back", range),
      op("put", "elements of the request into a store, as one object",
         join<Action>({store_name, key, of_request(), from_views()},
                      join(taken(), {from_ids(), part(), splits(), accesses(),
                                     optional("on_exists", &Action::on_exists, one_of({"replace", "keep"}),
                                              "when the store has this key")})),
         {}, store),
      op("get", "an object of a store into the request's elements",
         join<Action>({store_name, key, of_request(), to_views()},
                      join(join(taken(), placed()), {to_ids(), part(), splits(), accesses()})),
         check_pairs, store),
      op("assign", "the request's blocks, generation or tokens from here on",
         {required("request", &Action::request, identifier(), "which"),
          optional("blocks", &Action::blocks, tables(block_ids()),
                   "memory -> its block ids from here on; positions stay as the request has them"),
          optional("generation", &Action::generation, generation(), "of what is written from here on"),
          optional("tokens", &Action::tokens, integer(0, many), "how many it has")}),
      op("signal", "an event",
         {required("event", &Action::event, identifier(), "name"),
          optional("fields", &Action::fields, anything(), "what it carries")}),
      op("wait", "until an event has come; for ever when it has not",
         {required("event", &Action::event, identifier(), "name"),
          optional("fields", &Action::fields, anything(), "fields that the event must have"), waiting_in()}),
      op("complete", "a completion is reported",
         {optional("request", &Action::request, identifier(), "of which request"),
          optional("fields", &Action::fields, anything(), "what is reported: status, bytes, ...")}),
      op("fail", "a failure is reported, cleanly",
         {optional("request", &Action::request, identifier(), "of which request"), to_string("the report")}),
      op("require", "a condition of the code",
         {required("about", &Action::about, one_of(subjects()), "what the condition is about"),
          optional("expects", &Action::expects, any_value(), "what the code wants"),
          optional("found", &Action::found, any_value(), "what there is; must be equal"),
          optional("needs", &Action::needs, anything(),
                   "fact of the arch (kvcts explain --schema arch --reference) -> least value"),
          otherwise, to_string("the message")},
         check_requirement),
      op(
          "unpack", "the code takes a tensor's shape apart",
          {required("memory", &Action::memory, text(), "memory whose first tensor it is"),
           required("expects", &Action::expects, any_value(),
                    "names of the dims that it unpacks: [two, blocks, slots, heads, channels]"),
           otherwise, to_string("the message")},
          [](const Action& action, const Node& node) {
            const bool names =
                action.expects.is_array() && !action.expects.empty() &&
                std::all_of(action.expects.begin(), action.expects.end(), [](const json& name) { return name.is_string(); });
            if (!names)
              fail(*node.find("expects"), "a list of names of dims", "write e.g. [blocks, slots, heads, channels]");
          },
          raising),
      op("refuse", "a clean, typed refusal; nothing may have moved", {to_string("the message")}),
      op("raise", "an exception", {to_string("the message")}),
      op("crash", "the process dies",
         {optional("signal", &Action::signal, identifier(), "by which signal, or exit code"), to_string("what it says")}),
      op("hang", "it never ends", {waiting_in(), to_string("what it was doing")}),
      op("check", "compares here, too; at the end everything is compared anyway",
         {optional("memory", &Action::memory, text(), "memory, or one of its allocations; default all"),
          optional("request", &Action::request, identifier(), "its elements there"), range_offset(),
          bytes_field("how many; default all from offset on", false),
          optional("is", &Action::is, one_of({"exact", "unchanged", "any"}),
                   "exact: as intended; unchanged: as at the check before; any: does not matter from here on")},
         check_range),
      op("nothing", "no such step was meant; `actually` says what the code did", {}),
  };
}

}  // namespace

const Table<StepSelection>& picks_table() { return selection_table(); }

const std::vector<Op>& ops() {
  static const std::vector<Op> all = make_ops();
  return all;
}

}  // namespace kvcts::catalogue
