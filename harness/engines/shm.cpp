// Engine shm: two processes of one host; the initiator maps the peer's memory files and copies. One-sided.
#include "engines/support/shared_memory.hpp"

namespace kvcts::engines {
namespace {

class ShmEngine final : public SharedMemoryEngine {
 public:
  static constexpr const char* engine_name = "shm";
  static const char* engine_version() { return "1"; }
  explicit ShmEngine(const OpenArgs& args) : SharedMemoryEngine(engine_name, args) { args.finish(); }
};

}  // namespace
}  // namespace kvcts::engines

extern "C" const kvcts_transport* kvcts_transport_entry(std::uint32_t host_abi) {
  return kvcts::engines::table<kvcts::engines::ShmEngine>(host_abi);
}
