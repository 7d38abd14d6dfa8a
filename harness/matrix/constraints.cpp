#include "matrix/constraints.hpp"

#include <algorithm>
#include <map>

#include "layout/dtype.hpp"

namespace kvcts::matrix {

namespace {

constexpr std::uint32_t bit(AxisId a) { return std::uint32_t{1} << static_cast<unsigned>(a); }

bool contains(const std::vector<std::string>& list, const std::string& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

std::string listed(const std::vector<std::int64_t>& numbers) {
  std::string out;
  for (const auto n : numbers) out += (out.empty() ? "" : ", ") + std::to_string(n);
  return out;
}
std::string listed(const std::vector<std::string>& words) {
  std::string out;
  for (const auto& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

const std::vector<std::string>& requirement_names() {
  static const std::vector<std::string> names{"layers",  "blocks", "block_size", "heads", "head_dim", "v_head_dim", "kv", "bits",
                                              "itemsize", "L",     "B",          "N",     "H",        "D",          "V",  "x", "G"};
  return names;
}

}  // namespace

Constraints::Constraints(Space& space) : space_(space) {
  for (const bool refused : {false, true}) {
    for (const auto& [id, entry] : space.catalogue().constraints()) {
      if ((entry.outcome == Outcome::refused) != refused) continue;
      try {
        compiled_.push_back({&entry, Expression(entry.when, space)});
      } catch (const Error& error) {
        throw Error(entry.file + ":1: constraint '" + id + "': key 'when': " + error.what());
      }
    }
  }
  const std::uint32_t shape = bit(AxisId::producer) | bit(AxisId::geometry) | bit(AxisId::dtype);
  const std::uint32_t backend = shape | bit(AxisId::arch);
  rules_ = {{"layout", shape | bit(AxisId::pbs) | bit(AxisId::ptp)},
            {"layout", shape | bit(AxisId::consumer) | bit(AxisId::cbs) | bit(AxisId::ctp)},
            {"backend", backend | bit(AxisId::pbs)},
            {"backend", backend | bit(AxisId::consumer) | bit(AxisId::cbs)}};
  for (const auto& constraint : compiled_) rules_.push_back({constraint.entry->id, constraint.when.support()});
}

// Reason why a side's layout or backend cannot hold this geometry, dtype, block size or shard; "" when it can.
std::string Constraints::limit_reason(Limit limit, const Point& point) const {
  const bool consumer_side = limit == Limit::consumer_layout || limit == Limit::consumer_backend;
  const Catalogue& catalogue = space_.catalogue();
  const auto consumer = at(point, AxisId::consumer);
  const std::string& side = consumer_side && consumer != 0 ? space_.text(AxisId::consumer, consumer)
                                                            : space_.text(AxisId::producer, at(point, AxisId::producer));
  const auto* backend = catalogue.backends().find(side);
  const auto& geometry = catalogue.geometries().at(space_.text(AxisId::geometry, at(point, AxisId::geometry)));
  const std::string& dtype = space_.text(AxisId::dtype, at(point, AxisId::dtype));
  const std::int64_t block_size = space_.block_size(point, consumer_side ? AxisId::cbs : AxisId::pbs);

  if (limit == Limit::producer_backend || limit == Limit::consumer_backend) {
    if (!backend) return "";
    const std::string who = backend->system + " " + (backend->name.empty() ? backend->id : backend->name);
    if (!backend->dtypes.empty() && !contains(backend->dtypes, dtype)) return who + " takes " + listed(backend->dtypes) + ", this is " + dtype;
    const auto& sizes = backend->block_sizes;
    if (!sizes.empty() && std::find(sizes.begin(), sizes.end(), block_size) == sizes.end()) {
      return who + " takes blocks of " + listed(sizes) + " tokens, this is " + std::to_string(block_size);
    }
    const auto& dims = backend->head_dims;
    if (!dims.empty() && std::find(dims.begin(), dims.end(), geometry.head_dim) == dims.end()) {
      return who + " takes head sizes " + listed(dims) + ", this is " + std::to_string(geometry.head_dim);
    }
    const std::string& arch = space_.text(AxisId::arch, at(point, AxisId::arch));
    const std::int64_t cc = arch_order(arch);
    if (cc < 0) return "";  // cpu: modelled, no limit
    if (!backend->archs.empty() && !contains(backend->archs, arch)) return who + " runs on " + listed(backend->archs) + ", this is " + arch;
    if (!backend->min_arch.empty() && cc < arch_order(backend->min_arch)) return who + " needs " + backend->min_arch + ", this is " + arch;
    if (!backend->max_arch.empty() && cc > arch_order(backend->max_arch)) return who + " ends at " + backend->max_arch + ", this is " + arch;
    return "";
  }

  const auto* layout = catalogue.layouts().find(backend ? backend->layout : side);
  if (!layout) return "its layout '" + (backend ? backend->layout : side) + "' is not in the catalogue";
  const auto& scheme = catalogue.dtypes().at(dtype);
  const std::int64_t tp = space_.integer(consumer_side ? AxisId::ctp : AxisId::ptp, at(point, consumer_side ? AxisId::ctp : AxisId::ptp));
  const std::int64_t bits = layout::bits(layout::dtype_from_name(scheme.data));
  const std::int64_t heads = std::max<std::int64_t>(1, geometry.heads / tp);
  const std::int64_t v = geometry.v_head_dim ? geometry.v_head_dim : geometry.head_dim;
  const std::int64_t group = !scheme.scale ? 0 : scheme.scale->group == 0 ? geometry.head_dim : scheme.scale->group;
  const auto number = [&](std::string_view n) -> std::optional<std::int64_t> {
    if (n == "layers" || n == "L") return geometry.layers;
    if (n == "blocks" || n == "B") return geometry.blocks;
    if (n == "block_size" || n == "N") return block_size;
    if (n == "heads" || n == "H") return heads;
    if (n == "head_dim" || n == "D") return geometry.head_dim;
    if (n == "v_head_dim") return geometry.v_head_dim;
    if (n == "V") return v;
    if (n == "kv") return geometry.kv;
    if (n == "bits") return bits;
    if (n == "itemsize") return std::max<std::int64_t>(1, bits / 8);
    if (n == "x") return 128 / bits;
    if (n == "G") return group ? (geometry.head_dim + group - 1) / group : 0;
    return std::nullopt;
  };
  if (!layout->dtypes.empty() && !contains(layout->dtypes, dtype)) {
    return layout->id + " holds " + listed(layout->dtypes) + ", this is " + dtype;
  }
  for (const auto& [key, value] : layout->fixed) {
    const std::int64_t have = *number(key);
    if (have != value) return layout->id + " has " + key + " = " + std::to_string(value) + ", this geometry has " + std::to_string(have);
  }
  if (!layout->fixed.contains("kv") && geometry.kv != 2) {
    return layout->id + " holds K and V, this geometry has one latent for both";
  }
  for (const auto& requirement : layout->requires_) {
    bool good = false;
    try {
      good = holds(requirement.that, number, requirement_names());
    } catch (const Error& error) {
      throw Error(layout->file + ":1: key 'requires': " + error.what());
    }
    if (!good) return layout->id + " requires " + requirement.that + (requirement.because.empty() ? "" : " (" + requirement.because + ")");
  }
  if (group > 0 && scheme.scale->group > 0 && (geometry.head_dim % group != 0 || v % group != 0)) {
    return dtype + " has a scale each " + std::to_string(group) + " channels, which does not divide head_dim " +
           std::to_string(geometry.head_dim % group ? geometry.head_dim : v);
  }
  return "";
}

bool Constraints::over_limit(Limit limit, const Point& point) {
  // Key: the values of the rule's axes, packed; every axis but seed has well under 2^11 values in use.
  std::uint64_t key = 0;
  const std::uint32_t support = rules_[static_cast<std::size_t>(limit)].support;
  for (std::size_t a = 0; a < axis_count; ++a) {
    if (support >> a & 1U) key = key << 12 | (point[a] & 0xFFFU);
  }
  auto& memo = memo_[static_cast<std::size_t>(limit)];
  if (const auto it = memo.find(key); it != memo.end()) return it->second;
  return memo[key] = !limit_reason(limit, point).empty();
}

bool Constraints::violates(std::size_t rule, const Point& point) {
  if (rule < limit_count) return over_limit(static_cast<Limit>(rule), point);
  return compiled_[rule - limit_count].when(point);
}

int Constraints::check(const Point& point) {
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    if (violates(i, point)) return static_cast<int>(i) + 1;
  }
  return 0;
}

bool Constraints::refuses(int number) const {
  const auto i = static_cast<std::size_t>(number) - 1;
  return number > 0 && i >= limit_count && compiled_[i - limit_count].entry->outcome == Outcome::refused;
}

// "{arch}" and "{geometry.heads}" become their values; anything else in braces stays.
std::string Constraints::fill_in(const std::string& reason, const Point& point) const {
  std::string out;
  for (std::size_t i = 0; i < reason.size(); ++i) {
    const std::size_t end = reason[i] == '{' ? reason.find('}', i) : std::string::npos;
    if (end == std::string::npos) {
      out += reason[i];
      continue;
    }
    const std::string name_text = reason.substr(i + 1, end - i - 1);
    out += space_.is_name(name_text) ? to_text(space_.value(space_.name(name_text), point)) : reason.substr(i, end - i + 1);
    i = end;
  }
  return out;
}

Declared Constraints::declared(const Point& point, int number) const {
  const auto i = static_cast<std::size_t>(number) - 1;
  if (i < limit_count) return {Outcome::unsupported, rules_[i].name, limit_reason(static_cast<Limit>(i), point)};
  const auto& entry = *compiled_[i - limit_count].entry;
  return {entry.outcome, entry.id, fill_in(entry.reason, point)};
}

}  // namespace kvcts::matrix
