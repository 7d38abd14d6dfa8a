// Whether sentences of `what_happened` are true of the bytes of a played scenario. A sentence is about every byte in its
// scope: content where content was meant, else all bytes of the places that it names.
#pragma once

#include <fmt/format.h>

#include "diagnose/findings/testing/sentence.hpp"

namespace kvcts::scenario::sentences {

class Evaluator {
 public:
  explicit Evaluator(const ExecutedScenario& executed)
      : p_(executed), reader_(executed.scenario), covered_(executed.bytes.size()) {
    for (const Byte& byte : p_.bytes)
      if (byte.meant) source_ranges_[content_of(byte)].push_back(&byte);
  }

  /// What is false of the list; "": nothing.
  std::string hold(const std::vector<std::string>& sentences) {
    std::int64_t sum = 0;
    for (const std::string& text : sentences) {
      std::string why;
      try {
        const Sentence sentence = reader_.read(text);
        sum += sentence.count;
        why = hold(sentence);
      } catch (const std::exception& error) {
        why = fmt::format("cannot be read: {}", error.what());
      }
      if (!why.empty()) return text + "\n  " + why;
    }
    if (sum != p_.wrong()) return fmt::format("{} bytes in all sentences, {} are wrong", sum, p_.wrong());
    for (std::size_t i = 0; i < p_.bytes.size(); ++i)
      if (p_.bytes[i].wrong && !covered_[i]) return "under no sentence: " + position(p_.bytes[i]);
    return "";
  }

 private:
  using Holds = std::function<bool(const Byte&)>;

  static Element content_of(const Byte& byte) {
    Element out = byte.place;
    out.at[block] = out.at[slot] = nowhere;
    return out;
  }
  std::string position(const Byte& byte) const {
    return fmt::format("{} + {} ({}, at {})", p_.buffer_of(byte).name, byte.offset, byte.meant ? "content" : "nothing meant",
                       fmt::join(byte.place.at, " "));
  }
  bool lies_in(const Byte& byte, const std::string& where) const {
    const Buffer& b = p_.buffer_of(byte);
    return b.memory == where || b.name == where;
  }
  /// A range of bytes is of one region.
  bool one_region(const std::string& name) const {
    return std::ranges::count_if(p_.space.buffers(), [&](const Buffer& b) { return b.memory == name || b.name == name; }) ==
           1;
  }
  static bool within(const Element& e, const Sets& sets) {
    return std::ranges::all_of(sets, [&](const auto& one) { return one.second.contains(e.at[one.first]); });
  }
  /// Bytes between two neighbours on an axis, by the declared layout; nothing: it has no two.
  std::optional<std::int64_t> stride_of(const Byte& byte, Part p) const {
    for (const Byte& next : p_.bytes) {
      Element e = byte.place;
      const std::int64_t ahead = next.place.at[p] - e.at[p];
      if (!next.located || next.buffer != byte.buffer || ahead == 0 || next.place.byte != e.byte) continue;
      e.at[p] = next.place.at[p], e.at[request] = next.place.at[request], e.at[token] = next.place.at[token];
      if (e == next.place) return (next.offset - byte.offset) / ahead;
    }
    return std::nullopt;
  }

  std::string hold(const Sentence& s) {
    if (s.of && s.count > *s.of) return "more than all";
    if (s.count <= 0) return "of nothing";
    if (s.range && !one_region(s.where)) return "a range of several regions";
    if (s.what.starts_with("content lies ") || s.what.starts_with("was read ")) return hold_fit(s);
    if (s.what.find(", byte") != std::string::npos && says(s, "holds ") && !says(s, "code")) return hold_copy(s);
    std::optional<std::string> out;
    // Where neither the words nor the scope say whether content was meant, one of the two must be true.
    for (const bool content : {true, false}) {
      if (content ? only_elsewhere(s) : out && only_content(s)) continue;
      out = hold(s, content);
      if (out->empty()) break;
    }
    return *out;
  }
  static bool says(const Sentence& s, const std::string& words) { return s.what.find(words) != std::string::npos; }
  static bool only_elsewhere(const Sentence& s) {
    return s.range || (!s.scope.contains(token) && (s.scope.contains(block) || s.scope.contains(slot))) ||
           says(s, "nothing was meant") || says(s, "instead of 0x") || says(s, "as before") || says(s, "overwritten");
  }
  static bool only_content(const Sentence& s) {
    return s.scope.contains(token) || s.scope.contains(request) || s.what == "not written" || says(s, "exchanged") ||
           says(s, "in the other order") || s.what.starts_with("as it lies");
  }

