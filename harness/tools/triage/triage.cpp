#include "tools/triage/triage.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "matrix/ids.hpp"
#include "tools/triage/literals.hpp"

namespace kvcts::triage {

using matrix::AxisId;
using matrix::Expression;
using matrix::Point;
using matrix::Space;

namespace {

constexpr std::size_t most_literals = 6, most_alternatives = 10, most_parts = 5, plain_size = 3;
constexpr std::int64_t most_nodes = 200'000;

struct Conjunction {
  std::vector<std::size_t> literals;  ///< ascending
  int cost{0};
};

/// All smallest conjunctions of `usable` literals that leave at most `spare` of the passes, by cost. Empty: none has
/// at most `size` literals.
class Smallest {
 public:
  Smallest(const std::vector<Literal>& all, std::vector<std::size_t> usable, const Bits& passes, std::size_t spare)
      : all_(all), usable_(std::move(usable)), spare_(spare) {
    for (const std::size_t l : usable_) strongest_ = std::max(strongest_, (passes - all_[l].holds).count());
    passes_ = passes;
  }
  std::vector<Conjunction> find(std::size_t size) {
    for (std::size_t k = 1; k <= size && found_.empty() && nodes_ < most_nodes; ++k) {
      std::vector<std::size_t> chosen;
      search(passes_, chosen, k);
    }
    std::vector<Conjunction> out;
    for (const auto& literals : found_) {
      Conjunction c{{literals.begin(), literals.end()}, 0};
      for (const std::size_t l : literals) c.cost += all_[l].cost;
      out.push_back(std::move(c));
    }
    std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.cost < b.cost; });
    return out;
  }

 private:
  void search(const Bits& left, std::vector<std::size_t>& chosen, std::size_t room) {
    if (++nodes_ > most_nodes) return;
    const std::size_t count = left.count();
    if (count <= spare_) {
      found_.insert({chosen.begin(), chosen.end()});
      return;
    }
    if (room == 0 || count > spare_ + room * strongest_) return;
    // One that must go (if none may stay, any will do): try each literal that removes it.
    const std::size_t gone = left.first();
    for (const std::size_t l : usable_) {
      if (spare_ == 0 ? all_[l].holds.has(gone) : left == (left & all_[l].holds)) continue;
      if (std::find(chosen.begin(), chosen.end(), l) != chosen.end()) continue;
      chosen.push_back(l);
      search(left & all_[l].holds, chosen, room - 1);
      chosen.pop_back();
    }
  }

  const std::vector<Literal>& all_;
  std::vector<std::size_t> usable_;
  std::size_t spare_, strongest_{0};
  Bits passes_;
  std::set<std::set<std::size_t>> found_;
  std::int64_t nodes_{0};
};

class Search {
 public:
  Search(const std::vector<Observation>& observations, Space& space)
      : observations_(observations),
        literals_(literals(observations, space)),
        failing_(observations.size()),
        passing_(observations.size()) {
    for (std::size_t i = 0; i < observations.size(); ++i) (observations[i].fails ? failing_ : passing_).set(i);
  }

  Finding run() {
    Finding out;
    out.failures = static_cast<std::int64_t>(failing_.count());
    out.passes = static_cast<std::int64_t>(passing_.count());
    if (failing_.empty()) return out;
    Bits left = failing_;
    // First one rule for all, even a long one or one that holds for a few passing cases; the rest in parts.
    if (!one_rule(left, out)) {
      for (const std::size_t i : members(failing_)) {
        if (!(common(i) & passing_).empty()) out.unexplained.push_back(observations_[i].id), left = left - only(i);
      }
      while (!left.empty() && out.parts.size() < most_parts && part(left, out)) {
      }
      for (const std::size_t i : members(left)) out.unexplained.push_back(observations_[i].id);
    }
    std::stable_sort(out.parts.begin(), out.parts.end(),
                     [](const auto& a, const auto& b) { return a.failures.size() > b.failures.size(); });
    return out;
  }

