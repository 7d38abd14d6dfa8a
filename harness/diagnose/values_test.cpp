#include "diagnose/values.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace kvcts::diagnose {
namespace {

using layout::Dtype;
using Bytes = std::vector<std::uint8_t>;

Bytes some(std::size_t n) {
  Bytes out(n);
  std::uint32_t x = 12345;
  for (auto& b : out) x = x * 1664525 + 1013904223, b = static_cast<std::uint8_t>(x >> 24);
  return out;
}

std::optional<CodeChange> cause(Dtype dtype, const Bytes& expected, const Bytes& found, std::size_t content = ~0u) {
  ChangedCodes codes;
  codes.look(dtype, expected, found, [&](std::size_t at) { return at < content; });
  return codes.cause();
}

template <class T>
Bytes as_bytes(const std::vector<T>& codes) {
  Bytes out(codes.size() * sizeof(T));
  std::memcpy(out.data(), codes.data(), out.size());
  return out;
}

TEST(ChangedCodes, NamesTheWidthOfReversedWords) {
  for (const std::size_t width : {2u, 4u, 8u}) {
    Bytes found = some(256);
    for (auto at = found.begin(); at != found.end(); at += static_cast<std::ptrdiff_t>(width))
      std::reverse(at, at + static_cast<std::ptrdiff_t>(width));
    const auto named = cause(Dtype::bf16, some(256), found);
    ASSERT_TRUE(named) << width;
    EXPECT_EQ(named->fault_class, FaultClass::dtype_reinterpreted);
    EXPECT_NE(named->words.find(std::to_string(8 * width) + "-bit"), std::string::npos) << named->words;
  }
}

TEST(ChangedCodes, NamesExchangedHalvesOfBytes) {
  Bytes found = some(64);
  for (auto& b : found) b = static_cast<std::uint8_t>(b << 4 | b >> 4);
  const auto named = cause(Dtype::int4, some(64), found);
  ASSERT_TRUE(named);
  EXPECT_NE(named->words.find("halves"), std::string::npos) << named->words;
}

TEST(ChangedCodes, NamesEachConversion) {
  const auto named = cause(Dtype::bf16, as_bytes<std::uint16_t>({0x8000, 0x7fc1, 0x0001, 0x3f80}),
                           as_bytes<std::uint16_t>({0x0000, 0x7fc0, 0x0000, 0x3f80}));
  ASSERT_TRUE(named);
  EXPECT_EQ(named->words,
            "a NaN became another NaN; -0 became 0; subnormal numbers became zero: bits passed through a number "
            "conversion");
}

TEST(ChangedCodes, NamesABiasThatIsOneLarger) {
  Bytes expected(64), found;
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = static_cast<std::uint8_t>(0x10 + i);
  for (const std::uint8_t code : expected) found.push_back(static_cast<std::uint8_t>(code - 8));
  const auto named = cause(Dtype::e4m3fn, expected, found);
  ASSERT_TRUE(named);
  EXPECT_NE(named->words.find("bias"), std::string::npos) << named->words;
}

TEST(ChangedCodes, OneCodeThatDisagreesRefutesAChange) {
  Bytes found = some(256);
  for (std::size_t at = 0; at < found.size(); at += 2) std::swap(found[at], found[at + 1]);
  found[100] ^= 1;
  EXPECT_FALSE(cause(Dtype::bf16, some(256), found));
}

TEST(ChangedCodes, CountsRightContentThatTheChangeWouldHaveAltered) {
  Bytes found = some(256);
  for (std::size_t at = 0; at < 128; at += 2) std::swap(found[at], found[at + 1]);
  EXPECT_EQ(cause(Dtype::bf16, some(256), found).value().kept, 64);
  EXPECT_EQ(cause(Dtype::bf16, some(256), found, 128).value().kept, 0);
}

TEST(ChangedCodes, AFewWrongBytesAreNotEnough) {
  Bytes found = some(256);
  std::swap(found[0], found[1]);
  EXPECT_FALSE(cause(Dtype::bf16, some(256), found));
  EXPECT_FALSE(cause(Dtype::bf16, some(256), some(256)));
}

}  // namespace
}  // namespace kvcts::diagnose
