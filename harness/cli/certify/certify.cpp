#include "cli/certify/certify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <sstream>

#include "certificate/error.hpp"
#include "certificate/key_file.hpp"
#include "certificate/package.hpp"
#include "cli/certify/challenge.hpp"
#include "cli/certify/code.hpp"
#include "cli/certify/negatives.hpp"
#include "cli/certify/record.hpp"
#include "cli/report/summary.hpp"
#include "cli/report/whole_file.hpp"
#include "cli/run/run.hpp"
#include "cli/stored.hpp"
#include "process/installation.hpp"
#include "process/sandbox/sandbox.hpp"
#include "run/store/reader.hpp"

namespace kvcts::cli {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

/// There can be no certificate, and why.
struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Runs what has no result yet.
int run_profile(const Subject& subject, const CertifyOptions& options, const Globals& globals, std::uint64_t seed,
                std::function<void(Plan&)> amend) {
  RunOptions run;
  run.amend = std::move(amend);
  run.jobs = options.jobs;
  run.seed = seed;
  run.aside = true;
  run.view = blind_view;
  run.digest = digest_of_code;
  for (const std::string& file : {options.key, options.challenge, options.out})
    if (!file.empty()) run.hidden.push_back(fs::absolute(file).string());
  run.cases = globals.cases;
  if (fs::exists(options.run)) {
    const store::RunInfo info = opening([&] { return store::RunReader::open(options.run).info(); });
    if (info.seed != seed)
      throw Refused(
          fmt::format("the run in {} has seed {}, expected {}: give another folder to --run", options.run, info.seed, seed));
    run.resume = options.run, run.cases = take_up(options.run, globals.cases);
  } else
    run.out = options.run, run.select.suites = {catalogue::suite_of(subject.profile())};
  return run_suite(subject.catalogue(), run);
}

/// What a store must say before anything is certified.
void expect_certifiable(const store::RunReader& reader, const Subject& subject,
                        const std::map<std::string, const Negative*>& negatives) {
  const store::RunInfo info = reader.info();
  const store::Counts counts = reader.counts();
  if (const std::string why = store::why_not_isolated(info); !why.empty())
    throw Refused("the run was not isolated (" + why + "): its results could have been made by the product");
  if (info.suite != catalogue::suite_of(subject.profile()))
    throw Refused("the run in " + reader.directory().string() + " is one of " + info.suite + ", and not of this profile");
  if (store::incomplete(counts)) {
    const std::string lack =
        counts.lacks.empty() ? "" : fmt::format(", {} without {}", counts.lacks[0].count, counts.lacks[0].name);
    throw Refused(fmt::format("{} of {} cases were not run{}",
                              counts.planned - store::ran(counts) - counts.of(Outcome::unsupported), counts.planned, lack));
  }
  std::int64_t waived = 0, run = 0;
  reader.for_each([&](const store::Row& row) {
    const CaseResult& r = row.result;
    waived += r.verdict == Verdict::xfail;
    run += store::was_executed(r.outcome) && !negatives.contains(r.id);
    if (const auto negative = negatives.find(r.id); negative != negatives.end()) {
      const std::string why = why_not_caught(r, negative->second->injector.fault_class);
      if (!why.empty()) throw Refused("a blind negative was not caught: " + r.id + " " + why);
      return;
    }
    if (store::is_failure(r.verdict) || r.verdict == Verdict::error)
      throw Refused(fmt::format("{} is {}, and no waiver of the product covers it: {}", r.id, name(r.outcome), r.message));
    if (store::was_executed(r.outcome) && subject.profile().evidence == Evidence::executed &&
        r.evidence != Evidence::executed)
      throw Refused(fmt::format("{} is {}, and the profile requires executed", r.id, name(r.evidence)));
  });
  if (const std::int64_t most = subject.profile().waived_at_most; waived * 100 > most * run)
    throw Refused(fmt::format("{} of {} cases are waived; the profile allows {} per cent", waived, run, most));
}

/// Evidence of what is no plain success.
json logs_of(const std::vector<CaseResult>& results) {
  json out = json::object();
  for (const CaseResult& r : results) {
    if (r.outcome == Outcome::pass || r.evidence_files.empty()) continue;
    for (const EvidenceFile& file : r.evidence_files) out[r.id].push_back({{"kind", file.kind}, {"text", file.text}});
  }
  return out;
}

std::string summary_of(const store::RunReader& reader) {
  std::ostringstream out;
  report::print_summary(out, report::load(reader), report::Terminal{});
  return out.str();
}

json run_json(const store::RunReader& reader, const ProductCode& code) {
  const store::RunInfo info = reader.info();
  json all_sessions = json::array();
  for (const auto& session : reader.sessions())
    all_sessions.push_back({{"started", store::utc(session.started_ms)}, {"ended", store::utc(session.ended_ms)}});
  json out{{"started", store::utc(info.started_ms)},
           {"sittings", all_sessions},
           {"machine", info.machine},
           {"isolation", info.provenance.value("isolation", "")}};
  const fs::path programs = process::program_folder();
  for (const char* program : {"kvcts", "kvcts-checker", "kvcts-worker", "kvcts-launcher"})
    out["programs"][program] = digest_of_code((programs / program).string());
  out["code"] = code.words();
  return out;
}

certificate::Package package_of(const store::RunReader& reader, const Subject& subject,
                                const std::map<std::string, const Negative*>& negatives,
                                const std::optional<Challenge>& challenge, const fs::path& cases) {
  certificate::Package package;
  const auto& product = subject.product();
  package.product = product.product + " " + product.version;
  std::map<std::string, std::size_t> selected;
  for (std::size_t i = 0; i < subject.selection().size(); ++i) selected[subject.selection().id(i)] = i;
  const std::vector<CaseResult> results = reader.results();
  ProductCode code(subject.catalogue().engines().at(product.engine.id));
  for (const CaseResult& result : results) code.add(result);
  if (const std::string wrong = code.wrong(); !wrong.empty()) throw Refused(wrong);
  for (const CaseResult& result : results) {
    json record = record_of(result);
    if (negatives.contains(result.id))
      record["negative"] = true;
    else if (json claim = claim_of(result, subject, selected.at(result.id)); !claim.is_null())
      record["claim"] = std::move(claim);
    package.records.push_back(std::move(record));
  }
  json names = json::array();
  for (const auto& [id, negative] : negatives) names.push_back(id);
  std::sort(package.records.begin(), package.records.end(),
            [](const json& a, const json& b) { return a.at("id") < b.at("id"); });
  package.plan = {{"profile", profile_here(cases, subject.profile())},
                  {"product",
                   {{"product", product.product},
                    {"vendor", product.vendor},
                    {"version", product.version},
                    {"engine", product.engine.id}}},
                  {"suite", suite_here(cases)},
                  {"seed", challenge ? seed_of(*challenge) : 1},
                  {"challenge", challenge ? json(certificate::hex(certificate::sha256(to_text(*challenge)))) : json()},
                  {"negatives", names},
                  {"ids", json::array()}};
  for (const json& record : package.records) package.plan["ids"].push_back(record.at("id"));
  package.others["claims.json"] = claims_of(package.records, subject).dump();
  package.others["run.json"] = run_json(reader, code).dump();
  package.others["logs/summary.txt"] = summary_of(reader);
  package.others["logs/evidence.json"] = logs_of(results).dump();
  return package;
}

void print_package(const std::string& file, const certificate::Package& package, const std::string& key_id, bool as_json) {
  const json &profile = package.plan.at("profile"), &negatives = package.plan.at("negatives");
  if (as_json) {
    const json out{{"package", file},
                   {"product", package.product},
                   {"profile", profile},
                   {"records", package.records.size()},
                   {"negatives", negatives.size()},
                   {"key", key_id}};
    fmt::print("{}\n", out.dump(2));
    return;
  }
  fmt::print("{}: {} by profile {} {}: {} records, {} of them blind negatives\n", file, package.product,
             profile.at("id").get<std::string>(), profile.at("version").get<std::int64_t>(), package.records.size(),
             negatives.size());
  if (package.plan.at("challenge").is_null())
    fmt::print("no challenge: only the vendor chose the seed, and the certificate says so\n");
}

}  // namespace

