// Axis expressions select points. Filters, constraints, suites and waivers share this one language.
//
//   dtype == bf16 && engine != ucx-tcp              axes; words need no quotes
//   arch < sm_89 && dtype.family == fp8             catalogue facts; archs compare by number, cpu with nothing
//   arch.fp8_convert || !arch.tma                   true-or-false facts stand alone
//   producer ~ vllm-* && id ~ "kv/*"                globs; !~ for the opposite
//   dtype in [fp16, bf16] && dtype in producer.dtypes
//   geometry.heads % ptp != 0 && pbs * 2 <= cbs     whole numbers: + - * / % (spaces around - and /)
//
// Precedence, loosest first: ||  &&  !  comparison  + -  * / %. An unknown axis name, a word that the compared axis never
// takes, and operands of the wrong type are errors with the column and the near names.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "matrix/space.hpp"

namespace kvcts::matrix {

/// Values of names where there is no point: hand-written cases (value by name), conditions of layouts.
using Lookup = std::function<Value(const NameRef& ref)>;

/// Free names of an expression that is not about axes (a layout's `requires`): name -> number.
using Numbers = std::function<std::optional<std::int64_t>(std::string_view name)>;

class Expression {
 public:
  /// Parses and checks against the axes and facts of the space. Throws Error "...: column n: expected ..., found ...".
  Expression(std::string_view text, const Space& space);
  Expression(Expression&&) noexcept;
  Expression& operator=(Expression&&) noexcept;
  ~Expression();

  const std::string& text() const;
  /// Bit per axis the answer depends on.
  std::uint32_t support() const;
  bool uses_id() const;

  /// The conditions that && joins: the expression holds where all of them do. Each reads its own axes.
  std::size_t conditions() const { return conditions_.size(); }
  std::uint32_t support(std::size_t condition) const;
  bool holds(std::size_t condition, const Point& point) const;

  /// At a point; `id` is needed only where the expression says `id`. Tabulates sub-expressions over their axes' values on
  /// first use, so a million points cost one look-up each. Not thread-safe.
  bool operator()(const Point& point, std::string_view id = {}) const;
  /// The same without tables, with any source of values.
  bool evaluate(const Lookup& lookup, std::string_view id = {}) const;

  struct Node;

 private:
  const Space* space_;
  std::string text_;
  std::unique_ptr<Node> root_;
  std::vector<const Node*> conditions_;  ///< of root_
};

/// A condition over plain numbers, as in a layout's `requires`: "head_dim % 8 == 0". Throws Error on syntax, on an unknown
/// name and on division by zero.
bool holds(std::string_view condition, const Numbers& numbers, const std::vector<std::string>& known_names);

}  // namespace kvcts::matrix
