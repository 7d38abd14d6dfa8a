#include "matrix/space.hpp"

#include <algorithm>
#include <charconv>
#include <set>

#include "case/catalogue/nearest.hpp"
#include "case/catalogue/tables.hpp"
#include "layout/dtype.hpp"

namespace kvcts::matrix {

using nlohmann::json;

std::string_view name(Type type) {
  switch (type) {
    case Type::none:
      return "nothing";
    case Type::boolean:
      return "true or false";
    case Type::integer:
      return "a number";
    case Type::text:
      return "text";
    case Type::arch:
      return "an arch";
    case Type::list:
      return "a list";
  }
  return "?";
}

std::string to_text(const Value& value) {
  struct Visitor {
    std::string operator()(std::monostate) const { return "nothing"; }
    std::string operator()(bool b) const { return b ? "true" : "false"; }
    std::string operator()(std::int64_t n) const { return std::to_string(n); }
    std::string operator()(const std::string& s) const { return s; }
    std::string operator()(const std::vector<std::string>& list) const {
      std::string out;
      for (const auto& item : list) out += (out.empty() ? "" : ", ") + item;
      return "[" + out + "]";
    }
  };
  return std::visit(Visitor{}, value);
}

std::int64_t arch_order(std::string_view arch) {
  if (arch.starts_with("sm_")) arch.remove_prefix(3);
  std::int64_t cc = -1;
  const auto result = std::from_chars(arch.data(), arch.data() + arch.size(), cc);
  return result.ec == std::errc{} && result.ptr == arch.data() + arch.size() && cc > 0 ? cc : -1;
}

namespace {

bool is_arch_fact(std::string_view fact) { return fact == "arch" || fact == "min_arch" || fact == "max_arch"; }

std::optional<std::pair<Value, Type>> scalar(const json& value) {
  if (value.is_boolean()) return {{Value(value.get<bool>()), Type::boolean}};
  if (value.is_number_integer()) return {{Value(value.get<std::int64_t>()), Type::integer}};
  if (value.is_string()) return {{Value(value.get<std::string>()), Type::text}};
  if (value.is_array()) {
    std::vector<std::string> items;
    for (const auto& item : value) {
      if (item.is_string()) {
        items.push_back(item.get<std::string>());
      } else if (item.is_number_integer()) {
        items.push_back(std::to_string(item.get<std::int64_t>()));
      } else {
        return std::nullopt;
      }
    }
    return {{Value(std::move(items)), Type::list}};
  }
  return std::nullopt;
}

// Letters of the first leaf of a template, list levels included, each once: "LKBNHC". A simple text scan, for filters only.
std::string letters_of(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '&' || c == ';' || c == '}') break;
    const bool alone = (i == 0 || text[i - 1] == ' ' || text[i - 1] == '{') &&
                       (i + 1 == text.size() || std::string_view(" /%={};&").find(text[i + 1]) != std::string_view::npos);
    if (alone && std::string_view("LKBNHC").find(c) != std::string_view::npos && out.find(c) == std::string::npos) out += c;
  }
  return out;
}

template <class T>
const catalogue::Table<T>& table_of();
template <>
const catalogue::Table<catalogue::LayoutEntry>& table_of() {
  return catalogue::layout_table();
}
template <>
const catalogue::Table<catalogue::SchemeEntry>& table_of() {
  return catalogue::dtype_table();
}
template <>
const catalogue::Table<catalogue::GeometryEntry>& table_of() {
  return catalogue::geometry_table();
}
template <>
const catalogue::Table<catalogue::BackendEntry>& table_of() {
  return catalogue::backend_table();
}
template <>
const catalogue::Table<catalogue::ArchEntry>& table_of() {
  return catalogue::arch_table();
}
template <>
const catalogue::Table<catalogue::ConnectorEntry>& table_of() {
  return catalogue::connector_table();
}
template <>
const catalogue::Table<catalogue::EngineEntry>& table_of() {
  return catalogue::engine_table();
}

