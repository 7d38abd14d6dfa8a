// Other projects' names for layouts, derived from the order of the letters, and read back.
//
// vLLM       vllm.v1.kv_cache_layout.KVCacheLayout (0.33.0): a permutation of L B H N C, K and V joined in C. HND = LBHNC,
//            NHD = LBNHC there. Layouts with K outside the row have no name in that vocabulary.
// FlashInfer docs/tutorials/kv_layout.rst: NHD or HND, the order inside a page.
// LMCache    EngineKVFormat (0.5.6, values 0 to 18): list levels joined by _X_, then the dimensions.
// KVBM       ai-dynamo/dynamo lib/kvbm-physical/src/layout/kv_block_layout.rs (order inside a block) and LayoutType.
#include <algorithm>
#include <array>

#include "layout/layout.hpp"
#include "layout/template.hpp"
#include "layout/template_tree.hpp"

namespace kvcts::layout {
namespace {

constexpr std::array<std::string_view, 6> vllm_names{"LBHNC", "LBNHC", "LHBNC", "BLHNC", "BLNHC", "BHLNC"};

/// lmcache_native EngineKVFormat 0..18, and the two blocks-first names that 12 and 13 replaced.
constexpr std::array<std::string_view, 21> lmcache_names{
    "NB_NL_TWO_BS_NH_HS",     "NL_X_TWO_NB_BS_NH_HS",   "NL_X_NB_TWO_BS_NH_HS", "NL_X_NB_BS_HS",
    "TWO_X_NL_X_NBBS_NH_HS",  "NL_X_NBBS_ONE_HS",       "NL_X_TWO_NB_NH_BS_HS", "NL_X_NB_TWO_NH_BS_HS",
    "NB_NL_TWO_NH_BS_HS",     "TWO_X_NL_X_NB_BS_NH_HS", "NL_X_NB_NH_BS_TWO_HS", "NL_X_NB_BS_NH_TWO_HS",
    "NL_X_NB_NH_BS_CS",       "NL_X_NB_BS_NH_CS",       "NL_X_NB_BSV_BSS",      "NL_X_TWO_NB_NH_ONE_BS_HS",
    "NL_X_TWO_X_NB_BS_NH_HS", "NL_X_NP_X_NB_BS_ONE_HS", "NL_X_NB_BS_NH_HS",     "NB_NL_NH_BS_CS",
    "NB_NL_BS_NH_CS"};

struct Alias {
  std::string_view name, text;
};

/// KVBM: LayoutType / KvBlockLayout. LayerSeparate keeps the block first unless the outer dimension is contiguous.
constexpr std::array<Alias, 8> kvbm_names{{{"FullyContiguous/OperationalNHD", "B L K N H C"},
                                           {"FullyContiguous/OperationalHND", "B L K H N C"},
                                           {"FullyContiguous/UniversalTP", "B H L K N C"},
                                           {"FullyContiguous/UniversalPP", "B L H K N C"},
                                           {"LayerSeparate/OperationalNHD", "L x B K N H C"},
                                           {"LayerSeparate/OperationalHND", "L x B K H N C"},
                                           {"LayerSeparate/outer_contiguous/OperationalNHD", "L x K B N H C"},
                                           {"LayerSeparate/outer_contiguous/OperationalHND", "L x K B H N C"}}};

constexpr std::array<Alias, 2> flashinfer_names{{{"NHD", "L x B K N H C"}, {"HND", "L x B K H N C"}}};
constexpr std::array<Alias, 2> vllm_aliases{{{"HND", "LBHNC"}, {"NHD", "LBNHC"}}};

struct Token {
  std::string_view name, letters;
};
/// LMCache's tokens of a dimension; ONE is a dimension of extent 1, NBBS the flattened pool.
constexpr std::array<Token, 9> tokens{{{"NL", "L"},
                                       {"TWO", "K"},
                                       {"NB", "B"},
                                       {"BS", "N"},
                                       {"NH", "H"},
                                       {"HS", "C"},
                                       {"CS", "K C"},
                                       {"NBBS", "B N"},
                                       {"ONE", ""}}};

// ---- towards names ---------------------------------------------------------------------------------------------------

/// The letters of a template that is one list of whole axes, list levels in `list`; nullopt for anything else.
struct Plain {
  std::string list, modes;
};
std::optional<Plain> plain(const Tree& tree) {
  if (tree.regions.size() != 1) return std::nullopt;
  const TemplateRegion& region = tree.regions.front();
  if (!region.part.parts.empty() || region.part.pad || region.part.dtype || region.part.component) return std::nullopt;
  Plain out;
  for (Axis axis : region.list) out.list += letter(axis);
  for (const ModeSpec& m : region.part.modes) {
    if (m.kind != ModeSpec::Kind::whole) return std::nullopt;
    out.modes += letter(m.axis);
  }
  return out;
}

std::string vllm_name(const Plain& p) {
  std::string all = p.list + p.modes;
  const auto k = all.find('K');
  if (k != std::string::npos) {
    if (k + 2 != all.size() || all.back() != 'C') return "";
    all.erase(k, 1);
  }
  if (p.list.size() > 1 || (p.list.size() == 1 && p.list != "L")) return "";
  return std::find(vllm_names.begin(), vllm_names.end(), all) != vllm_names.end() ? all : "";
}

/// The order inside a page: B outside N and H, K not between them.
std::string flashinfer_name(const Plain& p) {
  const std::string all = p.list + p.modes;
  const auto at = [&](char c) { return all.find(c); };
  if (all.empty() || all.back() != 'C' || at('N') == std::string::npos || at('H') == std::string::npos) return "";
  const auto first = std::min(at('N'), at('H'));
  const auto second = std::max(at('N'), at('H'));
  const auto row = second + (all.ends_with("KC") ? 2 : 1);  // nothing but K between the page and C
  if (second != first + 1 || row + 1 != all.size()) return "";
  if (at('B') == std::string::npos || at('B') > first) return "";
  return at('N') < at('H') ? "NHD" : "HND";
}

std::string lmcache_token(char axis) {
  for (const Token& t : tokens) {
    if (t.letters.size() == 1 && t.letters[0] == axis) return std::string(t.name);
  }
  return "";
}

/// BSV_BSS: in each block the values of all slots, then their scales.
bool values_then_scales(const TemplateRegion& region) {
  const TemplatePart& p = region.part;
  if (p.parts.size() != 2 || p.modes.size() != 1 || p.modes[0].axis != Axis::block) return false;
  for (std::size_t i = 0; i < 2; ++i) {
    const TemplatePart& part = p.parts[i];
    const auto component = part.component.value_or(Component::data);
    if (!part.parts.empty() || part.pad || component != (i == 0 ? Component::data : Component::scale)) return false;
    if (part.modes.empty() || part.modes[0].axis != Axis::slot || part.modes.size() > 2) return false;
    if (part.modes.size() == 2 && part.modes[1].axis != Axis::channel) return false;
  }
  return true;
}

std::string lmcache_name(const Tree& tree, const std::optional<Plain>& p) {
  std::string out;
  const auto append = [&](const std::string& token, std::string_view joint) {
    out += (out.empty() ? "" : std::string(joint)) + token;
  };
  if (p) {
    for (char c : p->list) append(lmcache_token(c), "_X_");
    std::string modes = p->modes;
    const bool fused = modes.ends_with("KC");
    if (fused) modes.resize(modes.size() - 2);
    for (std::size_t i = 0; i < modes.size(); ++i) append(lmcache_token(modes[i]), i == 0 ? "_X_" : "_");
    if (fused) append("CS", modes.empty() ? "_X_" : "_");
  } else if (tree.regions.size() == 1 && values_then_scales(tree.regions.front())) {
    for (Axis axis : tree.regions.front().list) append(lmcache_token(letter(axis)), "_X_");
    append("NB", "_X_");
    append("BSV_BSS", "_");
  }
  return std::find(lmcache_names.begin(), lmcache_names.end(), out) != lmcache_names.end() ? out : "";
}

// ---- from names ------------------------------------------------------------------------------------------------------

std::string spaced(std::string_view letters) {
  std::string out;
  for (char c : letters) out += (out.empty() ? "" : " ") + std::string(1, c);
  return out;
}

std::optional<std::string> from_vllm(std::string_view name) {
  for (const Alias& a : vllm_aliases) {
    if (a.name == name) name = a.text;
  }
  if (std::find(vllm_names.begin(), vllm_names.end(), name) == vllm_names.end()) return std::nullopt;
  const bool layers_outside = name.front() == 'L';
  const std::string order = std::string(name.substr(layers_outside ? 1 : 0, name.size() - (layers_outside ? 2 : 1))) + "KC";
  return (layers_outside ? "L x " : "") + spaced(order);
}

std::vector<std::string_view> split(std::string_view text, std::string_view joint) {
  std::vector<std::string_view> parts;
  for (std::size_t at = text.find(joint); at != std::string_view::npos; at = text.find(joint)) {
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + joint.size());
  }
  parts.push_back(text);
  return parts;
}

std::string append(std::string out, std::string_view word) {
  if (!word.empty()) out += (out.empty() ? "" : " ") + std::string(word);
  return out;
}

/// nullopt when the text is not in LMCache's grammar; Error when the name says less than a layout needs.
std::optional<std::string> from_lmcache(std::string_view name) {
  auto levels = split(name, "_X_");
  std::string out;
  for (std::size_t i = 0; i + 1 < levels.size(); ++i) {
    if (levels[i] == "NP") {
      throw Error("the name '" + std::string(name) + "' does not say how wide its planes are; write the template, e.g. " +
                  "\"L x B N C=0..512 & L x B N C=512..576\"");
    }
    const auto token = std::find_if(tokens.begin(), tokens.end(), [&](const Token& t) { return t.name == levels[i]; });
    if (token == tokens.end() || token->letters.size() != 1 || token->letters == "C") return std::nullopt;
    out = append(out, std::string(token->letters) + " x");
  }
  const auto dims = split(levels.back(), "_");
  if (dims.size() < 2) return std::nullopt;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == "BSV" && i + 2 == dims.size() && dims[i + 1] == "BSS") return append(out, "{ N C ; scale N C }");
    const auto token = std::find_if(tokens.begin(), tokens.end(), [&](const Token& t) { return t.name == dims[i]; });
    if (token == tokens.end()) return std::nullopt;
    out = append(out, token->letters);
  }
  if (!out.ends_with('C')) return std::nullopt;  // every format ends in HS or CS
  return out;
}

