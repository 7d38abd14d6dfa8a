#include "matrix/expr.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <optional>

#include "case/catalogue/nearest.hpp"

namespace kvcts::matrix {

namespace {

enum class Op : std::uint8_t {
  constant,
  name,
  id,
  number_name,
  negate,
  add,
  subtract,
  multiply,
  divide,
  modulo,
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  in,
  match,
  not_match,
  not_,
  and_,
  or_,
};

bool is_order(Op op) { return op == Op::less || op == Op::less_equal || op == Op::greater || op == Op::greater_equal; }

}  // namespace

struct Expression::Node {
  Op op{Op::constant};
  Type type{Type::none};
  Value value;       // constant
  NameRef ref;       // name
  std::string word;  // number_name; a pattern
  std::size_t column{0};
  bool bare{false};  // a constant written as a word without quotes
  std::vector<std::unique_ptr<Node>> children;

  std::uint32_t support{0};
  bool has_id{false};

  // Truth by values of the support's axes: 0 not computed yet, 1 false, 2 true.
  mutable std::vector<std::uint8_t> memo;
  mutable std::vector<std::pair<std::size_t, std::size_t>> strides;  // axis, stride
  mutable std::vector<std::size_t> capacity;
  mutable bool no_table{false};
};

namespace {

using Node = Expression::Node;
using NodePtr = std::unique_ptr<Node>;

constexpr std::size_t max_text = 4096;
constexpr int max_nesting = 64;
constexpr std::size_t max_table = std::size_t{1} << 20;

// How names are resolved while parsing: axes of a space, or plain numbers.
struct Names {
  const Space* space{nullptr};
  const std::vector<std::string>* numbers{nullptr};
};

class Parser {
 public:
  Parser(std::string_view text, Names names) : text_(text), names_(names) {}

  NodePtr parse() {
    if (text_.size() > max_text) fail(0, "at most " + std::to_string(max_text) + " characters", "more");
    NodePtr root = disjunction();
    skip();
    if (at_ < text_.size()) fail(at_, "the end, && or ||", shown());
    expect_boolean(*root);
    return root;
  }

 private:
  [[noreturn]] void fail(std::size_t column, const std::string& expected, const std::string& found,
                         const std::string& hint = "") const {
    throw Error("expression '" + std::string(text_.substr(0, 200)) + "', column " + std::to_string(column + 1) +
                ": expected " + expected + ", found " + found + hint);
  }
  std::string shown() const {
    if (at_ >= text_.size()) return "the end";
    std::string out;
    for (const char c : text_.substr(at_, 20)) out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    return "'" + out + "'";
  }
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool take(std::string_view token) {
    skip();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  bool take_word(std::string_view word) {
    skip();
    if (!text_.substr(at_).starts_with(word)) return false;
    const std::size_t end = at_ + word.size();
    if (end < text_.size() && word_char(text_[end])) return false;
    at_ = end;
    return true;
  }
  static bool word_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
  static bool word_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; }

  struct Deeper {
    explicit Deeper(Parser& p) : parser(p) {
      if (++parser.depth_ > max_nesting)
        parser.fail(parser.at_, "at most " + std::to_string(max_nesting) + " levels", "a deeper one");
    }
    ~Deeper() { --parser.depth_; }
    Parser& parser;
  };

  static NodePtr make(Op op, Type type, std::size_t column) {
    auto node = std::make_unique<Node>();
    node->op = op, node->type = type, node->column = column;
    return node;
  }
  static NodePtr join(Op op, Type type, std::size_t column, NodePtr left, NodePtr right) {
    NodePtr node = make(op, type, column);
    node->children.push_back(std::move(left));
    if (right) node->children.push_back(std::move(right));
    for (const auto& child : node->children) {
      node->support |= child->support;
      node->has_id = node->has_id || child->has_id;
    }
    return node;
  }

