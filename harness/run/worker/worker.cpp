#include "run/worker/worker.hpp"

#include <cxxabi.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <stdexcept>
#include <typeinfo>

#include "case/texts.hpp"
#include "connector/misread.hpp"
#include "engines/transport/memory.hpp"
#include "process/json_text.hpp"
#include "process/status_view.hpp"
#include "run/worker/base64.hpp"
#include "scene/reader/reader.hpp"

namespace kvcts::worker {

using nlohmann::json;
using process::now_ns;
using process::UniqueFd;
using process::WorkerRequest;

namespace {

constexpr std::size_t sample_copies = 64;
constexpr const char* provider_option = "memory_provider";  ///< of an engine: stem of a plug-in for transport/kvcts_memory.h

/// An invalid request from the supervisor: the suite's own fault, never the code under test's.
struct Misuse : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Runs the suite's own code: exceptions from it are the suite's fault.
template <class F>
auto own(F&& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    throw Misuse(error.what());
  }
}

std::string type_name(const std::exception& error) {
  int status = 0;
  std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(typeid(error).name(), nullptr, nullptr, &status),
                                              std::free);
  return status == 0 ? text.get() : typeid(error).name();
}

/// Peak resident memory since the last reset.
std::int64_t peak_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

void reset_peak() {
  static const UniqueFd file(::open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC));
  if (file) [[maybe_unused]]
    const auto written = ::pwrite(file.get(), "5", 1, 0);
}

/// FNV-1a over the numbers of a plan: distinguishes two plans in a report.
std::string plan_digest(const std::vector<Copy>& copies) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const Copy& copy : copies)
    for (const std::int64_t value :
         {std::int64_t{copy.src}, copy.src_offset, std::int64_t{copy.dst}, copy.dst_offset, copy.bytes})
      for (int byte = 0; byte < 8; ++byte)
        hash = (hash ^ (static_cast<std::uint64_t>(value) >> (8 * byte) & 255)) * 0x100000001b3;
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

json claims_json(const transport::Claims& claims) {
  json out = json::object();
  for (const auto& [key, value] : transport::claim_values(claims)) out[key] = value;
  return out;
}

}  // namespace

/// One whole memory file, as mapped here.
struct Worker::File {
  Side side{};
  bool output{false};
  std::int64_t base{0}, bytes{0};
  UniqueFd fd;
  process::Mapping map;
  std::optional<transport::Block> block;  ///< of the whole file, if a provider supplies the registered memory
  std::uint8_t* data() const { return map.data() + base; }
  std::span<std::uint8_t> whole() const { return {map.data(), map.size()}; }
};

/// One side's endpoint of the engine.
struct Worker::Agent {
  Side side;
  transport::Session session;
  std::unique_ptr<transport::MemoryPool> pool;  ///< none: memory files are registered directly
};

struct Worker::CaseContext {
  ResolvedCase view;
  std::vector<File> files;
  std::unique_ptr<connector::Connector> connector;
  std::vector<transport::RegionId> registered[2];  ///< by side, in the order of regions()
  std::optional<transport::PeerId> peer;           ///< of the side that posts
  std::optional<transport::PeerId> peer_of_target;
  connector::Plan plan;
  std::vector<transport::RequestId> requests;  ///< of the side that posts; kept until released
  bool failed{false};                          ///< the last transfer did: then engine errors about its remains do not count
  bool finished{false};
  Side initiator() const { return view.op == Direction::read ? Side::consumer : Side::producer; }
};

Worker::Worker(std::string role, process::StatusPage* page, std::function<bool()> interrupted, Announce announce)
    : role_(std::move(role)),
      page_(page),
      progress_(page),
      interrupted_(std::move(interrupted)),
      announce_(std::move(announce)) {}
Worker::~Worker() = default;

Worker::Agent* Worker::agent(Side side) {
  for (const auto& one : agents_)
    if (one->side == side) return one.get();
  return nullptr;
}

Worker::CaseContext& Worker::context(const json& request) {
  const auto key = request.at("key").get<std::uint64_t>();
  const auto found = cases_.find(key);
  if (found == cases_.end() || found->second->finished)
    throw Misuse("no case with key " + std::to_string(key) + " has been prepared");
  return *found->second;
}

bool Worker::needs_progress() const {
  if (program_) return program_->open_case();
  return connected_ > 0 && role_ != "both" && std::any_of(agents_.begin(), agents_.end(), [](const auto& a) {
           return a->session.claims().needs_target_progress != 0;
         });
}

