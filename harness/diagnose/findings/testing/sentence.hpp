// A sentence of `what_happened` read back: its scope, its counts and what it says of each byte. Tests only: the suite
// branches on enumerators.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <regex>
#include <stdexcept>

#include "diagnose/findings/testing/executed.hpp"

namespace kvcts::scenario::sentences {

inline std::vector<std::string> split(const std::string& text, const std::string& by) {
  std::vector<std::string> out;
  std::size_t begin = 0;
  for (std::size_t at; (at = text.find(by, begin)) != std::string::npos; begin = at + by.size())
    out.push_back(text.substr(begin, at - begin));
  out.push_back(text.substr(begin));
  return out;
}

inline std::int64_t number_in(std::string text) {
  std::erase(text, ',');
  return std::stoll(text);
}

using Sets = std::map<Part, std::set<std::int64_t>>;
/// What a coordinate became; nothing: any other.
using Change = std::function<std::optional<std::int64_t>(std::int64_t)>;

struct Sentence {
  std::string where;  ///< a memory, or a region
  Sets scope;
  std::optional<std::pair<std::int64_t, std::int64_t>> range;  ///< bytes, both included
  bool shortened{false};                                       ///< "and 3 more": the scope is not said in full
  std::string what;
  std::int64_t count{0};
  std::optional<std::int64_t> of;
};

class Reader {
 public:
  explicit Reader(const Scenario& scenario) {
    for (const auto& [name, request] : scenario.requests) requests_[name] = request.generation;
  }

  Sentence read(const std::string& text) const {
    static const std::regex form(R"((.*?): (.*) \(([\d,]+)(?: of ([\d,]+))? bytes?\))");
    std::smatch m;
    if (!std::regex_match(text, m, form)) throw std::runtime_error("no scope, no words or no count");
    Sentence out;
    out.what = m[2], out.count = number_in(m[3]);
    if (m[4].matched) out.of = number_in(m[4]);
    std::string scope = m[1];
    // "tokens 0..3 (block 5)".
    if (const auto open = scope.find(" (block"); open != std::string::npos) {
      const auto close = scope.find(')', open);
      read_sets(split(scope.substr(open + 2, close - open - 2), ", "), out);
      scope.erase(open, close - open + 1);
    }
    auto words = split(scope, ", ");
    out.where = words.front();
    words.erase(words.begin());
    read_sets(words, out);
    return out;
  }

  /// "request A", "layers 0..1, 4", "K and V", into `to.scope`, `range` and `shortened`.
  void read_sets(const std::vector<std::string>& words, Sentence& to) const {
    std::optional<Part> last;
    for (std::string word : words) {
      static const std::regex more(R"((.*) and (\d+) more)"), bytes(R"(bytes? (-?\d+)(?:\.\.(-?\d+))?)"),
          axis(R"((request|generation|layer|token|block|slot|head|channel)s? (.*))");
      std::smatch m;
      const bool cut = std::regex_match(word, m, more);
      if (cut) to.shortened = true, word = std::string(m[1]);
      if (std::regex_match(word, m, bytes)) {
        const std::int64_t begin = std::stoll(m[1]);
        to.range = {begin, m[2].matched ? std::stoll(m[2]) : begin};
        continue;
      }
      if (std::regex_match(word, m, axis)) {
        last = part(m[1]);
        word = std::string(m[2]);
      } else if (auto named = names(word)) {
        for (const auto& [p, value] : *named) to.scope[p].insert(value), last = p;
        continue;
      }
      if (!last) throw std::runtime_error("no axis: " + word);
      add(*last, word, to.scope[*last]);
      if (cut) to.scope.erase(*last);
    }
  }

  static Part part(const std::string& word) {
    static const std::map<std::string, Part> parts{
        {"component", component}, {"request", request}, {"generation", request}, {"layer", layer}, {"K/V", kv},
        {"token", token},         {"block", block},     {"slot", slot},          {"head", head},   {"channel", channel},
        {"K and V", kv},          {"layers", layer},    {"blocks", block},       {"slots", slot},  {"heads", head},
        {"channels", channel}};
    const auto found = parts.find(word);
    if (found == parts.end()) throw std::runtime_error("no axis: " + word);
    return found->second;
  }

  /// "K", "K and V", "data and scales".
  std::optional<std::vector<std::pair<Part, std::int64_t>>> names(const std::string& word) const {
    std::vector<std::pair<Part, std::int64_t>> out;
    for (const std::string& one : split(word, " and ")) {
      const auto value = name(one);
      if (!value) return std::nullopt;
      out.push_back(*value);
    }
    return out;
  }
  std::optional<std::pair<Part, std::int64_t>> name(const std::string& word) const {
    if (word == "K" || word == "V") return std::pair(kv, std::int64_t{word == "V"});
    if (word == "data") return std::pair(component, std::int64_t{0});
    if (word == "scales") return std::pair(component, std::int64_t{1});
    if (word == "global scales") return std::pair(component, std::int64_t{2});
    if (const auto found = requests_.find(word); found != requests_.end()) return std::pair(request, found->second);
    return std::nullopt;
  }