  void expect_boolean(const Node& node) const {
    if (node.type != Type::boolean) fail(node.column, "something that is true or false", what(node), hint_for(node));
  }
  void expect_integer(const Node& node) const {
    if (node.type != Type::integer) fail(node.column, "a number", what(node), hint_for(node));
  }
  std::string what(const Node& node) const {
    if (node.op == Op::constant && node.bare) return "the word '" + to_text(node.value) + "'";
    return std::string(matrix::name(node.type));
  }
  // A lone word is most often a mistyped name.
  std::string hint_for(const Node& node) const {
    if (node.op != Op::constant || !node.bare) return node.type == Type::text ? "; compare it, e.g. == value" : "";
    return catalogue::suggestion(to_text(node.value), names_.numbers ? *names_.numbers : axis_names());
  }

  NodePtr disjunction() {
    const Deeper deeper(*this);
    NodePtr left = conjunction();
    while (true) {
      skip();
      const std::size_t column = at_;
      if (!take("||")) return left;
      expect_boolean(*left);
      NodePtr right = conjunction();
      expect_boolean(*right);
      left = join(Op::or_, Type::boolean, column, std::move(left), std::move(right));
    }
  }
  NodePtr conjunction() {
    NodePtr left = negation();
    while (true) {
      skip();
      const std::size_t column = at_;
      if (!take("&&")) return left;
      expect_boolean(*left);
      NodePtr right = negation();
      expect_boolean(*right);
      left = join(Op::and_, Type::boolean, column, std::move(left), std::move(right));
    }
  }
  NodePtr negation() {
    const Deeper deeper(*this);
    skip();
    const std::size_t column = at_;
    if (text_.substr(at_).starts_with("!") && !text_.substr(at_).starts_with("!=") && !text_.substr(at_).starts_with("!~")) {
      ++at_;
      NodePtr inner = negation();
      expect_boolean(*inner);
      return join(Op::not_, Type::boolean, column, std::move(inner), nullptr);
    }
    return comparison();
  }

  NodePtr comparison() {
    NodePtr left = sum();
    skip();
    const std::size_t column = at_;
    static constexpr std::pair<std::string_view, Op> operators[]{
        {"==", Op::equal}, {"!=", Op::not_equal}, {"<=", Op::less_equal}, {">=", Op::greater_equal},
        {"<", Op::less},   {">", Op::greater},    {"!~", Op::not_match},  {"~", Op::match},
    };
    for (const auto& [token, op] : operators) {
      if (!take(token)) continue;
      if (op == Op::match || op == Op::not_match) return glob(op, column, std::move(left));
      return compare(op, column, std::move(left), sum());
    }
    if (take_word("in")) return membership(column, std::move(left));
    if (take("=")) fail(column, "'==' to compare", "'='");
    return left;
  }

  NodePtr glob(Op op, std::size_t column, NodePtr left) {
    if (left->type != Type::text && left->type != Type::arch)
      fail(left->column, "text to the left of '~'", what(*left), hint_for(*left));
    skip();
    std::string pattern;
    if (at_ < text_.size() && (text_[at_] == '"' || text_[at_] == '\'')) {
      pattern = quoted();
    } else {
      int brackets = 0;
      while (at_ < text_.size() && !std::isspace(static_cast<unsigned char>(text_[at_])) &&
             (brackets > 0 || (text_[at_] != ')' && text_[at_] != '&' && text_[at_] != '|'))) {
        brackets += text_[at_] == '[' ? 1 : text_[at_] == ']' ? -1 : 0;
        pattern += text_[at_++];
      }
    }
    if (pattern.empty()) fail(at_, "a glob", shown());
    NodePtr node = join(op, Type::boolean, column, std::move(left), nullptr);
    node->word = std::move(pattern);
    return node;
  }

