// Axis values, numbered, with their catalogue facts: points, constraints, expressions and covers build on them. A point is
// one value number per axis.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "matrix/axes.hpp"
#include "matrix/value.hpp"

namespace kvcts::matrix {

using Point = std::array<std::uint16_t, axis_count>;
inline std::uint16_t& at(Point& point, AxisId id) { return point[static_cast<std::size_t>(id)]; }
inline std::uint16_t at(const Point& point, AxisId id) { return point[static_cast<std::size_t>(id)]; }

/// A name of an expression, resolved: an axis, or a fact of the entity that its value names. fact -1 = the axis itself.
struct NameRef {
  AxisId axis{};
  int fact{-1};
  Type type{Type::none};
};

class Space {
 public:
  /// Reads the kinds of the catalogue that axes draw from. Keeps a reference.
  explicit Space(const Catalogue& catalogue);

  const Catalogue& catalogue() const { return catalogue_; }
  int size(AxisId axis) const { return static_cast<int>(values_[static_cast<std::size_t>(axis)].size()); }
  const std::string& text(AxisId axis, int value) const {
    return values_[static_cast<std::size_t>(axis)][static_cast<std::size_t>(value)];
  }
  /// Number of a value; an open axis adds new ones. -1 when the axis has no such value.
  int find(AxisId axis, std::string_view text);
  /// As find(), but throws Error with near names.
  std::uint16_t number(AxisId axis, std::string_view text);
  /// Values of the axis that a list of values and globs names, in list order; "!glob" removes. Throws Error on a value or
  /// glob that matches nothing.
  std::vector<std::uint16_t> select(AxisId axis, const std::vector<std::string>& patterns);

  /// All axes at their default; the producer is value 0.
  Point origin() const { return origin_; }
  /// One point, one name: a consumer equal to the producer becomes "same", and a block size equal to the geometry's becomes
  /// "geometry".
  Point canonical(Point point) const;

  /// The consumer as a value of the consumer axis: the producer's name where it is "same".
  std::uint16_t consumer_of(const Point& point) const;

  /// "dtype" or "dtype.family". Throws Error with near names.
  NameRef name(std::string_view text) const;
  /// Is this the name of an axis, or axis.fact with an axis of that name?
  bool is_name(std::string_view text) const;
  /// What the name means at a point. Block sizes are the effective ones; consumer facts are the producer's where it is
  /// "same".
  Value value(const NameRef& ref, const Point& point) const;
  /// Which axes value() looks at (bit per AxisId).
  std::uint32_t support(const NameRef& ref) const;
  /// A fact of the entity that an axis value names.
  const Value& fact(AxisId axis, int fact, int value) const;
  std::vector<std::string> fact_names(AxisId axis) const;
  /// All texts that a name can take, for typos in literals; empty = not closed.
  std::vector<std::string> texts_of(const NameRef& ref) const;

  // Numbers the built-in rules need (cached from the catalogue).
  std::int64_t block_size(const Point& point, AxisId which) const;  ///< effective; which: pbs or cbs
  std::int64_t integer(AxisId axis, int value) const;               ///< of an open axis

 private:
  struct FactColumn {
    std::string name;
    Type type{Type::none};
    std::vector<Value> values;  ///< by value number
  };
  void add(AxisId axis, const std::vector<std::string>& values);
  void set_fact(AxisId axis, int value, const std::string& name, Value fact_value, Type type_hint);
  template <class T>
  void add_facts(AxisId axis, int value, const T& entry);
  void add_layout_facts(AxisId side, int value, const catalogue::LayoutEntry& layout);

  const Catalogue& catalogue_;
  std::array<std::vector<std::string>, axis_count> values_;
  std::array<std::unordered_map<std::string, std::uint16_t>, axis_count> numbers_;
  std::array<std::vector<std::int64_t>, axis_count> integers_;
  std::array<std::vector<FactColumn>, axis_count> facts_;
  std::vector<std::int64_t> geometry_block_size_;
  Point origin_{};
};

}  // namespace kvcts::matrix
