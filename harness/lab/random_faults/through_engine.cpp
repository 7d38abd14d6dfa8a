#include "lab/random_faults/through_engine.hpp"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "engines/testing/placement.hpp"
#include "engines/transport/patience.hpp"

namespace kvcts::scenario {

namespace {

constexpr std::size_t mirror_bytes = 16 << 20;
constexpr std::chrono::seconds longest{30};

}  // namespace

ThroughEngine::ThroughEngine(const catalogue::EngineEntry& engine) : source_(mirror_bytes), destination_(mirror_bytes) {
  const testing::Placement placement = testing::placement_of(engine);
  target_ = testing::start_target(placement);  // before anything is loaded here
  for (const auto& [key, value] : placement.environment) setenv(key.c_str(), value.c_str(), 1);
  session_ =
      std::make_unique<transport::Session>(transport::Plugin::load(transport::find_plugin(placement.plugin)),
                                           transport::OpenOptions{.name = "random-faults", .options = placement.options});
  own_source_ = session_->register_region(source_.region(0, mirror_bytes));
  own_destination_ = session_->register_region(destination_.region(0, mirror_bytes));
  const auto source = target_->add(source_.region(0, mirror_bytes)),
             destination = target_->add(destination_.region(0, mirror_bytes));
  peer_ = session_->add_peer(target_->metadata({source, destination}));
}

bool ThroughEngine::mirror(const CopyProgram& program, const Bytes& bytes, int buffer, testing::Memory& memory,
                           Places& places, std::size_t& used) {
  if (places.contains(buffer)) return true;
  if (program.buffers[static_cast<std::size_t>(buffer)].sparse) return false;
  const auto& all = bytes.dense(buffer);
  if (all.size() > memory.size() - used) return false;
  std::memcpy(memory.data() + used, all.data(), all.size());
  places.emplace(buffer, used);
  used += all.size();
  return true;
}

void ThroughEngine::transfer(bool reads, std::vector<transport::Descriptor> list) {
  const auto request = session_->post(peer_, reads ? transport::Op::read : transport::Op::write, std::move(list));
  const auto end = std::chrono::steady_clock::now() + longest;
  for (transport::Patience patience; !session_->poll(request).done; patience.pause())
    if (std::chrono::steady_clock::now() > end) throw std::runtime_error("a list through the engine did not end in 30 s");
  session_->release(request);
}

void ThroughEngine::move(const CopyProgram& program, Bytes& bytes, std::span<const ProgramOp> ops) {
  const bool reads = lists % 2 == 1;
  Places from, to;
  std::size_t used_from = 0, used_to = 0;
  std::vector<transport::Descriptor> list;
  std::vector<const ProgramOp*> here;
  for (const ProgramOp& op : ops) {
    if (!mirror(program, bytes, op.src_buffer, source_, from, used_from) ||
        !mirror(program, bytes, op.dst_buffer, destination_, to, used_to)) {
      here.push_back(&op);
      continue;
    }
    const auto at = [&](int buffer, const Places& places, std::int64_t offset) {
      return places.at(buffer) +
             static_cast<std::size_t>(offset + program.buffers[static_cast<std::size_t>(buffer)].guard_below);
    };
    const std::uint64_t source = at(op.src_buffer, from, op.src), destination = at(op.dst_buffer, to, op.dst),
                        n = static_cast<std::uint64_t>(op.n);
    if (reads)
      list.push_back({own_destination_, destination, 0, source, n});
    else
      list.push_back({own_source_, source, 1, destination, n});
    moved_bytes += op.n, ++copies;
  }
  if (!list.empty()) {
    const std::string before(reinterpret_cast<const char*>(source_.data()), used_from);
    transfer(reads, std::move(list));
    ++lists;
    if (std::memcmp(before.data(), source_.data(), used_from) != 0) throw std::runtime_error("the engine changed a source");
    for (const auto& [buffer, begin] : to) {
      const auto size = static_cast<std::int64_t>(bytes.dense(buffer).size());
      bytes.write(buffer, -program.buffers[static_cast<std::size_t>(buffer)].guard_below, size, destination_.data() + begin);
    }
  }
  for (const ProgramOp* op : here) {  // after the mirrors, which do not contain them
    std::vector<std::uint8_t> scratch(static_cast<std::size_t>(op->n));
    bytes.read(op->src_buffer, op->src, op->n, scratch.data());
    bytes.write(op->dst_buffer, op->dst, op->n, scratch.data());
  }
  left_out += static_cast<std::int64_t>(here.size());
}

std::string ThroughEngine::path() {
  const auto facts = session_->facts();
  const auto transport = facts.find("transport");
  return session_->plugin().engine() + " " + session_->plugin().version() +
         (transport == facts.end() ? "" : ", " + transport->second);
}

}  // namespace kvcts::scenario
