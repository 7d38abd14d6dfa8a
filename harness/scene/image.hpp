// Names of the bytes of one buffer, guards included.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "scene/address_space.hpp"
#include "scene/symbols.hpp"

namespace kvcts::scenario {

/// Stores only written pages; a copy shares them until one side writes.
class SymbolImage {
 public:
  static constexpr std::int64_t page = 4096;
  /// Number of the page of an offset, also of one in a lower guard.
  static std::int64_t page_of(std::int64_t offset);
  using Pages = std::map<std::int64_t, std::shared_ptr<std::vector<SymbolId>>>;

  SymbolImage() = default;
  SymbolImage(const SymbolImage& other) : pages_(other.pages_) {}
  SymbolImage& operator=(const SymbolImage& other);

  /// hole: never written, so it equals fresh_id().
  SymbolId at(std::int64_t offset) const;
  void set(std::int64_t offset, SymbolId id);
  /// Number of the page (offset / page, rounded down) -> its Ids.
  const Pages& pages() const { return pages_; }

 private:
  Pages pages_;
  Pages::iterator last_{pages_.end()};  ///< page of the last set()
};

/// What a byte is before the first write: poison, or zero where the memory holds zeros.
SymbolId fresh_id(const Buffer& buffer, std::int64_t offset, SymbolTable& symbols);
/// The bytes [offset, offset + out.size()) in a pass; `symbols` renders that pass.
void render(const SymbolImage& image, const Buffer& buffer, Rendering& symbols, std::int64_t offset,
            std::span<std::uint8_t> out);

}  // namespace kvcts::scenario
