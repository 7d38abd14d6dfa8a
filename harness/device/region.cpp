#include "device/region.hpp"

#include <algorithm>
#include <cstring>

namespace kvcts::device {
namespace {

constexpr std::uint64_t list_entries = 1 << 16;

/// Bytes searched for further differences at a time: at most as many can be wrong as the list has room for.
constexpr std::uint64_t window = list_entries;

template <class T>
std::span<const std::uint8_t> raw(const T& value) {
  return {reinterpret_cast<const std::uint8_t*>(&value), sizeof value};
}

/// Whether two of the planes share bits. Throws layout::Error if a plane shares bits with itself: which thread writes
/// last is then undefined.
bool overlapping(const std::vector<layout::Plane>& planes, std::uint64_t bytes) {
  layout::Cache cache;
  cache.allocations.push_back({"a0", static_cast<std::int64_t>(bytes)});
  cache.planes = planes;
  for (layout::Plane& plane : cache.planes) plane.allocation = 0;
  const auto shared = layout::overlaps(cache, 0);
  for (const layout::Overlap& overlap : shared) {
    if (overlap.plane_a == overlap.plane_b)
      throw layout::Error("a device cannot write a plane that has several coordinates at one place: " +
                          layout::to_text(planes[static_cast<std::size_t>(overlap.plane_a)]));
  }
  return !shared.empty();
}

}  // namespace

RegionWork::RegionWork(Gpu& gpu, const Image& image, Stream stream)
    : gpu_(gpu), image_(image), found_(gpu, sizeof(cuda::Findings)), list_(gpu, list_entries * sizeof(std::uint64_t)) {
  in_place_ = !overlapping(image.planes, image.bytes - image.base);
  for (const layout::Plane& plane : image.planes) {
    cuda::RowsPlan plan =
        cuda::plan_rows(image.content, plane, image.key, image.unblocked_generation, image.base, image.bytes);
    in_place_ = in_place_ && !plan.by_code;
    DeviceBuffer tables(gpu, plan.tables.bytes().size());
    tables.write(plan.tables.bytes(), stream);
    rows_.push_back({std::move(plan), std::move(tables)});
  }
  const auto poison = [&](std::span<const cuda::Range> ranges) {
    cuda::PoisonPlan plan = cuda::plan_poison(ranges, image.poison, image.bytes);
    DeviceBuffer tables(gpu, plan.tables.bytes().size());
    tables.write(plan.tables.bytes(), stream);
    return std::make_unique<Poison>(Poison{std::move(plan), std::move(tables)});
  };
  const std::vector<cuda::Range> everything{{0, image.bytes}};
  all_ = poison(everything);
  if (in_place_) free_ = poison(cuda::unwritten(image.bytes, image.base, image.planes, image.content));
  gpu.synchronize(stream);  // the tables have left the host
}

void RegionWork::fill(Address memory, Stream stream) {
  void* at = reinterpret_cast<void*>(memory);
  gpu_.launch("kvcts_write_poison", cuda::bind(all_->plan, at, all_->tables.pointer()), all_->plan.blocks(), stream);
  for (const Rows& rows : rows_)
    gpu_.launch(rows.plan.by_code ? "kvcts_generate_codes" : "kvcts_generate_rows",
                cuda::bind(rows.plan, at, rows.tables.pointer()), rows.plan.blocks(), stream);
}

void RegionWork::launch_check(Address memory, const cuda::Probe& probe, Stream stream) {
  void* at = reinterpret_cast<void*>(memory);
  if (!in_place_) {
    if (!beside_) beside_ = std::make_unique<DeviceBuffer>(gpu_, image_.bytes);
    fill(beside_->address(), stream);
    const cuda::CompareArgs args{static_cast<const cuda::u8*>(at), static_cast<const cuda::u8*>(beside_->pointer()),
                                 image_.bytes, probe};
    gpu_.launch("kvcts_compare", args, (image_.bytes + 16 * cuda::range_vectors - 1) / (16 * cuda::range_vectors), stream);
    return;
  }
  for (const Rows& rows : rows_)
    gpu_.launch("kvcts_check_rows", cuda::bind(rows.plan, at, rows.tables.pointer(), probe), rows.plan.blocks(), stream);
  gpu_.launch("kvcts_check_poison", cuda::bind(free_->plan, at, free_->tables.pointer(), probe), free_->plan.blocks(),
              stream);
}

void RegionWork::launch_check(Address memory, Stream stream) {
  launch_check(memory, {static_cast<cuda::Findings*>(found_.pointer()), nullptr, 0, 0, 0}, stream);
}

cuda::Findings RegionWork::findings(Stream stream) {
  cuda::Findings out;
  found_.read({reinterpret_cast<std::uint8_t*>(&out), sizeof out}, stream);
  gpu_.synchronize(stream);
  return out;
}

kernels::Difference RegionWork::check(Address memory, std::size_t limit, Stream stream) {
  kernels::Difference difference;
  cuda::Probe probe{static_cast<cuda::Findings*>(found_.pointer()), static_cast<cuda::u64*>(list_.pointer()), 0, 0,
                    list_entries};
  // One pass counts. Only if something is wrong, a second pass lists a window that starts at the first wrong byte.
  const cuda::Findings none;
  const auto pass = [&] {
    found_.write(raw(none), stream);
    launch_check(memory, probe, stream);
    return findings(stream);
  };
  cuda::Findings found = pass();
  difference.wrong_bytes = static_cast<std::int64_t>(found.wrong_bytes);
  while (found.first != ~std::uint64_t{0} && difference.first.size() < limit) {
    probe.from = found.first;
    probe.to = found.first + window;
    found = pass();
    std::vector<std::uint64_t> offsets(std::min(found.listed, list_entries));
    list_.read({reinterpret_cast<std::uint8_t*>(offsets.data()), offsets.size() * sizeof(std::uint64_t)}, stream);
    gpu_.synchronize(stream);
    std::sort(offsets.begin(), offsets.end());
    for (const std::uint64_t at : offsets)
      if (difference.first.size() < limit) difference.first.push_back(static_cast<std::int64_t>(at));
    if (difference.first.size() >= limit) break;
    probe.from = probe.to;  // bytes after the window
    probe.to = probe.from;
    found = pass();
  }
  return difference;
}

}  // namespace kvcts::device
