// kvcts layouts: lists the catalogue's layouts, or draws one as template, tensors, loops and first bytes; by id, published
// name or backend (vllm-0.25.1:flash_attn:HND), or all of a version (vllm-0.25.1).
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <memory>

#include "case/catalogue/catalogue.hpp"
#include "cli/drawing.hpp"
#include "cli/verbs/verbs.hpp"
#include "layout/template.hpp"
#include "tools/compat/side.hpp"

namespace kvcts::cli::layouts_verb {
namespace {

using namespace layout;
using catalogue::Catalogue;
using catalogue::LayoutEntry;

struct Options {
  std::string wanted, geometry{"small"}, dtype;
  int rows{8};
};

std::string join(const std::vector<std::string>& names) { return fmt::format("{}", fmt::join(names, ", ")); }

nlohmann::json entry_json(const LayoutEntry& e) {
  nlohmann::json out{{"id", e.id},         {"title", e.title}, {"template", e.text},
                     {"dtypes", e.dtypes}, {"names", e.names}, {"file", e.file}};
  out["used_by"] = nlohmann::json::array();
  for (const auto& u : e.used_by)
    out["used_by"].push_back({{"system", u.system}, {"backend", u.backend}, {"versions", u.versions}, {"hint", u.hint}});
  return out;
}

int list_layouts(const Catalogue& cat, const Globals& globals) {
  if (globals.json) {
    nlohmann::json all = nlohmann::json::array();
    for (const auto& [id, e] : cat.layouts()) all.push_back(entry_json(e));
    fmt::print("{}\n", all.dump(2));
    return exit_as_expected;
  }
  for (const auto& [id, e] : cat.layouts()) fmt::print("{:<34} {}\n", id, e.title);
  return exit_as_expected;
}

/// The numbers of a named geometry with what the layout demands put in.
Geometry geometry_for(const Catalogue& cat, const std::string& id, const LayoutEntry* entry) {
  Geometry g = catalogue::geometry_of(cat.geometries().at(id));
  if (!entry) return g;
  const std::pair<const char*, std::int64_t Geometry::*> members[] = {
      {"layers", &Geometry::layers}, {"blocks", &Geometry::blocks},     {"block_size", &Geometry::block_size},
      {"heads", &Geometry::heads},   {"head_dim", &Geometry::head_dim}, {"v_head_dim", &Geometry::v_head_dim},
      {"kv", &Geometry::kv}};
  for (const auto& [key, member] : members) {
    if (const auto fixed = entry->fixed.find(key); fixed != entry->fixed.end()) g.*member = fixed->second;
  }
  return g;
}

std::string tensor_text(const TensorView& t) {
  std::vector<std::string> shape, strides, axes;
  for (const Dim& d : t.dims) {
    shape.push_back(std::to_string(d.extent));
    strides.push_back(std::to_string(d.stride));
    axes.push_back(d.axes);
  }
  return fmt::format("{:<12} shape [{}]  strides in bytes [{}]  axes {}", t.name, join(shape), join(strides),
                     fmt::join(axes, " "));
}

/// "vllm-0.25.1" of "vllm-0.25.1:flash_attn:HND"; "" where no version is named.
std::string system_and_version(const std::string& wanted) {
  const std::string first = wanted.substr(0, wanted.find(':'));
  const auto dash = first.rfind('-');
  const bool version = dash != std::string::npos && first.find(' ') == std::string::npos && dash + 1 < first.size() &&
                       first.find_first_not_of("0123456789.", dash + 1) == std::string::npos;
  return version ? first : "";
}

/// The layout that a backend of a version has under a setting.
const LayoutEntry* layout_of_backend(const Catalogue& cat, const std::string& wanted) {
  try {
    return &cat.layouts().at(compat::describe(wanted, cat).layout);
  } catch (const compat::Error& e) {
    throw UsageError(e.what());
  } catch (const compat::Ambiguous& e) {
    throw UsageError(e.what());
  }
}

/// What each backend of a version hands out, under which setting.
int list_version(const Catalogue& cat, const std::string& wanted, const Globals& globals) {
  const auto dash = wanted.rfind('-');
  const std::string system = wanted.substr(0, dash), version = wanted.substr(dash + 1);
  const auto same = [&](const std::string& name) {
    return std::equal(name.begin(), name.end(), system.begin(), system.end(),
                      [](char a, char b) { return std::tolower(a) == std::tolower(b); });
  };
  nlohmann::json all = nlohmann::json::array();
  for (const auto& [id, e] : cat.layouts())
    for (const auto& u : e.used_by)
      if (same(u.system) && compat::in_versions(version, u.versions))
        all.push_back({{"backend", u.backend}, {"setting", u.hint}, {"layout", id}, {"versions", u.versions}});
  if (all.empty())
    throw UsageError("no layout is known to be used by " + wanted + "; 'kvcts layouts --json' has the versions of each");
  std::sort(all.begin(), all.end());
  if (globals.json)
    fmt::print("{}\n", all.dump(2));
  else
    for (const auto& one : all)
      fmt::print("{:<32} {:<4} {}\n", one["backend"].get<std::string>(), one["setting"].get<std::string>(),
                 one["layout"].get<std::string>());
  return exit_as_expected;
}

void print_names(const LayoutEntry* entry, const std::string& text, const Names& names) {
  if (entry) fmt::print("{}: {}\n", entry->id, entry->title);
  fmt::print("template   {}\n", text);
  std::vector<std::string> known;
  for (const auto& [system, value] :
       {std::pair{"vLLM", names.vllm}, {"FlashInfer", names.flashinfer}, {"LMCache", names.lmcache}, {"KVBM", names.kvbm}}) {
    if (!value.empty()) known.push_back(fmt::format("{} {}", system, value));
  }
  if (!known.empty()) fmt::print("also       {}\n", join(known));
  if (entry) {
    for (const auto& u : entry->used_by) fmt::print("used by    {} {} {} {}\n", u.system, u.backend, u.versions, u.hint);
    for (const auto& s : entry->source) fmt::print("source     {} {} {} ({})\n", s.project, s.version, s.file, s.how);
  }
}

void print_cache(const Cache& cache, int rows) {
  constexpr std::size_t most = 4;
  fmt::print("tensors ({})\n", cache.tensors.size());
  for (std::size_t i = 0; i < std::min(most, cache.tensors.size()); ++i) fmt::print("  {}\n", tensor_text(cache.tensors[i]));
  fmt::print("allocations ({})\n", cache.allocations.size());
  for (std::size_t a = 0; a < std::min(most, cache.allocations.size()); ++a)
    fmt::print("  {} {} bytes\n", cache.allocations[a].name, cache.allocations[a].bytes);
  for (const Plane& plane : cache.planes) {
    if (plane.allocation != 0) continue;
    fmt::print("\n{} in {}, from byte {}\n{}", name(plane.component), cache.allocations[0].name, plane.offset / 8,
               draw_modes(plane));
  }
  fmt::print("\nbytes of {}\n{}", cache.allocations[0].name, draw_bytes(cache, 0, rows));
}

int show_layout(const Catalogue& cat, const Options& o, const Globals& globals) {
  const LayoutEntry* entry = cat.layouts().find(o.wanted);
  if (!entry && !system_and_version(o.wanted).empty()) {
    if (o.wanted.find(':') == std::string::npos) return list_version(cat, o.wanted, globals);
    entry = layout_of_backend(cat, o.wanted);
  }
  std::string text;
  try {
    text = entry ? entry->text : template_from_name(o.wanted);
  } catch (const layout::Error& e) {
    // Neither an id, nor a published name, nor a template: the catalogue's answer names the nearest id.
    if (o.wanted.find(' ') == std::string::npos) cat.layouts().at(o.wanted);
    throw UsageError(e.what());
  }
  const Geometry geometry = geometry_for(cat, o.geometry, entry);
  const std::string dtype = !o.dtype.empty() ? o.dtype : entry && !entry->dtypes.empty() ? entry->dtypes.front() : "bf16";
  const Scheme scheme = catalogue::scheme_of(cat.dtypes().at(dtype));
  Cache cache;
  try {
    cache = instantiate(text, geometry, scheme, entry ? entry->tensors : TensorSpec{});
  } catch (const layout::Error& e) {
    throw UsageError(fmt::format("layout {} at geometry {} with dtype {}: {}", o.wanted, o.geometry, dtype, e.what()));
  }
  const Names names = names_of(text);
  if (globals.json) {
    nlohmann::json out = entry ? entry_json(*entry) : nlohmann::json{{"template", text}};
    out["geometry"] = o.geometry;
    out["dtype"] = dtype;
    out["cache"] = to_text(cache);
    out["derived_names"] = {{"letters", names.letters},
                            {"vllm", names.vllm},
                            {"flashinfer", names.flashinfer},
                            {"lmcache", names.lmcache},
                            {"kvbm", names.kvbm}};
    fmt::print("{}\n", out.dump(2));
    return exit_as_expected;
  }
  print_names(entry, text, names);
  fmt::print("shown with geometry {} and dtype {}\n\n", o.geometry, dtype);
  print_cache(cache, o.rows);
  return exit_as_expected;
}

}  // namespace

Action declare(Command& command, const Globals& globals) {
  auto options = std::make_shared<Options>();
  command.add_option("LAYOUT", options->wanted,
                     "Id, published name (LBNHC, HND, NL_X_...), template, backend (vllm-0.25.1:flash_attn:HND) or version "
                     "(vllm-0.25.1); without it, list all");
  command.add_option("--geometry", options->geometry, "Geometry to draw it with").show_default();
  command.add_option("--dtype", options->dtype, "Cache dtype (default: the layout's first, else bf16)");
  command.add_option("--rows", options->rows, "Number of byte ranges to show").show_default().range(1, 10000);
  return [options, &globals] {
    const Catalogue cat(catalogue::find_cases(globals.cases));
    return options->wanted.empty() ? list_layouts(cat, globals) : show_layout(cat, *options, globals);
  };
}

}  // namespace kvcts::cli::layouts_verb
