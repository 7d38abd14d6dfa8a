#include "tools/compat/side.hpp"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>

#include "case/catalogue/nearest.hpp"
#include "process/json_text.hpp"

namespace kvcts::compat {

using catalogue::Catalogue;
using nlohmann::json;

namespace {

/// "FLASH_ATTN", "flash-attn" and "FlashAttn" are one name.
std::string plain(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (std::isalnum(static_cast<unsigned char>(c))) out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  // FlashAttention, FlashAttentionBackend and FLASH_ATTN are one backend (vLLM names its classes so).
  if (const auto at = out.find("attention"); at != std::string::npos) out.replace(at, 9, "attn");
  if (out.size() > 7 && out.ends_with("backend")) out.resize(out.size() - 7);
  return out;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, separator);) out.push_back(word);
  return out;
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const auto& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

std::vector<std::int64_t> numbers(const std::string& version) {
  std::vector<std::int64_t> out;
  for (const auto& part : split(version, '.')) {
    std::int64_t n = 0;
    for (const char c : part) {
      if (!std::isdigit(static_cast<unsigned char>(c))) break;
      n = n * 10 + (c - '0');
    }
    out.push_back(n);
  }
  return out;
}

std::optional<std::int64_t> number_after(const std::string& word, const std::string& prefix) {
  if (!word.starts_with(prefix) || word.size() == prefix.size() || word.size() > prefix.size() + 9) return std::nullopt;
  if (!std::all_of(word.begin() + static_cast<std::ptrdiff_t>(prefix.size()), word.end(),
                   [](unsigned char c) { return std::isdigit(c); }))
    return std::nullopt;
  return std::stoll(word.substr(prefix.size()));
}

/// A dtype as engines name it.
std::string dtype_of(const std::string& word, const Catalogue& catalogue) {
  static const std::map<std::string, std::string> others{
      {"bfloat16", "bf16"}, {"float16", "fp16"},     {"half", "fp16"},        {"float32", "fp32"},
      {"fp8", "fp8_e4m3"},  {"fp8e4m3", "fp8_e4m3"}, {"fp8e5m2", "fp8_e5m2"}, {"float", "fp32"}};
  if (catalogue.dtypes().contains(word)) return word;
  const auto found = others.find(plain(word));
  return found == others.end() ? "" : found->second;
}

/// Layouts that a system's backend has at a version, by setting; "" is the one without a setting.
struct Offer {
  std::string backend;
  std::map<std::string, std::string> by_hint;
};

/// Backend entries first; else what the layouts say of who uses them.
std::vector<Offer> offers(const std::string& system, const std::string& name, const std::string& version,
                          const Catalogue& catalogue) {
  std::vector<Offer> out;
  for (const auto& [id, entry] : catalogue.backends()) {
    if (plain(entry.system) != system || plain(entry.name) != name ||
        (!version.empty() && !in_versions(version, entry.versions)))
      continue;
    Offer offer{id, entry.hints};
    offer.by_hint[""] = entry.layout;
    out.push_back(std::move(offer));
  }
  if (!out.empty()) return out;
  Offer offer;
  for (const auto& [id, layout] : catalogue.layouts())
    for (const auto& use : layout.used_by)
      if (plain(use.system) == system && plain(use.backend) == name &&
          (version.empty() || in_versions(version, use.versions)))
        offer.by_hint.emplace(use.hint, id);
  if (!offer.by_hint.empty()) out.push_back(std::move(offer));
  return out;
}

std::vector<std::string> known_backends(const std::string& system, const Catalogue& catalogue) {
  std::set<std::string> names;
  for (const auto& [id, entry] : catalogue.backends())
    if (plain(entry.system) == system) names.insert(entry.name);
  for (const auto& [id, layout] : catalogue.layouts())
    for (const auto& use : layout.used_by)
      if (plain(use.system) == system) names.insert(use.backend);
  return {names.begin(), names.end()};
}

/// Words after the first one or two: "LBHNC", "bf16", "tp2", "bs16". Returns the layout setting, if any.
std::string take_words(const std::vector<std::string>& words, std::size_t first, Description& out,
                       const Catalogue& catalogue) {
  std::string hint;
  for (std::size_t i = first; i < words.size(); ++i) {
    if (const auto tp = number_after(words[i], "tp"))
      out.tp = *tp;
    else if (const auto bs = number_after(words[i], "bs"))
      out.block_size = *bs;
    else if (const std::string dtype = dtype_of(words[i], catalogue); !dtype.empty())
      out.dtype = dtype;
    else if (hint.empty())
      hint = words[i];
    else
      throw Error("'" + out.written + "': expected a layout setting, a dtype, tpN or bsN, found '" + words[i] +
                  "' beside '" + hint + "'");
  }
  return hint;
}

void choose(const std::string& system_text, const std::string& version, const std::string& backend_text,
            const std::string& hint, Description& out, const Catalogue& catalogue) {
  const std::string system = plain(system_text), name = plain(backend_text);
  const auto found = offers(system, name, version, catalogue);
  if (found.empty()) {
    const auto any = offers(system, name, "", catalogue);
    const auto known = known_backends(system, catalogue);
    if (known.empty())
      throw Error("'" + out.written +
                  "': expected a system that the catalogue knows (vllm, flashinfer, sglang, tensorrt-llm), found '" +
                  system_text + "'");
    if (!any.empty())
      throw Error("'" + out.written + "': " + system_text + " " + backend_text + " is known in other versions than " +
                  version + "; see kvcts list --json or cases/backends");
    throw Error("'" + out.written + "': expected a backend of " + system_text + ", found '" + backend_text +
                "'; known: " + joined(known));
  }
  std::set<std::string> layouts;
  std::vector<std::string> settings;
  const Offer* chosen = nullptr;
  for (const Offer& offer : found) {
    const auto same = std::find_if(offer.by_hint.begin(), offer.by_hint.end(), [&](const auto& h) {
      return plain(h.first) == plain(hint) || (h.second == hint && !hint.empty());
    });
    for (const auto& [setting, layout] : offer.by_hint)
      if (!setting.empty()) settings.push_back(setting);
    if (same == offer.by_hint.end()) continue;
    layouts.insert(same->second);
    chosen = &offer;
    out.layout = same->second;
  }
  if (layouts.empty() && hint.empty())
    throw Ambiguous(system_text + " " + backend_text + " has a layout for each setting: declare it", settings);
  if (layouts.empty())
    throw Error("'" + out.written + "': expected a layout setting of " + backend_text + " (" + joined(settings) +
                "), a dtype, tpN or bsN, found '" + hint + "'");
  if (layouts.size() > 1)
    throw Ambiguous(system_text + " " + backend_text + " had other layouts in other versions: declare the version",
                    {layouts.begin(), layouts.end()});
  out.backend = chosen->backend;
  if (hint.empty() && chosen->by_hint.size() > 1) out.note = "no layout setting was given: the default, " + out.layout;
}

/// A tensor alone: which layouts of the catalogue it can be.
void from_shape(const json& given, Description& out, const Catalogue& catalogue) {
  const auto shape = given.at("shape").get<std::vector<std::int64_t>>();
  const auto strides = given.value("strides", std::vector<std::int64_t>{});
  layout::Facts facts;
  const auto fact = [&](const char* key, std::optional<std::int64_t>& into) {
    if (given.contains(key)) into = given.at(key).get<std::int64_t>();
  };
  fact("layers", facts.layers), fact("blocks", facts.blocks), fact("block_size", facts.block_size),
      fact("heads", facts.heads), fact("head_dim", facts.head_dim);
  const auto readings = layout::readings(shape, facts, strides);
  if (readings.empty())
    throw Error(out.written + ": no KV cache is known that has the shape " + json(shape).dump() + " under these facts");
  std::vector<std::string> letters;
  for (const auto& reading : readings) letters.push_back(reading.letters);
  if (readings.size() > 1) {
    const std::string settles = layout::settled_by(readings);
    throw Ambiguous("a shape of " + json(shape).dump() + " can be read in " + std::to_string(readings.size()) + " ways" +
                        (settles.empty() ? "" : ": declare " + settles),
                    letters);
  }
  // The dims by stride are the physical order; without strides the tensor is packed.
  std::vector<std::string> dims = split(readings[0].letters, ' ');
  std::vector<std::size_t> order(dims.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (!strides.empty())
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return strides[a] > strides[b]; });
  std::string physical = "L x";
  for (const std::size_t i : order)
    for (const char axis : dims[i]) physical += std::string(" ") + axis;
  std::vector<std::string> fits;
  for (const auto& [id, entry] : catalogue.layouts())
    if (entry.text == physical && entry.tensors.shape == readings[0].letters) fits.push_back(id);
  if (fits.empty())
    throw Error(out.written + ": the shape is read as " + readings[0].letters + ", " + physical +
                " in memory, and no layout of the catalogue is so");
  out.layout = fits.front();
  out.note = "the shape is read as " + readings[0].letters;
  if (!out.block_size && !readings[0].extents.empty())
    out.block_size = readings[0].extents[static_cast<std::size_t>(layout::Axis::slot)];
}

