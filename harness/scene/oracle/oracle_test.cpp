// The oracle against a plain loop over logical coordinates that writes every tag where locate() says, and against its own
// claims.
#include "scene/oracle/oracle.hpp"

#include <gtest/gtest.h>

#include <set>

#include "scene/oracle/tail.hpp"

namespace kvcts::oracle {
namespace {

using layout::Axis;

ResolvedCase make(const std::string& producer, const std::string& consumer, layout::Dtype dtype = layout::Dtype::fp16) {
  ResolvedCase c;
  c.guard_bytes = 64;
  const layout::Geometry g{.layers = 2, .blocks = 5, .block_size = 4, .heads = 3, .head_dim = 8};
  const layout::Scheme scheme{"s", dtype, {}, {}};
  Group group;
  for (auto [side, text] : {std::pair{&group.producer, producer}, std::pair{&group.consumer, consumer}}) {
    RankCache rank{g, layout::instantiate(text, g, scheme), {}};
    rank.claim = rank.truth;
    *side = {"(template)", text, scheme, {rank}};
  }
  group.requests = {{1, 10, true, {3, 0, 4}, {1, 4, 0}}, {7, 3, false, {2}, {}}};
  c.groups = {group};
  c.connector.kind = "reference";
  return c;
}

/// The producer's files before the transfer.
std::vector<Bytes> producer_files(const ResolvedCase& c) {
  std::vector<Bytes> out;
  for (const auto& region : regions(c, Side::producer)) {
    out.emplace_back(static_cast<std::size_t>(file_shape(c, region.bytes).size));
    write_initial(c, region, 0, out.back());
  }
  return out;
}

// Element by element, no rows, no runs.
Bytes brute_force(const ResolvedCase& c, const RegionRef& region, bool transferred_only) {
  const auto shape = file_shape(c, region.bytes);
  Bytes file(static_cast<std::size_t>(shape.size));
  for (std::size_t i = 0; i < file.size(); ++i)
    file[i] = kernels::poison_byte(region_key(c, region), static_cast<std::int64_t>(i));
  const auto& side = region.side == Side::producer ? c.groups[0].producer : c.groups[0].consumer;
  for (const auto& request : c.groups[0].requests) {
    if (transferred_only && !request.transfer) continue;
    const auto& blocks = region.side == Side::producer ? request.producer_blocks : request.consumer_blocks;
    for (const auto& plane : side.ranks[0].truth.planes) {
      if (plane.allocation != region.allocation) continue;
      const auto box = layout::domain(plane);
      for (std::int64_t token = 0; token < request.tokens; ++token)
        for (auto layer = box.lo[Axis::layer]; layer < box.hi[Axis::layer]; ++layer)
          for (auto kv = box.lo[Axis::kv]; kv < box.hi[Axis::kv]; ++kv)
            for (auto head = box.lo[Axis::head]; head < box.hi[Axis::head]; ++head)
              for (auto channel = box.lo[Axis::channel]; channel < box.hi[Axis::channel]; ++channel) {
                const layout::Coord at{{layer, kv, blocks[static_cast<std::size_t>(token / 4)], token % 4, head, channel}};
                const auto where = layout::locate(plane, at);
                if (!where) continue;
                const kernels::RowId row{plane.component, kv, layer, head, token, request.generation};
                const auto code = kernels::tag_code(kernels::row_key({c.seed, 0, 0}, row), row, plane.dtype, channel);
                const auto byte = static_cast<std::size_t>(shape.base + where->bit / 8);
                for (int b = 0; b < where->width / 8; ++b)
                  file[byte + static_cast<std::size_t>(b)] = static_cast<std::uint8_t>(code >> (8 * b));
                if (where->width == 4) {
                  const int shift = static_cast<int>(where->bit % 8);
                  file[byte] = static_cast<std::uint8_t>((file[byte] & ~(0xF << shift)) | (code << shift));
                }
              }
    }
  }
  return file;
}

TEST(Oracle, EqualsBruteForceOnEverySideAndDtype) {
  for (const auto* text :
       {"L x K B N H C", "L x { K=0 B H C/x N C%x ; K=1 B H C N }", "B L H N K C", "K x L x B N { H C ; pad 3 }"}) {
    for (auto dtype : {layout::Dtype::fp32, layout::Dtype::bf16, layout::Dtype::e5m2, layout::Dtype::int4}) {
      ResolvedCase c;
      try {
        c = make(text, text, dtype);
      } catch (const layout::Error&) {
        continue;  // x does not divide the head_dim of this dtype
      }
      for (auto side : {Side::producer, Side::consumer}) {
        for (const auto& region : regions(c, side)) {
          Bytes file(static_cast<std::size_t>(file_shape(c, region.bytes).size));
          write_expected(c, region, 0, file);
          EXPECT_EQ(file, brute_force(c, region, side == Side::consumer)) << text << " " << region.name;
          EXPECT_TRUE(holds_expected(c, region, 0, file)) << text << " " << region.name;
          EXPECT_FALSE(holds_expected(c, region, 1, file)) << text << " " << region.name;
          for (std::size_t at = 0; at < file.size(); at += 997) {
            file[at] ^= 0x11;
            EXPECT_FALSE(holds_expected(c, region, 0, file)) << text << " " << region.name << " " << at;
            file[at] ^= 0x11;
          }
        }
      }
    }
  }
}

TEST(Oracle, FillsInitialStates) {
  const auto c = make("L x K B N H C", "L x K B H N C");
  for (const auto& region : regions(c, Side::producer)) {
    Bytes a(static_cast<std::size_t>(file_shape(c, region.bytes).size)), b = a;
    write_initial(c, region, 0, a);
    write_expected(c, region, 0, b);
    EXPECT_EQ(a, b) << "the source is not changed by a transfer";
  }
  for (const auto& region : regions(c, Side::consumer)) {
    Bytes a(static_cast<std::size_t>(file_shape(c, region.bytes).size));
    write_initial(c, region, 0, a);
    for (std::size_t i = 0; i < a.size(); ++i)
      ASSERT_EQ(a[i], kernels::poison_byte(region_key(c, region), static_cast<std::int64_t>(i)));
  }
}

TEST(Oracle, WholeBlockAlternativeTouchesOnlyTheTail) {
  const auto c = make("L x K B N H C", "L x K B H N C");
  const std::vector<Bytes> sources = producer_files(c);
  const std::vector<std::span<const std::uint8_t>> views(sources.begin(), sources.end());
  for (const auto& region : regions(c, Side::consumer)) {
    Bytes expected(static_cast<std::size_t>(file_shape(c, region.bytes).size));
    write_expected(c, region, 0, expected);
    Bytes alternative = expected;
    EXPECT_TRUE(Tail(c, region).bring_along(views, alternative));
    std::int64_t differing = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (expected[i] == alternative[i]) continue;
      ++differing;
      const auto at = where(c, region, static_cast<std::int64_t>(i) - c.guard_bytes);
      EXPECT_NE(at.find("block 0 slot "), std::string::npos) << at;  // the request's last block
      EXPECT_NE(at.find("free slot"), std::string::npos) << at;
    }
    EXPECT_GT(differing, 0);
  }
}

TEST(Oracle, WholeBlockAlternativeHoldsTheProducersBytes) {
  for (const auto dtype : {layout::Dtype::fp16, layout::Dtype::e5m2, layout::Dtype::int4}) {
    const auto c = make("L x K B N H C", "L x K B H N C", dtype);
    const std::vector<Bytes> sources = producer_files(c);
    const std::vector<std::span<const std::uint8_t>> views(sources.begin(), sources.end());
    const int width = layout::bits(dtype);
    const auto code = [&](std::span<const std::uint8_t> file, std::int64_t bit) {
      std::uint32_t out = 0;
      for (int b = 0; b < width; ++b)
        out |= static_cast<std::uint32_t>(file[static_cast<std::size_t>((bit + b) / 8)] >> ((bit + b) % 8) & 1) << b;
      return out;
    };
    const auto &from = c.groups[0].producer.ranks[0].truth, &to = c.groups[0].consumer.ranks[0].truth;
    const auto targets = regions(c, Side::consumer);
    for (std::size_t i = 0; i < targets.size(); ++i) {
      Bytes alternative(static_cast<std::size_t>(file_shape(c, targets[i].bytes).size));
      write_expected(c, targets[i], 0, alternative);
      ASSERT_TRUE(Tail(c, targets[i]).bring_along(views, alternative));
      for (std::int64_t layer = 0; layer < 2; ++layer)
        for (std::int64_t kv = 0; kv < 2; ++kv)
          for (std::int64_t slot = 2; slot < 4;
               ++slot)  // tokens 10 and 11 would lie here: block 4 of the producer, 0 of the consumer
            for (std::int64_t head = 0; head < 3; ++head)
              for (std::int64_t channel = 0; channel < 8; ++channel) {
                const auto source = layout::locate(from, layout::Component::data, {{layer, kv, 4, slot, head, channel}});
                const auto target = layout::locate(to, layout::Component::data, {{layer, kv, 0, slot, head, channel}});
                ASSERT_TRUE(source && target);
                if (target->allocation != targets[i].allocation) continue;
                ASSERT_EQ(code(alternative, c.guard_bytes * 8 + target->bit),
                          code(sources[static_cast<std::size_t>(source->allocation)], c.guard_bytes * 8 + source->bit));
              }
    }
  }
}

TEST(Oracle, TransferBytesCountTokensAndWholeBlocks) {
  const auto amount = transfer_bytes(make("L x K B N H C", "L x K B H N C"));
  EXPECT_EQ(amount.least, 2 * 2 * 10 * 3 * 8 * 2);
  EXPECT_EQ(amount.most, 2 * 2 * 12 * 3 * 8 * 2);
}

// A plane with one value per block counts blocks; a request that does not move counts nothing, whatever blocks it names.
TEST(Oracle, TransferBytesCountOnlyPresentValues) {
  auto c = make("L x K B N H C", "L x K B H N C");
  auto& cache = c.groups[0].consumer.ranks[0].truth;
  layout::Plane scale = cache.planes.front();
  scale.component = layout::Component::scale, scale.dtype = layout::Dtype::fp32;
  std::erase_if(scale.modes, [](const layout::Mode& m) { return m.axis != Axis::block; });
  cache.planes.push_back(scale);
  c.groups[0].requests[1].consumer_blocks = {2};
  const auto amount = transfer_bytes(c);
  EXPECT_EQ(amount.least, 2 * 2 * 10 * 3 * 8 * 2 + 3 * 4);
  EXPECT_EQ(amount.most, 2 * 2 * 12 * 3 * 8 * 2 + 3 * 4);
  std::erase_if(cache.planes.back().modes, [](const layout::Mode&) { return true; });
  EXPECT_EQ(transfer_bytes(c).least, 2 * 2 * 10 * 3 * 8 * 2 + 4) << "one value of the whole cache";
  c.connector.kind = "none";
  EXPECT_EQ(transfer_bytes(c).most, 0);
}

TEST(Oracle, WholeBlockAlternativeLeavesBlocksOfOtherRequestsAlone) {
  auto c = make("L x K B N H C", "L x K B H N C");
  c.groups[0].requests[1].consumer_blocks = {2};
  const std::vector<Bytes> sources = producer_files(c);
  const std::vector<std::span<const std::uint8_t>> views(sources.begin(), sources.end());
  for (const auto& region : regions(c, Side::consumer)) {
    Bytes expected(static_cast<std::size_t>(file_shape(c, region.bytes).size));
    write_expected(c, region, 0, expected);
    Bytes alternative = expected;
    Tail(c, region).bring_along(views, alternative);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (expected[i] != alternative[i]) {
        ASSERT_EQ(where(c, region, static_cast<std::int64_t>(i) - c.guard_bytes).find("block 2 "), std::string::npos);
      }
    }
  }
}

