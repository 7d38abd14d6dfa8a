// The JSON form of results and of what the checker reports: one table of fields for both writer and reader. Strict both
// ways: an unknown key, a missing key, a wrong type and an unknown word are errors that name the key.
#include "case/result.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <tuple>

#include "case/text.hpp"

namespace kvcts {
namespace {

using nlohmann::json;

// Text of code under test may hold any bytes; JSON must hold UTF-8. Other bytes become U+FFFD.
std::string utf8(const std::string& text) {
  const auto broken = [&] {  // cheap test first: nearly all texts are ASCII
    return std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
  };
  if (!broken()) return text;
  const std::string quoted = json(text).dump(-1, ' ', false, json::error_handler_t::replace);
  return json::parse(quoted).get<std::string>();
}

json utf8(const json& value) {
  if (value.is_string()) return utf8(value.get_ref<const std::string&>());
  if (value.is_array()) {
    json out = json::array();
    for (const auto& item : value) out.push_back(utf8(item));
    return out;
  }
  if (value.is_object()) {
    json out = json::object();
    for (const auto& [key, item] : value.items()) out[utf8(key)] = utf8(item);
    return out;
  }
  return value;
}

[[noreturn]] void wrong(std::string_view key, const std::string& what) {
  throw std::runtime_error("result: key '" + std::string(key) + "': " + what);
}

// ---- values ----------------------------------------------------------------------------------------------------------

template <typename T>
struct Words;
template <>
struct Words<Outcome> {
  static std::optional<Outcome> parse(std::string_view word) { return outcome_from_name(word); }
};
template <>
struct Words<Phase> {
  static std::optional<Phase> parse(std::string_view word) { return phase_from_name(word); }
};
template <>
struct Words<FaultClass> {
  static std::optional<FaultClass> parse(std::string_view word) { return fault_class_from_name(word); }
};
template <>
struct Words<Evidence> {
  static std::optional<Evidence> parse(std::string_view word) { return evidence_from_name(word); }
};
template <>
struct Words<HangKind> {
  static std::optional<HangKind> parse(std::string_view word) { return hang_from_name(word); }
};
template <>
struct Words<DiagnosedBy> {
  static std::optional<DiagnosedBy> parse(std::string_view word) { return diagnosed_by_from_name(word); }
};
template <>
struct Words<Verdict> {
  static std::optional<Verdict> parse(std::string_view word) { return verdict_from_name(word); }
};

template <typename T>
json write(const T& value);

template <typename T>
void read(const json& in, T& value, std::string_view key);

void check_utf8(std::string_view key, const json& in) {
  if (!in.is_string()) wrong(key, std::string("expected a string, found ") + in.type_name());
}

template <typename T>
constexpr bool is_word = requires { Words<T>::parse(""); };

template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};
template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};

// ---- fields ----------------------------------------------------------------------------------------------------------

enum class When { always, if_set };  // if_set: omitted when equal to the default

template <typename Owner, typename Member>
struct Field {
  std::string_view key;
  Member Owner::* member;
  When when;
};
template <typename Owner, typename Member>
Field(std::string_view, Member Owner::*, When) -> Field<Owner, Member>;

template <typename T>
struct Fields;