Description from_json(const std::string& file, const Catalogue& catalogue) {
  std::ifstream in(file);
  if (!in) throw Error("expected a description of a side or a JSON file, found '" + file + "', which cannot be read");
  json given = json::parse(in, nullptr, false);
  if (!given.is_object()) throw Error(file + ": expected a JSON object");
  static const std::set<std::string> known{"backend", "layout", "dtype",  "tp",    "block_size", "shape",
                                           "strides", "layers", "blocks", "heads", "head_dim"};
  for (const auto& [key, value] : given.items())
    if (!known.contains(key))
      throw Error(file + ": unknown key '" + key + "'" + catalogue::suggestion(key, {known.begin(), known.end()}));
  try {
    std::string text = given.value("backend", given.contains("shape") ? "" : given.value("layout", ""));
    if (text.empty() && !given.contains("shape")) throw Error(file + ": expected backend, layout or shape");
    for (const char* key : {"layout", "dtype"})
      if (given.contains(key) && text != given.at(key).get<std::string>() && !text.empty())
        text += ":" + given.at(key).get<std::string>();
    if (given.contains("tp") && !text.empty()) text += ":tp" + std::to_string(given.at("tp").get<std::int64_t>());
    if (given.contains("block_size") && !text.empty())
      text += ":bs" + std::to_string(given.at("block_size").get<std::int64_t>());
    if (!text.empty()) {
      Description out = describe(text, catalogue);
      out.written = file;
      return out;
    }
    Description out;
    out.written = file;
    out.tp = given.value("tp", std::int64_t{1});
    out.block_size = given.value("block_size", std::int64_t{0});
    if (given.contains("dtype") && (out.dtype = dtype_of(given.at("dtype").get<std::string>(), catalogue)).empty())
      throw Error(file + ": unknown dtype '" + given.at("dtype").get<std::string>() + "'");
    from_shape(given, out, catalogue);
    return out;
  } catch (const json::exception& error) {
    throw Error(file + ": " + to_string(error));
  }
}

}  // namespace

