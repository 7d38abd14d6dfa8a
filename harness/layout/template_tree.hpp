// The parsed form of a template (template.hpp has the grammar). Internal to the layout library.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "layout/layout.hpp"

namespace kvcts::layout {

/// Letters of an expression and their values.
struct Variables {
  std::int64_t L{0}, B{0}, N{0}, H{0}, D{0}, V{0}, x{0};
  std::optional<std::int64_t> G;  ///< absent where the scheme has no scales
};

/// A number or a formula in postfix order; `text` is the source text, without spaces.
struct TemplateExpression {
  struct Step {
    char op;             ///< '#' a number, a letter a variable, else * / + -
    std::int64_t value;  ///< of a number
  };
  std::vector<Step> steps;
  std::string text;

  /// Throws Error on overflow, on a division with a remainder, and on G where there are no scales.
  std::int64_t value(const Variables& variables) const;
};

struct ModeSpec {
  enum class Kind { whole, outer, inner, at, range };
  Axis axis{};
  Kind kind{Kind::whole};
  TemplateExpression a, b;  ///< outer, inner, at: a; range: a..b
  std::size_t column{0};
  bool in_groups{false};  ///< set in a side plane of scales: the range is in channels and is divided by the group size
};

struct TemplatePart {
  std::optional<Component> component;
  std::vector<ModeSpec> modes;
  std::vector<TemplatePart> parts;  ///< of braces; empty for a leaf
  std::optional<Dtype> dtype;
  bool high_nibble_first{false};
  std::optional<TemplateExpression> pad;
  std::size_t column{0};
};

struct TemplateRegion {
  std::vector<Axis> list;  ///< list levels, outermost first
  TemplatePart part;
};

struct Tree {
  std::vector<TemplateRegion> regions;
};

/// Throws Error with the column: grammar, an axis placed twice, one digit of a split without the other.
Tree parse_template(std::string_view text);
/// One canonical text of the tree; `level` stands for the 'x' of list levels.
std::string print_template(const Tree& tree, std::string_view level = " x ");

}  // namespace kvcts::layout
