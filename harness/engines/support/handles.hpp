// ABI handles: never 0 and never reused within a process, so that a stale one is always recognised.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>

#include "engines/support/failure.hpp"

namespace kvcts::engines {

template <class T>
class Handles {
 public:
  explicit Handles(const char* what) : what_(what) {}
  std::uint64_t add(T value) {
    const std::uint64_t handle = next()++;
    items_.emplace(handle, std::move(value));
    return handle;
  }
  /// Throws Failure(KVCTS_E_NOT_FOUND).
  T& at(std::uint64_t handle) {
    const auto found = items_.find(handle);
    if (found == items_.end()) throw unknown(handle);
    return found->second;
  }
  T* find(std::uint64_t handle) {
    const auto found = items_.find(handle);
    return found == items_.end() ? nullptr : &found->second;
  }
  T take(std::uint64_t handle) {
    const auto found = items_.find(handle);
    if (found == items_.end()) throw unknown(handle);
    T value = std::move(found->second);
    items_.erase(found);
    return value;
  }
  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }
  std::size_t size() const { return items_.size(); }
  void clear() { items_.clear(); }

 private:
  Failure unknown(std::uint64_t handle) const {
    return {KVCTS_E_NOT_FOUND,
            "unknown " + std::string(what_) + " " + std::to_string(handle) + " (never given out, or already released)"};
  }
  static std::uint64_t& next() {
    static std::uint64_t counter = 1;
    return counter;
  }
  const char* what_;
  std::unordered_map<std::uint64_t, T> items_;
};

}  // namespace kvcts::engines
