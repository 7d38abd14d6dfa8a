#include "matrix/constraints.hpp"

#include <algorithm>
#include <map>

#include "case/catalogue/yaml.hpp"
#include "layout/dtype.hpp"
#include "layout/template.hpp"

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
  static const std::vector<std::string> names{"layers", "blocks", "block_size", "heads", "head_dim", "v_head_dim",
                                              "kv",     "bits",   "itemsize",   "L",     "B",        "N",
                                              "H",      "D",      "V",          "x",     "G"};
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
  const std::uint32_t pair = shape | bit(AxisId::consumer);
  rules_ = {
      {"layout", shape | bit(AxisId::pbs) | bit(AxisId::ptp) | bit(AxisId::content)},
      {"layout", pair | bit(AxisId::cbs) | bit(AxisId::ctp) | bit(AxisId::content)},
      {"backend", shape | bit(AxisId::arch) | bit(AxisId::pbs)},
      {"backend", pair | bit(AxisId::arch) | bit(AxisId::cbs)},
      {"golden", pair | bit(AxisId::content) | bit(AxisId::pbs) | bit(AxisId::cbs) | bit(AxisId::ptp) | bit(AxisId::ctp)},
      {"planes", pair | bit(AxisId::content)}};
  for (std::size_t i = 0; i < limit_count; ++i) rules_[i].of_consumer = of_consumer(static_cast<Limit>(i));
  for (const auto& constraint : compiled_) rules_.push_back({constraint.entry->id, constraint.when.support()});
  any_backend_ = space.catalogue().backends().size() > 0;
  // UNSUPPORTED before REFUSED: a point that cannot run must not be required to refuse.
  for (const bool refused : {false, true}) {
    for (std::size_t i = 0; i < rules_.size(); ++i) {
      if (refuses(static_cast<int>(i) + 1) == refused) order_.push_back(i);
    }
  }
}

Constraints::SideAt Constraints::side_at(Limit limit, const Point& point) const {
  const bool consumer = of_consumer(limit) && at(point, AxisId::consumer) != 0;
  SideAt out;
  // Consumer values are the producer's, after "same".
  out.side = consumer ? static_cast<std::uint16_t>(at(point, AxisId::consumer) - 1) : at(point, AxisId::producer);
  out.geometry = at(point, AxisId::geometry);
  out.dtype = at(point, AxisId::dtype);
  out.arch = of_backend(limit) ? at(point, AxisId::arch) : std::uint16_t{0};
  out.block_size = space_.block_size(point, of_consumer(limit) ? AxisId::cbs : AxisId::pbs);
  const AxisId tp = of_consumer(limit) ? AxisId::ctp : AxisId::ptp;
  if (!of_backend(limit)) out.tp = space_.integer(tp, at(point, tp));
  return out;
}

std::string Constraints::limit_reason(Limit limit, const Point& point) const {
  const bool is_golden = space_.text(AxisId::content, at(point, AxisId::content)) == "golden";
  switch (limit) {
    case Limit::golden:
      return is_golden ? golden_reason(point) : "";
    case Limit::planes:
      return planes_reason(point);
    case Limit::producer_backend:
    case Limit::consumer_backend:
      return backend_reason(side_at(limit, point));
    case Limit::producer_layout:
    case Limit::consumer_layout:
      break;
  }
  return is_golden ? "" : layout_reason(side_at(limit, point));  // golden tensors bring their own geometry
}

