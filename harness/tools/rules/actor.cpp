#include "tools/rules/actor.hpp"

#include <sys/mman.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <thread>

#include "engines/transport/patience.hpp"

namespace kvcts::rules {

using catalogue::RuleCopy;
using catalogue::RuleStep;
using transport::Role;
using transport::TransportError;

namespace {

template <class T>
T& named(std::map<std::string, T>& all, const std::string& name, const char* what) {
  const auto found = all.find(name);
  if (found == all.end()) throw std::logic_error("the rule has no " + std::string(what) + " '" + name + "' here");
  return found->second;
}

}  // namespace

std::uint8_t initial(bool of_target, std::size_t at) {
  std::uint64_t word = (at + 1) * 0x9e3779b97f4a7c15 + (of_target ? 0xbf58476d1ce4e5b9 : 0x94d049bb133111eb);
  word ^= word >> 29;
  word *= 0xd6e8feb86659fd93;
  return static_cast<std::uint8_t>(word >> 56);
}

namespace {
/// The byte that `memory` began with.
std::uint8_t first(const ActorMemory& memory, bool of_target, std::size_t at) {
  return static_cast<std::uint8_t>(initial(of_target, at) ^ (memory.sum_before != 0 ? 0xff : 0));
}
}  // namespace

void exchange(ActorMemory& memory) {
  if (memory.sum_before != 0) return;
  memory.sum_before = sum(memory);
  const auto put = [](void* at, int fd) {
    if (mmap(at, memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
      throw std::runtime_error("no mapping");
  };
  put(memory.bytes, memory.other_fd);
  put(memory.other, memory.fd);
  std::swap(memory.fd, memory.other_fd);
}

std::uint64_t sum(const ActorMemory& memory) { return XXH3_64bits(memory.bytes, memory_bytes); }

Actor::Actor(bool target, const ActorSetup& setup, const ActorMemory& memory)
    : target_(target),
      setup_(setup),
      memory_(memory),
      session_(transport::Plugin::load(transport::find_plugin(setup.plugin)), open_options("rule")) {
  if (setup.memory.empty()) return;
  pool_ = std::make_unique<transport::MemoryPool>(transport::MemoryProvider::load(transport::find_plugin(setup.memory)),
                                                  transport::OpenOptions{});
  block_ = std::make_unique<transport::Block>(pool_->allocate(memory_bytes));
  block_->write(0, {memory_.bytes, memory_bytes});
}

transport::OpenOptions Actor::open_options(const std::string& name) const {
  return {.name = name + (target_ ? "/target" : "/initiator"),
          .role = target_ ? Role::consumer : Role::producer,
          .options = setup_.options};
}

bool Actor::turn() {
  bool worked = session_.progress();
  if (meanwhile) meanwhile();
  for (auto it = active_.begin(); it != active_.end();) {
    bool ended = true;
    try {
      ended = session_.poll(*it).done;
    } catch (const TransportError&) {  // the waiting code gets the same error
    }
    worked = worked || ended;
    it = ended ? active_.erase(it) : std::next(it);
  }
  return worked;
}

void Actor::collect() {
  if (block_) block_->read(0, {memory_.bytes, memory_bytes});
}

template <class Call>
std::string Actor::answer(Call&& call) {
  try {
    return call();
  } catch (const TransportError& error) {
    words_ = error.what();
    return std::string(transport::name(error.code()));
  }
}

std::string Actor::blob(const std::vector<std::string>& regions) {
  std::vector<transport::RegionId> ids;
  for (const auto& name : regions) ids.push_back(named(regions_, name, "region").id);
  return session_.metadata(ids);
}

std::string Actor::connect(const std::string& peer, const std::string& blob, const std::vector<std::string>& regions) {
  return answer([&] {
    peers_[peer] = {session_.add_peer(blob), regions};
    return "ok";
  });
}

namespace {

/// A copy with the engine's claims filled in as its numbers.
RuleCopy limited(RuleCopy copy, const transport::Claims& claims) {
  if (copy.limit == "max_descriptors") copy.times = static_cast<std::int64_t>(claims.max_descriptors) + copy.over;
  if (copy.limit == "max_bytes") copy.bytes = static_cast<std::int64_t>(claims.max_bytes) + copy.over;
  if (copy.limit == "alignment") {
    const auto by = static_cast<std::int64_t>(claims.alignment) / (copy.over ? 2 : 1);
    copy.local_at += by, copy.remote_at += by;
  }
  return copy;
}

transport::Op op_of(Direction direction) {
  return direction == Direction::read ? transport::Op::read : transport::Op::write;
}

}  // namespace

std::vector<transport::Descriptor> Actor::descriptors(const RuleStep& step, const Peer& peer) {
  std::vector<transport::Descriptor> list;
  for (const RuleCopy& raw : step.copies) {
    const RuleCopy copy = limited(raw, session_.claims());
    const auto ordinal = std::find(peer.regions.begin(), peer.regions.end(), copy.remote) - peer.regions.begin();
    const bool unregistered = copy.local == "nobody";
    const std::uint64_t base = unregistered ? reinterpret_cast<std::uint64_t>(memory_.bytes) : 0;
    const transport::RegionId local = unregistered ? KVCTS_NO_REGION : named(regions_, copy.local, "region").id;
    for (std::int64_t i = 0; i < copy.times; ++i) {
      list.push_back({local, base + static_cast<std::uint64_t>(copy.local_at + i * copy.bytes),
                      static_cast<std::uint64_t>(ordinal), static_cast<std::uint64_t>(copy.remote_at + i * copy.bytes),
                      static_cast<std::uint64_t>(copy.bytes)});
    }
  }
  return list;
}

void Actor::prepare(const RuleStep& step) {
  const Peer& peer = named(peers_, step.peer, "peer");
  auto list = descriptors(step, peer);
  Asked& asked = requests_[step.request] = {0, step.op, {}};
  for (const RuleCopy& copy : step.copies) asked.copies.push_back(limited(copy, session_.claims()));
  asked.id = session_.prepare(peer.id, op_of(step.op), std::move(list), step.notification);
}

bool Actor::start(transport::RequestId request) {
  const bool done = session_.start(request);
  if (!done) active_.insert(request);
  return done;
}

std::string Actor::wait(const RuleStep& step) {
  const transport::RequestId id = named(requests_, step.request, "request").id;
  active_.erase(id);
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(step.within_ms);
  transport::Patience patience;
  while (!session_.poll(id).done) {
    if (std::chrono::steady_clock::now() > end) return "pending";
    if (meanwhile) meanwhile();
    patience.pause();
  }
  return "done";
}

std::string Actor::register_region(const RuleStep& step) {
  const std::map<std::string, std::uint32_t> memories{
      {"host", KVCTS_MEMORY_HOST}, {"cuda", KVCTS_MEMORY_CUDA}, {"hip", KVCTS_MEMORY_HIP}, {"other", KVCTS_MEMORY_OTHER}};
  const std::map<std::string, std::uint32_t> kinds{
      {"memory", KVCTS_KIND_MEMORY}, {"file", KVCTS_KIND_FILE}, {"object", KVCTS_KIND_OBJECT}};
  const std::map<std::string, std::uint32_t> accesses{{"all", 7},
                                                      {"read", KVCTS_ACCESS_LOCAL | KVCTS_ACCESS_REMOTE_READ},
                                                      {"write", KVCTS_ACCESS_LOCAL | KVCTS_ACCESS_REMOTE_WRITE}};
  transport::Region region;
  const bool own = step.address < 0;
  if (own && block_) {
    region = block_->region(static_cast<std::uint64_t>(step.at), 0);
  } else if (own) {
    region.address = memory_.bytes + step.at;
    region.fd = memory_.fd;
    region.fd_offset = static_cast<std::uint64_t>(step.at);
  } else {
    region.address = reinterpret_cast<void*>(step.address);  // NOLINT: any address, the engine must judge it
  }
  region.bytes = static_cast<std::uint64_t>(step.bytes);
  if (!block_ || step.memory != "host") region.memory = memories.at(step.memory);
  region.kind = kinds.at(step.kind);
  region.access = accesses.at(step.access);
  if (region.kind != KVCTS_KIND_MEMORY) region.address = nullptr;
  if (region.kind == KVCTS_KIND_OBJECT) region.key = "kvcts", region.fd = -1;
  regions_[step.region] = {session_.register_region(region), static_cast<std::size_t>(step.at)};
  return "ok";
}

/// Each thread makes, posts, awaits and releases requests of one copy, without waiting for the others.
std::string Actor::threads(const RuleStep& step) {
  constexpr std::size_t crowd = 4;
  const Peer& peer = named(peers_, step.peer, "peer");
  const auto list = descriptors(step, peer);
  requests_[step.request] = {0, step.op, step.copies};
  std::array<std::string, crowd> answers;
  const auto work = [&](std::size_t which) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(step.within_ms);
    try {
      for (std::size_t i = which; i < list.size(); i += crowd) {
        const auto id = session_.prepare(peer.id, op_of(step.op), {list[i]});
        transport::Patience patience;
        bool done = session_.start(id);
        for (; !done && std::chrono::steady_clock::now() < end; done = session_.poll(id).done) patience.pause();
        if (!done) answers[which] = "pending";
        session_.release(id);
      }
    } catch (const TransportError& error) {
      answers[which] = std::string(transport::name(error.code()));
    }
  };
  std::vector<std::thread> all;
  for (std::size_t i = 0; i < crowd; ++i) all.emplace_back(work, i);
  for (std::thread& one : all) one.join();
  for (const std::string& answer : answers) {
    if (!answer.empty()) return answer;
  }
  return "done";
}

namespace {
std::ptrdiff_t entries(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
}
}  // namespace

/// The first extra agents may start shared state; later ones must release everything they added.
std::string Actor::reopen() {
  constexpr int agents = 10;
  const auto once = [&](int i) {
    transport::Session(transport::Plugin::load(transport::find_plugin(setup_.plugin)),
                       open_options("again" + std::to_string(i)));
  };
  for (int i = 0; i < 2; ++i) once(i);
  const auto threads = entries("/proc/self/task"), files = entries("/proc/self/fd");
  for (int i = 0; i < agents; ++i) once(2 + i);
  std::string left;
  // A thread that was asked to end may still be ending.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (entries("/proc/self/task") >= threads + agents && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  if (entries("/proc/self/task") >= threads + agents) left = "threads";
  if (entries("/proc/self/fd") >= files + agents) left += left.empty() ? "descriptors" : " and descriptors";
  return left.empty() ? "nothing" : left;
}

std::string Actor::act(const RuleStep& step) {
  return answer([&]() -> std::string {
    if (step.action == "register") return register_region(step);
    if (step.action == "threads") return threads(step);
    if (step.action == "reopen") return reopen();
    if (step.action == "deregister") return session_.deregister(named(regions_, step.region, "region").id), "ok";
    if (step.action == "exchange") {
      if (block_) return "not supported";
      return rules::exchange(memory_), "ok";
    }
    if (step.action == "disconnect") return session_.remove_peer(named(peers_, step.peer, "peer").id), "ok";
    if (step.action == "prepare") return prepare(step), "ok";
    if (step.action == "post") return start(named(requests_, step.request, "request").id), "ok";
    if (step.action == "wait") return wait(step);
    if (step.action == "poll") return session_.poll(named(requests_, step.request, "request").id).done ? "done" : "pending";
    if (step.action == "transfer") {
      prepare(step);
      return start(requests_[step.request].id) ? "done" : wait(step);
    }
    if (step.action == "release") {
      const auto id = named(requests_, step.request, "request").id;
      active_.erase(id);
      return session_.release(id), "ok";
    }
    if (step.action == "flush") return session_.flush(named(peers_, step.peer, "peer").id), "ok";
    if (step.action == "cancel") return session_.cancel(named(requests_, step.request, "request").id), "ok";
    if (step.action == "notify") return session_.notify(named(peers_, step.peer, "peer").id, step.notification), "ok";
    if (step.action == "take") {
      const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(step.within_ms);
      while (std::chrono::steady_clock::now() < end) {
        turn();
        if (session_.take_notification()) return "came";
      }
      return "pending";
    }
    if (step.action == "pause") {
      const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(step.within_ms);
      for (; std::chrono::steady_clock::now() < end; std::this_thread::sleep_for(std::chrono::milliseconds(1))) turn();
      return "ok";
    }
    throw std::logic_error("a side does not " + step.action);
  });
}

std::string Actor::check(const std::string& request, const ActorMemory& there,
                         const std::map<std::string, std::size_t>& places) const {
  const auto asked = requests_.find(request);
  if (asked == requests_.end()) throw std::logic_error("the rule has no request '" + request + "'");
  const bool reads = asked->second.op == Direction::read;
  std::size_t total = 0, right = 0, changed = 0;
  for (const RuleCopy& copy : asked->second.copies) {
    const auto place = regions_.find(copy.local);
    const std::size_t from = (place != regions_.end() ? place->second.at : 0) + static_cast<std::size_t>(copy.local_at);
    const auto remote = places.find(copy.remote);
    const std::size_t to = (remote != places.end() ? remote->second : 0) + static_cast<std::size_t>(copy.remote_at);
    for (std::size_t i = 0; i < static_cast<std::size_t>(copy.bytes * copy.times); ++i) {
      if (from + i >= memory_bytes || to + i >= memory_bytes) break;
      const std::uint8_t found = reads ? memory_.bytes[from + i] : there.bytes[to + i];
      ++total;
      right += found == (reads ? first(there, true, to + i) : first(memory_, false, from + i));
      changed += found != (reads ? first(memory_, false, from + i) : first(there, true, to + i));
    }
  }
  if (right == total) return "arrived";
  return changed == 0 ? "untouched" : "partly";
}

std::string Actor::others(const ActorMemory& there, const std::map<std::string, std::size_t>& places) const {
  for (const ActorMemory* one : {&memory_, &there}) {
    if (one->sum_before != 0 && XXH3_64bits(one->other, memory_bytes) != one->sum_before) return "changed";
  }
  std::vector<bool> ours(memory_bytes), theirs(memory_bytes);  // to be written
  for (const auto& [name, asked] : requests_) {
    const bool reads = asked.op == Direction::read;
    for (const RuleCopy& copy : asked.copies) {
      const auto& all = reads ? regions_ : std::map<std::string, Place>{};
      const auto own = all.find(copy.local);
      const auto remote = places.find(copy.remote);
      const std::size_t at = reads
                                 ? (own != all.end() ? own->second.at : 0) + static_cast<std::size_t>(copy.local_at)
                                 : (remote != places.end() ? remote->second : 0) + static_cast<std::size_t>(copy.remote_at);
      auto& marks = reads ? ours : theirs;
      const std::size_t end = std::min(memory_bytes, at + static_cast<std::size_t>(copy.bytes * copy.times));
      for (std::size_t i = at; i < end; ++i) marks[i] = true;
    }
  }
  for (std::size_t i = 0; i < memory_bytes; ++i) {
    if (!ours[i] && memory_.bytes[i] != first(memory_, false, i)) return "changed";
    if (!theirs[i] && there.bytes[i] != first(there, true, i)) return "changed";
  }
  return "untouched";
}

}  // namespace kvcts::rules
