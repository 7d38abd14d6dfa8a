#include "layout/dtype.hpp"

#include <array>
#include <string>

#include "layout/error.hpp"
#include "layout/layout.hpp"

namespace kvcts::layout {
namespace {

struct Row {
  Dtype dtype;
  std::string_view name;
  int bits;
};

// Names follow ml_dtypes and PyTorch without their "float8_" prefix; e2m1 and e8m0 are the OCP MX names.
constexpr std::array<Row, 12> rows{{{Dtype::fp32, "fp32", 32},
                                    {Dtype::fp16, "fp16", 16},
                                    {Dtype::bf16, "bf16", 16},
                                    {Dtype::e4m3fn, "e4m3fn", 8},
                                    {Dtype::e5m2, "e5m2", 8},
                                    {Dtype::e4m3fnuz, "e4m3fnuz", 8},
                                    {Dtype::e5m2fnuz, "e5m2fnuz", 8},
                                    {Dtype::int8, "int8", 8},
                                    {Dtype::uint8, "uint8", 8},
                                    {Dtype::int4, "int4", 4},
                                    {Dtype::e2m1, "e2m1", 4},
                                    {Dtype::e8m0, "e8m0", 8}}};

constexpr std::array<std::string_view, 3> component_names{"data", "scale", "gscale"};

}  // namespace

int bits(Dtype dtype) { return rows[static_cast<std::size_t>(dtype)].bits; }
std::string_view name(Dtype dtype) { return rows[static_cast<std::size_t>(dtype)].name; }

Dtype dtype_from_name(std::string_view name) {
  std::string accepted;
  for (const Row& row : rows) {
    if (row.name == name) return row.dtype;
    accepted += accepted.empty() ? "" : ", ";
    accepted += row.name;
  }
  throw Error("unknown dtype '" + std::string(name) + "': expected one of " + accepted);
}

std::span<const Dtype> all_dtypes() {
  static constexpr auto list = [] {
    std::array<Dtype, rows.size()> out{};
    for (std::size_t i = 0; i < rows.size(); ++i) out[i] = rows[i].dtype;
    return out;
  }();
  return list;
}

std::string_view name(Component component) { return component_names[static_cast<std::size_t>(component)]; }

Component component_from_name(std::string_view name) {
  for (std::size_t i = 0; i < component_names.size(); ++i) {
    if (component_names[i] == name) return static_cast<Component>(i);
  }
  throw Error("unknown component '" + std::string(name) + "': expected data, scale or gscale");
}

}  // namespace kvcts::layout