  std::string hold(const Sentence& s, bool content) {
    std::vector<const Byte*> all;
    for (const Byte& byte : p_.bytes) {
      const bool in = s.range ? byte.offset >= s.range->first && byte.offset <= s.range->second
                              : (content ? byte.meant : byte.located) && within(byte.place, s.scope);
      if (in && lies_in(byte, s.where)) all.push_back(&byte);
    }
    Sets values;
    for (const Byte* byte : all)
      for (int p = 0; p < parts; ++p) values[static_cast<Part>(p)].insert(byte->place.at[static_cast<std::size_t>(p)]);
    const bool turned = says(s, "in the other order");
    const Holds holds = turned ? order_of(s, values) : to_string(s, values);
    std::int64_t count = 0, right = 0;
    const Byte* other = nullptr;
    for (const Byte* byte : all) {
      const bool holding = holds(*byte);
      // Exchanged axes leave some in their place.
      if (turned && holding && !byte->wrong)
        ++right;
      else if (!holding || !byte->wrong)
        other = byte;
      else
        ++count, covered_[static_cast<std::size_t>(byte - p_.bytes.data())] = true;
    }
    if (s.shortened) return count < s.count ? fmt::format("{} bytes hold that", count) : "";
    const auto size = static_cast<std::int64_t>(all.size()) - right;
    if (!s.of && other) return fmt::format("{} of {} bytes hold that, not {}", count, size, position(*other));
    if (s.of.value_or(s.count) != size) return fmt::format("{} bytes are there", size);
    if (count < s.count) return fmt::format("{} bytes hold that", count);
    if (says(s, "nothing was meant") || says(s, "still holds")) return exact_content(s, all, holds);
    return "";
  }

  /// Every value that the words list is there.
  std::string exact_content(const Sentence& s, const std::vector<const Byte*>& all, const Holds& holds) const {
    const Sets listed = sets_of(s);
    Sets found;
    for (const Byte* byte : all)
      if (holds(*byte))
        for (const Element& e : p_.elements.at(byte->is))
          if (within(e, listed))
            for (const auto& [p, values] : listed) found[p].insert(e.at[p]);
    return found == listed ? "" : "a value that is listed is not there";
  }
  Sets sets_of(const Sentence& s) const {
    static const std::regex form(R"((?:still )?holds (.*?)(?:, where nothing was meant|instead of 0x.*| instead of 0x.*))");
    std::smatch m;
    if (!std::regex_match(s.what, m, form)) throw std::runtime_error("no list of content");
    Sentence list;
    reader_.read_sets(split(m[1], ", "), list);
    return list.scope;
  }

  static bool all_are(const Value& value, int byte) {
    return std::ranges::all_of(value, [&](std::uint8_t one) { return one == byte; });
  }
  static bool constant(const Value& value) { return all_are(value, value[0]); }

  Holds to_string(const Sentence& s, const Sets& values) const {
    std::string what = s.what;
    Holds instead = [](const Byte&) { return true; };
    std::smatch m;
    static const std::regex erased(R"((.*) instead of 0x(..))"), value(R"((?:holds|overwritten with) 0x(..))"),
        before(R"(holds what was in (a guard of )?(\S+) before anything was written)"), follows(R"(as it lies in (\S+))");
    if (says(s, "still holds") || says(s, "nothing was meant"))
      return [this, listed = sets_of(s)](const Byte& b) {
        return one_of(b.is, [&](const Element& e) { return within(e, listed); });
      };
    if (std::regex_match(what, m, erased)) {
      instead = [must = std::stoi(m[2], nullptr, 16)](const Byte& b) { return all_are(b.must, must); };
      what = std::string(m[1]);
    }
    const auto with = [&](Holds holds) -> Holds {
      return [instead, holds = std::move(holds)](const Byte& b) { return instead(b) && holds(b); };
    };
    if (what == "not written" || what == "as before") return with([](const Byte& b) { return b.is == b.fresh; });
    if (std::regex_match(what, m, value))
      return with([byte = std::stoi(m[1], nullptr, 16)](const Byte& b) { return all_are(b.is, byte); });
    if (std::regex_match(what, m, before))
      return [this, guard = m[1].matched, memory = std::string(m[2])](const Byte& b) { return was_in(b, memory, guard); };
    if (std::regex_match(what, m, follows))
      return [this, memory = std::string(m[1])](const Byte& b) { return follows_from(b, memory); };
    if (what.ends_with("bytes of poison"))  // of any place
      return with([this](const Byte& b) {
        return b.is == b.poison || std::ranges::any_of(p_.bytes, [&](const Byte& other) { return b.is == other.poison; });
      });
    if (what.ends_with("bytes of unknown origin")) return with([](const Byte&) { return true; });
    if (what.ends_with("bytes that nothing here had"))
      return with(
          [this](const Byte& b) { return !p_.elements.contains(b.is) && !p_.before.contains(b.is) && !constant(b.is); });
    if (what == "holds parts of several elements") return [this](const Byte& b) { return !p_.elements.contains(b.is); };
    if (!what.starts_with("holds ")) throw std::runtime_error("no such words");
    bool other_byte = false;
    const auto changes = reader_.changes(what.substr(6), values, other_byte);
    return [this, changes, other_byte](const Byte& b) {
      return one_of(b.is, [&](const Element& e) {
        if ((e.byte != b.place.byte) != other_byte) return false;
        for (const Part part : {component, request, layer, kv, token, head, channel}) {
          const auto change = changes.find(part);
          const auto to = change == changes.end() ? std::optional(b.place.at[part]) : change->second(b.place.at[part]);
          // A global scale has no token, head or channel to speak of.
          if (change == changes.end() && e.at[part] == nowhere) continue;
          if (to && *to != e.at[part]) return false;
        }
        return true;
      });
    };
  }

