// The truth against the oracle of ordinary cases, hand-computed sums, and its own claims. Random geometries:
// truth_property_test.cpp.
#include "scene/truth/truth.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <cstring>

#include "kernels/convert/element.hpp"
#include "kernels/testing/reference.hpp"
#include "layout/testing/catalogue_reader.hpp"
#include "scene/oracle/oracle.hpp"
#include "scene/testing/scenarios.hpp"

namespace kvcts::scenario::testing {
namespace {

using layout::Component;
using layout::Dtype;
using layout::Geometry;

const Geometry small{.layers = 2, .blocks = 5, .block_size = 4, .heads = 3, .head_dim = 8};

Scenario two_sides(const std::string& producer, const std::string& consumer, const Geometry& g = small,
                   const layout::Scheme& scheme = plain(Dtype::bf16)) {
  Scenario s;
  s.memories["C"] = memory("consumer", consumer, g, scheme);
  s.memories["P"] = memory("producer", producer, g, scheme);
  s.requests["r"] = request(10, {{"P", {3, 0, 4}}, {"C", {1, 4, 0}}}, 3);
  return s;
}

std::uint32_t tag(const kernels::RowId& row, Dtype dtype, std::int64_t channel, int pass = 0) {
  return kernels::reference::code(kernels::reference::row({pass_seed(TruthBytes::seed, pass), 0, 0}, row), row, dtype,
                                  channel);
}

template <class T>
T value_at(const std::vector<std::uint8_t>& bytes, std::size_t offset) {
  T out{};
  std::memcpy(&out, bytes.data() + offset, sizeof out);
  return out;
}

std::string error_of(const Scenario& s) {
  try {
    TruthBytes p(s);
  } catch (const std::runtime_error& e) {
    return e.what();
  }
  return "";
}

// ---- against the oracle --------------------------------------------------------------------------------------------

struct Sample {
  std::string id;
  std::string text;
  Geometry geometry;
  layout::Scheme scheme;
};

std::vector<Sample> samples() {
  std::vector<Sample> out;
  const auto schemes = layout::testing::schemes();
  for (const auto& entry : layout::testing::layouts()) {
    for (const auto& [dtype, scheme] : schemes) {
      if (!entry.dtypes.empty() && std::find(entry.dtypes.begin(), entry.dtypes.end(), dtype) == entry.dtypes.end())
        continue;
      for (Geometry g : {Geometry{.layers = 2, .blocks = 5, .block_size = 4, .heads = 2, .head_dim = 32},
                         Geometry{.layers = 2, .blocks = 5, .block_size = 4, .heads = 2, .head_dim = 64},
                         Geometry{.layers = 2, .blocks = 5, .block_size = 16, .heads = 4, .head_dim = 128},
                         Geometry{.layers = 2, .blocks = 5, .block_size = 64, .heads = 4, .head_dim = 128}}) {
        g = layout::testing::with_fixed(g, entry);
        if (g.blocks < 5 || !layout::testing::meets(entry, g, scheme)) continue;
        try {
          (void)layout::instantiate(entry.text, g, scheme);
        } catch (const layout::Error&) {
          continue;  // a dtype that does not fill the layout's units
        }
        out.push_back({entry.id, entry.text, g, scheme});
        break;
      }
    }
  }
  return out;
}

// A write into A and a move from A to B; the files of `shown` must match the oracle of ordinary cases. `shown` gets the name
// that sorts first, so its buffers are numbered as the oracle numbers its regions.
void expect_oracle(const Sample& from, const Sample& to, Side shown, const std::vector<int>& passes = {0}) {
  Scenario s;
  const std::string first = "A", second = "B";
  const std::string producer = shown == Side::producer ? first : second, consumer = shown == Side::producer ? second : first;
  s.memories[producer] = memory("producer", from.text, from.geometry, from.scheme);
  s.memories[consumer] = memory("consumer", to.text, to.geometry, to.scheme);
  const auto [least, most] = std::minmax(from.geometry.block_size, to.geometry.block_size);
  const std::int64_t tokens = std::min(2 * most - 1, 4 * least);
  const auto table = [&](const Geometry& g, std::vector<std::int64_t> ids) {
    ids.resize(static_cast<std::size_t>((tokens + g.block_size - 1) / g.block_size));
    return ids;
  };
  s.requests["r"] =
      request(tokens, {{producer, table(from.geometry, {4, 0, 3, 1})}, {consumer, table(to.geometry, {3, 1, 0, 2})}}, 2);
  s.requests["other"] = request(1, {{producer, {2}}}, 9);
  add(s, write(s, "other", producer));
  add(s, write(s, "r", producer));
  add(s, move(s, "r", producer, consumer));
  TruthBytes truth_bytes(s);
  for (int pass : passes) {
    ResolvedCase c;
    c.guard_bytes = 64;
    c.seed = pass_seed(TruthBytes::seed, pass);
    Group group;
    for (const auto& [side, sample] : {std::pair{&group.producer, &from}, std::pair{&group.consumer, &to}}) {
      RankCache rank{sample->geometry, layout::instantiate(sample->text, sample->geometry, sample->scheme), {}};
      *side = {sample->id, sample->text, sample->scheme, {rank}};
    }
    group.requests = {{2, tokens, true, s.requests["r"].blocks[producer], s.requests["r"].blocks[consumer]},
                      {9, 1, false, {2}, {}}};
    c.groups = {group};
    for (const RegionRef& region : regions(c, shown)) {
      oracle::Bytes expected(static_cast<std::size_t>(oracle::file_shape(c, region.bytes).size));
      oracle::write_expected(c, region, 0, expected);
      const auto found = truth_bytes.bytes(region.allocation, pass);
      expected.resize(found.size());  // the oracle's files end at a page
      ASSERT_TRUE(found == expected) << from.id << " -> " << to.id << " " << from.scheme.name << " " << region.name
                                     << " pass " << pass;
    }
  }
}

TEST(Truth, WritesAndMovesEqualTheOracleForEveryLayoutAndDtype) {
  const auto all = samples();
  ASSERT_GT(all.size(), 1000u);
  for (const Sample& sample : all) {
    expect_oracle(sample, sample, Side::producer);
    expect_oracle(sample, sample, Side::consumer, {2});
  }
}

TEST(Truth, MovesBetweenLayoutsEqualTheOracle) {
  std::map<std::string, std::vector<Sample>> by_scheme;
  for (const Sample& sample : samples()) {
    // Layouts with their own dtypes or scales do not hold the same elements.
    if (sample.text.find(':') == std::string::npos && sample.text.find("scale") == std::string::npos)
      by_scheme[sample.scheme.name].push_back(sample);
  }
  int pairs = 0;
  for (const auto& [scheme, all] : by_scheme) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      for (std::size_t step : {1u, 5u, 23u}) {
        const Sample &a = all[i], &b = all[(i + step) % all.size()];
        const auto model = [](const Geometry& g) { return std::tuple(g.kv, g.layers, g.heads, g.head_dim, g.v_head_dim); };
        if (model(a.geometry) != model(b.geometry)) continue;
        ++pairs;
        expect_oracle(a, b, Side::consumer);
      }
    }
  }
  EXPECT_GT(pairs, 200);
}