// Rows of K, then of V, of each request; a token's heads in sequence.
TEST(Oracle, AReaderGathersEveryRowInOrder) {
  for (const auto dtype : {layout::Dtype::fp16, layout::Dtype::e4m3fn}) {
    auto c = make("L x K B N H C", "L x K B H N C", dtype);
    c.groups[0].consumer.ranks[0].geometry.first_head = 2;
    for (const int pass : {0, 1}) {
      Bytes out;
      for (const auto& request : c.groups[0].requests) {
        for (std::int64_t kv = 0; kv < 2; ++kv)
          for (std::int64_t token = 0; token < request.tokens; ++token)
            for (std::int64_t head = 2; head < 5; ++head)
              for (std::int64_t channel = 0; channel < 8; ++channel) {
                const kernels::RowId row{layout::Component::data, kv, 0, head, token, request.generation};
                const auto code = kernels::tag_code(kernels::row_key({c.seed, static_cast<std::uint32_t>(pass), 0}, row),
                                                    row, dtype, channel);
                for (int b = 0; b < layout::bits(dtype) / 8; ++b) out.push_back(static_cast<std::uint8_t>(code >> (8 * b)));
              }
      }
      EXPECT_EQ(expected_output(c, pass), out);
    }
  }
}

TEST(Oracle, ACaseThatMovesNothingHoldsItsContentFromTheStart) {
  auto c = make("L x K B N H C", "L x K B H N C");
  c.connector.kind = "none";
  for (const auto& region : regions(c, Side::consumer)) {
    Bytes initial(static_cast<std::size_t>(file_shape(c, region.bytes).size)), expected = initial;
    write_initial(c, region, 0, initial);
    write_expected(c, region, 0, expected);
    EXPECT_EQ(initial, expected);
    EXPECT_TRUE(holds_expected(c, region, 0, initial));
    initial[initial.size() / 2] ^= 1;
    EXPECT_FALSE(holds_expected(c, region, 0, initial));
  }
}

TEST(Oracle, WhereNamesGuardsPaddingAndContent) {
  const auto c = make("K x L x B N { H C ; pad 3 }", "L x K B N H C");
  const auto region = regions(c, Side::producer).front();
  EXPECT_EQ(where(c, region, -1), "guard below");
  EXPECT_EQ(where(c, region, region.bytes), "guard above");
  EXPECT_EQ(where(c, region, 3 * 8 * 2), "padding");
  EXPECT_EQ(where(c, region, 0), "K layer 0 block 0 slot 0 head 0 channel 0");
}

TEST(Oracle, EveryFileHasItsOwnPoison) {
  const auto c = make("K x L x B N H C", "K x L x B N H C");
  std::set<std::uint64_t> keys{output_key(c)};
  std::size_t files = 1;
  for (auto side : {Side::producer, Side::consumer})
    for (const auto& region : regions(c, side)) keys.insert(region_key(c, region)), ++files;
  EXPECT_EQ(keys.size(), files);
}

}  // namespace
}  // namespace kvcts::oracle