/// Whether data have N innermost: codes of neighbouring tokens are adjacent (and share bytes in 4 bits). Whether a scale is
/// for several tokens.
std::pair<bool, bool> token_codes(const std::string& text) {
  bool token_inner = false, token_scales = false;
  std::string leaf;
  for (const char c : text + ";") {
    if (c == '{')
      leaf.clear();
    else if (c != ';' && c != '}' && c != '&')
      leaf += c;
    else {
      const auto last = leaf.find_last_not_of(' ');
      const auto word = last == std::string::npos ? last : leaf.find_last_of(' ', last);
      const bool n_last = last != std::string::npos && leaf[word == std::string::npos ? 0 : word + 1] == 'N';
      const bool scale = leaf.find("scale") != std::string::npos;
      token_inner = token_inner || (n_last && !scale);
      // An outer digit alone ("N/16" without "N%16"): one scale for several tokens.
      token_scales = token_scales || (scale && leaf.find("N/") != std::string::npos && leaf.find("N%") == std::string::npos);
      leaf.clear();
    }
  }
  return {token_inner, token_scales};
}

}  // namespace

// Every scalar key of the entity's table is a fact; mappings of scalars (dtype.facts, layout.names, layout.fixed) are
// flattened.
template <class T>
void Space::add_facts(AxisId axis_id, int value, const T& entry) {
  static const std::set<std::string> prose{"title",    "notes",   "source",      "tensors", "used_by",
                                           "requires", "options", "environment", "hints"};
  for (const auto& field : table_of<T>().fields) {
    if (prose.contains(field.key)) continue;
    const json written = field.write(entry);
    if (auto fact_value = scalar(written)) {
      set_fact(axis_id, value, field.key, std::move(fact_value->first),
               is_arch_fact(field.key) ? Type::arch : fact_value->second);
    } else if (written.is_object()) {
      for (const auto& [key, inner] : written.items())
        if (auto one = scalar(inner)) set_fact(axis_id, value, key, std::move(one->first), one->second);
    }
  }
}

void Space::add(AxisId axis_id, const std::vector<std::string>& texts) {
  const auto a = static_cast<std::size_t>(axis_id);
  for (const auto& value_text : texts) {
    if (!numbers_[a].emplace(value_text, static_cast<std::uint16_t>(values_[a].size())).second) continue;
    values_[a].push_back(value_text);
    integers_[a].push_back(arch_order(value_text) > 0 ? arch_order(value_text) : value_text == "0" ? 0 : -1);
  }
}

void Space::set_fact(AxisId axis_id, int value, const std::string& fact_name, Value fact_value, Type type) {
  auto& columns = facts_[static_cast<std::size_t>(axis_id)];
  auto it = std::find_if(columns.begin(), columns.end(), [&](const FactColumn& c) { return c.name == fact_name; });
  if (it == columns.end()) it = columns.insert(columns.end(), FactColumn{fact_name, type, {}});
  if (it->type != type) {
    throw Error("expected " + std::string(matrix::name(it->type)) + " for the fact '" + std::string(axis(axis_id).name) +
                "." + fact_name + "' everywhere, found " + std::string(matrix::name(type)) + " for '" +
                text(axis_id, value) + "'; make them agree");
  }
  if (it->values.size() <= static_cast<std::size_t>(value)) it->values.resize(static_cast<std::size_t>(value) + 1);
  it->values[static_cast<std::size_t>(value)] = std::move(fact_value);
}

