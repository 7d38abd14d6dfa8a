// For test_convert.py: converts bytes from standard input to standard output.
//   convert FROM TO saturate|special down|up|nearest COUNT
//   quantise nvfp4|mxfp8|mxfp4|row:DTYPE:ELEMENTS FROM BLOCKS GLOBAL down|up      -> codes, then scales
//   dequantise RULE TO BLOCKS GLOBAL down|up                                     codes, then scales -> elements
#include <cstdio>
#include <exception>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "kernels/convert/testing/convert.hpp"

namespace {

using namespace kvcts::kernels::convert;
using kvcts::layout::dtype_from_name;
using Bytes = std::vector<std::uint8_t>;

Rounding rounding(const std::string& name) {
  if (name == "down") return Rounding::down;
  if (name == "up") return Rounding::up;
  if (name == "nearest") return Rounding::nearest;
  throw kvcts::layout::Error("unknown rounding '" + name + "': expected down, up or nearest");
}

BlockRule rule(const std::string& name, float global, Rounding rounded) {
  if (name == "nvfp4") return nvfp4(global);
  if (name == "mxfp8") return mxfp8(rounded);
  if (name == "mxfp4") return mxfp4(rounded);
  const std::size_t last = name.rfind(':');
  if (name.rfind("row:", 0) == 0 && last > 4)
    return per_row(dtype_from_name(name.substr(4, last - 4)), std::stoll(name.substr(last + 1)));
  throw kvcts::layout::Error("unknown rule '" + name + "': expected nvfp4, mxfp8, mxfp4 or row:DTYPE:ELEMENTS");
}

Bytes run(const std::vector<std::string>& args, const Bytes& in) {
  Options options;
  options.threads = 0;
  const std::string& verb = args.at(0);
  if (verb == "convert") {
    const auto from = dtype_from_name(args.at(1)), to = dtype_from_name(args.at(2));
    options.overflow = args.at(3) == "special" ? Overflow::special : Overflow::saturate;
    options.rounding = rounding(args.at(4));
    const std::int64_t count = std::stoll(args.at(5));
    Bytes out(static_cast<std::size_t>(packed_bytes(to, count)));
    convert(from, in, to, out, count, options);
    return out;
  }
  const std::int64_t blocks = std::stoll(args.at(3));
  const BlockRule blocked = rule(args.at(1), std::stof(args.at(4)), rounding(args.at(5)));
  const auto full = dtype_from_name(args.at(2));
  const auto codes = static_cast<std::size_t>(packed_bytes(blocked.element, blocks * blocked.block));
  const auto scales = static_cast<std::size_t>(packed_bytes(blocked.scale, blocks));
  if (verb == "quantise") {
    Bytes out(codes + scales);
    quantise(blocked, full, in, std::span(out).first(codes), std::span(out).last(scales), blocks, options);
    return out;
  }
  Bytes out(static_cast<std::size_t>(packed_bytes(full, blocks * blocked.block)));
  dequantise(blocked, std::span(in).first(codes), std::span(in).subspan(codes), full, out, blocks, options);
  return out;
}

}  // namespace

int main(int argc, char** argv) try {
  const Bytes in{std::istreambuf_iterator<char>(std::cin), {}};
  const Bytes out = run({argv + 1, argv + argc}, in);
  return std::fwrite(out.data(), 1, out.size(), stdout) == out.size() ? 0 : 1;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 2;
}
