// Every sentence of `what_happened` is true of the bytes: random cases with random faults, each sentence read back and held
// against the bytes (testing/evaluator.hpp). KVCTS_DRAWS=20000 draws more, KVCTS_FIRST_DRAW=17 begins there.
//
// Held to less than their words: a list that ends in "and 3 more" (its scope is not said in full: the count only); strides
// (one distance for each value of the axes that they do not name); bytes "of unknown origin" (any); an axis "in no simple
// order" (free); sentences run by run and numbers that a step decoded (not drawn: what_happened_test.cpp).
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <random>

#include "diagnose/findings/testing/evaluator.hpp"
#include "diagnose/what_happened.hpp"
#include "layout/template.hpp"
#include "scene/testing/scenarios.hpp"

namespace kvcts::scenario::sentences {
namespace {

using testing::action, testing::add, testing::memory, testing::move, testing::raw, testing::whole, testing::write;
using Ids = std::vector<std::int64_t>;

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}

  Scenario scenario() {
    g_ = {.layers = pick(1, 3), .blocks = pick(4, 8), .block_size = 1 << pick(0, 2), .heads = pick(1, 3), .head_dim = 16};
    g_.kv = pick(1, 2);
    const int kind = static_cast<int>(pick(0, 5));
    scheme_ = {"bf16", layout::Dtype::bf16, {}, {}};
    if (kind == 4) scheme_ = {"fp8", layout::Dtype::e4m3fn, layout::ScaleSpec{layout::Dtype::fp32, 0}, {}};
    if (kind == 5)
      scheme_ = {"nvfp4", layout::Dtype::e2m1, layout::ScaleSpec{layout::Dtype::e4m3fn, 8}, layout::Dtype::fp32};
    if (scheme_.scale)
      g_.head_dim = 16;
    else if (chance(50))
      g_.head_dim = 8;
    Scenario s;
    for (const char* name : {"P", "C"}) {
      Memory& m = s.memories[name] = memory(name[0] == 'P' ? "producer" : "consumer", order(), g_, scheme_);
      m.guard_below = m.guard_above = 64 * pick(1, 8);
      m.rank = pick(0, 1);
      m.pool = chance(30);
      if (m.pool) m.gap = 16 * pick(0, 2);
      if (chance(10)) m.holds = "zero";
    }
    Ids free[2] = {shuffled(g_.blocks), shuffled(g_.blocks)};
    const std::int64_t most = std::max<std::int64_t>(1, g_.blocks / 2 - 1);
    std::uint32_t generation = 0;
    for (const char* name : {"A", "B"}) {
      const std::int64_t blocks = pick(1, most);
      ScenarioRequest r = testing::request(blocks * g_.block_size - pick(0, g_.block_size - 1), {}, ++generation);
      for (const int side : {0, 1}) {
        Ids& ids = free[side];
        r.blocks[side == 0 ? "P" : "C"] = Ids(ids.end() - blocks, ids.end());
        ids.resize(ids.size() - static_cast<std::size_t>(blocks));
      }
      s.requests[name] = r;
    }
    const bool two = chance(60);
    for (const char* name : {"A", "B"}) {
      if (name[0] == 'B' && !two) continue;
      step(s, write(s, name, "P"), 15);
      step(s, move(s, name, "P", "C"), two ? 50 : 80);
      if (chance(25)) {
        Action read = action(Operation::read, name);
        read.from = {whole(s, "C")};
        step(s, read, 15);
      }
    }
    if (chance(20)) extra(s);
    return s;
  }