  /// Maps of "holds heads 0 and 1 exchanged, token + 4": by axis. `values`: those on each axis of the sentence.
  std::map<Part, Change> changes(const std::string& text, const Sets& values, bool& other_byte) const {
    std::map<Part, Change> out;
    std::map<Part, std::map<std::int64_t, std::int64_t>> tables;
    static const std::regex shift(R"((.+) ([+-]) (\d+))"), times(R"((.+) x (\d+))"), modulo(R"((.+) modulo (\d+))"),
        rounded(R"((.+) rounded down to a multiple of (\d+))"), reverse(R"((.+)s in reverse)"),
        any(R"(other (.+)s in no simple order)"), swapped(R"((?:(\w+)s )?(.+) and (.+) exchanged)"),
        table(R"((?:(\S+?)s(?: exchanged:)? )?(\S+(?: scales)?) for (\S+(?: scales)?))"), always(R"(([\w/]+) (\S+))"),
        range(R"((\w+)s (\d+)\.\.(\d+))");
    std::optional<Part> last;
    bool shortened = false;
    for (std::string word : split(text, ", ")) {
      std::smatch m;
      static const std::regex more(R"((.*) and \d+ more)");
      if (std::regex_match(word, m, more)) shortened = true, word = std::string(m[1]);
      const auto by = [&](int group) { return number_in(m[static_cast<std::size_t>(group)]); };
      if (word == "the bytes of each code in another order") {
        other_byte = true;
      } else if (std::regex_match(word, m, any)) {
        out[part(m[1])] = [](std::int64_t) { return std::nullopt; };
      } else if (std::regex_match(word, m, rounded)) {
        out[part(m[1])] = [n = by(2)](std::int64_t x) { return x - x % n; };
      } else if (std::regex_match(word, m, modulo)) {
        out[part(m[1])] = [n = by(2)](std::int64_t x) { return x % n; };
      } else if (std::regex_match(word, m, times)) {
        out[part(m[1])] = [n = by(2)](std::int64_t x) { return x * n; };
      } else if (std::regex_match(word, m, shift)) {
        out[part(m[1])] = [n = by(3) * (m[2] == "-" ? -1 : 1)](std::int64_t x) { return x + n; };
      } else if (std::regex_match(word, m, reverse)) {
        const auto& chosen = values.at(part(m[1]));
        out[part(m[1])] = [sum = *chosen.begin() + *chosen.rbegin()](std::int64_t x) { return sum - x; };
      } else if (std::regex_match(word, m, swapped)) {
        const auto [p, a] = value(m[1], m[2], last);
        const auto b = value(m[1], m[3], last).second;
        tables[p] = {{a, b}, {b, a}};
      } else if (std::regex_match(word, m, table)) {
        add_table(m[1], m[2], m[3], last, tables);
      } else if (std::regex_match(word, m, range)) {
        const Part p = part(m[1]);
        out[p] = [n = by(2) - *values.at(p).begin()](std::int64_t x) { return x + n; };
      } else if (const auto named = name(word)) {
        out[named->first] = [n = named->second](std::int64_t) { return n; };
      } else if (std::regex_match(word, m, always)) {
        const auto [p, to] = value(m[1], m[2], last);
        out[p] = [n = to](std::int64_t) { return n; };
      } else {
        throw std::runtime_error("no such change: " + word);
      }
    }
    for (const auto& [p, entries] : tables)
      out[p] = [entries = entries, shortened](std::int64_t x) -> std::optional<std::int64_t> {
        const auto found = entries.find(x);
        if (found == entries.end() && shortened) return std::nullopt;
        return found == entries.end() ? x : found->second;
      };
    return out;
  }

 private:
  static void add(Part p, const std::string& word, std::set<std::int64_t>& to,
                  const std::map<std::string, std::int64_t>& names) {
    static const std::regex form(R"((-?\d+)(?:\.\.(-?\d+))?)");
    std::smatch m;
    if (p == request) {
      for (const std::string& one : split(word, " and ")) to.insert(names.contains(one) ? names.at(one) : std::stoll(one));
      return;
    }
    if (!std::regex_match(word, m, form)) throw std::runtime_error("no number: " + word);
    const std::int64_t begin = std::stoll(m[1]), end = m[2].matched ? std::stoll(m[2]) : begin;
    for (std::int64_t i = begin; i <= end; ++i) to.insert(i);
  }
  void add(Part p, const std::string& word, std::set<std::int64_t>& to) const { add(p, word, to, requests_); }

  /// "heads", "1" or "", "K".
  std::pair<Part, std::int64_t> value(const std::string& axis, const std::string& word, std::optional<Part>& last) const {
    if (const auto named = name(word)) return last = named->first, *named;
    if (!axis.empty()) last = part(axis);
    if (!last) throw std::runtime_error("no axis: " + word);
    return {*last, std::stoll(word)};
  }
  void add_table(const std::string& axis, const std::string& is, const std::string& should, std::optional<Part>& last,
                 std::map<Part, std::map<std::int64_t, std::int64_t>>& tables) const {
    const auto dots = [](const std::string& word) { return word.find(".."); };
    if (dots(is) == std::string::npos) {
      const auto [p, to] = value(axis, is, last);
      tables[p][value(axis, should, last).second] = to;
      return;
    }
    const auto [p, to] = value(axis, is.substr(0, dots(is)), last);
    const std::int64_t from = std::stoll(should.substr(0, dots(should))), end = std::stoll(should.substr(dots(should) + 2));
    for (std::int64_t x = from; x <= end; ++x) tables[p][x] = to + x - from;
  }

  std::map<std::string, std::int64_t> requests_;
};

}  // namespace kvcts::scenario::sentences
