#include "process/status.hpp"

#include <algorithm>
#include <cstring>

#include "process/status_view.hpp"

namespace kvcts::process {

void Progress::enter(Phase phase) {
  if (page_ == nullptr) return;
  page_->done.store(0, std::memory_order_relaxed);
  page_->total.store(0, std::memory_order_relaxed);
  page_->phase.store(static_cast<std::uint32_t>(phase), std::memory_order_relaxed);
  page_->phase_since_ns.store(now_ns(), std::memory_order_release);
}

void Progress::set(std::uint64_t done, std::uint64_t total) {
  if (page_ == nullptr) return;
  page_->done.store(done, std::memory_order_relaxed);
  page_->total.store(total, std::memory_order_relaxed);
}

void Progress::add(std::uint64_t done) {
  if (page_ != nullptr) page_->done.fetch_add(done, std::memory_order_relaxed);
}

void Progress::note(const char* text) {
  if (page_ == nullptr) return;
  page_->sequence.fetch_add(1, std::memory_order_acq_rel);
  const std::size_t length = std::min(std::strlen(text), sizeof(page_->note) - 1);
  std::memcpy(page_->note, text, length);
  page_->note[length] = '\0';
  page_->sequence.fetch_add(1, std::memory_order_release);
}

void reset(StatusPage& page, std::uint64_t key) {
  page.key.store(key, std::memory_order_relaxed);
  Progress(&page).note("");
}

StatusView view(const StatusPage& page) {
  StatusView status;
  status.valid = page.magic == StatusPage::magic_value;
  status.key = page.key.load(std::memory_order_acquire);
  const std::uint32_t phase = page.phase.load(std::memory_order_acquire);
  if (phase < static_cast<std::uint32_t>(phase_count)) status.phase = static_cast<Phase>(phase);
  status.since_ns = page.phase_since_ns.load(std::memory_order_acquire);
  status.done = page.done.load(std::memory_order_relaxed);
  status.total = page.total.load(std::memory_order_relaxed);
  // A writer that died or stopped while changing a note must not block the reader: after a few tries take the current
  // text.
  for (int attempt = 0; attempt < 8; ++attempt) {
    const std::uint32_t before = page.sequence.load(std::memory_order_acquire);
    char copy[sizeof(page.note)];
    std::memcpy(copy, page.note, sizeof(copy));
    copy[sizeof(copy) - 1] = '\0';
    std::atomic_thread_fence(std::memory_order_acquire);
    status.note = copy;
    status.torn = (before & 1u) != 0 || page.sequence.load(std::memory_order_relaxed) != before;
    if (!status.torn) break;
  }
  return status;
}

}  // namespace kvcts::process