 private:
  std::vector<std::size_t> members(const Bits& bits) const {
    std::vector<std::size_t> out;
    for (std::size_t i = 0; i < observations_.size(); ++i) {
      if (bits.has(i)) out.push_back(i);
    }
    return out;
  }
  Bits only(std::size_t i) const {
    Bits out(observations_.size());
    out.set(i);
    return out;
  }
  /// Cases that share every literal of case i.
  Bits common(std::size_t i) const {
    Bits out = only(i);
    bool first = true;
    for (const Literal& l : literals_) {
      if (!l.holds.has(i)) continue;
      out = first ? l.holds : out & l.holds;
      first = false;
    }
    if (!first) return out;
    for (std::size_t k = 0; k < observations_.size(); ++k) out.set(k);
    return out;
  }
  std::vector<std::size_t> over(const Bits& covered) const {
    std::vector<std::size_t> out;
    for (std::size_t l = 0; l < literals_.size(); ++l) {
      if (literals_[l].holds.contains(covered)) out.push_back(l);
    }
    return out;
  }

  bool one_rule(Bits& left, Finding& out) {
    const auto usable = over(left);
    const std::size_t few = left.count() / 20;
    for (const auto& [size, spare] :
         {std::pair{plain_size, std::size_t{0}}, {plain_size, few}, {most_literals, std::size_t{0}}}) {
      if (auto found = Smallest(literals_, usable, passing_, spare).find(size); !found.empty()) {
        add(found, left, out);
        left = left - failing_;
        return true;
      }
    }
    return false;
  }

  /// The rule that explains most of the rest, grown from one failure.
  bool part(Bits& left, Finding& out) {
    Bits best(observations_.size());
    const auto seeds = members(left);
    const std::size_t step = std::max<std::size_t>(1, seeds.size() / 24);
    for (std::size_t s = 0; s < seeds.size(); s += step) {
      Bits kept = left, against = passing_;
      for (std::size_t k = 0; k < most_literals && !against.empty(); ++k) {
        double score = 0;
        std::size_t chosen = literals_.size();
        for (std::size_t l = 0; l < literals_.size(); ++l) {
          const Literal& literal = literals_[l];
          if (!literal.holds.has(seeds[s])) continue;
          const double keeps = static_cast<double>((kept & literal.holds).count()) / static_cast<double>(kept.count());
          const double excludes =
              static_cast<double>((against - literal.holds).count()) / static_cast<double>(against.count());
          if (keeps * excludes > score) score = keeps * excludes, chosen = l;
        }
        if (chosen == literals_.size()) break;
        kept = kept & literals_[chosen].holds;
        against = against & literals_[chosen].holds;
      }
      if (against.empty() && kept.count() > best.count()) best = kept;
    }
    if (best.empty()) return false;
    const auto found = Smallest(literals_, over(best), passing_, 0).find(most_literals);
    if (found.empty()) return false;
    add(found, left, out);
    left = left - out_covered_;
    return true;
  }

  Rule rule_of(const std::vector<std::size_t>& chosen) const {
    Rule rule;
    for (const std::size_t l : chosen) rule.literals.push_back(literals_[l].text);
    sort(rule);
    return rule;
  }
  /// Sorts by axis, as in ids.
  static void sort(Rule& rule) {
    const auto place = [](std::string text) {
      if (text.starts_with('!')) text.erase(0, 1);
      const auto& axes = matrix::axes();
      std::size_t best = axes.size();
      for (std::size_t a = 0; a < axes.size(); ++a) {
        const std::string name(axes[a].name);
        if (text.starts_with(name) && (text.size() == name.size() || text[name.size()] == ' ' || text[name.size()] == '.'))
          best = std::min(best, a);
      }
      return best;
    };
    std::stable_sort(rule.literals.begin(), rule.literals.end(),
                     [&](const auto& a, const auto& b) { return place(a) < place(b); });
  }

  void add(const std::vector<Conjunction>& found, const Bits& left, Finding& out) {
    Explanation e;
    const auto& best = found.front();
    e.rule = rule_of(best.literals);
    Bits holds = failing_;
    for (const std::size_t i : members(passing_)) holds.set(i);
    for (const std::size_t l : best.literals) holds = holds & literals_[l].holds;
    out_covered_ = holds & left;
    for (const std::size_t i : members(out_covered_)) e.failures.push_back(observations_[i].id);
    for (const std::size_t i : members(holds & passing_)) e.against.push_back(observations_[i].id);
    for (std::size_t i = 1; i < found.size() && e.as_good.size() < most_alternatives; ++i)
      e.as_good.push_back(rule_of(found[i].literals));
    for (const std::size_t l : best.literals) {  // other words for the same cases
      for (const std::string& other : literals_[l].also) {
        if (e.as_good.size() == most_alternatives) break;
        Rule rule;
        for (const std::size_t k : best.literals) rule.literals.push_back(k == l ? other : literals_[k].text);
        sort(rule);
        e.as_good.push_back(std::move(rule));
      }
    }
    out.parts.push_back(std::move(e));
  }

