#include "tools/triage/literals.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "matrix/select.hpp"

namespace kvcts::triage {

using matrix::AxisId;
using matrix::Expression;
using matrix::NameRef;
using matrix::Space;
using matrix::Type;
using matrix::Value;
using nlohmann::json;

namespace {

struct Proposed {
  std::string text;
  int cost;
};

bool is_word(const std::string& text) {
  if (text.empty() || !(std::isalpha(static_cast<unsigned char>(text[0])) || text[0] == '_')) return false;
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.'; });
}
std::string quoted(const std::string& text) { return is_word(text) ? text : "'" + text + "'"; }

/// The value of each observation on an axis, numbered: cases with the same numbers are equal to every literal about
/// these axes.
class Table {
 public:
  Table(const std::vector<Observation>& observations, Space& space) : observations_(observations), space_(space) {
    std::vector<std::map<std::string, std::uint32_t>> known(matrix::axis_count);
    for (const Observation& o : observations) {
      std::array<std::uint32_t, matrix::axis_count> row{};
      for (const auto& axis : matrix::axes()) {
        const auto a = static_cast<std::size_t>(axis.id);
        std::string text = o.axes.contains(axis.name) ? o.axes[std::string(axis.name)].dump() : "";
        if (axis.id == AxisId::geometry) {  // with the numbers that a hand-written case overrides
          for (const auto& [key, value] : o.axes.items()) {
            if (key.starts_with("geometry.")) text += key + value.dump();
          }
        }
        row[a] = known[a].emplace(text, static_cast<std::uint32_t>(known[a].size())).first->second;
      }
      rows_.push_back(row);
    }
  }

  Value value(const NameRef& ref, std::size_t i) { return matrix::lookup_of(space_, observations_[i].axes)(ref); }

  /// The distinct values of a name, over failures and over passes.
  struct Seen {
    std::vector<Value> failing, passing;
  };
  Seen seen(const NameRef& ref) {
    Seen out;
    std::set<std::pair<std::uint64_t, bool>> done;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (!done.insert({key(i, space_.support(ref)), observations_[i].fails}).second) continue;
      Value v = value(ref, i);
      auto& into = observations_[i].fails ? out.failing : out.passing;
      if (std::find(into.begin(), into.end(), v) == into.end()) into.push_back(std::move(v));
    }
    return out;
  }

  Bits holds(const Expression& expression) {
    std::map<std::uint64_t, bool> known;
    Bits out(rows_.size());
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const auto [at, fresh] = known.try_emplace(key(i, expression.support()), false);
      if (fresh) at->second = expression.evaluate(matrix::lookup_of(space_, observations_[i].axes), observations_[i].id);
      if (at->second) out.set(i);
    }
    return out;
  }

 private:
  std::uint64_t key(std::size_t row, std::uint32_t support) const {
    std::uint64_t out = 0;
    for (std::size_t a = 0; a < matrix::axis_count; ++a) {
      if (support >> a & 1U) out = (out ^ rows_[row][a]) * 0x9e3779b97f4a7c15ull + (out >> 29) + a;
    }
    return out;
  }
  const std::vector<Observation>& observations_;
  Space& space_;
  std::vector<std::array<std::uint32_t, matrix::axis_count>> rows_;
};

bool has(const std::vector<Value>& all, const Value& v) { return std::find(all.begin(), all.end(), v) != all.end(); }

