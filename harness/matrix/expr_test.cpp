#include "matrix/expr.hpp"

#include <gtest/gtest.h>

#include "matrix/testing/committed.hpp"

namespace kvcts::matrix {
namespace {

using testing::committed;
using testing::error_of;

Space& space() {
  static Space instance(committed());
  return instance;
}
Point point(const std::string& id) { return point_from_id(space(), id); }
bool is(const std::string& expression, const std::string& id) { return Expression(expression, space())(point(id), id); }

TEST(Expression, ReadsAxesAndFacts) {
  const std::string id =
      "kv/producer=vllm-fa-nhd/consumer=vllm-fa-hnd/dtype=fp8_e4m3/geometry=gqa-8/cbs=32/ctp=4/engine=ucx-tcp/arch=sm_75";
  const std::pair<const char*, bool> table[]{
      {"dtype == fp8_e4m3", true},
      {"dtype != fp8_e4m3", false},
      {"dtype.family == fp8 && arch < sm_89", true},
      {"arch.fp8_convert", false},
      {"!arch.fp8_convert", true},
      {"arch == sm_75", true},
      {"arch >= 75 && arch <= 75 && arch < 80", true},
      {"arch in [sm_70, sm_75]", true},
      {"arch in [cpu]", false},
      {"pbs == 16 && cbs == 32", true},  // effective: 16 is the geometry's
      {"pbs * 2 == cbs", true},
      {"cbs - pbs == 16", true},
      {"geometry.heads % ctp == 0", true},
      {"geometry.heads / ctp == 2", true},
      {"-ctp == 0 - 4", true},
      {"producer.nhd && consumer.hnd", true},
      {"producer.inner == consumer.inner", false},
      {"producer ~ vllm-* && consumer !~ *nhd", true},
      {"id ~ \"kv/*engine=ucx*\"", true},
      {"engine.processes == 2", true},
      {"dtype == fp16 || dtype == fp8_e4m3 && engine == memcpy", false},
      {"(dtype == fp16 || dtype == fp8_e4m3) && engine == ucx-tcp", true},
      {"true && !false", true},
      {"seed == 1", true},
  };
  for (const auto& [expression, expected] : table) {
    EXPECT_EQ(is(expression, id), expected) << expression;
  }
  EXPECT_TRUE(is("\"ucx\" in engine.needs", id));  // quoted: a lone word on the left would be a name
}

TEST(Expression, SplitsIntoConditionsAtTopLevelAnd) {
  const Expression all("dtype == bf16 && (engine == shm || ptp == 2) && !(op == read && ctp == 1)", space());
  ASSERT_EQ(all.conditions(), 3u);
  EXPECT_EQ(all.support(0) | all.support(1) | all.support(2), all.support());
  EXPECT_EQ(all.support(0), std::uint32_t{1} << static_cast<unsigned>(AxisId::dtype));
  for (const char* dtype : {"bf16", "fp16"})
    for (const char* engine : {"shm", "memcpy"})
      for (const char* op : {"read", "write"}) {
        const Point at = point(std::string("kv/producer=vllm-fa-nhd/dtype=") + dtype + "/engine=" + engine + "/op=" + op);
        EXPECT_EQ(all.holds(0, at) && all.holds(1, at) && all.holds(2, at), all(at));
      }
  EXPECT_EQ(Expression("dtype == bf16 || ptp == 2 && ctp == 2", space()).conditions(), 1u);
}

TEST(Expression, CpuIsNotOrderedAmongArchitectures) {
  for (const char* op : {"<", "<=", ">", ">="})
    EXPECT_FALSE(is(std::string("arch ") + op + " sm_80", "kv/producer=vllm-mla"));
  EXPECT_TRUE(is("arch == cpu", "kv/producer=vllm-mla"));
}

TEST(Expression, ComparisonsWithAnAbsentFactAreFalse) {
  // fp16 has no 'needs'.
  EXPECT_FALSE(is("dtype.needs == bf16", "kv/producer=vllm-mla/dtype=fp16"));
  EXPECT_FALSE(is("dtype.needs != bf16", "kv/producer=vllm-mla/dtype=fp16"));
  EXPECT_FALSE(is("geometry.heads / 0 == 1 || geometry.heads / 0 != 1", "kv/producer=vllm-mla"));
}

TEST(Expression, ErrorsNameTheColumnAndTheNearestWord) {
  const std::pair<const char*, const char*> table[]{
      {"dtpye == bf16",
       "column 1: expected a name to the left of the comparison, found the word 'dtpye'; did you mean 'dtype'?"},
      {"dtype == bf61", "column 10: expected a value that the left can have, found 'bf61'; did you mean 'bf16'?"},
      {"dtype.famly == fp8", "column 1: expected a fact of axis 'dtype', found 'dtype.famly'; did you mean 'family'?"},
      {"dtype.family == flaot", "column 17: expected a value that the left can have, found 'flaot'; did you mean 'float'?"},
      {"dtype", "column 1: expected something that is true or false, found text; compare it, e.g. == value"},
      {"geometry.heads", "column 1: expected something that is true or false, found a number"},
      {"dtype == 4", "column 10: expected text (as on the left of the comparison), found a number"},
      {"geometry.heads == many", "column 19: expected a number (as on the left of the comparison), found the word 'many'"},
      {"dtype < bf16", "column 7: expected numbers or archs around an order, found text"},
      {"arch.tma + 1 == 2", "column 1: expected a number, found true or false"},
      {"arch == sm_x", "column 9: expected an arch (sm_NN or cpu), found 'sm_x'"},
      {"dtype = bf16", "column 7: expected '==' to compare, found '='"},
      {"dtype == bf16 &&", "column 17: expected a name or a value, found the end"},
      {"(dtype == bf16", "column 15: expected ')', found the end"},
      {"dtype == bf16 engine == shm", "column 15: expected the end, && or ||, found 'engine == shm'"},
      {"dtype in [bf16", "column 15: expected ',' or ']', found the end"},
      {"dtype in bf16", "column 10: expected a list, or a name that is one, found the word 'bf16'"},
      {"geometry.heads ~ 4*", "column 1: expected text to the left of '~', found a number"},
      {"id == \"abc", "column 7: expected a closing quote, found the end"},
      {"geometry.heads == 99999999999999999999", "column 19: expected a number of 64 bits"},
      {"", "column 1: expected a name or a value, found the end"},
      {"nix", "column 1: expected something that is true or false, found the word 'nix'"},
  };
  for (const auto& [text, expected] : table) {
    const std::string error = error_of([&] { Expression e(text, space()); });
    EXPECT_NE(error.find(expected), std::string::npos) << text << "\n  " << error;
  }
  EXPECT_NE(error_of([&] { Expression e(std::string(1000, '('), space()); }).find("at most 64 levels"), std::string::npos);
  EXPECT_NE(error_of([&] { Expression e(std::string(5000, ' '), space()); }).find("at most 4096 characters"),
            std::string::npos);
}

TEST(Expression, RandomTextParsesOrGivesOneError) {
  std::mt19937_64 random(3);
  static constexpr std::string_view pieces[]{
      "dtype", " == ", "bf16", "&&",   "||",  "!",     "(", ")",   "arch", "<", "sm_80", "geometry.heads",  "%",  "in",
      "[",     "]",    ",",    "~",    "*",   "\"x\"", "1", "-",   "+",    "/", " ",     "producer.dtypes", "id", "arch.tma",
      "'",     "=",    "\x01", "\xff", "pbs", "0x",    ".", "true"};
  int good = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    for (auto n = 1 + random() % 9; n > 0; --n) text += pieces[random() % std::size(pieces)];
    try {
      const Expression e(text, space());
      e(space().origin(), "kv/x");
      ++good;
    } catch (const Error& error) {
      ASSERT_NE(std::string(error.what()).find("column"), std::string::npos) << text << ": " << error.what();
    }
  }
  EXPECT_GT(good, 20);
}

// Random expressions with an independent evaluator (closures over names and values), at random points: tables, short cuts
// and precedence must not change the result.
struct Random {
  std::mt19937_64 engine{11};
  using Truth = std::function<bool(const Point&)>;
  std::size_t below(std::size_t n) { return engine() % n; }