// ---- selections ----------------------------------------------------------------------------------------------------

TEST(Truth, MovesOnlyWhatIsPicked) {
  Scenario s = two_sides("L x K B N H C", "L x B H K N C");
  add(s, write(s, "r", "P"));
  Action m = move(s, "r", "P", "C");
  m.pick.heads = {{0, 2}};
  m.pick_to.heads = {{1, 0}};
  m.pick.kv = {{1}};
  m.pick.tokens = {{4, 9}};
  add(s, m);
  TruthBytes p(s);
  const layout::Cache cache = cache_of(s.memories["C"].view);
  std::int64_t written = 0;
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    const auto bytes = p.inside("C/kv.L" + std::to_string(layer));
    const auto poison = TruthBytes(two_sides("L x K B N H C", "L x B H K N C")).inside("C/kv.L" + std::to_string(layer));
    for (std::size_t i = 0; i < bytes.size(); i += 2) {
      const auto at = layout::inverse(cache, static_cast<int>(layer), static_cast<std::int64_t>(i) * 8).at(0).coord;
      using layout::Axis;
      // Blocks 1 4 0 of the consumer hold tokens 0.., 4.., 8..
      const std::map<std::int64_t, std::int64_t> first{{1, 0}, {4, 4}, {0, 8}};
      const auto block = first.find(at[Axis::block]);
      const std::int64_t token = block == first.end() ? -1 : block->second + at[Axis::slot];
      const bool moved = (token == 4 || token == 9) && at[Axis::kv] == 1 && at[Axis::head] < 2;
      const std::uint32_t expected = moved
                                         ? tag({Component::data, 1, at[Axis::layer], at[Axis::head] == 1 ? 0 : 2, token, 3},
                                               Dtype::bf16, at[Axis::channel])
                                         : value_at<std::uint16_t>(poison, i);
      ASSERT_EQ(value_at<std::uint16_t>(bytes, i), expected) << i;
      written += moved;
    }
  }
  EXPECT_EQ(written, 2 * 2 * 2 * 8);
}

TEST(Truth, TheFirstViewThatHoldsAnElementIsItsSource) {
  // Two ranks both hold head 1, under different generations.
  Scenario s;
  for (const char* rank : {"R0", "R1"}) {
    Geometry g = small;
    g.heads = 2;
    g.first_head = rank[1] == '0' ? 0 : 1;
    s.memories[rank] = memory("producer", "L x K B N H C", g, plain(Dtype::bf16));
  }
  s.memories["C"] = memory("consumer", "L x K B N H C", small, plain(Dtype::bf16));
  s.requests["r"] = request(4, {{"R0", {2}}, {"R1", {3}}, {"C", {1}}});
  add(s, write(s, "r", "R0"));
  Action second = write(s, "r", "R1");
  second.generation = 5;
  add(s, second);
  Action m = move(s, "r", "R0", "C");
  m.from = {whole(s, "R1"), whole(s, "R0")};
  add(s, m);
  TruthBytes p(s);
  // Block 1 of K: head rows of 16 bytes.
  EXPECT_EQ(p.text_at("C/kv.L0", 1 * 4 * 3 * 16), "K layer 0 token 0 head 0 channel 0, generation 1");
  EXPECT_EQ(p.text_at("C/kv.L0", 1 * 4 * 3 * 16 + 16), "K layer 0 token 0 head 1 channel 0, generation 5");
  EXPECT_EQ(p.text_at("C/kv.L0", 1 * 4 * 3 * 16 + 32), "K layer 0 token 0 head 2 channel 0, generation 5");
  EXPECT_EQ(p.truth.events.back()["bytes"], 2 * 2 * 4 * 3 * 8 * 2);
}