// Golden tensors exist for some layouts and dtypes, each at the first geometry of golden/plan.yaml that fits.
std::string Constraints::golden_reason(const Point& point) const {
  if (!golden_) {
    golden_.emplace();
    try {
      const auto path = space_.catalogue().directory().parent_path() / "golden" / "MANIFEST.json";
      const auto manifest = nlohmann::json::parse(catalogue::read_text_file(path, path.string(), std::size_t{1} << 26));
      for (const auto& [file, entry] : manifest.at("files").items()) {
        for (const auto& layout : entry.at("layouts")) {
          for (const auto& [dtype, digest] : entry.at("dtypes").items()) (*golden_)[layout.get<std::string>()].insert(dtype);
        }
      }
    } catch (const std::exception&) {
      golden_->clear();  // no golden files: every golden point reports it
    }
  }
  const std::string& dtype = space_.text(AxisId::dtype, at(point, AxisId::dtype));
  const catalogue::LayoutEntry* sides[2]{};
  for (const Limit limit : {Limit::producer_layout, Limit::consumer_layout}) {
    const std::string& side = space_.text(AxisId::producer, side_at(limit, point).side);
    const auto* backend = space_.catalogue().backends().find(side);
    const std::string& layout = backend ? backend->layout : side;
    const auto it = golden_->find(layout);
    if (it == golden_->end() || !it->second.contains(dtype))
      return "there is no golden tensor of " + layout + " in " + dtype;
    sides[limit == Limit::consumer_layout] = space_.catalogue().layouts().find(layout);
  }
  for (const AxisId a : {AxisId::pbs, AxisId::cbs, AxisId::ptp, AxisId::ctp}) {
    if (at(point, a) != at(space_.origin(), a)) return "golden tensors have one rank and their own block size";
  }
  const bool one = sides[0] == sides[1] || (sides[0] && sides[1] && sides[0]->fixed == sides[1]->fixed &&
                                            sides[0]->requires_.empty() && sides[1]->requires_.empty());
  return one ? "" : "the golden tensors of " + sides[0]->id + " and " + sides[1]->id + " may be of different geometry";
}

// The rows of the two sides must hold the same codes: the consumer's every (component, K or V, channels, dtype), with 4-bit
// codes paired along the same axis. No byte copy turns one into another.
std::string Constraints::planes_reason(const Point& point) const {
  if (space_.text(AxisId::content, at(point, AxisId::content)) == "golden") return "";
  const SideAt producer = side_at(Limit::producer_layout, point), consumer = side_at(Limit::consumer_layout, point);
  if (producer.side == consumer.side) return "";
  const std::uint32_t have = planes_of(producer), want = planes_of(consumer);  // which may move plane_texts_
  const std::string missing = first_missing(plane_texts_.at(have), plane_texts_.at(want));
  return missing.empty() ? "" : "the consumer's rows hold " + missing + ", the producer's do not";
}

std::string Constraints::first_missing(const std::string& have, const std::string& want) {
  for (std::size_t at_line = 0; at_line < want.size();) {
    const std::size_t end = want.find('\n', at_line);
    const std::string line = want.substr(at_line, end - at_line);
    if (("\n" + have).find("\n" + line + "\n") == std::string::npos) return line;
    at_line = end + 1;
  }
  return "";
}

std::uint32_t Constraints::planes_of(const SideAt& at_side) const {
  const std::uint64_t key =
      (static_cast<std::uint64_t>(at_side.side) << 20 | at_side.geometry) << 20 | static_cast<std::uint64_t>(at_side.dtype);
  return planes_.get(key, [&] {
    const auto [it, fresh] =
        plane_numbers_.try_emplace(plane_text(at_side), static_cast<std::uint32_t>(plane_texts_.size()));
    if (fresh) plane_texts_.push_back(it->first);
    return it->second;
  });
}

std::string Constraints::plane_text(const SideAt& at_side) const {
  const Catalogue& catalogue = space_.catalogue();
  const auto* backend = catalogue.backends().find(space_.text(AxisId::producer, at_side.side));
  const auto* entry = catalogue.layouts().find(backend ? backend->layout : space_.text(AxisId::producer, at_side.side));
  if (!entry) return "";
  layout::Cache cache;
  try {
    cache = layout::instantiate(
        entry->text, catalogue::geometry_of(catalogue.geometries().at(space_.text(AxisId::geometry, at_side.geometry))),
        catalogue::scheme_of(catalogue.dtypes().at(space_.text(AxisId::dtype, at_side.dtype))), entry->tensors);
  } catch (const layout::Error&) {
    return "";  // the layout rules give the reason
  }
  struct Part {
    std::string component;
    std::int64_t kv, low, high;
    std::string codes;
    auto operator<=>(const Part&) const = default;
  };
  std::set<Part> parts;
  for (const auto& plane : cache.planes) {
    const layout::Box box = layout::domain(plane);
    std::string codes(layout::name(plane.dtype));
    if (layout::bits(plane.dtype) == 4) {
      for (const auto& mode : plane.modes) {
        if (mode.extent > 1 && mode.stride == 4) codes += " paired along " + std::string(layout::name(mode.axis));
      }
      if (plane.high_nibble_first) codes += ", high nibble first";
    }
    for (auto kv = box.lo[layout::Axis::kv]; kv < box.hi[layout::Axis::kv]; ++kv) {
      parts.insert({std::string(layout::name(plane.component)), kv, box.lo[layout::Axis::channel],
                    box.hi[layout::Axis::channel], codes});
    }
  }
  // Merge neighbouring ranges of channels with the same codes.
  std::string out;
  for (auto it = parts.begin(); it != parts.end();) {
    Part part = *it++;
    while (it != parts.end() && it->component == part.component && it->kv == part.kv && it->low <= part.high &&
           it->codes == part.codes) {
      part.high = std::max(part.high, it->high), ++it;
    }
    out += part.component + (part.kv ? " V" : " K") + " channels " + std::to_string(part.low) + ".." +
           std::to_string(part.high) + " as " + part.codes + "\n";
  }
  return out;
}