bool Worker::progress() {
  bool worked = false;
  if (program_) program_->pump();
  for (const auto& one : agents_) worked = one->session.progress() || worked;
  return worked;
}

json Worker::handle(const json& request, std::vector<UniqueFd> fds) {
  std::string op = "?";
  std::optional<WorkerRequest> asked;
  json reply;
  try {
    op = request.at("op").get<std::string>();
    asked = process::request_in<WorkerRequest>(request);
    if (!asked) throw Misuse(process::unknown_request<WorkerRequest>(request));
    reply = dispatch(*asked, request, fds);
    reply["ok"] = true;
  } catch (const Misuse& error) {
    reply = {{"error", {{"text", op + ": " + error.what()}}}};
  } catch (const connector::program::Stopped& stopped) {
    reply = stopped.reply;
  } catch (const connector::Refusal& error) {
    reply = {{"refused", {{"text", error.what()}, {"at", "connector"}}}};
  } catch (const connector::Raised& error) {
    reply = {{"raised", {{"type", error.type}, {"text", error.what()}, {"at", "connector"}}}};
  } catch (const transport::TransportError& error) {
    const std::string at = "engine: " + std::string(transport::name(error.code()));
    // An engine that cannot even open reports what this machine lacks: a library, a known version, a device.
    if (error.code() == transport::Code::absent ||
        (asked == WorkerRequest::hello && error.code() == transport::Code::not_supported))
      reply = {{"skipped", {{"text", error.what()}}}};
    else if (error.code() == transport::Code::contract)
      reply = {{"raised", {{"type", "ContractViolation"}, {"text", error.what()}, {"at", at}}}};
    else if (error.code() == transport::Code::cannot_load)
      reply = {{"raised", {{"type", "CannotLoad"}, {"text", error.what()}, {"at", at}}}};
    else
      reply = {{"refused", {{"text", error.what()}, {"at", at}}}};
  } catch (const json::exception& error) {
    reply = {{"error", {{"text", op + ": " + to_string(error)}}}};
  } catch (const std::bad_alloc&) {
    reply = {{"memory", {{"text", "memory ran out in " + op}}}};
  } catch (const std::exception& error) {
    reply = {{"raised", {{"type", type_name(error)}, {"text", error.what()}, {"at", op}}}};
  } catch (...) {
    reply = {{"raised", {{"type", "unknown"}, {"text", "something that is no std::exception"}, {"at", op}}}};
  }
  // The actual phase: a request can cover several.
  if (!reply.contains("ok") && page_ != nullptr && asked == WorkerRequest::transfer)
    reply["phase"] = name(static_cast<Phase>(page_->phase.load()));
  return reply;
}

json Worker::dispatch(WorkerRequest asked, const json& request, std::vector<UniqueFd>& fds) {
  switch (asked) {
    case WorkerRequest::hello:
      return hello(request);
    case WorkerRequest::prepare:
      return prepare(request, fds);
    case WorkerRequest::connect:
      return connect(request);
    case WorkerRequest::upload:
      return upload(request);
    case WorkerRequest::download:
      return download(request);
    case WorkerRequest::plan:
      return plan(request);
    case WorkerRequest::transfer:
      return transfer(request);
    case WorkerRequest::read:
      return read(request);
    case WorkerRequest::end:
      return end(request);
    case WorkerRequest::close:
      return close();
    case WorkerRequest::forget:
      for (const auto key : request.at("keys").get<std::vector<std::uint64_t>>()) cases_.erase(key);
      break;
    case WorkerRequest::cancel:  // its arrival has already ended the wait
    case WorkerRequest::bye:     // worker_main.cpp exits
      break;
  }
  return json::object();
}

transport::OpenOptions open_options(const json& engine) {
  transport::OpenOptions options;
  options.options = texts_of(engine.value("options", json::object()));
  options.options.erase(provider_option);
  return options;
}