TEST(Truth, BlockTablesMayHaveGapsAndWindows) {
  Scenario s = two_sides("L x K B N H C", "L x K B N H C");
  s.requests["r"] = request(12, {{"P", {3, 0, 4}}, {"C", {2, no_block}}});
  s.requests["r"].first_token = 100;
  s.requests["r"].positions = {{"C", {2, 0}}};
  add(s, write(s, "r", "P"));
  add(s, move(s, "r", "P", "C"));
  TruthBytes p(s);
  EXPECT_EQ(p.text_at("C/kv.L0", 2 * 4 * 48), "K layer 0 token 108 head 0 channel 0, generation 1");
  EXPECT_EQ(p.text_at("C/kv.L0", 1 * 4 * 48), "poison of C/kv.L0 + 192");
  EXPECT_EQ(p.text_at("P/kv.L1", 4 * 4 * 48 + 2 * 48 + 16 + 6), "K layer 1 token 110 head 1 channel 3, generation 1");
}

TEST(Truth, MovesFourBitCodesByHalfBytes) {
  // One token per nibble: slots are innermost, so the halves of a byte are different tokens of one channel.
  Scenario s;
  const Geometry g{.layers = 1, .blocks = 2, .block_size = 2, .heads = 1, .head_dim = 2, .kv = 1};
  s.memories["P"] = memory("producer", "L x B N H C", g, plain(Dtype::int4));
  s.memories["C"] = memory("consumer", "L x B H C N", g, plain(Dtype::int4));
  s.memories["D"] = memory("consumer", "L x B N H C", g, plain(Dtype::int4));
  s.memories["D"].view.cache = "allocation kv.L0 4\ndata int4 hi a0+0 [B=2:2 N=2:1 C=2:4b]\n";
  s.requests["r"] = request(2, {{"P", {1}}, {"C", {0}}, {"D", {1}}});
  add(s, write(s, "r", "P"));
  add(s, move(s, "r", "P", "C"));
  add(s, move(s, "r", "C", "D"));
  TruthBytes p(s);
  EXPECT_EQ(p.text_at("P", 2), "K layer 0 token 0 head 0 channels 0 and 1, generation 1");
  EXPECT_EQ(
      p.text_at("C", 0),
      "below K layer 0 token 0 head 0 channel 0, generation 1, above K layer 0 token 1 head 0 channel 0, generation 1");
  EXPECT_EQ(p.text_at("D", 3), "K layer 0 token 1 head 0 channels 0 and 1 (high nibble first), generation 1");
  for (std::int64_t token = 0; token < 2; ++token) {
    const kernels::RowId row{Component::data, 0, 0, 0, token, 1};
    const std::uint32_t even = tag(row, Dtype::int4, 0), odd = tag(row, Dtype::int4, 1);
    EXPECT_EQ(p.inside("P")[static_cast<std::size_t>(2 + token)], even | odd << 4);
    EXPECT_EQ(p.inside("D")[static_cast<std::size_t>(2 + token)], odd | even << 4);
    EXPECT_EQ((p.inside("C")[0] >> (4 * token)) & 0xf, static_cast<int>(even));
  }
}

// ---- raw bytes -----------------------------------------------------------------------------------------------------

TEST(Truth, CopiesAndFillsActOnBytes) {
  Scenario s = two_sides("L x K B N H C", "L x K B N H C");
  add(s, write(s, "r", "P"));
  Action c = action(Operation::copy);
  c.from = {raw("P/kv.L1")};
  c.to = {raw("C/kv.L0")};
  c.from_offset = 3 * 192, c.to_offset = 16, c.bytes = 32, c.count = 2, c.from_step = 48, c.to_step = 64;
  add(s, c);
  Action f = action(Operation::fill);
  f.to = {raw("C/kv.L0")};
  f.to_offset = 20, f.bytes = 3, f.value = "a1 b2";
  add(s, f);
  f.to_offset = 24, f.bytes = 1, f.value = "poison";
  add(s, f);
  TruthBytes p(s);
  EXPECT_EQ(p.text_at("C", 16), "K layer 1 token 0 head 0 channel 0, generation 3");
  EXPECT_EQ(p.text_at("C", 20), "0xa1");
  EXPECT_EQ(p.text_at("C", 21), "0xb2");
  EXPECT_EQ(p.text_at("C", 22), "0xa1");
  EXPECT_EQ(p.text_at("C", 24), "poison of C/kv.L0 + 24");
  EXPECT_EQ(p.text_at("C", 47), "K layer 1 token 0 head 1 channel 7, generation 3");
  EXPECT_EQ(p.text_at("C", 48), "poison of C/kv.L0 + 48");
  EXPECT_EQ(p.text_at("C", 80), "K layer 1 token 1 head 0 channel 0, generation 3");
  const auto bytes = p.inside("C", 1);
  EXPECT_EQ(value_at<std::uint16_t>(bytes, 80), tag({Component::data, 0, 1, 0, 1, 3}, Dtype::bf16, 0, 1));
  EXPECT_EQ(bytes[21], 0xb2);
}

TEST(Truth, FillsByBlocksAndByRequest) {
  Scenario s = two_sides("L x K B N H C", "L x B H K N C");
  Action f = action(Operation::fill);
  f.to = {whole(s, "C")};
  f.to_blocks = {{2}};
  f.value = "803f";
  add(s, f);
  Action zero = action(Operation::fill, "r");
  zero.to = {whole(s, "C")};
  zero.value = "zero";
  zero.parts = "data";
  add(s, zero);
  TruthBytes p(s);
  const auto bytes = p.inside("C/kv.L1");
  const std::size_t block = 2 * 3 * 4 * 16;
  for (std::size_t i = 0; i < block; i += 2) ASSERT_EQ(value_at<std::uint16_t>(bytes, 2 * block + i), 0x3f80);
  EXPECT_EQ(p.text_at("C/kv.L1", static_cast<std::int64_t>(3 * block)), "poison of C/kv.L1 + " + std::to_string(3 * block));
  // Blocks 1, 4 and two slots of 0.
  std::int64_t zeros = 0;
  for (std::uint8_t b : bytes) zeros += b == 0;
  EXPECT_EQ(zeros, 2 * 3 * 10 * 16);
}

