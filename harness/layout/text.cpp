// The text form of planes and caches. The printed form is the accepted form.
//
//   plane   := component dtype ['hi'] place [origin] '[' { AXIS '=' extent ':' stride ['@' step] } ']'
//   place   := 'a' allocation ('+'|'-') bits          origin := '{' AXIS '=' n { ',' AXIS '=' n } '}'
//   bits    := bytes | bits 'b'                       a step not written is the product of the later extents of the axis
//   cache   := lines: 'allocation' name bytes | plane | 'tensor' name component dtype place [origin] '[' dims ']'
//   dim     := axes '=' extent ':' bytes
#include <algorithm>
#include <cstdlib>

#include "layout/layout.hpp"
#include "layout/scanner.hpp"

namespace kvcts::layout {
namespace {

std::string bits_text(std::int64_t value) {
  return value % 8 == 0 ? std::to_string(value / 8) : std::to_string(value) + 'b';
}

std::int64_t parse_bits(Scanner& in, const std::string& what) {
  const std::int64_t value = in.integer(what);
  return in.accept('b') ? value : checked::mul(value, 8);
}

/// Steps implied by the order: the last mode of an axis counts in ones, the others in the extents after them. 0 stands for a
/// product that overflows: no step equals it, so such a step is always written.
std::vector<std::int64_t> implied_steps(const std::vector<Mode>& modes) {
  std::vector<std::int64_t> steps(modes.size());
  std::array<std::int64_t, axis_count> unit;
  unit.fill(1);
  for (std::size_t i = modes.size(); i-- > 0;) {
    std::int64_t& u = unit[static_cast<std::size_t>(modes[i].axis)];
    steps[i] = u;
    if (__builtin_mul_overflow(u, modes[i].extent, &u)) u = 0;
  }
  return steps;
}

std::string place_text(int allocation, const std::string& offset) {
  return 'a' + std::to_string(allocation) + (offset.starts_with('-') ? "" : "+") + offset;
}

std::string origin_text(const Coord& origin) {
  std::string out;
  for (Axis axis : all_axes) {
    if (origin[axis] == 0) continue;
    out += out.empty() ? " {" : ",";
    out += std::string(1, letter(axis)) + '=' + std::to_string(origin[axis]);
  }
  return out.empty() ? out : out + '}';
}

Axis parse_axis(Scanner& in) {
  const auto axis = axis_from_letter(in.peek());
  if (!axis) in.fail("an axis letter (L K B N H C)");
  in.skip();
  return *axis;
}

template <typename T>
T known(Scanner& in, T (*from_name)(std::string_view), const std::string& what) {
  const std::size_t begin = in.column();
  const auto word = in.word();
  try {
    return from_name(word);
  } catch (const Error& e) {
    in.rewind(begin);
    in.fail(what + " (" + e.what() + ")");
  }
}

/// 'a' allocation ('+'|'-') offset; leaves the sign to parse_bits.
int parse_allocation(Scanner& in) {
  in.spaces();
  if (!in.accept('a')) in.fail("a place like a0+4096");
  const std::int64_t allocation = in.integer("an allocation index");
  if (allocation < 0 || allocation > 1'000'000'000) in.fail("an allocation index from 0 to 1000000000");
  if (!in.accept('+') && in.peek() != '-') in.fail("'+' or '-' and an offset");
  return static_cast<int>(allocation);
}

Coord parse_origin(Scanner& in) {
  Coord origin;
  in.spaces();
  if (!in.accept('{')) return origin;
  do {
    const Axis axis = parse_axis(in);
    in.expect('=');
    origin[axis] = in.integer("a coordinate");
  } while (in.accept(','));
  in.expect('}');
  return origin;
}

Plane parse_plane(Scanner& in) {
  Plane plane;
  in.spaces();
  plane.component = known(in, &component_from_name, "a component");
  in.spaces();
  plane.dtype = known(in, &dtype_from_name, "a dtype");
  in.spaces();
  if (in.peek() == 'h') {
    if (in.word() != "hi") in.fail("'hi' or a place like a0+4096");
    plane.high_nibble_first = true;
  }
  plane.allocation = parse_allocation(in);
  plane.offset = parse_bits(in, "an offset in bytes");
  plane.origin = parse_origin(in);
  in.spaces();
  in.expect('[');
  std::vector<bool> written;
  for (in.spaces(); !in.accept(']'); in.spaces()) {
    Mode mode;
    mode.axis = parse_axis(in);
    in.expect('=');
    mode.extent = in.integer("an extent");
    if (mode.extent < 1) in.fail("an extent of 1 or more before this");
    in.expect(':');
    mode.stride = parse_bits(in, "a stride in bytes");
    written.push_back(in.accept('@'));
    if (written.back()) mode.step = in.integer("a step");
    if (mode.step < 1) in.fail("a step of 1 or more before this");
    plane.modes.push_back(mode);
    if (in.peek() != ' ' && in.peek() != ']') in.fail("a space or ']'");
  }
  const auto implied = implied_steps(plane.modes);
  for (std::size_t i = 0; i < plane.modes.size(); ++i) {
    if (written[i]) continue;
    if (implied[i] == 0) in.fail("steps that fit in 64 bits before this");
    plane.modes[i].step = implied[i];
  }
  return plane;
}

TensorView parse_tensor(Scanner& in) {
  TensorView tensor;
  in.spaces();
  tensor.name = in.name("a tensor name");
  in.spaces();
  tensor.component = known(in, &component_from_name, "a component");
  in.spaces();
  tensor.dtype = known(in, &dtype_from_name, "a dtype");
  tensor.allocation = parse_allocation(in);
  tensor.offset = in.integer("an offset in bytes");
  tensor.origin = parse_origin(in);
  in.spaces();
  in.expect('[');
  for (in.spaces(); !in.accept(']'); in.spaces()) {
    Dim dim;
    dim.axes = in.name("the axes of a dimension");
    in.expect('=');
    dim.extent = in.integer("an extent");
    in.expect(':');
    dim.stride = in.integer("a stride in bytes");
    tensor.dims.push_back(dim);
    if (in.peek() != ' ' && in.peek() != ']') in.fail("a space or ']'");
  }
  return tensor;
}

void expect_end(Scanner& in) {
  if (!in.done()) in.fail("the end of the line");
}

}  // namespace

std::string to_text(const Plane& plane) {
  std::string out = std::string(name(plane.component)) + ' ' + std::string(name(plane.dtype));
  if (plane.high_nibble_first) out += " hi";
  out += ' ' + place_text(plane.allocation, bits_text(plane.offset)) + origin_text(plane.origin) + " [";
  const auto implied = implied_steps(plane.modes);
  for (std::size_t i = 0; i < plane.modes.size(); ++i) {
    const Mode& m = plane.modes[i];
    if (i > 0) out += ' ';
    out += std::string(1, letter(m.axis)) + '=' + std::to_string(m.extent) + ':' + bits_text(m.stride);
    if (m.step != implied[i]) out += '@' + std::to_string(m.step);
  }
  return out + ']';
}

Plane plane_from_text(std::string_view text) {
  Scanner in(text);
  Plane plane = parse_plane(in);
  expect_end(in);
  return plane;
}

std::string to_text(const Cache& cache) {
  std::string out;
  for (const Allocation& a : cache.allocations)
    out += "allocation " + print_name(a.name) + ' ' + std::to_string(a.bytes) + '\n';
  for (const Plane& plane : cache.planes) out += to_text(plane) + '\n';
  for (const TensorView& t : cache.tensors) {
    out += "tensor " + print_name(t.name) + ' ' + std::string(name(t.component)) + ' ' + std::string(name(t.dtype)) + ' ' +
           place_text(t.allocation, std::to_string(t.offset)) + origin_text(t.origin) + " [";
    for (std::size_t i = 0; i < t.dims.size(); ++i) {
      const Dim& d = t.dims[i];
      out += (i > 0 ? " " : "") + print_name(d.axes) + '=' + std::to_string(d.extent) + ':' + std::to_string(d.stride);
    }
    out += "]\n";
  }
  return out;
}

Cache cache_from_text(std::string_view text) {
  Cache cache;
  int number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    Scanner in(text.substr(0, end), "line " + std::to_string(++number) + ", ");
    text.remove_prefix(std::min(end + 1, text.size()));
    if (in.done() || in.peek() == '#') continue;
    const std::size_t begin = in.column();
    const auto word = in.word();
    if (word == "allocation") {
      in.spaces();
      Allocation a;
      a.name = in.name("an allocation name");
      in.spaces();
      a.bytes = in.integer("a number of bytes");
      cache.allocations.push_back(a);
    } else if (word == "tensor") {
      cache.tensors.push_back(parse_tensor(in));
    } else {
      in.rewind(begin);
      if (word != "data" && word != "scale" && word != "gscale")
        in.fail("'allocation', 'tensor' or a plane (data, scale, gscale)");
      cache.planes.push_back(parse_plane(in));
    }
    expect_end(in);
  }
  return cache;
}

std::string order(const Plane& plane) {
  std::vector<const Mode*> modes;
  for (const Mode& m : plane.modes) modes.push_back(&m);
  const auto size = [](std::int64_t s) { return s < 0 ? 0 - static_cast<std::uint64_t>(s) : static_cast<std::uint64_t>(s); };
  std::stable_sort(modes.begin(), modes.end(),
                   [&](const Mode* a, const Mode* b) { return size(a->stride) > size(b->stride); });
  std::string out;
  for (const Mode* m : modes) out += letter(m->axis);
  return out;
}

}  // namespace kvcts::layout