/// Possible literals about one name, from the values that occur.
void about(const std::string& name, const NameRef& ref, Table& table, std::vector<Proposed>& out) {
  const int cost = ref.fact < 0 ? 0 : 2;
  const auto seen = table.seen(ref);
  std::set<std::int64_t> numbers;
  for (const auto* values : {&seen.failing, &seen.passing}) {
    for (const Value& v : *values) {
      if (const auto* text = std::get_if<std::string>(&v)) {
        const bool of_failures = values == &seen.failing;
        if (of_failures)
          out.push_back({name + " == " + quoted(*text), cost});
        else if (!has(seen.failing, v))
          out.push_back({name + " != " + quoted(*text), cost + 3});
      } else if (const auto* flag = std::get_if<bool>(&v)) {
        out.push_back({(*flag ? "" : "!") + name, *flag ? cost - 1 : cost});
      } else if (const auto* number = std::get_if<std::int64_t>(&v)) {
        numbers.insert(*number);
        if (values == &seen.failing)
          out.push_back({fmt::format("{} == {}", name, *number), cost + 1});
        else if (!has(seen.failing, v))
          out.push_back({fmt::format("{} != {}", name, *number), cost + 4});
      }
    }
  }
  if (ref.type != Type::integer || numbers.size() < 2) return;
  for (const std::int64_t n : numbers) {
    out.push_back({fmt::format("{} >= {}", name, n), cost + 2});
    out.push_back({fmt::format("{} <= {}", name, n), cost + 2});
  }
  if (name == "seed") return;
  for (const int by : {2, 3, 4, 8, 16, 32, 64, 128}) {
    out.push_back({fmt::format("{} % {} == 0", name, by), cost + 4});
    out.push_back({fmt::format("{} % {} != 0", name, by), cost + 4});
  }
}

/// Compares both sides with each other, and shards with heads.
void relations(const Space& space, std::vector<Proposed>& out) {
  for (const char* pair : {"producer consumer", "pbs cbs", "ptp ctp"}) {
    const std::string text(pair), left = text.substr(0, text.find(' ')), right = text.substr(left.size() + 1);
    out.push_back({left + " == " + right, 3});
    out.push_back({left + " != " + right, 3});
    if (left == "producer") continue;
    out.push_back({left + " < " + right, 4});
    out.push_back({left + " > " + right, 4});
  }
  for (const std::string& fact : space.fact_names(AxisId::producer)) {
    const Type type = space.name("producer." + fact).type;
    if (type == Type::list || type == Type::boolean) continue;
    out.push_back({"producer." + fact + " == consumer." + fact, 4});
    out.push_back({"producer." + fact + " != consumer." + fact, 4});
  }
  for (const char* ranks : {"ptp", "ctp"}) {
    out.push_back({std::string("geometry.heads % ") + ranks + " != 0", 4});
    out.push_back({std::string("geometry.heads < ") + ranks, 4});
  }
}

}  // namespace

std::vector<Literal> literals(const std::vector<Observation>& observations, Space& space) {
  Table table(observations, space);
  std::vector<Proposed> proposed;
  for (const auto& axis : matrix::axes()) {
    const std::string name(axis.name);
    about(name, space.name(name), table, proposed);
    for (const std::string& fact : space.fact_names(axis.id)) {
      if (fact != name)
        about(name + "." + fact, space.name(name + "." + fact), table,
              proposed);  // connector.connector repeats connector
    }
  }
  relations(space, proposed);
  std::stable_sort(proposed.begin(), proposed.end(), [](const Proposed& a, const Proposed& b) { return a.cost < b.cost; });

  Bits failing(observations.size());
  for (std::size_t i = 0; i < observations.size(); ++i) {
    if (observations[i].fails) failing.set(i);
  }
  const Bits all = [&] {
    Bits bits(observations.size());
    for (std::size_t i = 0; i < observations.size(); ++i) bits.set(i);
    return bits;
  }();
  const Bits passing = all - failing;
  std::vector<Literal> out;
  std::map<Bits, std::size_t> same;
  std::set<std::string> texts;
  for (const Proposed& p : proposed) {
    if (!texts.insert(p.text).second) continue;
    Bits holds(0);
    try {
      holds = table.holds(Expression(p.text, space));
    } catch (const matrix::Error&) {
      continue;  // an alias of another value, or two facts that cannot be compared
    }
    if ((holds & failing).empty() || holds.contains(passing)) continue;
    const auto [at, fresh] = same.try_emplace(holds, out.size());
    if (fresh)
      out.push_back({p.text, p.cost, std::move(holds), {}});
    else
      out[at->second].also.push_back(p.text);
  }
  return out;
}

}  // namespace kvcts::triage