TEST(Truth, PlanesThatShareBytesAreWrittenInTheirOrder) {
  Scenario s;
  s.memories["P"].view.cache = "allocation a 16\ndata bf16 a0+0 [C=4:2]\ndata bf16 a0+4 {K=1} [C=4:2]\n";
  s.requests["r"] = request(1, {});
  add(s, write(s, "r", "P"));
  TruthBytes p(s);
  EXPECT_EQ(p.text_at("P", 2), "K layer 0 token 0 head 0 channel 1, generation 1");
  EXPECT_EQ(p.text_at("P", 4), "V layer 0 token 0 head 0 channel 0, generation 1");
}

// ---- reads ---------------------------------------------------------------------------------------------------------

TEST(Truth, ReadsGatherInDenseOrder) {
  Scenario s = two_sides("L x { K=0 B H C/x N C%x ; K=1 B H C N }", "L x K B N H C");
  add(s, write(s, "r", "P"));
  Action r = action(Operation::read, "r");
  r.from = {whole(s, "P")};
  r.pick.layers = {{1}};
  r.pick.heads = {{2, 0}};
  add(s, r);
  TruthBytes p(s);
  const auto bytes = p.inside("read2");
  ASSERT_EQ(bytes.size(), 2u * 10 * 2 * 8 * 2);
  std::size_t at = 0;
  for (std::int64_t kv = 0; kv < 2; ++kv)
    for (std::int64_t token = 0; token < 10; ++token)
      for (std::int64_t head : {2, 0})
        for (std::int64_t channel = 0; channel < 8; ++channel, at += 2)
          ASSERT_EQ(value_at<std::uint16_t>(bytes, at), tag({Component::data, kv, 1, head, token, 3}, Dtype::bf16, channel));
}

float decoded(Dtype dtype, std::uint32_t code) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(kernels::convert::decode(dtype, code)));
}

TEST(Truth, NumbersAreCodesTimesTheirScales) {
  const auto schemes = layout::testing::schemes();
  ASSERT_TRUE(schemes.contains("nvfp4"));
  const Geometry g{.layers = 2, .blocks = 3, .block_size = 2, .heads = 2, .head_dim = 32};
  for (const char* how : {"used", "ignored", "twice"}) {
    const layout::Scheme& scheme = schemes.at("nvfp4");
    Scenario s;
    s.memories["P"] = memory("producer", "L x K B N H C", g, scheme);
    s.requests["r"] = request(3, {{"P", {2, 0}}}, 4);
    add(s, write(s, "r", "P"));
    Action r = action(Operation::read, "r");
    r.from = {whole(s, "P")};
    r.decode = true;
    r.scales = how;
    r.pick.kv = {{1}};
    r.pick.tokens = {{2}};
    add(s, r);
    TruthBytes p(s);
    for (int pass : {0, 1}) {
      const auto bytes = p.inside("read2", pass);
      ASSERT_EQ(bytes.size(), 2u * 2 * 32 * 4);
      std::size_t at = 0;
      for (std::int64_t layer = 0; layer < 2; ++layer)
        for (std::int64_t head = 0; head < 2; ++head)
          for (std::int64_t channel = 0; channel < 32; ++channel, at += 4) {
            const float code =
                decoded(scheme.data, tag({Component::data, 1, layer, head, 2, 4}, scheme.data, channel, pass));
            const float scale = decoded(
                scheme.scale->dtype, tag({Component::scale, 1, layer, head, 2, 4}, scheme.scale->dtype, channel / 16, pass));
            const float global =
                decoded(Dtype::fp32, tag({Component::global_scale, 1, layer, 0, 0, 4}, Dtype::fp32, 0, pass));
            const float expected = std::string(how) == "ignored" ? code
                                   : std::string(how) == "used"  ? code * scale * global
                                                                 : code * scale * global * scale * global;
            ASSERT_EQ(value_at<float>(bytes, at), expected) << how << " channel " << channel;
          }
    }
    EXPECT_EQ(
        p.text_at("read2", 4 * 17),
        std::string("number of V layer 0 token 2 head 0 channel 17, generation 4") +
            (std::string(how) == "ignored" ? ""
                                           : std::string(std::string(how) == "twice" ? ", scaled 2 times" : ", scaled") +
                                                 "; scale: scale V layer 0 token 2 head 0 group 1, generation 4"
                                                 "; global scale: global scale V layer 0, generation 4"));
  }
}

