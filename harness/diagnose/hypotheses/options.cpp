// Steps under other options: scales, decode, splits, direction, content, what was registered.
#include <algorithm>
#include <span>

#include "diagnose/hypotheses/tools.hpp"

namespace kvcts::scenario {

namespace {

void generate_scales_applied(HypothesisSearch& search, std::size_t step) {
  for (const char* how : {"ignored", "used", "twice"}) {
    Action body = search.action(step);
    body.scales = how;
    const std::string words = std::string(how) == "ignored" ? "the scales were not applied"
                              : std::string(how) == "twice" ? "the scales were applied twice"
                                                            : "scales were applied";
    search.attempt(FaultClass::scale_lost, words + " in " + symbol_of(search, step), step, body);
  }
}

// Only where the source is wrong.
void generate_ends_exchanged(HypothesisSearch& search, std::size_t step) {
  const Action& a = search.action(step);
  Action body = a;
  std::swap(body.from, body.to);
  std::swap(body.from_blocks, body.to_blocks);
  std::swap(body.from_offset, body.to_offset);
  std::swap(body.from_step, body.to_step);
  if (body.pick_to.layers || body.pick_to.heads || body.pick_to.tokens || body.pick_to.kv || body.pick_to.channels)
    std::swap(body.pick, body.pick_to);
  const auto& buffers = search.evidence().space.buffers();
  if (std::ranges::any_of(search.attributions().all, [&](const Attribution& attribution) {
        return attribution.wrong && buffers[static_cast<std::size_t>(attribution.buffer)].memory == memory_of(a.from);
      }))
    search.attempt(FaultClass::copy_direction, "source and destination exchanged in " + symbol_of(search, step), step, body);
}

void generate_written_content(HypothesisSearch& search, std::size_t step) {
  Action body = search.action(step);
  body.parts = "data";
  search.attempt(FaultClass::scale_lost, "no scales were written in " + symbol_of(search, step), step, body);
  for (const char* content : {"tags", "codes", "values"}) {
    body = search.action(step);
    body.content = content;
    search.attempt(FaultClass::dtype_reinterpreted,
                   std::string("other content (") + content + ") in " + symbol_of(search, step), step, body);
  }
}

bool registers(const nlohmann::json& event, const std::string& step) {
  return event.value("op", "") == "register" && event.value("step", "") == step;
}

void generate_registered_lengths(HypothesisSearch& search, std::size_t step) {
  const Action& a = search.action(step);
  const std::string& name = search.scenario().steps[step].name;
  const auto& events = search.evidence().observation.events;
  std::set<std::int64_t> lengths;
  bool seam = false;
  for (const nlohmann::json& event : events) {
    seam = seam || event.value("violation", "").starts_with("straddles");
    if (event.contains("violation")) lengths.insert(event["offset"].get<std::int64_t>() - a.to_offset);
    if (registers(event, name)) lengths.insert(event["bytes"].get<std::int64_t>());
  }
  const FaultClass short_class = seam ? FaultClass::misaligned : FaultClass::registration_missing_region;
  for (const std::int64_t bytes : lengths) {
    if (bytes <= 0) continue;
    Action body = a;
    body.bytes = bytes;
    search.attempt(short_class, "only " + std::to_string(bytes) + " bytes of " + a.memory + " were registered", step, body);
    for (const nlohmann::json& event : events) {
      if (!registers(event, name)) continue;
      body.to_offset = event["begin"].get<std::int64_t>();
      search.attempt(short_class,
                     std::to_string(bytes) + " bytes of " + a.memory + " from " + std::to_string(body.to_offset) +
                         " on were registered",
                     step, body);
    }
  }
}

// Registered at another base: content that should come from one place comes from further on.
void generate_registered_bases(HypothesisSearch& search, std::size_t step) {
  const Action& a = search.action(step);
  std::set<std::int64_t> shifts{-a.to_offset};
  for (const Attribution& attribution : search.attributions().all) {
    if (!attribution.wrong) continue;
    const BufferAddress own{attribution.is.buffer, attribution.is.offset};
    for (const BufferAddress& p :
         attribution.is.kind == Symbol::Kind::poison ? std::span(&own, 1) : search.element_index().of(attribution.is)) {
      for (const BufferAddress& q : search.element_index().of(attribution.must)) {
        if (p.buffer == q.buffer) shifts.insert(p.offset - q.offset);
      }
    }
    for (const BufferAddress& q : search.element_index().of(attribution.is)) {
      if (q.buffer == attribution.buffer) shifts.insert(attribution.offset - q.offset);
    }
    if (shifts.size() > 24) break;
  }
  for (const std::int64_t shift : shifts) {
    if (shift == 0) continue;
    Action body = a;
    body.maps = a.maps.value_or(a.to_offset) + shift;
    const bool rounded = *body.maps != 0 && *body.maps == a.to_offset / 4096 * 4096;
    search.attempt(rounded ? FaultClass::misaligned : FaultClass::registration_missing_region,
                   a.memory + " was registered " + std::to_string(shift) + " bytes off its address", step, body);
  }
}

}  // namespace

void generate_options(HypothesisSearch& search) {
  for (std::size_t i = 0; i < search.scenario().steps.size() && !search.spent(); ++i) {
    const Action& a = search.action(i);
    if (a.op == Operation::read && a.decode) generate_scales_applied(search, i);
    if ((a.op == Operation::move || a.op == Operation::copy) && !a.from.empty() && !a.to.empty())
      generate_ends_exchanged(search, i);
    if (brings(a)) {
      Action body = a;
      body.splits = !a.splits;
      search.attempt(FaultClass::misaligned,
                     "a copy crosses the end of a registration or a mapping in " + symbol_of(search, i), i, body);
    }
    if (a.op == Operation::move && a.parts == "all") {
      Action body = a;
      body.parts = "data";
      search.attempt(FaultClass::scale_lost, "the scales were left behind in " + symbol_of(search, i), i, body);
    }
    if (a.op == Operation::write) generate_written_content(search, i);
    if (a.op == Operation::put) {
      Action body = a;
      body.on_exists = a.on_exists == "keep" ? "replace" : "keep";
      search.attempt(FaultClass::stale_block,
                     a.on_exists == "keep" ? "an object that existed was replaced" : "an object that existed was kept", i,
                     body);
    }
    if (a.op == Operation::register_range) generate_registered_lengths(search, i), generate_registered_bases(search, i);
  }
}

}  // namespace kvcts::scenario
