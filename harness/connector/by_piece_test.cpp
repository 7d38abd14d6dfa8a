// Faults of code that moves pieces without knowing what they are: one rule over cases of other layouts, dtypes and block
// sizes.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "case/catalogue/case_file.hpp"
#include "case/provenance.hpp"
#include "case/resolve/resolve.hpp"
#include "connector/connector.hpp"
#include "diagnose/region_extents.hpp"
#include "scene/oracle/oracle.hpp"
#include "testing/checkout.hpp"

namespace kvcts::diagnose {
namespace {

using Bytes = std::vector<std::uint8_t>;
using Copies = std::vector<Copy>;
using Fault = std::function<void(const ResolvedCase&, Copies&)>;

struct Shape {
  std::string dtype, geometry, producer, consumer, requests;
};

const std::vector<Shape> shapes{
    // K in pieces of 16 codes, V in runs of slots: 5 and 2 and 1 of one byte each.
    {"fp8_e4m3", "{layers: 2, blocks: 6, block_size: 8, heads: 2, head_dim: 16}", "L x K B H C N", "L x B K H C N",
     "[{tokens: 13, producer_blocks: [2, 0], consumer_blocks: [1, 4]}, {generation: 2, tokens: 6, producer_blocks: [5], "
     "consumer_blocks: [0]}]"},
    // Rows of 15 codes of one head each.
    {"fp8_e4m3", "{layers: 1, blocks: 5, block_size: 4, heads: 3, head_dim: 16}", "L x K B H C N", "L x K B H C N",
     "[{tokens: 7, producer_blocks: [3, 1], consumer_blocks: [0, 2]}, {generation: 2, tokens: 4, producer_blocks: [4], "
     "consumer_blocks: [3]}]"},
    {"fp8_e4m3", "{layers: 3, blocks: 4, block_size: 16, heads: 1, head_dim: 32}", "L x B K H C N", "L x B K H C N",
     "[{tokens: 21, producer_blocks: [2, 0], consumer_blocks: [1, 3]}]"},
};
/// Of one dtype with codes of several bytes: no piece is odd.
const std::vector<Shape> even{
    {"bf16", "{layers: 2, blocks: 6, block_size: 4, heads: 2, head_dim: 16}", "L x B K N H C", "L x B K H N C",
     "[{tokens: 7, producer_blocks: [2, 0], consumer_blocks: [1, 4]}, {generation: 2, tokens: 4, producer_blocks: [5], "
     "consumer_blocks: [0]}]"},
    {"fp16", "{layers: 1, blocks: 6, block_size: 8, heads: 2, head_dim: 8}", "L x K B N H C", "L x B K H N C",
     "[{tokens: 16, producer_blocks: [3, 1], consumer_blocks: [5, 2]}, {generation: 2, tokens: 3, producer_blocks: [0], "
     "consumer_blocks: [4]}]"},
};

std::vector<Finding> happened(const Shape& shape, const Fault& fault) {
  static const catalogue::Catalogue catalogue(checkout::source() + "/cases");
  const std::string text = "case: my/pieces\ndtype: " + shape.dtype + "\ngeometry: " + shape.geometry +
                           "\nproducer: {template: \"" + shape.producer + "\"}\nconsumer: {template: \"" + shape.consumer +
                           "\"}\nconnector: reference\nrequests: " + shape.requests + "\n";
  const ResolvedCase c = resolve(catalogue::parse_cases(text, "(test)", &catalogue).front(), catalogue);
  const auto connector = connector::make_connector(c.connector);
  for (const Side side : {Side::producer, Side::consumer}) connector->register_caches(c, side);
  Copies copies = connector->plan(c, process::Progress{}).copies;
  fault(c, copies);
  std::vector<std::array<Bytes, 3>> files[2];
  for (const Side side : {Side::producer, Side::consumer})
    for (const RegionRef& r : regions(c, side)) {
      auto& [before, expected, found] = files[side == Side::consumer].emplace_back();
      before.resize(static_cast<std::size_t>(oracle::file_shape(c, r.bytes).size));
      oracle::write_initial(c, r, 0, before);
      found = expected = before;
      if (side == Side::consumer) oracle::write_expected(c, r, 0, expected);
    }
  const auto base = [&](Side side, int region) {
    return oracle::file_shape(c, regions(c, side)[static_cast<std::size_t>(region)].bytes).base;
  };
  for (const Copy& one : copies)
    std::copy_n(files[0][static_cast<std::size_t>(one.src)][0].begin() + base(Side::producer, one.src) + one.src_offset,
                one.bytes,
                files[1][static_cast<std::size_t>(one.dst)][2].begin() + base(Side::consumer, one.dst) + one.dst_offset);
  RegionExtents all(c, [&] {
    std::vector<std::span<const std::uint8_t>> out;
    for (const auto& file : files[0]) out.emplace_back(file[0]);
    return out;
  }());
  const auto targets = regions(c, Side::consumer);
  for (std::size_t i = 0; i < targets.size(); ++i) all.add({targets[i], files[1][i][0], files[1][i][1], files[1][i][2]});
  all.search();
  return all.what_happened();
}

/// Rules that explain every one of the cases.
std::vector<std::string> in_all(const std::vector<Shape>& cases, const Fault& fault) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto found = happened(cases[i], fault);
    EXPECT_FALSE(found.empty()) << "case " << i;
    if (found.empty()) return {};
    std::string message;
    for (const Finding& one : found) message += "\n  " + one.text;
    for (const std::string& rule : found.front().pieces) message += "\n    fits: " + rule;
    std::cout << "case " << i << message << "\n";
    if (i == 0) out = found.front().pieces;
    std::erase_if(out, [&](const std::string& rule) { return std::ranges::count(found.front().pieces, rule) == 0; });
  }
  return out;
}
using Rules = std::vector<std::string>;

