// Compares what the device computes with the host.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "device/check/checks.hpp"
#include "device/memory.hpp"
#include "device/region.hpp"
#include "golden/golden.hpp"
#include "kernels/convert/element.hpp"
#include "kernels/cuda/plan.hpp"
#include "kernels/poison.hpp"
#include "kernels/relayout.hpp"
#include "layout/template.hpp"

namespace kvcts::device::checks {
namespace {

using layout::Axis;
using layout::Dtype;

/// Finds the first difference of two byte strings; throws CheckFailure.
void expect_equal(std::span<const std::uint8_t> found, std::span<const std::uint8_t> expected, const std::string& what) {
  const auto at = std::mismatch(found.begin(), found.end(), expected.begin(), expected.end());
  if (at.first == found.end() && at.second == expected.end()) return;
  throw CheckFailure(what + ": byte " + std::to_string(at.first - found.begin()) + " of " + std::to_string(expected.size()) +
                     " differs from the host's");
}

std::vector<std::uint8_t> read(DeviceBench& b, Address from, std::uint64_t bytes) {
  std::vector<std::uint8_t> out(bytes);
  check(b.gpu.driver(), b.gpu.driver().copy_out(out.data(), from, bytes, b.stream), "copying from the device");
  b.gpu.synchronize(b.stream);
  return out;
}

std::vector<kernels::BlockContent> content_of(const golden::GoldenTensor& tensor) {
  std::vector<kernels::BlockContent> content;
  for (std::size_t i = 0; i < tensor.block_table.size(); ++i) {
    const std::int64_t first = static_cast<std::int64_t>(i) * tensor.geometry.block_size;
    const std::int64_t count = std::min(tensor.geometry.block_size, tensor.tokens - first);
    if (count > 0) content.push_back({tensor.block_table[i], tensor.generation, first, 0, count});
  }
  return content;
}

/// One allocation of a golden tensor: the device writes it, the file verifies it, then the device checks it in place.
void golden_allocation(DeviceBench& b, const golden::GoldenTensor& tensor, const layout::Cache& cache, std::size_t a) {
  const auto& golden = tensor.allocations[a].bytes;
  Image image;
  image.bytes = golden.size();
  image.poison = kernels::poison_key(tensor.seed, tensor.side, tensor.rank, static_cast<std::uint32_t>(a));
  image.content = content_of(tensor);
  image.key = {tensor.seed, tensor.pass, tensor.origin};
  image.unblocked_generation = tensor.generation;
  for (const auto& plane : cache.planes) {
    if (plane.allocation == static_cast<int>(a)) image.planes.push_back(plane);
  }
  RegionWork work(b.gpu, image, b.stream);
  DeviceBuffer memory(b.gpu, image.bytes);
  work.fill(memory.address(), b.stream);
  const std::string what = tensor.layout + " " + tensor.dtype + " " + tensor.allocations[a].name;
  expect_equal(read(b, memory.address(), image.bytes), golden, what);
  if (const auto wrong = work.check(memory.address(), 1, b.stream); wrong.wrong_bytes != 0) {
    throw CheckFailure(what + ": the device reports " + std::to_string(wrong.wrong_bytes) +
                       " wrong bytes in memory equal to the golden tensor");
  }
  // This check must fail.
  const std::uint64_t at = image.bytes / 2;
  const std::uint8_t flipped = golden[at] ^ 0x04;
  check(b.gpu.driver(), b.gpu.driver().copy_in(memory.address() + at, &flipped, 1, b.stream), "corrupting a byte");
  b.gpu.synchronize(b.stream);
  const auto found = work.check(memory.address(), 4, b.stream);
  if (found.wrong_bytes != 1 || found.first != std::vector<std::int64_t>{static_cast<std::int64_t>(at)}) {
    throw CheckFailure(what + ": one byte was corrupted, at " + std::to_string(at) + "; the device finds " +
                       std::to_string(found.wrong_bytes));
  }
}

}  // namespace

layout::Plane packed_pool(const char* letters, Dtype dtype, std::int64_t blocks, std::int64_t heads, std::int64_t d) {
  layout::Plane plane;
  plane.dtype = dtype;
  for (const char* letter = letters; *letter != '\0'; ++letter) {
    const Axis axis = *layout::axis_from_letter(*letter);
    const std::int64_t extent = axis == Axis::block     ? blocks
                                : axis == Axis::slot    ? 16
                                : axis == Axis::head    ? heads
                                : axis == Axis::channel ? d
                                                        : 2;
    plane.modes.push_back({axis, extent, 0, 1});
  }
  std::int64_t stride = layout::bits(dtype);
  for (auto mode = plane.modes.rbegin(); mode != plane.modes.rend(); ++mode) {
    mode->stride = stride;
    stride *= mode->extent;
  }
  return plane;
}

std::string canary(DeviceBench& b) {
  b.gpu.canary();
  return "tags of a small pool equal the host's";
}

std::string goldens(DeviceBench& b) {
  if (b.golden.empty()) throw Skip("no folder of golden tensors was given (--golden)");
  std::size_t tensors = 0, skipped = 0;
  std::string layout;
  for (const auto& entry : golden::list(b.golden)) {
    if (entry.layout == layout) continue;
    layout = entry.layout;
    for (const auto& tensor : golden::load_all(b.golden, layout)) {
      const layout::Cache cache = layout::instantiate(tensor.template_text, tensor.geometry, tensor.scheme);
      try {
        for (std::size_t a = 0; a < tensor.allocations.size(); ++a) golden_allocation(b, tensor, cache, a);
        ++tensors;
      } catch (const layout::Error&) {
        ++skipped;  // coordinates that share a place: which thread writes last is undefined
      }
    }
  }
  b.numbers = {{"tensors", tensors}, {"aliased", skipped}};
  if (tensors == 0) throw CheckFailure("no golden tensor was found in " + b.golden.string());
  return std::to_string(tensors) + " golden tensors written bit for bit and checked in place; " + std::to_string(skipped) +
         " with aliased coordinates left out";
}

std::string memory_kinds(DeviceBench& b) {
  std::string done;
  const layout::Plane plane = packed_pool("BKNHC", Dtype::bf16, 64, 8, 128);
  Image image;
  image.planes = {plane};
  image.base = 4096 + 64;
  image.bytes = image.base + 64 * 2 * 16 * 8 * 256 + 4096;
  image.poison = 5;
  for (std::int64_t block = 0; block < 64; block += 3)
    image.content.push_back({block, 1, block * 16, 0, block % 2 == 0 ? 16 : 7});
  std::vector<std::uint8_t> expected(image.bytes);
  kernels::fill_poison(image.poison, 0, expected);
  kernels::generate(std::span(expected).subspan(image.base), plane, image.content, image.key, 0);
  for (const auto kind :
       {MemoryKind::device, MemoryKind::pool, MemoryKind::vmm, MemoryKind::pinned, MemoryKind::registered}) {
    const std::string word(name(kind));
    if (const std::string why = lack(b.gpu, kind); !why.empty()) {
      b.numbers[word] = "skipped: " + why;
      continue;
    }
    const auto memory = allocate(b.gpu, kind, image.bytes + 16);
    RegionWork work(b.gpu, image, b.stream);
    work.fill(memory->address(), b.stream);
    expect_equal(read(b, memory->address(), image.bytes), expected, word);
    if (const auto wrong = work.check(memory->address(), 1, b.stream); wrong.wrong_bytes != 0)
      throw CheckFailure(word + ": the check in place reports wrong bytes");
    b.numbers[word] = "pass";
    done += (done.empty() ? "" : ", ") + word;
  }
  return done;
}

std::string far_offsets(DeviceBench& b) {
  // A pool whose last block lies beyond 4 GiB: 32-bit counts go wrong there.
  const std::int64_t block = 16 * 8 * 256, blocks = (std::int64_t{5} << 30) / block;
  Image image;
  image.planes = {packed_pool("BNHC", Dtype::bf16, blocks, 8, 128)};
  image.bytes = static_cast<std::uint64_t>(blocks * block);
  image.poison = 6;
  image.content = {{blocks - 1, 1, 0, 0, 16}, {0, 2, 0, 0, 16}, {(std::int64_t{4} << 30) / block, 3, 0, 0, 16}};
  if (b.gpu.free_bytes() < image.bytes + (std::uint64_t{512} << 20)) {
    throw Skip("needs " + std::to_string(image.bytes >> 20) + " MiB of free device memory, found " +
               std::to_string(b.gpu.free_bytes() >> 20));
  }
  DeviceBuffer memory(b.gpu, image.bytes);
  RegionWork work(b.gpu, image, b.stream);
  work.fill(memory.address(), b.stream);
  if (const auto wrong = work.check(memory.address(), 4, b.stream); wrong.wrong_bytes != 0)
    throw CheckFailure("a pool of 5 GiB differs from what was written");
  for (const std::uint64_t at :
       {image.bytes - 1, (std::uint64_t{4} << 30) - 1, std::uint64_t{4} << 30, (std::uint64_t{4} << 30) + block + 5}) {
    const std::uint8_t before = read(b, memory.address() + at, 1)[0], spoilt = before ^ 0x20;
    check(b.gpu.driver(), b.gpu.driver().copy_in(memory.address() + at, &spoilt, 1, b.stream), "corrupting a byte");
    b.gpu.synchronize(b.stream);
    const auto found = work.check(memory.address(), 2, b.stream);
    if (found.first != std::vector<std::int64_t>{static_cast<std::int64_t>(at)})
      throw CheckFailure("a byte at offset " + std::to_string(at) + " was corrupted but not reported there");
    check(b.gpu.driver(), b.gpu.driver().copy_in(memory.address() + at, &before, 1, b.stream), "restoring a byte");
    b.gpu.synchronize(b.stream);
  }
  return "5 GiB: written and checked; corrupted bytes found on both sides of 4 GiB";
}

/// The first `count` codes of `from`, packed, low nibble first.
std::vector<std::uint8_t> all_converted(Dtype from, Dtype to, std::int64_t count) {
  namespace convert = kernels::convert;
  const auto bits = static_cast<std::size_t>(layout::bits(to));
  std::vector<std::uint8_t> out(static_cast<std::size_t>(count) * bits / 8);
  for (std::size_t k = 0; std::cmp_less(k, count); ++k) {
    const std::uint32_t code = convert::encode(to, convert::decode(from, static_cast<std::uint32_t>(k)));
    if (bits == 4)
      out[k / 2] = static_cast<std::uint8_t>(out[k / 2] | code << (k % 2 * 4));
    else
      std::memcpy(&out[k * bits / 8], &code, bits / 8);
  }
  return out;
}

std::string conversions(DeviceBench& b) {
  constexpr std::int64_t count = 65536;
  std::vector<std::uint8_t> in(count * 2);
  for (std::int64_t k = 0; k < count; ++k) {
    in[static_cast<std::size_t>(2 * k)] = static_cast<std::uint8_t>(k);
    in[static_cast<std::size_t>(2 * k + 1)] = static_cast<std::uint8_t>(k >> 8);
  }
  DeviceBuffer from(b.gpu, in.size()), to(b.gpu, count * 4);
  from.write(in, b.stream);
  const auto number = [](Dtype dtype) { return static_cast<cuda::u32>(dtype); };
  const auto width = [](Dtype dtype) { return static_cast<cuda::u32>(layout::bits(dtype)); };
  int pairs = 0;
  for (const Dtype wide : {Dtype::fp16, Dtype::bf16}) {
    for (const Dtype dtype : layout::all_dtypes()) {
      if (wide == dtype) continue;  // same dtype: a copy on the device; the host's encoding makes NaNs canonical
      const std::vector<std::uint8_t> expected = all_converted(wide, dtype, count);
      b.gpu.launch("kvcts_convert",
                   cuda::ConvertArgs{static_cast<const cuda::u8*>(from.pointer()), static_cast<cuda::u8*>(to.pointer()),
                                     count, number(wide), width(wide), number(dtype), width(dtype)},
                   count / 2048, b.stream);
      expect_equal(read(b, to.address(), expected.size()), expected,
                   std::string(layout::name(wide)) + " to " + std::string(layout::name(dtype)));
      ++pairs;
    }
  }
  b.numbers = {{"pairs", pairs}};
  return "all 65536 inputs of " + std::to_string(pairs) + " pairs of dtypes equal the host's";
}

std::string relayouts(DeviceBench& b) {
  int pairs = 0;
  const std::int64_t blocks = 12;
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp32, Dtype::e4m3fn}) {
    for (const char* from_letters : {"KBNHC", "KBHNC", "BHKNC", "BKHCN"}) {
      for (const char* to_letters : {"KBNHC", "BKHNC", "BKHCN"}) {
        const layout::Plane from = packed_pool(from_letters, dtype, blocks, 4, 64),
                            to = packed_pool(to_letters, dtype, blocks, 4, 64);
        const std::uint64_t bytes = static_cast<std::uint64_t>(blocks * 2 * 16 * 4 * 64 * layout::bits(dtype) / 8);
        std::vector<std::uint8_t> source(bytes), expected(bytes);
        kernels::fill_poison(8, 0, source);
        kernels::relayout(source, from, expected, to);
        std::vector<cuda::TokenMove> tokens;
        for (std::int64_t block = 0; block < blocks; ++block) {
          for (std::int64_t slot = 0; slot < 16; ++slot) tokens.push_back({block, slot, block, slot});
        }
        const auto plan = cuda::plan_relayout(from, 0, to, 0, tokens);
        DeviceBuffer in(b.gpu, bytes), out(b.gpu, bytes), tables(b.gpu, plan.tables.bytes().size());
        in.write(source, b.stream);
        tables.write(plan.tables.bytes(), b.stream);
        b.gpu.launch("kvcts_relayout", cuda::bind(plan, in.pointer(), out.pointer(), tables.pointer()), plan.blocks(),
                     b.stream);
        expect_equal(read(b, out.address(), bytes), expected,
                     std::string(from_letters) + " to " + to_letters + " " + std::string(layout::name(dtype)));
        ++pairs;
      }
    }
  }
  b.numbers = {{"pairs", pairs}};
  return std::to_string(pairs) + " pairs of layouts and dtypes equal the host's";
}

std::string peers(DeviceBench& b) {
  const Driver& driver = b.gpu.driver();
  const int count = device_count(driver);
  if (count < 2) throw Skip("this machine has one device");
  std::string message;
  for (int other = 1; other < count; ++other) {
    int direct = 0;
    check(driver, driver.can_access_peer(&direct, 0, other), "querying peer access");
    b.numbers["0-" + std::to_string(other)] = direct != 0 ? "direct" : "through the host";
    message += (message.empty() ? "" : ", ") + std::string("device 0 and ") + std::to_string(other) +
               (direct != 0 ? " directly" : " through the host");
  }
  return message;
}

}  // namespace kvcts::device::checks