  std::pair<std::string, Truth> atom() {
    struct Text {
      AxisId axis;
      const char* name;
    };
    static constexpr Text texts[]{{AxisId::producer, "producer"},
                                  {AxisId::dtype, "dtype"},
                                  {AxisId::geometry, "geometry"},
                                  {AxisId::engine, "engine"},
                                  {AxisId::op, "op"}};
    static constexpr Text numbers[]{{AxisId::ptp, "ptp"}, {AxisId::ctp, "ctp"}, {AxisId::misalign, "misalign"}};
    const auto text_of = [](AxisId a, const Point& p) { return space().text(a, at(p, a)); };
    switch (below(5)) {
      case 0: {
        const auto& t = texts[below(std::size(texts))];
        const std::string word =
            space().text(t.axis, static_cast<int>(below(static_cast<std::size_t>(space().size(t.axis)))));
        const bool equal = below(2) == 0;
        return {std::string(t.name) + (equal ? " == " : " != ") + word,
                [=](const Point& p) { return (text_of(t.axis, p) == word) == equal; }};
      }
      case 1: {
        const auto &a = numbers[below(std::size(numbers))], &b = numbers[below(std::size(numbers))];
        const std::int64_t n = static_cast<std::int64_t>(below(5));
        return {std::string(a.name) + " + " + std::to_string(n) + " <= " + b.name + " * 2",
                [=](const Point& p) { return std::stoll(text_of(a.axis, p)) + n <= std::stoll(text_of(b.axis, p)) * 2; }};
      }
      case 2: {
        const char letter = "abdefhv"[below(7)];
        return {std::string("producer ~ *") + letter + "*",
                [=](const Point& p) { return text_of(AxisId::producer, p).find(letter) != std::string::npos; }};
      }
      case 3:
        return {"arch < sm_89", [=](const Point& p) {
                  const std::string arch = text_of(AxisId::arch, p);
                  return arch != "cpu" && std::stoi(arch.substr(3)) < 89;
                }};
      default:
        return {"geometry.heads > ptp", [=](const Point& p) {
                  return committed().geometries().at(text_of(AxisId::geometry, p)).heads >
                         std::stoll(text_of(AxisId::ptp, p));
                }};
    }
  }