void Space::add_layout_facts(AxisId side, int value, const catalogue::LayoutEntry& layout) {
  add_facts(side, value, layout);
  const std::string letters = letters_of(layout.text);
  const auto place = [&](char c) { return letters.find(c); };
  const bool both = place('N') != std::string::npos && place('H') != std::string::npos;
  set_fact(side, value, "kind", std::string("layout"), Type::text);
  set_fact(side, value, "any_dtype", layout.dtypes.empty(), Type::boolean);
  set_fact(side, value, "order", letters, Type::text);
  std::string inner;
  for (const char c : letters) inner += std::string_view("NHC").find(c) == std::string_view::npos ? "" : std::string(1, c);
  set_fact(side, value, "inner", inner, Type::text);
  set_fact(side, value, "plain", layout.text.find_first_of("{&/%=") == std::string::npos, Type::boolean);
  set_fact(side, value, "nhd", both && place('N') < place('H'), Type::boolean);
  set_fact(side, value, "hnd", both && place('H') < place('N'), Type::boolean);
  set_fact(side, value, "packed", layout.text.find_first_of("/%") != std::string::npos, Type::boolean);
  const auto [inner_tokens, scales] = token_codes(layout.text);
  set_fact(side, value, "token_inner", inner_tokens, Type::boolean);
  set_fact(side, value, "token_scales", scales, Type::boolean);
  set_fact(side, value, "regions", 1 + std::count(layout.text.begin(), layout.text.end(), '&'), Type::integer);
  const auto kv = layout.fixed.find("kv");
  set_fact(side, value, "kv", kv == layout.fixed.end() ? 0 : kv->second, Type::integer);  // 0: K and V, or one latent
  std::string shape = layout.tensors.shape;
  const auto rank = 1 + std::count(shape.begin(), shape.end(), ' ');
  if (!shape.empty()) set_fact(side, value, "rank", std::int64_t{rank}, Type::integer);
  // A connector's tensors have a dim for blocks alone; otherwise they are addressed by token, or by bytes.
  set_fact(side, value, "block_dim", shape.empty() || (" " + shape + " ").find(" B ") != std::string::npos, Type::boolean);
}

Space::Space(const Catalogue& catalogue) : catalogue_(catalogue) {
  add(AxisId::consumer, {"same"});
  for (const auto& a : axes()) {
    if (!a.fallback.empty()) add(a.id, {std::string(a.fallback)});
    add(a.id, a.values(catalogue));
  }
  // Constraints rely on this: a consumer's number is its producer's plus one, because of "same".
  if (size(AxisId::consumer) != size(AxisId::producer) + 1)
    throw Error("expected one set of ids for producers and consumers, found two");
  for (const auto& a : axes())
    if (!a.fallback.empty()) at(origin_, a.id) = static_cast<std::uint16_t>(find(a.id, a.fallback));
  for (const AxisId side : {AxisId::producer, AxisId::consumer}) {
    for (const auto& [id, layout] : catalogue.layouts()) add_layout_facts(side, find(side, id), layout);
    for (const auto& [id, backend] : catalogue.backends()) {
      const int value = find(side, id);
      if (const auto* layout = catalogue.layouts().find(backend.layout)) add_layout_facts(side, value, *layout);
      add_facts(side, value, backend);
      set_fact(side, value, "kind", std::string("backend"), Type::text);
      set_fact(side, value, "any_dtype", backend.dtypes.empty(), Type::boolean);
    }
  }
  for (const auto& [id, dtype] : catalogue.dtypes()) {
    const int value = find(AxisId::dtype, id);
    add_facts(AxisId::dtype, value, dtype);
    set_fact(AxisId::dtype, value, "bits", std::int64_t{layout::bits(layout::dtype_from_name(dtype.data))}, Type::integer);
    set_fact(AxisId::dtype, value, "scaled", dtype.scale.has_value(), Type::boolean);
    set_fact(AxisId::dtype, value, "group", dtype.scale ? dtype.scale->group : 0, Type::integer);
  }
  for (const auto& [id, geometry] : catalogue.geometries()) {
    const int value = find(AxisId::geometry, id);
    add_facts(AxisId::geometry, value, geometry);
    if (geometry_block_size_.size() <= static_cast<std::size_t>(value))
      geometry_block_size_.resize(static_cast<std::size_t>(value) + 1);
    geometry_block_size_[static_cast<std::size_t>(value)] = geometry.block_size;
  }
  for (const auto& [id, arch] : catalogue.archs()) add_facts(AxisId::arch, find(AxisId::arch, id), arch);
  for (const auto& [id, connector] : catalogue.connectors())
    add_facts(AxisId::connector, find(AxisId::connector, id), connector);
  for (const auto& [id, engine] : catalogue.engines()) add_facts(AxisId::engine, find(AxisId::engine, id), engine);
}