  const std::vector<Observation>& observations_;
  std::vector<Literal> literals_;
  Bits failing_, passing_, out_covered_;
};

}  // namespace

std::string Rule::expression() const {
  std::string out;
  for (const std::string& literal : literals) out += (out.empty() ? "" : " && ") + literal;
  return out;
}

Finding explain(const std::vector<Observation>& observations, Space& space) { return Search(observations, space).run(); }

std::vector<Refuter> refuters(const Explanation& explanation, const std::vector<Observation>& observations, Space& space,
                              matrix::Constraints& constraints, std::size_t most,
                              const std::function<bool(const std::string&)>& runs) {
  std::set<std::string> known;
  for (const Observation& o : observations) known.insert(o.id);
  std::vector<Point> failing;
  for (const std::string& id : explanation.failures) {
    if (matrix::is_matrix_id(id)) failing.push_back(matrix::point_from_id(space, id));
  }
  constexpr std::size_t origins = 24;
  std::vector<Expression> literals, others;
  std::uint32_t support = 0;
  for (const std::string& text : explanation.rule.literals) {
    literals.emplace_back(text, space);
    support |= literals.back().support();
  }
  for (const Rule& rule : explanation.as_good) others.emplace_back(rule.expression(), space);

  struct Beside {
    Refuter refuter;
    std::size_t disagree;
    std::uint64_t hash;
  };
  std::map<std::string, std::vector<Beside>> beside;  // by what differs
  // Axes that teach nothing: an arch shares its execution, a golden file has its own numbers, a seed is luck.
  const auto dull = [](AxisId a) { return a == AxisId::arch || a == AxisId::content || a == AxisId::seed; };
  const std::size_t step = std::max<std::size_t>(1, failing.size() / origins);
  for (std::size_t f = 0; f < failing.size(); f += step) {
    for (const auto& axis : matrix::axes()) {
      const bool in_rule = (support >> static_cast<unsigned>(axis.id) & 1U) != 0;
      if (dull(axis.id) && !in_rule) continue;
      for (int value = 0; value < space.size(axis.id); ++value) {
        Point point = failing[f];
        at(point, axis.id) = static_cast<std::uint16_t>(value);
        point = space.canonical(point);
        std::size_t broken = 0, which = 0;
        for (std::size_t l = 0; l < literals.size(); ++l) {
          if (!literals[l](point)) ++broken, which = l;
        }
        if (broken > 1 || constraints.check(point) != 0) continue;
        const std::string id = matrix::id_of(space, point);
        if (!known.insert(id).second) continue;
        const std::string why = broken == 1 ? "without " + explanation.rule.literals[which]
                                            : "elsewhere: " + std::string(axis.name) + " " + space.text(axis.id, value);
        std::size_t disagree = 0;
        for (const Expression& other : others) disagree += other(point) != (broken == 0);
        beside[broken == 1 ? "0" + why : "1" + std::string(axis.name)].push_back(
            {{id, broken == 0, why}, disagree, matrix::id_hash(id)});
      }
    }
  }
  for (auto& [what, list] : beside) {
    std::stable_sort(list.begin(), list.end(), [](const Beside& a, const Beside& b) {
      return a.disagree != b.disagree ? a.disagree > b.disagree : a.hash < b.hash;
    });
  }
  // Round-robin, so that every literal and every other axis is covered.
  std::vector<Refuter> out;
  std::map<std::string, std::size_t> next;
  for (bool any = true; any && out.size() < most;) {
    any = false;
    for (auto& [what, list] : beside) {
      std::size_t& at = next[what];
      while (at < list.size() && !runs(list[at].refuter.id)) ++at;
      if (at == list.size() || out.size() == most) continue;
      out.push_back(list[at++].refuter);
      any = true;
    }
  }
  return out;
}

double lower_bound(std::size_t held) { return held == 0 ? 0 : std::pow(0.05, 1.0 / static_cast<double>(held)); }

}  // namespace kvcts::triage
