// Engines: which plug-ins are there, do they load, and do bytes arrive? Each is tried in a process of its own, as workers do
// it.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <span>

#include "cli/child_query.hpp"
#include "cli/doctor/doctor.hpp"
#include "engines/transport/packages.hpp"
#include "engines/transport/session.hpp"
#include "process/grants.hpp"

namespace kvcts::cli::doctor {
namespace {

using namespace kvcts::transport;
constexpr std::size_t test_bytes = 64 * 1024;

/// A memory file mapped here.
struct Mapped {
  int fd{-1};
  std::uint8_t* bytes{nullptr};
};
Mapped make_memory() {
  Mapped m;
  m.fd = memfd_create("kvcts-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (m.fd < 0 || ftruncate(m.fd, test_bytes) != 0)
    throw std::runtime_error(std::string("no memory file: ") + std::strerror(errno));
  void* at = mmap(nullptr, test_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, m.fd, 0);
  if (at == MAP_FAILED) throw std::runtime_error(std::string("no mapping: ") + std::strerror(errno));
  m.bytes = static_cast<std::uint8_t*>(at);
  return m;
}

}  // namespace

nlohmann::json load_engine(const nlohmann::json& about) {
  for (const auto& [key, value] : about.at("environment").items()) setenv(key.c_str(), value.get<std::string>().c_str(), 1);
  return Plugin::load(about.at("file").get<std::string>())->version();
}

/// Loads the plug-in, moves 64 KiB from one agent of this process to another, compares. Says what it is.
nlohmann::json try_engine(const nlohmann::json& about) {
  OpenOptions open_producer{"doctor/producer", Role::producer, {}}, open_consumer{"doctor/consumer", Role::consumer, {}};
  for (const auto& [key, value] : about.at("environment").items()) setenv(key.c_str(), value.get<std::string>().c_str(), 1);
  open_producer.options = open_consumer.options = about.at("options");
  const auto plugin = Plugin::load(find_plugin(about.at("stem").get<std::string>()));
  nlohmann::json answer{
      {"name", plugin->engine()}, {"version", plugin->version()}, {"file", plugin->origin()}, {"self_test", "passed"}};
  try {
    Session producer(plugin, open_producer), consumer(plugin, open_consumer);
    const Mapped from = make_memory(), to = make_memory();
    for (std::size_t i = 0; i < test_bytes; ++i) from.bytes[i] = static_cast<std::uint8_t>(i * 131 + (i >> 8));
    const auto region = [](const Mapped& m) {
      Region r;
      r.address = m.bytes;
      r.bytes = test_bytes;
      r.fd = m.fd;
      return r;
    };
    const RegionId local = producer.register_region(region(from)), remote = consumer.register_region(region(to));
    const std::string metadata = consumer.metadata(std::span(&remote, 1));
    const PeerId peer = producer.add_peer(metadata);
    const RequestId request = producer.post(peer, Op::write, {{local, 0, 0, 0, test_bytes}});
    while (!producer.poll(request).done) consumer.progress();
    producer.release(request);
    producer.flush(peer);
    if (std::memcmp(from.bytes, to.bytes, test_bytes) != 0)
      answer["self_test"] = "failed: the bytes that arrived differ from those sent";
    answer["facts"] = producer.facts();
  } catch (const TransportError& e) {
    // An engine that says what this machine lacks is not broken.
    answer["self_test"] = std::string(e.code() == Code::not_supported ? "not possible here: " : "failed: ") + e.what();
  } catch (const std::exception& e) {
    answer["self_test"] = std::string("failed: ") + e.what();
  }
  return answer;
}

std::optional<supervisor::PhaseResult> load_plugin(const std::filesystem::path& file, const nlohmann::json& environment,
                                                   const std::vector<std::string>& grants) {
  using Kind = supervisor::PhaseResult::Kind;
  constexpr std::chrono::milliseconds deadline = std::chrono::seconds(10);
  const ChildAnswer answer =
      ask("load", {{"file", file.string()}, {"environment", environment}}, grants, {file.string()}, deadline);
  if (answer.ok || answer.unstarted) return std::nullopt;  // a sandbox that does not start says so when the case begins
  supervisor::PhaseResult ended;
  ended.phase = Phase::registration;
  ended.text = "the plug-in " + file.string() + " cannot be loaded";
  if (answer.late) {
    ended.kind = Kind::hung;
    ended.hang = HangKind::stalled;
    ended.after_ms = ended.deadline_ms = deadline.count();
  } else if (!answer.died.empty()) {
    ended.kind = Kind::crashed;
    ended.signal = answer.died;
  } else {
    ended.kind = Kind::raised;
    ended.type = "CannotLoad";
    ended.text += ": " + answer.error;
  }
  return ended;
}

DoctorSection engines(const std::vector<PackagedEngine>& packaged) {
  DoctorSection s{"engines", {}};
  const auto examine = [&](const std::string& stem, const PackagedEngine* with) {
    const std::string key = with != nullptr ? stem + " " + with->package : stem;
    const std::string where = with != nullptr ? package_folder(with->package).string() : "";
    if (with != nullptr && where.empty()) {
      s.findings.push_back({key, FindingState::missing, package_missing(with->package),
                            "cases with engines of this package are SKIPPED", nullptr});
      return;
    }
    nlohmann::json about{{"stem", stem}, {"environment", nlohmann::json::object()}, {"options", nlohmann::json::object()}};
    if (with != nullptr) about["environment"] = with->environment, about["options"] = with->options;
    const ChildAnswer answer = ask("try", about, process::grant_names(), {stem}, std::chrono::seconds(10));
    if (!answer.ok) {
      s.findings.push_back({key, FindingState::broken, "cannot be used: " + answer.error, "", nullptr});
      return;
    }
    const std::string test = answer.value["self_test"];
    const bool good = test == "passed";
    const bool lacking = test.starts_with("not possible here");
    s.findings.push_back(
        {key,
         good      ? FindingState::good
         : lacking ? FindingState::missing
                   : FindingState::broken,
         fmt::format("{} {}, self-test {}{}", answer.value["name"].get<std::string>(),
                     answer.value["version"].get<std::string>(), test, where.empty() ? "" : ", from " + where),
         good      ? ""
         : lacking ? "cases with this engine are SKIPPED"
                   : "cases with this engine will fail or be SKIPPED",
         answer.value});
  };
  for (const std::string& stem : list_plugins()) {
    const auto is = [&](const char* word) { return stem.find(word) != std::string::npos; };
    if (is("fixture") || is("saboteur") || is("front") || is("hostile") || is("attacker") || is("crash"))
      continue;  // they break on purpose
    bool any = false;
    for (const PackagedEngine& one : packaged) {
      if (one.plugin != stem) continue;
      any = true;
      examine(stem, &one);
    }
    if (!any) examine(stem, nullptr);
  }
  if (s.findings.empty()) {
    s.findings.push_back({"plug-ins", FindingState::missing, "no engine plug-in is installed beside the program",
                          "no case can run; build the target kvcts_programs, or install whole", nullptr});
  }
  return s;
}

}  // namespace kvcts::cli::doctor
