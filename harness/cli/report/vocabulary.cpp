#include "cli/report/vocabulary.hpp"

#include "matrix/ids.hpp"
#include "matrix/select.hpp"

namespace kvcts::report {
namespace {

using matrix::AxisId;
using nlohmann::json;

json value_json(const matrix::Value& value) {
  struct Visitor {
    json operator()(std::monostate) const { return nullptr; }
    json operator()(bool b) const { return b; }
    json operator()(std::int64_t n) const { return n; }
    json operator()(const std::string& s) const { return s; }
    json operator()(const std::vector<std::string>& list) const { return list; }
  };
  return std::visit(Visitor{}, value);
}

std::string_view type_word(matrix::Type type) {
  switch (type) {
    case matrix::Type::boolean:
      return "boolean";
    case matrix::Type::integer:
      return "integer";
    case matrix::Type::arch:
      return "arch";
    case matrix::Type::list:
      return "list";
    default:
      return "text";
  }
}

json facts_json(const matrix::Space& space, const matrix::Axis& axis) {
  json facts = json::array();
  for (const auto& fact : space.fact_names(axis.id)) {
    const auto ref = space.name(std::string(axis.name) + "." + fact);
    json distinct = json::array(), numbers = json::array();
    std::map<std::string, std::size_t> seen;
    for (int v = 0; v < space.size(axis.id); ++v) {
      json value = value_json(space.fact(axis.id, ref.fact, v));
      if (value.is_null()) {
        numbers.push_back(-1);
        continue;
      }
      const auto [at, is_new] = seen.emplace(value.dump(), distinct.size());
      if (is_new) distinct.push_back(std::move(value));
      numbers.push_back(at->second);
    }
    facts.push_back({{"name", fact}, {"type", type_word(ref.type)}, {"d", std::move(distinct)}, {"v", std::move(numbers)}});
  }
  return facts;
}

}  // namespace

json vocabulary(const matrix::Space& space) {
  json axes = json::array();
  for (const auto& axis : matrix::axes()) {
    const auto ref = space.name(axis.name);
    json one{{"name", axis.name}, {"type", type_word(ref.type)}, {"default", axis.fallback}, {"open", axis.open}};
    if (axis.id == AxisId::consumer) {
      one["like"] = "producer";
    } else {
      one["values"] = json::array();
      for (int v = 0; v < space.size(axis.id) && !axis.open; ++v) one["values"].push_back(space.text(axis.id, v));
      one["facts"] = facts_json(space, axis);
    }
    axes.push_back(std::move(one));
  }
  return {{"axes", std::move(axes)}};
}

json axes_of_id(matrix::Space& space, const std::string& id) {
  if (!matrix::is_matrix_id(id)) return json::object();
  try {
    return matrix::axes_of(space, matrix::point_from_id(space, id));
  } catch (const matrix::Error&) {
    return json::object();
  }
}

}  // namespace kvcts::report
