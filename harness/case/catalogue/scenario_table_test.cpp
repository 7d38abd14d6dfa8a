#include "case/catalogue/scenario_table.hpp"

#include <gtest/gtest.h>

#include "case/catalogue/case_file.hpp"
#include "case/scenario_walk.hpp"

namespace kvcts::catalogue {
namespace {

using scenario::Action;
using scenario::Scenario;

constexpr const char* head = R"(
memory:
  P: {side: producer, layout: vllm-fa-nhd}
  C: {layout: vllm-fa-hnd, sparse: true, boundaries: [4096, 8192]}
requests:
  A: {tokens: 8, blocks: {P: [1, none], C: [0, 2]}, positions: {C: [1, 0]}}
steps:
)";

Scenario parse(const std::string& steps) { return scenario_from_yaml(head + steps, "f.yaml"); }

std::string error_of_steps(const std::string& steps) {
  try {
    parse(steps);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Every operation with every key that it has.
constexpr const char* everything = R"(
  - write: {request: A, to: [P, {of: C, layout: flashinfer:HND}], layers: 0, kv: K, tokens: "0..4",
      heads: [1, 0], channels: ["0..2", 7], parts: data, content: codes, generation: 3, to_blocks: [4], otherwise: go on}
  - move:
      name: transfer
      request: A
      from: {of: P, template: "L x K B N H C", geometry: {blocks: 9}, dtype: fp16, offset: -64,
        strides: {block: 512, head: -4}}
      to: {of: C, scale_strides: {slot: 8}, scale_offset: 16, align: 256,
        arithmetic: {bits: 32, signed: false, unit: elements, of: product}}
      layers: [0, 1]
      to_layers: [1, 0]
      kv: [K, V]
      to_kv: [V, K]
      tokens: [0, 1]
      to_tokens: [1, 2]
      heads: 0
      to_heads: 1
      channels: "0..4"
      to_channels: "4..8"
      from_blocks: [1]
      to_blocks: [2, none]
      parts: scales
      splits: false
      actually: {to: {arithmetic: int32}, after: last, reads: issue, table: issue, otherwise: go on}
  - copy: {from: P/kv.L0, from_offset: -8, to: C/kv.L1, to_offset: 0x10, bytes: 64, count: 3,
      from_step: 0, to_step: -128, actually: skipped}
  - fill: {to: P/kv.L0, to_offset: 4, bytes: 8, count: 2, to_step: 16, value: zero}
  - fill: {to: {of: P, layout: x}, to_blocks: [0], value: "7fc0", kv: V, parts: all}
  - fill: {to: P, request: A, value: poison}
  - read: {request: A, from: C, decode: true, scales: twice, output: rows, from_blocks: [0]}
  - read: {request: A, from: C, actually: [intended,
      intended: {decode: true, scales: ignored, before: transfer}, nothing, move: {request: A, from: P, to: C}]}
  - register: {memory: C/kv.L0, offset: 64, bytes: 128, maps: 0}
  - unregister: {memory: C}
  - put: {store: disk, key: {model: m, layer: 3}, request: A, from: P, on_exists: keep}
  - get: {key: k, request: A, to: C, layers: 0, to_layers: 1}
  - assign: {request: A, blocks: {P: [3]}, generation: 2, tokens: 4}
  - signal: {event: done, fields: {layer: 3, ok: true}}
  - wait: {event: done, fields: {layer: 3}, in: kernel}
  - complete: {request: A, fields: {status: ok, bytes: 64}}
  - fail: {request: A, text: timeout}
  - require: {about: heads, expects: 8, found: [4, {x: 1}], otherwise: crash, text: no}
  - require: {about: capability, needs: {cc: 89, tma: true}}
  - unpack: {memory: P, expects: [two, blocks, rest]}
  - check: {memory: C, request: A, is: unchanged}
  - check: {memory: C/kv.L0, offset: 0, bytes: 4, is: any}
  - nothing: {actually: [{fill: {to: P/kv.L0, to_offset: 0, bytes: 1, value: "ff"}}]}
  - refuse: {text: no}
  - raise:
  - crash: {signal: SIGBUS, text: bus}
  - hang: {in: handshake, text: waits, name: last}
)";

TEST(Scenario, RoundTripsEveryKey) {
  const Scenario scenario = parse(everything);
  const json document = scenario_document(scenario);
  std::map<std::string, std::set<std::string>> seen;
  for (const auto& step : document["steps"]) {
    for (const auto& [op, body] : step.items()) {
      for (const auto& [key, value] : body.items()) seen[op].insert(key);
    }
  }
  for (const Op& op : ops()) {
    for (const auto& field : op.intended.fields) {
      const bool shown = seen[op.name].contains(field.key);
      // Keys that the example leaves at their default or that exclude others.
      static const std::set<std::string> by_default{"layers",   "kv",          "tokens",    "heads",       "channels",
                                                    "parts",    "splits",      "otherwise", "from_blocks", "to_blocks",
                                                    "in",       "text",        "store",     "to_kv",       "to_tokens",
                                                    "to_heads", "to_channels", "bytes",     "offset",      "signal"};
      EXPECT_TRUE(shown || by_default.contains(field.key)) << op.name << " " << field.key;
    }
  }
  const Scenario again = scenario_from_yaml(document.dump(), "again");
  EXPECT_EQ(again, scenario);
  EXPECT_EQ(scenario_document(again), document);
  EXPECT_EQ(scenario::scenario_from_json(scenario::to_json(scenario)), scenario);
  EXPECT_EQ(scenario::scenario_from_json(json::parse(scenario::to_json(scenario).dump())), scenario);
}

TEST(Scenario, GivesEachRequestItsOwnContentUnlessShared) {
  const auto generations = [](const std::string& requests) {
    const std::string text = "memory: {P: {bytes: 64}}\nrequests: {" + requests + "}\nsteps: [fill: {to: P, value: zero}]\n";
    const Scenario scenario = scenario_from_yaml(text, "s");
    EXPECT_EQ(scenario_from_yaml(scenario_document(scenario).dump(), "again"), scenario) << requests;
    std::vector<std::uint32_t> out;
    for (const auto& [name, request] : scenario.requests) out.push_back(request.generation);
    return out;
  };
  using Numbers = std::vector<std::uint32_t>;
  EXPECT_EQ(generations("A: {tokens: 1}, B: {tokens: 1}, C: {tokens: 1}"), (Numbers{1, 2, 3}));
  EXPECT_EQ(generations("A: {tokens: 1}, B: {tokens: 1, generation: 1}"), (Numbers{2, 1}));
  EXPECT_EQ(generations("A: {tokens: 1, generation: 1}, B: {tokens: 1, generation: 1}"), (Numbers{1, 1})) << "shared";
  EXPECT_EQ(generations("A: {tokens: 1, generation: 2}, B: {tokens: 1}, C: {tokens: 1}"), (Numbers{2, 1, 3}));
}

TEST(Scenario, ReadsEveryValue) {
  const Scenario scenario = parse(everything);
  const auto& write = scenario.steps[0].intended;
  EXPECT_EQ(scenario.steps[0].name, "write1");
  EXPECT_EQ(write.to[0].of, "P");
  EXPECT_EQ(write.to[1].layout, "flashinfer:HND");
  EXPECT_EQ(*write.pick.tokens, (std::vector<std::int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(*write.pick.channels, (std::vector<std::int64_t>{0, 1, 7}));
  EXPECT_EQ(*write.pick.kv, (std::vector<std::int64_t>{0}));
  const auto& move = scenario.steps[1];
  EXPECT_EQ(move.name, "transfer");
  EXPECT_EQ(*move.intended.pick_to.kv, (std::vector<std::int64_t>{1, 0}));
  EXPECT_EQ(move.intended.to[0].arithmetic, (scenario::Arithmetic{32, false, "elements", "product"}));
  EXPECT_EQ(scenario.steps[2].intended.to_offset, 16);
  EXPECT_EQ(scenario.steps[11].intended.store, "store");
  EXPECT_EQ(scenario.steps[11].intended.key.at("key"), "k");
  EXPECT_EQ(scenario.steps[19].intended.otherwise, "raise");
  EXPECT_EQ(scenario.steps[6].intended.output, "rows");
  EXPECT_EQ(scenario.steps[7].intended.output, "read8");
  EXPECT_EQ(scenario.memories.at("C").boundaries.size(), 2U);
}

// `actually`: skipped; a patch on the intended step, its views key by key; a list that replaces it.
TEST(Scenario, ActuallyPatchesReplacesOrSkipsAStep) {
  const Scenario scenario = parse(everything);
  const auto& move = scenario.steps[1];
  ASSERT_EQ(move.actual.size(), 1U);
  Action expected = move.intended;
  expected.to[0].arithmetic = {32, true, "bytes", "sum"};
  expected.after = "last", expected.reads = "issue", expected.table = "issue", expected.otherwise = "go on";
  EXPECT_EQ(move.actual[0], expected);

  EXPECT_FALSE(scenario.steps[2].as_intended);
  EXPECT_TRUE(scenario.steps[2].actual.empty());

  const auto opened = parse("  - move: {request: A, from: P, to: C, actually: {from: {layout: x}}}\n").steps[0].actual[0];
  EXPECT_EQ(opened.from[0].of, "P");
  EXPECT_EQ(opened.from[0].layout, "x");
  const auto copied = parse("  - copy: {from: P/kv.L0, to: C/kv.L0, bytes: 4, actually: {bytes: 2}}\n").steps[0].actual[0];
  EXPECT_EQ(copied.from[0].of, "P/kv.L0");
  EXPECT_EQ(copied.bytes, 2);

  const auto& read = scenario.steps[7];
  ASSERT_EQ(read.actual.size(), 4U);
  EXPECT_EQ(read.actual[0], read.intended);
  EXPECT_EQ(read.actual[1].scales, "ignored");
  EXPECT_EQ(read.actual[1].output, "read8");
  EXPECT_EQ(read.actual[2].op, scenario::Operation::nothing);
  EXPECT_EQ(read.actual[3].op, scenario::Operation::move);
  EXPECT_TRUE(scenario.steps[0].as_intended);
}

void expect_error(const std::string& steps, const std::string& part) {
  const std::string error = error_of_steps(steps);
  EXPECT_NE(error.find(part), std::string::npos) << steps << "\n" << error;
  EXPECT_EQ(error.rfind("f.yaml:", 0), 0U) << error;
}

TEST(Scenario, ErrorsInNamesAndKeysNameTheLineAndTheRemedy) {
  expect_error("  - mvoe: {}\n", "f.yaml:8: key 'steps': expected an operation");
  expect_error("  - mvoe: {}\n", "did you mean 'move'?");
  expect_error("  - move: {request: A, frm: P, to: C}\n",
               "expected a key of a 'move' step, found 'frm'; did you mean 'from'?");
  expect_error("  - move: {request: A, from: P}\n", "expected the key 'to' in a 'move' step");
  expect_error("  - move: {request: A, from: P, to: C}\n    write: {}\n", "expected a step with one operation");
  expect_error("  - move: {request: A, from: Q, to: C}\n", "f.yaml:8: expected the name of a memory, found 'Q'");
  expect_error("  - move: {request: B, from: P, to: C}\n", "expected the name of a request, found 'B'");
  expect_error("  - check\n  - move: {request: A, from: P, to: C, actually: {after: chekc1}}\n",
               "f.yaml:9: expected the name of a step, found 'chekc1'; did you mean 'check1'?");
  expect_error("  - move: {request: A, from: P, to: C, after: x}\n", "expected a key of a 'move' step, found 'after'");
  expect_error("  - check: {name: a}\n  - check: {name: a}\n", "rename one of the two called 'a'");
  expect_error("  - read: {request: A, from: P, output: C}\n", "found 'C', which is a memory");
  expect_error("  []\n", "a list of steps");
}

TEST(Scenario, ErrorsInPicksAndViewsNameTheLineAndTheRemedy) {
  expect_error("  - move: {request: A, from: P, to: C, layers: 0, to_layers: [1, 2]}\n", "as many as in 'layers' (1)");
  expect_error("  - move: {request: A, from: P, to: C, to_layers: 1}\n", "'to_layers' only with 'layers'");
  expect_error("  - move: {request: A, from: P, to: C, tokens: \"4..4\"}\n", "key 'tokens': expected an index, a range");
  expect_error("  - move: {request: A, from: P, to: C, tokens: \"0..9999999\"}\n", "at most 1048576 indices");
  expect_error("  - move: {request: A, from: P, to: {layout: x}}\n", "expected the key 'of' in a view");
  expect_error("  - move: {request: A, from: P, to: {of: C, layout: x, template: y}}\n",
               "one of layout, template and planes");
  expect_error("  - move: {request: A, from: P, to: {of: C, strides: {blok: 3}}}\n", "'blok'");
  expect_error("  - move: {request: A, from: P, to: {of: C, arithmetic: int7}}\n", "int8 to int64");
  expect_error("  - read: {request: A, from: P, decode: true, parts: data}\n", "no 'parts' in a read with decode");
  expect_error("  - fill: {to: P/kv.L0, value: zero, parts: scales}\n", "'parts' only with request or to_blocks");
  expect_error("  - fill: {to: P/kv.L0, value: zero, kv: K}\n", "'kv' only with request or to_blocks");
}

TEST(Scenario, ErrorsInCopiesFillsAndChecksNameTheLineAndTheRemedy) {
  expect_error("  - copy: {from: P, to: C, bytes: 4, count: 2}\n", "expected the key 'from_step' in a step with count > 1");
  expect_error("  - copy: {from: {of: P}, to: C, bytes: 4}\n", "a memory \"P\" or an allocation");
  expect_error("  - fill: {to: P, value: red}\n", "poison, zero, or bytes in hexadecimal");
  expect_error("  - fill: {to: P, value: zero, bytes: 1, request: A}\n", "say in one way which bytes are filled");
  expect_error("  - require: {about: heads, expects: 3}\n", "expects and found together");
  expect_error("  - require: {about: heads}\n", "say what is compared");
  expect_error("  - unpack: {memory: P, expects: 5}\n", "a list of names of dims");
  expect_error("  - check: {bytes: 4}\n", "expected the key 'memory' in a range of bytes");
  expect_error("  - fill: {to: [P/kv.L0, C/kv.L0], value: zero}\n", "one memory or allocation");
}

TEST(Scenario, ErrorsInActualStepsNameTheLineAndTheRemedy) {
  expect_error("  - nothing: {actually: {to: P}}\n", "skipped, keys that differ from what was intended, or a list of steps");
  expect_error("  - write: {request: A, to: P, actually: []}\n", "say what the code did instead");
  expect_error("  - write: {request: A, to: P, actually: [{move: {request: A, from: P, to: Z}}]}\n", "found 'Z'");
  expect_error("  - write: {request: A, to: P, actually: {before: write1, after: write1}}\n", "one of after and before");
  expect_error("  - copy: {from: P, to: C, bytes: 4, actually: {reads: issue, after: x}}\n",
               "expected a key of a 'copy' step, found 'reads'");
  expect_error("  - move: {request: A, from: P, to: C, actually: {reads: issue}}\n", "'reads' only with after or before");
  expect_error("  - read: {request: A, from: P, actually: {scales: ignored}}\n", "'scales' only with decode");
}

TEST(Scenario, ReportsMistakesInMemory) {
  const auto error = [](const std::string& memory) {
    try {
      scenario_from_yaml("memory:\n  P: " + memory + "\n  Q: {bytes: 64}\nsteps:\n  - check\n", "f.yaml");
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(error("{bytes: 8}"), "");
  EXPECT_NE(error("{}").find("say what lies in it, or how large it is"), std::string::npos);
  EXPECT_NE(error("{of: Q, bytes: 4}").find("no 'bytes' in a memory that shares the bytes of 'Q'"), std::string::npos);
  EXPECT_NE(error("{of: P}").find("a cycle through 'P'"), std::string::npos);
  EXPECT_NE(error("{of: R}").find("found 'R'"), std::string::npos);
  EXPECT_NE(error("{bytes: 8, offset: 4}").find("an offset is for views"), std::string::npos);
  EXPECT_NE(error("{layout: x, gap: 4}").find("add pool: true"), std::string::npos);
  EXPECT_NE(error("{bytes: 8, boundaries: [4, 2]}").find("sort them"), std::string::npos);
  EXPECT_NE(error("{planes: \"data fp16 a0+0 [C=2:2]\", dtype: fp16}").find("planes say it all"), std::string::npos);
  EXPECT_NE(error("{bytes: 8, side: left}").find("producer, consumer, staging"), std::string::npos);
}

// ---- as cases --------------------------------------------------------------------------------------------------------

constexpr const char* scenario = R"(
case: t/scripted
guard: 64
memory:
  P: {side: producer, layout: vllm-fa-nhd}
  C: {layout: vllm-fa-nhd, guard_above: 128}
requests:
  A: {tokens: 8, blocks: {P: [1], C: [0]}}
steps:
  - write: {request: A, to: P}
  - move: {request: A, from: P, to: C, actually: {to_blocks: [2]}}
  - check
expected: {outcome: FAIL, class: wrong-block-id}
controls:
  - {name: right, as_intended: true}
  - {name: late, set: {steps: {move2: {actually: {to_blocks: null, after: check3}}}}, expected: FAIL}
  - {name: without, set: {steps: {check3: null, write1: {layers: 0}}}, expected: FAIL}
)";

TEST(ScenarioTable, ControlsPatchStepsByNameOrRemoveTheFault) {
  const auto cases = parse_cases(scenario, "f.yaml");
  ASSERT_EQ(cases.size(), 4U);
  EXPECT_FALSE(cases[0].scenario.steps[1].as_intended);
  EXPECT_TRUE(cases[1].scenario.steps[1].as_intended);
  const auto& late = cases[2].scenario.steps[1];
  EXPECT_EQ(late.name, "move2");
  EXPECT_EQ(late.actual.at(0).after, "check3");
  EXPECT_FALSE(late.actual.at(0).to_blocks);
  ASSERT_EQ(cases[3].scenario.steps.size(), 2U);
  EXPECT_EQ(*cases[3].scenario.steps[0].intended.pick.layers, (std::vector<std::int64_t>{0}));
}

TEST(ScenarioTable, TheGuardOfACaseAppliesToEveryMemory) {
  const auto cases = parse_cases(scenario, "f.yaml");
  EXPECT_EQ(cases[0].scenario.memories.at("P").guard_below, 64);
  EXPECT_EQ(cases[0].scenario.memories.at("C").guard_below, 64);
  EXPECT_EQ(cases[0].scenario.memories.at("C").guard_above, 128);
}

TEST(ScenarioTable, RoundTripsThroughYaml) {
  for (const auto& spec : parse_cases(scenario, "f.yaml")) {
    CaseSpec plain = spec;
    plain.id = "t/again";
    const auto again = parse_cases(to_yaml(plain), "again.yaml");
    EXPECT_EQ(again[0].scenario, spec.scenario) << to_yaml(plain);
    EXPECT_EQ(again[0].expected, spec.expected);
  }
}

TEST(ScenarioTable, RefusesKeysThatExcludeEachOther) {
  const auto error = [](const std::string& text) {
    try {
      parse_cases("case: t/x\n" + text, "f.yaml");
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  const std::string good = "memory: {P: {bytes: 8}}\nsteps: [check]\n";
  EXPECT_EQ(error(good), "");
  EXPECT_EQ(error("memory: {P: {bytes: 8}}\nsteps:\n  - check\n  - check: {memory: Q}\n"),
            "f.yaml:5: expected the name of a memory, found 'Q'; did you mean 'P'?");
  EXPECT_NE(error("").find("expected the key 'producer'"), std::string::npos);
  EXPECT_NE(error("memory: {P: {bytes: 8}}\n").find("expected the key 'steps'"), std::string::npos);
  EXPECT_NE(error("steps: [check]\n").find("expected the key 'memory'"), std::string::npos);
  EXPECT_EQ(error(good + "engine: shm\n"),
            "f.yaml:4: key 'engine': expected no such key in a case with memory and steps, found 'shm'; its steps say "
            "everything, remove it");
  EXPECT_NE(error(good + "producer: {layout: x}\n").find("key 'producer'"), std::string::npos);
  EXPECT_NE(error(good + "requests: [{tokens: 3}]\n").find("requests by name"), std::string::npos);
  EXPECT_NE(error("producer: {layout: x}\nrequests: {A: {tokens: 3}}\n").find("a list of requests"), std::string::npos);
  EXPECT_NE(error("producer: {layout: x}\ncontrols: [{name: a, as_intended: true}]\n")
                .find("as_intended only in a case with memory"),
            std::string::npos);
  EXPECT_NE(error(good + "controls: [{name: a}]\n").find("expected the key 'set'"), std::string::npos);
  EXPECT_NE(error(good + "controls: [{name: a, set: {steps: {chekc1: null}}}]\n").find("did you mean 'check1'?"),
            std::string::npos);
}

}  // namespace
}  // namespace kvcts::catalogue