  NodePtr membership(std::size_t column, NodePtr left) {
    if (left->type == Type::none || left->type == Type::list)
      fail(left->column, "a single value to the left of 'in'", what(*left));
    skip();
    if (!take("[")) {
      NodePtr list = sum();
      if (list->type != Type::list) fail(list->column, "a list, or a name that is one", what(*list), hint_for(*list));
      return join(Op::in, Type::boolean, column, std::move(left), std::move(list));
    }
    // a in [x, y] is a == x || a == y, with the checks of ==.
    NodePtr out;
    const Node* first = left.get();
    do {
      NodePtr one = compare(Op::equal, column, out ? clone(*first) : std::move(left), sum());
      if (!out) {
        first = one->children[0].get();
        out = std::move(one);
      } else {
        out = join(Op::or_, Type::boolean, column, std::move(out), std::move(one));
      }
    } while (take(","));
    if (!take("]")) fail(at_, "',' or ']'", shown());
    return out;
  }

  static NodePtr clone(const Node& node) {
    NodePtr out = make(node.op, node.type, node.column);
    out->value = node.value, out->ref = node.ref, out->word = node.word, out->bare = node.bare, out->support = node.support,
    out->has_id = node.has_id;
    for (const auto& child : node.children) out->children.push_back(clone(*child));
    return out;
  }

  NodePtr compare(Op op, std::size_t column, NodePtr left, NodePtr right) {
    if (left->op == Op::constant && left->bare)
      fail(left->column, "a name to the left of the comparison", what(*left), hint_for(*left));
    if (right->op == Op::constant && (right->bare || (right->type == Type::text && left->type == Type::arch)))
      check_word(*left, *right);
    // An arch compares with archs and with plain numbers.
    const auto arch_like = [](const Node& n) { return n.type == Type::arch || n.type == Type::integer; };
    const bool archs = (left->type == Type::arch || right->type == Type::arch) && arch_like(*left) && arch_like(*right);
    if (!archs && left->type != right->type) {
      fail(right->column, std::string(matrix::name(left->type)) + " (as on the left of the comparison)", what(*right));
    }
    if (is_order(op) && !archs && left->type != Type::integer) fail(column, "numbers or archs around an order", what(*left));
    if (left->type == Type::list) fail(left->column, "a single value", what(*left));
    return join(op, Type::boolean, column, std::move(left), std::move(right));
  }

  // The word to the right of a comparison must be one that the left can be.
  void check_word(const Node& left, Node& right) const {
    const std::string word = to_text(right.value);
    if (left.type == Type::arch) {
      if (arch_order(word) < 0 && word != "cpu") fail(right.column, "an arch (sm_NN or cpu)", "'" + word + "'");
      right.type = Type::arch;
    }
    if (left.op != Op::name) return;
    const auto known = names_.space->texts_of(left.ref);
    if (left.type == Type::arch && arch_order(word) >= 0) return;  // ordering against an arch outside the catalogue is fine
    if (left.type != Type::text && left.type != Type::arch) return;
    if (std::find(known.begin(), known.end(), word) == known.end()) {
      fail(right.column, "a value that the left can have", "'" + word + "'", catalogue::suggestion(word, known));
    }
  }

  NodePtr sum() {
    NodePtr left = product();
    while (true) {
      skip();
      const std::size_t column = at_;
      const Op op = take("+") ? Op::add : take("-") ? Op::subtract : Op::constant;
      if (op == Op::constant) return left;
      expect_integer(*left);
      NodePtr right = product();
      expect_integer(*right);
      left = join(op, Type::integer, column, std::move(left), std::move(right));
    }
  }
  NodePtr product() {
    NodePtr left = unary();
    while (true) {
      skip();
      const std::size_t column = at_;
      const Op op = take("*") ? Op::multiply : take("/") ? Op::divide : take("%") ? Op::modulo : Op::constant;
      if (op == Op::constant) return left;
      expect_integer(*left);
      NodePtr right = unary();
      expect_integer(*right);
      left = join(op, Type::integer, column, std::move(left), std::move(right));
    }
  }
  NodePtr unary() {
    const Deeper deeper(*this);
    skip();
    const std::size_t column = at_;
    if (take("-")) {
      NodePtr inner = unary();
      expect_integer(*inner);
      return join(Op::negate, Type::integer, column, std::move(inner), nullptr);
    }
    return primary();
  }

