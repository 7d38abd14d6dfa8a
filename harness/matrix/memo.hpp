// Small flat hash tables for the inner loops of enumeration: open addressing, no erasing.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace kvcts::matrix {

/// 64-bit key -> small number. Keys are mixed well, so packed bit fields are fine.
class Memo {
 public:
  /// The value, made by `make()` on first sight of the key.
  template <class Make>
  std::uint32_t get(std::uint64_t key, Make&& make) {
    if (2 * (count_ + 1) > slots_.size()) grow();
    std::size_t i = place(key);
    for (; slots_[i].used; i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i].key == key) return slots_[i].value;
    }
    const std::uint32_t value = make();  // may use this table: find the slot again
    if (2 * (count_ + 1) > slots_.size()) grow();
    for (i = place(key); slots_[i].used; i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i].key == key) return value;
    }
    slots_[i] = {key, value, true};
    ++count_;
    return value;
  }

 private:
  struct Slot {
    std::uint64_t key{0};
    std::uint32_t value{0};
    bool used{false};
  };
  std::size_t place(std::uint64_t key) const {
    std::uint64_t z = (key ^ key >> 32) * 0xbf58476d1ce4e5b9U;
    z = (z ^ z >> 29) * 0x94d049bb133111ebU;
    return static_cast<std::size_t>(z ^ z >> 32) & (slots_.size() - 1);
  }
  void grow() {
    std::vector<Slot> old(slots_.size() < 64 ? 64 : 2 * slots_.size());
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (!slot.used) continue;
      std::size_t i = place(slot.key);
      while (slots_[i].used) i = (i + 1) & (slots_.size() - 1);
      slots_[i] = slot;
    }
  }
  std::vector<Slot> slots_;
  std::size_t count_{0};
};

}  // namespace kvcts::matrix
