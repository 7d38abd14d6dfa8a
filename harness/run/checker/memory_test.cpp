// How much memory the checker needs for a case: a small multiple of the case's own, even if it fails and the cause is
// searched for.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "case/catalogue/case_file.hpp"
#include "case/resolve/resolve.hpp"
#include "run/checker/open_case.hpp"
#include "testing/checkout.hpp"
#include "testing/peak.hpp"

namespace kvcts::checker {
namespace {

using nlohmann::json;
using testing_support::peak_of;

const catalogue::Catalogue& catalogue() {
  static const catalogue::Catalogue all(std::filesystem::path(checkout::source()) / "cases");
  return all;
}

// One pool of 8 MiB per side; content at its far end, so that there are many widths in which an offset would not fit.
ResolvedCase pool() {
  return resolve(
      catalogue::parse_cases(
          "case: t/pool\ndtype: bf16\ngeometry: {layers: 1, blocks: 512, block_size: 8, heads: 4, head_dim: 128}\n"
          "producer: {template: \"B K N H C\"}\nconsumer: {template: \"B K N H C\"}\n"
          "requests: [{tokens: 20, producer_blocks: [510, 1, 300], consumer_blocks: [511, 0, 250]}]\n",
          "f.yaml", &catalogue())[0],
      catalogue());
}

double files(const ResolvedCase& c) {
  double out = 0;
  for (const auto side : {Side::producer, Side::consumer}) {
    for (const auto& region : regions(c, side))
      out += static_cast<double>(region.bytes) + 2.0 * static_cast<double>(c.guard_bytes);
  }
  return out;
}

/// `wrong`: a pattern in an unnamed block that no transformation of the map explains, so that all of them are tried.
bool played(const ResolvedCase& resolved, bool wrong) {
  OpenCase open(resolved);
  open.fill(0);
  const auto descriptors = open.descriptors();
  process::Mapping source(descriptors[0], 0, true, process::Pages::as_touched),
      target(descriptors[1], 0, true, process::Pages::as_touched);
  const std::int64_t block = 2 * 8 * 4 * 128 * 2, base = open.describe().at("files")[0].at("base").get<std::int64_t>();
  const auto& request = resolved.groups[0].requests[0];
  for (std::size_t i = 0; i < request.producer_blocks.size(); ++i) {
    std::memcpy(target.data() + base + request.consumer_blocks[i] * block,
                source.data() + base + request.producer_blocks[i] * block, static_cast<std::size_t>(block));
  }
  if (wrong) {
    for (std::int64_t i = 0; i < block; ++i) target.data()[base + 400 * block + i] = static_cast<std::uint8_t>(i * 7 + 1);
  }
  const Report reply = open.compare({{"pass", 0}, {"transferred", true}, {"events", json::array()}});
  return reply.outcome == (wrong ? Outcome::fail : Outcome::pass) &&
         (!wrong || reply.message.find(not_identified) != std::string::npos);
}

TEST(Memory, OfAPassIsBoundedByThreeImages) {
  const ResolvedCase resolved = pool();
  const double peak = peak_of([&] { return played(resolved, false); });
  EXPECT_GT(peak, files(resolved) / 2);
  EXPECT_LT(peak, static_cast<double>(memory_needed(resolved)));
}

TEST(Memory, OfAFailureIsBoundedByTheFiles) {
  const ResolvedCase resolved = pool();
  const double peak = peak_of([&] { return played(resolved, true); });
  EXPECT_GT(peak, files(resolved) / 2);
  EXPECT_LT(peak, 9 * files(resolved));
}

}  // namespace
}  // namespace kvcts::checker