  template <class F>
  bool one_of(const Value& value, F&& fits) const {
    const auto found = p_.elements.find(value);
    return found != p_.elements.end() && std::ranges::any_of(found->second, fits);
  }
  bool was_in(const Byte& b, const std::string& memory, bool guard) const {
    const auto found = p_.before.find(b.is);
    if (found == p_.before.end()) return false;
    return std::ranges::any_of(found->second, [&](BufferAddress place) {
      const Buffer& of = p_.space.buffers()[static_cast<std::size_t>(place.buffer)];
      return of.memory == memory && (place.offset < 0 || place.offset >= of.bytes) == guard;
    });
  }
  bool follows_from(const Byte& b, const std::string& memory) const {
    const auto found = source_ranges_.find(content_of(b));
    return found != source_ranges_.end() && std::ranges::any_of(found->second, [&](const Byte* source_range) {
             return lies_in(*source_range, memory) && source_range->wrong && source_range->is == b.is;
           });
  }

  /// Place (x, y) of two axes holds what the other order puts at x * B + y.
  Holds order_of(const Sentence& s, const Sets& values) const {
    static const std::regex form(R"(holds (\S+?)s and (\S+?)s in the other order)");
    std::smatch m;
    if (!std::regex_match(s.what, m, form)) throw std::runtime_error("no two axes");
    const Part a = Reader::part(m[1]), b = Reader::part(m[2]);
    const std::int64_t as = *values.at(a).rbegin() + 1, bs = *values.at(b).rbegin() + 1;
    return [this, a, b, as, bs](const Byte& byte) {
      Element to = byte.place;
      const std::int64_t flat = to.at[a] * bs + to.at[b];
      to.at[a] = flat % as, to.at[b] = flat / as;
      to.at[token] += to.at[slot] - byte.place.at[slot];
      to.at[block] = to.at[slot] = nowhere;
      return one_of(byte.is, [&](const Element& e) { return e == to; });
    };
  }

  /// "bytes 0..63: holds P, bytes 64..127".
  std::string hold_copy(const Sentence& s) {
    static const std::regex form(R"(holds (\S+), bytes? (-?\d+)(?:\.\.(-?\d+))?)");
    std::smatch m;
    if (!std::regex_match(s.what, m, form) || !s.range) throw std::runtime_error("no two ranges");
    const std::string from = m[1];
    const std::int64_t begin = std::stoll(m[2]), length = m[3].matched ? std::stoll(m[3]) - begin + 1 : 1;
    if (length != s.range->second - s.range->first + 1) return "two lengths";
    if (length != s.of.value_or(s.count)) return fmt::format("{} bytes are there", length);
    if (!one_region(from)) return "from several regions";
    std::map<std::int64_t, const Byte*> sources;
    for (const Byte& byte : p_.bytes)
      if (lies_in(byte, from)) sources[byte.offset] = &byte;
    std::int64_t count = 0;
    for (const Byte& byte : p_.bytes) {
      if (!lies_in(byte, s.where) || byte.offset < s.range->first || byte.offset > s.range->second || !byte.wrong) continue;
      const auto source = sources.find(begin + byte.offset - s.range->first);
      if (source == sources.end()) return "from outside";
      const Byte& one = *source->second;
      if (byte.is != one.must && byte.is != one.fresh && byte.is != one.is) continue;
      ++count, covered_[static_cast<std::size_t>(&byte - p_.bytes.data())] = true;
    }
    return count < s.count ? fmt::format("{} bytes come from there", count) : "";
  }

