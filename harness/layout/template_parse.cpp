// Parser and printer of templates.
#include <algorithm>
#include <array>

#include "layout/scanner.hpp"
#include "layout/template.hpp"
#include "layout/template_tree.hpp"

namespace kvcts::layout {
namespace {

constexpr int depth_limit = 32;

// ---- expressions -----------------------------------------------------------------------------------------------------

class ExpressionParser {
 public:
  explicit ExpressionParser(Scanner& in) : in_(in) {}
  TemplateExpression parse() {
    sum();
    return std::move(out_);
  }

 private:
  void emit(char op, std::int64_t value = 0) { out_.steps.push_back({op, value}); }
  bool follows(std::string_view ops) {
    const std::size_t back = in_.column();
    in_.spaces();
    if (in_.peek() != '\0' && ops.find(in_.peek()) != std::string_view::npos) return true;
    in_.rewind(back);
    return false;
  }
  void chain(std::string_view ops, void (ExpressionParser::*operand)()) {
    (this->*operand)();
    while (follows(ops)) {
      const char op = in_.peek();
      in_.skip();
      out_.text += op;
      (this->*operand)();
      emit(op);
    }
  }
  void sum() { chain("+-", &ExpressionParser::product); }
  void product() { chain("*/", &ExpressionParser::factor); }
  void factor() {
    in_.spaces();
    const char c = in_.peek();
    if (c >= '0' && c <= '9') {
      const std::int64_t value = in_.integer("a number");
      emit('#', value);
      out_.text += std::to_string(value);
    } else if (c != '\0' && std::string_view("LBNHDVxG").find(c) != std::string_view::npos) {
      in_.skip();
      emit(c);
      out_.text += c;
    } else {
      in_.fail("a number or one of L B N H D V x G");
    }
  }

  Scanner& in_;
  TemplateExpression out_;
};

// ---- parts -----------------------------------------------------------------------------------------------------------

/// What a path from the root has placed so far.
struct Placed {
  std::array<bool, axis_count> whole{}, outer{}, inner{};
  std::array<std::string, axis_count> factor;
};

bool starts_word(char c) { return c >= 'a' && c <= 'z'; }

class Parser {
 public:
  explicit Parser(std::string_view text) : in_(text) {}

  Tree parse() {
    Tree tree;
    do {
      tree.regions.push_back(region());
    } while (in_.accept('&'));
    if (!in_.done()) in_.fail("'&' or the end of the template");
    return tree;
  }

 private:
  TemplateRegion region() {
    TemplateRegion r;
    Placed placed;
    r.part.column = in_.column();
    component(r.part);
    for (in_.spaces(); at_list_level(); in_.spaces()) {
      const Axis axis = *axis_from_letter(in_.peek());
      place(placed, {axis, ModeSpec::Kind::whole, {}, {}, in_.column()});
      in_.skip();
      in_.spaces();
      in_.skip();  // the x
      r.list.push_back(axis);
    }
    part(r.part, placed, 0);
    return r;
  }

  /// AXIS 'x' with the x as a separate word.
  bool at_list_level() {
    if (!axis_from_letter(in_.peek())) return false;
    const std::size_t back = in_.column();
    in_.skip();
    in_.spaces();
    const bool found = in_.peek() == 'x' && std::isalnum(static_cast<unsigned char>(in_.peek(1))) == 0;
    in_.rewind(back);
    return found;
  }

  void component(TemplatePart& p) {
    in_.spaces();
    if (!starts_word(in_.peek())) return;
    const std::size_t back = in_.column();
    const auto word = in_.word();
    if (word == "data" || word == "scale" || word == "gscale") {
      if (p.component) {
        in_.rewind(back);
        in_.fail("one component per part");
      }
      p.component = component_from_name(word);
    } else {
      in_.rewind(back);
    }
  }