template <>
struct Fields<PhaseTime> {
  static constexpr std::tuple table{
      Field{"phase", &PhaseTime::phase, When::always},
      Field{"ns", &PhaseTime::ns, When::always},
  };
};
template <>
struct Fields<WrongByte> {
  static constexpr std::tuple table{
      Field{"region", &WrongByte::region, When::always},     Field{"offset", &WrongByte::offset, When::always},
      Field{"expected", &WrongByte::expected, When::always}, Field{"observed", &WrongByte::observed, When::always},
      Field{"where", &WrongByte::where, When::always},
  };
};
template <>
struct Fields<Cause> {
  static constexpr std::tuple table{
      Field{"class", &Cause::fault_class, When::always},    Field{"words", &Cause::words, When::always},
      Field{"share", &Cause::share, When::always},          Field{"rival", &Cause::competing, When::if_set},
      Field{"told_by", &Cause::diagnosed_by, When::if_set},
  };
  static constexpr std::array<std::string_view, 1> retired{"two"};
};
template <>
struct Fields<Diagnosis> {
  static constexpr std::tuple table{
      Field{"fault_class", &Diagnosis::fault_class, When::always},
      Field{"exact", &Diagnosis::exact, When::always},
      Field{"text", &Diagnosis::text, When::always},
      Field{"what_to_do", &Diagnosis::what_to_do, When::if_set},
      Field{"sure", &Diagnosis::sure, When::if_set},
      Field{"causes", &Diagnosis::causes, When::if_set},
  };
  static constexpr std::array<std::string_view, 1> retired{"others"};
};
template <>
struct Fields<Finding> {
  static constexpr std::tuple table{
      Field{"text", &Finding::text, When::always},     Field{"bytes", &Finding::bytes, When::always},
      Field{"vague", &Finding::vague, When::if_set},   Field{"kind", &Finding::kind, When::if_set},
      Field{"pieces", &Finding::pieces, When::if_set},
  };
};
template <>
struct Fields<EvidenceFile> {
  static constexpr std::tuple table{
      Field{"kind", &EvidenceFile::kind, When::always},
      Field{"text", &EvidenceFile::text, When::always},
  };
};
template <>
struct Fields<SideDigests> {
  static constexpr std::tuple table{
      Field{"before", &SideDigests::before, When::always},
      Field{"after", &SideDigests::after, When::always},
  };
};
template <>
struct Fields<Digests> {
  static constexpr std::tuple table{
      Field{"producer", &Digests::producer, When::always},
      Field{"consumer", &Digests::consumer, When::always},
  };
};
template <>
struct Fields<Try> {
  static constexpr std::tuple table{
      Field{"number", &Try::number, When::always},   Field{"outcome", &Try::outcome, When::always},
      Field{"phase", &Try::phase, When::if_set},     Field{"fault_class", &Try::fault_class, When::if_set},
      Field{"message", &Try::message, When::always}, Field{"wall_ns", &Try::wall_ns, When::always},
  };
};
template <>
struct Fields<Tries> {
  static constexpr std::tuple table{
      Field{"made", &Tries::made, When::always},
      Field{"failed", &Tries::failed, When::always},
      Field{"retries", &Tries::retries, When::if_set},
      Field{"failures", &Tries::failures, When::if_set},
  };
};
template <>
struct Fields<Report> {
  static constexpr std::tuple table{
      Field{"outcome", &Report::outcome, When::always},
      Field{"phase", &Report::phase, When::if_set},
      Field{"hang", &Report::hang, When::if_set},
      Field{"signal", &Report::signal, When::if_set},
      Field{"message", &Report::message, When::if_set},
      Field{"state", &Report::state, When::if_set},
      Field{"all_arrived", &Report::all_arrived, When::if_set},
      Field{"source_changed", &Report::source_changed, When::if_set},
      Field{"diagnosis", &Report::diagnosis, When::if_set},
      Field{"what_happened", &Report::what_happened, When::if_set},
      Field{"checked_bytes", &Report::checked_bytes, When::always},
      Field{"expected_bytes", &Report::expected_bytes, When::always},
      Field{"wrong_bytes", &Report::wrong_bytes, When::always},
      Field{"first_wrong", &Report::first_wrong, When::if_set},
      Field{"digests", &Report::digests, When::if_set},
      Field{"moved_bytes", &Report::moved_bytes, When::if_set},
      Field{"events", &Report::events, When::if_set},
      Field{"tried", &Report::tried, When::if_set},
      Field{"trace", &Report::trace, When::if_set},
      Field{"picture", &Report::picture, When::if_set},
      Field{"compare_ns", &Report::compare_ns, When::always},
      Field{"diagnose_ns", &Report::diagnose_ns, When::always},
  };
};
template <>
struct Fields<LateWrite> {
  static constexpr std::tuple table{
      Field{"changed", &LateWrite::changed, When::always},
      Field{"bytes", &LateWrite::bytes, When::always},
      Field{"message", &LateWrite::message, When::if_set},
  };
};
template <>
struct Fields<CaseResult> {
  static constexpr std::tuple table{
      Field{"id", &CaseResult::id, When::always},
      Field{"case_digest", &CaseResult::case_digest, When::always},
      Field{"execution", &CaseResult::execution, When::always},
      Field{"seed", &CaseResult::seed, When::always},
      Field{"outcome", &CaseResult::outcome, When::always},
      Field{"phase", &CaseResult::phase, When::if_set},
      Field{"hang", &CaseResult::hang, When::if_set},
      Field{"signal", &CaseResult::signal, When::if_set},
      Field{"message", &CaseResult::message, When::always},
      Field{"diagnosis", &CaseResult::diagnosis, When::if_set},
      Field{"evidence", &CaseResult::evidence, When::always},
      Field{"verdict", &CaseResult::verdict, When::always},
      Field{"waiver", &CaseResult::waiver, When::if_set},
      Field{"tries", &CaseResult::tries, When::if_set},
      Field{"phases", &CaseResult::phases, When::always},
      Field{"wall_ns", &CaseResult::wall_ns, When::always},
      Field{"peak_bytes", &CaseResult::peak_bytes, When::always},
      Field{"checked_bytes", &CaseResult::checked_bytes, When::always},
      Field{"planned_bytes", &CaseResult::planned_bytes, When::always},
      Field{"moved_bytes", &CaseResult::moved_bytes, When::always},
      Field{"expected_bytes", &CaseResult::expected_bytes, When::always},
      Field{"copies", &CaseResult::copies, When::always},
      Field{"wrong_bytes", &CaseResult::wrong_bytes, When::always},
      Field{"first_wrong", &CaseResult::first_wrong, When::if_set},
      Field{"what_happened", &CaseResult::what_happened, When::if_set},
      Field{"digests", &CaseResult::digests, When::if_set},
      Field{"worker", &CaseResult::worker, When::if_set},
      Field{"worker_ordinal", &CaseResult::worker_ordinal, When::if_set},
      Field{"ran_before", &CaseResult::ran_before, When::if_set},
      Field{"evidence_files", &CaseResult::evidence_files, When::if_set},
      Field{"facts", &CaseResult::facts, When::always},
      Field{"picture", &CaseResult::picture, When::if_set},
  };
};

