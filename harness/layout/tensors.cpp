// Planes -> the tensors a framework shows.
//
// A dimension of a view runs over one or several axes. Each data plane gives the dimension's (extent, stride) there; where a
// cache keeps parts of a dimension in separate planes (K and V of different widths, latent and rope), the parts must
// continue one another at one stride. Nothing is guessed: anything that is not one strided view is an Error.
#include "layout/tensors.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "layout/checked.hpp"
#include "layout/digits.hpp"
#include "layout/scanner.hpp"

namespace kvcts::layout {
namespace {

using checked::add;
using checked::mul;
using checked::sub;

constexpr std::int64_t list_limit = 100'000;
constexpr std::int64_t unknown = -1;  ///< stride of an extent-1 dimension that nothing places

enum class Form { axes, physical, one, bytes };
struct DimSpec {
  Form form{Form::axes};
  std::string text;  ///< as written: "NHC", "(NHC)", "1", "*"
  std::vector<Axis> axes;
};

std::vector<Axis> parse_list(std::string_view text) {
  Scanner in(text, "tensor list, ");
  std::vector<Axis> axes;
  while (!in.done()) {
    const auto axis = axis_from_letter(in.peek());
    if (!axis || *axis == Axis::channel || std::find(axes.begin(), axes.end(), *axis) != axes.end())
      in.fail("one of L K B N H, each once");
    axes.push_back(*axis);
    in.skip();
  }
  return axes;
}

std::vector<DimSpec> parse_shape(std::string_view text, const std::vector<Axis>& list) {
  Scanner in(text, "tensor shape, ");
  std::vector<DimSpec> dims;
  std::vector<Axis> seen = list;
  while (!in.done()) {
    if (!dims.empty() && dims.back().form == Form::bytes) in.fail("nothing after '*'");
    DimSpec dim;
    if (in.accept('1')) {
      dim = {Form::one, "1", {}};
    } else if (in.accept('*')) {
      dim = {Form::bytes, "*", {}};
    } else {
      const bool physical = in.accept('(');
      dim.form = physical ? Form::physical : Form::axes;
      while (auto axis = axis_from_letter(in.peek())) {
        if (std::find(seen.begin(), seen.end(), *axis) != seen.end()) in.fail("each axis once, in the list or in the shape");
        seen.push_back(*axis);
        dim.axes.push_back(*axis);
        dim.text += in.peek();
        in.skip();
      }
      if (dim.axes.empty()) in.fail("axis letters (L K B N H C), letters in parentheses, '1' or '*'");
      if (physical) {
        in.expect(')');
        dim.text = '(' + dim.text + ')';
      }
    }
    const char next = in.peek();
    if (next != '\0' && next != ' ') in.fail("a space between dimensions");
    dims.push_back(std::move(dim));
  }
  return dims;
}

/// The part of a plane at one coordinate of an axis; nullopt when it has none.
std::optional<Plane> restricted(const Plane& plane, Axis axis, std::int64_t value) {
  std::int64_t left = sub(value, plane.origin[axis]);
  if (left < 0) return std::nullopt;
  const AxisDigits digits(plane, axis);
  if (left > digits.reach(plane)) return std::nullopt;
  Plane out = plane;
  for (int i = 0; i < digits.count; ++i) {
    const Mode& m = plane.modes[digits.mode[static_cast<std::size_t>(i)]];
    const std::int64_t digit = left / m.step;
    if (digit >= m.extent) return std::nullopt;
    left -= digit * m.step;
    out.offset = add(out.offset, mul(digit, m.stride));
  }
  if (left != 0) return std::nullopt;
  std::erase_if(out.modes, [&](const Mode& m) { return m.axis == axis; });
  out.origin[axis] = value;
  return out;
}

struct Span {
  std::int64_t extent{1};
  std::int64_t stride{unknown};
  bool operator==(const Span&) const = default;
};

/// (extent, stride in bits) of a dimension in one plane.
Span span_of(const Plane& plane, const DimSpec& dim) {
  std::vector<Mode> chain;  // outermost first
  Span span;
  if (dim.form == Form::physical) {
    for (const Mode& m : plane.modes)
      if (m.extent > 1 && std::find(dim.axes.begin(), dim.axes.end(), m.axis) != dim.axes.end()) chain.push_back(m);
    std::stable_sort(chain.begin(), chain.end(), [](const Mode& a, const Mode& b) { return a.stride > b.stride; });
  } else {
    for (Axis axis : dim.axes) {
      const AxisDigits digits(plane, axis);
      std::int64_t unit = 1;
      for (int i = digits.count - 1; i >= 0; --i) {
        const Mode& m = plane.modes[digits.mode[static_cast<std::size_t>(i)]];
        if (m.step != unit)
          throw Error("tensor dimension " + dim.text + ": axis " + letter(axis) + " has gaps; list or split it");
        unit = mul(unit, m.extent);
      }
      for (int i = 0; i < digits.count; ++i) chain.push_back(plane.modes[digits.mode[static_cast<std::size_t>(i)]]);
    }
  }
  for (std::size_t i = chain.size(); i-- > 0;) {
    if (i + 1 < chain.size() && chain[i].stride != mul(chain[i + 1].stride, chain[i + 1].extent)) {
      throw Error("tensor dimension " + dim.text + " is not one strided dimension: " + letter(chain[i].axis) +
                  " has stride " + std::to_string(chain[i].stride) + " bits, expected " +
                  std::to_string(mul(chain[i + 1].stride, chain[i + 1].extent)) + "; show the axes as separate dimensions");
    }
    span.extent = mul(span.extent, chain[i].extent);
  }
  if (!chain.empty()) {
    span.stride = chain.back().stride;
  } else {
    for (const Mode& m : plane.modes) {  // extents of one keep their written stride
      if (std::find(dim.axes.begin(), dim.axes.end(), m.axis) != dim.axes.end()) span.stride = m.stride;
    }
  }
  return span;
}

bool unlike(const Plane& a, const Plane& b, const DimSpec& dim) {
  return std::any_of(dim.axes.begin(), dim.axes.end(), [&](Axis axis) {
    return a.origin[axis] != b.origin[axis] || domain(a).hi[axis] != domain(b).hi[axis];
  });
}

/// The dimension over several planes that differ along it: they must continue one another.
Span joined(std::vector<Plane>& planes, const DimSpec& dim) {
  std::sort(planes.begin(), planes.end(), [&](const Plane& a, const Plane& b) {
    for (Axis axis : dim.axes)
      if (a.origin[axis] != b.origin[axis]) return a.origin[axis] < b.origin[axis];
    return false;
  });
  Span all{0, unknown};
  for (const Plane& plane : planes) {
    const Span part = span_of(plane, dim);
    if (part.extent > 1) all.stride = part.stride;
  }
  if (all.stride == unknown) all.stride = sub(planes[1].offset, planes[0].offset);
  for (const Plane& plane : planes) {
    const Span part = span_of(plane, dim);
    const bool continues = plane.offset == add(planes.front().offset, mul(all.extent, all.stride));
    if (!continues || (part.extent > 1 && part.stride != all.stride))
      throw Error("tensor dimension " + dim.text + " is not one strided dimension: its parts do not continue one another");
    all.extent = add(all.extent, part.extent);
  }
  return all;
}

/// Bits to bytes; 4-bit codes are shown as uint8, two per unit along their contiguous dimension.
void finish(TensorView& view, std::vector<Span> spans) {
  const int width = bits(view.dtype);
  if (width == 4) {
    for (Span& span : spans) {
      if (span.stride != 4) continue;
      if (span.extent % 2 != 0)
        throw Error("tensor " + view.name + ": " + std::to_string(span.extent) + " codes of 4 bits do not fill whole bytes");
      span = {span.extent / 2, 8};
    }
    view.dtype = Dtype::uint8;
  }
  Span next{1, std::max(width, 8)};
  for (std::size_t i = spans.size(); i-- > 0;) {
    Span& span = spans[i];
    if (span.stride == unknown) span.stride = mul(next.extent, next.stride);
    if (span.stride % 8 != 0)
      throw Error("tensor " + view.name + ": a stride of " + std::to_string(span.stride) + " bits is not whole bytes");
    view.dims[i].extent = span.extent;
    view.dims[i].stride = span.stride / 8;
    next = span;
  }
}

TensorView start(const std::string& name, const Plane& first) {
  TensorView view;
  view.name = name;
  view.allocation = first.allocation;
  view.dtype = first.dtype;
  view.component = first.component;
  view.origin = first.origin;
  return view;
}

/// Raw bytes of a whole allocation: the leading dimensions as given, the rest of the bytes in the last one.
TensorView bytes_view(const std::string& name, const std::vector<Plane>& planes, const std::vector<DimSpec>& dims,
                      const Allocation& allocation) {
  TensorView view = start(name, planes.front());
  view.dtype = Dtype::uint8;
  std::vector<Span> spans;
  std::int64_t leading = 1;
  for (const DimSpec& dim : dims) {
    view.dims.push_back({0, 0, dim.text});
    std::int64_t extent = 1;
    for (Axis axis : dim.axes) {
      const Box box = domain(planes.front());
      extent = mul(extent, box.hi[axis] - box.lo[axis]);
    }
    if (dim.form == Form::bytes) {
      if (allocation.bytes % leading != 0)
        throw Error("tensor " + name + ": " + std::to_string(allocation.bytes) + " bytes do not divide into " +
                    std::to_string(leading) + " rows");
      extent = allocation.bytes / leading;
    }
    leading = mul(leading, extent);
    spans.push_back({extent, unknown});
  }
  finish(view, spans);
  return view;
}

TensorView shaped_view(const std::string& name, std::vector<Plane> planes, const std::vector<DimSpec>& dims) {
  for (const Plane& plane : planes) {
    if (plane.dtype != planes.front().dtype || plane.high_nibble_first != planes.front().high_nibble_first) {
      throw Error("tensor " + name + " would mix " + std::string(layout::name(planes.front().dtype)) + " and " +
                  std::string(layout::name(plane.dtype)) + "; show it as bytes with '*'");
    }
    for (const Mode& m : plane.modes) {
      const bool shown = std::any_of(dims.begin(), dims.end(), [&](const DimSpec& d) {
        return std::find(d.axes.begin(), d.axes.end(), m.axis) != d.axes.end();
      });
      if (!shown && m.extent > 1) {
        throw Error("tensor " + name + ": axis " + letter(m.axis) + " of extent " + std::to_string(m.extent) +
                    " is neither in the list nor in the shape; add it");
      }
    }
  }
  const DimSpec* varying = nullptr;
  for (const DimSpec& dim : dims) {
    const bool here =
        std::any_of(planes.begin(), planes.end(), [&](const Plane& p) { return unlike(planes.front(), p, dim); });
    if (!here) continue;
    if (varying != nullptr)
      throw Error("tensor " + name + " is not one strided view: its parts differ along " + varying->text + " and " +
                  dim.text);
    varying = &dim;
  }
  if (varying == nullptr && planes.size() > 1) {
    throw Error("tensor " + name + ": " + std::to_string(planes.size()) +
                " planes hold the same coordinates; give the list or shape that distinguishes them");
  }
  std::vector<Span> spans;
  for (const DimSpec& dim : dims) {
    Span span;
    if (&dim == varying) {
      span = joined(planes, dim);
    } else {
      span = span_of(planes.front(), dim);
      for (const Plane& plane : planes)
        if (span_of(plane, dim) != span)
          throw Error("tensor " + name + " is not one strided view: dimension " + dim.text + " differs between its parts");
    }
    spans.push_back(span);
  }
  const auto first =
      std::min_element(planes.begin(), planes.end(), [](const Plane& a, const Plane& b) { return a.offset < b.offset; });
  TensorView view = start(name, *first);
  if (first->offset % 8 != 0) throw Error("tensor " + name + " does not start at a whole byte");
  view.offset = first->offset / 8;
  for (const DimSpec& dim : dims) view.dims.push_back({0, 0, dim.text});
  finish(view, spans);
  return view;
}

/// The axis along which planes with equal modes lie at equal distances (K halves of one allocation); sorts them.
std::optional<Span> stacked(std::vector<Plane>& planes, Axis& axis) {
  const Plane& first = planes.front();
  std::optional<Axis> varying;
  for (const Plane& p : planes) {
    if (p.modes != first.modes || p.dtype != first.dtype || p.component != first.component) return std::nullopt;
    for (Axis a : all_axes) {
      if (p.origin[a] == first.origin[a]) continue;
      if (varying.value_or(a) != a) return std::nullopt;
      varying = a;
    }
  }
  if (!varying) return std::nullopt;
  axis = *varying;
  std::sort(planes.begin(), planes.end(), [&](const Plane& a, const Plane& b) { return a.origin[axis] < b.origin[axis]; });
  const std::int64_t stride = sub(planes[1].offset, planes[0].offset);
  for (std::size_t i = 1; i < planes.size(); ++i)
    if (planes[i].origin[axis] != planes[i - 1].origin[axis] + 1 || sub(planes[i].offset, planes[i - 1].offset) != stride)
      return std::nullopt;
  return Span{static_cast<std::int64_t>(planes.size()), stride};
}

/// Dimensions in physical order: the modes of a single plane, or the common modes of several, then bytes.
TensorView physical_view(const std::string& name, std::vector<Plane> planes, const Allocation& allocation) {
  std::vector<Dim> dims;
  std::vector<Span> spans;
  const auto dimension = [&](char axis, Span span) {
    dims.push_back({0, 0, std::string(1, axis)});
    spans.push_back(span);
  };
  const auto view_of = [&](bool bytes) {
    TensorView view = start(name, planes.front());
    view.dims = dims;
    if (bytes) view.dtype = Dtype::uint8;
    if (!bytes && planes.front().offset % 8 != 0) throw Error("tensor " + name + " does not start at a whole byte");
    view.offset = bytes ? 0 : planes.front().offset / 8;
    finish(view, spans);
    return view;
  };
  Axis axis{};
  const auto stack = planes.size() > 1 ? stacked(planes, axis) : std::nullopt;
  if (stack || planes.size() == 1) {
    bool placed = !stack;
    for (const Mode& m : planes.front().modes) {
      if (!placed && m.stride < stack->stride) {
        dimension(letter(axis), *stack);
        placed = true;
      }
      dimension(letter(m.axis), {m.extent, m.stride});
    }
    if (!placed) dimension(letter(axis), *stack);
    return view_of(false);
  }
  // A mode is common when every plane has it at the same place and lies within one of its periods.
  std::int64_t inner = mul(allocation.bytes, 8);
  for (std::size_t i = 0;; ++i) {
    const auto& modes = planes.front().modes;
    if (i >= modes.size() || modes[i].stride % 8 != 0) break;
    const bool common = std::all_of(planes.begin(), planes.end(), [&](const Plane& p) {
      return i < p.modes.size() && p.modes[i] == modes[i] && p.offset < modes[i].stride;
    });
    if (!common) break;
    dimension(letter(modes[i].axis), {modes[i].extent, modes[i].stride});
    inner = modes[i].stride;
  }
  dims.push_back({0, 0, "*"});
  spans.push_back({inner / 8, 8});
  return view_of(true);
}

std::string view_name(const std::vector<Plane>& planes, const std::vector<Axis>& list, bool latent) {
  std::optional<std::int64_t> kv = planes.front().origin[Axis::kv];
  for (const Plane& plane : planes) {
    const Box box = domain(plane);
    if (box.lo[Axis::kv] != *kv || box.hi[Axis::kv] != *kv + 1) {
      kv.reset();
      break;
    }
  }
  std::string out = latent || !kv ? "kv" : *kv == 0 ? "k" : "v";
  for (Axis axis : list)
    if (axis != Axis::kv) out += std::string(".") + letter(axis) + std::to_string(planes.front().origin[axis]);
  return out;
}

/// Calls add_view for data planes by list coordinate, outermost first, then by allocation.
template <class AddView>
void walk(const std::vector<Plane>& planes, const std::vector<Axis>& list, std::size_t level, const AddView& add_view) {
  if (planes.empty()) return;
  if (level == list.size()) {
    std::map<int, std::vector<Plane>> by_allocation;
    for (const Plane& p : planes) by_allocation[p.allocation].push_back(p);
    for (const auto& [allocation, here] : by_allocation) add_view(here, allocation);
    return;
  }
  const Axis axis = list[level];
  std::map<std::int64_t, std::vector<Plane>> by_coordinate;
  for (const Plane& p : planes) {
    const Box box = domain(p);
    if (box.hi[axis] - box.lo[axis] > list_limit)
      throw Error("a tensor list over " + std::to_string(box.hi[axis] - box.lo[axis]) +
                  " coordinates is too long; expected at most " + std::to_string(list_limit));
    for (std::int64_t value = box.lo[axis]; value < box.hi[axis]; ++value)
      if (auto part = restricted(p, axis, value)) by_coordinate[value].push_back(std::move(*part));
  }
  for (const auto& [value, here] : by_coordinate) walk(here, list, level + 1, add_view);
}

}  // namespace

std::vector<TensorView> tensor_views(const Cache& cache, const TensorSpec& spec, bool latent) {
  const std::vector<Axis> list = parse_list(spec.list);
  const std::vector<DimSpec> dims = parse_shape(spec.shape, list);
  const bool raw = !dims.empty() && dims.back().form == Form::bytes;
  std::vector<TensorView> views;
  std::set<std::string> names;
  std::vector<std::vector<Plane>> in_allocation(cache.allocations.size());
  std::vector<bool> has_data(cache.allocations.size(), false);
  for (const Plane& p : cache.planes) {
    in_allocation[static_cast<std::size_t>(p.allocation)].push_back(p);
    if (p.component == Component::data) has_data[static_cast<std::size_t>(p.allocation)] = true;
  }

  const auto add_view = [&](const std::vector<Plane>& data, int allocation) {
    const Allocation& memory = cache.allocations[static_cast<std::size_t>(allocation)];
    const std::string base = list.empty() ? memory.name : view_name(data, list, latent);
    std::string name = base;
    for (int n = 2; !names.insert(name).second; ++n) name = base + '.' + std::to_string(n);
    const std::vector<Plane>& all = in_allocation[static_cast<std::size_t>(allocation)];
    bool inside = false;  // the list selects a part of the allocation
    for (const Plane& p : all)
      for (const Mode& m : p.modes)
        inside = inside || (m.extent > 1 && std::find(list.begin(), list.end(), m.axis) != list.end());
    const bool mixed = all.size() > 1 && (data.size() > 1 || std::any_of(all.begin(), all.end(), [](const Plane& p) {
                                            return p.component != Component::data;
                                          }));
    if ((raw || (dims.empty() && mixed)) && inside) {
      throw Error("tensor " + name + ": bytes of a part of allocation '" + memory.name +
                  "' have no shape; give one in axes");
    }
    if (raw)
      views.push_back(bytes_view(name, data, dims, memory));
    else if (!dims.empty())
      views.push_back(shaped_view(name, data, dims));
    else
      views.push_back(physical_view(name, mixed ? all : data, memory));
  };

  std::vector<Plane> data;
  std::copy_if(cache.planes.begin(), cache.planes.end(), std::back_inserter(data),
               [](const Plane& p) { return p.component == Component::data; });
  walk(data, list, 0, add_view);

  for (std::size_t a = 0; a < cache.allocations.size(); ++a) {
    if (has_data[a] || in_allocation[a].empty()) continue;
    views.push_back(physical_view(cache.allocations[a].name, in_allocation[a], cache.allocations[a]));
  }
  return views;
}

}  // namespace kvcts::layout
