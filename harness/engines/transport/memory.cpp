#include "engines/transport/memory.hpp"

#include <bit>

#include "engines/transport/open_args.hpp"
#include "engines/transport/table.hpp"

namespace kvcts::transport {

std::shared_ptr<const MemoryProvider> MemoryProvider::load(const std::filesystem::path& file) {
  const std::string origin = file.string();
  const kvcts_memory* table = ask_table<kvcts_memory>(file, "kvcts_memory_entry", KVCTS_MEMORY_ABI, "memory");
  const kvcts_memory copy = checked_table(table, KVCTS_MEMORY_ABI, "memory", origin);
  need_calls({{"open", copy.open != nullptr},
              {"close", copy.close != nullptr},
              {"describe", copy.describe != nullptr},
              {"allocate", copy.allocate != nullptr},
              {"release", copy.release != nullptr},
              {"copy_in", copy.copy_in != nullptr},
              {"copy_out", copy.copy_out != nullptr},
              {"last_error", copy.last_error != nullptr}},
             table->size, sizeof copy, origin);
  auto provider = std::shared_ptr<MemoryProvider>(new MemoryProvider());
  provider->name_ = table_word(copy.name, "name", origin);
  provider->version_ = table_word(copy.version, "version", origin);
  provider->file_ = file;
  provider->table_ = copy;
  return provider;
}

MemoryPool::MemoryPool(std::shared_ptr<const MemoryProvider> provider, const OpenOptions& options)
    : provider_(std::move(provider)) {
  const std::vector<kvcts_option> list = option_list(options);
  kvcts_memory_open_args args{};
  args.size = sizeof args;
  args.name = options.name.c_str();
  args.options = list.data();
  args.option_count = list.size();
  kvcts_memory_pool* pool = nullptr;
  checked(api().open(&args, &pool), "open");
  if (pool == nullptr) throw TransportError(Code::contract, provider_->name() + ": open returned OK and no pool");
  pool_ = pool;
  try {
    Guarded<kvcts_memory_info> info;
    const std::int32_t status = api().describe(pool_, &info.out);
    info.check(provider_->name(), "describe");
    checked(status, "describe");
    info_ = info.out;
    const auto wrong = [&](const std::string& what) {
      throw TransportError(Code::contract, provider_->name() + ": describe: " + what);
    };
    if (info_.memory > KVCTS_MEMORY_OTHER) wrong("memory is " + std::to_string(info_.memory) + ", at most 3 is known");
    if (info_.host_accessible > 1 || info_.exports > 1) wrong("host_accessible and exports are 0 or 1");
    if (!std::has_single_bit(info_.alignment))
      wrong("alignment is " + std::to_string(info_.alignment) + ", expected a power of two");
    if (info_.max_bytes == 0) wrong("max_bytes must not be 0");
    if (info_.exports == 1 && api().import_fd == nullptr) wrong("exports without a call import_fd");
  } catch (...) {
    api().close(pool_);
    throw;
  }
}

MemoryPool::~MemoryPool() {
  if (pool_ != nullptr) api().close(pool_);
}

void MemoryPool::checked(std::int32_t status, const char* call) const {
  if (status != KVCTS_OK) fail(api(), pool_, provider_->name(), call, status);
}

Block MemoryPool::kept(const kvcts_allocation& allocation, std::uint64_t bytes, const char* call) {
  const auto address = reinterpret_cast<std::uintptr_t>(allocation.address);
  std::string wrong;
  if (allocation.handle == 0)
    wrong = "no handle";
  else if (allocation.address == nullptr)
    wrong = "no address";
  else if (allocation.bytes < bytes)
    wrong = std::to_string(allocation.bytes) + " bytes where " + std::to_string(bytes) + " were requested";
  else if (address % info_.alignment != 0 && call == std::string("allocate"))
    wrong = "an address that is not aligned to " + std::to_string(info_.alignment);
  else if (info_.exports == 1 && allocation.fd < 0)
    wrong = "no descriptor, and claims that it exports";
  if (!wrong.empty()) throw TransportError(Code::contract, provider_->name() + ": " + call + " returned OK and " + wrong);
  return {*this, allocation};
}

Block MemoryPool::allocate(std::uint64_t bytes) {
  Guarded<kvcts_allocation> allocation;
  allocation.out.fd = -1;
  const std::int32_t status = api().allocate(pool_, bytes, &allocation.out);
  allocation.check(provider_->name(), "allocate");
  checked(status, "allocate");
  return kept(allocation.out, bytes, "allocate");
}

Block MemoryPool::import_fd(int fd, std::uint64_t fd_offset, std::uint64_t bytes) {
  if (api().import_fd == nullptr) throw TransportError(Code::not_supported, provider_->name() + ": has no import_fd");
  Guarded<kvcts_allocation> allocation;
  allocation.out.fd = -1;
  const std::int32_t status = api().import_fd(pool_, fd, fd_offset, bytes, &allocation.out);
  allocation.check(provider_->name(), "import_fd");
  checked(status, "import_fd");
  return kept(allocation.out, bytes, "import_fd");
}

Block::~Block() {
  if (pool_ != nullptr) pool_->api().release(pool_->pool_, allocation_.handle);  // the caller cannot act on its status
}

Region Block::region(std::uint64_t offset, std::uint64_t bytes) const {
  Region region;
  region.address = static_cast<std::uint8_t*>(allocation_.address) + offset;
  region.bytes = bytes;
  region.fd = allocation_.fd;
  region.fd_offset = allocation_.fd_offset + offset;
  region.memory = pool_->info().memory;
  region.device = pool_->info().device;
  return region;
}

void Block::write(std::uint64_t offset, std::span<const std::uint8_t> from) {
  pool_->checked(pool_->api().copy_in(pool_->pool_, allocation_.handle, offset, from.data(), from.size()), "copy_in");
}

void Block::read(std::uint64_t offset, std::span<std::uint8_t> to) const {
  pool_->checked(pool_->api().copy_out(pool_->pool_, allocation_.handle, offset, to.data(), to.size()), "copy_out");
}

}  // namespace kvcts::transport
