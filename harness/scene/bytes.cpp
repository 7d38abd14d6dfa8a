#include "scene/bytes.hpp"

#include <algorithm>
#include <cstring>
#include <span>

#include "kernels/poison.hpp"
#include "layout/checked.hpp"

namespace kvcts::scenario {

using layout::checked::floor_div;

namespace {

// Poison is a function of the offset in the memory file, which begins with the lower guard. Sparse buffers have guards of
// GiB; their files begin at a multiple of the page.
std::int64_t in_file(const Buffer& buffer, std::int64_t offset) { return offset + buffer.guard_below; }

}  // namespace

Bytes::Bytes(const std::vector<Buffer>& buffers, std::uint64_t seed, int pass) : buffers_(&buffers) {
  for (const Buffer& buffer : buffers) add(buffer, seed, pass);
}

Bytes::Bytes(const Bytes& begin, const std::vector<Buffer>& buffers, std::uint64_t seed, int pass) : Bytes(begin) {
  grow(buffers, seed, pass);
}

void Bytes::grow(const std::vector<Buffer>& buffers, std::uint64_t seed, int pass) {
  buffers_ = &buffers;
  for (std::size_t i = stores_.size(); i < buffers.size(); ++i) add(buffers[i], seed, pass);
}

void Bytes::add(const Buffer& buffer, std::uint64_t seed, int pass) {
  stores_.emplace_back();
  poison_.push_back(poison_of(buffer, seed, pass));
  stores_.back().dense = std::make_shared<std::vector<std::uint8_t>>();
  if (buffer.sparse) return;
  auto& bytes = *stores_.back().dense;
  bytes.resize(static_cast<std::size_t>(buffer.guard_below + buffer.bytes + buffer.guard_above));
  kernels::fill_poison(poison_.back(), 0, bytes);
  if (buffer.zeroed) std::fill_n(bytes.begin() + buffer.guard_below, buffer.bytes, std::uint8_t{0});
}

bool Bytes::mapped(int buffer, std::int64_t offset, std::int64_t size) const {
  const Buffer& b = (*buffers_)[static_cast<std::size_t>(buffer)];
  return offset >= -b.guard_below && offset + size <= b.bytes + b.guard_above;
}

std::uint8_t Bytes::fresh(int buffer, std::int64_t offset) const {
  const Buffer& b = (*buffers_)[static_cast<std::size_t>(buffer)];
  return b.zeroed && offset >= 0 && offset < b.bytes ? std::uint8_t{0} : poison(buffer, offset);
}

void Bytes::fresh(int buffer, std::int64_t offset, std::int64_t size, std::uint8_t* out) const {
  const Buffer& b = (*buffers_)[static_cast<std::size_t>(buffer)];
  kernels::fill_poison(poison_[static_cast<std::size_t>(buffer)], in_file(b, offset), {out, static_cast<std::size_t>(size)});
  const std::int64_t from = std::clamp<std::int64_t>(0, offset, offset + size),
                     to = std::clamp(b.bytes, from, offset + size);
  if (b.zeroed) std::fill_n(out + (from - offset), to - from, std::uint8_t{0});
}

std::uint8_t Bytes::poison(int buffer, std::int64_t offset) const {
  return kernels::poison_byte(poison_[static_cast<std::size_t>(buffer)],
                              in_file((*buffers_)[static_cast<std::size_t>(buffer)], offset));
}

std::vector<std::uint8_t>& Bytes::page_for(int buffer, std::int64_t number) {
  auto& slot = stores_[static_cast<std::size_t>(buffer)].sparse[number];
  if (!slot) {
    slot = std::make_shared<std::vector<std::uint8_t>>(static_cast<std::size_t>(page));
    const Buffer& b = (*buffers_)[static_cast<std::size_t>(buffer)];
    const std::int64_t from = std::max(number * page, -b.guard_below),
                       to = std::min((number + 1) * page, b.bytes + b.guard_above);
    if (from < to) fresh(buffer, from, to - from, slot->data() + (from - number * page));
  } else if (slot.use_count() > 1) {
    slot = std::make_shared<std::vector<std::uint8_t>>(*slot);
  }
  return *slot;
}

void Bytes::read(int buffer, std::int64_t offset, std::int64_t size, std::uint8_t* out) const {
  if (size == 0) return;
  const Buffer& b = (*buffers_)[static_cast<std::size_t>(buffer)];
  const Store& store = stores_[static_cast<std::size_t>(buffer)];
  if (!b.sparse) {
    std::memcpy(out, store.dense->data() + offset + b.guard_below, static_cast<std::size_t>(size));
    return;
  }
  for (std::int64_t done = 0; done < size;) {
    const std::int64_t number = floor_div(offset + done, page), inside = offset + done - number * page;
    const std::int64_t piece = std::min(size - done, page - inside);
    if (const auto found = store.sparse.find(number); found != store.sparse.end()) {
      std::memcpy(out + done, found->second->data() + inside, static_cast<std::size_t>(piece));
    } else {
      fresh(buffer, offset + done, piece, out + done);
    }
    done += piece;
  }
}

void Bytes::write(int buffer, std::int64_t offset, std::int64_t size, const std::uint8_t* in) {
  if (size == 0) return;  // nothing may come as a null pointer, which memcpy does not take
  const Buffer& b = (*buffers_)[static_cast<std::size_t>(buffer)];
  if (!b.sparse) {
    auto& dense = stores_[static_cast<std::size_t>(buffer)].dense;
    if (dense.use_count() > 1) dense = std::make_shared<std::vector<std::uint8_t>>(*dense);
    std::memcpy(dense->data() + offset + b.guard_below, in, static_cast<std::size_t>(size));
    return;
  }
  for (std::int64_t done = 0; done < size;) {
    const std::int64_t number = floor_div(offset + done, page), inside = offset + done - number * page;
    const std::int64_t piece = std::min(size - done, page - inside);
    std::memcpy(page_for(buffer, number).data() + inside, in + done, static_cast<std::size_t>(piece));
    done += piece;
  }
}

bool Bytes::shares(const Bytes& other, int buffer) const {
  const Store &a = stores_[static_cast<std::size_t>(buffer)], &b = other.stores_[static_cast<std::size_t>(buffer)];
  return a.dense == b.dense && a.sparse == b.sparse;
}

std::uint8_t Bytes::at(int buffer, std::int64_t offset) const {
  std::uint8_t out = 0;
  read(buffer, offset, 1, &out);
  return out;
}

std::vector<std::int64_t> Bytes::pages(int buffer) const {
  std::vector<std::int64_t> out;
  for (const auto& [number, bytes] : stores_[static_cast<std::size_t>(buffer)].sparse) out.push_back(number * page);
  return out;
}

}  // namespace kvcts::scenario