  std::string quoted() {
    const char quote = text_[at_];
    const std::size_t begin = at_++;
    const std::size_t end = text_.find(quote, at_);
    if (end == std::string_view::npos) fail(begin, "a closing quote", "the end");
    std::string out(text_.substr(at_, end - at_));
    at_ = end + 1;
    return out;
  }

  NodePtr primary() {
    skip();
    const std::size_t column = at_;
    if (take("(")) {
      NodePtr inner = disjunction();
      if (!take(")")) fail(at_, "')'", shown());
      return inner;
    }
    if (at_ >= text_.size()) fail(at_, "a name or a value", shown());
    const char c = text_[at_];
    if (c == '"' || c == '\'') {
      NodePtr node = make(Op::constant, Type::text, column);
      node->value = quoted();
      return node;
    }
    if (std::isdigit(static_cast<unsigned char>(c))) {
      std::int64_t value = 0;
      const auto result = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
      if (result.ec != std::errc{}) fail(at_, "a number of 64 bits", shown());
      at_ = static_cast<std::size_t>(result.ptr - text_.data());
      if (at_ < text_.size() && word_char(text_[at_])) fail(column, "a whole number, or text in quotes", shown());
      NodePtr node = make(Op::constant, Type::integer, column);
      node->value = value;
      return node;
    }
    if (!word_start(c)) fail(at_, "a name or a value", shown());
    std::size_t end = at_;
    while (end < text_.size() &&
           (word_char(text_[end]) ||
            // a hyphen or plus inside a word: "vllm-fa-nhd"
            ((text_[end] == '-' || text_[end] == '+') && end + 1 < text_.size() && word_char(text_[end + 1])))) {
      ++end;
    }
    const std::string word(text_.substr(at_, end - at_));
    at_ = end;
    return word_node(word, column);
  }

  NodePtr word_node(const std::string& word, std::size_t column) {
    if (word == "true" || word == "false") {
      NodePtr node = make(Op::constant, Type::boolean, column);
      node->value = word == "true";
      return node;
    }
    if (names_.numbers) {
      if (std::find(names_.numbers->begin(), names_.numbers->end(), word) == names_.numbers->end()) {
        fail(column, "a name", "'" + word + "'", catalogue::suggestion(word, *names_.numbers));
      }
      NodePtr node = make(Op::number_name, Type::integer, column);
      node->word = word;
      return node;
    }
    if (word == "id") {
      NodePtr node = make(Op::id, Type::text, column);
      node->has_id = true;
      return node;
    }
    if (names_.space->is_name(word)) {
      NodePtr node = make(Op::name, Type::none, column);
      try {
        node->ref = names_.space->name(word);
      } catch (const Error& error) {
        throw Error("expression '" + std::string(text_.substr(0, 200)) + "', column " + std::to_string(column + 1) + ": " +
                    error.what());
      }
      node->type = node->ref.type;
      node->support = names_.space->support(node->ref);
      return node;
    }
    NodePtr node = make(Op::constant, Type::text, column);
    node->value = word;
    node->bare = true;
    return node;
  }

