#include "case/catalogue/catalogue.hpp"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <set>

#include "case/catalogue/nearest.hpp"
#include "case/catalogue/tables.hpp"
#include "layout/dtype.hpp"
#include "process/installation.hpp"

namespace kvcts::catalogue {

namespace fs = std::filesystem;

template <class T>
const T& Entries<T>::at(std::string_view id) const {
  if (const T* entry = find(id)) return *entry;
  throw Error("expected a known " + kind_ + ", found '" + std::string(id) + "'" + suggestion(id, ids()));
}
template class Entries<LayoutEntry>;
template class Entries<SchemeEntry>;
template class Entries<BackendEntry>;
template class Entries<ArchEntry>;
template class Entries<ConnectorEntry>;
template class Entries<EngineEntry>;
template class Entries<GeometryEntry>;
template class Entries<ConstraintEntry>;
template class Entries<SuiteEntry>;
template class Entries<WaiverEntry>;

fs::path find_cases(const std::string& given) {
  std::error_code ignored;
  const auto is_cases = [&](const fs::path& path) { return fs::is_directory(path / "suites", ignored); };
  if (!given.empty()) {
    if (is_cases(given)) return given;
    throw Error("expected a directory of case data (with suites/ in it), found '" + given + "'; check --cases");
  }
  if (const char* env = std::getenv("KVCTS_CASES"); env && *env) {
    if (is_cases(env)) return env;
    throw Error("expected a directory of case data (with suites/ in it), found '" + std::string(env) +
                "'; check KVCTS_CASES");
  }
  std::string looked;
  fs::path above = process::program_folder();
  for (int level = 0; level < 5 && !above.empty(); ++level, above = above.parent_path()) {
    for (const char* below : {"share/kvcts/cases", "cases"}) {
      if (is_cases(above / below)) return above / below;
      looked += (looked.empty() ? "" : ", ") + (above / below).string();
    }
    if (above == above.parent_path()) break;
  }
  throw Error("expected a directory of case data, found none (" + looked + "); give --cases DIR or set KVCTS_CASES");
}

std::vector<fs::path> yaml_files(const fs::path& directory) {
  std::vector<fs::path> out;
  std::error_code ignored;
  for (fs::directory_iterator it(directory, ignored), end; it != end; it.increment(ignored)) {
    if (it->path().extension() == ".yaml" && it->is_regular_file(ignored)) out.push_back(it->path());
  }
  std::sort(out.begin(), out.end());
  return out;
}

bool matches_glob(std::string_view glob, std::string_view text) {
  std::size_t g = 0, t = 0, star = std::string_view::npos, resume = 0;
  const auto set_end = [&](std::size_t from) {  // index of the closing bracket, or npos
    std::size_t i = from + 1;
    if (i < glob.size() && glob[i] == '!') ++i;
    if (i < glob.size() && glob[i] == ']') ++i;
    return glob.find(']', i);
  };
  while (t < text.size()) {
    bool one = false;
    std::size_t next = g + 1;
    if (g < glob.size() && glob[g] != '*') {
      if (glob[g] == '?') {
        one = true;
      } else if (const std::size_t end = glob[g] == '[' ? set_end(g) : std::string_view::npos;
                 end != std::string_view::npos) {
        std::size_t i = g + 1;
        const bool inverted = glob[i] == '!';
        if (inverted) ++i;
        bool in = false;
        for (; i < end; ++i) {
          if (i + 2 < end && glob[i + 1] == '-') {
            in = in || (glob[i] <= text[t] && text[t] <= glob[i + 2]);
            i += 2;
          } else {
            in = in || glob[i] == text[t];
          }
        }
        one = in != inverted;
        next = end + 1;
      } else {
        one = glob[g] == text[t];
      }
    }
    if (g < glob.size() && glob[g] == '*') {
      star = g++, resume = t;
    } else if (one) {
      g = next, ++t;
    } else if (star != std::string_view::npos) {
      g = star + 1, t = ++resume;
    } else {
      return false;
    }
  }
  while (g < glob.size() && glob[g] == '*') ++g;
  return g == glob.size();
}

layout::Scheme scheme_of(const SchemeEntry& entry) {
  layout::Scheme scheme;
  scheme.name = entry.id;
  scheme.data = layout::dtype_from_name(entry.data);
  if (entry.scale) scheme.scale = layout::ScaleSpec{layout::dtype_from_name(entry.scale->dtype), entry.scale->group};
  if (!entry.global_scale.empty()) scheme.global_scale = layout::dtype_from_name(entry.global_scale);
  return scheme;
}

layout::Geometry geometry_of(const GeometryEntry& entry) {
  layout::Geometry geometry;
  geometry.layers = entry.layers, geometry.blocks = entry.blocks, geometry.block_size = entry.block_size;
  geometry.heads = entry.heads, geometry.head_dim = entry.head_dim, geometry.v_head_dim = entry.v_head_dim,
  geometry.kv = entry.kv;
  return geometry;
}

namespace {

template <class T>
struct Lazy {
  std::once_flag once;
  Entries<T> entries;
};

// Reads cases/<folder>/*.yaml, one or more documents each. `by_file`: one document per file, whose name is its id.
template <class T>
Entries<T> load(const fs::path& root, const std::string& folder, const std::string& kind, const Table<T>& table,
                bool by_file, const std::vector<T>& added) {
  std::map<std::string, T, std::less<>> entries;
  for (const auto& path : yaml_files(root / folder)) {
    const std::string shown = "cases/" + folder + "/" + path.filename().string();
    const auto documents = parse_yaml_file(path, shown);
    if (by_file && documents.size() != 1) {
      throw Error(shown + ":1: expected one document, found " + std::to_string(documents.size()) + "; one " + kind +
                  " a file");
    }
    for (const auto& document : documents) {
      T entry = read(table, document);
      entry.file = shown;
      if (by_file && entry.id != path.stem().string()) {
        throw Error(document.where() + ": expected the id '" + path.stem().string() + "' (the file's name), found '" +
                    entry.id + "'; rename one of them");
      }
      const auto [it, fresh] = entries.try_emplace(entry.id, entry);
      if (!fresh) {
        throw Error(document.where() + ": expected a new " + kind + " id, found '" + entry.id + "' again (first in " +
                    it->second.file + "); rename one of them");
      }
    }
  }
  for (const T& entry : added) {
    const auto [it, fresh] = entries.try_emplace(entry.id, entry);
    if (!fresh)
      throw Error(entry.file + ": expected a new " + kind + " id, found '" + entry.id + "', which " + it->second.file +
                  " has; rename one of them");
  }
  return Entries<T>(kind, std::move(entries));
}

}  // namespace

struct Catalogue::Loaded {
  Additions additions;
  Lazy<LayoutEntry> layouts;
  Lazy<SchemeEntry> dtypes;
  Lazy<BackendEntry> backends;
  Lazy<ArchEntry> archs;
  Lazy<ConnectorEntry> connectors;
  Lazy<EngineEntry> engines;
  Lazy<GeometryEntry> geometries;
  Lazy<ConstraintEntry> constraints;
  Lazy<SuiteEntry> suites;
  Lazy<WaiverEntry> waivers;