json Worker::hello(const json& request) {
  const std::int64_t begin = now_ns();
  if (!agents_.empty() || program_) throw Misuse("hello was sent twice: a process hosts one plug-in for life");
  if (request.contains("connector")) return hello_program(request);
  const json& engine = request.at("engine");
  transport::OpenOptions options = open_options(engine);
  const auto plugin = transport::Plugin::load(transport::find_plugin(engine.at("plugin").get<std::string>()));
  const std::string base = request.value("name", "worker" + std::to_string(::getpid()));
  const std::string memory = engine.value("options", json::object()).value(provider_option, "");
  for (const Side side : {Side::producer, Side::consumer}) {
    if (role_ != "both" && role_ != name(side)) continue;
    options.name = base + "/" + std::string(name(side));
    options.role = side == Side::producer ? transport::Role::producer : transport::Role::consumer;
    agents_.push_back(std::unique_ptr<Agent>(new Agent{side, {plugin, options}, nullptr}));
    if (!memory.empty())
      agents_.back()->pool =
          std::make_unique<transport::MemoryPool>(transport::MemoryProvider::load(transport::find_plugin(memory)),
                                                  transport::OpenOptions{options.name, options.role, {}});
  }
  if (agents_.empty()) throw Misuse("expected the role producer, consumer or both, found '" + role_ + "'");
  json message = {
      {"name", plugin->engine()}, {"version", plugin->version()}, {"claims", claims_json(agents_[0]->session.claims())}};
  try {  // the path and its counts are known after a transfer, the device now: for cases that never complete one
    for (const auto& [key, value] : agents_[0]->session.facts())
      if (key == "device" || key == "arch" || key == "device_evidence") message["device_facts"][key] = value;
  } catch (const transport::TransportError&) {  // the transfer asks again, and reports
  }
  if (const auto& pool = agents_[0]->pool) message["memory"] = pool->provider().name() + " " + pool->provider().version();
  return {{"pid", ::getpid()}, {"engine", std::move(message)}, {"load_ns", now_ns() - begin}};
}

json Worker::hello_program(const json& request) {
  const std::int64_t begin = now_ns();
  if (role_ == "both") throw Misuse("a connector program has one side; expected the role producer or consumer");
  const json& wanted = request.at("connector");
  const std::string base = request.value("name", "worker" + std::to_string(::getpid()));
  program_ = std::make_unique<connector::program::ProgramHost>(wanted.at("name").get<std::string>(), wanted.at("options"),
                                                               role_ == "producer" ? Side::producer : Side::consumer, base,
                                                               interrupted_);
  const json message = program_->start();
  json engine = {{"name", message["name"]}, {"version", message["version"]}};
  for (const char* key : {"capabilities", "facts"})
    if (message.contains(key)) engine[key] = message[key];
  return {{"pid", ::getpid()}, {"engine", std::move(engine)}, {"load_ns", now_ns() - begin}};
}

void Worker::take_files(CaseContext& context, const json& files, std::vector<UniqueFd>& fds) {
  if (files.size() != fds.size())
    throw Misuse("expected one descriptor per file (" + std::to_string(files.size()) + "), found " +
                 std::to_string(fds.size()));
  for (std::size_t i = 0; i < fds.size(); ++i) {
    if (!process::is_sealed(fds[i].get())) throw Misuse("a memory file is not sealed against shrinking");
    const auto side = files[i].at("side").get<std::string>();
    File file;
    file.output = side == "output";
    file.side = side == "producer" ? Side::producer : Side::consumer;
    file.base = files[i].at("base").get<std::int64_t>();
    file.bytes = files[i].at("bytes").get<std::int64_t>();
    file.fd = std::move(fds[i]);
    // A request moves only part of its pool.
    file.map = process::Mapping(file.fd.get(), 0, true, process::Pages::as_touched);
    if (file.base < 0 || file.bytes < 0 || static_cast<std::size_t>(file.base + file.bytes) > file.map.size())
      throw Misuse("an allocation lies outside its memory file");
    context.files.push_back(std::move(file));
  }
}

void Worker::register_files(CaseContext& context) {
  for (const auto& one : agents_) {
    context.connector->register_caches(context.view, one->side);
    auto& regions = context.registered[static_cast<std::size_t>(one->side)];
    for (File& file : context.files) {
      if (file.output || file.side != one->side) continue;
      if (one->pool) {
        file.block.emplace(one->pool->allocate(file.whole().size()));
        file.block->write(0, file.whole());
        regions.push_back(one->session.register_region(
            file.block->region(static_cast<std::uint64_t>(file.base), static_cast<std::uint64_t>(file.bytes))));
        continue;
      }
      transport::Region region;
      region.address = file.data();
      region.bytes = static_cast<std::uint64_t>(file.bytes);
      region.fd = file.fd.get();
      region.fd_offset = static_cast<std::uint64_t>(file.base);
      regions.push_back(one->session.register_region(region));
    }
  }
}

