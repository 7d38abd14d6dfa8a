// The wire form of a scenario. Structured bindings take members apart, so a member that is added but not named here fails to
// compile.
#include "case/scenario.hpp"

#include <type_traits>

namespace kvcts::scenario {

using nlohmann::json;

namespace {

template <class T>
struct is_optional : std::false_type {};
template <class T>
struct is_optional<std::optional<T>> : std::true_type {};

template <class T>
concept is_map = !std::is_same_v<T, json> && requires { typename T::mapped_type; };
template <class T>
concept is_list = !std::is_same_v<T, json> && requires(T v) { v.emplace_back(); };

template <class F>
void members(auto& v, const Arithmetic*, F f) {
  auto& [bits, is_signed, unit, of] = v;
  f("bits", bits), f("signed", is_signed), f("unit", unit), f("of", of);
}

template <class F>
void members(auto& v, const View*, F f) {
  auto& [of, layout, text, planes, geometry, dtype, offset, strides, scale_strides, scale_offset, align, arithmetic, cache] =
      v;
  f("of", of), f("layout", layout), f("template", text), f("planes", planes), f("geometry", geometry), f("dtype", dtype),
      f("offset", offset);
  f("strides", strides), f("scale_strides", scale_strides), f("scale_offset", scale_offset), f("align", align),
      f("arithmetic", arithmetic);
  f("cache", cache);
}

template <class F>
void members(auto& v, const Memory*, F f) {
  auto& [side, rank, view, bytes, pool, gap, guard_below, guard_above, poison_rank, sparse, boundaries, base, holds,
         unused_slots] = v;
  (void)poison_rank;
  f("side", side), f("rank", rank), f("view", view), f("bytes", bytes), f("pool", pool), f("gap", gap),
      f("guard_below", guard_below);
  f("guard_above", guard_above), f("sparse", sparse), f("boundaries", boundaries), f("base", base), f("holds", holds),
      f("unused_slots", unused_slots);
}

template <class F>
void members(auto& v, const ScenarioRequest*, F f) {
  auto& [tokens, generation, first_token, blocks, positions] = v;
  f("tokens", tokens), f("generation", generation), f("first_token", first_token), f("blocks", blocks),
      f("positions", positions);
}

template <class F>
void members(auto& v, const StepSelection*, F f) {
  auto& [layers, kv, tokens, heads, channels] = v;
  f("layers", layers), f("kv", kv), f("tokens", tokens), f("heads", heads), f("channels", channels);
}

template <class F>
void members(auto& v, const Action*, F f) {
  auto& [op, request, from, to, pick, pick_to, from_blocks, to_blocks, splits, parts, content, value, from_offset, to_offset,
         bytes, count, from_step, to_step, maps, output, decode, scales, store, key, on_exists, blocks, generation, tokens,
         event, fields, in, text, about, expects, found, needs, has, otherwise, signal, memory, is, after, before, reads,
         table] = v;
  f("op", op), f("request", request), f("from", from), f("to", to), f("pick", pick), f("pick_to", pick_to),
      f("from_blocks", from_blocks);
  f("to_blocks", to_blocks), f("splits", splits), f("parts", parts), f("content", content), f("value", value),
      f("from_offset", from_offset), f("bytes", bytes);
  f("to_offset", to_offset), f("count", count), f("from_step", from_step), f("to_step", to_step), f("maps", maps),
      f("output", output);
  f("decode", decode), f("scales", scales), f("store", store), f("key", key), f("on_exists", on_exists), f("blocks", blocks);
  f("generation", generation), f("tokens", tokens), f("event", event), f("fields", fields), f("in", in), f("text", text),
      f("about", about);
  f("expects", expects), f("found", found), f("needs", needs), f("has", has), f("otherwise", otherwise), f("signal", signal);
  f("memory", memory), f("is", is), f("after", after), f("before", before), f("reads", reads), f("table", table);
}

template <class F>
void members(auto& v, const Step*, F f) {
  auto& [name, intended, as_intended, actual] = v;
  f("name", name), f("intended", intended), f("as_intended", as_intended), f("actual", actual);
}

template <class F>
void members(auto& v, const Scenario*, F f) {
  auto& [memories, requests, steps] = v;
  f("memories", memories), f("requests", requests), f("steps", steps);
}

struct Ignore {
  template <class M>
  void operator()(const char*, M&) const {}
};
template <class T>
concept Structure = requires(T& v) { members(v, static_cast<const T*>(nullptr), Ignore{}); };

// Omits members at their default: most of an action is.
template <class T>
json pack(const T& value) {
  if constexpr (Structure<T>) {
    static const std::map<std::string, json> usual = [] {
      std::map<std::string, json> out;
      const T fallback{};
      members(fallback, static_cast<const T*>(nullptr),
              [&](const char* key, const auto& member) { out[key] = pack(member); });
      return out;
    }();
    json out = json::object();
    members(value, static_cast<const T*>(nullptr), [&](const char* key, const auto& member) {
      if (json packed = pack(member); packed != usual.at(key)) out[key] = std::move(packed);
    });
    return out;
  } else if constexpr (is_optional<T>::value) {
    return value ? pack(*value) : json(nullptr);
  } else if constexpr (is_map<T>) {
    json out = json::object();
    for (const auto& [key, item] : value) out[key] = pack(item);
    return out;
  } else if constexpr (is_list<T>) {
    json out = json::array();
    for (const auto& item : value) out.push_back(pack(item));
    return out;
  } else {
    return value;
  }
}

template <class T>
void unpack(const json& in, T& value) {
  if constexpr (Structure<T>) {
    members(value, static_cast<const T*>(nullptr), [&](const char* key, auto& member) {
      if (const auto it = in.find(key); it != in.end()) unpack(*it, member);
    });
  } else if constexpr (is_optional<T>::value) {
    if (in.is_null())
      value.reset();
    else
      unpack(in, value.emplace());
  } else if constexpr (is_map<T>) {
    value.clear();
    for (const auto& [key, item] : in.items()) unpack(item, value[key]);
  } else if constexpr (is_list<T>) {
    value.clear();
    for (const auto& item : in) unpack(item, value.emplace_back());
  } else if constexpr (std::is_same_v<T, json>) {
    value = in;
  } else {
    in.get_to(value);
  }
}

}  // namespace

json to_json(const Scenario& scenario) { return pack(scenario); }

Scenario scenario_from_json(const json& in) {
  Scenario scenario;
  unpack(in, scenario);
  return scenario;
}

}  // namespace kvcts::scenario
