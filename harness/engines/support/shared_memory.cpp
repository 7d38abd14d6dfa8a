#include "engines/support/shared_memory.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>

namespace kvcts::engines {
namespace {

constexpr std::uint64_t slots = 1u << 16;  // regions per agent at once; the directory is sparse until used
constexpr std::uint64_t directory_bytes = slots * sizeof(std::uint64_t);
constexpr std::size_t largest_notification = 4096;

Failure system_failure(std::int32_t status, const std::string& what) {
  const int code = errno;
  return {status, what + ": " + std::strerror(code), code};
}

/// Start time of a process, 0 if it does not exist or is a zombie. proc(5), /proc/PID/stat: fields 3 (state) and 22.
std::uint64_t start_time(std::int64_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return 0;
  const auto paren = line.rfind(')');  // the name before it may contain anything
  if (paren == std::string::npos || paren + 2 >= line.size() || line[paren + 2] == 'Z' || line[paren + 2] == 'X') return 0;
  std::size_t at = paren + 2;
  for (int field = 3; field < 22; ++field) {
    at = line.find(' ', at);
    if (at == std::string::npos) return 0;
    ++at;
  }
  return std::strtoull(line.c_str() + at, nullptr, 10);
}

sockaddr_un address_of(const AgentIdentity& agent, socklen_t& length) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const int words =
      std::snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "kvcts-%016llx%016llx",
                    static_cast<unsigned long long>(agent.id[0]), static_cast<unsigned long long>(agent.id[1]));
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(words));
  return address;
}

struct stat status_of(int descriptor) {
  struct stat status{};
  if (fstat(descriptor, &status) != 0)
    throw system_failure(KVCTS_E_INVALID, "fstat of descriptor " + std::to_string(descriptor));
  return status;
}

FileIdentity identity_of(int descriptor) {
  const auto status = status_of(descriptor);
  return {descriptor, 0, status.st_dev, status.st_ino};
}

/// Opens a peer's file and verifies its identity. `gone`: the status if it no longer exists.
File open_of(std::int64_t process, const FileIdentity& identity, bool writable, std::int32_t gone) {
  const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(identity.descriptor);
  File file(open(path.c_str(), (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC));
  if (file.get() < 0) {
    const bool denied = errno == EACCES || errno == EPERM;
    throw system_failure(denied                              ? KVCTS_E_NOT_PERMITTED
                         : errno == ENOENT || errno == ENXIO ? gone
                                                             : KVCTS_E_BACKEND,
                         "cannot open the peer's memory file " + path);
  }
  const auto found = identity_of(file.get());
  if (found.device != identity.device || found.inode != identity.inode) {
    throw Failure{gone, path + " is not the file that the metadata names; the peer has released that one"};
  }
  return file;
}

}  // namespace

File& File::operator=(File&& other) noexcept {
  if (this != &other) {
    if (descriptor_ >= 0) close(descriptor_);
    descriptor_ = other.release();
  }
  return *this;
}
File::~File() {
  if (descriptor_ >= 0) close(descriptor_);
}

Mapping::Mapping(int descriptor, std::uint64_t bytes, bool writable) : bytes_(bytes) {
  if (bytes == 0) return;
  void* start = mmap(nullptr, bytes, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, descriptor, 0);
  if (start == MAP_FAILED) throw system_failure(KVCTS_E_NO_RESOURCES, "mmap of " + std::to_string(bytes) + " bytes");
  data_ = static_cast<std::byte*>(start);
  // One call instead of a page fault per 4 KiB of the transfer. Kernels before 5.14 lack it: then the faults happen.
  if (writable) madvise(start, bytes, MADV_POPULATE_WRITE);
}
Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

/// State kept with a local region.
struct SharedMemoryEngine::Shared {
  File file;
  FileIdentity identity;
  std::uint64_t offset{0};
  std::uint64_t slot{0}, generation{0};
};

