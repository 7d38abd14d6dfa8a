#include "engines/transport/session.hpp"

#include <array>
#include <bit>
#include <charconv>
#include <cstring>

#include "engines/transport/open_args.hpp"
#include "engines/transport/patience.hpp"
#include "engines/transport/table.hpp"

namespace kvcts::transport {
namespace {

constexpr std::uint64_t largest_blob = 1u << 30;  // more: the plug-in writes garbage into *bytes
constexpr std::uint64_t largest_notification = KVCTS_LONGEST_NOTIFICATION;

void check_notification(std::string_view data) {
  if (data.size() <= largest_notification) return;
  throw TransportError(Code::invalid, "expected a notification of at most " + std::to_string(largest_notification) +
                                          " bytes, found " + std::to_string(data.size()));
}

struct FlagRow {
  const char* name;
  std::uint32_t kvcts_claims::* member;
  std::uint32_t limit;  ///< largest legal value
};
/// All 32-bit claims in one table: range check and text derive from it.
constexpr std::array<FlagRow, 19> flag_rows{{{"kinds", &kvcts_claims::kinds, 7},
                                             {"memories", &kvcts_claims::memories, 15},
                                             {"reach", &kvcts_claims::reach, 7},
                                             {"can_write", &kvcts_claims::can_write, 1},
                                             {"can_read", &kvcts_claims::can_read, 1},
                                             {"one_sided", &kvcts_claims::one_sided, 1},
                                             {"needs_target_progress", &kvcts_claims::needs_target_progress, 1},
                                             {"repeated_registration", &kvcts_claims::repeated_registration, 1},
                                             {"overlapping_registration", &kvcts_claims::overlapping_registration, 1},
                                             {"zero_length", &kvcts_claims::zero_length, 1},
                                             {"unregistered_local", &kvcts_claims::unregistered_local, 1},
                                             {"revokes", &kvcts_claims::revokes, 1},
                                             {"notifications", &kvcts_claims::notifications, 1},
                                             {"notification_after_data", &kvcts_claims::notification_after_data, 1},
                                             {"thread_safe", &kvcts_claims::thread_safe, 1},
                                             {"completion", &kvcts_claims::completion, 1},
                                             {"ordering", &kvcts_claims::ordering, 2},
                                             {"cancellation", &kvcts_claims::cancellation, 2},
                                             {"peer_death", &kvcts_claims::peer_death, 2}}};
struct LimitRow {
  const char* name;
  std::uint64_t kvcts_claims::* member;
};
constexpr std::array<LimitRow, 3> limit_rows{{{"alignment", &kvcts_claims::alignment},
                                              {"max_descriptors", &kvcts_claims::max_descriptors},
                                              {"max_bytes", &kvcts_claims::max_bytes}}};

std::string number(std::uint64_t value) { return value == UINT64_MAX ? "unlimited" : std::to_string(value); }

/// "" if the claims are consistent; otherwise the contradiction.
std::string contradiction(const Claims& claims, const kvcts_transport& api) {
  for (const auto& row : flag_rows) {
    if (claims.*row.member > row.limit) {
      return std::string(row.name) + " is " + std::to_string(claims.*row.member) + ", at most " + std::to_string(row.limit) +
             " is known";
    }
  }
  if (claims.reserved != 0) return "reserved is " + std::to_string(claims.reserved) + ", expected 0";
  if (claims.kinds == 0 || claims.reach == 0) return "kinds and reach must each name at least one";
  if (!claims.can_write && !claims.can_read) return "an engine must be able to write or to read";
  if (!std::has_single_bit(claims.alignment) || claims.alignment > (1u << 30)) {
    return "alignment is " + number(claims.alignment) + ", expected a power of two up to 2^30";
  }
  if (claims.max_descriptors == 0 || claims.max_bytes == 0) return "max_descriptors and max_bytes must not be 0";
  if (claims.needs_target_progress && api.progress == nullptr) return "needs_target_progress without a call progress";
  if (claims.one_sided && claims.needs_target_progress) return "one_sided and needs_target_progress contradict each other";
  if (claims.notifications && (api.notify == nullptr || api.take_notification == nullptr)) {
    return "notifications without the calls notify and take_notification";
  }
  if (claims.cancellation != KVCTS_CANCEL_NONE && api.cancel == nullptr) return "cancellation without a call cancel";
  return {};
}

}  // namespace

struct Session::Held {
  std::vector<Descriptor> descriptors;
  std::string notification;
  std::uint64_t bytes{0};  ///< of all descriptors; UINT64_MAX on overflow
  Status last{};           ///< of poll(): neither number decreases or exceeds the request
};

Session::Session(std::shared_ptr<const Plugin> plugin, const OpenOptions& options) : plugin_(std::move(plugin)) {
  const OpenArgs args(options);
  kvcts_agent* agent = nullptr;
  checked(api().open(args.get(), &agent), "open");
  if (agent == nullptr) throw TransportError(Code::contract, plugin_->engine() + ": open returned OK and no agent");
  agent_ = agent;
  try {
    Guarded<kvcts_claims> claims;
    const std::int32_t status = api().claims(agent_, &claims.out);
    claims.check(plugin_->engine(), "claims");
    checked(status, "claims");
    claims_ = claims.out;
    if (const auto wrong = contradiction(claims_, api()); !wrong.empty()) {
      throw TransportError(Code::contract, plugin_->engine() + ": claims: " + wrong);
    }
  } catch (...) {
    api().close(agent_);
    throw;
  }
}

Session::~Session() {
  if (agent_ != nullptr) api().close(agent_);
}

std::int32_t Session::checked(std::int32_t status, const char* call, bool may_be_in_progress) const {
  if (status == KVCTS_OK || (status == KVCTS_IN_PROGRESS && may_be_in_progress)) return status;
  fail(api(), agent_, plugin_->engine(), call, status);
}

RegionId Session::register_region(const Region& region) {
  kvcts_region raw{};
  raw.size = sizeof raw;
  raw.kind = region.kind;
  raw.memory = region.memory;
  raw.device = region.device;
  raw.fd = region.fd;
  raw.fd_offset = region.fd_offset;
  raw.address = region.address;
  raw.bytes = region.bytes;
  raw.access = region.access;
  raw.key = region.key.empty() ? nullptr : region.key.data();
  raw.key_bytes = region.key.size();
  RegionId handle = 0;
  checked(api().register_region(agent_, &raw, &handle), "register_region");
  if (handle == 0 || handle == KVCTS_NO_REGION) {
    throw TransportError(Code::contract, plugin_->engine() + ": register_region returned OK and no handle");
  }
  return handle;
}

void Session::deregister(RegionId region) { checked(api().deregister_region(agent_, region), "deregister_region"); }

std::string Session::metadata(std::span<const RegionId> regions) {
  std::string blob(256 + 64 * regions.size(), '\0');
  for (int attempt = 0; attempt < 4; ++attempt) {
    std::uint64_t bytes = blob.size();
    const std::int32_t status = api().export_metadata(agent_, regions.data(), regions.size(), blob.data(), &bytes);
    if (status != KVCTS_E_TOO_SMALL) checked(status, "export_metadata");
    if (bytes > largest_blob || (status == KVCTS_OK && bytes > blob.size())) {
      throw TransportError(Code::contract, plugin_->engine() + ": export_metadata says " + std::to_string(bytes) +
                                               " bytes into a buffer of " + std::to_string(blob.size()));
    }
    blob.resize(bytes);
    if (status == KVCTS_OK) return blob;
  }
  throw TransportError(Code::contract,
                       plugin_->engine() + ": export_metadata calls every buffer too small, even of the size it requested");
}

PeerId Session::add_peer(std::string_view metadata) {
  PeerId peer = 0;
  checked(api().add_peer(agent_, metadata.data(), metadata.size(), &peer), "add_peer");
  if (peer == 0) throw TransportError(Code::contract, plugin_->engine() + ": add_peer returned OK and no handle");
  return peer;
}

void Session::remove_peer(PeerId peer) { checked(api().remove_peer(agent_, peer), "remove_peer"); }

RequestId Session::prepare(PeerId peer, Op op, std::vector<Descriptor> descriptors, std::string notification) {
  check_notification(notification);
  auto held = std::make_unique<Held>(Held{std::move(descriptors), std::move(notification)});
  for (const Descriptor& d : held->descriptors)
    held->bytes = d.bytes > UINT64_MAX - held->bytes ? UINT64_MAX : held->bytes + d.bytes;
  kvcts_transfer transfer{};
  transfer.size = sizeof transfer;
  transfer.peer = peer;
  transfer.op = static_cast<std::uint32_t>(op);
  transfer.descriptors = held->descriptors.data();
  transfer.count = held->descriptors.size();
  transfer.notification = held->notification.empty() ? nullptr : held->notification.data();
  transfer.notification_bytes = held->notification.size();
  RequestId request = 0;
  checked(api().prepare(agent_, &transfer, &request), "prepare");
  const std::lock_guard lock(held_lock_);
  if (request == 0 || request == UINT64_MAX || held_.contains(request)) {
    throw TransportError(Code::contract, plugin_->engine() + ": prepare returned OK and no handle, or one that is in use");
  }
  held_.emplace(request, std::move(held));
  return request;
}

bool Session::start(RequestId request) {
  const bool done = checked(api().post(agent_, request), "post", true) == KVCTS_OK;
  if (Held* held = this->held(request)) held->last = {};
  return done;
}

Session::Held* Session::held(RequestId request) {
  const std::lock_guard lock(held_lock_);
  const auto found = held_.find(request);
  return found == held_.end() ? nullptr : found->second.get();
}

void Session::drop(RequestId request) {
  const std::lock_guard lock(held_lock_);
  held_.erase(request);
}

RequestId Session::post(PeerId peer, Op op, std::vector<Descriptor> descriptors, std::string notification) {
  const RequestId request = prepare(peer, op, std::move(descriptors), std::move(notification));
  try {
    start(request);
  } catch (...) {
    api().release(agent_, request);  // its status adds nothing
    drop(request);
    throw;
  }
  return request;
}

Status Session::poll(RequestId request) {
  Guarded<kvcts_progress> guarded;
  kvcts_progress& progress = guarded.out;
  progress.bytes_done = progress.descriptors_done = KVCTS_UNKNOWN;
  Status status;
  const std::int32_t answer = api().poll(agent_, request, &progress);
  guarded.check(plugin_->engine(), "poll");
  status.done = checked(answer, "poll", true) == KVCTS_OK;
  if (progress.bytes_done != KVCTS_UNKNOWN) status.bytes = progress.bytes_done;
  if (progress.descriptors_done != KVCTS_UNKNOWN) status.descriptors = progress.descriptors_done;
  if (Held* held = this->held(request)) {
    check_progress("bytes_done", status.bytes, held->last.bytes, held->bytes);
    check_progress("descriptors_done", status.descriptors, held->last.descriptors, held->descriptors.size());
    held->last = status;
  }
  return status;
}

void Session::check_progress(const char* what, const std::optional<std::uint64_t>& now,
                             const std::optional<std::uint64_t>& before, std::uint64_t all) const {
  if (!now || (*now >= before.value_or(0) && *now <= all)) return;
  throw TransportError(Code::contract, plugin_->engine() + ": poll: " + what + " is " + std::to_string(*now) + " after " +
                                           std::to_string(before.value_or(0)) + ", of " + std::to_string(all) +
                                           " in the request");
}

Status Session::wait(RequestId request, const std::function<void(const Status&)>& seen) {
  Patience patience;
  Status last;
  for (;;) {
    const Status status = poll(request);
    if (seen) seen(status);
    if (status.done) return status;
    if (status.bytes != last.bytes || status.descriptors != last.descriptors) patience.reset();
    last = status;
    patience.pause();
  }
}

std::optional<bool> Session::descriptor_done(RequestId request, std::uint64_t index) {
  if (api().descriptor_status == nullptr) return std::nullopt;
  return checked(api().descriptor_status(agent_, request, index), "descriptor_status", true) == KVCTS_OK;
}

void Session::cancel(RequestId request) {
  if (api().cancel == nullptr) throw TransportError(Code::not_supported, plugin_->engine() + ": has no cancel");
  checked(api().cancel(agent_, request), "cancel", true);
}

void Session::release(RequestId request) {
  checked(api().release(agent_, request), "release");
  drop(request);
}

bool Session::progress() {
  if (api().progress == nullptr) return false;
  return checked(api().progress(agent_), "progress", true) == KVCTS_IN_PROGRESS;
}

void Session::flush(PeerId peer) {
  if (api().flush == nullptr) return;
  Patience patience;
  while (checked(api().flush(agent_, peer), "flush", true) == KVCTS_IN_PROGRESS) patience.pause();
}

void Session::notify(PeerId peer, std::string_view data) {
  if (api().notify == nullptr) throw TransportError(Code::not_supported, plugin_->engine() + ": has no notifications");
  check_notification(data);
  checked(api().notify(agent_, peer, data.data(), data.size()), "notify");
}

std::optional<std::string> Session::take_notification() {
  if (api().take_notification == nullptr) return std::nullopt;
  std::string data(largest_notification, '\0');
  std::uint64_t bytes = data.size();
  const std::int32_t status = api().take_notification(agent_, data.data(), &bytes);
  if (status == KVCTS_E_NOT_FOUND) return std::nullopt;
  checked(status, "take_notification");
  if (bytes > data.size())
    throw TransportError(Code::contract, plugin_->engine() + ": returned a notification of more than 4096 bytes");
  data.resize(bytes);
  return data;
}

Facts Session::facts() {
  Facts facts;
  if (api().facts == nullptr) return facts;
  const auto sink = [](void* context, const char* key, const char* value) {
    if (key == nullptr || value == nullptr) return;
    (*static_cast<Facts*>(context))[given_text(key)] = given_text(value);
  };
  checked(api().facts(agent_, sink, &facts), "facts");
  check_counts(facts);
  return facts;
}

/// The facts that the header defines as counts: decimal, over the life of the agent.
void Session::check_counts(const Facts& facts) {
  for (const char* name : {"bytes_written", "bytes_read", "descriptors"}) {
    const auto fact = facts.find(name);
    if (fact == facts.end()) continue;
    const std::string& text = fact->second;
    std::uint64_t count = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
    const std::string found = plugin_->engine() + ": facts: " + name + " is \"" + text + "\"";
    if (text.empty() || error != std::errc() || end != text.data() + text.size())
      throw TransportError(Code::contract, found + ", expected a decimal number of at most 64 bits");
    std::uint64_t& before = counts_[name];
    if (count < before)
      throw TransportError(Code::contract, found + " after " + std::to_string(before) + ": counts must not decrease");
    before = count;
  }
}

std::vector<std::pair<std::string, std::uint64_t>> claim_values(const Claims& claims) {
  std::vector<std::pair<std::string, std::uint64_t>> values;
  for (const auto& row : flag_rows) values.emplace_back(row.name, claims.*row.member);
  for (const auto& row : limit_rows) values.emplace_back(row.name, claims.*row.member);
  return values;
}

std::string to_text(const Claims& claims) {
  std::string text;
  for (const auto& [key, value] : claim_values(claims)) text += key + "=" + number(value) + "\n";
  return text;
}

}  // namespace kvcts::transport
