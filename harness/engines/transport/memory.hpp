// Hosts a memory provider (kvcts_memory.h): memory other than the suite's own, as values and typed errors.
//
//   MemoryPool pool(MemoryProvider::load(find_plugin("kvcts_memory_acme")), "lane0/producer", {});
//   Block block = pool.allocate(bytes);     // released by its destructor
//   block.write(0, host);                   // host -> provider
//   session.register_region(block.region(offset, bytes));
//   block.read(0, host);                    // provider -> host
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>

#include "engines/transport/kvcts_memory.h"
#include "engines/transport/session.hpp"

namespace kvcts::transport {

/// A loaded provider. Never unloaded.
class MemoryProvider {
 public:
  /// Throws TransportError(cannot_load | contract).
  static std::shared_ptr<const MemoryProvider> load(const std::filesystem::path& file);
  const std::string& name() const { return name_; }
  const std::string& version() const { return version_; }
  const std::filesystem::path& file() const { return file_; }
  const kvcts_memory& table() const { return table_; }

 private:
  MemoryProvider() = default;
  std::string name_, version_;
  std::filesystem::path file_;
  kvcts_memory table_{};
};

class MemoryPool;

/// One allocation. The pool must outlive it.
class Block {
 public:
  Block(MemoryPool& pool, const kvcts_allocation& allocation) : pool_(&pool), allocation_(allocation) {}
  ~Block();
  Block(Block&& other) noexcept : pool_(std::exchange(other.pool_, nullptr)), allocation_(other.allocation_) {}
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  Block& operator=(Block&&) = delete;

  std::uint64_t bytes() const { return allocation_.bytes; }
  const kvcts_allocation& allocation() const { return allocation_; }
  /// A part of it, ready to register with a transport.
  Region region(std::uint64_t offset, std::uint64_t bytes) const;
  void write(std::uint64_t offset, std::span<const std::uint8_t> from);
  void read(std::uint64_t offset, std::span<std::uint8_t> to) const;

 private:
  MemoryPool* pool_;
  kvcts_allocation allocation_;
};

/// One side's memory. Methods throw TransportError.
class MemoryPool {
 public:
  MemoryPool(std::shared_ptr<const MemoryProvider> provider, const OpenOptions& options);
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  const MemoryProvider& provider() const { return *provider_; }
  const kvcts_memory_info& info() const { return info_; }
  Block allocate(std::uint64_t bytes);
  /// An allocation of another process.
  Block import_fd(int fd, std::uint64_t fd_offset, std::uint64_t bytes);

 private:
  friend class Block;
  const kvcts_memory& api() const { return provider_->table(); }
  void checked(std::int32_t status, const char* call) const;
  Block kept(const kvcts_allocation& allocation, std::uint64_t bytes, const char* call);

  std::shared_ptr<const MemoryProvider> provider_;
  kvcts_memory_pool* pool_{nullptr};
  kvcts_memory_info info_{};
};

}  // namespace kvcts::transport