TEST(Truth, DecodesBytesThatAreNoElement) {
  Scenario s = two_sides("L x K B N H C", "L x K B N H C");
  add(s, write(s, "r", "P"));
  Action f = action(Operation::fill);
  f.to = {raw("P/kv.L0")};
  f.to_offset = 3 * 192 + 1, f.bytes = 2, f.value = "40 41";
  add(s, f);
  Action r = action(Operation::read, "r");
  r.from = {whole(s, "P")};
  r.decode = true;
  add(s, r);
  TruthBytes p(s);
  const auto bytes = p.inside("read3");
  const std::uint32_t first = (tag({Component::data, 0, 0, 0, 0, 3}, Dtype::bf16, 0) & 0xff) | 0x4000;
  const std::uint32_t second = (tag({Component::data, 0, 0, 0, 0, 3}, Dtype::bf16, 1) & 0xff00) | 0x41;
  EXPECT_EQ(value_at<float>(bytes, 0), decoded(Dtype::bf16, first));
  EXPECT_EQ(value_at<float>(bytes, 4), decoded(Dtype::bf16, second));
  EXPECT_NE(p.text_at("read3", 0).find("its code: bytes read as bf16"), std::string::npos) << p.text_at("read3", 0);
}

// ---- stored objects ------------------------------------------------------------------------------------------------

Action put_or_get(const Scenario& s, Operation op, const std::string& request, const std::string& memory,
                  const std::string& hash) {
  Action a = action(op, request);
  a.store = "disk";
  a.key = {{"hash", hash}, {"model", "m"}};
  (op == Operation::put ? a.from : a.to).push_back(whole(s, memory));
  return a;
}

TEST(Truth, FindsStoredObjectsByTheirFullKey) {
  Scenario s = two_sides("L x K B N H C", "L x B H K N C");
  s.requests["q"] = request(10, {{"P", {1, 2, 0}}, {"C", {2, 3, 1}}}, 8);
  add(s, write(s, "r", "P"));
  add(s, put_or_get(s, Operation::put, "r", "P", "1"));
  add(s, write(s, "q", "P"));
  Action keep = put_or_get(s, Operation::put, "q", "P", "1");
  keep.on_exists = "keep";
  add(s, keep);
  add(s, put_or_get(s, Operation::get, "r", "C", "1"));
  add(s, put_or_get(s, Operation::get, "q", "C", "2"));
  TruthBytes p(s);
  // The blob passes between layouts in coordinate order.
  Scenario moved = two_sides("L x K B N H C", "L x B H K N C");
  add(moved, write(moved, "r", "P"));
  add(moved, move(moved, "r", "P", "C"));
  EXPECT_EQ(p.inside("C/kv.L1"), TruthBytes(moved).inside("C/kv.L1"));
  EXPECT_EQ(p.truth.events[1]["there"], false);
  EXPECT_EQ(p.truth.events[3]["there"], true);
  EXPECT_EQ(p.truth.events[4]["hit"], true);
  EXPECT_EQ(p.truth.events[5]["hit"], false);

  s.steps[3].intended.on_exists = "replace";
  EXPECT_EQ(TruthBytes(s).text_at("C/kv.L0", 192 * 2), "K layer 0 token 0 head 0 channel 0, generation 8");
}

// ---- sequence ------------------------------------------------------------------------------------------------------

TEST(Truth, RejectsAccessOutsideARegistration) {
  Scenario s = two_sides("L x K B N H C", "L x K B N H C");
  add(s, write(s, "r", "P"));
  Action reg = action(Operation::register_range);
  reg.memory = "C/kv.L0";
  add(s, reg);
  add(s, move(s, "r", "P", "C"));
  reg.memory = "C/kv.L1";
  add(s, reg);
  add(s, move(s, "r", "P", "C"));
  TruthBytes p(s);
  ASSERT_EQ(p.truth.events.size(), 6u);
  EXPECT_EQ(p.truth.events[2]["violation"], "not registered");
  EXPECT_EQ(p.truth.events[3]["moved"], false);
  EXPECT_EQ(p.truth.events[5]["moved"], true);
  EXPECT_EQ(p.text_at("C/kv.L0", 192), "K layer 0 token 0 head 0 channel 0, generation 3");
  s.steps.pop_back();
  EXPECT_EQ(TruthBytes(s).text_at("C/kv.L0", 192), "poison of C/kv.L0 + 192") << "a step that may not is not done in part";

  Action un = action(Operation::unregister_range);
  un.memory = "C/kv.L0";
  add(s, un);
  add(s, move(s, "r", "P", "C"));
  EXPECT_EQ(TruthBytes(s).truth.events.back()["moved"], false);
}

TEST(Truth, RejectsACopyAcrossABoundaryThatMayNotBeSplit) {
  Scenario s = two_sides("L x K B N H C", "L x K B N H C");
  Action reg = action(Operation::register_range);
  reg.memory = "C/kv.L0";
  reg.bytes = 100;
  add(s, reg);
  reg.to_offset = 100, reg.bytes = 100;
  add(s, reg);
  Action c = action(Operation::copy);
  c.from = {raw("P/kv.L0")};
  c.to = {raw("C/kv.L0")};
  c.to_offset = 90, c.bytes = 20;
  add(s, c);
  EXPECT_EQ(TruthBytes(s).truth.events.back()["moved"], true);
  s.steps.back().intended.splits = false;
  EXPECT_EQ(TruthBytes(s).truth.events[2]["violation"], "straddles a registration");
  s.steps.back().intended.splits = true;
  s.steps.back().intended.to_offset = 190;
  EXPECT_EQ(TruthBytes(s).truth.events[2]["violation"], "not registered");

  s.memories["P"].boundaries = {10};
  s.steps.back().intended.to_offset = 0;
  EXPECT_EQ(TruthBytes(s).truth.events.back()["moved"], true);
  s.steps.back().intended.splits = false;
  EXPECT_EQ(TruthBytes(s).truth.events[2]["violation"], "straddles a mapping");
}

