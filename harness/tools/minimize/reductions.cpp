#include "tools/minimize/reductions.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>

namespace kvcts::minimize {

using nlohmann::json;
using Pointer = json::json_pointer;

namespace {

bool scenario(const json& d) { return d.contains("steps"); }

std::string shown(const json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

/// "/requests/A/tokens" -> "requests.A.tokens"
std::string shown(const Pointer& at) {
  std::string text = at.to_string().substr(at.empty() ? 0 : 1);
  std::replace(text.begin(), text.end(), '/', '.');
  return text;
}

/// Calls f(pointer, value) for every value below `at`, parents first.
void each(const json& value, const Pointer& at, const std::function<void(const Pointer&, const json&)>& f) {
  f(at, value);
  if (value.is_object()) {
    for (const auto& [key, item] : value.items()) each(item, at / key, f);
  } else if (value.is_array()) {
    for (std::size_t i = 0; i < value.size(); ++i) each(value[i], at / i, f);
  }
}

/// Keys that describe what runs. Title, links, expected outcome and controls do not.
const std::vector<std::string>& subjects() {
  static const std::vector<std::string> keys{
      "arch",  "connector", "consumer", "content",  "copies", "dtype",    "engine", "engine_options", "geometry", "groups",
      "guard", "ids",       "memory",   "misalign", "op",     "producer", "reader", "requests",       "seed",     "steps"};
  return keys;
}
void each_subject(const json& d, const std::function<void(const Pointer&, const json&)>& f) {
  for (const std::string& key : subjects())
    if (d.contains(key)) each(d[key], Pointer() / key, f);
}

void erase(json& d, const Pointer& at) {
  json& parent = d[at.parent_pointer()];
  if (parent.is_array())
    parent.erase(static_cast<std::size_t>(std::stoul(at.back())));
  else
    parent.erase(at.back());
}

std::string name_of_step(const json& step, std::size_t index) {
  if (!step.is_object() || step.empty()) return "step " + std::to_string(index + 1);
  const json& body = step.begin().value();
  if (body.is_object() && body.contains("name")) return body["name"].get<std::string>();
  return step.begin().key() + std::to_string(index + 1);
}

/// Keeps step names stable when others are removed: the default name is operation and position.
void name_steps(json& d) {
  if (!scenario(d)) return;
  for (std::size_t i = 0; i < d["steps"].size(); ++i) {
    json& step = d["steps"][i];
    if (!step.is_object() || step.empty() || !step.begin().value().is_object()) continue;
    json& body = step.begin().value();
    if (!body.contains("name")) body["name"] = name_of_step(step, i);
  }
}

std::string base_of(const std::string& place) { return place.substr(0, place.find('/')); }

/// Is a view (a name, or a mapping with `of`), or one of a list of them, in the memory?
bool lies_in(const json& view, const std::string& memory) {
  if (view.is_string()) return base_of(view.get<std::string>()) == memory;
  if (view.is_object()) return view.contains("of") && lies_in(view["of"], memory);
  return view.is_array() && std::any_of(view.begin(), view.end(), [&](const json& one) { return lies_in(one, memory); });
}

/// Removes views of the memory from an action; false: nothing is left of it.
bool without_views(json& body, const std::string& memory) {
  for (const char* key : {"from", "to", "memory"}) {
    if (!body.contains(key) || !lies_in(body[key], memory)) continue;
    json& views = body[key];
    if (!views.is_array()) return false;
    json kept = json::array();
    for (const json& view : views)
      if (!lies_in(view, memory)) kept.push_back(view);
    if (kept.empty()) return false;
    views = kept.size() == 1 ? kept[0] : kept;
  }
  if (body.contains("blocks") && body["blocks"].is_object()) body["blocks"].erase(memory);
  return true;
}

/// Keeps the steps, and their actions in `actually`, that `keep` accepts. `keep` may change the body.
void filter_steps(json& d, const std::function<bool(json& body)>& keep) {
  name_steps(d);
  json steps = json::array();
  for (json step : d["steps"]) {
    if (!step.is_object() || step.empty() || !step.begin().value().is_object()) {
      steps.push_back(step);
      continue;
    }
    json& body = step.begin().value();
    if (!keep(body)) continue;
    if (body.contains("actually") && body["actually"].is_array()) {
      json actual = json::array();
      for (json action : body["actually"])
        if (!action.is_object() || action.empty() || !action.begin().value().is_object() || keep(action.begin().value()))
          actual.push_back(action);
      body["actually"] = actual.empty() ? json("skipped") : actual;
    }
    steps.push_back(std::move(step));
  }
  d["steps"] = std::move(steps);
}

// ---- whole parts ---------------------------------------------------------------------------------------------------

std::vector<Candidate> memories(const json& d) {
  std::vector<Candidate> out;
  if (!scenario(d) || d["memory"].size() < 2) return out;
  for (const auto& [memory, value] : d["memory"].items()) {
    Candidate c{d, "without memory " + memory};
    c.document["memory"].erase(memory);
    filter_steps(c.document, [&](json& body) { return without_views(body, memory); });
    if (c.document.contains("requests")) {
      for (auto& [name, request] : c.document["requests"].items())
        for (const char* key : {"blocks", "positions"})
          if (request.contains(key)) request[key].erase(memory);
    }
    out.push_back(std::move(c));
  }
  return out;
}

std::vector<Candidate> requests(const json& d) {
  std::vector<Candidate> out;
  if (!d.contains("requests") || d["requests"].size() < 2) return out;
  if (!scenario(d)) {
    for (std::size_t i = 0; i < d["requests"].size(); ++i) {
      Candidate c{d, "without request " + std::to_string(i + 1)};
      c.document["requests"].erase(i);
      out.push_back(std::move(c));
    }
    return out;
  }
  for (const auto& [request, value] : d["requests"].items()) {
    Candidate c{d, "without request " + request};
    c.document["requests"].erase(request);
    filter_steps(c.document, [&](json& body) { return body.value("request", "") != request; });
    out.push_back(std::move(c));
  }
  return out;
}

/// Removes halves, quarters, ... of a list, finally single items.
void without_parts(const json& d, const Pointer& at, const std::string& what, std::size_t least,
                   std::vector<Candidate>& out) {
  const std::size_t size = d[at].size();
  for (std::size_t part = (size + 1) / 2; part > 0; part = part == 1 ? 0 : (part + 1) / 2) {
    for (std::size_t begin = 0; begin < size; begin += part) {
      const std::size_t end = std::min(size, begin + part);
      if (size - (end - begin) < least) continue;
      Candidate c{d, end - begin == 1 ? what + " " + std::to_string(begin + 1)
                                      : what + " " + std::to_string(begin + 1) + " to " + std::to_string(end)};
      json& list = c.document[at];
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(begin), list.begin() + static_cast<std::ptrdiff_t>(end));
      out.push_back(std::move(c));
    }
  }
}

/// Requests that steps use but never write.
std::set<std::string> unwritten(const json& d) {
  std::set<std::string> used, written;
  for (const json& step : d["steps"]) {
    if (!step.is_object() || step.empty() || !step.begin().value().is_object()) continue;
    const std::string request = step.begin().value().value("request", "");
    if (!request.empty()) (step.begin().key() == "write" ? written : used).insert(request);
  }
  for (const std::string& request : written) used.erase(request);
  return used;
}

std::vector<Candidate> steps(const json& d) {
  std::vector<Candidate> out;
  if (!scenario(d)) return out;
  json named = d;
  name_steps(named);
  without_parts(named, Pointer("/steps"), "without step", 1, out);
  // Moved content must have been written: moving poison would be a different fault.
  std::erase_if(out, [before = unwritten(d).size()](const Candidate& c) { return unwritten(c.document).size() > before; });
  for (Candidate& c : out) {  // by name: positions shift
    std::vector<std::string> gone;
    std::set<std::string> left;
    for (std::size_t i = 0; i < c.document["steps"].size(); ++i) left.insert(name_of_step(c.document["steps"][i], i));
    for (std::size_t i = 0; i < named["steps"].size(); ++i) {
      if (const std::string name = name_of_step(named["steps"][i], i); !left.contains(name)) gone.push_back(name);
    }
    c.words = "without step " + gone.front();
    if (gone.size() > 1)
      c.words = "without steps " + std::accumulate(gone.begin() + 1, gone.end(), gone.front(),
                                                   [](std::string a, const std::string& b) { return a + ", " + b; });
  }
  return out;
}

std::vector<Candidate> parts(const json& d) {
  std::vector<Candidate> out;
  if (d.contains("groups")) {
    out.push_back({d, "without groups"});
    out.back().document.erase("groups");
    without_parts(d, Pointer("/groups"), "without group", 1, out);
  }
  if (d.contains("reader")) {
    out.push_back({d, "without reader"});
    out.back().document.erase("reader");
  }
  if (d.contains("copies")) without_parts(d, Pointer("/copies"), "without copy", 1, out);
  if (!scenario(d) && !d.contains("requests") && d.contains("geometry") && d["geometry"].is_object()) {
    // Only the geometry's request, without the bystander next to it.
    out.push_back({d, "one request, no other on the producer"});
    out.back().document["requests"] = json::array({{{"tokens", d["geometry"].value("tokens", 1)}}});
  }
  return out;
}

// ---- defaults ------------------------------------------------------------------------------------------------------

std::vector<Candidate> defaults(const json& d) {
  std::vector<Candidate> out;
  const auto drop = [&](std::initializer_list<const char*> keys, const std::string& words) {
    Candidate c{d, words};
    bool any = false;
    for (const char* key : keys) any = c.document.erase(key) > 0 || any;
    if (any) out.push_back(std::move(c));
  };
  const auto plain = [&](const char* key) {
    if (d.contains(key)) drop({key}, std::string(key) + " " + shown(d[key]) + " -> default");
  };
  drop({"engine", "engine_options"}, "engine " + d.value("engine", "memcpy") + " -> memcpy");
  if (d.contains("connector")) drop({"connector", "copies"}, "connector " + shown(d["connector"]) + " -> reference");
  for (const char* key : {"content", "arch", "dtype", "op", "ids", "misalign", "seed", "guard"}) plain(key);
  if (d.contains("consumer")) {
    drop({"consumer"}, "consumer as the producer");
    if (d["consumer"].is_object() && d["consumer"].size() > 1) {
      for (const char* key : {"tp", "block_size", "blocks", "dtype"}) {
        if (!d["consumer"].contains(key)) continue;
        out.push_back({d, std::string("consumer.") + key + " as the producer's"});
        out.back().document["consumer"].erase(key);
      }
    }
  }
  for (const char* key : {"tp", "block_size", "blocks", "dtype"}) {  // of both sides at once
    if (!d.contains("producer") ||
        (!d["producer"].contains(key) && !(d.contains("consumer") && d["consumer"].contains(key))))
      continue;
    Candidate c{d, std::string("both sides' ") + key + " -> default"};
    c.document["producer"].erase(key);
    if (c.document.contains("consumer")) c.document["consumer"].erase(key);
    out.push_back(std::move(c));
  }
  return out;
}

// ---- numbers of the model ------------------------------------------------------------------------------------------

/// Every number that counts along an axis, wherever a geometry or a side gives it.
std::vector<Pointer> numbers_of(const json& d, const std::vector<std::string>& keys) {
  std::vector<Pointer> out;
  each_subject(d, [&](const Pointer& at, const json& value) {
    if (!value.is_number_integer() || at.empty() || std::find(keys.begin(), keys.end(), at.back()) == keys.end()) return;
    const Pointer parent = at.parent_pointer();
    const std::string holder = parent.empty() ? "" : parent.back();
    if (holder == "geometry" || holder == "producer" || holder == "consumer") out.push_back(at);
  });
  return out;
}

/// Shortens the same axis everywhere, by every common divisor, largest first.
void scaled(const json& d, const std::string& words, const std::vector<std::string>& keys, bool tokens_too,
            std::vector<Candidate>& out) {
  const auto places = numbers_of(d, keys);
  std::int64_t common = 0;
  for (const Pointer& at : places) common = std::gcd(common, d[at].get<std::int64_t>());
  for (std::int64_t by = common; by > 1; --by) {
    if (common % by != 0) continue;
    Candidate c{d, ""};
    std::int64_t most = 0;
    for (const Pointer& at : places) {
      most = std::max(most, d[at].get<std::int64_t>());
      c.document[at] = d[at].get<std::int64_t>() / by;
    }
    if (tokens_too) {
      each_subject(d, [&](const Pointer& at, const json& value) {
        if (at.empty() || (at.back() != "tokens" && at.back() != "first_token") || !value.is_number_integer()) return;
        c.document[at] = (value.get<std::int64_t>() + by - 1) / by;
      });
    }
    c.words = words + " " + std::to_string(most) + " -> " + std::to_string(most / by);
    out.push_back(std::move(c));
  }
}

std::vector<Candidate> scales(const json& d) {
  std::vector<Candidate> out;
  scaled(d, "layers", {"layers", "first_layer"}, false, out);
  scaled(d, "heads", {"heads", "first_head"}, false, out);
  scaled(d, "head_dim", {"head_dim", "v_head_dim"}, false, out);
  scaled(d, "block_size", {"block_size"}, true, out);
  scaled(d, "ranks of each side", {"tp"}, false, out);
  return out;
}

std::vector<Candidate> geometry(const json& d) {
  std::vector<Candidate> out;
  for (const char* key : {"layers", "heads", "head_dim", "v_head_dim", "block_size", "blocks", "tp", "kv"}) {
    for (const Pointer& at : numbers_of(d, {key})) {
      const std::int64_t value = d[at].get<std::int64_t>();
      for (const std::int64_t less : smaller(value, 1)) {
        out.push_back({d, shown(at) + " " + std::to_string(value) + " -> " + std::to_string(less)});
        out.back().document[at] = less;
      }
    }
  }
  return out;
}

// ---- tokens and block ids ------------------------------------------------------------------------------------------

/// Block lists of a request, in either form.
std::vector<Pointer> block_lists(const json& request, const Pointer& at) {
  std::vector<Pointer> out;
  for (const char* key : {"producer_blocks", "consumer_blocks"})
    if (request.contains(key)) out.push_back(at / key);
  for (const char* key : {"blocks", "positions"}) {
    if (!request.contains(key) || !request[key].is_object()) continue;
    for (const auto& [memory, list] : request[key].items()) out.push_back(at / key / memory);
  }
  return out;
}

std::vector<Candidate> tokens(const json& d) {
  std::vector<Candidate> out;
  if (!d.contains("requests")) return out;
  for (const auto& [key, request] : d["requests"].items()) {
    const Pointer at = d["requests"].is_array() ? Pointer("/requests") / std::stoul(key) : Pointer("/requests") / key;
    const std::string called = d["requests"].is_array() ? std::to_string(std::stoul(key) + 1) : key;
    const std::int64_t count = request.value("tokens", std::int64_t{0});
    // Fewer blocks, with tokens in proportion.
    std::size_t longest = 0;
    const auto lists = block_lists(request, at);
    for (const Pointer& list : lists) longest = std::max(longest, d[list].size());
    for (const std::int64_t left : smaller(static_cast<std::int64_t>(longest), 1)) {
      const auto part = [&](std::int64_t n) {
        return (n * left + static_cast<std::int64_t>(longest) - 1) / static_cast<std::int64_t>(longest);
      };
      Candidate c{d, "blocks of request " + called + " " + std::to_string(longest) + " -> " + std::to_string(left)};
      for (const Pointer& list : lists) {
        const json& ids = d[list];
        c.document[list] = json(std::vector<json>(
            ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(part(static_cast<std::int64_t>(ids.size())))));
      }
      c.document[at / "tokens"] = part(count);
      out.push_back(std::move(c));
    }
    for (const std::int64_t less : smaller(count, 1)) {
      out.push_back({d, "tokens of request " + called + " " + std::to_string(count) + " -> " + std::to_string(less)});
      out.back().document[at / "tokens"] = less;
    }
  }
  return out;
}

/// Memory -> the lists of its block ids.
std::map<std::string, std::vector<Pointer>> id_lists(const json& d) {
  std::map<std::string, std::vector<Pointer>> out;
  each_subject(d, [&](const Pointer& at, const json& value) {
    if (!value.is_array() || at.empty()) return;
    const std::string key = at.back(), parent = at.parent_pointer().empty() ? "" : at.parent_pointer().back();
    if (key == "producer_blocks" || key == "consumer_blocks") out[key.substr(0, key.find('_'))].push_back(at);
    if (parent == "blocks") out[key].push_back(at);
    if (key == "from_blocks" || key == "to_blocks") {
      const json& body = d[at.parent_pointer()];
      const std::string side = key.substr(0, key.find('_'));
      if (!body.contains(side)) return;
      const json& view = body[side].is_object() ? body[side].value("of", json()) : body[side];
      if (view.is_string()) out[base_of(view.get<std::string>())].push_back(at);
    }
  });
  return out;
}

std::vector<Candidate> block_ids(const json& d) {
  std::vector<Candidate> out;
  const auto lists = id_lists(d);
  Candidate all{d, "block ids of all memories close together"};
  for (const auto& [memory, places] : lists) {
    std::map<std::int64_t, std::int64_t> rank;
    for (const Pointer& at : places)
      for (const json& id : d[at])
        if (id.is_number_integer() && id.get<std::int64_t>() >= 0) rank[id.get<std::int64_t>()] = 0;
    std::int64_t next = 0;
    for (auto& [id, to] : rank) to = next++;
    Candidate one{d, "block ids of " + memory + " close together"};
    for (const Pointer& at : places) {
      for (std::size_t i = 0; i < d[at].size(); ++i) {
        const json& id = d[at][i];
        if (!id.is_number_integer() || id.get<std::int64_t>() < 0) continue;
        one.document[at][i] = all.document[at][i] = rank.at(id.get<std::int64_t>());
      }
    }
    out.push_back(std::move(one));
  }
  if (lists.size() > 1) out.insert(out.begin(), std::move(all));
  std::erase_if(out, [&](const Candidate& c) { return c.document == d; });
  return out;
}

// ---- what is left --------------------------------------------------------------------------------------------------

std::vector<Candidate> keys(const json& d) {
  static const std::set<std::string> labels{"name", "side", "rank"};  // they identify parts and take no room
  std::vector<Candidate> out;
  each_subject(d, [&](const Pointer& at, const json& value) {
    if (at.empty()) return;
    const Pointer parent = at.parent_pointer();
    if (parent.empty() || (parent.to_string() == "/memory") || (parent.to_string() == "/requests") ||
        labels.contains(at.back()))
      return;
    if (value.is_array() && value.size() > 1) without_parts(d, at, "without " + shown(at), 1, out);
    if (!d[parent].is_object() || (parent.to_string() == "/geometry")) return;
    Candidate c{d, "without " + shown(at)};
    erase(c.document, at);
    if (at.back() == "actually") name_steps(c.document), c.words = "a step as intended: " + shown(parent);
    out.push_back(std::move(c));
  });
  return out;
}

std::vector<Candidate> numbers(const json& d) {
  static const std::set<std::string> lists{
      "blocks", "positions", "producer_blocks", "consumer_blocks", "from_blocks", "to_blocks", "layers",   "kv",
      "tokens", "heads",     "channels",        "to_layers",       "to_kv",       "to_tokens", "to_heads", "to_channels"};
  std::vector<Candidate> out;
  each_subject(d, [&](const Pointer& at, const json& value) {
    if (at.empty() || !value.is_number_integer() || at.to_string() == "/seed" || at.back() == "tokens" ||
        at.back() == "generation")
      return;
    // Block ids move together; which layers or heads a step takes is the fault itself.
    for (Pointer above = at; !above.empty(); above = above.parent_pointer())
      if (lists.contains(above.back())) return;
    if (value.is_number_unsigned() && value.get<std::uint64_t>() > (std::uint64_t{1} << 62)) return;
    const std::int64_t now = value.get<std::int64_t>();
    for (const std::int64_t less : smaller(now, 0)) {
      out.push_back({d, shown(at) + " " + std::to_string(now) + " -> " + std::to_string(less)});
      out.back().document[at] = less;
    }
  });
  return out;
}

}  // namespace

std::vector<std::int64_t> smaller(std::int64_t value, std::int64_t least) {
  std::vector<std::int64_t> out;
  const std::int64_t sign = value < 0 ? -1 : 1, size = value < 0 ? -value : value;
  if (size <= least) return out;
  for (std::int64_t gap = size - least; gap > 0; gap /= 2) out.push_back(sign * (size - gap));
  return out;
}

const std::vector<ReductionFamily>& families() {
  static const std::vector<ReductionFamily> all{
      {"memories", memories}, {"requests", requests}, {"steps", steps},     {"parts", parts},
      {"defaults", defaults}, {"scales", scales},     {"tokens", tokens},   {"block ids", block_ids},
      {"geometry", geometry}, {"keys", keys},         {"numbers", numbers},
  };
  return all;
}

}  // namespace kvcts::minimize