template <typename T>
constexpr bool is_record = requires { Fields<T>::table; };

// Keys that older versions wrote, in runs that are still read.
template <typename T>
bool is_retired(std::string_view key) {
  if constexpr (requires { Fields<T>::retired; })
    return std::ranges::find(Fields<T>::retired, key) != Fields<T>::retired.end();
  return false;
}

template <typename T>
bool is_default(const T& value) {
  if constexpr (IsOptional<T>::value) {
    return !value.has_value();
  } else if constexpr (IsVector<T>::value || std::is_same_v<T, std::string>) {
    return value.empty();
  } else if constexpr (is_record<T>) {
    return std::apply([&](const auto&... field) { return (is_default(value.*field.member) && ...); }, Fields<T>::table);
  } else {
    return value == T{};
  }
}

template <typename T>
json write(const T& value) {
  if constexpr (IsOptional<T>::value) {
    return write(*value);  // only called when set
  } else if constexpr (is_word<T>) {
    return std::string(name(value));
  } else if constexpr (std::is_same_v<T, json>) {
    return value.is_null() ? json::object() : utf8(value);
  } else if constexpr (std::is_same_v<T, std::string>) {
    return utf8(value);
  } else if constexpr (IsVector<T>::value) {
    json out = json::array();
    for (const auto& item : value) out.push_back(write(item));
    return out;
  } else if constexpr (is_record<T>) {
    json out = json::object();
    const auto put = [&](const auto& field) {
      if (field.when == When::if_set && is_default(value.*field.member)) return;
      out.emplace(field.key, write(value.*field.member));
    };
    std::apply([&](const auto&... field) { (put(field), ...); }, Fields<T>::table);
    return out;
  } else {
    return value;
  }
}

