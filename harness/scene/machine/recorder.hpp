// The machine's state while it records a program, one object per sequence. Parts: recorder.cpp (sequence, tables, ends),
// reading.cpp, stores.cpp (put, get), rows.cpp (rows of views), transfer.cpp (runs, registrations, bounds).
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "scene/machine/copy_program.hpp"
#include "scene/machine/locator.hpp"

namespace kvcts::scenario {

/// Where the blocks of a request are now.
struct Table {
  std::vector<std::int64_t> ids, positions;
  bool operator==(const Table&) const = default;
};
struct RequestNow {
  std::int64_t tokens{0}, first_token{0};
  std::uint32_t generation{1};
  std::map<std::string, Table> tables;
  bool operator==(const RequestNow&) const = default;
};

/// A row of channels of one element group, as a view holds it.
struct CodeRow {
  const PlaneLocator* plane{nullptr};
  layout::Component component{};
  std::int64_t kv{0}, layer{0}, token{0}, head{0};
  std::int64_t block{0};  ///< index in the table; a run never crosses its block
  std::int64_t sum{0};    ///< sum over all axes except the channel
  std::int64_t shift{0};  ///< bits by which alignment moves the row
  bool whole{true};       ///< of an unblocked plane
};

/// Bits [src, src + n) to [dst, dst + n); both ends inside one block.
struct BitRun {
  int src_buffer{-1}, dst_buffer{-1};
  std::int64_t src{0}, dst{0}, n{0};
  bool operator==(const BitRun&) const = default;
};

/// What later steps of a sequence depend on, besides bytes.
struct RecorderProgress {
  struct Range {
    std::int64_t begin{0}, end{0}, maps{0};
    bool operator==(const Range&) const = default;
  };
  struct Blob {
    int buffer{-1};
    std::int64_t bytes{0};
    std::string step;  ///< that put it
    std::vector<std::pair<std::int64_t, std::int64_t>>
        parts;  ///< stored bits, where only part of the object was put; empty = all
    bool operator==(const Blob&) const = default;
  };
  struct Captured {
    std::map<std::string, RequestNow> tables;
    int buffer{-1};            ///< holds the source bytes, run after run
    std::vector<BitRun> runs;  ///< source: in `buffer`
    bool operator==(const Captured&) const = default;
  };
  std::map<std::string, RequestNow> requests;
  std::map<int, std::vector<Range>> registered;  ///< buffer -> ranges; only buffers that require registration
  std::map<std::string, std::map<std::string, Blob>> stores;
  std::vector<std::pair<std::string, nlohmann::json>> signals;
  std::map<std::string, Captured> captured;  ///< step -> what its issue took
  bool operator==(const RecorderProgress&) const = default;
};

/// An illegal access.
struct Violation {
  std::string what;  ///< outside | not registered | straddles a registration | straddles a mapping
  int buffer{-1};
  std::int64_t offset{0}, bytes{0};
  bool write{false};
};

/// Adjacent codes of one row, and where they are in a stored object.
struct Stored {
  std::array<std::int64_t, 5> row;    ///< component, kv, layer, token, head, as in the object
  std::int64_t channel{0}, count{1};  ///< the first one, as in the object
  BitRange bits_at;                   ///< of all of them
  std::int64_t at{0};                 ///< bit in the object
};

/// The source of a destination coordinate's pick: a move and a get send pick i to place i of the other list.
std::int64_t source_of(const Picks& from, const Picks& to, std::int64_t coordinate);
/// What an action takes, by destination coordinate.
StepSelection destinations(const Action& action);

class Recorder {
 public:
  Recorder(const Scenario& scenario, const AddressSpace& space, CopyProgram& program, Locators& locators);
  /// Continues from there; `program` has the buffers of that moment.
  Recorder(const Scenario& scenario, const AddressSpace& space, CopyProgram& program, Locators& locators,
           RecorderProgress progress);
  void run(const Sequence& sequence);
  bool act(const StepExecution& execution);  ///< false: the sequence has ended
  void carry_out(const StepExecution& execution);
  void finish();  ///< after the last action, unless one ended the sequence: the last check
  const RecorderProgress& progress() const { return now_; }

