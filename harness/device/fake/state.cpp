#include "device/fake/state.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

namespace kvcts::device::fake {

StreamQueue::StreamQueue() {
  std::thread([this] { run(); }).detach();
}

void StreamQueue::add(Task task) {
  if (capture) {
    capture->tasks.push_back(std::move(task));
    return;
  }
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  ++added_;
  changed_.notify_all();
}

void StreamQueue::drain() {
  std::unique_lock lock(mutex_);
  const std::uint64_t until = added_;
  changed_.wait(lock, [&] { return done_ >= until; });
}

bool StreamQueue::idle() {
  const std::lock_guard lock(mutex_);
  return done_ == added_;
}

void StreamQueue::run() {
  for (;;) {
    Task task;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return !tasks_.empty(); });
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    // A dead device runs nothing.
    const Status status = state().alive() == status::success ? task() : status::success;
    if (status != status::success) state().die(status);
    const std::lock_guard lock(mutex_);
    ++done_;
    changed_.notify_all();
  }
}

Status FakeState::alive() {
  const std::lock_guard lock(mutex);
  return sticky;
}

void FakeState::die(Status status) {
  const std::lock_guard lock(mutex);
  if (sticky == status::success) sticky = status;
}

bool FakeState::covers(Address address, std::uint64_t bytes) {
  const std::lock_guard lock(mutex);
  // Accesses may cross adjacent mapped pieces.
  while (bytes > 0) {
    auto found = blocks.upper_bound(address);
    if (found == blocks.begin()) return false;
    --found;
    const Address end = found->first + found->second.bytes;
    if (address >= end) return false;
    const std::uint64_t part = std::min<std::uint64_t>(bytes, end - address);
    address += part;
    bytes -= part;
  }
  return true;
}

StreamQueue& FakeState::stream(Stream stream) {
  if (stream != nullptr) return *reinterpret_cast<StreamQueue*>(stream);
  const std::lock_guard lock(mutex);
  if (null_stream == nullptr) streams.push_back(null_stream = new StreamQueue);
  return *null_stream;
}

FakeState& state() {
  static FakeState* const all = new FakeState;  // never destroyed: threads of hung streams may outlive main()
  return *all;
}

int device_count() {
  const char* wanted = std::getenv("KVCTS_FAKE_DEVICES");
  return wanted != nullptr ? std::atoi(wanted) : 1;
}

int make_file(std::uint64_t bytes) {
  const int descriptor = ::memfd_create("kvcts-fake-device", MFD_CLOEXEC);
  if (descriptor >= 0 && ::ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) {
    ::close(descriptor);
    return -1;
  }
  return descriptor;
}

Address map_file(int descriptor, std::uint64_t bytes) {
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  return at == MAP_FAILED ? 0 : reinterpret_cast<Address>(at);
}

}  // namespace kvcts::device::fake