json Worker::open_program(CaseContext& context, const json& request) {
  const std::string folder = "/proc/" + std::to_string(::getpid()) + "/fd/";
  const auto named = regions(context.view, role_ == "producer" ? Side::producer : Side::consumer);
  std::vector<connector::program::MemoryMessage> memory;
  for (const File& file : context.files)
    if (!file.output)
      memory.push_back({named.at(memory.size()).name, folder + std::to_string(file.fd.get()), file.base, file.bytes});
  const json metadata =
      program_->open(request.at("key").get<std::uint64_t>(), context.view, memory, request.value("ports", json::array()));
  return {{"metadata", process::dump(metadata)}, {"regions", memory.size()}};
}

json Worker::prepare(const json& request, std::vector<UniqueFd>& fds) {
  const auto key = request.at("key").get<std::uint64_t>();
  for (const auto old : request.value("forget", std::vector<std::uint64_t>{})) cases_.erase(old);
  if (agents_.empty() && !program_) throw Misuse("prepare before hello");
  if (cases_.contains(key)) throw Misuse("case " + std::to_string(key) + " is prepared already");
  if (page_ != nullptr) process::reset(*page_, key);
  progress_.enter(Phase::registration);
  reset_peak();

  auto made = std::make_unique<CaseContext>();
  CaseContext& context = *made;
  own([&] {
    context.view = case_from_json(request.at("case"));
    take_files(context, request.at("files"), fds);
    if (!program_) context.connector = connector::make_connector(context.view.connector);
    return 0;
  });
  // Kept from here on in any case: mappings stay until the case was checked for late writes.
  cases_.emplace(key, std::move(made));

  if (program_) return open_program(context, request);
  register_files(context);
  json reply = json::object();
  reply["regions"] = context.registered[0].size() + context.registered[1].size();
  if (role_ != "both") {
    Agent& own_agent = *agents_.front();
    reply["metadata"] = to_base64(own_agent.session.metadata(context.registered[static_cast<std::size_t>(own_agent.side)]));
    return reply;
  }
  // Both sides are here: no one else needs to carry the blob.
  const Side initiator = context.initiator(), target = initiator == Side::producer ? Side::consumer : Side::producer;
  const std::string blob = agent(target)->session.metadata(context.registered[static_cast<std::size_t>(target)]);
  context.peer = agent(initiator)->session.add_peer(blob);
  ++connected_;
  return reply;
}

json Worker::connect(const json& request) {
  CaseContext& context = this->context(request);
  progress_.enter(Phase::registration);
  if (program_) {
    const json peer = own([&] { return json::parse(request.at("peer").at("metadata").get<std::string>()); });
    program_->handshake(request.at("key").get<std::uint64_t>(), peer);
    return json::object();
  }
  const std::string metadata = own([&] { return from_base64(request.at("peer").at("metadata").get<std::string>()); });
  if (context.peer || context.peer_of_target) throw Misuse("connected already");
  Agent& here = *agents_.front();
  auto& peer = here.side == context.initiator() ? context.peer : context.peer_of_target;
  peer = here.session.add_peer(metadata);
  ++connected_;
  return json::object();
}

/// A pass begins: copies what the checker wrote to the files into the provider's memory.
json Worker::upload(const json& request) {
  for (File& file : context(request).files)
    if (file.block) file.block->write(0, file.whole());
  return json::object();
}

/// The pass is over: copies everything back, including guards and bytes outside every descriptor.
json Worker::download(const json& request) {
  for (const File& file : context(request).files)
    if (file.block) file.block->read(0, file.whole());
  return json::object();
}

json Worker::plan(const json& request) {
  CaseContext& context = this->context(request);
  progress_.enter(Phase::plan);
  context.plan = context.connector->plan(context.view, progress_);
  std::int64_t bytes = 0;
  json sample = json::array();
  for (const Copy& copy : context.plan.copies) {
    bytes += copy.bytes;
    if (sample.size() < sample_copies) sample.push_back({copy.src, copy.src_offset, copy.dst, copy.dst_offset, copy.bytes});
  }
  return {{"copies", context.plan.copies.size()}, {"bytes", bytes},
          {"relayout", context.plan.relayout},    {"note", context.plan.note},
          {"sample", std::move(sample)},          {"digest", plan_digest(context.plan.copies)}};
}

