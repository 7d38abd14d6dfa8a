#include "engines/support/copy_engine.hpp"

#include <algorithm>
#include <atomic>
#include <unordered_map>

#include "engines/support/descriptors.hpp"

namespace kvcts::engines {
namespace {

/// Maximum bytes moved per post or poll: about a millisecond, so that progress is visible from outside and cancel works.
constexpr std::uint64_t bytes_a_round = 8u << 20;

[[noreturn]] void outside(const char* side, std::uint64_t index, std::uint64_t offset, std::uint64_t bytes,
                          std::uint64_t extent) {
  throw Failure{KVCTS_E_NOT_FOUND, "descriptor " + std::to_string(index) + ": " + side + " range of " +
                                       std::to_string(bytes) + " bytes at offset " + std::to_string(offset) +
                                       " is outside of its region of " + std::to_string(extent) + " bytes"};
}

}  // namespace

void CopyEngine::claims(kvcts_claims& claims) const {
  claims.kinds = 1u << KVCTS_KIND_MEMORY;
  claims.memories = 1u << KVCTS_MEMORY_HOST;
  claims.can_write = claims.can_read = 1;
  claims.one_sided = 1;
  claims.repeated_registration = claims.overlapping_registration = 1;
  claims.zero_length = 1;
  claims.revokes = 1;
  claims.notifications = claims.notification_after_data = 1;
  claims.completion = KVCTS_COMPLETION_REMOTE;
  claims.ordering = KVCTS_ORDER_NONE;  // requests advance when polled
  claims.cancellation = KVCTS_CANCEL_QUIET;
  claims.peer_death = KVCTS_DEATH_AT_POST;
}

void CopyEngine::accept(const kvcts_region& region) const {
  if (region.kind != KVCTS_KIND_MEMORY || region.memory != KVCTS_MEMORY_HOST)
    throw Failure{KVCTS_E_NOT_SUPPORTED, engine_ + " moves host memory only"};
}

std::uint64_t CopyEngine::register_region(const kvcts_region& region) {
  at(Stage::registration);
  accept(region);
  if (region.address == nullptr && region.bytes > 0) throw Failure{KVCTS_E_INVALID, "the region's address is NULL"};
  const auto start = reinterpret_cast<std::uintptr_t>(region.address);
  if (region.bytes > UINTPTR_MAX - start)
    throw Failure{KVCTS_E_INVALID, "the region runs past the end of the address space"};
  LocalRegion local{static_cast<std::byte*>(region.address), region.bytes, region.access, nullptr};
  keep(region, local);
  return regions_.add(std::move(local));
}

void CopyEngine::deregister_region(std::uint64_t handle) {
  LocalRegion& local = regions_.at(handle);
  for (const auto& [id, request] : requests_) {
    if (request.state == State::active && std::count(request.locals.begin(), request.locals.end(), handle) > 0) {
      throw Failure{KVCTS_E_BUSY,
                    "request " + std::to_string(id) + " is active and uses this region; wait for it or release it"};
    }
  }
  forget(handle, local);
  regions_.take(handle);
}

std::string CopyEngine::export_metadata(std::span<const std::uint64_t> handles) {
  BlobWriter blob(engine_);
  write_agent(blob);
  blob.value<std::uint64_t>(handles.size());
  for (const auto handle : handles) {
    const LocalRegion& local = regions_.at(handle);
    blob.value(local.bytes);
    blob.value(local.access);
    write_region(blob, handle, local);
  }
  return blob.finish();
}

std::uint64_t CopyEngine::add_peer(std::string_view metadata) {
  at(Stage::connect);
  BlobReader blob(engine_, metadata);
  auto peer = std::make_shared<Peer>();
  peer->reach = read_agent(blob);
  const auto count = blob.value<std::uint64_t>();
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto bytes = blob.value<std::uint64_t>();
    const auto access = blob.value<std::uint32_t>();
    RemoteRegion region = read_region(blob, *peer->reach);
    region.bytes = bytes;
    region.access = access;
    met(region);
    peer->regions.push_back(region);
  }
  blob.end();
  return peers_.add(std::move(peer));
}

void CopyEngine::remove_peer(std::uint64_t peer) {
  peers_.take(peer);
  for (auto& [id, request] : requests_) {
    if (request.peer_handle != peer) continue;
    request.state = State::failed;
    request.failure = {KVCTS_E_NOT_FOUND, "the peer of this request was removed"};
    request.moves.clear();
  }
}

