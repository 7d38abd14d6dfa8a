#include "diagnose/values.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>

#include "case/text.hpp"

namespace kvcts::diagnose {

namespace {

using Bytes = std::span<const std::uint8_t>;

struct Format {
  layout::Dtype dtype;
  unsigned bits, exponent, mantissa;
  std::uint32_t top() const { return ((1u << exponent) - 1) << mantissa; }
  std::uint32_t sign() const { return 1u << (bits - 1); }
  bool nan(std::uint32_t code) const {
    const std::uint32_t fraction = code & ((1u << mantissa) - 1);
    return (code & top()) == top() && (dtype == layout::Dtype::e4m3fn ? fraction == 7 : fraction != 0);
  }
};
constexpr Format formats[] = {{layout::Dtype::fp32, 32, 8, 23},
                              {layout::Dtype::fp16, 16, 5, 10},
                              {layout::Dtype::bf16, 16, 8, 7},
                              {layout::Dtype::e4m3fn, 8, 4, 3},
                              {layout::Dtype::e5m2, 8, 5, 2}};

std::uint32_t code_of(Bytes bytes) {
  std::uint32_t out = 0;
  std::memcpy(&out, bytes.data(), bytes.size());
  return out;
}

// What numbers become that pass through a conversion.
struct Conversion {
  const char* words;
  bool (*holds)(const Format& f, std::uint32_t was, std::uint32_t is);
};
constexpr Conversion conversions[] = {
    {"a NaN became another NaN",
     [](const Format& f, std::uint32_t was, std::uint32_t is) { return f.nan(was) && f.nan(is); }},
    {"-0 became 0", [](const Format& f, std::uint32_t was, std::uint32_t is) { return was == f.sign() && is == 0; }},
    {"subnormal numbers became zero",
     [](const Format& f, std::uint32_t was, std::uint32_t is) { return (was & f.top()) == 0 && (is & ~f.sign()) == 0; }}};

// What all codes became alike. `word`: bytes; 0: a code.
struct Change {
  FaultClass fault_class;
  const char* words;
  std::size_t word;
  bool (*holds)(const Format& f, Bytes was, Bytes is);
};
bool reversed(const Format&, Bytes was, Bytes is) { return std::equal(was.begin(), was.end(), is.rbegin()); }
constexpr Change changes[] = {
    {FaultClass::dtype_reinterpreted, "bits passed through a number conversion", 0,
     [](const Format& f, Bytes was, Bytes is) {
       return std::ranges::any_of(conversions, [&](const Conversion& c) { return c.holds(f, code_of(was), code_of(is)); });
     }},
    {FaultClass::dtype_reinterpreted, "the bytes of every 16-bit word are in the other order", 2, reversed},
    {FaultClass::dtype_reinterpreted, "the bytes of every 32-bit word are in the other order", 4, reversed},
    {FaultClass::dtype_reinterpreted, "the bytes of every 64-bit word are in the other order", 8, reversed},
    {FaultClass::dtype_reinterpreted, "the two halves of every byte are exchanged", 1,
     [](const Format&, Bytes was, Bytes is) { return is[0] == static_cast<std::uint8_t>(was[0] << 4 | was[0] >> 4); }},
    {FaultClass::dtype_reinterpreted,
     "numbers were read with an exponent bias one larger than they were written with, as fn and fnuz differ", 0,
     [](const Format& f, Bytes was, Bytes is) {
       const std::uint32_t code = code_of(was);
       return code_of(is) == ((code & f.top()) > 1u << f.mantissa ? code - (1u << f.mantissa) : code & f.sign());
     }}};
constexpr std::uint32_t conversion = 1;  // the first of them

}  // namespace

std::string right_ones(const CodeChange& cause) {
  return cause.kept == 0 ? "" : "why " + text::thousands(cause.kept) + " words that it would have changed are right";
}

void ChangedCodes::look(layout::Dtype dtype, Bytes expected, Bytes found,
                        const std::function<bool(std::size_t)>& is_content) {
  const auto known = std::ranges::find(formats, dtype, &Format::dtype);
  const Format format = known != std::end(formats) ? *known : Format{dtype, 8, 0, 0};
  for (std::size_t at = 0; at < expected.size(); at += format.bits / 8)
    wrong_ += std::memcmp(&expected[at], &found[at], std::min<std::size_t>(format.bits / 8, expected.size() - at)) != 0;
  for (std::size_t c = 0; c < std::size(changes); ++c) {
    const std::size_t word = changes[c].word != 0 ? changes[c].word : format.bits / 8;
    if (changes[c].word == 0 && format.exponent == 0) possible_ &= ~(1u << c);
    for (std::size_t at = 0; at < expected.size() && (possible_ >> c & 1u) != 0; at += word) {
      const std::size_t n = std::min(word, expected.size() - at);
      const Bytes was = expected.subspan(at, n), is = found.subspan(at, n);
      if (std::ranges::equal(was, is)) {  // a number conversion leaves most codes
        if (c != 0 && n == word && !changes[c].holds(format, was, was) && is_content(at)) ++kept_[c];
        continue;
      }
      if (n < word || !changes[c].holds(format, was, is)) {
        possible_ &= ~(1u << c);
        continue;
      }
      for (std::size_t k = 0; 1u << c == conversion && k < std::size(conversions); ++k)
        if (conversions[k].holds(format, code_of(was), code_of(is))) kinds_ |= 1u << k;
    }
  }
}

std::optional<CodeChange> ChangedCodes::cause() const {
  constexpr std::int64_t least = 16;  // of bytes: fewer agree by chance, but for a conversion
  const std::uint32_t possible = possible_ & ((1u << std::size(changes)) - 1);
  if (wrong_ == 0 || possible == 0 || (wrong_ < least && (possible & conversion) == 0)) return std::nullopt;
  const auto number = static_cast<std::size_t>(std::countr_zero(possible));
  const Change& change = changes[number];
  std::string words;
  for (std::size_t k = 0; (possible & conversion) != 0 && k < std::size(conversions); ++k)
    if (kinds_ >> k & 1u) words += (words.empty() ? "" : "; ") + std::string(conversions[k].words);
  const auto kept = kept_.find(number);
  return CodeChange{change.fault_class, words + (words.empty() ? "" : ": ") + change.words,
                    kept == kept_.end() ? 0 : kept->second};
}

}  // namespace kvcts::diagnose
