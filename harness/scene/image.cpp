#include "scene/image.hpp"

#include <algorithm>

#include "kernels/poison.hpp"
#include "layout/checked.hpp"

namespace kvcts::scenario {

std::int64_t SymbolImage::page_of(std::int64_t offset) { return layout::checked::floor_div(offset, page); }

SymbolImage& SymbolImage::operator=(const SymbolImage& other) {
  pages_ = other.pages_;
  last_ = pages_.end();
  return *this;
}

SymbolId SymbolImage::at(std::int64_t offset) const {
  const std::int64_t number = page_of(offset);
  const auto found = pages_.find(number);
  return found == pages_.end() ? hole : (*found->second)[static_cast<std::size_t>(offset - number * page)];
}

void SymbolImage::set(std::int64_t offset, SymbolId id) {
  const std::int64_t number = page_of(offset);
  if (last_ == pages_.end() || last_->first != number) last_ = pages_.try_emplace(number).first;
  auto& ids = last_->second;
  if (!ids) {
    ids = std::make_shared<std::vector<SymbolId>>(static_cast<std::size_t>(page), hole);
  } else if (ids.use_count() > 1) {
    ids = std::make_shared<std::vector<SymbolId>>(*ids);
  }
  (*ids)[static_cast<std::size_t>(offset - number * page)] = id;
}

SymbolId fresh_id(const Buffer& buffer, std::int64_t offset, SymbolTable& symbols) {
  if (buffer.zeroed && offset >= 0 && offset < buffer.bytes) return symbols.intern({.kind = Symbol::Kind::constant});
  return symbols.intern({.kind = Symbol::Kind::poison, .buffer = buffer.ordinal, .offset = offset});
}

void render(const SymbolImage& image, const Buffer& buffer, Rendering& symbols, std::int64_t offset,
            std::span<std::uint8_t> out) {
  symbols.poison(buffer, offset, out);
  const auto end = offset + static_cast<std::int64_t>(out.size());
  if (buffer.zeroed) {
    const std::int64_t from = std::clamp<std::int64_t>(0, offset, end), to = std::clamp(buffer.bytes, offset, end);
    for (std::int64_t i = from; i < to; ++i) out[static_cast<std::size_t>(i - offset)] = 0;
  }
  for (auto p = image.pages().lower_bound(SymbolImage::page_of(offset));
       p != image.pages().end() && p->first * SymbolImage::page < end; ++p) {
    const std::int64_t begin = p->first * SymbolImage::page;
    for (std::int64_t i = std::max(begin, offset); i < std::min(begin + SymbolImage::page, end); ++i) {
      const SymbolId id = (*p->second)[static_cast<std::size_t>(i - begin)];
      if (id != hole) out[static_cast<std::size_t>(i - offset)] = symbols.byte(id);
    }
  }
}

}  // namespace kvcts::scenario
