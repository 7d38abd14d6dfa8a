#include "cli/report/text.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdlib>

#include "run/store/counts.hpp"

namespace kvcts::report {
namespace {

using nlohmann::json;

constexpr char32_t bad = 0xFFFD;

// Decodes one character and moves on; anything that is not well-formed UTF-8 is one U+FFFD a byte.
char32_t next(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const unsigned lead = byte(at++);
  if (lead < 0x80) return lead;
  const int more = lead >= 0xF0 && lead <= 0xF4 ? 3 : lead >= 0xE0 && lead < 0xF0 ? 2 : lead >= 0xC2 && lead < 0xE0 ? 1 : 0;
  if (more == 0) return bad;
  char32_t value = lead & (0x3FU >> more);
  for (int i = 0; i < more; ++i) {
    const unsigned tail = byte(at + static_cast<std::size_t>(i));
    if ((tail & 0xC0U) != 0x80U) return bad;
    value = value << 6U | (tail & 0x3FU);
  }
  constexpr std::array<char32_t, 4> least{0, 0x80, 0x800, 0x10000};
  if (value < least[static_cast<std::size_t>(more)] || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) return bad;
  at += static_cast<std::size_t>(more);
  return value;
}

void append_utf8(std::string& out, char32_t c) {
  const auto put = [&](char32_t bits) { out += static_cast<char>(static_cast<unsigned char>(bits)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6U), put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12U), put(0x80 | (c >> 6U & 0x3F)), put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18U), put(0x80 | (c >> 12U & 0x3F)), put(0x80 | (c >> 6U & 0x3F)), put(0x80 | (c & 0x3F));
  }
}

// Characters that change how the text around them is read or laid out.
bool steers(char32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x061C || c == 0x200E || c == 0x200F || (c >= 0x2028 && c <= 0x202E) ||
         (c >= 0x2066 && c <= 0x2069) || c == 0xFEFF || (c & 0xFFFE) == 0xFFFE;
}

}  // namespace

std::string visible(std::string_view text, bool lines) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next(text, at);
    if (c == '\n' || c == '\t') {
      out += lines ? std::string(1, static_cast<char>(c)) : c == '\n' ? "\\n" : "\\t";
    } else if (!steers(c)) {
      append_utf8(out, c);
    } else {
      out += c < 0x100 ? fmt::format("\\x{:02x}", static_cast<unsigned>(c))
                       : fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    }
  }
  return out;
}

std::string escaped(std::string_view text, bool lines) {
  const std::string clean = visible(text, lines);
  std::string out;
  out.reserve(clean.size() + clean.size() / 16);
  for (const char c : clean) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string cut(std::string_view text, std::size_t most) {
  std::size_t at = 0;
  for (std::size_t n = 0; at < text.size(); ++n) {
    if (n == most) return std::string(text.substr(0, at)) + "...";
    next(text, at);
  }
  return std::string(text);
}

std::string shell_word(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

std::string kind_of(const CaseResult& result) {
  if (result.what_happened.empty()) return "";
  const Finding& first = result.what_happened.front();
  return first.kind.empty() && !first.pieces.empty() ? first.pieces.front() : first.kind;
}

std::string duration(std::int64_t ns) {
  const double seconds = static_cast<double>(ns) / 1e9;
  if (seconds < 0.001) return fmt::format("{:.0f} µs", seconds * 1e6);
  if (seconds < 0.01) return fmt::format("{:.2f} ms", seconds * 1e3);
  if (seconds < 1) return fmt::format("{:.0f} ms", seconds * 1e3);
  if (seconds < 99.95) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

std::string bytes(std::int64_t count) {
  constexpr std::array units{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  if (count < 1024) return fmt::format("{} B", count);
  auto value = static_cast<double>(count);
  std::size_t unit = 0;
  while (value >= 1023.95 && unit + 1 < units.size()) value /= 1024, ++unit;
  return fmt::format("{:.1f} {}", value, units[unit]);
}

std::string plural(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", thousands(count), noun, count == 1 ? "" : "s");
}

std::string ending_text(const CaseResult& result, bool with_class) {
  std::string out(name(result.outcome));
  if (result.hang) out += fmt::format(" {}", name(*result.hang));
  if (!result.signal.empty()) out += " " + visible(result.signal);
  if (with_class && result.diagnosis.fault_class != FaultClass::none)
    out += fmt::format(" {}", name(result.diagnosis.fault_class));
  if (result.phase) out += fmt::format(" at {}", name(*result.phase));
  return out;
}

bool is_reported(const CaseResult& result) {
  const Diagnosis& found = result.diagnosis;
  return found.text.empty() || (found.exact && result.message.find(found.text) != std::string::npos);
}

namespace {
// With as many digits as it bears: 0.37, 3.7, 37.
std::string percent(double share) {
  const double value = 100 * share;
  return value > 0 && value < 1    ? fmt::format("{:.2f}", value)
         : value > 0 && value < 10 ? fmt::format("{:.1f}", value)
                                   : fmt::format("{:.0f}", value);
}
}  // namespace

std::string tries_text(const Tries& tries) {
  if (tries.made < 2) return "";
  const Rate rate = rate_of(tries);
  const std::string interval = fmt::format("{} to {} % at 95 % confidence", percent(rate.low), percent(rate.high));
  if (tries.retries > 0)
    return fmt::format("failed, then {} of {} retries ({})", thousands(tries.failed - 1), thousands(tries.retries),
                       interval);
  return fmt::format("failed {} of {} tries ({})", thousands(tries.failed), thousands(tries.made), interval);
}

std::string expected_text(const std::vector<Expected>& expected) {
  if (expected.empty()) return std::string(name(Outcome::pass));
  std::string out;
  for (const auto& e : expected) {
    if (!out.empty()) out += " or ";
    out += name(e.outcome);
    if (e.fault_class != FaultClass::none) out += fmt::format(" {}", name(e.fault_class));
    if (e.phase) out += fmt::format(" at {}", name(*e.phase));
    if (!e.contains.empty()) out += fmt::format(" saying \"{}\"", visible(e.contains));
  }
  return out;
}

bool ran_here(const CaseResult& result) {
  const nlohmann::json& facts = result.facts;
  if (result.evidence != Evidence::modelled || !store::was_executed(result.outcome) || !facts.is_object()) return false;
  const auto claims = facts.find("engine_claims");
  const bool on_a_device = claims != facts.end() && claims->is_object() && claims->contains("device_evidence");
  return facts.value("arch", json()) == "cpu" && facts.value("scripted", json()) != true && !on_a_device;
}

std::string_view evidence_name(const CaseResult& result) {
  if (!store::was_executed(result.outcome)) return "";
  return ran_here(result) ? "executed on this CPU" : name(result.evidence);
}

std::string_view evidence_text(Evidence evidence) {
  switch (evidence) {
    case Evidence::executed:
      return "ran on that architecture itself";
    case Evidence::compiled:
      return "code was compiled for that architecture, but ran elsewhere";
    case Evidence::modelled:
      return "ran on the CPU instead of that architecture";
  }
  return "?";
}

}  // namespace kvcts::report
