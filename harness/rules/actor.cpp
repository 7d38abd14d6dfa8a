#include "rules/actor.hpp"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "transport/patience.hpp"

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

Actor::Actor(bool target, const std::string& plugin, const std::map<std::string, std::string>& options, const Memory& memory)
    : memory_(memory),
      session_(transport::Plugin::load(transport::find_plugin(plugin)),
               {.name = target ? "rule/target" : "rule/initiator", .role = target ? Role::consumer : Role::producer, .options = options}) {}

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

void Actor::prepare(const RuleStep& step) {
  const Peer& peer = named(peers_, step.peer, "peer");
  std::vector<transport::Descriptor> list;
  for (const RuleCopy& copy : step.copies) {
    const auto ordinal = std::find(peer.regions.begin(), peer.regions.end(), copy.remote) - peer.regions.begin();
    const bool nobody = copy.local == "nobody";
    const std::uint64_t base = nobody ? reinterpret_cast<std::uint64_t>(memory_.bytes) : 0;
    const transport::RegionId local = nobody ? KVCTS_NO_REGION : named(regions_, copy.local, "region").id;
    for (std::int64_t i = 0; i < copy.times; ++i) {
      list.push_back({local, base + static_cast<std::uint64_t>(copy.local_at + i * copy.bytes), static_cast<std::uint64_t>(ordinal),
                      static_cast<std::uint64_t>(copy.remote_at + i * copy.bytes), static_cast<std::uint64_t>(copy.bytes)});
    }
  }
  requests_[step.request] = {0, step.op, step.copies};
  requests_[step.request].id =
      session_.prepare(peer.id, step.op == "read" ? transport::Op::read : transport::Op::write, std::move(list), step.notification);
}

std::string Actor::wait(const RuleStep& step) {
  const transport::RequestId id = named(requests_, step.request, "request").id;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(step.within_ms);
  transport::Patience patience;
  while (!session_.poll(id).done) {
    if (std::chrono::steady_clock::now() > end) return "pending";
    patience.pause();
  }
  return "done";
}

std::string Actor::act(const RuleStep& step) {
  return answer([&]() -> std::string {
    if (step.action == "register") {
      transport::Region region;
      region.bytes = static_cast<std::uint64_t>(step.bytes);
      region.memory = step.memory == "cuda" ? KVCTS_MEMORY_CUDA : KVCTS_MEMORY_HOST;
      if (step.address >= 0) {
        region.address = reinterpret_cast<void*>(step.address);  // NOLINT: any address, that is the question
      } else {
        region.address = memory_.bytes + step.at;
        region.fd = memory_.fd;
        region.fd_offset = static_cast<std::uint64_t>(step.at);
      }
      regions_[step.region] = {session_.register_region(region), static_cast<std::size_t>(step.at)};
      return "ok";
    }
    if (step.action == "deregister") return session_.deregister(named(regions_, step.region, "region").id), "ok";
    if (step.action == "disconnect") return session_.remove_peer(named(peers_, step.peer, "peer").id), "ok";
    if (step.action == "prepare") return prepare(step), "ok";
    if (step.action == "post") return session_.start(named(requests_, step.request, "request").id), "ok";
    if (step.action == "wait") return wait(step);
    if (step.action == "transfer") {
      prepare(step);
      return session_.start(requests_[step.request].id) ? "done" : wait(step);
    }
    if (step.action == "release") return session_.release(named(requests_, step.request, "request").id), "ok";
    if (step.action == "cancel") return session_.cancel(named(requests_, step.request, "request").id), "ok";
    if (step.action == "notify") return session_.notify(named(peers_, step.peer, "peer").id, step.notification), "ok";
    if (step.action == "take") {
      const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(step.within_ms);
      while (std::chrono::steady_clock::now() < end) {
        session_.progress();
        if (session_.take_notification()) return "came";
      }
      return "pending";
    }
    if (step.action == "pause") {
      const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(step.within_ms);
      for (; std::chrono::steady_clock::now() < end; std::this_thread::sleep_for(std::chrono::milliseconds(1))) session_.progress();
      return "ok";
    }
    throw std::logic_error("a side does not " + step.action);
  });
}

std::string Actor::check(const std::string& request, const Memory& there, const std::map<std::string, std::size_t>& places) const {
  const auto asked = requests_.find(request);
  if (asked == requests_.end()) throw std::logic_error("the rule has no request '" + request + "'");
  const bool reads = asked->second.op == "read";
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
      right += found == (reads ? initial(true, to + i) : initial(false, from + i));
      changed += found != (reads ? initial(false, from + i) : initial(true, to + i));
    }
  }
  if (right == total) return "arrived";
  return changed == 0 ? "untouched" : "partly";
}

}  // namespace kvcts::rules
