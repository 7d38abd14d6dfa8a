// kvcts conformance: tests a transport's claims, and what the header demands of every transport. Needs only the vendor's
// library: no catalogue entry and no source tree.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "case/catalogue/catalogue.hpp"
#include "case/catalogue/nearest.hpp"
#include "case/texts.hpp"
#include "cli/child.hpp"
#include "cli/child_query.hpp"
#include "cli/names.hpp"
#include "cli/report/text.hpp"
#include "cli/verbs/verbs.hpp"
#include "process/grants.hpp"
#include "tools/rules/claims.hpp"
#include "tools/rules/provider.hpp"

namespace kvcts::cli::conformance_verb {
namespace {

using rules::ClaimSeen;
using rules::EngineEntry;
using rules::RuleEntry;

struct Options {
  std::string plugin, memory;
  std::vector<std::string> options, environment, tests;
};

constexpr std::chrono::seconds opening_deadline{20};

/// "key=value" texts as a JSON mapping.
nlohmann::json pairs(const std::vector<std::string>& texts, const char* option) {
  nlohmann::json out = nlohmann::json::object();
  for (const std::string& text : texts) {
    const auto equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
      throw UsageError(fmt::format("{} expects KEY=VALUE, found '{}'", option, text));
    out[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return out;
}

/// An entry of cases/engines by its id, else a plug-in without an entry: a file or a stem.
EngineEntry entry_of(Options& options, const catalogue::Catalogue& cat, bool& described) {
  EngineEntry entry;
  if (const auto* known = cat.engines().find(options.plugin)) entry = *known;
  described = !entry.id.empty();
  if (!described) {
    entry.id = entry.plugin = options.plugin;
    entry.grants = process::grant_names();  // its needs are unknown
    if (options.plugin.find('/') == std::string::npos && !options.plugin.starts_with("kvcts_engine_"))
      throw UsageError(
          fmt::format("expected an engine of cases/engines, or a plug-in's file (with a '/' in it), found '{}'{}",
                      options.plugin, catalogue::suggestion(options.plugin, cat.engines().ids())));
  }
  if (entry.plugin.empty())
    throw UsageError(fmt::format("engine {} has no plug-in: its connector program moves the bytes", entry.id));
  entry.options.update(pairs(options.options, "--option"));
  entry.environment.update(pairs(options.environment, "--environment"));
  if (const auto provider = entry.options.find("memory_provider"); provider != entry.options.end()) {
    if (options.memory.empty()) options.memory = provider->get<std::string>();
    entry.options.erase("memory_provider");
  }
  return entry;
}

/// Opens an agent in a process of its own: who is it, and what does it say of itself?
ChildAnswer introduce(const EngineEntry& entry) {
  return ask_child(
      [&] {
        for (const auto& [key, value] : texts_of(entry.environment)) setenv(key.c_str(), value.c_str(), 1);
        const transport::OpenOptions open{"conformance/producer", transport::Role::producer, texts_of(entry.options)};
        transport::Session session(transport::Plugin::load(transport::find_plugin(entry.plugin)), open);
        try {
          session.facts();
        } catch (const transport::TransportError& error) {
          if (error.code() == transport::Code::contract) throw;  // counts that are none
        }
        return nlohmann::json{{"name", session.plugin().engine()},
                              {"version", session.plugin().version()},
                              {"file", session.plugin().origin()},
                              {"claims", rules::claim_texts(session.claims())}};
      },
      opening_deadline);
}

/// A process that opens an agent, closes it and exits, with the destructors and exit handlers of the plug-in: how it ended,
/// "" = well.
std::string end_of_process(const EngineEntry& entry) {
  const ChildAnswer answer = ask_child(
      [&] {
        const pid_t pid = fork();
        if (pid == 0) {
          try {
            for (const auto& [key, value] : texts_of(entry.environment)) setenv(key.c_str(), value.c_str(), 1);
            transport::Session session(transport::Plugin::load(transport::find_plugin(entry.plugin)),
                                       {"conformance/end", transport::Role::producer, texts_of(entry.options)});
          } catch (const std::exception&) {
            _exit(exit_as_expected);  // introduce() says so
          }
          std::exit(exit_as_expected);
        }
        int status = 0;
        waitpid(pid, &status, 0);
        if (WIFSIGNALED(status)) return nlohmann::json(fmt::format("SIG{} after close()", sigabbrev_np(WTERMSIG(status))));
        return nlohmann::json(WEXITSTATUS(status) == 0 ? "" : fmt::format("status {} after close()", WEXITSTATUS(status)));
      },
      opening_deadline);
  return answer.ok ? answer.value.get<std::string>() : "no end after close(): " + answer.error;
}

/// Each test of a provider in a process of its own.
nlohmann::json try_provider(const std::string& memory) {
  nlohmann::json out{{"tests", nlohmann::json::array()}};
  const ChildAnswer who = ask_child(
      [&] {
        const auto provider = transport::MemoryProvider::load(transport::find_plugin(memory));
        transport::MemoryPool pool(provider, {});
        return nlohmann::json{{"name", provider->name()},
                              {"version", provider->version()},
                              {"memory", pool.info().memory},
                              {"device", pool.info().device},
                              {"host_accessible", pool.info().host_accessible},
                              {"exports", pool.info().exports}};
      },
      opening_deadline);
  out["provider"] = who.ok ? who.value : nlohmann::json{{"error", who.error}};
  for (const auto& test : rules::provider_tests()) {
    if (!who.ok) break;
    const ChildAnswer answer = ask_child(
        [&] {
          transport::MemoryPool pool(transport::MemoryProvider::load(transport::find_plugin(memory)), {});
          return nlohmann::json(test.holds(pool));
        },
        opening_deadline);
    const std::string seen = answer.ok ? answer.value.get<std::string>() : answer.error;
    out["tests"].push_back({{"test", test.id},
                            {"title", test.title},
                            {"seen", seen.empty() ? "as demanded" : seen},
                            {"verdict", seen.empty() ? "holds" : "BROKEN"}});
  }
  return out;
}

/// Memory of a provider can only be used by a transport that takes it.
std::string unfit(const nlohmann::json& provider, const rules::ClaimTexts& claims) {
  const std::uint32_t kind = provider.at("memory");
  for (const auto& [name, bit] :
       {std::pair{"memories.host", 0u}, {"memories.cuda", 1u}, {"memories.hip", 2u}, {"memories.other", 3u}}) {
    if (bit == kind && claims.at(name) != "1")
      return fmt::format("the provider's memory is {}, which the transport does not claim", std::string(name).substr(9));
  }
  return "";
}

/// What was found so far, and its lines.
struct Results {
  bool json;
  nlohmann::json out;
  int held{0}, broken{0}, unasked{0};
  std::vector<std::string> beyond;  ///< what is claimed and cannot be refuted here

  void log(const std::string& text) const {  // a line, with a plug-in's own words in it
    if (!json) fmt::print("{}\n", report::visible(text)), std::fflush(stdout);
  }
  /// Whether it can be opened.
  bool test_provider(const std::string& memory) {
    out["memory"] = try_provider(memory);
    const auto& provider = out["memory"]["provider"];
    if (provider.contains("error")) {
      log(fmt::format("{} cannot be opened: {}", memory, provider["error"].get<std::string>()));
      return false;
    }
    log(fmt::format("memory of {} {}", provider["name"].get<std::string>(), provider["version"].get<std::string>()));
    for (const auto& test : out["memory"]["tests"]) {
      ++(test["verdict"] == "holds" ? held : broken);
      log(fmt::format("  {:<25} {:<9} {:<24} {:<10} {}", "(memory)", "", test["test"].get<std::string>(),
                      test["verdict"].get<std::string>(), test["seen"].get<std::string>()));
    }
    return true;
  }

  void add(const RuleEntry& test, const ClaimSeen& seen, bool own_memory) {
    const auto verdict = rules::name(seen.verdict);
    nlohmann::json& row = out["tests"].emplace_back();
    row = {{"claim", test.claim},     {"said", seen.claimed}, {"test", test.id},
           {"title", test.title},     {"verdict", verdict},   {"seen", seen.seen},
           {"allowed", seen.allowed}, {"words", seen.words},  {"ms", seen.ms}};
    const bool asked = seen.verdict != ClaimSeen::Verdict::not_asked;
    ++(seen.verdict == ClaimSeen::Verdict::holds ? held : asked ? broken : unasked);
    log(fmt::format("  {:<25} {:<9} {:<24} {:<10} {}", test.claim, seen.claimed, test.id, verdict,
                    asked ? seen.seen : seen.words));
    if (!test.beyond.empty() && seen.verdict == ClaimSeen::Verdict::holds && seen.claimed == "1" && own_memory) {
      beyond.push_back(test.claim + ": " + test.beyond);
      row["beyond"] = test.beyond;
    }
    if (seen.verdict != ClaimSeen::Verdict::broken) return;
    log(fmt::format("  {:<61} asked: {}", "", test.title));
    log(fmt::format("  {:<61} may be: {}", "", fmt::join(seen.allowed, " | ")));
    if (!seen.words.empty()) log(fmt::format("  {:<61} it said: {}", "", seen.words));
    if (!test.explain.empty()) log(fmt::format("  {:<61} {}", "", test.explain));
  }

  void add_end(const EngineEntry& entry, const std::string& end) {
    const bool recorded =
        end.starts_with(entry.environment.value("KVCTS_KNOWN_END", "(none)") + " ");  // cases/engines/nixl.yaml says of what
    if (!recorded) ++broken;
    const char* verdict = recorded ? "known" : "BROKEN";
    nlohmann::json& row = out["tests"].emplace_back();
    row = {{"claim", "always"},        {"said", ""},
           {"test", "end-of-process"}, {"title", "An agent is closed, and its process exits"},
           {"verdict", verdict},       {"seen", end}};
    log(fmt::format("  {:<25} {:<9} {:<24} {:<10} {}", "always", "", "end-of-process", verdict, end));
    log(fmt::format("  {:<61} asked: {}", "",
                    "An agent is closed, and its process exits with destructors and exit handlers"));
  }
};

int show(Options options, const Globals& globals) {
  const auto cases = catalogue::find_cases(globals.cases);
  const catalogue::Catalogue cat(cases);
  bool described = false;
  EngineEntry entry = entry_of(options, cat, described);
  if (const auto status = inside(entry.grants)) return *status;
  std::vector<RuleEntry> tests = rules::read_claims(cases);
  narrow(tests, tests, options.tests, "--test expects a test of cases/claims",
         [](const RuleEntry& test) { return test.id; });
  Results results{globals.json, {}, 0, 0, 0, {}};
  const ChildAnswer who = introduce(entry);
  if (!who.ok) {
    if (globals.json) fmt::print("{}\n", nlohmann::json{{"plugin", entry.plugin}, {"error", who.error}}.dump(2));
    results.log(fmt::format("{} cannot be opened: {}", entry.plugin, who.error));
    return exit_unexpected;
  }
  const auto claims = who.value.at("claims").get<rules::ClaimTexts>();
  if (!described) entry.processes = claims.at("reach.host") == "1" || claims.at("reach.network") == "1" ? 2 : 1;
  results.out = {{"engine", who.value["name"]},  {"version", who.value["version"]},    {"file", who.value["file"]},
                 {"processes", entry.processes}, {"claims", nlohmann::json::object()}, {"tests", nlohmann::json::array()}};
  for (const auto& claim : rules::claim_names()) results.out["claims"][claim] = claims.at(claim);
  results.log(fmt::format("{} {}, {}", who.value["name"].get<std::string>(), who.value["version"].get<std::string>(),
                          entry.processes == 2 ? "between two processes" : "within one process"));
  if (!options.memory.empty()) {
    if (!results.test_provider(options.memory)) {
      if (globals.json) fmt::print("{}\n", results.out.dump(2));
      return exit_unexpected;
    }
    if (const std::string why = unfit(results.out["memory"]["provider"], claims); !why.empty()) throw UsageError(why);
  }
  // The other tests write, too: what they say of a transport that cannot is no news.
  std::optional<ClaimSeen> write;
  if (const auto at = std::find_if(tests.begin(), tests.end(), [](const RuleEntry& test) { return test.id == "writes"; });
      at != tests.end() && tests.size() > 1) {
    write = rules::judge(*at, claims, entry, options.memory);
    if (write->verdict == ClaimSeen::Verdict::broken) results.log("a plain write is broken: look at `writes` first");
  }
  for (const RuleEntry& test : tests) {
    const ClaimSeen seen = write && test.id == "writes" ? *write : rules::judge(test, claims, entry, options.memory);
    results.add(test, seen, options.memory.empty());
  }
  if (const std::string end = end_of_process(entry); !end.empty()) results.add_end(entry, end);
  if (globals.json) fmt::print("{}\n", results.out.dump(2));
  for (const auto& claim : results.beyond) results.log("not refutable here: " + claim);
  results.log(fmt::format("{} hold, {} BROKEN, {} not asked", results.held, results.broken, results.unasked));
  return results.broken > 0 ? exit_unexpected : exit_as_expected;
}

}  // namespace

Action declare(Command& command, const Globals& globals) {
  auto options = std::make_shared<Options>();
  command.add_option("PLUGIN", options->plugin, "Engine of cases/engines, or the file of a plug-in").required();
  command.add_option("--memory", options->memory, "Memory provider to test, too, and to allocate all regions from")
      .type_name("FILE");
  command.add_option("--option", options->options, "Option for the plug-in; repeatable").type_name("KEY=VALUE").repeatable();
  command.add_option("--environment", options->environment, "Environment variable for its processes; repeatable")
      .type_name("KEY=VALUE")
      .repeatable();
  command.add_option("--test", options->tests, "Run only this test; repeatable").type_name("TEST").repeatable();
  return [options, &globals] { return show(*options, globals); };
}

}  // namespace kvcts::cli::conformance_verb
