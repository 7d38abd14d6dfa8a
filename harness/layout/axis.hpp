// Axes of the logical coordinate (layer, kv, block, slot, head, channel) and the coordinate itself.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace kvcts::layout {

/// The named axes of a KV cache. A token's place in the pool is (block, slot).
/// Letters are vLLM's (vllm.v1.kv_cache_layout: L B H N C); `K` names the K/V axis, which vLLM folds into C.
enum class Axis : std::uint8_t { layer, kv, block, slot, head, channel };

inline constexpr int axis_count = 6;
inline constexpr std::array<Axis, axis_count> all_axes{Axis::layer, Axis::kv,   Axis::block,
                                                       Axis::slot,  Axis::head, Axis::channel};

constexpr char letter(Axis axis) { return "LKBNHC"[static_cast<int>(axis)]; }
std::string_view name(Axis axis);
/// Accepts a letter (L K B N H C). Returns nullopt for anything else.
std::optional<Axis> axis_from_letter(char c);

/// One value per axis. For scale planes `channel` counts scale groups, not elements.
struct Coord {
  std::array<std::int64_t, axis_count> v{};
  constexpr std::int64_t& operator[](Axis a) { return v[static_cast<std::size_t>(a)]; }
  constexpr std::int64_t operator[](Axis a) const { return v[static_cast<std::size_t>(a)]; }
  bool operator==(const Coord&) const = default;
  auto operator<=>(const Coord&) const = default;
};

/// A half-open box of coordinates: lo[a] <= c[a] < hi[a].
struct Box {
  Coord lo, hi;
  bool operator==(const Box&) const = default;
};

}  // namespace kvcts::layout