  std::string hold_fit(const Sentence& s);

  const ExecutedScenario& p_;
  Reader reader_;
  std::vector<bool> covered_;
  std::map<Element, std::vector<const Byte*>> source_ranges_;
};

/// Of strides: each of the counted bytes lies (or was read) a fixed distance from where the strides put it, one for each
/// value of the axes that they do not name.
inline std::string Evaluator::hold_fit(const Sentence& s) {
  static const std::regex shift(R"((content lies|was read) ([\d,]+) bytes (nearer|further) than declared(?: in (\S+))?)"),
      strides(R"((content lies|was read) with (.+ bytes apart.*?)(?: in (\S+?))?(?:; declared: (.*))?)"),
      stride(R"((\S+|K and V) (-?[\d,]+)(?: bytes apart)?)");
  std::smatch m;
  std::map<Part, std::int64_t> found, declared;
  std::optional<std::int64_t> by;
  std::string from;
  if (std::regex_match(s.what, m, shift)) {
    by = number_in(m[2]) * (m[3] == "nearer" ? -1 : 1), from = m[4];
  } else if (std::regex_match(s.what, m, strides)) {
    from = m[3];
    for (auto [list, to] : {std::pair(std::string(m[2]), &found), std::pair(std::string(m[4]), &declared)})
      for (const std::string& word : list.empty() ? std::vector<std::string>{} : split(list, ", ")) {
        std::smatch one;
        if (!std::regex_match(word, one, stride)) throw std::runtime_error("no stride: " + word);
        (*to)[Reader::part(one[1])] = number_in(one[2]);
      }
  } else {
    throw std::runtime_error("no strides");
  }
  const bool read = s.what.starts_with("was read");
  std::map<Part, std::optional<std::int64_t>> real;
  std::map<std::array<std::int64_t, 9>, std::map<std::int64_t, std::set<const Byte*>>> distances;
  // `source_range`: its declared place. `offset`: where it lies or was read from.
  const auto add = [&](const Byte& byte, const Byte& source_range, int region, std::int64_t offset) {
    std::int64_t distance = offset - source_range.offset;
    for (const auto& [p, bytes] : found) {
      if (!real.contains(p)) real[p] = stride_of(source_range, p);
      distance -= (bytes - real[p].value_or(0)) * source_range.place.at[p];
    }
    if (by && distance != *by) return;
    const auto key = [&](Part p) { return found.contains(p) ? 0 : source_range.place.at[p]; };
    distances[{region, source_range.buffer, key(component), key(layer), key(kv), key(block), key(slot), key(head),
               key(channel)}][distance]
        .insert(&byte);
  };
  for (const Byte& byte : p_.bytes) {
    if (!byte.wrong || !lies_in(byte, s.where)) continue;
    covered_[static_cast<std::size_t>(&byte - p_.bytes.data())] = true;  // it does not say which
    if (!read) {
      const auto named = p_.elements.find(byte.is);
      if (named == p_.elements.end()) continue;
      for (const Element& e : named->second)
        if (const auto source_ranges = source_ranges_.find(e); within(e, s.scope) && source_ranges != source_ranges_.end())
          for (const Byte* source_range : source_ranges->second)
            if (p_.buffer_of(*source_range).memory == p_.buffer_of(byte).memory)
              add(byte, *source_range, byte.buffer, byte.offset);
      continue;
    }
    if (!byte.meant || !within(byte.place, s.scope)) continue;
    for (const Byte& source : p_.bytes)
      if (lies_in(source, from) && (source.must == byte.is || source.fresh == byte.is || source.is == byte.is))
        for (const Byte* source_range : source_ranges_[content_of(byte)])
          if (p_.buffer_of(*source_range).memory == p_.buffer_of(source).memory && &source != &byte)
            add(byte, *source_range, source.buffer, source.offset);
  }
  std::set<const Byte*> holding;
  for (const auto& [key, groups] : distances) {
    const auto most = std::ranges::max_element(groups, {}, [](const auto& group) { return group.second.size(); });
    holding.insert(most->second.begin(), most->second.end());
  }
  for (const auto& [p, bytes] : declared)
    if (real[p] && *real[p] != bytes) return fmt::format("{} bytes apart are declared", *real[p]);
  if (std::ranges::all_of(found, [&](const auto& one) { return real[one.first] == one.second; }) && !by)
    return "as it is declared";
  const auto count = static_cast<std::int64_t>(holding.size());
  return count < s.count ? fmt::format("{} bytes lie so", count) : "";
}

}  // namespace kvcts::scenario::sentences