TEST(Truth, ARecycledBlockHoldsTheNewRequest) {
  Scenario s = two_sides("L x K B N H C", "L x K B N H C");
  add(s, write(s, "r", "P"));
  add(s, move(s, "r", "P", "C"));
  Action a = action(Operation::assign, "r");
  a.blocks = {{"P", {0, 1}}};
  a.generation = 4;
  a.tokens = 8;
  add(s, a);
  add(s, write(s, "r", "P"));
  TruthBytes p(s);
  EXPECT_EQ(p.text_at("P/kv.L0", 0), "K layer 0 token 0 head 0 channel 0, generation 4");
  EXPECT_EQ(p.text_at("P/kv.L0", 192), "K layer 0 token 4 head 0 channel 0, generation 4");
  EXPECT_EQ(p.text_at("P/kv.L0", 192 * 3), "K layer 0 token 0 head 0 channel 0, generation 3");
  EXPECT_EQ(p.text_at("C/kv.L0", 0), "K layer 0 token 8 head 0 channel 0, generation 3");
}

/// Whether a byte of slot `slot` in block `block` of C counts at the end; "L x K B N H C", K of layer 0.
bool counts(const Scenario& s, std::int64_t block, std::int64_t slot) {
  TruthBytes p(s);
  const auto& any = p.truth.checks.back().any;
  const auto of = any.find(p.buffer("C/kv.L0"));
  return of == any.end() || !holds_byte(of->second, (block * 4 + slot) * 3 * 8 * 2);
}

TEST(Truth, UnusedSlotsOfTheLastBlockAreMaskedAfterAMove) {
  Scenario s = two_sides("L x K B N H C", "L x K B N H C");  // 10 tokens: two slots of block 0 of C are used
  add(s, write(s, "r", "P"));
  EXPECT_TRUE(counts(s, 0, 2)) << "nothing was moved";
  add(s, move(s, "r", "P", "C"));
  EXPECT_TRUE(counts(s, 0, 1)) << "a token";
  EXPECT_FALSE(counts(s, 0, 2));
  EXPECT_FALSE(counts(s, 0, 3));
  EXPECT_TRUE(counts(s, 4, 3)) << "a token of a full block";
  EXPECT_TRUE(counts(s, 2, 0)) << "a block of nobody";
  Scenario kept = s;
  kept.memories["C"].unused_slots = "kept";
  EXPECT_TRUE(counts(kept, 0, 2));
  Scenario other = s;
  other.requests["longer"] = request(11, {{"C", {1, 4, 0}}}, 3);
  EXPECT_TRUE(counts(other, 0, 2)) << "a token of a request that shares the block";
  EXPECT_FALSE(counts(other, 0, 3));
  Action grows = action(Operation::assign, "r");
  grows.tokens = 11;
  add(s, grows);
  add(s, write(s, "r", "C"));
  EXPECT_TRUE(counts(s, 0, 2)) << "written since";
  EXPECT_FALSE(counts(s, 0, 3));
}

TEST(Truth, UnusedSlotsReachToTheEndOfTheLargerBlock) {
  Scenario s;
  Geometry large = small;
  large.block_size = 16;
  s.memories["C"] = memory("consumer", "L x K B N H C", small, plain(Dtype::bf16));
  s.memories["P"] = memory("producer", "L x K B N H C", large, plain(Dtype::bf16));
  s.requests["r"] = request(10, {{"P", {3}}, {"C", {1, 4, 0, 2}}}, 3);
  add(s, write(s, "r", "P"));
  add(s, move(s, "r", "P", "C"));
  EXPECT_FALSE(counts(s, 0, 2));
  EXPECT_FALSE(counts(s, 2, 3)) << "within the producer's block";
  EXPECT_TRUE(counts(s, 3, 0));
}

TEST(Truth, AReadTakesTheTokensOfThatMoment) {
  for (const std::int64_t tokens : {12, 4}) {
    Scenario s = two_sides("L x K B N H C", "L x K B N H C");
    Action a = action(Operation::assign, "r");
    a.tokens = tokens;
    add(s, a);
    add(s, write(s, "r", "P"));
    Action r = action(Operation::read, "r");
    r.from = {whole(s, "P")};
    add(s, r);
    const std::int64_t row = 3 * 8 * 2, kv = 2 * tokens * row;  // K and V: layers, tokens, heads, channels
    TruthBytes p(s);
    EXPECT_EQ(p.text_at("read3", (tokens - 1) * row),
              "K layer 0 token " + std::to_string(tokens - 1) + " head 0 channel 0, generation 3");
    EXPECT_EQ(p.text_at("read3", kv), "V layer 0 token 0 head 0 channel 0, generation 3");
    EXPECT_EQ(p.text_at("read3", 2 * kv - row),
              "V layer 1 token " + std::to_string(tokens - 1) + " head 0 channel 0, generation 3");
  }
}