  std::string_view text_;
  Names names_;
  std::size_t at_{0};
  int depth_{0};
};

// ---- evaluation ----------------------------------------------------------------------------------------------------

std::optional<std::int64_t> order_key(const Value& value) {
  if (const auto* number = std::get_if<std::int64_t>(&value)) return *number;
  if (const auto* text = std::get_if<std::string>(&value)) {
    const std::int64_t cc = arch_order(*text);
    if (cc >= 0) return cc;
  }
  return std::nullopt;
}

// Absent is equal to nothing, and not unequal to anything either: a constraint must not fire on unknowns.
bool compare_values(Op op, const Value& left, const Value& right) {
  if (std::holds_alternative<std::monostate>(left) || std::holds_alternative<std::monostate>(right)) return false;
  if (op == Op::equal || op == Op::not_equal) {
    bool same = left == right;
    if (left.index() != right.index()) same = order_key(left) && order_key(left) == order_key(right);  // arch and number
    return same == (op == Op::equal);
  }
  const auto a = order_key(left), b = order_key(right);
  if (!a || !b) return false;  // cpu has no place in the order
  switch (op) {
    case Op::less:
      return *a < *b;
    case Op::less_equal:
      return *a <= *b;
    case Op::greater:
      return *a > *b;
    default:
      return *a >= *b;
  }
}

template <class Env>
struct Evaluator {
  const Env& env;

  bool truth(const Node& node) const {
    switch (node.op) {
      case Op::and_:
        return env.truth(*node.children[0]) && env.truth(*node.children[1]);
      case Op::or_:
        return env.truth(*node.children[0]) || env.truth(*node.children[1]);
      case Op::not_:
        return !env.truth(*node.children[0]);
      case Op::match:
        return match(node);
      case Op::not_match:
        return !match(node);
      case Op::in: {
        const Value item = value(*node.children[0]), list = value(*node.children[1]);
        const auto* items = std::get_if<std::vector<std::string>>(&list);
        return items && std::find(items->begin(), items->end(), to_text(item)) != items->end();
      }
      case Op::constant:
      case Op::name: {
        const Value v = value(node);
        const bool* b = std::get_if<bool>(&v);
        return b && *b;
      }
      default:
        return compare_values(node.op, value(*node.children[0]), value(*node.children[1]));
    }
  }
  bool match(const Node& node) const {
    const Value v = value(*node.children[0]);
    const auto* text = std::get_if<std::string>(&v);
    return text && catalogue::matches_glob(node.word, *text);
  }
  Value value(const Node& node) const {
    switch (node.op) {
      case Op::constant:
        return node.value;
      case Op::name:
        return env.name(node.ref);
      case Op::number_name:
        return env.number(node.word);
      case Op::id:
        return std::string(env.id());
      case Op::negate:
        return arithmetic(Op::subtract, Value(std::int64_t{0}), value(*node.children[0]));
      case Op::add:
      case Op::subtract:
      case Op::multiply:
      case Op::divide:
      case Op::modulo:
        return arithmetic(node.op, value(*node.children[0]), value(*node.children[1]));
      default:
        return truth(node);
    }
  }
  // Overflow and division by zero give "nothing", which compares as false.
  static Value arithmetic(Op op, const Value& left, const Value& right) {
    const auto* a = std::get_if<std::int64_t>(&left);
    const auto* b = std::get_if<std::int64_t>(&right);
    if (!a || !b) return {};
    std::int64_t out = 0;
    switch (op) {
      case Op::add:
        return __builtin_add_overflow(*a, *b, &out) ? Value{} : Value{out};
      case Op::subtract:
        return __builtin_sub_overflow(*a, *b, &out) ? Value{} : Value{out};
      case Op::multiply:
        return __builtin_mul_overflow(*a, *b, &out) ? Value{} : Value{out};
      default:
        break;
    }
    if (*b == 0 || (*b == -1 && *a == std::numeric_limits<std::int64_t>::min())) return {};
    return Value{op == Op::divide ? *a / *b : *a % *b};
  }
};

struct LookupEnv {
  const Lookup& lookup;
  std::string_view case_id;
  bool truth(const Node& node) const { return Evaluator<LookupEnv>{*this}.truth(node); }
  Value name(const NameRef& ref) const { return lookup(ref); }
  Value number(const std::string&) const { return {}; }
  std::string_view id() const { return case_id; }
};

struct NumbersEnv {
  const Numbers& numbers;
  bool truth(const Node& node) const { return Evaluator<NumbersEnv>{*this}.truth(node); }
  Value name(const NameRef&) const { return {}; }
  Value number(const std::string& word) const {
    const auto value = numbers(word);
    return value ? Value{*value} : Value{};
  }
  std::string_view id() const { return {}; }
};

struct PointEnv {
  const Space& space;
  const Point& point;
  std::string_view case_id;

