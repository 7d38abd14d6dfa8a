#include "python/probe/subject.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

namespace kvcts::probe {

using layout::Error;

namespace {

constexpr std::pair<const char*, std::int64_t layout::Geometry::*> numbers[] = {
    {"layers", &layout::Geometry::layers},
    {"blocks", &layout::Geometry::blocks},
    {"block_size", &layout::Geometry::block_size},
    {"heads", &layout::Geometry::heads},
    {"head_dim", &layout::Geometry::head_dim},
    {"v_head_dim", &layout::Geometry::v_head_dim},
    {"kv", &layout::Geometry::kv},
    {"first_layer", &layout::Geometry::first_layer},
    {"first_head", &layout::Geometry::first_head},
};

bool needed(std::string_view number) {
  return number == "blocks" || number == "block_size" || number == "heads" || number == "head_dim";
}

layout::Geometry geometry_of(const Wanted& wanted, const catalogue::LayoutEntry* entry) {
  layout::Geometry out;
  for (const auto& [name, value] : wanted.numbers)
    if (std::none_of(std::begin(numbers), std::end(numbers), [&](const auto& n) { return name == n.first; }))
      throw Error(fmt::format("'{}' is not a number of a layout", name));
  std::vector<std::string> missing;
  for (const auto& [name, member] : numbers) {
    const auto given = wanted.numbers.find(name);
    const std::int64_t* fixed = nullptr;
    if (entry) {
      if (const auto it = entry->fixed.find(name); it != entry->fixed.end()) fixed = &it->second;
    }
    if (given == wanted.numbers.end()) {
      if (fixed)
        out.*member = *fixed;
      else if (needed(name))
        missing.push_back(name);
      continue;
    }
    if (fixed && *fixed != given->second) {
      throw Error(fmt::format("layout {} has {} = {}, found {}; leave it out or take another layout", wanted.name, name,
                              *fixed, given->second));
    }
    const bool may_be_zero = std::string_view(name).starts_with("first_") || std::string_view(name) == "v_head_dim";
    if (given->second < (may_be_zero ? 0 : 1))
      throw Error(fmt::format("expected {} of at least {}, found {}", name, may_be_zero ? 0 : 1, given->second));
    out.*member = given->second;
  }
  if (!missing.empty()) throw Error(fmt::format("layout {} needs {}", wanted.name, fmt::join(missing, ", ")));
  return out;
}

std::string list(const std::vector<std::int64_t>& values) { return fmt::format("({})", fmt::join(values, ", ")); }

std::vector<std::int64_t> shape_of(const layout::TensorView& view) {
  std::vector<std::int64_t> out;
  for (const layout::Dim& dim : view.dims) out.push_back(dim.extent);
  return out;
}
std::vector<std::int64_t> strides_of(const layout::TensorView& view) {
  std::vector<std::int64_t> out;
  for (const layout::Dim& dim : view.dims) out.push_back(dim.stride);
  return out;
}

// Codes may be viewed as integers of the same width.
bool dtypes_agree(const Tensor& tensor, layout::Dtype dtype) {
  const int bits = std::max(8, layout::bits(dtype));
  if (tensor.itemsize * 8 != bits) return false;
  return tensor.dtype == layout::name(dtype) || tensor.dtype == fmt::format("uint{}", bits) ||
         tensor.dtype == fmt::format("int{}", bits);
}

bool whole_allocation(const Tensor& tensor, std::int64_t bytes) {
  return tensor.shape.size() == 1 && tensor.itemsize == 1 && (tensor.strides[0] == 1 || tensor.shape[0] < 2) &&
         tensor.shape[0] == bytes;
}

// Throws unless the tensor has the view's shape and strides.
void hold_against(const Tensor& tensor, const layout::TensorView& view) {
  const auto axes = [&] {
    std::string out;
    for (const layout::Dim& dim : view.dims) out += (out.empty() ? "" : " ") + dim.axes;
    return out;
  };
  if (!dtypes_agree(tensor, view.dtype)) {
    throw Error(
        fmt::format("tensor {}: expected elements of {}, found {} of {} bytes; declare the layout with another dtype, or "
                    "hand over a view as integers of the same width",
                    view.name, layout::name(view.dtype), tensor.dtype, tensor.itemsize));
  }
  const auto shape = shape_of(view), strides = strides_of(view);
  if (tensor.shape != shape) {
    throw Error(fmt::format(
        "tensor {}: expected shape {} (axes {}), found {}; kvcts.describe(tensor) lists the layouts that have it", view.name,
        list(shape), axes(), list(tensor.shape)));
  }
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] > 1 && tensor.strides[d] != strides[d]) {
      throw Error(fmt::format(
          "tensor {}: expected strides of {} bytes (axes {}), found {}; the shape is right and the order in memory is not: "
          "kvcts.describe(tensor) lists the layouts that have it",
          view.name, list(strides), axes(), list(tensor.strides)));
    }
  }
}

}  // namespace