TEST(Truth, ReportsHowASequenceEnds) {
  struct End {
    Action step;
    std::string kind;
  };
  Action require = action(Operation::require);
  require.about = "heads", require.expects = 8, require.found = 4, require.otherwise = "raise";
  Action needs = action(Operation::require);
  needs.needs = {{"sm", 90}}, needs.has = {{"sm", 89}};
  Action unpack = action(Operation::unpack);
  unpack.expects = {"k", "b", "n", "h", "c"}, unpack.found = {1, 2, 3}, unpack.otherwise = "raise";
  Action wait = action(Operation::wait);
  wait.event = "done", wait.fields = {{"layer", 1}}, wait.in = "kernel";
  Action hang = action(Operation::hang);
  hang.in = "handshake";
  for (const End& e : {End{require, "raised"}, End{needs, "refused"}, End{unpack, "raised"}, End{wait, "hung"},
                       End{hang, "hung"}, End{action(Operation::refuse), "refused"}, End{action(Operation::raise), "raised"},
                       End{action(Operation::crash), "crashed"}}) {
    Scenario s = two_sides("L x K B N H C", "L x K B N H C");
    Action signal = action(Operation::signal);
    signal.event = "done", signal.fields = {{"layer", 0}};
    add(s, signal);
    add(s, e.step);
    add(s, write(s, "r", "P"));
    TruthBytes p(s);
    EXPECT_EQ(p.truth.ending.kind, e.kind) << name(e.step.op);
    EXPECT_EQ(p.truth.ending.step, std::string(name(e.step.op)) + "2");
    EXPECT_EQ(p.truth.ending.in, e.step.in);
    EXPECT_EQ(p.text_at("P/kv.L0", 192 * 3), "poison of P/kv.L0 + 576") << "nothing moves after " << name(e.step.op);
    ASSERT_EQ(p.truth.checks.size(), 1u);
    EXPECT_EQ(p.truth.checks[0].step, "");
  }
  // A satisfied requirement continues.
  require.found = 8, needs.has = {{"sm", 90}}, unpack.found = {5, 4, 3, 2, 1}, wait.fields = {{"layer", 0}};
  Scenario s = two_sides("L x K B N H C", "L x K B N H C");
  Action signal = action(Operation::signal);
  signal.event = "done", signal.fields = {{"layer", 0}, {"bytes", 10}};
  for (const Action& a : {signal, require, needs, unpack, wait}) add(s, a);
  EXPECT_EQ(TruthBytes(s).truth.ending.kind, "completed");
}

TEST(Truth, ACheckExpectsTheBytesOfItsMoment) {
  Scenario s = two_sides("L x K B N H C", "L x K B N H C");
  add(s, write(s, "r", "P"));
  add(s, action(Operation::check));
  Action f = action(Operation::fill);
  f.to = {raw("P/kv.L0")};
  f.to_offset = 576, f.bytes = 8, f.value = "00";
  add(s, f);
  Action unchanged = action(Operation::check);
  unchanged.memory = "P/kv.L0", unchanged.to_offset = 578, unchanged.bytes = 2, unchanged.is = "unchanged";
  add(s, unchanged);
  Action any = action(Operation::check);
  any.memory = "P/kv.L0", any.to_offset = 570, any.bytes = 10, any.is = "any";
  add(s, any);
  TruthBytes p(s);
  ASSERT_EQ(p.truth.checks.size(), 4u);
  const std::string row = "K layer 0 token 0 head 0 channel ";
  EXPECT_EQ(p.text_at("P/kv.L0", 576, 0), row + "0, generation 3");
  EXPECT_EQ(p.text_at("P/kv.L0", 578, 1), row + "1, generation 3") << "as at the check before";
  EXPECT_EQ(p.text_at("P/kv.L0", 578, 2), "0x00");
  // Only the named bytes count at the second check; at the third and at the end, all but the named ones.
  const int b = p.buffer("P/kv.L0");
  using Spans = std::map<std::int64_t, std::int64_t>;
  EXPECT_EQ(p.truth.checks[1].any.at(b), (Spans{{-64, 578}, {580, 1920 + 64}}));
  EXPECT_EQ(p.truth.checks[2].any.at(b), (Spans{{570, 580}}));
  EXPECT_EQ(p.truth.checks[3].any.at(b), (Spans{{570, 580}}));
  EXPECT_TRUE(p.truth.checks[0].any.empty());
}

TEST(Truth, CheckAnyOfARequestCoversItsElementsOnly) {
  Scenario s = two_sides("L x K B N H C", "L x B H K N C");
  Action any = action(Operation::check, "r");
  any.memory = "C", any.is = "any", any.pick.kv = {{0}};
  add(s, any);
  TruthBytes p(s);
  const auto& spans = p.truth.checks.back().any.at(p.buffer("C/kv.L1"));
  std::int64_t bytes = 0;
  for (const auto& [begin, end] : spans) bytes += end - begin;
  EXPECT_EQ(bytes, 3 * 10 * 16);
  EXPECT_EQ(spans.begin()->first, 0);
  EXPECT_EQ(spans.begin()->second, 2 * 16) << "two slots of block 0";
}

// ---- what cannot be meant ------------------------------------------------------------------------------------------

