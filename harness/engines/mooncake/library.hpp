// mooncake/engine.so of an engine package, opened at run time and called without Python. The wheel has no headers and
// no C interface, but exports the C++ class mooncake::TransferEngine. Structure sizes differ between versions, so a
// file is used only when the table of library.cpp has its build ID.
//
// Sources: mooncake-transfer-engine/include/{transfer_engine.h,transport/transport.h,common/base/status.h,error.h} of
// Mooncake 0.3.12.post1 (3b5a5941); symbols of the wheels 0.3.12.post1 and 0.3.13.post1 (identical for the functions
// called here); request size of 0.3.13.post1 measured by running it.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace kvcts::engines::mooncake {

/// One tested wheel.
struct Version {
  std::string_view name;      ///< "0.3.13.post1"
  std::string_view build_id;  ///< of mooncake/engine.so, in hex
  std::size_t request_words;  ///< TransferRequest, in words of 8 bytes
};

/// The version of the package's engine.so. Throws Failure(KVCTS_E_NOT_SUPPORTED) for an unknown version.
const Version& identify(const std::filesystem::path& package);

/// mooncake::Status as a function returns it; destroyed here, as the original would be.
struct MooncakeStatus {
  std::uint16_t code;
  const char* message;  ///< new[], or nullptr
  ~MooncakeStatus() { delete[] message; }
};
std::string describe(const MooncakeStatus& status);  ///< "1 (invalid argument): words"

/// Transport::TransferStatusEnum.
enum class TaskState : int { waiting, pending, invalid, canceled, completed, timeout, failed };
std::string_view name(TaskState state);  ///< "COMPLETED"
struct TaskStatus {
  TaskState state;
  std::size_t bytes;
};

enum class MooncakeOp : std::uint64_t { read = 0, write = 1 };
using Segment = std::uint64_t;
using Batch = std::uint64_t;
inline constexpr Batch no_batch = UINT64_MAX;
inline constexpr Segment no_segment = UINT64_MAX;  // openSegment returns -1

/// A vector of TransferRequest, for any request size.
class Requests {
 public:
  explicit Requests(const Version& version) : each_(version.request_words) {}
  void reserve(std::size_t count) { words_.reserve(count * each_); }
  void add(MooncakeOp op, std::uint64_t local, Segment segment, std::uint64_t remote, std::uint64_t bytes) {
    const std::array<std::uint64_t, 7> words{static_cast<std::uint64_t>(op), local, segment, remote, bytes, 0, 0};
    words_.insert(words_.end(), words.begin(), words.begin() + static_cast<std::ptrdiff_t>(each_));
  }
  const std::vector<std::uint64_t>& words() const { return words_; }

 private:
  std::size_t each_;
  std::vector<std::uint64_t> words_;
};

/// The library, loaded once per process. Throws Failure(KVCTS_E_NOT_SUPPORTED).
class MooncakeLibrary {
 public:
  explicit MooncakeLibrary(const std::filesystem::path& package);
  MooncakeLibrary(const MooncakeLibrary&) = delete;
  MooncakeLibrary& operator=(const MooncakeLibrary&) = delete;

  const Version& version;

  // Members of mooncake::TransferEngine, called per the Itanium ABI: object first.
  void (*construct)(void* engine, bool auto_discover);
  void (*destruct)(void* engine);
  int (*init)(void* engine, const std::string& metadata, const std::string& local_name, const std::string& address,
              std::uint64_t port);
  void* (*install_transport)(void* engine, const std::string& protocol, void** arguments);
  int (*rpc_port)(void* engine);
  Segment (*open_segment)(void* engine, const std::string& name);
  int (*sync_segments)(void* engine, const std::string& name);
  int (*register_memory)(void* engine, void* address, std::size_t bytes, const std::string& location, bool remote,
                         bool publish);
  int (*unregister_memory)(void* engine, void* address, bool publish);
  Batch (*allocate_batch)(void* engine, std::size_t requests);
  MooncakeStatus (*free_batch)(void* engine, Batch batch);
  MooncakeStatus (*submit)(void* engine, Batch batch, const std::vector<std::uint64_t>& requests);
  MooncakeStatus (*task_status)(void* engine, Batch batch, std::size_t task, TaskStatus& status);

 private:
  template <class Function>
  void bind(Function*& function, const char* mangled);
  void* handle_{nullptr};
};

/// One mooncake::TransferEngine over tcp that finds peers through P2PHANDSHAKE.
class Engine {
 public:
  /// Throws Failure(KVCTS_E_BACKEND).
  Engine(const MooncakeLibrary& library, const std::string& address);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  void* get() { return storage_.get(); }
  const std::string& name() const { return name_; }  ///< the name that peers open: "127.0.0.1:15011"
  /// Moves three pieces to itself through its own server and compares them, to detect a wrong structure layout.
  /// Throws Failure(KVCTS_E_NOT_SUPPORTED).
  void test_itself();
  /// Prevents destruction: it still has transfers that never end.
  void abandon() { abandoned_ = true; }

 private:
  const MooncakeLibrary& library_;
  struct Free {
    void operator()(void* memory) const;
  };
  std::unique_ptr<void, Free> storage_;
  std::string name_;
  bool abandoned_{false};
};

}  // namespace kvcts::engines::mooncake