TEST(ByPiece, NamesOddLengthsShortByOneByte) {
  const Fault odd = [](const ResolvedCase&, Copies& copies) {
    for (Copy& one : copies) one.bytes -= one.bytes % 2;
  };
  // In these also each shorter one: the first is what they are grouped by.
  EXPECT_EQ(in_all(shapes, odd).front(), "every piece of an odd length is 1 byte short");
}

TEST(ByPiece, NamesTheLastPieceOfEachRequest) {
  const Fault last = [](const ResolvedCase& c, Copies& copies) {
    for (const Request& request : c.groups[0].requests) {
      // By the blocks of the consumer: a block has one owner.
      const auto& cache = c.groups[0].consumer.ranks[0].truth;
      const auto targets = regions(c, Side::consumer);
      const auto of = [&](const Copy& one) {
        const auto location = element_run_at(cache, targets[static_cast<std::size_t>(one.dst)].allocation, one.dst_offset);
        return location && std::ranges::count(request.consumer_blocks, location->element.block) > 0;
      };
      const auto found = std::find_if(copies.rbegin(), copies.rend(), of);
      if (found != copies.rend()) copies.erase(std::next(found).base());
    }
  };
  std::vector<Shape> all = shapes;
  all.insert(all.end(), even.begin(), even.end());
  EXPECT_EQ(in_all(all, last), Rules{"the last piece of each request is not written"});
}

TEST(ByPiece, NamesUnwrittenMisalignedPieces) {
  const Fault misaligned = [](const ResolvedCase&, Copies& copies) {
    std::erase_if(copies, [](const Copy& one) { return one.dst_offset % 32 != 0; });
  };
  const Rules rules = in_all({even[1], shapes[0]}, misaligned);
  EXPECT_EQ(std::ranges::count(rules, "every piece whose place at the destination is no multiple of 32 is not written"), 1);
}

TEST(ByPiece, NamesLengthsRoundedDown) {
  const Fault rounded = [](const ResolvedCase&, Copies& copies) {
    for (Copy& one : copies) one.bytes -= one.bytes % 4;
  };
  EXPECT_EQ(in_all({shapes[0], shapes[1]}, rounded),
            Rules{"every piece whose length is no multiple of 4 ends at the multiple of it"});
}

TEST(ByPiece, NamesAMissingLayerWhenPiecesShareNoRule) {
  const auto found = happened(even[0], [](const ResolvedCase& c, Copies& copies) {
    // A layer.
    const auto targets = regions(c, Side::consumer);
    std::erase_if(copies, [&](const Copy& one) { return targets[static_cast<std::size_t>(one.dst)].name.ends_with("L1"); });
  });
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].text, "consumer, layer 1: not written (1,408 bytes)");
  EXPECT_EQ(found[0].kind, "not written by layer");
  EXPECT_EQ(found[0].pieces, Rules{});
  // Every piece, of whatever length.
  for (const Shape& shape : shapes)
    for (const Finding& one : happened(shape, [](const ResolvedCase&, Copies& copies) {
           for (Copy& copy : copies) --copy.bytes;
         }))
      EXPECT_EQ(one.pieces, Rules{}) << one.text;
}

}  // namespace
}  // namespace kvcts::diagnose