TEST(Truth, RefusesImpossibleSteps) {
  const auto with = [](auto change) {
    Scenario s = two_sides("L x K B N H C", "L x K B N H C");
    add(s, write(s, "r", "P"));
    add(s, move(s, "r", "P", "C"));
    change(s);
    return error_of(s);
  };
  EXPECT_EQ(with([](Scenario&) {}), "");
  EXPECT_EQ(with([](Scenario& s) { s.requests["r"].blocks["P"] = {3, 0}; }),
            "step 'write1': request 'r' has 2 blocks of 4 in memory 'P', which is too few for 10 tokens");
  EXPECT_EQ(with([](Scenario& s) { s.requests["r"].blocks["C"] = {1, 2, 5}; }), "step 'move2': memory 'C' has no block 5");
  EXPECT_EQ(with([](Scenario& s) { s.requests["r"].blocks.erase("C"); }),
            "step 'move2': request 'r' has no blocks in memory 'C'; name them, or give the step its own list");
  EXPECT_EQ(with([](Scenario& s) { s.steps[1].intended.pick.layers = {{1, 2}}; }),
            "step 'move2': picks layer 2, which 'P' does not hold: expected 0..1 (what the code did with a wrong one "
            "belongs under 'actually')");
  EXPECT_EQ(with([](Scenario& s) { s.steps[1].intended.pick.tokens = {{10}}; }),
            "step 'move2': picks token 10, but request 'r' has tokens 0 to 9 (what the code did with a wrong one belongs "
            "under 'actually')");
  EXPECT_EQ(with([](Scenario& s) { s.steps[1].intended.pick.heads = {{0, 1}}, s.steps[1].intended.pick_to.heads = {{0}}; }),
            "step 'move2': takes 2 heads to 1; expected as many places as picks");
  EXPECT_EQ(with([](Scenario& s) { s.steps[1].intended.to[0].offset = 192; }),
            "step 'move2': bytes 1920 to 1921 are outside of 'C/kv.L0', which has 1920");
  EXPECT_EQ(with([](Scenario& s) { s.steps[1].intended.to[0].offset = -1; }),
            "step 'move2': bytes -1 to 0 are outside of 'C/kv.L0', which has 1920");
  EXPECT_NE(with([](Scenario& s) {
              s.memories["C"] = memory("consumer", "L x K B N H C", small, plain(Dtype::e5m2)),
              s.steps[1].intended.to = {whole(s, "C")};
            }).find("moves codes of 16 bits into codes of 8 bits"),
            std::string::npos);
}

// ---- views of other arithmetic -------------------------------------------------------------------------------------

TEST(Truth, AViewMayTruncateItsSums) {
  // Blocks of 96 bytes, sums of 8 bits in bytes: block 3 lies at 288 mod 256 = 32.
  Scenario s;
  s.memories["P"].view.cache = "allocation a 1024\ndata bf16 a0+0 [B=4:96 N=2:48 C=8:2]\n";
  s.requests["r"] = request(2, {{"P", {3}}});
  Action w = write(s, "r", "P");
  w.to[0].arithmetic = {.bits = 8, .is_signed = false, .unit = "bytes", .of = "sum"};
  add(s, w);
  EXPECT_EQ(TruthBytes(s).text_at("P", 32), "K layer 0 token 0 head 0 channel 0, generation 1");
  EXPECT_EQ(TruthBytes(s).text_at("P", 80 + 4), "K layer 0 token 1 head 0 channel 2, generation 1");
  // In elements: 144 stays below 256; signed it is -112, which is outside; as a product the slot is added beyond.
  s.steps[0].intended.to[0].arithmetic.unit = "elements";
  EXPECT_EQ(TruthBytes(s).text_at("P", 288), "K layer 0 token 0 head 0 channel 0, generation 1");
  s.steps[0].intended.to[0].arithmetic.is_signed = true;
  EXPECT_EQ(error_of(s), "step 'write1': bytes -224 to -223 are outside of 'P/a', which has 1024");
  s.steps[0].intended.to[0].arithmetic = {.bits = 8, .is_signed = false, .unit = "bytes", .of = "product"};
  s.requests["r"].blocks["P"] = {2};
  EXPECT_EQ(TruthBytes(s).text_at("P", 240), "K layer 0 token 1 head 0 channel 0, generation 1");
  s.steps[0].intended.to[0].cache = s.memories["P"].view.cache = "allocation a 1024\ndata bf16 a0+0 [B=4:96 N=2:80 C=8:2]\n";
  EXPECT_EQ(TruthBytes(s).text_at("P", 272), "K layer 0 token 1 head 0 channel 0, generation 1")
      << "192 + 80: sums of products are not cut";
  s.steps[0].intended.to[0].cache = s.memories["P"].view.cache = "allocation a 1024\ndata bf16 a0+0 [B=4:96 N=2:48 C=8:2]\n";
  s.steps[0].intended.to[0].arithmetic = {.bits = 64};
  s.steps[0].intended.to[0].align = 128;
  // Rows at 192 and 240 both begin at 128; the later one stays.
  EXPECT_EQ(TruthBytes(s).text_at("P", 128 + 2), "K layer 0 token 1 head 0 channel 1, generation 1");
}

// ---- size ----------------------------------------------------------------------------------------------------------

TEST(Truth, APoolOfManyGigabytesCostsOnlyTouchedPages) {
  Scenario s;
  const Geometry g{.layers = 1, .blocks = 1 << 20, .block_size = 16, .heads = 8, .head_dim = 128};  // 64 GiB
  for (const char* name : {"P", "C"}) {
    s.memories[name] = memory(name[0] == 'P' ? "producer" : "consumer", name[0] == 'P' ? "L x K B N H C" : "L x B K H N C",
                              g, plain(Dtype::bf16));
    s.memories[name].sparse = true;
  }
  s.requests["r"] = request(32, {{"P", {(1 << 20) - 1, 70000}}, {"C", {0, 600000}}});
  add(s, write(s, "r", "P"));
  add(s, move(s, "r", "P", "C"));
  const auto begin = std::chrono::steady_clock::now();
  TruthBytes p(s);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20)) << "it walked the pool";
  EXPECT_EQ(p.truth.checks.back().images.at(0).pages().size(), 2u * 2 * 16 * 8 * 128 * 2 / 4096);
  EXPECT_EQ(p.text_at("C", 600000ll * 2 * 32768 + 32768 + (3 * 16 + 2) * 256 + 10),
            "V layer 0 token 18 head 3 channel 5, generation 1");
}

}  // namespace
}  // namespace kvcts::scenario::testing