// Why a backend rejects this dtype, block size, head size or arch.
std::string Constraints::backend_reason(const SideAt& at_side) const {
  const Catalogue& catalogue = space_.catalogue();
  const auto* backend = catalogue.backends().find(space_.text(AxisId::producer, at_side.side));
  if (!backend) return "";
  const auto& geometry = catalogue.geometries().at(space_.text(AxisId::geometry, at_side.geometry));
  const std::string& dtype = space_.text(AxisId::dtype, at_side.dtype);
  const std::string who = backend->system + " " + (backend->name.empty() ? backend->id : backend->name);
  if (!backend->dtypes.empty() && !contains(backend->dtypes, dtype))
    return who + " takes " + listed(backend->dtypes) + ", this is " + dtype;
  const auto& sizes = backend->block_sizes;
  if (!sizes.empty() && std::find(sizes.begin(), sizes.end(), at_side.block_size) == sizes.end()) {
    return who + " takes blocks of " + listed(sizes) + " tokens, this is " + std::to_string(at_side.block_size);
  }
  const auto& dims = backend->head_dims;
  if (!dims.empty() && std::find(dims.begin(), dims.end(), geometry.head_dim) == dims.end()) {
    return who + " takes head sizes " + listed(dims) + ", this is " + std::to_string(geometry.head_dim);
  }
  const std::string& arch = space_.text(AxisId::arch, at_side.arch);
  const std::int64_t cc = arch_order(arch);
  if (cc < 0) return "";  // cpu: modelled, no limit
  if (!backend->archs.empty() && !contains(backend->archs, arch))
    return who + " runs on " + listed(backend->archs) + ", this is " + arch;
  if (!backend->min_arch.empty() && cc < arch_order(backend->min_arch))
    return who + " needs " + backend->min_arch + ", this is " + arch;
  if (!backend->max_arch.empty() && cc > arch_order(backend->max_arch))
    return who + " ends at " + backend->max_arch + ", this is " + arch;
  return "";
}

// Why a side's layout cannot hold this geometry, dtype, block size or shard.
std::string Constraints::layout_reason(const SideAt& at_side) const {
  const Catalogue& catalogue = space_.catalogue();
  const std::string& side = space_.text(AxisId::producer, at_side.side);
  const auto* backend = catalogue.backends().find(side);
  const auto& geometry = catalogue.geometries().at(space_.text(AxisId::geometry, at_side.geometry));
  const std::string& dtype = space_.text(AxisId::dtype, at_side.dtype);
  const auto* layout = catalogue.layouts().find(backend ? backend->layout : side);
  if (!layout) return "its layout '" + (backend ? backend->layout : side) + "' is not in the catalogue";
  const auto& scheme = catalogue.dtypes().at(dtype);
  const std::int64_t bits = layout::bits(layout::dtype_from_name(scheme.data));
  const std::int64_t heads = std::max<std::int64_t>(1, geometry.heads / at_side.tp);
  const std::int64_t v = geometry.v_head_dim ? geometry.v_head_dim : geometry.head_dim;
  const std::int64_t group = !scheme.scale ? 0 : scheme.scale->group == 0 ? geometry.head_dim : scheme.scale->group;
  const auto number = [&](std::string_view n) -> std::optional<std::int64_t> {
    if (n == "layers" || n == "L") return geometry.layers;
    if (n == "blocks" || n == "B") return geometry.blocks;
    if (n == "block_size" || n == "N") return at_side.block_size;
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
    if (have != value)
      return layout->id + " has " + key + " = " + std::to_string(value) + ", this geometry has " + std::to_string(have);
  }
  for (const auto& requirement : layout->requires_) {
    bool good = false;
    try {
      good = holds(requirement.that, number, requirement_names());
    } catch (const Error& error) {
      throw Error(layout->file + ":1: key 'requires': " + error.what());
    }
    if (!good)
      return layout->id + " requires " + requirement.that +
             (requirement.because.empty() ? "" : " (" + requirement.because + ")");
  }
  // The layout itself decides: widths, divisions, packing.
  layout::Geometry rank = catalogue::geometry_of(geometry);
  rank.heads = heads;
  rank.block_size = at_side.block_size;
  rank.blocks = std::min<std::int64_t>(rank.blocks, 2);  // their number is irrelevant unless a layout fixes it
  if (layout->fixed.contains("blocks")) rank.blocks = geometry.blocks;
  try {
    layout::instantiate(layout->text, rank, catalogue::scheme_of(scheme), layout->tensors);
  } catch (const layout::Error& error) {
    return layout->id + ": " + error.what();
  }
  return "";
}

