#include "cli/report/map_drawing.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace kvcts::report {
namespace {

using nlohmann::json;

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

json move(std::int64_t offset, json should, json did) {
  return {{"region", "C/kv.L0"}, {"offset", offset}, {"bytes", 32}, {"should", std::move(should)}, {"did", std::move(did)}};
}

TEST(Map, ColoursStripsByExpectedAndActualOwner) {
  // Two runs of block 1: heads 0, 1 belong there, heads 0, 5 are there; a third that was never written.
  const json picture{{"moves",
                      {move(0, {0, 0, 0, 1, 0, 0, 0, 1}, {0, 0, 0, 1, 0, 0, 0, 1}),
                       move(32, {0, 0, 0, 1, 0, 1, 0, 1}, {0, 0, 0, 1, 0, 5, 0, 1}),
                       move(64, {0, 0, 0, 1, 0, 2, 0, 1}, "poison of C/kv.L0 + 64")}},
                     {"moves_from", "bytes"}};
  const std::string svg = map_svg(picture);
  EXPECT_NE(svg.find("2 of 3 byte ranges of C/kv.L0 came from another place; they differ in head"), std::string::npos)
      << svg;
  EXPECT_NE(svg.find("C/kv.L0: bytes 0 to 96"), std::string::npos);
  for (const char* axis : {">block<", ">head<", ">kv<", ">generation<"}) EXPECT_EQ(count(svg, axis), 1u) << axis;
  EXPECT_EQ(count(svg, ">slot<"), 0u) << "what does not differ takes no room";
  EXPECT_EQ(count(svg, "class=\"t5\""), 1u) << "head 5, once";
  EXPECT_EQ(count(svg, "class=\"pad\""), 4u) << "unowned bytes are hollow, on every axis";
  // block: one rectangle of three runs above, one of two and a hollow one below; head: three above, three below
  EXPECT_EQ(count(svg, "<rect"), 3u + 6u + 3u + 3u);
  EXPECT_EQ(count(svg, "M"), 2u) << "two marks";
  EXPECT_EQ(count(svg, "<svg "), count(svg, "</svg>"));
}

TEST(Map, DrawsNothingWithoutMovesAndMarksNothingWhenCorrect) {
  EXPECT_EQ(map_svg(nullptr), "");
  EXPECT_EQ(map_svg({{"groups", json::array()}}), "");
  EXPECT_EQ(map_svg({{"moves", json::array()}}), "");
  const std::string right = map_svg({{"moves", {move(0, {0, 0, 0, 1, 0, 0, 0, 1}, {0, 0, 0, 1, 0, 0, 0, 1})}}});
  EXPECT_NE(right.find("0 of 1 byte range "), std::string::npos) << right;
  EXPECT_EQ(right.find("class=\"off\""), std::string::npos);
}

TEST(Map, StaysSmallForAnyNumberOfMoves) {
  json moves = json::array();
  for (int i = 0; i < 96; ++i) {
    moves.push_back(move(i * 32, {i % 3, i, i % 2, 1000 + i, i, i % 7, i * 16, i},
                         {i % 2, i + 1, (i + 1) % 2, 2000 + i, i + 1, i % 5, i * 8, i + 1}));
  }
  const std::string svg = map_svg({{"moves", moves}, {"moves_from", "plan"}});
  EXPECT_LT(svg.size(), map_svg_limit);
  EXPECT_NE(svg.find("aria-label=\"96 of 96 byte ranges of C/kv.L0"), std::string::npos) << "as the opened case counts";
  EXPECT_NE(svg.find("; the first 6 are drawn"), std::string::npos) << svg.substr(0, 400);
  EXPECT_NE(svg.find(", by the plan"), std::string::npos);
  EXPECT_NE(svg.find("they differ in block, head, kv, generation, rank, layer, slot, channel"), std::string::npos)
      << svg.substr(0, 400);
}

TEST(Map, EscapesRegionNames) {
  json m = move(0, {0, 0, 0, 1, 0, 0, 0, 1}, "x");
  m["region"] = "<script>\"&";
  EXPECT_EQ(map_svg({{"moves", {m}}}).find("<script>"), std::string::npos);
}

}  // namespace
}  // namespace kvcts::report