  // Half of the time, text with no more brackets than precedence needs.
  std::pair<std::string, Truth> make(int depth, int context) {
    const std::size_t kind = depth == 0 ? 0 : below(4);
    if (kind == 0) return atom();
    if (kind == 1) {
      auto [text, truth] = make(depth - 1, 3);
      return {"!(" + text + ")", [t = truth](const Point& p) { return !t(p); }};
    }
    const bool both = kind == 2;
    auto [left_text, left] = make(depth - 1, both ? 2 : 1);
    auto [right_text, right] = make(depth - 1, both ? 2 : 1);
    std::string text = left_text + (both ? " && " : " || ") + right_text;
    if (!both && context >= 2) text = "(" + text + ")";
    if (both) return {text, [l = left, r = right](const Point& p) { return l(p) && r(p); }};
    return {text, [l = left, r = right](const Point& p) { return l(p) || r(p); }};
  }
};

TEST(Expression, AgreesWithBruteForce) {
  Random random;
  int held = 0, all = 0;
  for (int i = 0; i < 300; ++i) {
    const auto [text, truth] = random.make(4, 0);
    const Expression expression(text, space());
    for (int k = 0; k < 200; ++k) {
      const Point p = testing::random_point(space(), random.engine);
      const bool expected = truth(p);
      ASSERT_EQ(expression(p), expected) << text << " at " << id_of(space(), p);
      ASSERT_EQ(expression.evaluate([&](const NameRef& ref) { return space().value(ref, p); }), expected) << text;
      held += expected, ++all;
    }
  }
  EXPECT_GT(held, all / 10);
  EXPECT_LT(held, all * 9 / 10);
}

TEST(Conditions, EvaluateOverPlainNumbers) {
  const Numbers numbers = [](std::string_view name) -> std::optional<std::int64_t> {
    if (name == "head_dim") return 40;
    if (name == "x") return 16;
    return std::nullopt;
  };
  const std::vector<std::string> known{"head_dim", "x"};
  EXPECT_TRUE(holds("head_dim % 8 == 0", numbers, known));
  EXPECT_FALSE(holds("head_dim % x == 0", numbers, known));
  EXPECT_TRUE(holds("head_dim >= 40 && (head_dim - 8) / 2 == x", numbers, known));
  EXPECT_NE(error_of([&] { holds("had_dim == 1", numbers, known); }).find("did you mean 'head_dim'?"), std::string::npos);
}

}  // namespace
}  // namespace kvcts::matrix