json Worker::transfer_by_program(CaseContext& context, const json& request) {
  const json message = program_->transfer(request.at("key").get<std::uint64_t>(), context.view, request.value("pass", 0),
                                          progress_, announce_);
  announce_({});
  json reply = {{"ns", {{"complete", 0}}}};
  for (const char* key : {"moved", "path"})
    if (message.contains(key)) reply[key] = message[key];
  return reply;
}

namespace {

/// What is still under way would keep writing: releases it now, like its caller would. The first `kept` requests stay until
/// the memory was compared.
void release_unfinished(std::vector<transport::RequestId>& requests, transport::Session& session, std::size_t kept) {
  while (requests.size() > kept) {
    const transport::RequestId id = requests.back();
    requests.pop_back();
    try {
      session.release(id);
    } catch (const transport::TransportError&) {
    }
  }
}

/// The list as the side that posts it has it. `local`: handles of its regions.
std::vector<transport::Descriptor> descriptors_of(const connector::Plan& plan, bool write,
                                                  const std::vector<transport::RegionId>& local) {
  std::vector<transport::Descriptor> out;
  out.reserve(plan.copies.size());
  for (const Copy& copy : plan.copies) {
    const int mine = write ? copy.src : copy.dst, theirs = write ? copy.dst : copy.src;
    // An unregistered region has handle 0: the engine must report that.
    const transport::RegionId handle =
        mine >= 0 && static_cast<std::size_t>(mine) < local.size() ? local[static_cast<std::size_t>(mine)] : 0;
    out.push_back({handle, static_cast<std::uint64_t>(write ? copy.src_offset : copy.dst_offset),
                   static_cast<std::uint64_t>(theirs), static_cast<std::uint64_t>(write ? copy.dst_offset : copy.src_offset),
                   static_cast<std::uint64_t>(copy.bytes)});
  }
  return out;
}

}  // namespace

std::vector<std::uint64_t> Worker::post(CaseContext& context, transport::Session& session,
                                        const std::vector<transport::Descriptor>& all, transport::Op op) {
  std::vector<std::uint64_t> posted;
  const std::uint64_t most = std::max<std::uint64_t>(1, session.claims().max_descriptors);
  for (std::size_t first = 0; first < all.size() || posted.empty();) {
    const std::size_t count = static_cast<std::size_t>(std::min<std::uint64_t>(most, all.size() - first));
    std::vector<transport::Descriptor> part(all.begin() + static_cast<std::ptrdiff_t>(first),
                                            all.begin() + static_cast<std::ptrdiff_t>(first + count));
    std::uint64_t bytes = 0;
    for (const auto& descriptor : part) bytes += descriptor.bytes;
    context.requests.push_back(session.post(*context.peer, op, std::move(part)));
    posted.push_back(bytes);
    first += count;
  }
  return posted;
}

json Worker::transfer(const json& request) {
  CaseContext& context = this->context(request);
  progress_.enter(Phase::transfer);
  if (program_) return transfer_by_program(context, request);
  const Side side = context.initiator();
  Agent* here = agent(side);
  if (here == nullptr || !context.peer) throw Misuse("the " + std::string(name(side)) + " posts but is not connected");
  Agent* target = agent(side == Side::producer ? Side::consumer : Side::producer);
  const auto& local = context.registered[static_cast<std::size_t>(side)];
  const bool write = side == Side::producer;

  const std::vector<transport::Descriptor> all = descriptors_of(context.plan, write, local);
  std::uint64_t total = 0;
  for (const transport::Descriptor& one : all) total += one.bytes;
  progress_.set(0, total);

  if (!context.requests.empty()) throw Misuse("the requests of the last transfer are still unreleased");
  context.failed = false;
  std::vector<std::uint64_t> posted;
  std::size_t ended = 0;
  std::uint64_t moved = 0;
  std::int64_t posted_ns = 0;
  try {
    posted = post(context, here->session, all, write ? transport::Op::write : transport::Op::read);
    posted_ns = now_ns();
    progress_.enter(Phase::complete);
    progress_.set(0, total);
    // For people who investigate a hang here.
    if (target == nullptr && here->session.claims().needs_target_progress)
      progress_.note(
          "this engine completes only while the target's process makes progress calls: look at the state and the stack of "
          "the other worker");
    for (; ended < posted.size(); ++ended) {
      const transport::Status status = here->session.wait(context.requests[ended], [&](const transport::Status& now) {
        progress_.set(moved + now.bytes.value_or(0), total);
        if (target != nullptr) target->session.progress();
      });
      moved += status.bytes.value_or(posted[ended]);
    }
    const bool visible = !write || here->session.claims().completion == KVCTS_COMPLETION_REMOTE;  // else it is visible
                                                                                                  // after flush()
    const auto complete = [&] {
      const std::int64_t since = now_ns();
      announce_({});
      posted_ns += now_ns() - since;  // no part of its time
    };
    if (visible) complete();
    here->session.flush(*context.peer);
    if (!visible) complete();
    progress_.set(moved, total);
  } catch (...) {
    context.failed = true;
    release_unfinished(context.requests, here->session, posted_ns == 0 ? ended : ended + 1);
    throw;
  }
  json path = json::object();
  for (const auto& [key, value] : here->session.facts()) path[key] = value;
  return {{"moved", moved}, {"copies", all.size()}, {"path", std::move(path)}, {"ns", {{"complete", now_ns() - posted_ns}}}};
}