int certify(const CertifyOptions& given, const Globals& globals) {
  CertifyOptions options = given;
  if (options.run.empty()) options.run = options.out + ".run";
  if (fs::exists(options.out)) throw UsageError(options.out + " exists already; remove it, or give another -o");
  const fs::path cases = catalogue::find_cases(globals.cases);
  const std::string product = bytes_of_file(options.product);
  const auto key = certificate::read_key(options.key);
  const auto rotations = certificate::rotations_of(options.key);
  std::optional<Challenge> challenge;
  if (!options.challenge.empty()) challenge = read_challenge(options.challenge);
  const Subject subject(cases, options.profile, product, options.product);
  const std::uint64_t seed = challenge ? seed_of(*challenge) : 1;
  // For the lines that run a case again.
  ::setenv(catalogue::product_variable, fs::absolute(options.product).lexically_normal().c_str(), 1);
  try {
    if (const std::string& why = process::why_no_sandbox(); !why.empty())
      throw Refused("there is no sandbox here (" + why + "), and a run that is not isolated gets no certificate");
    std::vector<Negative> negatives;
    if (challenge) {
      fmt::print(stderr, "rehearsing {} blind negatives\n", challenge->negatives);
      try {
        negatives = draw_negatives(subject, *challenge, options.jobs);
      } catch (const CannotRehearse& why) {
        throw Refused(why.what());
      }
    }
    const int status = run_profile(subject, options, globals, seed, [&](Plan& plan) {
      if (challenge) hide_negatives(plan, negatives, *challenge);
    });
    if (status == exit_interrupted) return status;
    std::map<std::string, const Negative*> by_id;
    for (const Negative& one : negatives) by_id[one.id] = &one;
    const auto reader = opening([&] { return store::RunReader::open(options.run); });
    expect_certifiable(reader, subject, by_id);

    certificate::Package package = package_of(reader, subject, by_id, challenge, cases);
    package.rotations = rotations, package.others["product.yaml"] = product;
    report::WholeFile file(options.out, "package", "give another -o");
    const std::string bytes = certificate::write_package(package, key);
    file.out() << bytes;
    file.keep();
    if (!options.bundle.empty()) {
      report::WholeFile bundle(options.bundle, "bundle", "give another --bundle");
      bundle.out() << certificate::sigstore_bundle(bytes);
      bundle.keep();
    }
    print_package(options.out, package, key.public_key().id(), globals.json);
    return exit_as_expected;
  } catch (const Refused& why) {
    fmt::print(stderr, "kvcts certify: no certificate: {}\n", why.what());
    return exit_unexpected;
  }
}

}  // namespace kvcts::cli