bool Constraints::over_limit(Limit limit, const Point& point) {
  const bool tags = at(point, AxisId::content) == at(space_.origin(), AxisId::content);
  if (limit == Limit::golden)
    return space_.text(AxisId::content, at(point, AxisId::content)) == "golden" && !golden_reason(point).empty();
  if (!tags) return !limit_reason(limit, point).empty();
  if (of_backend(limit) && !any_backend_) return false;
  const SideAt side = side_at(limit, point);
  if (limit == Limit::planes) {
    const SideAt consumer = side_at(Limit::consumer_layout, point);
    if (consumer.side == side.side) return false;
    const std::uint32_t have = planes_of(side), want = planes_of(consumer);
    if (have == want) return false;
    return plane_pairs_.get(static_cast<std::uint64_t>(have) << 32 | want, [&] {
      return std::uint32_t{!first_missing(plane_texts_[have], plane_texts_[want]).empty()};
    }) != 0;
  }
  // Block sizes and degrees of the axes stay far below 2^20 and 2^8; larger ones are not cached.
  std::uint64_t key = side.side;
  key = key << 10 | side.geometry, key = key << 8 | side.dtype, key = key << 6 | side.arch;
  key = key << 20 | static_cast<std::uint64_t>(side.block_size), key = key << 8 | static_cast<std::uint64_t>(side.tp);
  const bool fits = side.side < 1 << 12 && side.geometry < 1 << 10 && side.dtype < 1 << 8 && side.arch < 1 << 6 &&
                    side.block_size < 1 << 20 && side.tp < 1 << 8;
  if (!fits) return !limit_reason(limit, point).empty();
  return (of_backend(limit) ? backend_memo_ : layout_memo_).get(key, [&] {
    return std::uint32_t{!limit_reason(limit, point).empty()};
  }) != 0;
}

bool Constraints::violates(std::size_t rule, const Point& point) {
  if (rule < limit_count) return over_limit(static_cast<Limit>(rule), point);
  return compiled_[rule - limit_count].when(point);
}

int Constraints::check(const Point& point) {
  for (const std::size_t i : order_) {
    if (violates(i, point)) return static_cast<int>(i) + 1;
  }
  return 0;
}

bool Constraints::refuses(int number) const {
  const auto i = static_cast<std::size_t>(number) - 1;
  if (number <= 0) return false;
  return i < limit_count ? static_cast<Limit>(i) == Limit::planes
                         : compiled_[i - limit_count].entry->outcome == Outcome::refused;
}

// Replaces "{arch}" and "{geometry.heads}" with their values; anything else in braces stays.
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
  if (i < limit_count) {
    return {refuses(number) ? Outcome::refused : Outcome::unsupported, rules_[i].name,
            limit_reason(static_cast<Limit>(i), point)};
  }
  const auto& entry = *compiled_[i - limit_count].entry;
  return {entry.outcome, entry.id, fill_in(entry.reason, point)};
}

}  // namespace kvcts::matrix