std::optional<std::string> from_kvbm(std::string_view name) {
  for (const Alias& a : kvbm_names) {
    if (a.name == name) return std::string(a.text);
  }
  for (const Alias& a : kvbm_names) {  // "FullyContiguous", "LayerSeparate/outer_contiguous": the first with this prefix
    if (a.name.starts_with(std::string(name) + '/')) return std::string(a.text);
  }
  for (const Alias& a : kvbm_names) {  // "OperationalHND": the first with this suffix
    if (a.name.ends_with('/' + std::string(name))) return std::string(a.text);
  }
  return std::nullopt;
}

std::optional<std::string> from_flashinfer(std::string_view name) {
  for (const Alias& a : flashinfer_names) {
    if (a.name == name) return std::string(a.text);
  }
  return std::nullopt;
}

std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

std::string near_names(std::string_view name) {
  std::vector<std::pair<std::size_t, std::string_view>> all;
  const auto consider = [&](std::string_view known) { all.emplace_back(distance(name, known), known); };
  for (auto n : vllm_names) consider(n);
  for (auto n : lmcache_names) consider(n);
  for (const Alias& a : kvbm_names) {
    for (auto n : split(a.name, "/")) consider(n);
  }
  for (const Alias& a : flashinfer_names) consider(a.name);
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  std::string out;
  for (std::size_t i = 0; i < 4; ++i) out += (i > 0 ? ", " : "") + std::string(all[i].second);
  return out;
}

}  // namespace