  template <class T>
  static const Entries<T>& get(Lazy<T>& lazy, const fs::path& root, const char* folder, const char* kind,
                               const Table<T>& (*table)(), bool by_file = false, const std::vector<T>& added = {}) {
    std::call_once(lazy.once, [&] { lazy.entries = load(root, folder, kind, table(), by_file, added); });
    return lazy.entries;
  }
};

Catalogue::Catalogue(fs::path directory, Additions additions)
    : directory_(std::move(directory)), loaded_(std::make_unique<Loaded>()) {
  loaded_->additions = std::move(additions);
  std::error_code ignored;
  if (!fs::is_directory(directory_, ignored)) {
    throw Error("expected a directory of case data, found '" + directory_.string() +
                "'; give --cases DIR or set KVCTS_CASES");
  }
}
Catalogue::~Catalogue() = default;

const Entries<LayoutEntry>& Catalogue::layouts() const {
  return Loaded::get(loaded_->layouts, directory_, "layouts", "layout", layout_table, true);
}
const Entries<SchemeEntry>& Catalogue::dtypes() const {
  return Loaded::get(loaded_->dtypes, directory_, "dtypes", "dtype", dtype_table, true);
}
const Entries<BackendEntry>& Catalogue::backends() const {
  return Loaded::get(loaded_->backends, directory_, "backends", "backend", backend_table);
}
const Entries<ArchEntry>& Catalogue::archs() const {
  return Loaded::get(loaded_->archs, directory_, "archs", "arch", arch_table);
}
const Entries<ConnectorEntry>& Catalogue::connectors() const {
  return Loaded::get(loaded_->connectors, directory_, "connectors", "connector", connector_table);
}
const Entries<EngineEntry>& Catalogue::engines() const {
  return Loaded::get(loaded_->engines, directory_, "engines", "engine", engine_table, false, loaded_->additions.engines);
}
const Entries<GeometryEntry>& Catalogue::geometries() const {
  return Loaded::get(loaded_->geometries, directory_, "geometries", "geometry", geometry_table);
}
const Entries<ConstraintEntry>& Catalogue::constraints() const {
  return Loaded::get(loaded_->constraints, directory_, "constraints", "constraint", constraint_table);
}
const Entries<SuiteEntry>& Catalogue::suites() const {
  return Loaded::get(loaded_->suites, directory_, "suites", "suite", suite_table, false, loaded_->additions.suites);
}
const Entries<WaiverEntry>& Catalogue::waivers() const {
  return Loaded::get(loaded_->waivers, directory_, "waivers", "waiver", waiver_table, false, loaded_->additions.waivers);
}

std::vector<std::string> ConnectorEntry::environments() const {
  constexpr std::string_view begin = "{python:";
  std::vector<std::string> out;
  const auto add = [&](const nlohmann::json& given) {
    if (!given.is_object()) return;
    for (const auto& word : given.value("command", nlohmann::json::array())) {
      const std::string text = word.is_string() ? word.get<std::string>() : "";
      if (!text.starts_with(begin) || !text.ends_with("}")) continue;
      const std::string name = text.substr(begin.size(), text.size() - begin.size() - 1);
      if (std::find(out.begin(), out.end(), name) == out.end()) out.push_back(name);
    }
  };
  add(options);
  for (const char* side : {"producer", "consumer"}) {
    if (options.contains(side)) add(options[side]);
  }
  return out;
}

std::vector<std::string> Catalogue::lackable_names() const {
  std::set<std::string> names;
  for (const auto& [id, engine] : engines()) {
    names.insert(id);
    names.insert(engine.needs.begin(), engine.needs.end());
  }
  for (const auto& [id, connector] : connectors()) {
    if (connector.kind != "program") continue;
    names.insert(id);
    for (auto& environment : connector.environments()) names.insert(std::move(environment));
  }
  return {names.begin(), names.end()};
}

namespace {

template <class T>
void expect_known(const std::string& file, const std::string& key, const std::string& id, const Entries<T>& entries) {
  if (id.empty() || entries.contains(id)) return;
  throw Error(file + ":1: key '" + key + "': expected a known id, found '" + id + "'" + suggestion(id, entries.ids()));
}

}  // namespace

void Catalogue::check() const {
  for (const auto& [id, layout] : layouts()) {
    for (const auto& dtype : layout.dtypes) expect_known(layout.file, "dtypes", dtype, dtypes());
    try {
      layout::check_template(layout.text);
    } catch (const layout::Error& error) {
      throw Error(layout.file + ":1: key 'template': " + error.what());
    }
  }
  for (const auto& [id, dtype] : dtypes()) {
    try {
      scheme_of(dtype);
    } catch (const layout::Error& error) {
      throw Error(dtype.file + ":1: " + error.what());
    }
  }
  for (const auto& [id, backend] : backends()) {
    if (layouts().contains(id))
      throw Error(backend.file + ":1: expected an id that no layout has, found '" + id + "'; rename the backend");
    expect_known(backend.file, "layout", backend.layout, layouts());
    for (const auto& [hint, layout] : backend.hints) expect_known(backend.file, "hints", layout, layouts());
    for (const auto& dtype : backend.dtypes) expect_known(backend.file, "dtypes", dtype, dtypes());
    for (const auto& arch : backend.archs) expect_known(backend.file, "archs", arch, archs());
    expect_known(backend.file, "min_arch", backend.min_arch, archs());
    expect_known(backend.file, "max_arch", backend.max_arch, archs());
  }
  for (const auto& [id, suite] : suites()) {
    for (const auto& other : suite.include) expect_known(suite.file, "include", other, suites());
    const auto lackable = lackable_names();
    for (const auto& glob : suite.optional) {
      if (std::any_of(lackable.begin(), lackable.end(), [&](const auto& name) { return matches_glob(glob, name); }))
        continue;
      throw Error(suite.file + ":1: key 'optional': expected engines, what they need, connectors or environments, found '" +
                  glob + "'" + suggestion(glob, lackable));
    }
  }
  connectors(), engines(), geometries(), constraints(), waivers();
}

}  // namespace kvcts::catalogue
