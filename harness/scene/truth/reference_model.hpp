// The truth's state while it is worked out, one object per scenario. Parts: reference_model.cpp (the sequence, writes and
// fills, how it ends), elements.cpp (move, copy, read, put, get), checks.cpp (registrations and checkpoints).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "scene/truth/byte_ranges.hpp"
#include "scene/truth/truth.hpp"
#include "scene/truth/walk.hpp"

namespace kvcts::scenario {

/// A code, by the names of its bytes. Four bits: half of `bytes[0]`.
struct SymbolicCode {
  int width{0};           ///< bits; 0 = there is none
  layout::Dtype dtype{};  ///< of the plane that holds it
  std::array<SymbolId, 4> bytes{};
  bool high{false};
  int buffer{-1};  ///< where it was found
  std::int64_t offset{0};
};

/// The owner of a code, in dense order.
struct Coordinate {
  layout::Component component{};
  std::int64_t kv{0}, layer{0}, token{0}, head{0}, channel{0};
  auto operator<=>(const Coordinate&) const = default;
};

/// Codes by coordinate, over the smallest box that holds them, without its layers and tokens that have none.
class Elements {
 public:
  /// Reserves room for the elements of `stops`.
  explicit Elements(const std::vector<Stop>& stops);
  SymbolicCode& slot(const Coordinate& at) { return codes_[index(at)]; }
  /// nullptr: no such code.
  const SymbolicCode* find(const Coordinate& at) const;
  /// Calls f(coordinate, code) in dense order.
  template <class F>
  void each(F&& f) const;
  struct Box {
    Coordinate lo, hi;  ///< hi is exclusive
    std::size_t begin{0};
    std::vector<std::int64_t> layers, tokens;  ///< ascending
    bool empty() const { return hi.kv == lo.kv; }
  };
  const Box& box(layout::Component component) const { return boxes_[static_cast<std::size_t>(component)]; }

 private:
  std::size_t index(const Coordinate& at) const;
  std::array<Box, 3> boxes_;
  std::vector<SymbolicCode> codes_;
};

class ReferenceModel {
 public:
  ReferenceModel(const Scenario& scenario, const AddressSpace& space, SymbolTable& symbols);
  Truth truth_of();

 private:
  struct Table {
    std::vector<std::int64_t> ids, positions;
    bool windows{false};  ///< the scenario lists the positions: the others lie elsewhere
  };
  struct RequestNow {
    std::int64_t tokens{0}, first_token{0};
    std::uint32_t generation{1};
    std::map<std::string, Table> tables;
  };
  struct Range {
    std::int64_t begin{0}, end{0};
  };
  /// A code and where it goes.
  struct Placed {
    int buffer{-1};
    std::int64_t bit{0};
    SymbolicCode code;
  };
  struct Access {
    std::string what;
    int buffer{-1};
    std::int64_t offset{0}, bytes{0};
    bool write{false};
  };

  // reference_model.cpp
  bool act(const Step& step);  ///< false: the sequence ends here
  void event(nlohmann::json fields);
  void end(const std::string& kind, const std::string& text);
  void demand();  ///< require, unpack
  void write();
  void fill();
  ViewPart whole_blocks(const ViewWalk& view) const;  ///< of the step's list, whoever owns them
  void assign();
  const ViewWalk& walk(const View& view);
  RequestNow& request();
  /// What the step takes from a view; throws where the request's blocks do not reach, or the view has no such block.
  ViewPart wanted(const ViewWalk& view, const std::optional<std::vector<std::int64_t>>& instead, const StepSelection& pick);
  void expect_picks(const std::vector<View>& views, const StepSelection& pick);
  /// The request's elements in the views, each inside its buffer. `unpicked`: checks picks without applying them.
  std::vector<Stop> stops(const std::vector<View>& views, const std::optional<std::vector<std::int64_t>>& instead,
                          const StepSelection& pick, bool unpicked = false);
  SymbolId id_at(int buffer, std::int64_t offset);
  SymbolicCode code_at(const Stop& stop);
  SymbolicCode content_of(const Stop& stop, std::uint32_t generation);
  void put(int buffer, std::int64_t offset, SymbolId id);  ///< one byte
  void put_code(int buffer, std::int64_t bit, const SymbolicCode& code);
  void expect_inside(int buffer, std::int64_t offset, std::int64_t bytes) const;
  /// Byte ranges named by a raw step: "P", all of it, or `bytes` from an offset, `count` times.
  struct Span {
    int buffer{-1};
    std::int64_t begin{0}, bytes{0};
  };
  std::vector<Span> spans(const std::string& name, std::int64_t offset, std::int64_t bytes, std::int64_t count,
                          std::int64_t step) const;

