#include "matrix/ids.hpp"

#include <xxhash.h>

#include "case/catalogue/nearest.hpp"

namespace kvcts::matrix {

namespace {
constexpr std::string_view prefix = "kv/";

/// Calls back with each "axis=value" of an id.
template <class Part>
void parts_of(std::string_view id, const Part& part) {
  for (std::string_view rest = id; !rest.empty();) {
    const std::size_t slash = rest.find('/');
    if (rest.substr(0, slash).find('=') != std::string_view::npos) part(rest.substr(0, slash));
    rest.remove_prefix(slash == std::string_view::npos ? rest.size() : slash + 1);
  }
}

bool is_of(std::string_view part, const Axis& axis) { return part.substr(0, part.find('=')) == axis.name; }
}  // namespace

std::string id_of(const Space& space, const Point& point) {
  std::string id;
  id.reserve(96);
  id = "kv";
  const Point& origin = space.origin();
  for (const auto& a : axes()) {
    if (!a.fallback.empty() && at(point, a.id) == at(origin, a.id)) continue;
    id += '/';
    id += a.name;
    id += '=';
    id += space.text(a.id, at(point, a.id));
  }
  return id;
}

bool is_matrix_id(std::string_view id) { return id.starts_with(prefix) && id.find('=') != std::string_view::npos; }

Point point_from_id(Space& space, std::string_view id) {
  const auto bad = [&](const std::string& expected, const std::string& found) -> Error {
    return Error("case id '" + std::string(id.substr(0, 200)) + "': expected " + expected + ", found " + found);
  };
  if (!id.starts_with(prefix))
    throw bad("an id that starts with 'kv/'", "another; ids of case files are listed by `kvcts list`");
  Point point = space.origin();
  std::uint32_t seen = 0;
  std::string_view rest = id.substr(prefix.size());
  while (true) {
    const std::size_t slash = rest.find('/');
    const std::string_view part = rest.substr(0, slash);
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos)
      throw bad("axis=value between slashes", "'" + std::string(part.substr(0, 60)) + "'");
    const Axis* a = find_axis(part.substr(0, equals));
    if (!a) {
      throw bad("the name of an axis", "'" + std::string(part.substr(0, std::min<std::size_t>(equals, 60))) + "'" +
                                           catalogue::suggestion(part.substr(0, equals), axis_names()));
    }
    const std::uint32_t mask = std::uint32_t{1} << static_cast<unsigned>(a->id);
    if (seen & mask) throw bad("each axis once", "'" + std::string(a->name) + "' twice");
    seen |= mask;
    try {
      at(point, a->id) = space.number(a->id, part.substr(equals + 1));
    } catch (const Error& error) {
      throw Error("case id '" + std::string(id.substr(0, 200)) + "': " + error.what());
    }
    if (slash == std::string_view::npos) break;
    rest = rest.substr(slash + 1);
  }
  for (const auto& a : axes()) {
    if (a.fallback.empty() && !(seen >> static_cast<unsigned>(a.id) & 1U)) {
      throw bad("'" + std::string(a.name) + "=...', which has no default", "none");
    }
  }
  return space.canonical(point);
}

std::string canonical_id(Space& space, std::string_view id) {
  return is_matrix_id(id) ? id_of(space, point_from_id(space, id)) : std::string(id);
}

CaseSpec spec_of(const Space& space, const Point& point) {
  CaseSpec spec;
  spec.id = id_of(space, point);
  const Point& origin = space.origin();
  spec.geometry = space.text(AxisId::geometry, at(point, AxisId::geometry));  // block sizes need it
  for (const auto& a : axes()) {
    if (a.id == AxisId::consumer && at(point, a.id) == 0) {
      spec.consumer.layout = spec.producer.layout, spec.consumer.backend = spec.producer.backend;
    } else if (a.fallback.empty() || at(point, a.id) != at(origin, a.id)) {
      a.apply(spec, space.text(a.id, at(point, a.id)), space.catalogue());
    }
  }
  // If one side has its own block size, both state theirs: a case file that inherits sides keeps its meaning.
  if (spec.producer.block_size && !spec.consumer.block_size) axis(AxisId::cbs).apply(spec, "geometry", space.catalogue());
  if (spec.consumer.block_size && !spec.producer.block_size) axis(AxisId::pbs).apply(spec, "geometry", space.catalogue());
  return spec;
}

CaseSpec spec_from_id(Space& space, std::string_view id) { return spec_of(space, point_from_id(space, id)); }

std::string_view value_in_id(std::string_view id, const Axis& axis) {
  std::string_view found = axis.fallback;
  parts_of(id, [&](std::string_view part) {
    if (is_of(part, axis)) found = part.substr(axis.name.size() + 1);
  });
  return found;
}

std::string id_with(std::string_view id, const Axis& axis, std::string_view value) {
  std::string out = "kv";
  const auto put = [&] {
    if (value != axis.fallback) out.append("/").append(axis.name).append("=").append(value);
  };
  bool done = false;
  parts_of(id, [&](std::string_view part) {
    const Axis* at = find_axis(part.substr(0, part.find('=')));
    if (!done && at && at->id >= axis.id) put(), done = true;
    if (!is_of(part, axis)) out.append("/").append(part);
  });
  if (!done) put();
  return out;
}

std::uint64_t id_hash(std::string_view id) { return XXH3_64bits(id.data(), id.size()); }

}  // namespace kvcts::matrix
