// Sends the copies of a scripted case through a real engine, between two processes. Each side has a mirror of every
// buffer: what a list reads lies with its source, what it writes with its destination, at the true offsets, so that
// the engine really executes a wrong list. Lists alternate between writes and reads.
#pragma once

#include <memory>

#include "case/catalogue/entries.hpp"
#include "engines/testing/target.hpp"
#include "scene/machine/copy_program.hpp"

namespace kvcts::scenario {

class ThroughEngine {
 public:
  /// Starts the other side. Throws transport::TransportError.
  explicit ThroughEngine(const catalogue::EngineEntry& engine);
  /// Throws std::runtime_error if a list does not end in 30 s, or if a source has changed.
  void move(const CopyProgram& program, Bytes& bytes, std::span<const ProgramOp> copies);

  std::int64_t lists{0}, copies{0}, moved_bytes{0};
  std::int64_t left_out{0};  ///< copies of memories too large to mirror; made here
  /// "nixl 1.5.1, tcp/lo"
  std::string path();

 private:
  /// Where the mirror of each buffer begins.
  using Places = std::map<int, std::size_t>;
  static bool mirror(const CopyProgram& program, const Bytes& bytes, int buffer, testing::Memory& memory, Places& places,
                     std::size_t& used);
  void transfer(bool reads, std::vector<transport::Descriptor> list);

  testing::Memory source_, destination_;
  std::unique_ptr<testing::Target> target_;
  std::unique_ptr<transport::Session> session_;
  transport::RegionId own_source_{0}, own_destination_{0};
  transport::PeerId peer_{0};
};

}  // namespace kvcts::scenario