Names names_of(std::string_view template_text) {
  const Tree tree = parse_template(template_text);
  const auto p = plain(tree);
  Names names;
  names.letters = print_template(tree, "|");
  names.lmcache = lmcache_name(tree, p);
  if (!p) return names;
  names.vllm = vllm_name(*p);
  names.flashinfer = flashinfer_name(*p);
  const std::string text = print_template(tree);
  for (const Alias& a : kvbm_names) {
    if (a.text == text) names.kvbm = a.name;
  }
  return names;
}

std::string template_from_name(std::string_view name) {
  while (!name.empty() && name.front() == ' ') name.remove_prefix(1);
  while (!name.empty() && name.back() == ' ') name.remove_suffix(1);
  // "HND" alone is vLLM's alias of LBHNC; "flashinfer:HND" is the page [2, H, P, D].
  std::string_view project;
  std::string_view bare = name;
  if (const auto colon = name.find(':'); colon != std::string_view::npos) {
    const auto before = name.substr(0, colon);
    if (before == "vllm" || before == "flashinfer" || before == "lmcache" || before == "kvbm") {
      project = before;
      bare = name.substr(colon + 1);
    }
  }
  const auto may = [&](std::string_view p) { return project.empty() || project == p; };
  std::optional<std::string> text;
  if (!text && may("vllm")) text = from_vllm(bare);
  if (!text && may("flashinfer")) text = from_flashinfer(bare);
  if (!text && may("lmcache")) text = from_lmcache(bare);
  if (!text && may("kvbm")) text = from_kvbm(bare);
  if (text) return *text;
  try {
    return print_template(parse_template(name));
  } catch (const Error& e) {
    const bool single = name.find_first_of(" {") == std::string_view::npos;
    throw Error('\'' + std::string(name) + "' is no known layout name and no template" +
                (single ? "; near names: " + near_names(bare) : std::string(": ") + e.what()));
  }
}

}  // namespace kvcts::layout