  void part(TemplatePart& p, Placed placed, int depth) {
    if (depth > depth_limit) in_.fail("at most " + std::to_string(depth_limit) + " levels of braces");
    bool open = true;  // modes may follow
    for (in_.spaces(); open; in_.spaces()) {
      const char c = in_.peek();
      if (axis_from_letter(c)) {
        if (at_list_level()) in_.fail("list levels before every other mode");
        p.modes.push_back(mode());
        place(placed, p.modes.back());
      } else if (c == '{') {
        braces(p, placed, depth);
        return;
      } else if (starts_word(c)) {
        const std::size_t back = in_.column();
        if (in_.word() == "pad") {
          p.pad = ExpressionParser(in_).parse();
          open = false;
        } else {
          in_.rewind(back);
          const bool had = p.component.has_value();
          component(p);
          if (in_.column() == back) in_.fail("a mode, data, scale, gscale, pad, ':' or '{'");
          open = p.modes.empty() && !had;  // before the modes, or at their end
        }
      } else {
        open = false;
      }
    }
    if (!p.pad && in_.accept(':')) {
      dtype(p);
      in_.spaces();
      if (axis_from_letter(in_.peek()) || starts_word(in_.peek()))
        in_.fail("the dtype behind the modes and the component of its part (scale C=0..4 :fp32)");
    }
    in_.spaces();
    for (Axis axis : all_axes) {
      const auto a = static_cast<std::size_t>(axis);
      const bool alone = placed.outer[a] && p.component == Component::scale;  // one scale per n coordinates
      if (!p.pad && placed.outer[a] != placed.inner[a] && !alone) {
        in_.fail(std::string("both digits of the split axis (") + letter(axis) + '/' + placed.factor[a] + " and " +
                 letter(axis) + '%' + placed.factor[a] + ") before the end of the part");
      }
    }
  }

  void braces(TemplatePart& p, const Placed& placed, int depth) {
    in_.expect('{');
    do {
      TemplatePart child;
      in_.spaces();
      child.column = in_.column();
      if (in_.peek() == ';' || in_.peek() == '}' || in_.peek() == '\0') in_.fail("a part");
      component(child);
      if (child.component && p.component && child.component != p.component)
        in_.fail("no second component inside a component");
      if (!child.component) child.component = p.component;
      part(child, placed, depth + 1);
      p.parts.push_back(std::move(child));
    } while (in_.accept(';'));
    in_.spaces();
    in_.expect('}');
    in_.spaces();
  }

  void dtype(TemplatePart& p) {
    in_.spaces();
    const std::size_t back = in_.column();
    const auto word = in_.word();
    try {
      p.dtype = dtype_from_name(word);
    } catch (const Error& e) {
      in_.rewind(back);
      in_.fail(std::string("a dtype (") + e.what() + ")");
    }
    if (in_.accept('.')) {
      if (in_.word() != "hi") in_.fail("'hi' before this");
      p.high_nibble_first = true;
    }
  }

  ModeSpec mode() {
    ModeSpec m;
    m.column = in_.column();
    m.axis = *axis_from_letter(in_.peek());
    in_.skip();
    const char c = in_.peek();
    if (c == '/' || c == '%') {
      in_.skip();
      m.kind = c == '/' ? ModeSpec::Kind::outer : ModeSpec::Kind::inner;
      m.a = ExpressionParser(in_).parse();
    } else if (c == '=') {
      in_.skip();
      m.kind = ModeSpec::Kind::at;
      m.a = ExpressionParser(in_).parse();
      if (in_.peek() == '.' && in_.peek(1) == '.') {
        in_.skip();
        in_.skip();
        m.kind = ModeSpec::Kind::range;
        m.b = ExpressionParser(in_).parse();
      }
    }
    const char next = in_.peek();
    if (next != '\0' && std::string_view(" \t\r\n{};:&").find(next) == std::string_view::npos) {
      in_.fail("a space after the mode");
    }
    return m;
  }

