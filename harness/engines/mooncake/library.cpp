#include "engines/mooncake/library.hpp"

#include <dlfcn.h>
#include <elf.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <new>
#include <thread>

#include "engines/mooncake/listens.hpp"
#include "engines/support/failure.hpp"

extern "C" void* PyBaseObject_Type[];  // python_symbols.cpp

namespace kvcts::engines::mooncake {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

// The wheels for CPython 3.11 of mooncake-transfer-engine-non-cuda; others need more of the interpreter.
constexpr Version known[] = {
    {"0.3.12.post1", "eeafe99d47770a97b29dbe74ccb09aabc28d5c6b", 6},
    {"0.3.13.post1", "0dded685e9e28bcea5c6936d879ad41c30f59f01", 7},  // requests gained a task group
};

constexpr std::size_t object_bytes = 4096;  // a TransferEngine takes 56; leaves room for growth
constexpr auto self_test_limit = 5s;

/// The build ID in an ELF file's note, in hex; "" if there is none.
std::string build_id(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  Elf64_Ehdr header{};
  if (!stream.read(reinterpret_cast<char*>(&header), sizeof header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
    return {};
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    stream.seekg(static_cast<std::streamoff>(header.e_phoff + i * sizeof segment));
    if (!stream.read(reinterpret_cast<char*>(&segment), sizeof segment)) return {};
    if (segment.p_type != PT_NOTE || segment.p_filesz > 4096) continue;
    std::string notes(segment.p_filesz, '\0');
    stream.seekg(static_cast<std::streamoff>(segment.p_offset));
    if (!stream.read(notes.data(), static_cast<std::streamsize>(notes.size()))) return {};
    for (std::size_t at = 0; at + sizeof(Elf64_Nhdr) <= notes.size();) {
      Elf64_Nhdr note{};
      std::memcpy(&note, notes.data() + at, sizeof note);
      const auto padded = [](std::size_t bytes) { return (bytes + 3) / 4 * 4; };
      const std::size_t body = at + sizeof note + padded(note.n_namesz);
      if (body + note.n_descsz > notes.size()) break;
      if (note.n_type == NT_GNU_BUILD_ID) {
        std::string hex;
        for (std::size_t b = 0; b < note.n_descsz; ++b) {
          constexpr char digits[] = "0123456789abcdef";
          const auto byte = static_cast<unsigned char>(notes[body + b]);
          hex += {digits[byte >> 4], digits[byte & 15]};
        }
        return hex;
      }
      at = body + padded(note.n_descsz);
    }
  }
  return {};
}

fs::path library_file(const fs::path& package) { return package / "mooncake/engine.so"; }

/// Makes python_symbols.cpp visible to libraries opened later: the plug-in itself was opened with RTLD_LOCAL.
void show_symbols() {
  Dl_info info{};
  if (dladdr(PyBaseObject_Type, &info) == 0 || dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL) == nullptr) {
    throw Failure{KVCTS_E_NOT_SUPPORTED, "cannot make the plug-in's symbols visible to Mooncake"};
  }
}

std::string_view code_name(std::uint16_t code) {
  switch (code) {
    case 1:
      return "invalid argument";
    case 2:
      return "too many requests";
    case 3:
      return "address not registered";
    case 4:
      return "batch busy";
    case 8:
      return "transport not supported";
    case 200:
      return "metadata";
    default:
      return "a code unknown to this version of the suite";
  }
}

}  // namespace

const Version& identify(const fs::path& package) {
  const fs::path file = library_file(package);
  if (std::error_code error; !fs::is_regular_file(file, error)) {
    throw Failure{KVCTS_E_NOT_SUPPORTED, "there is no mooncake/engine.so in " + package.string()};
  }
  const std::string found = build_id(file);
  for (const Version& version : known) {
    if (version.build_id == found) return version;
  }
  throw Failure{KVCTS_E_NOT_SUPPORTED,
                file.string() + " is of a version that this plug-in does not know (build ID " +
                    (found.empty() ? "none" : found) +
                    "): its C++ interface is unstable, so it is not called; use one of the pinned packages"};
}

std::string describe(const MooncakeStatus& status) {
  return std::to_string(status.code) + " (" + std::string(code_name(status.code)) + ")" +
         (status.message != nullptr ? std::string(": ") + status.message : "");
}

std::string_view name(TaskState state) {
  constexpr std::string_view names[] = {"WAITING", "PENDING", "INVALID", "CANCELED", "COMPLETED", "TIMEOUT", "FAILED"};
  const auto index = static_cast<std::size_t>(state);
  return index < std::size(names) ? names[index] : "an unnamed state";
}

template <class Function>
void MooncakeLibrary::bind(Function*& function, const char* mangled) {
  function = reinterpret_cast<Function*>(dlsym(handle_, (std::string("_ZN8mooncake14TransferEngine") + mangled).c_str()));
  if (function == nullptr)
    throw Failure{KVCTS_E_NOT_SUPPORTED, std::string("mooncake/engine.so does not export ") + mangled};
}

#define STRING "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"