json Worker::read(const json& request) {
  CaseContext& context = this->context(request);
  progress_.enter(Phase::read_back);
  std::vector<std::span<std::uint8_t>> caches;
  std::span<std::uint8_t> output;
  for (const File& file : context.files) {
    const std::span<std::uint8_t> bytes(file.data(), static_cast<std::size_t>(file.bytes));
    if (file.output)
      output = bytes;
    else if (file.side == Side::consumer)
      caches.push_back(bytes);
  }
  ResolvedCase view = context.view;
  const auto reader = own([&] {
    const json& options = context.view.reader.options;
    if (const auto sabotage = options.find("sabotage"); sabotage != options.end()) connector::misread(view, *sabotage);
    return reader::make_reader(view.reader);
  });
  if (!reader) throw Misuse("the case has no reader");
  const reader::ReadResult result = reader->run(view, caches, output, progress_);
  return {{"tokens", result.tokens}, {"events", result.events}};
}

/// One of the calls that end something; the memory is compared before the next one. A call with nothing to do, e.g.
/// after a refusal in the middle of prepare(), succeeds.
json Worker::end(const json& request) {
  const auto call = request.at("call").get<std::string>();
  const auto found = cases_.find(request.at("key").get<std::uint64_t>());
  if (found == cases_.end() || found->second->finished) return {{"peak_bytes", peak_bytes()}};
  CaseContext& context = *found->second;
  if (call == "release") {
    release(context);
  } else if (call == "remove_peer") {
    for (const auto& one : agents_) {
      auto& peer = one->side == context.initiator() ? context.peer : context.peer_of_target;
      if (!peer) continue;
      --connected_;
      one->session.remove_peer(*std::exchange(peer, std::nullopt));
    }
  } else if (call == "deregister") {
    context.finished = true;
    for (const auto& one : agents_) {
      auto& regions = context.registered[static_cast<std::size_t>(one->side)];
      while (!regions.empty()) {
        const transport::RegionId region = regions.back();
        regions.pop_back();
        one->session.deregister(region);
      }
    }
  } else if (call == "end" && program_) {
    context.finished = true;
    const std::int64_t resident = program_->resident_bytes();
    program_->close(found->first);
    for (File& file : context.files) file.fd.reset();
    return {{"peak_bytes", peak_bytes() + resident}};
  } else {
    throw Misuse("expected the call release, remove_peer, deregister, or end of a program, found '" + call + "'");
  }
  for (File& file : context.files)
    if (file.block) file.block->read(0, file.whole());  // what came since the last download
  if (context.finished) {
    for (File& file : context.files) file.block.reset(), file.fd.reset();
    context.connector.reset();
    context.plan = {};
  }
  return {{"peak_bytes", peak_bytes()}};
}

void Worker::release(CaseContext& context) {
  std::optional<transport::TransportError> first;
  Agent* here = agent(context.initiator());
  for (const transport::RequestId request : std::exchange(context.requests, {})) try {
      here->session.release(request);
    } catch (const transport::TransportError& error) {
      if (!first) first = error;
    }
  if (first && !context.failed) throw *first;
}

/// Ends the agents, or the program. Mappings stay: writes at the end are checked.
json Worker::close() {
  for (const auto& [key, context] : cases_)
    for (File& file : context->files) file.block.reset();
  agents_.clear();
  connected_ = 0;
  if (program_) program_->shut_down();
  return json::object();
}

}  // namespace kvcts::worker