  Value name(const NameRef& ref) const { return space.value(ref, point); }
  Value number(const std::string&) const { return {}; }
  std::string_view id() const { return case_id; }

  bool truth(const Node& node) const {
    const Evaluator<PointEnv> plain{*this};
    if (node.has_id || node.no_table || node.op == Op::constant) return plain.truth(node);
    if (node.strides.empty() && !layout_table(node)) return plain.truth(node);
    std::size_t index = 0;
    for (std::size_t i = 0; i < node.strides.size(); ++i) {
      const std::size_t v = point[node.strides[i].first];
      if (v >= node.capacity[i]) return plain.truth(node);  // an open axis has since gained a value
      index += v * node.strides[i].second;
    }
    if (node.memo.empty()) node.memo.resize(node.strides.back().second * node.capacity.back());
    std::uint8_t& known = node.memo[index];
    if (known == 0) known = plain.truth(node) ? 2 : 1;
    return known == 2;
  }
  // Strides of a table over the support's values; false when it would be too large (then the children have theirs).
  bool layout_table(const Node& node) const {
    std::size_t size = 1;
    std::vector<std::pair<std::size_t, std::size_t>> strides;
    std::vector<std::size_t> capacity;
    for (std::size_t a = 0; a < axis_count; ++a) {
      if (!(node.support >> a & 1U)) continue;
      const auto id = static_cast<AxisId>(a);
      const std::size_t values = static_cast<std::size_t>(space.size(id)) + (axis(id).open ? 16 : 0);
      strides.emplace_back(a, size);
      capacity.push_back(values);
      size *= values;
      if (size > max_table) break;
    }
    node.no_table = strides.empty() || size > max_table;
    if (node.no_table) return false;
    node.strides = std::move(strides);
    node.capacity = std::move(capacity);
    return true;
  }
};

}  // namespace

Expression::Expression(std::string_view text, const Space& space)
    : space_(&space), text_(text), root_(Parser(text_, Names{&space, nullptr}).parse()) {
  const auto add = [this](const Node& node, auto&& self) -> void {
    if (node.op != Op::and_) return conditions_.push_back(&node);
    for (const NodePtr& child : node.children) self(*child, self);
  };
  add(*root_, add);
}
Expression::Expression(Expression&&) noexcept = default;
Expression& Expression::operator=(Expression&&) noexcept = default;
Expression::~Expression() = default;

const std::string& Expression::text() const { return text_; }
std::uint32_t Expression::support() const { return root_->support; }
bool Expression::uses_id() const { return root_->has_id; }

std::uint32_t Expression::support(std::size_t condition) const { return conditions_[condition]->support; }
bool Expression::holds(std::size_t condition, const Point& point) const {
  return PointEnv{*space_, point, {}}.truth(*conditions_[condition]);
}

bool Expression::operator()(const Point& point, std::string_view id) const {
  return PointEnv{*space_, point, id}.truth(*root_);
}

bool Expression::evaluate(const Lookup& lookup, std::string_view id) const { return LookupEnv{lookup, id}.truth(*root_); }

bool holds(std::string_view condition, const Numbers& numbers, const std::vector<std::string>& known_names) {
  const NodePtr root = Parser(condition, Names{nullptr, &known_names}).parse();
  return NumbersEnv{numbers}.truth(*root);
}

}  // namespace kvcts::matrix