int Space::find(AxisId axis_id, std::string_view value) {
  const auto a = static_cast<std::size_t>(axis_id);
  if (const auto it = numbers_[a].find(std::string(value)); it != numbers_[a].end()) return it->second;
  const Axis& info = axis(axis_id);
  std::int64_t integer_value = 0;
  const auto result = std::from_chars(value.data(), value.data() + value.size(), integer_value);
  const bool plain =
      result.ec == std::errc{} && result.ptr == value.data() + value.size() && (value == "0" || value.front() != '0');
  if (!info.open || !plain || integer_value < info.low || integer_value > info.high || values_[a].size() >= 4096) return -1;
  add(axis_id, {std::string(value)});
  integers_[a].back() = integer_value;
  return static_cast<int>(values_[a].size()) - 1;
}

std::uint16_t Space::number(AxisId axis_id, std::string_view value) {
  if (const int found = find(axis_id, value); found >= 0) return static_cast<std::uint16_t>(found);
  const Axis& info = axis(axis_id);
  const std::string known = info.open
                                ? "; write an integer from " + std::to_string(info.low) + " to " + std::to_string(info.high)
                                : catalogue::suggestion(value, values_[static_cast<std::size_t>(axis_id)]);
  throw Error("expected a value of axis '" + std::string(info.name) + "', found '" + std::string(value) + "'" + known);
}

std::vector<std::uint16_t> Space::select(AxisId axis_id, const std::vector<std::string>& patterns) {
  const auto& all = values_[static_cast<std::size_t>(axis_id)];
  std::vector<std::uint16_t> out;
  const auto has = [&](std::uint16_t v) { return std::find(out.begin(), out.end(), v) != out.end(); };
  for (const auto& pattern : patterns) {
    const bool away = pattern.starts_with('!');
    const std::string_view glob = std::string_view(pattern).substr(away ? 1 : 0);
    if (!away && glob.find_first_of("*?[") == std::string_view::npos) {
      if (const auto v = number(axis_id, glob); !has(v)) out.push_back(v);
      continue;
    }
    bool any = false;
    for (std::size_t v = 0; v < all.size(); ++v) {
      if (!catalogue::matches_glob(glob, all[v])) continue;
      // "*" means the entities, not the word for a default that stands for another value.
      if (glob.find_first_of("*?[") != std::string_view::npos && (all[v] == "same" || all[v] == "geometry")) continue;
      any = true;
      const auto n = static_cast<std::uint16_t>(v);
      if (away) {
        std::erase(out, n);
      } else if (!has(n)) {
        out.push_back(n);
      }
    }
    if (!any)
      throw Error("expected a glob that matches a value of axis '" + std::string(axis(axis_id).name) + "', found '" +
                  pattern + "'" + catalogue::suggestion(glob, all));
  }
  return out;
}

Point Space::canonical(Point point) const {
  // A consumer's number is its producer's plus one.
  if (at(point, AxisId::consumer) == at(point, AxisId::producer) + 1) at(point, AxisId::consumer) = 0;
  const auto own = geometry_block_size_[at(point, AxisId::geometry)];
  for (const AxisId side : {AxisId::pbs, AxisId::cbs})
    if (at(point, side) != at(origin_, side) && integer(side, at(point, side)) == own) at(point, side) = at(origin_, side);
  return point;
}

std::uint16_t Space::consumer_of(const Point& point) const {
  const auto consumer = at(point, AxisId::consumer);
  return consumer != 0 ? consumer : static_cast<std::uint16_t>(at(point, AxisId::producer) + 1);
}