 private:
  using Range = RecorderProgress::Range;
  using Blob = RecorderProgress::Blob;
  using Captured = RecorderProgress::Captured;
  struct Reading;

  // recorder.cpp
  void end(const std::string& kind, const StepExecution& execution, const std::string& text);
  void event(const StepExecution& execution, nlohmann::json fields);
  bool stopped_by(const StepExecution& execution, const std::vector<Violation>& violations, bool transfer);
  /// Picks that no view of the step holds: an index beyond its list, which makes the code fail. Returns whether the step is
  /// cancelled.
  bool picks_beyond(const StepExecution& execution);
  bool require(const StepExecution& execution);
  void copy(const StepExecution& execution);
  void assign(const StepExecution& execution);
  void wait(const StepExecution& execution);
  void write(const StepExecution& execution);
  void fill(const StepExecution& execution);
  void registration(const StepExecution& execution);
  void move(const StepExecution& execution);
  int temporary(std::int64_t bytes);

  // reading.cpp
  void read(const StepExecution& execution);

  // stores.cpp
  void put(const StepExecution& execution);
  void get(const StepExecution& execution);
  /// What a put or get takes from its views, in object order (component, K/V, layer, token, head, channel).
  std::vector<Stored> stored(const Action& action);
  /// The same; a part of the step's intended set keeps its place in that object. `bits`: of the whole object.
  std::vector<Stored> stored_in(const std::string& step, const Action& action, std::int64_t& bits, bool& part);

  // rows.cpp
  const ViewLocator& locator(const View& view);
  RequestNow& request(const std::string& name);
  Table table_of(const RequestNow& request, const ViewLocator& view,
                 const std::optional<std::vector<std::int64_t>>& instead) const;
  /// Rows of a view that belong to a request, in dense order within each plane.
  std::vector<CodeRow> rows(const ViewLocator& view, const RequestNow& request, const Table& table,
                            const StepSelection& pick, const std::string& parts) const;
  /// The row of `view` at a coordinate, from each plane that holds it, best first.
  std::vector<CodeRow> find_rows(const ViewLocator& view, const RequestNow& request, const Table& table,
                                 layout::Component component, std::int64_t kv, std::int64_t layer, std::int64_t token,
                                 std::int64_t head) const;
  /// Rows of the scales of an element. Along an axis with one scale per view, that one; a scale for several tokens of a
  /// block is stored at the first of them.
  std::vector<CodeRow> find_scales(const ViewLocator& view, const RequestNow& request, const Table& table,
                                   layout::Component component, std::int64_t kv, std::int64_t layer, std::int64_t token,
                                   std::int64_t head) const;
  std::optional<BitRange> bits_at(const CodeRow& row, std::int64_t channel) const;
  /// All codes of a row as one wide code, where they are adjacent.
  std::optional<BitRange> contiguous_bits(const CodeRow& row) const;
  void settle(CodeRow& row, const ViewLocator& view, const Picks& channels) const;

  // transfer.cpp
  std::vector<BitRun> runs_of_move(const Action& action);
  void add_bits(std::vector<BitRun>& runs, const BitRange& from, const BitRange& to, bool new_block) const;
  /// Applies registrations and boundaries: returns the runs that reach memory, and the objections to them.
  std::vector<Violation> post(std::vector<BitRun>& runs, bool splits) const;
  /// Shortens a run to what one mapping and one registration hold at one end, where it may be split; moves that end to
  /// where its registration maps it. nullopt: good.
  std::optional<Violation> bound(BitRun& piece, int buffer, std::int64_t& bit, bool write, bool splits) const;
  void emit(const std::vector<BitRun>& runs);
  /// The same, simultaneously: if a run would read what another wrote, all go through a buffer.
  void emit_at_once(std::vector<BitRun> runs);
  bool inside(int buffer, std::int64_t offset, std::int64_t bytes) const;

  const Scenario& scenario_;
  const AddressSpace& space_;
  CopyProgram& program_;
  Locators& locators_;
  std::set<int> needs_registration_;
  RecorderProgress now_;
};

}  // namespace kvcts::scenario
