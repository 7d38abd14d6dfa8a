// Names of bytes: each exactly once, the bytes they stand for, and their words. Numbers: our table against kernels/convert.
#include "scene/symbols.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "kernels/convert/element.hpp"
#include "kernels/poison.hpp"
#include "kernels/testing/reference.hpp"
#include "scene/image.hpp"
#include "scene/numbers.hpp"

namespace kvcts::scenario {
namespace {

using layout::Component;
using layout::Dtype;
namespace convert = kernels::convert;

Symbol element(Dtype dtype, std::int64_t channel, int byte = 0) {
  Symbol symbol{.kind = Symbol::Kind::tag,
                .byte = static_cast<std::uint8_t>(byte),
                .dtype = dtype,
                .generation = 2,
                .kv = 1,
                .layer = 3,
                .token = 70,
                .head = 5};
  symbol.channel = channel;
  return symbol;
}

TEST(Numbers, MatchTheConversionKernels) {
  for (Dtype dtype : layout::all_dtypes()) {
    const std::uint64_t end = dtype == Dtype::fp32 ? std::uint64_t{1} << 32 : std::uint64_t{1} << layout::bits(dtype);
    for (std::uint64_t code = 0; code < end; code += dtype == Dtype::fp32 ? 9973 : 1) {
      const auto bits = static_cast<std::uint32_t>(code);
      ASSERT_EQ(std::bit_cast<std::uint32_t>(number_of(dtype, bits)), convert::decode(dtype, bits))
          << layout::name(dtype) << " " << code;
    }
    for (std::uint32_t code = 0; code < 1u << 16; ++code) {  // every bf16
      const float number = number_of(Dtype::bf16, code);
      if (!std::isfinite(number)) continue;
      ASSERT_EQ(nearest_code(dtype, number),
                convert::encode(dtype, code << 16, convert::Overflow::saturate, convert::Rounding::nearest))
          << layout::name(dtype) << " " << number;
    }
  }
}

TEST(SymbolTable, InternsEachSymbolOnce) {
  SymbolTable symbols;
  EXPECT_EQ(symbols.at(hole).kind, Symbol::Kind::hole);
  EXPECT_EQ(symbols.at(unknown).kind, Symbol::Kind::unknown);
  EXPECT_EQ(symbols.count(), 2u);
  std::vector<Symbol> all;
  for (Dtype dtype : layout::all_dtypes()) {
    for (std::int64_t channel = 0; channel < 700; channel += layout::bits(dtype) == 4 ? 2 : 1) {
      for (int byte = 0; byte < std::max(layout::bits(dtype) / 8, 1); ++byte) all.push_back(element(dtype, channel, byte));
    }
  }
  for (int buffer : {0, 1}) {
    for (std::int64_t offset = -300; offset < 300; ++offset)
      all.push_back({.kind = Symbol::Kind::poison, .buffer = buffer, .offset = offset});
  }
  for (int i = 0; i < 256; ++i) all.push_back({.kind = Symbol::Kind::constant, .byte = static_cast<std::uint8_t>(i)});
  for (std::uint8_t i = 0; i < 8; ++i) {
    Symbol number = element(Dtype::int4, 513 + i / 4, i % 4);
    number.kind = Symbol::Kind::number, number.scale = 77, number.power = 1;
    all.push_back(number);
  }
  for (SymbolId i = 0; i < 600; ++i) {
    Symbol mixed{.kind = Symbol::Kind::nibbles};
    mixed.pieces = {i, i + 1, 0, 0};
    all.push_back(mixed);
  }
  std::vector<SymbolId> ids;
  for (const Symbol& symbol : all) ids.push_back(symbols.intern(symbol));
  for (std::size_t i = 0; i < all.size(); ++i) {
    ASSERT_EQ(symbols.at(ids[i]), all[i]) << i;
    ASSERT_EQ(symbols.intern(all[i]), ids[i]);
  }
  EXPECT_EQ(symbols.count(), all.size() + 2);
  std::sort(ids.begin(), ids.end());
  std::vector<SymbolId> seen;
  symbols.each([&](SymbolId id) { seen.push_back(id); });
  EXPECT_EQ(std::vector<SymbolId>(seen.begin() + 2, seen.end()), ids);
}

TEST(SymbolTable, RendersTagsPoisonAndConstants) {
  SymbolTable symbols;
  std::vector<Buffer> buffers(2);
  buffers[1].ordinal = 1, buffers[1].poison_number = 1, buffers[1].guard_below = 100, buffers[1].side = "consumer";
  for (int pass : {0, 3}) {
    Rendering rendering(symbols, buffers, 5, pass);
    const kernels::RowId row{Component::data, 1, 3, 5, 70, 2};
    const std::uint64_t key = kernels::reference::row({pass_seed(5, pass), 0, 0}, row);
    for (Dtype dtype : layout::all_dtypes()) {
      const int width = layout::bits(dtype);
      for (std::int64_t channel : {0, 1, 62, 63, 64, 255, 256, 511, 512}) {
        const std::uint32_t code = kernels::reference::code(key, row, dtype, channel);
        EXPECT_EQ(content_code(element(dtype, channel), 5, pass), code);
        for (int byte = 0; byte < width / 8; ++byte) {
          const SymbolId id = symbols.intern(element(dtype, channel, byte));
          ASSERT_EQ(rendering.byte(id), code >> (8 * byte) & 0xff) << layout::name(dtype) << " channel " << channel;
          ASSERT_EQ(symbols.render(id, buffers, 5, pass), rendering.byte(id));
        }
        if (width == 4 && channel % 2 == 0) {
          Symbol pair = element(dtype, channel);
          const std::uint32_t odd = kernels::reference::code(key, row, dtype, channel + 1);
          EXPECT_EQ(rendering.byte(symbols.intern(pair)), code | odd << 4);
          pair.high_nibble_first = true;
          EXPECT_EQ(rendering.byte(symbols.intern(pair)), odd | code << 4);
        }
      }
    }
    for (std::int64_t offset : {-100, -1, 0, 1, 255, 256, 100000}) {
      const SymbolId id = symbols.intern({.kind = Symbol::Kind::poison, .buffer = 1, .offset = offset});
      EXPECT_EQ(rendering.byte(id), kernels::reference::poison(kernels::poison_key(pass_seed(5, pass), 1, 0, 1),
                                                               static_cast<std::uint64_t>(offset + 100)));
    }
    EXPECT_EQ(rendering.byte(symbols.intern({.kind = Symbol::Kind::constant, .byte = 0xa5})), 0xa5);
    EXPECT_EQ(rendering.byte(hole), 0);
    EXPECT_EQ(rendering.byte(unknown), 0);
  }
}

TEST(SymbolTable, GivesEachHalfByteOneSymbol) {
  SymbolTable symbols;
  std::vector<Buffer> buffers(1);
  Rendering rendering(symbols, buffers, 1, 0);
  Symbol pair = element(Dtype::int4, 6);
  const SymbolId low_first = symbols.intern(pair);
  pair.high_nibble_first = true;
  const SymbolId high_first = symbols.intern(pair);
  const SymbolId poison = symbols.intern({.kind = Symbol::Kind::poison, .buffer = 0, .offset = 3});
  const SymbolId constant = symbols.intern({.kind = Symbol::Kind::constant, .byte = 0x5a});
  EXPECT_EQ(symbols.nibble(element(Dtype::int4, 7)), symbols.nibble(low_first, true));
  EXPECT_EQ(symbols.nibble(high_first, false), symbols.nibble(low_first, true)) << "channel 7 both";
  EXPECT_EQ(symbols.join(symbols.nibble(low_first, false), symbols.nibble(low_first, true)), low_first);
  EXPECT_EQ(symbols.join(symbols.nibble(low_first, true), symbols.nibble(low_first, false)), high_first);
  EXPECT_EQ(symbols.join(symbols.nibble(constant, false), symbols.nibble(constant, true)), constant);
  // A byte of two owners, split again.
  const SymbolId mixed = symbols.join(symbols.nibble(low_first, true), symbols.nibble(poison, false));
  EXPECT_EQ(symbols.nibble(mixed, false), symbols.nibble(low_first, true));
  EXPECT_EQ(symbols.nibble(mixed, true), symbols.nibble(poison, false));
  EXPECT_EQ(rendering.byte(mixed), rendering.byte(low_first) >> 4 | (rendering.byte(poison) & 0xf) << 4);
  EXPECT_EQ(to_string(mixed, symbols, buffers),
            "below V layer 3 token 70 head 5 channel 7, generation 2, above the low half of poison of  + 3");
}

TEST(SymbolTable, RendersEveryCodeInTurn) {
  for (Dtype dtype : layout::all_dtypes()) {
    if (dtype == Dtype::fp32) continue;
    std::vector<bool> seen(std::size_t{1} << layout::bits(dtype));
    Symbol symbol = element(dtype, 0);
    symbol.codes = true;
    for (std::size_t i = 0; i < seen.size(); ++i, ++symbol.channel) seen[content_code(symbol, 9, 1)] = true;
    EXPECT_EQ(std::count(seen.begin(), seen.end(), true), static_cast<std::ptrdiff_t>(seen.size())) << layout::name(dtype);
  }
}

TEST(SymbolTable, RendersOneNumberPerCoordinateInAnyDtype) {
  for (std::int64_t channel = 0; channel < 50; ++channel) {
    const float wanted = number_of(Dtype::bf16, content_code(element(Dtype::bf16, channel), 4, 0));
    for (Dtype dtype : layout::all_dtypes()) {
      Symbol symbol = element(dtype, channel);
      symbol.values = true;
      ASSERT_EQ(content_code(symbol, 4, 0), nearest_code(dtype, wanted));
    }
    Symbol wide = element(Dtype::fp32, channel);
    wide.values = true;
    EXPECT_EQ(number_of(Dtype::fp32, content_code(wide, 4, 0)), wanted);
  }
}

TEST(SymbolImage, SharesPagesUntilOneCopyWrites) {
  SymbolImage image;
  image.set(-1, 7);
  image.set(4096, 8);
  SymbolImage snapshot = image;
  image.set(4096, 9);
  snapshot.set(5, 10);
  EXPECT_EQ(image.at(-1), 7u);
  EXPECT_EQ(image.at(-2), hole);
  EXPECT_EQ(image.at(4096), 9u);
  EXPECT_EQ(image.at(5), hole);
  EXPECT_EQ(snapshot.at(4096), 8u);
  EXPECT_EQ(snapshot.at(5), 10u);
  EXPECT_EQ(snapshot.at(100000), hole);
  EXPECT_EQ(image.pages().at(-1), snapshot.pages().at(-1)) << "one page for both";
  image = snapshot;
  image.set(5, 11);
  EXPECT_EQ(snapshot.at(5), 10u);
}

}  // namespace
}  // namespace kvcts::scenario