/// One agent of this host, accessed through its memory files.
class SharedMemoryEngine::Remote final : public Reach {
 public:
  explicit Remote(const AgentIdentity& agent)
      : agent_(agent), process_(static_cast<int>(syscall(SYS_pidfd_open, agent.process, 0))) {
    // The start time is read after the pidfd was taken: if it matches, both refer to the same process.
    if (start_time(agent.process) != agent.start_time) {
      throw Failure{KVCTS_E_PEER_LOST, "the peer's process " + std::to_string(agent.process) + " is gone"};
    }
    directory_ = std::make_unique<Mapping>(open_of(agent.process, agent.directory, false, KVCTS_E_PEER_LOST).get(),
                                           directory_bytes, false);
    socket_ = File(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (socket_.get() < 0) throw system_failure(KVCTS_E_NO_RESOURCES, "socket");
  }

  bool alive() override {
    if (live_slot(0) == 0) return false;  // closed in good order
    if (process_.get() < 0)
      return start_time(agent_.process) == agent_.start_time;  // kernel without pidfd_open (before 5.3)
    pollfd ended{process_.get(), POLLIN, 0};
    return ::poll(&ended, 1, 0) == 0;
  }
  bool live(const RemoteRegion& region) override { return live_slot(region.slot) == region.generation; }

  void send(std::string_view notification) override {
    socklen_t length = 0;
    const sockaddr_un address = address_of(agent_, length);
    const auto sent = sendto(socket_.get(), notification.data(), notification.size(), 0,
                             reinterpret_cast<const sockaddr*>(&address), length);
    if (sent == static_cast<ssize_t>(notification.size())) return;
    const std::int32_t status = errno == ECONNREFUSED ? KVCTS_E_PEER_LOST
                                : errno == EAGAIN     ? KVCTS_E_NO_RESOURCES
                                                      : KVCTS_E_BACKEND;
    throw system_failure(status, "sending a notification");
  }

  /// The whole peer file, mapped; peers and regions share one mapping per file.
  std::shared_ptr<Mapping> map(const FileIdentity& identity, bool writable) {
    auto& known = files_[{identity.device, identity.inode, writable}];
    auto mapping = known.lock();
    if (!mapping) {
      const File file = open_of(agent_.process, identity, writable, alive() ? KVCTS_E_MISMATCH : KVCTS_E_PEER_LOST);
      mapping = std::make_shared<Mapping>(file.get(), static_cast<std::uint64_t>(status_of(file.get()).st_size), writable);
      known = mapping;
    }
    return mapping;
  }
  /// Drops unused files, so that a long-lived worker does not accumulate them.
  void tidy() {
    std::erase_if(files_, [](const auto& entry) { return entry.second.expired(); });
  }

 private:
  std::uint64_t live_slot(std::uint64_t index) const {
    return reinterpret_cast<const Slot*>(directory_->data())[index].load(std::memory_order_acquire);
  }
  AgentIdentity agent_;
  File process_, socket_;
  std::unique_ptr<Mapping> directory_;
  std::map<std::tuple<std::uint64_t, std::uint64_t, bool>, std::weak_ptr<Mapping>> files_;
};

SharedMemoryEngine::SharedMemoryEngine(const char* engine, const OpenArgs&) : CopyEngine(engine) {
  directory_file_ = File(memfd_create("kvcts-directory", MFD_CLOEXEC));
  if (directory_file_.get() < 0 || ftruncate(directory_file_.get(), directory_bytes) != 0) {
    throw system_failure(KVCTS_E_NO_RESOURCES, "a memory file for the directory");
  }
  directory_ = std::make_unique<Mapping>(directory_file_.get(), directory_bytes, true);
  self_.process = getpid();
  self_.start_time = start_time(getpid());
  if (getrandom(self_.id, sizeof self_.id, 0) != static_cast<ssize_t>(sizeof self_.id))
    throw system_failure(KVCTS_E_BACKEND, "getrandom");
  self_.directory = identity_of(directory_file_.get());
  socket_ = File(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  socklen_t length = 0;
  const sockaddr_un address = address_of(self_, length);
  if (socket_.get() < 0 || bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    throw system_failure(KVCTS_E_NO_RESOURCES, "a socket for notifications");
  }
  slot(next_slot_++).store(1, std::memory_order_release);  // slot 0: the agent itself
}

SharedMemoryEngine::~SharedMemoryEngine() { slot(0).store(0, std::memory_order_release); }

void SharedMemoryEngine::claims(kvcts_claims& claims) const {
  CopyEngine::claims(claims);
  claims.reach = KVCTS_REACH_PROCESS | KVCTS_REACH_HOST;
}

void SharedMemoryEngine::keep(const kvcts_region& region, LocalRegion& local) {
  if (region.fd < 0)
    throw Failure{KVCTS_E_NOT_SUPPORTED, "this engine needs memory backed by a memory file, but this region has none"};
  auto shared = std::make_shared<Shared>();
  const auto size = static_cast<std::uint64_t>(status_of(region.fd).st_size);
  if (region.fd_offset > size || region.bytes > size - region.fd_offset) {
    throw Failure{KVCTS_E_INVALID, "the region ends at byte " + std::to_string(region.fd_offset + region.bytes) +
                                       " of a memory file of " + std::to_string(size) + " bytes"};
  }
  shared->file = File(fcntl(region.fd, F_DUPFD_CLOEXEC, 3));
  if (shared->file.get() < 0) throw system_failure(KVCTS_E_NO_RESOURCES, "duplicating the region's descriptor");
  shared->identity = identity_of(shared->file.get());
  shared->offset = region.fd_offset;
  if (!free_slots_.empty()) {
    shared->slot = free_slots_.back();
    free_slots_.pop_back();
  } else if (next_slot_ < slots) {
    shared->slot = next_slot_++;
  } else {
    throw Failure{KVCTS_E_NO_RESOURCES, "an agent of this engine holds at most " + std::to_string(slots - 1) + " regions"};
  }
  shared->generation = next_generation_++;
  slot(shared->slot).store(shared->generation, std::memory_order_release);
  local.extra = std::move(shared);
}

void SharedMemoryEngine::forget(std::uint64_t, LocalRegion& local) {
  const auto& shared = *static_cast<Shared*>(local.extra.get());
  slot(shared.slot).store(0, std::memory_order_release);
  free_slots_.push_back(shared.slot);
}

void SharedMemoryEngine::write_agent(BlobWriter& blob) { blob.value(self_); }

void SharedMemoryEngine::write_region(BlobWriter& blob, std::uint64_t, const LocalRegion& local) {
  const auto& shared = *static_cast<Shared*>(local.extra.get());
  blob.value(shared.identity);
  blob.value(shared.offset);
  blob.value(shared.slot);
  blob.value(shared.generation);
  blob.value(local.access);
}

std::shared_ptr<Reach> SharedMemoryEngine::read_agent(BlobReader& blob) {
  const auto agent = blob.value<AgentIdentity>();
  std::erase_if(remotes_, [](const auto& entry) { return !entry.second->alive(); });
  auto& remote = remotes_[{agent.id[0], agent.id[1]}];
  if (!remote) {
    try {
      remote = std::make_shared<Remote>(agent);
    } catch (...) {
      remotes_.erase({agent.id[0], agent.id[1]});
      throw;
    }
  }
  remote->tidy();
  return remote;
}

RemoteRegion SharedMemoryEngine::read_region(BlobReader& blob, Reach& reach) {
  const auto identity = blob.value<FileIdentity>();
  const auto offset = blob.value<std::uint64_t>();
  RemoteRegion region;
  region.slot = blob.value<std::uint64_t>();
  region.generation = blob.value<std::uint64_t>();
  const auto access = blob.value<std::uint32_t>();
  if (region.slot >= slots)
    throw Failure{KVCTS_E_MISMATCH,
                  "the metadata names slot " + std::to_string(region.slot) + " of " + std::to_string(slots)};
  auto mapping = static_cast<Remote&>(reach).map(identity, (access & KVCTS_ACCESS_REMOTE_WRITE) != 0);
  region.address = mapping->data() + offset;
  region.mapping = std::move(mapping);
  return region;
}

void SharedMemoryEngine::fetch_notifications() {
  std::string data(largest_notification, '\0');
  for (;;) {
    const auto bytes = recv(socket_.get(), data.data(), data.size(), 0);
    if (bytes < 0) return;
    inbox_.emplace_back(data.data(), static_cast<std::size_t>(bytes));
  }
}

}  // namespace kvcts::engines