static const RemoteRegion& region_at(const std::vector<RemoteRegion>& regions, std::uint64_t ordinal, std::uint64_t i) {
  if (ordinal < regions.size()) return regions[ordinal];
  throw Failure{KVCTS_E_NOT_FOUND, "descriptor " + std::to_string(i) + ": the peer has no region " +
                                       std::to_string(ordinal) + "; its metadata names " + std::to_string(regions.size())};
}

std::uint64_t CopyEngine::prepare(const kvcts_transfer& transfer) {
  Request request;
  request.peer = peers_.at(transfer.peer);
  request.peer_handle = transfer.peer;
  request.writes = transfer.op == KVCTS_OP_WRITE;
  if (transfer.op != KVCTS_OP_WRITE && transfer.op != KVCTS_OP_READ)
    throw Failure{KVCTS_E_INVALID, "op is " + std::to_string(transfer.op) + ", expected 0 (write) or 1 (read)"};
  const std::uint32_t needed = request.writes ? KVCTS_ACCESS_REMOTE_WRITE : KVCTS_ACCESS_REMOTE_READ;
  request.moves.reserve(transfer.count);
  std::unordered_map<std::uint64_t, const LocalRegion*> locals;
  std::vector<bool> used(request.peer->regions.size());
  std::uint64_t last = KVCTS_NO_REGION;
  const LocalRegion* local = nullptr;
  for (std::uint64_t i = 0; i < transfer.count; ++i) {
    const kvcts_descriptor& d = transfer.descriptors[i];
    if (d.local_region == KVCTS_NO_REGION)
      throw Failure{KVCTS_E_NOT_FOUND, "descriptor " + std::to_string(i) + ": its local side is not registered"};
    if (d.local_region != last) {
      const auto [known, fresh] = locals.try_emplace(d.local_region, nullptr);
      if (fresh) {
        known->second = &regions_.at(d.local_region);
        request.locals.push_back(d.local_region);
      }
      local = known->second;
      last = d.local_region;
    }
    const RemoteRegion& remote = region_at(request.peer->regions, d.remote_region, i);
    if (!used[d.remote_region]) {
      used[d.remote_region] = true;
      request.remotes.push_back(d.remote_region);
    }
    if (!inside(d.local_offset, d.bytes, local->bytes)) outside("the local", i, d.local_offset, d.bytes, local->bytes);
    if (!inside(d.remote_offset, d.bytes, remote.bytes)) outside("the remote", i, d.remote_offset, d.bytes, remote.bytes);
    if ((remote.access & needed) == 0)
      throw Failure{KVCTS_E_NOT_PERMITTED, "descriptor " + std::to_string(i) + ": the peer registered region " +
                                               std::to_string(d.remote_region) + " without remote " +
                                               (request.writes ? "write" : "read")};
    request.planned_bytes += d.bytes;
    if (d.bytes == 0) {
      request.moves.push_back({});
      continue;
    }
    std::byte* here = local->address + d.local_offset;
    std::byte* there = remote.address + d.remote_offset;
    request.moves.push_back(request.writes ? Move{there, here, d.bytes} : Move{here, there, d.bytes});
  }
  request.descriptors = transfer.count;
  if (transfer.notification != nullptr)
    request.notification.assign(static_cast<const char*>(transfer.notification), transfer.notification_bytes);
  edit(request.moves);
  return requests_.add(std::move(request));
}

/// Checks what may have changed since prepare: the peer, and registrations on both sides.
void CopyEngine::check(Request& request) {
  if (peers_.find(request.peer_handle) == nullptr) throw Failure{KVCTS_E_NOT_FOUND, "the peer of this request was removed"};
  if (!request.peer->reach->alive()) throw Failure{KVCTS_E_PEER_LOST, "the peer's agent is gone"};
  for (const auto handle : request.locals) regions_.at(handle);
  for (const auto ordinal : request.remotes) {
    if (!request.peer->reach->live(request.peer->regions[ordinal]))
      throw Failure{KVCTS_E_NOT_FOUND,
                    "the peer has deregistered region " + std::to_string(ordinal) + " since its metadata was made"};
  }
}