MooncakeLibrary::MooncakeLibrary(const fs::path& package) : version(identify(package)) {
  show_symbols();
  const fs::path file = library_file(package);
  handle_ = dlopen(file.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (handle_ == nullptr) {
    throw Failure{KVCTS_E_NOT_SUPPORTED, std::string("cannot load mooncake/engine.so: ") + dlerror() +
                                             " (it needs the system packages libibverbs1, libnuma1 and libcurl4)"};
  }
  bind(construct, "C1Eb");
  bind(destruct, "D1Ev");
  bind(init, "4initERK" STRING "S8_S8_m");
  bind(install_transport, "16installTransportERK" STRING "PPv");
  bind(rpc_port, "10getRpcPortEv");
  bind(open_segment, "11openSegmentERK" STRING);
  bind(sync_segments, "16syncSegmentCacheERK" STRING);
  bind(register_memory, "19registerLocalMemoryEPvmRK" STRING "bb");
  bind(unregister_memory, "21unregisterLocalMemoryEPvb");
  bind(allocate_batch, "15allocateBatchIDEm");
  bind(free_batch, "11freeBatchIDEm");
  bind(submit, "14submitTransferEmRKSt6vectorINS_9Transport15TransferRequestESaIS3_EE");
  bind(task_status, "17getTransferStatusEmmRNS_9Transport14TransferStatusE");
}

#undef STRING

void Engine::Free::operator()(void* memory) const { ::operator delete(memory, std::align_val_t{64}); }

Engine::Engine(const MooncakeLibrary& library, const std::string& address)
    : library_(library), storage_(::operator new(object_bytes, std::align_val_t{64})) {
  std::memset(storage_.get(), 0, object_bytes);
  library_.construct(get(), false);
  const int made = library_.init(get(), "P2PHANDSHAKE", address, "", 0);
  // init() installs tcp itself if MC_FORCE_TCP is set. Installing another transport is dangerous: rule M9.
  const bool installed =
      made == 0 && (std::getenv("MC_FORCE_TCP") != nullptr || library_.install_transport(get(), "tcp", nullptr) != nullptr);
  const int port = installed ? library_.rpc_port(get()) : 0;
  if (port <= 0) {
    library_.destruct(get());
    throw Failure{KVCTS_E_BACKEND, "Mooncake did not start on " + address + ": init returned " + std::to_string(made), made};
  }
  name_ = address + ":" + std::to_string(port);
}

Engine::~Engine() {
  if (abandoned_) {
    [[maybe_unused]] void* left = storage_.release();
    return;
  }
  // The thread that accepts peers checks for its end once a second, or on each connection.
  std::atomic<bool> ended{false};
  std::thread visitor([&] {
    while (!ended && listens(name_)) std::this_thread::sleep_for(5ms);
  });
  library_.destruct(get());
  ended = true;
  visitor.join();
}

void Engine::test_itself() {
  // Three pieces of odd sizes, permuted.
  constexpr std::size_t half = 8192;
  constexpr std::size_t from[] = {3, 5000, 2048}, to[] = {4096, 1, 1500}, bytes[] = {1001, 1400, 2500};
  static std::vector<unsigned char> memory(2 * half);  // never freed: failed transfers may still arrive
  std::vector<unsigned char> wanted;
  for (std::size_t i = 0; i < half; ++i) memory[i] = static_cast<unsigned char>(i * 167 + (i >> 8) * 13 + 1);
  wanted = memory;
  Requests requests(library_.version);
  const auto fail = [](const std::string& what) {
    throw Failure{KVCTS_E_NOT_SUPPORTED, "Mooncake's self-test failed: " + what + "; the engine is not used"};
  };
  if (const int code = library_.register_memory(get(), memory.data(), memory.size(), "cpu:0", true, true); code != 0) {
    fail("registration returned " + std::to_string(code));
  }
  const Segment self = library_.open_segment(get(), name_);
  if (self == no_segment) fail("it cannot open its own segment");
  const auto base = reinterpret_cast<std::uint64_t>(memory.data());
  for (int i = 0; i < 3; ++i) {
    requests.add(MooncakeOp::write, base + from[i], self, base + half + to[i], bytes[i]);
    std::memcpy(wanted.data() + half + to[i], memory.data() + from[i], bytes[i]);
  }
  const Batch batch = library_.allocate_batch(get(), 3);
  if (const MooncakeStatus status = library_.submit(get(), batch, requests.words()); status.code != 0)
    fail("submit returned " + describe(status));
  const auto end = std::chrono::steady_clock::now() + self_test_limit;
  for (std::size_t task = 0; task < 3;) {
    TaskStatus status{};
    if (const MooncakeStatus asked = library_.task_status(get(), batch, task, status); asked.code != 0)
      fail("status returned " + describe(asked));
    // The count may still be the previous one: see look() in mooncake.cpp.
    if (status.state == TaskState::completed && status.bytes != bytes[task])
      library_.task_status(get(), batch, task, status);
    if (status.state == TaskState::completed && status.bytes == bytes[task]) {
      ++task;
    } else if (status.state != TaskState::waiting && status.state != TaskState::pending) {
      fail("a task ended as " + std::string(mooncake::name(status.state)) + " with " + std::to_string(status.bytes) +
           " bytes");
    } else if (std::chrono::steady_clock::now() > end) {
      abandon();
      fail("the three pieces did not arrive in 5 s");
    } else {
      std::this_thread::sleep_for(20us);
    }
  }
  library_.free_batch(get(), batch);
  library_.unregister_memory(get(), memory.data(), true);
  if (memory != wanted) fail("bytes are wrong");
}

}  // namespace kvcts::engines::mooncake