Subject make_subject(const Wanted& wanted, const catalogue::Catalogue& catalogue) {
  Subject out;
  const catalogue::LayoutEntry* entry = catalogue.layouts().find(wanted.name);
  if (entry) {
    out.id = entry->id, out.title = entry->title, out.text = entry->text;
  } else {
    try {
      out.text = layout::template_from_name(wanted.name);
    } catch (const Error&) {
      // Neither an id, a published name nor a template: the catalogue's error names the nearest id.
      if (wanted.name.find(' ') == std::string::npos) catalogue.layouts().at(wanted.name);
      throw;
    }
  }
  out.geometry = geometry_of(wanted, entry);
  const std::string dtype = !wanted.dtype.empty()             ? wanted.dtype
                            : entry && !entry->dtypes.empty() ? entry->dtypes.front()
                                                              : "bf16";
  if (entry && !entry->dtypes.empty() &&
      std::find(entry->dtypes.begin(), entry->dtypes.end(), dtype) == entry->dtypes.end()) {
    throw Error(fmt::format("layout {} holds {}, found dtype {}", entry->id, fmt::join(entry->dtypes, ", "), dtype));
  }
  out.scheme = catalogue::scheme_of(catalogue.dtypes().at(dtype));
  out.cache = layout::instantiate(out.text, out.geometry, out.scheme,
                                  wanted.tensors ? *wanted.tensors
                                  : entry        ? entry->tensors
                                                 : layout::TensorSpec{});
  layout::validate(out.cache);
  return out;
}

layout::ByteRange reach(const Tensor& tensor) {
  layout::ByteRange out{0, tensor.itemsize};
  for (std::size_t d = 0; d < tensor.shape.size(); ++d) {
    if (tensor.shape[d] == 0) return {0, 0};
    const std::int64_t last = (tensor.shape[d] - 1) * tensor.strides[d];
    (last < 0 ? out.begin : out.end) += last;
  }
  return out;
}

Bound attach(const Subject& subject, const std::vector<Tensor>& tensors) {
  const layout::Cache& cache = subject.cache;
  Bound out{cache, std::vector<TensorRange>(cache.allocations.size())};
  if (tensors.size() == cache.allocations.size() &&
      std::equal(tensors.begin(), tensors.end(), cache.allocations.begin(),
                 [](const Tensor& t, const layout::Allocation& a) { return whole_allocation(t, a.bytes); })) {
    for (std::size_t a = 0; a < tensors.size(); ++a)
      out.ranges[a].bytes = {tensors[a].data, static_cast<std::size_t>(tensors[a].shape[0])};
    return out;
  }
  if (tensors.size() != cache.tensors.size()) {
    std::vector<std::string> names;
    for (const auto& view : cache.tensors) names.push_back(view.name);
    throw Error(
        fmt::format("expected {} tensor{} ({}), found {}; pass one tensor, a list, or each allocation as a vector of bytes",
                    cache.tensors.size(), cache.tensors.size() == 1 ? "" : "s", fmt::join(names, ", "), tensors.size()));
  }
  struct Hull {
    std::uint8_t* base{nullptr};  ///< of byte 0 of the allocation
    std::string first;
    std::int64_t begin{std::numeric_limits<std::int64_t>::max()}, end{0};
  };
  std::vector<Hull> hulls(cache.allocations.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const layout::TensorView& view = cache.tensors[i];
    hold_against(tensors[i], view);
    Hull& hull = hulls[static_cast<std::size_t>(view.allocation)];
    std::uint8_t* const base = tensors[i].data - view.offset;
    if (hull.base && hull.base != base)
      throw Error(fmt::format(
          "tensors {} and {} are parts of one allocation in this layout, but their relative place is wrong ({} bytes off)",
          hull.first, view.name, base - hull.base));
    if (!hull.base) hull.base = base, hull.first = view.name;
    const layout::ByteRange range = reach(tensors[i]);
    hull.begin = std::min(hull.begin, view.offset + range.begin);
    hull.end = std::max(hull.end, view.offset + range.end);
  }
  for (std::size_t a = 0; a < hulls.size(); ++a) {
    if (!hulls[a].base)
      throw Error(fmt::format("no tensor covers allocation {}: pass each allocation as a vector of bytes",
                              cache.allocations[a].name));
    out.ranges[a] = {{hulls[a].base + hulls[a].begin, static_cast<std::size_t>(hulls[a].end - hulls[a].begin)},
                     hulls[a].begin};
  }
  for (layout::Plane& plane : out.cache.planes)
    plane.offset -= out.ranges[static_cast<std::size_t>(plane.allocation)].begin * 8;
  for (std::size_t a = 0; a < hulls.size(); ++a)
    out.cache.allocations[a].bytes = static_cast<std::int64_t>(out.ranges[a].bytes.size());
  return out;
}

}  // namespace kvcts::probe