std::int32_t CopyEngine::post(std::uint64_t handle) {
  Request& request = requests_.at(handle);
  if (request.state == State::active) throw Failure{KVCTS_E_BUSY, "the request is still active"};
  check(request);
  at(Stage::transfer);
  request.state = State::active;
  request.next = 0;
  request.within = request.moved = 0;
  try {
    request.by_engine = moves_by_itself(request.moves);
  } catch (const Failure& failure) {
    request.state = State::failed;
    request.failure = failure;
    throw;
  }
  return advance(request);
}

std::int32_t CopyEngine::poll(std::uint64_t handle, kvcts_progress& progress) {
  Request& request = requests_.at(handle);
  std::int32_t status = KVCTS_OK;
  switch (request.state) {
    case State::prepared:
      throw Failure{KVCTS_E_NOT_POSTED, "the request was not posted"};
    case State::failed:
      throw request.failure;
    case State::done:
      break;
    case State::active:
      status = advance(request);
      break;
  }
  progress.bytes_done = request.state == State::done ? request.planned_bytes : request.moved;
  progress.descriptors_done = request.state == State::done ? request.descriptors : request.next;
  return status;
}

std::int32_t CopyEngine::advance(Request& request) {
  std::uint64_t budget = bytes_a_round;
  while (!request.by_engine && request.next < request.moves.size()) {
    if (request.next == request.moves.size() / 2 && request.within == 0) at(Stage::midway);
    const Move& move = request.moves[request.next];
    const std::uint64_t part = std::min(budget, move.bytes - request.within);
    if (part > 0) std::memmove(move.to + request.within, move.from + request.within, part);
    request.moved += part;
    budget -= part;
    request.within += part;
    if (request.within < move.bytes) break;
    request.within = 0;
    ++request.next;
  }
  if (!request.by_engine && request.next < request.moves.size()) return KVCTS_IN_PROGRESS;
  at(Stage::complete);
  if (!completed(request)) return KVCTS_IN_PROGRESS;
  if (request.by_engine) request.moved = request.planned_bytes;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  request.state = State::done;
  (request.writes ? bytes_written_ : bytes_read_) += request.moved;
  descriptors_ += request.descriptors;
  ++completed_;
  if (!request.notification.empty()) request.peer->reach->send(request.notification);
  return KVCTS_OK;
}

/// Calls may_complete(); if it throws, the request ends with that error.
bool CopyEngine::completed(Request& request) {
  try {
    return may_complete(request.moves);
  } catch (const Failure& failure) {
    request.state = State::failed;
    request.failure = failure;
    throw;
  }
}

void CopyEngine::release(std::uint64_t handle) {
  const Request& request = requests_.at(handle);
  if (request.state == State::active && request.by_engine) abandon(request.moves);
  requests_.take(handle);
}

std::int32_t CopyEngine::descriptor_status(std::uint64_t handle, std::uint64_t index) {
  const Request& request = requests_.at(handle);
  if (index >= request.descriptors)
    throw Failure{KVCTS_E_NOT_FOUND, "the request has no descriptor " + std::to_string(index)};
  if (request.state == State::prepared) throw Failure{KVCTS_E_NOT_POSTED, "the request was not posted"};
  if (request.state == State::failed) throw request.failure;
  return request.state == State::done || index < request.next ? KVCTS_OK : KVCTS_IN_PROGRESS;
}

std::int32_t CopyEngine::cancel(std::uint64_t handle) {
  Request& request = requests_.at(handle);
  if (request.state == State::prepared) throw Failure{KVCTS_E_NOT_POSTED, "the request was not posted"};
  if (request.state == State::active) {
    if (request.by_engine) abandon(request.moves);
    request.state = State::failed;
    request.failure = {KVCTS_E_CANCELED, "cancelled after " + std::to_string(request.moved) + " bytes"};
  }
  return KVCTS_OK;
}

void CopyEngine::notify(std::uint64_t handle, std::string_view data) {
  Peer& peer = *peers_.at(handle);
  if (!peer.reach->alive()) throw Failure{KVCTS_E_PEER_LOST, "the peer's agent is gone"};
  peer.reach->send(data);
}

const std::string* CopyEngine::oldest_notification() {
  fetch_notifications();
  return inbox_.empty() ? nullptr : &inbox_.front();
}

std::map<std::string, std::string> CopyEngine::facts() {
  return {{"transport", engine_},
          {"bytes_written", std::to_string(bytes_written_)},
          {"bytes_read", std::to_string(bytes_read_)},
          {"descriptors", std::to_string(descriptors_)},
          {"requests", std::to_string(completed_)}};
}

}  // namespace kvcts::engines