bool in_versions(const std::string& version, const std::string& list) {
  if (list.empty()) return true;
  const auto wanted = numbers(version);
  for (auto range : split(list, ',')) {
    range.erase(0, range.find_first_not_of(' '));
    const auto dots = range.find("..");
    if (dots == std::string::npos ? numbers(range) == wanted
                                  : numbers(range.substr(0, dots)) <= wanted && wanted <= numbers(range.substr(dots + 2)))
      return true;
  }
  return false;
}

Description describe(const std::string& text, const Catalogue& catalogue) {
  if (text.ends_with(".json")) return from_json(text, catalogue);
  const auto words = split(text, ':');
  Description out;
  out.written = text;
  if (words.empty() || words[0].empty())
    throw Error("expected SYSTEM-VERSION:BACKEND, a layout or a JSON file, found '" + text + "'");
  if (catalogue.layouts().contains(words[0]) || catalogue.backends().contains(words[0])) {
    const std::string hint = take_words(words, 1, out, catalogue);
    if (const auto* backend = catalogue.backends().find(words[0])) {
      out.system = backend->system, out.backend = words[0], out.layout = backend->layout;
      if (const auto found = backend->hints.find(hint); !hint.empty() && found != backend->hints.end())
        out.layout = found->second;
      else if (!hint.empty())
        throw Error("'" + text + "': " + words[0] + " has no layout setting '" + hint + "'");
    } else {
      out.layout = words[0];
      if (!hint.empty()) throw Error("'" + text + "': expected a dtype, tpN or bsN, found '" + hint + "'");
    }
    return out;
  }
  if (words.size() < 2)
    throw Error(
        "expected SYSTEM-VERSION:BACKEND (vllm-0.33.0:flash_attn), a layout or backend of the catalogue or a JSON file, "
        "found '" +
        text + "'");
  // vllm-0.33.0, sglang, tensorrt-llm-1.2
  const auto dash = words[0].rfind('-');
  const bool versioned = dash != std::string::npos && dash + 1 < words[0].size() &&
                         std::isdigit(static_cast<unsigned char>(words[0][dash + 1]));
  const std::string system = versioned ? words[0].substr(0, dash) : words[0],
                    version = versioned ? words[0].substr(dash + 1) : "";
  const std::string hint = take_words(words, 2, out, catalogue);
  choose(system, version, words[1], hint, out, catalogue);
  out.system = system;
  return out;
}

}  // namespace kvcts::compat
