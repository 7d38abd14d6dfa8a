// A scripted case: named memories, requests, and a sequence of steps. Each step says what is *intended*; `actually` says
// what the code under test did instead. harness/scene/truth paints the truth from the intended sequence;
// harness/scene/machine runs the actual one. The diagnosis sees the intended sequence, the bytes and the events, never what
// `actually` says.
//
// Keys, units and defaults: catalogue/scenario_table.cpp, and catalogue/case_reference.md in prose. resolve_scenario()
// (case/resolve_script.hpp) fills in what is marked "resolved"; to_json() (below) carries everything from the supervisor to
// the checker.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "case/operation.hpp"

namespace kvcts::scenario {

/// Width in which code computes addresses through a view. The result of each product (or of the sum) is cut to `bits`, in
/// elements of the plane or in bytes, and read back signed or unsigned; everything after that is 64 bits wide.
struct Arithmetic {
  std::int64_t bits{64};  ///< 8..64
  bool is_signed{true};
  std::string unit{"bytes"};  ///< bytes | elements
  std::string of{"sum"};      ///< product: index * stride of each mode | sum: the whole offset from the view's base
  bool operator==(const Arithmetic&) const = default;
};

/// Memory as one piece of code sees it. Empty fields: as the memory declares.
struct View {
  std::string of;      ///< memory "P", or one of its allocations "P/kv.L0"
  std::string layout;  ///< catalogue id, or another project's name for a layout (layout::template_from_name)
  std::string text;    ///< key `template`: a template written out
  std::string planes;  ///< cache text of layout::cache_from_text: any modes, strides, offsets
  nlohmann::json geometry =
      nlohmann::json::object();  ///< layers, blocks, block_size, heads, head_dim, v_head_dim, kv, first_layer, first_head
  std::string dtype;             ///< scheme of the catalogue
  std::int64_t offset{0};        ///< bytes added to every address
  std::map<std::string, std::int64_t>
      strides;  ///< axis (layer kv block slot head channel) -> bytes: the outermost mode of data planes
  std::map<std::string, std::int64_t> scale_strides;  ///< the same for scale planes
  std::int64_t scale_offset{0};                       ///< bytes added to addresses of scale planes
  std::int64_t align{1};                              ///< every address is rounded down to a multiple of it
  Arithmetic arithmetic;
  std::string cache;  ///< resolved: layout::to_text of the planes that this view uses; "" = raw bytes
  bool operator==(const View&) const = default;
};

/// A piece of memory and its content. Each allocation is a separate backing with guards, unless `pool` joins them.
struct Memory {
  std::string side{"consumer"};  ///< producer | consumer | staging | store
  std::int64_t rank{0};
  View view;              ///< as declared; `view.of` names another memory whose bytes this one shares
  std::int64_t bytes{0};  ///< size when there is no layout, or a larger one than the layout needs; 0 = what it needs
  bool pool{false};       ///< one backing: consecutive allocations, with `gap` bytes between them
  std::int64_t gap{0};
  std::int64_t guard_below{4096}, guard_above{4096};
  std::optional<std::uint32_t> poison_rank{};  ///< not of a file: of a case with two sides, whose poison it has
  bool sparse{false};                          ///< GiB in size: only touched bytes exist; nothing else is poisoned
  std::vector<std::int64_t>
      boundaries;               ///< byte offsets at which one mapping ends and the next begins: no copy may straddle one
  std::int64_t base{0};         ///< address of byte 0; matters for alignment only
  std::string holds{"poison"};  ///< before the first step: poison | zero
  std::string unused_slots{"free"};  ///< behind the last token of what is moved here: free | kept
  bool operator==(const Memory&) const = default;
};

/// In a list of block ids: no block, so that nothing is touched there. Any other number is an id, -1 too. Below every id
/// that a file can have, and near enough that a sum or product with it does not overflow.
inline constexpr std::int64_t no_block = -(std::int64_t{1} << 41);

/// Tokens of a request and where they lie in each memory.
struct ScenarioRequest {
  std::int64_t tokens{0};
  std::uint32_t generation{1};  ///< requests that share a generation hold equal content at equal positions
  std::int64_t first_token{0};  ///< position of its first token in the content
  std::map<std::string, std::vector<std::int64_t>> blocks;  ///< memory -> block ids, or no_block
  std::map<std::string, std::vector<std::int64_t>>
      positions;  ///< memory -> which blocks of the request those are; default 0, 1, 2, ...
  bool operator==(const ScenarioRequest&) const = default;
};

/// Coordinates along one axis; absent = all that both ends have. Read from 3, [3, 1], "0..4", or a list of those.
using Picks = std::optional<std::vector<std::int64_t>>;

/// What a step selects. `to`: where each pick of the same position goes (move, get); absent = to itself.
struct StepSelection {
  Picks layers, kv, tokens, heads, channels;
  bool operator==(const StepSelection&) const = default;
};

/// One operation. script_table.cpp lists the fields of each op (one table per op).
struct Action {
  Operation op{Operation::nothing};
  // write, move, read, put, get: the bytes of a request through views
  std::string request;
  std::vector<View> from, to;
  StepSelection pick, pick_to;
  std::optional<std::vector<std::int64_t>> from_blocks, to_blocks;  ///< instead of the request's table
  bool splits{true};         ///< move, copy, put, get: copies are cut where a registration or a mapping ends
  std::string parts{"all"};  ///< all | data | scales
  // write: what; fill: what
  std::string content{"tags"};  ///< tags | codes (every code in turn) | values (numbers, encoded as the view's dtype says)
  std::string value;            ///< fill: poison | zero | hex bytes, repeated
  // copy, fill: raw ranges of one allocation each. register, unregister, check: to_offset (key `offset`) and bytes of
  // `memory`
  std::int64_t from_offset{0}, to_offset{0}, bytes{0}, count{1}, from_step{0},
      to_step{0};  ///< bytes 0: everything from the offset
  // register, unregister
  std::optional<std::int64_t> maps;  ///< where in the memory the registration really begins
  // read: how codes become numbers
  std::string output;          ///< name of the output; default the step's name (filled in on reading)
  bool decode{false};          ///< numbers (fp32) rather than bytes
  std::string scales{"used"};  ///< used | ignored | twice
  // put, get
  std::string store;
  std::map<std::string, std::string> key;
  std::string on_exists{"replace"};  ///< replace | keep
  // assign: the block table of a request from now on (`blocks` as in the request)
  std::map<std::string, std::vector<std::int64_t>> blocks;
  std::optional<std::uint32_t> generation;
  std::optional<std::int64_t> tokens;
  // signal, wait, complete, fail, raise, refuse, crash, require, unpack, hang
  std::string event;                                 ///< name
  nlohmann::json fields = nlohmann::json::object();  ///< signal: its fields; wait: the fields it requires
  std::string in{"transfer"};                        ///< wait, hang: transfer | kernel | handshake
  std::string text;                                  ///< message
  std::string about;  ///< require: dims groups heads layers block_size bytes stride alignment registration dtype capability
                      ///< tokens key
  nlohmann::json expects, found;                    ///< require: must be equal; unpack: names of dims | resolved: the dims
  nlohmann::json needs = nlohmann::json::object();  ///< require: fact of the arch -> least value
  nlohmann::json has = nlohmann::json::object();    ///< resolved: those facts of the case's arch
  std::string otherwise{"refuse"};                  ///< require, unpack, access outside: refuse | raise | crash | go on
  std::string signal{"SIGSEGV"};                    ///< crash
  // register, unregister, unpack, check
  std::string memory;       ///< "P" or "P/kv.L0"; check: all when empty
  std::string is{"exact"};  ///< exact | unchanged | any
  // when, in the actual sequence
  std::string after, before;     ///< name of a step of the intended sequence
  std::string reads{"execute"};  ///< issue: source bytes are taken at the step's own place, written when it executes
  std::string table{"execute"};  ///< the same for the block table
  bool operator==(const Action&) const = default;
};

struct Step {
  std::string name;  ///< unique; default "<op><position>", the first step at 1
  Action intended;   ///< op "nothing": no such step was intended
  bool as_intended{true};
  std::vector<Action> actual;  ///< when not as_intended; empty = skipped
  bool operator==(const Step&) const = default;
};

struct Scenario {
  std::map<std::string, Memory> memories;
  std::map<std::string, ScenarioRequest> requests;
  std::vector<Step> steps;
  bool empty() const { return steps.empty(); }
  bool operator==(const Scenario&) const = default;
};

/// Everything, for transport. Case files have a separate form: catalogue/scenario_table.hpp.
nlohmann::json to_json(const Scenario& scenario);
Scenario scenario_from_json(const nlohmann::json& json);  ///< throws nlohmann::json::exception

}  // namespace kvcts::scenario