bool Space::is_name(std::string_view name_text) const {
  return find_axis(name_text.substr(0, name_text.find('.'))) != nullptr;
}

NameRef Space::name(std::string_view name_text) const {
  const std::size_t dot = name_text.find('.');
  const Axis* found = find_axis(name_text.substr(0, dot));
  if (!found)
    throw Error("expected the name of an axis, found '" + std::string(name_text) + "'" +
                catalogue::suggestion(name_text.substr(0, dot), axis_names()));
  NameRef ref;
  ref.axis = found->id;
  if (dot == std::string_view::npos) {
    ref.type = found->id == AxisId::arch ? Type::arch : found->open ? Type::integer : Type::text;
    return ref;
  }
  const auto& columns = facts_[static_cast<std::size_t>(found->id)];
  const std::string_view fact_name = name_text.substr(dot + 1);
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (columns[i].name == fact_name) {
      ref.fact = static_cast<int>(i);
      ref.type = columns[i].type;
      return ref;
    }
  }
  throw Error("expected a fact of axis '" + std::string(found->name) + "', found '" + std::string(name_text) + "'" +
              catalogue::suggestion(fact_name, fact_names(found->id)));
}

std::uint32_t Space::support(const NameRef& ref) const {
  const auto bit = [](AxisId a) { return std::uint32_t{1} << static_cast<unsigned>(a); };
  std::uint32_t mask = bit(ref.axis);
  if (ref.axis == AxisId::consumer) mask |= bit(AxisId::producer);
  if (ref.axis == AxisId::pbs || ref.axis == AxisId::cbs) mask |= bit(AxisId::geometry);
  return mask;
}

Value Space::value(const NameRef& ref, const Point& point) const {
  AxisId axis_id = ref.axis;
  int number_at = at(point, axis_id);
  if (axis_id == AxisId::consumer && number_at == 0) axis_id = AxisId::producer, number_at = at(point, AxisId::producer);
  if (ref.fact >= 0) return fact(axis_id, ref.fact, number_at);
  if (axis_id == AxisId::pbs || axis_id == AxisId::cbs) return block_size(point, axis_id);
  if (axis(axis_id).open) return integer(axis_id, number_at);
  return text(axis_id, number_at);
}

const Value& Space::fact(AxisId axis_id, int fact_index, int value) const {
  static const Value nothing;
  const auto& columns = facts_[static_cast<std::size_t>(axis_id)];
  const auto& column = columns[static_cast<std::size_t>(fact_index)].values;
  return static_cast<std::size_t>(value) < column.size() ? column[static_cast<std::size_t>(value)] : nothing;
}

std::vector<std::string> Space::fact_names(AxisId axis_id) const {
  std::vector<std::string> out;
  for (const auto& column : facts_[static_cast<std::size_t>(axis_id)]) out.push_back(column.name);
  return out;
}

std::vector<std::string> Space::texts_of(const NameRef& ref) const {
  if (ref.fact < 0) return axis(ref.axis).open ? std::vector<std::string>{} : values_[static_cast<std::size_t>(ref.axis)];
  std::set<std::string> out;
  for (const auto& value : facts_[static_cast<std::size_t>(ref.axis)][static_cast<std::size_t>(ref.fact)].values) {
    if (const auto* one = std::get_if<std::string>(&value)) out.insert(*one);
    if (const auto* list = std::get_if<std::vector<std::string>>(&value)) out.insert(list->begin(), list->end());
  }
  return {out.begin(), out.end()};
}

std::int64_t Space::block_size(const Point& point, AxisId which) const {
  const auto value = at(point, which);
  return value == at(origin_, which) ? geometry_block_size_[at(point, AxisId::geometry)] : integer(which, value);
}

std::int64_t Space::integer(AxisId axis_id, int value) const {
  return integers_[static_cast<std::size_t>(axis_id)][static_cast<std::size_t>(value)];
}

}  // namespace kvcts::matrix