  void place(Placed& placed, const ModeSpec& m) {
    const auto a = static_cast<std::size_t>(m.axis);
    const bool outer = m.kind == ModeSpec::Kind::outer;
    const bool inner = m.kind == ModeSpec::Kind::inner;
    const bool taken = placed.whole[a] || (outer   ? placed.outer[a]
                                           : inner ? placed.inner[a]
                                                   : placed.outer[a] || placed.inner[a]);
    if (taken) {
      in_.rewind(m.column);
      in_.fail(std::string("axis ") + letter(m.axis) + " only once on a path");
    }
    if ((outer || inner) && !placed.factor[a].empty() && placed.factor[a] != m.a.text) {
      in_.rewind(m.column);
      in_.fail(std::string("the same split of axis ") + letter(m.axis) + " as before (" + placed.factor[a] + ")");
    }
    if (outer || inner) placed.factor[a] = m.a.text;
    (outer ? placed.outer : inner ? placed.inner : placed.whole)[a] = true;
  }

  Scanner in_;
};

// ---- printing --------------------------------------------------------------------------------------------------------

std::string print(const ModeSpec& m) {
  const std::string axis(1, letter(m.axis));
  switch (m.kind) {
    case ModeSpec::Kind::outer:
      return axis + '/' + m.a.text;
    case ModeSpec::Kind::inner:
      return axis + '%' + m.a.text;
    case ModeSpec::Kind::at:
      return axis + '=' + m.a.text;
    case ModeSpec::Kind::range:
      return axis + '=' + m.a.text + ".." + m.b.text;
    case ModeSpec::Kind::whole:
      break;
  }
  return axis;
}

std::string print(const TemplatePart& p, std::optional<Component> outside) {
  std::vector<std::string> words;
  if (p.component && p.component != outside && p.component != Component::data) words.emplace_back(name(*p.component));
  for (const ModeSpec& m : p.modes) words.push_back(print(m));
  if (p.pad) words.push_back("pad " + p.pad->text);
  if (p.dtype) words.push_back(':' + std::string(name(*p.dtype)) + (p.high_nibble_first ? ".hi" : ""));
  if (!p.parts.empty()) {
    std::string inner;
    for (const TemplatePart& child : p.parts) inner += (inner.empty() ? "{ " : " ; ") + print(child, p.component);
    words.push_back(inner + " }");
  }
  std::string out;
  for (const auto& w : words) out += (out.empty() ? "" : " ") + w;
  return out;
}

}  // namespace

std::int64_t TemplateExpression::value(const Variables& v) const {
  std::vector<std::int64_t> stack;
  for (const Step& step : steps) {
    switch (step.op) {
      case '#':
        stack.push_back(step.value);
        continue;
      case 'L':
        stack.push_back(v.L);
        continue;
      case 'B':
        stack.push_back(v.B);
        continue;
      case 'N':
        stack.push_back(v.N);
        continue;
      case 'H':
        stack.push_back(v.H);
        continue;
      case 'D':
        stack.push_back(v.D);
        continue;
      case 'V':
        stack.push_back(v.V);
        continue;
      case 'x':
        stack.push_back(v.x);
        continue;
      case 'G':
        if (!v.G) throw Error("the template uses G, but the scheme has no scales; choose a scheme with scales");
        stack.push_back(*v.G);
        continue;
      default:
        break;
    }
    const std::int64_t b = stack.back();
    stack.pop_back();
    std::int64_t& a = stack.back();
    switch (step.op) {
      case '*':
        a = checked::mul(a, b);
        break;
      case '+':
        a = checked::add(a, b);
        break;
      case '-':
        a = checked::sub(a, b);
        break;
      default:
        if (b == 0 || a % b != 0) {
          throw Error("'" + text + "' does not divide: " + std::to_string(a) + " by " + std::to_string(b) +
                      "; choose a geometry that fits this layout");
        }
        a /= b;
    }
  }
  return stack.back();
}

Tree parse_template(std::string_view text) { return Parser(text).parse(); }

void check_template(std::string_view text) { (void)parse_template(text); }

std::string print_template(const Tree& tree, std::string_view level) {
  std::string out;
  for (const TemplateRegion& r : tree.regions) {
    if (!out.empty()) out += " & ";
    for (Axis axis : r.list) out += letter(axis) + std::string(level);
    out += print(r.part, std::nullopt);
  }
  return out;
}

}  // namespace kvcts::layout