 private:
  std::int64_t pick(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool chance(int percent) { return pick(1, 100) <= percent; }
  Ids shuffled(std::int64_t n) {
    Ids out;
    for (std::int64_t i = 0; i < n; ++i) out.insert(out.begin() + pick(0, i), i);
    return out;
  }

  /// Axes in any order; 4-bit codes lie along the channels.
  std::string order() { return order(chance(60)); }
  std::string order(bool apart) {
    std::vector<std::string> axes{"B", "N", "H"};
    if (g_.kv == 2) axes.emplace_back("K");
    if (!apart) axes.emplace_back("L");
    const bool inner = scheme_.scale || chance(75);
    if (!inner) axes.emplace_back("C");
    std::string out = apart ? "L x" : "";
    for (const std::int64_t i : shuffled(static_cast<std::int64_t>(axes.size())))
      out += (out.empty() ? "" : " ") + axes[static_cast<std::size_t>(i)];
    return inner ? out + " C" : out;
  }

  void step(Scenario& s, Action intended, int wrong) {
    add(s, std::move(intended));
    Step& last = s.steps.back();
    if (!chance(wrong)) return;
    last.as_intended = false;
    last.actual = {last.intended};
    break_it(s, last);
    if (chance(15)) break_it(s, last);
  }

  Ids some(std::int64_t n) {
    Ids out = shuffled(n);
    out.resize(static_cast<std::size_t>(pick(1, n)));
    return out;
  }

  void break_it(Scenario& s, Step& step) {
    if (step.actual.empty()) return;
    Action& a = step.actual.front();
    if (a.request.empty()) return;
    View& view = !a.from.empty() && (a.to.empty() || chance(50)) ? a.from.front() : a.to.front();
    const bool from = !a.from.empty() && &view == &a.from.front();
    const bool moves = a.op == Operation::move;
    switch (pick(0, 13)) {
      case 0:
        return step.actual.clear();
      case 1:
      case 2: {
        Ids ids = s.requests.at(a.request).blocks.at(from ? "P" : "C");
        if (a.op == Operation::write) ids = s.requests.at(a.request).blocks.at("P");
        if (a.op == Operation::read) ids = s.requests.at(a.request).blocks.at("C");
        for (auto& id : ids)
          if (chance(60)) id = chance(15) ? g_.blocks : chance(5) ? -1 : pick(0, g_.blocks - 1);
        (from ? a.from_blocks : a.to_blocks) = ids;
        return;
      }
      case 3:
        a.pick.layers = some(g_.layers);
        if (moves && chance(40)) a.pick_to.layers = rotated(*a.pick.layers);
        return;
      case 4:
        a.pick.heads = some(g_.heads);
        if (moves && chance(60)) a.pick_to.heads = rotated(*a.pick.heads);
        return;
      case 5:
        a.pick.kv = some(g_.kv);
        if (moves && chance(60)) a.pick_to.kv = rotated(*a.pick.kv);
        return;
      case 6:
        a.pick.tokens = some(s.requests.at(a.request).tokens);
        if (moves && chance(60)) a.pick_to.tokens = rotated(*a.pick.tokens);
        return;
      case 7: {
        if (scheme_.data == layout::Dtype::e2m1) return;
        Ids channels;
        for (std::int64_t c = pick(0, 3), end = pick(4, g_.head_dim); c < end; ++c) channels.push_back(c);
        if (!scheme_.scale) a.pick.channels = channels;
        return;
      }
      case 8:
        if (scheme_.scale) a.parts = chance(50) ? "data" : "scales";
        return;
      case 9:
      case 10:  // another order of the axes, or other extents
        view.cache = layout::to_text(layout::instantiate(order_like(view), other_geometry(), scheme_));
        return;
      case 11:
        view.offset = chance(50) ? pick(-6, 6) * 8 : pick(-2, 2);
        return;
      case 12:
        return fill(s, step);
      default:
        for (const char* other : {"A", "B"}) {
          if (a.request == other || !chance(60)) continue;
          const auto& table = s.requests.at(a.request).blocks;
          if (a.op == Operation::write) a.to_blocks = table.at("P");
          if (moves) a.to_blocks = table.at("C");
          const auto need = s.requests.at(other).tokens, have = s.requests.at(a.request).tokens;
          if (need <= have) a.request = other;
          return;
        }
    }
  }

  Ids rotated(Ids ids) {
    std::rotate(ids.begin(), ids.begin() + pick(0, static_cast<std::int64_t>(ids.size()) - 1), ids.end());
    return ids;
  }
  /// With as many allocations.
  std::string order_like(const View& view) {
    return order(layout::cache_from_text(view.cache).allocations.front().name == "kv.L0");
  }
  layout::Geometry other_geometry() {
    layout::Geometry out = g_;
    if (chance(30)) return out;
    if (chance(40))
      out.heads = pick(1, 3);
    else if (chance(50))
      out.blocks = pick(2, 8);
    else if (chance(30))
      out.layers = g_.layers;
    return out;
  }

  std::string place(const Scenario& s) {
    const std::string name = chance(60) ? "C" : "P";
    const Memory& m = s.memories.at(name);
    const layout::Cache cache = layout::cache_from_text(m.view.cache);
    return name + "/" +
           cache.allocations[static_cast<std::size_t>(pick(0, static_cast<std::int64_t>(cache.allocations.size()) - 1))]
               .name;
  }

  void fill(Scenario& s, Step& step) {
    Action fill = action(Operation::fill);
    fill.to = {raw(place(s))};
    fill.value = chance(40) ? "zero" : chance(50) ? "a5" : "poison";
    fill.to_offset = pick(-4, 20) * 8, fill.bytes = chance(50) ? pick(1, 9) : 32 * pick(1, 12);
    step.actual.push_back(fill);
  }

  /// A copy that was never meant: into guards, from guards, over content.
  void extra(Scenario& s) {
    Step step;
    step.name = "stray";
    step.as_intended = false;
    Action copy = action(Operation::copy);
    copy.from = {raw(place(s))}, copy.to = {raw(place(s))};
    copy.from_offset = pick(-4, 30) * 8 + pick(0, 1), copy.to_offset = pick(-4, 30) * 8 + pick(0, 1);
    copy.bytes = chance(30) ? pick(1, 12) : pick(8, 400);
    step.actual = {copy};
    s.steps.push_back(std::move(step));
  }

  std::mt19937_64 random_;
  layout::Geometry g_;
  layout::Scheme scheme_;
};

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

std::vector<std::string> texts(const std::vector<Finding>& findings) {
  std::vector<std::string> out;
  for (const Finding& one : findings) out.push_back(one.text);
  return out;
}

/// What is said of every byte (`runs`: run by run), as run_scenario() has it.
std::vector<std::string> happened(ExecutedScenario& p, bool runs) {
  Expectation expectation(p.truth, p.space, p.symbols, ExecutedScenario::seed);
  if (runs)
    return texts(what_happened(p.scenario, p.space, p.symbols,
                               symbol_extents(p.seen, p.mismatch, expectation, p.space, p.symbols, ExecutedScenario::seed)));
  Observation seen = p.seen;
  observe_more(seen, p.program, ExecutedScenario::seed, naming_passes);
  const auto find = [&] {
    return attribute_bytes(seen, p.mismatch, p.truth, expectation, p.space, p.symbols, ExecutedScenario::seed);
  };
  Attributions attributions = find();
  if (attributions.unknown > 0 && name_declared(p.scenario, p.symbols)) attributions = find();
  return texts(
      what_happened(p.scenario, p.space, p.symbols, *expectation.at(seen.checks[attributions.check]), attributions));
}

TEST(Sentences, HoldForTheBytes) {
  const std::uint64_t first = setting("KVCTS_FIRST_DRAW", 0), draws = setting("KVCTS_DRAWS", 300);
  std::int64_t wrong = 0, sentences = 0, failures = 0, invalid = 0;
  for (std::uint64_t draw = first; draw < first + draws && failures < 20; ++draw) {
    std::optional<ExecutedScenario> executed;
    Scenario scenario;
    try {
      scenario = Draw(draw).scenario();
      executed.emplace(scenario);
    } catch (const std::runtime_error& error) {
      ++invalid;
      if (std::getenv("KVCTS_SHOW")) std::cout << draw << ": " << error.what() << "\n";
      continue;
    }
    if (executed->mismatch.ranges.empty() || executed->program.ending.kind != "completed") continue;
    ++wrong;
    for (const bool runs : {false}) {
      const auto list = happened(*executed, runs);
      sentences += static_cast<std::int64_t>(list.size());
      const std::string complaint = Evaluator(*executed).hold(list);
      if (complaint.empty()) continue;
      ++failures;
      std::string all;
      for (const std::string& one : list) all += "\n    " + one;
      for (const auto& [name, memory] : scenario.memories) all += "\n  " + name + " " + memory.view.cache;
      ADD_FAILURE() << "draw " << draw << (runs ? ", in runs" : "") << ": " << complaint << "\n  of" << all;
      break;
    }
  }
  RecordProperty("sentences", std::to_string(sentences));
  std::cout << draws << " draws, " << invalid << " not playable, " << wrong << " with wrong bytes, " << sentences
            << " sentences\n";
  EXPECT_GT(wrong * 3, static_cast<std::int64_t>(draws)) << "too few draws have wrong bytes";
  EXPECT_LT(invalid * 10, static_cast<std::int64_t>(draws)) << "too many draws cannot be played";
}

}  // namespace
}  // namespace kvcts::scenario::sentences