template <typename T>
void read(const json& in, T& value, std::string_view key) {
  if constexpr (IsOptional<T>::value) {
    typename T::value_type inner{};
    read(in, inner, key);
    value = inner;
  } else if constexpr (is_word<T>) {
    check_utf8(key, in);
    const auto parsed = Words<T>::parse(in.get_ref<const std::string&>());
    if (!parsed) wrong(key, "unknown word '" + in.get<std::string>() + "'");
    value = *parsed;
  } else if constexpr (std::is_same_v<T, std::string>) {
    check_utf8(key, in);
    value = in.get<std::string>();
  } else if constexpr (std::is_same_v<T, bool>) {
    if (!in.is_boolean()) wrong(key, std::string("expected true or false, found ") + in.type_name());
    value = in.get<bool>();
  } else if constexpr (std::is_same_v<T, double>) {
    if (!in.is_number()) wrong(key, std::string("expected a number, found ") + in.type_name());
    value = in.get<double>();
  } else if constexpr (std::is_same_v<T, json>) {
    if (!in.is_object()) wrong(key, std::string("expected an object, found ") + in.type_name());
    value = in;
  } else if constexpr (std::is_same_v<T, std::uint64_t>) {
    if (!in.is_number_unsigned() && !(in.is_number_integer() && in.get<std::int64_t>() >= 0)) {
      wrong(key, "expected a whole number from 0 to 2^64-1, found " + in.dump());
    }
    value = in.get<std::uint64_t>();
  } else if constexpr (std::is_same_v<T, std::int64_t>) {
    if (!in.is_number_integer() || (in.is_number_unsigned() && in.get<std::uint64_t>() > INT64_MAX)) {
      wrong(key, "expected a whole number of 64 bits, found " + in.dump());
    }
    value = in.get<std::int64_t>();
  } else if constexpr (IsVector<T>::value) {
    if (!in.is_array()) wrong(key, std::string("expected a list, found ") + in.type_name());
    value.clear();
    value.reserve(in.size());
    for (const auto& item : in) read(item, value.emplace_back(), key);
  } else {
    static_assert(is_record<T>);
    if (!in.is_object()) wrong(key, std::string("expected an object, found ") + in.type_name());
    value = T{};
    std::size_t used = 0;
    const auto take = [&](const auto& field) {
      const auto found = in.find(field.key);
      if (found == in.end()) {
        if (field.when == When::always) wrong(field.key, "missing");
        return;
      }
      ++used;
      read(*found, value.*field.member, field.key);
    };
    std::apply([&](const auto&... field) { (take(field), ...); }, Fields<T>::table);
    if (used == in.size()) return;
    for (const auto& [name_in, item] : in.items()) {
      const bool known = std::apply([&](const auto&... field) { return ((field.key == name_in) || ...); }, Fields<T>::table);
      if (!known && !is_retired<T>(name_in)) wrong(name_in, "not a key of a result");
    }
  }
}

template <typename T>
T record_from(const json& in) {
  T record;
  read(in, record, "(whole)");
  return record;
}

}  // namespace

std::string in_a_line(const std::vector<Finding>& what_happened) {
  constexpr std::size_t most = 3;
  std::string out;
  for (std::size_t i = 0; i < std::min(most, what_happened.size()); ++i) out += (i == 0 ? "" : "; ") + what_happened[i].text;
  if (what_happened.size() > most) out += "; and " + std::to_string(what_happened.size() - most) + " more";
  return out;
}

std::string to_string(const Cause& cause) { return std::string(name(cause.fault_class)) + ": " + cause.words; }

Diagnosis named(std::vector<Cause> causes, const std::string& extent, const Doubts& doubts) {
  const Cause& first = causes.at(0);
  Diagnosis out{first.fault_class, true, first.words, std::string(advice(first.fault_class))};
  if (!extent.empty()) out.text += ": " + extent;
  const auto list_those = [&](std::string_view before, auto&& such) {
    std::string words;
    for (const Cause& other : causes)
      if (such(other)) words += (words.empty() ? " " : ", or ") + to_string(other);
    if (!words.empty()) out.text += "; " + std::string(before) + words;
  };
  list_those("the bytes cannot tell it from", [](const Cause& other) { return other.competing; });
  list_those("only the number of bytes moved tells it from",
             [](const Cause& other) { return other.diagnosed_by == DiagnosedBy::count; });
  list_those("only how it ended or what was reported tells it from",
             [](const Cause& other) { return other.diagnosed_by == DiagnosedBy::events; });
  if (doubts.other_count) out.text += "; it would have moved another number of bytes";
  for (std::size_t i = 0; i < doubts.undeclared.size(); ++i)
    out.text += (i == 0 ? "; nothing declares " : ", ") + text::thousands(doubts.undeclared[i]);
  if (!doubts.unexplained_part.empty()) out.text += "; it does not say " + doubts.unexplained_part;
  if (doubts.cut) out.text += "; not all other causes were tried";
  const bool doubtful = doubts.cut || !doubts.unexplained_part.empty() || doubts.other_count || !doubts.undeclared.empty();
  out.sure = !doubtful && std::ranges::all_of(causes, [&](const Cause& other) {
    return other.fault_class == first.fault_class || other.diagnosed_by != DiagnosedBy::nothing;
  });
  out.causes = std::move(causes);
  return out;
}

std::string explains_all(std::int64_t wrong_bytes) {
  return wrong_bytes > 0 ? "explains 100 % of " + text::thousands(wrong_bytes) + " wrong bytes" : "";
}

json to_json(const CaseResult& result) { return write(result); }
CaseResult result_from_json(const json& in) { return record_from<CaseResult>(in); }
json to_json(const Report& report) { return write(report); }
Report report_from_json(const json& in) { return record_from<Report>(in); }
json to_json(const LateWrite& late) { return write(late); }
LateWrite late_write_from_json(const json& in) { return record_from<LateWrite>(in); }

}  // namespace kvcts