  // elements.cpp
  void move();
  void copy();
  void read();
  void put();
  void get();
  void keep_inside(Span& from, Span& to);
  void copy_span(const Span& from, const Span& to);
  Elements gather(const std::vector<Stop>& stops);
  SymbolId reference(const SymbolicCode& code);  ///< Id + 1 for Symbol::whole, scale, global_scale
  Symbol number_of(const Coordinate& at, const SymbolicCode& code, const SymbolicCode* scale,
                   const SymbolicCode* global_scale);
  /// Slots behind the last token, in its block: code that moves whole blocks writes them (scene/oracle/tail.hpp), so they do
  /// not matter until a step writes them.
  void free_unused_slots();
  std::vector<Stop> unused_slots(const View& view);
  /// Writes them unless a check objects; returns whether the step took place.
  bool place(const std::vector<Placed>& codes);

  // checks.cpp
  void registration();
  void check();
  std::map<int, ByteRanges> checked_bytes();  ///< those that the check refers to
  /// What was there at the last check becomes what must be there.
  void keep_unchanged(Checkpoint& here, const std::map<int, ByteRanges>& named) const;
  void checkpoint(const std::string& step);
  std::map<int, ByteRanges> what_may_be_any() const;
  /// Objections to touching these bytes.
  std::optional<Access> against(int buffer, std::int64_t offset, std::int64_t bytes, bool write) const;
  /// Records the first of several. Returns whether the step is cancelled.
  bool stopped(const std::vector<Access>& accesses);

  const Scenario& scenario_;
  const AddressSpace& space_;
  SymbolTable& symbols_;
  Truth truth_;
  std::vector<SymbolImage> images_;
  std::map<std::string, RequestNow> requests_;
  std::map<std::string, std::unique_ptr<ViewWalk>> walks_;
  std::set<int> registered_only_;  ///< buffers whose memory the scenario registers
  std::map<int, std::vector<Range>> ranges_;
  std::map<std::pair<std::string, std::map<std::string, std::string>>, std::vector<SymbolicCode>> stored_;
  std::vector<std::pair<std::string, nlohmann::json>> signals_;
  std::map<int, ByteRanges> any_;
  std::map<int, ByteRanges> unused_;  ///< buffer -> bytes of unused slots
  const Step* step_{nullptr};
  const Action* action_{nullptr};
  std::string parts_;  ///< parts the step takes
};

template <class F>
void Elements::each(F&& f) const {
  for (const Box& box : boxes_) {
    std::size_t i = box.begin;
    Coordinate at = box.lo;
    if (box.empty()) continue;
    for (at.kv = box.lo.kv; at.kv < box.hi.kv; ++at.kv)
      for (const std::int64_t layer : box.layers)
        for (const std::int64_t token : box.tokens)
          for (at.head = box.lo.head; at.head < box.hi.head; ++at.head)
            for (at.channel = box.lo.channel; at.channel < box.hi.channel; ++at.channel, ++i) {
              at.layer = layer, at.token = token;
              if (codes_[i].width > 0) f(static_cast<const Coordinate&>(at), codes_[i]);
            }
  }
}

}  // namespace kvcts::scenario
