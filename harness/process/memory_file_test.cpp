#include "process/memory_file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <thread>

#include "process/status_view.hpp"

namespace kvcts::process {
namespace {

TEST(MemoryFile, CannotBeShrunkOrGrown) {
  const UniqueFd fd = create_memory_file("t", 8192);
  EXPECT_EQ(file_bytes(fd.get()), 8192u);
  EXPECT_TRUE(is_sealed(fd.get()));
  EXPECT_EQ(::ftruncate(fd.get(), 4096), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::ftruncate(fd.get(), 16384), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_WRITE), -1);  // no other process can forbid writing either
  EXPECT_NE(::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_THROW(create_memory_file("empty", 0), std::system_error);
}

TEST(MemoryFile, DetectsAnUnsealedFile) {
  const UniqueFd fd(::memfd_create("t", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_FALSE(is_sealed(fd.get()));
}

TEST(MemoryFile, OutlivesTheProcessThatWrote) {
  MemoryFile file("t", 4096);
  const pid_t child = ::fork();
  if (child == 0) {
    Mapping own(file.fd.get(), 0);
    std::memset(own.data(), 0x5a, own.size());
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  for (const std::uint8_t byte : file.map.bytes()) ASSERT_EQ(byte, 0x5a);
}

TEST(MemoryFile, MovesAndUnmapsMappings) {
  MemoryFile file("t", 4096);
  Mapping moved = std::move(file.map);
  EXPECT_FALSE(file.map);
  moved.data()[0] = 7;
  Mapping again(file.fd.get(), 0, false);
  EXPECT_EQ(again.data()[0], 7);
  const std::uint8_t* const address = moved.data();
  moved = Mapping();
  unsigned char resident = 0;
  EXPECT_EQ(::mincore(const_cast<std::uint8_t*>(address), 4096, &resident), -1);  // no longer mapped
}

TEST(StatusPage, ReadsANoteWholeOrReportsItTorn) {
  MemoryFile file("status", sizeof(StatusPage));
  auto* page = new (file.map.data()) StatusPage();
  reset(*page, 42);
  Progress progress(page);
  progress.enter(Phase::transfer);
  progress.set(3, 9);
  progress.add(1);
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    const std::string a(500, 'a'), b(900, 'b');
    while (!stop) {
      progress.note(a.c_str());
      progress.note(b.c_str());
      std::this_thread::yield();
    }
  });
  int whole = 0;
  // Limit by time, not rounds: on a crowded machine the writer may start late.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (whole < 200 && std::chrono::steady_clock::now() < end) {
    const StatusView seen = view(*page);
    ASSERT_TRUE(seen.valid);
    EXPECT_EQ(seen.key, 42u);
    EXPECT_EQ(seen.phase, Phase::transfer);
    EXPECT_EQ(seen.done, 4u);
    EXPECT_EQ(seen.total, 9u);
    if (seen.torn || seen.note.empty()) continue;
    ++whole;
    EXPECT_TRUE(seen.note == std::string(500, 'a') || seen.note == std::string(900, 'b')) << seen.note;
  }
  stop = true;
  writer.join();
  EXPECT_GT(whole, 0);
}

TEST(StatusPage, ReportsGarbageWithoutBlockingTheReader) {
  MemoryFile file("status", sizeof(StatusPage));
  std::memset(file.map.data(), 0xff, file.map.size());
  const StatusView seen = view(*reinterpret_cast<StatusPage*>(file.map.data()));
  EXPECT_FALSE(seen.valid);
  EXPECT_FALSE(seen.phase);
  EXPECT_EQ(seen.note.size(), sizeof(StatusPage::note) - 1);
  EXPECT_TRUE(seen.torn);
}

}  // namespace
}  // namespace kvcts::process
