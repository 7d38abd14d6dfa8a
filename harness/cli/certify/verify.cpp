#include "cli/certify/verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "case/serialized_case.hpp"
#include "certificate/error.hpp"
#include "certificate/key_file.hpp"
#include "certificate/package.hpp"
#include "cli/certify/challenge.hpp"
#include "cli/certify/code.hpp"
#include "cli/certify/negatives.hpp"
#include "cli/certify/record.hpp"
#include "cli/devices.hpp"
#include "engines/transport/session.hpp"
#include "kernels/parallel.hpp"
#include "matrix/waivers.hpp"
#include "process/sandbox/sandbox.hpp"
#include "run/checker/digests.hpp"
#include "run/store/counts.hpp"
#include "run/supervisor/supervisor.hpp"

namespace kvcts::cli {

using nlohmann::json;

namespace {

/// What is wrong, in one sentence.
struct Wrong : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// Asked for, and cannot be done here.
struct Undone : std::runtime_error {
  using std::runtime_error::runtime_error;
};

json parsed(const certificate::Files& files, const char* name) {
  const auto at = files.find(name);
  if (at == files.end()) throw Wrong(std::string("the package has no ") + name);
  json value = json::parse(at->second, nullptr, false);
  if (value.is_discarded()) throw Wrong(std::string(name) + " is not JSON");
  return value;
}

/// The result of a record, as far as verdicts depend on it.
CaseResult result_of(const json& record) {
  CaseResult result;
  result.id = record.at("id");
  const auto outcome = outcome_from_name(record.at("outcome").get<std::string>());
  const auto evidence = evidence_from_name(record.at("evidence").get<std::string>());
  const auto fault_class = fault_class_from_name(record.value("class", ""));
  if (!outcome || !evidence || !fault_class)
    throw Wrong("'" + result.id + "' has an unknown outcome, evidence or fault class");
  result.outcome = *outcome, result.evidence = *evidence;
  result.diagnosis.fault_class = *fault_class, result.diagnosis.exact = record.value("exact", false);
  const json bytes = record.at("bytes");
  result.wrong_bytes = bytes.at("wrong"), result.moved_bytes = bytes.at("moved"), result.planned_bytes = bytes.at("planned"),
  result.expected_bytes = bytes.at("expected");
  if (const auto digests = record.find("digests"); digests != record.end()) {
    const auto side = [&](const char* name) {
      return SideDigests{digests->at(name).at("before"), digests->at(name).at("after")};
    };
    result.digests = {side("producer"), side("consumer")};
  }
  return result;
}

class Verifier {
 public:
  Verifier(const CertificateOptions& options, const Globals& globals)
      : options_(options), cases_(catalogue::find_cases(globals.cases)) {
    bytes_ = bytes_of_file(options.package);
    if (!options.key.empty()) trusted_ = certificate::read_public_key(options.key);
    if (!options.challenge.empty()) challenge_ = read_challenge(options.challenge);
  }

  Verification run() {
    if (!read()) return std::move(out_);
    const bool sound = line("suite", [&] { return suite(); }) && line("profile", [&] { return profile(); }) &&
                       line("planned", [&] { return planned(); }) && line("challenge", [&] { return challenge(); }) &&
                       line("cases", [&] { return cases(); }) && line("outcomes", [&] { return outcomes(); }) &&
                       line("digests", [&] { return digests(); }) && line("claims", [&] { return claims(); }) &&
                       line("isolation", [&] { return isolation(); }) && line("run by", [&] { return run_by(); }) &&
                       line("negatives", [&] { return negatives(); });
    if (sound && options_.replay > 0) line("replay", [&] { return replay(); });
    return std::move(out_);
  }

 private:
  /// `look` returns what it saw. Whether to go on.
  template <class Look>
  bool line(const char* what, const Look& look) {
    Line out{what, ClaimState::holds, ""};
    try {
      out.words = look();
      out.state = std::exchange(state_, ClaimState::holds);
    } catch (const Wrong& wrong) {
      out.state = ClaimState::wrong, out.words = wrong.what();
    } catch (const Undone& why) {
      out.state = ClaimState::undone, out.words = std::string("could not be done: ") + why.what();
    } catch (const json::exception& error) {
      out.state = ClaimState::wrong,
      out.words = std::string("a value is not of the kind that it must be (") + error.what() + ")";
    } catch (const std::exception& error) {
      out.state = ClaimState::wrong, out.words = error.what();
    }
    out_.lines.push_back(std::move(out));
    return out_.lines.back().state != ClaimState::wrong;
  }

  bool read() {
    certificate::PackageReading reading = certificate::read_package(bytes_, trusted_);
    for (const auto& check : reading.checks)
      out_.lines.push_back({check.what, check.wrong.empty() ? ClaimState::holds : ClaimState::wrong, check.wrong});
    out_.signer = reading.signer;
    if (out_.lines.size() > 1 && out_.lines[1].state == ClaimState::holds)
      out_.lines[1].words = trusted_ ? "by key " + reading.signer
                                     : "by key " + reading.signer +
                                           ", which came in the package: ask the vendor whether it is theirs, or give --key";
    package_ = std::move(reading.package);
    out_.product = package_.product;
    return reading.good();
  }

  std::string suite() {
    out_.plan = package_.plan;
    out_.run = parsed(package_.others, "run.json");
    const json here = suite_here(cases_), there = package_.plan.at("suite");
    for (const char* key : {"version", "golden"}) {
      if (there.at(key) != here.at(key))
        throw Wrong(fmt::format(
            "it was made with another suite: {} is {} there and {} here; check it with version {}, commit {}", key,
            there.at(key).dump(), here.at(key).dump(), there.at("version").dump(), there.at("commit").dump()));
    }
    // A vendor has entries of their own beside ours: whatever the profile uses is compared below, case by case.
    std::string unlike;
    if (there.at("commit") != here.at("commit")) unlike = " (here " + here.at("commit").get<std::string>() + ")";
    if (there.at("cases") != here.at("cases")) unlike += ", with other files in cases/";
    return fmt::format("version {}, commit {}{}", there.at("version").get<std::string>(),
                       there.at("commit").get<std::string>(), unlike);
  }

  std::string profile() {
    const json told = package_.plan.at("profile");
    const auto product = package_.others.find("product.yaml");
    if (product == package_.others.end()) throw Wrong("the package has no product.yaml");
    subject_ = std::make_unique<Subject>(cases_, told.at("id").get<std::string>(), product->second, "product.yaml");
    if (told != profile_here(cases_, subject_->profile()))
      throw Wrong("profile " + told.at("id").get<std::string>() + " is another one than here: " + told.dump());
    const auto& p = subject_->product();
    const json expected{{"product", p.product}, {"vendor", p.vendor}, {"version", p.version}, {"engine", p.engine.id}};
    if (package_.plan.at("product") != expected || package_.product != p.product + " " + p.version)
      throw Wrong("the planned product is not that of product.yaml");
    out_.profile = fmt::format("{} {}", subject_->profile().id, subject_->profile().version);
    const catalogue::EngineEntry& engine = subject_->catalogue().engines().at(p.engine.id);
    return fmt::format("{}: {}; {}", out_.profile, subject_->profile().title,
                       engine.processes == 2 ? "between two processes" : "in one process");
  }

  std::string planned() {
    std::set<std::string> asked;
    const auto& selection = subject_->selection();
    for (std::size_t i = 0; i < selection.size(); ++i) selected_[selection.id(i)] = i, asked.insert(selection.id(i));
    for (const json& id : package_.plan.at("negatives"))
      if (!asked.insert(id.get<std::string>()).second)
        throw Wrong("negative '" + id.get<std::string>() + "' is planned twice");
    std::set<std::string> there;
    for (const json& id : package_.plan.at("ids")) there.insert(id.get<std::string>());
    for (const std::string& id : asked)
      if (!there.contains(id)) throw Wrong("'" + id + "' is a case of the profile, and was left out");
    for (const std::string& id : there)
      if (!asked.contains(id)) throw Wrong("'" + id + "' is no case of the profile");
    for (const json& record : package_.records) {
      const bool negative = !selected_.contains(record.at("id").get<std::string>());
      if (record.value("negative", false) != negative)
        throw Wrong("'" + record.at("id").get<std::string>() +
                    "' is recorded as a negative, or as none, unlike in the plan");
      (negative ? out_.negatives : out_.records) += 1;
    }
    return fmt::format("all {} cases of the profile, each recorded once", out_.records);
  }

  std::string challenge() {
    const json told = package_.plan.at("challenge");
    if (!challenge_) {
      state_ = ClaimState::open;
      if (told.is_null()) return "none: the vendor chose the seed, and a harness that passes everything would go unnoticed";
      return "it answers the challenge with the SHA-256 " + told.get<std::string>() +
             ", which was not given here: --challenge FILE";
    }
    if (told.is_null()) throw Wrong("the package answers no challenge");
    if (told != certificate::hex(certificate::sha256(to_text(*challenge_))))
      throw Wrong("the package answers another challenge, with the SHA-256 " + told.dump());
    if (package_.plan.at("seed") != seed_of(*challenge_))
      throw Wrong(fmt::format("the seed is {}, and follows from the challenge as {}", package_.plan.at("seed").dump(),
                              seed_of(*challenge_)));
    out_.challenged = true;
    return "answered: seed and negatives follow from it";
  }

  /// Every record is of the case as this suite has it, with the seed that was planned. Right memory is computed on the way,
  /// for digests().
  std::string cases() {
    seed_ = package_.plan.at("seed").get<std::uint64_t>();
    for (const json& record : package_.records)
      if (!record.value("negative", false) && !subject_->selection().declared(selected_.at(record.at("id"))))
        ran_.push_back(&record);
    std::vector<char> same(ran_.size());
    right_.resize(ran_.size());
    kernels::parallel(0, ran_.size(), [&](std::size_t i) {
      const json& record = *ran_[i];
      const ResolvedCase resolved = subject_->resolve(selected_.at(record.at("id")), seed_);
      const SerializedCase here = serialize(resolved);
      same[i] = record.at("case_digest") == here.digest && record.at("execution") == here.execution &&
                record.at("seed") == resolved.seed;
      const json& outcome = record.at("outcome");
      if (outcome == name(Outcome::pass) || outcome == name(Outcome::refused))
        right_[i] = checker::expected_digests(resolved, outcome == name(Outcome::pass));
    });
    for (std::size_t i = 0; i < ran_.size(); ++i)
      if (same[i] == 0)
        throw Wrong("'" + ran_[i]->at("id").get<std::string>() +
                    "' was run with other data or another seed than this case has");
    return fmt::format("{} with the same data and seed as here", ran_.size());
  }

  std::string outcomes() {
    matrix::Space space(subject_->catalogue());
    matrix::Waivers waivers(space);
    const std::string day = out_.run.at("started").get<std::string>().substr(0, 10);
    const catalogue::EngineEntry& engine = subject_->catalogue().engines().at(subject_->product().engine.id);
    const bool on_a_device = std::any_of(engine.needs.begin(), engine.needs.end(),
                                         [](const std::string& need) { return need.starts_with("gpu"); }) &&
                             transport::is_own_plugin(engine.plugin);
    std::map<std::string, std::int64_t> counts;
    for (const json& record : package_.records) {
      if (record.value("negative", false)) continue;
      CaseResult result = result_of(record);
      const std::size_t selected = selected_.at(result.id);
      result.facts = subject_->selection().facts(selected);
      const matrix::Ruling ruling = waivers.judge(result, subject_->selection().spec(selected).expected, day);
      if (record.at("verdict") != name(ruling.verdict))
        throw Wrong(
            fmt::format("'{}' is recorded as {}, and is {}", result.id, record.at("verdict").dump(), name(ruling.verdict)));
      if (ruling.verdict != Verdict::as_expected && ruling.verdict != Verdict::xfail && ruling.verdict != Verdict::xpass)
        throw Wrong(fmt::format("'{}' is {} and {}: {}", result.id, name(result.outcome), name(ruling.verdict),
                                record.value("message", "")));
      if (result.outcome == Outcome::unsupported && !subject_->selection().declared(selected))
        throw Wrong(fmt::format("'{}' is UNSUPPORTED, and nothing declares that", result.id));
      if (result.outcome == Outcome::pass && (result.wrong_bytes != 0 || result.moved_bytes != result.planned_bytes))
        throw Wrong(fmt::format("'{}' is PASS with {} wrong bytes, {} planned and {} moved", result.id, result.wrong_bytes,
                                result.planned_bytes, result.moved_bytes));
      if (result.evidence == Evidence::executed && !on_a_device)
        throw Wrong(
            fmt::format("'{}' is recorded as executed on a device, which only the suite's own engines can be", result.id));
      if (store::was_executed(result.outcome) && subject_->profile().evidence == Evidence::executed &&
          result.evidence != Evidence::executed)
        throw Wrong(fmt::format("'{}' is {}, and the profile requires executed", result.id, name(result.evidence)));
      out_.passed += ruling.verdict != Verdict::xfail && result.outcome == Outcome::pass;
      out_.waived += ruling.verdict == Verdict::xfail;
      counts[std::string(name(result.outcome))] += 1;
      results_[result.id] = std::move(result);
    }
    if (ran_.empty()) throw Wrong("no case was run");
    std::string words;
    for (const auto& [outcome, count] : counts) words += fmt::format("{}{} {}", words.empty() ? "" : ", ", count, outcome);
    return words;
  }

  /// Of right memory, computed from seed and golden tensors, against what the records say.
  std::string digests() {
    std::int64_t looked = 0;
    for (std::size_t i = 0; i < ran_.size(); ++i) {
      const CaseResult& result = results_.at(ran_[i]->at("id").get<std::string>());
      if (!right_[i]) continue;
      ++looked;
      if (result.digests == Digests{})
        throw Wrong(fmt::format("'{}' is {}, without digests of its memory", result.id, name(result.outcome)));
      if (!(result.digests == *right_[i]))
        throw Wrong(fmt::format("'{}' is {}, but a digest of its memory is not that of right memory", result.id,
                                name(result.outcome)));
    }
    return fmt::format("{} computed again, from the seed and the golden tensors", looked);
  }

  std::string claims() {
    for (const json& record : package_.records) {
      if (record.value("negative", false)) continue;
      CaseResult result = results_.at(record.at("id").get<std::string>());
      const json told = record.value("claim", json());
      if (!told.is_null() && told.value("kind", "") == "waiver") {
        result.waiver = told.value("name", "");
        result.verdict = Verdict::xfail;
        if (!subject_->catalogue().waivers().contains(result.waiver))
          throw Wrong("'" + result.id + "' is waived by '" + result.waiver + "', which is declared nowhere");
      }
      if (told != claim_of(result, *subject_, selected_.at(result.id)))
        throw Wrong("'" + result.id + "' has the claim " + told.dump() +
                    ", which does not follow from constraints and waivers");
      if (record.at("verdict") == name(Verdict::xfail) && told.is_null())
        throw Wrong("'" + result.id + "' is XFAIL, and no waiver is named");
    }
    const json told_of_all = claims_of(package_.records, *subject_);
    if (parsed(package_.others, "claims.json") != told_of_all)
      throw Wrong("claims.json does not match the claims of the records");
    out_.claims = told_of_all;
    const std::int64_t most = subject_->profile().waived_at_most;
    if (out_.waived * 100 > most * static_cast<std::int64_t>(ran_.size()))
      throw Wrong(fmt::format("{} of {} cases are waived; the profile allows {} per cent", out_.waived, ran_.size(), most));
    return fmt::format("{} declared, {} of the cases waived", out_.claims.size(), out_.waived);
  }

  std::string isolation() {
    state_ = ClaimState::told;
    const std::string told = out_.run.at("isolation");
    if (told.empty() || told.starts_with("none")) throw Wrong("the run was not isolated: " + told);
    const auto& grants = subject_->catalogue().engines().at(subject_->product().engine.id).grants;
    return grants.empty() ? told : fmt::format("{}; granted {}", told, fmt::join(grants, ", "));
  }

  /// What moved the bytes, and where the records say that they were.
  std::string run_by() {
    state_ = ClaimState::told;
    const catalogue::EngineEntry& engine = subject_->catalogue().engines().at(subject_->product().engine.id);
    std::string words = engine.plugin + (transport::is_own_plugin(engine.plugin) ? ", one of the suite's own" : "");
    const json product = out_.run.at("code").value("product", json::object());
    for (const auto& [name, digest] : product.items())
      words += fmt::format("; {} with the SHA-256 {}", name, digest.get<std::string>());
    std::map<std::string_view, std::int64_t> evidence;
    for (const auto& [id, result] : results_)
      if (store::was_executed(result.outcome)) evidence[name(result.evidence)] += 1;
    for (const auto& [kind, count] : evidence) words += fmt::format("; {} {}", count, kind);
    return words;
  }

  std::string negatives() {
    std::map<std::string, const json*> told;
    for (const json& record : package_.records)
      if (record.value("negative", false)) told[record.at("id")] = &record;
    for (const auto& [id, record] : told) {
      const CaseResult result = result_of(*record);
      const std::string why = why_not_caught(result, result.diagnosis.fault_class);
      if (!why.empty() || result.wrong_bytes == 0)
        throw Wrong("negative '" + id + "' " + (why.empty() ? "has no wrong byte" : why));
    }
    if (!challenge_) {
      state_ = ClaimState::open;
      return told.empty() ? "there are none" : fmt::format("{} told; --challenge checks them", told.size());
    }
    std::vector<Negative> drawn;
    try {
      drawn = draw_negatives(*subject_, *challenge_, options_.jobs);
    } catch (const CannotRehearse& why) {
      throw Undone(why.what());
    }
    for (const Negative& one : drawn) {
      const auto at = told.find(one.id);
      if (at == told.end()) throw Wrong("'" + one.id + "' follows from the challenge and is missing");
      const CaseResult result = result_of(*at->second);
      if (const std::string why = why_not_caught(result, one.injector.fault_class); !why.empty())
        throw Wrong("negative '" + one.id + "' " + why);
      if (!(result.digests == one.rehearsal.digests) || result.wrong_bytes != one.rehearsal.wrong_bytes)
        throw Wrong("negative '" + one.id + "' has other bytes than the same saboteur leaves here");
      told.erase(at);
    }
    if (!told.empty()) throw Wrong("'" + told.begin()->first + "' does not follow from the challenge");
    return fmt::format("all {} caught, each with the right class and bytes", challenge_->negatives);
  }

  std::string replay() {
    std::vector<const json*> chosen;
    const auto wanted = static_cast<std::size_t>(std::max(1.0, static_cast<double>(ran_.size()) * options_.replay / 100));
    // By nothing that the vendor writes: who can choose the package's bytes could choose the cases.
    const std::string seed = options_.replay_seed.empty() ? random_digits(16) : options_.replay_seed;
    std::vector<std::pair<std::string, const json*>> order;
    for (const json* record : ran_)
      order.emplace_back(certificate::hex(certificate::sha256(seed + record->at("id").get<std::string>())), record);
    std::sort(order.begin(), order.end());
    for (std::size_t i = 0; i < std::min(wanted, order.size()); ++i) chosen.push_back(order[i].second);
    std::vector<std::string> wrong(chosen.size());
    std::string undone;
    supervisor::Options how;
    how.jobs = options_.jobs;
    how.devices = devices_for;
    how.view = blind_view;
    how.digest = digest_of_code;
    for (const std::string& file : {options_.package, options_.key, options_.challenge})
      if (!file.empty()) how.hidden.push_back(std::filesystem::absolute(file).string());
    ProductCode code(subject_->catalogue().engines().at(subject_->product().engine.id));
    supervisor::Handlers handlers;
    handlers.on_result = [&](std::size_t i, CaseResult&& now) {
      code.add(now);
      const CaseResult& then = results_.at(chosen[i]->at("id").get<std::string>());
      if (now.outcome == Outcome::skipped || now.outcome == Outcome::error || now.outcome == Outcome::not_run)
        undone = now.message;
      else if (now.outcome != then.outcome)
        wrong[i] = fmt::format("'{}' is {} here and {} in the package: {}", then.id, name(now.outcome), name(then.outcome),
                               now.message);
      else if (now.outcome == Outcome::pass && !(now.digests == then.digests))
        wrong[i] = "'" + then.id + "' left other bytes here";
      else if (now.evidence != then.evidence)
        wrong[i] = fmt::format("'{}' is {} here, and {} in the package", then.id, name(now.evidence), name(then.evidence));
    };
    const auto summary = supervisor::run_cases(
        {chosen.size(), [&](std::size_t i) { return chosen[i]->at("id").get<std::string>(); },
         [&](std::size_t i) { return subject_->resolve(selected_.at(chosen[i]->at("id").get<std::string>()), seed_); }},
        how, handlers);
    if (summary.interrupted) throw supervisor::Interrupted();
    for (const std::string& words : wrong)
      if (!words.empty()) throw Wrong(words + " (--replay-seed " + seed + ")");
    if (!undone.empty()) throw Undone(undone);
    if (const std::string why = code.wrong(); !why.empty()) throw Wrong(why);
    if (const std::string other = code.differs_from(out_.run.at("code")); !other.empty()) throw Wrong(other);
    out_.replayed = chosen.size(), out_.to_replay = ran_.size();
    const std::string& open = process::why_no_sandbox();
    return fmt::format("{} cases run again here, chosen by seed {}, with the same outcomes and bytes{}", chosen.size(), seed,
                       open.empty() ? "" : "; not isolated: " + open);
  }

  const CertificateOptions& options_;
  const std::filesystem::path cases_;
  std::string bytes_;
  std::optional<certificate::PublicKey> trusted_;
  std::optional<Challenge> challenge_;
  Verification out_;
  certificate::Package package_;
  std::unique_ptr<Subject> subject_;
  std::map<std::string, std::size_t> selected_;  ///< cases of the profile, by id
  std::vector<const json*> ran_;                 ///< records of cases that were run, without the negatives
  std::vector<std::optional<Digests>>
      right_;  ///< of each of them: digests of right memory, where it says that its memory was right
  std::map<std::string, CaseResult> results_;
  std::uint64_t seed_{0};
  ClaimState state_{ClaimState::holds};  ///< of the line that is being looked at
};

}  // namespace

const Line* Verification::first(ClaimState state) const {
  const auto at = std::find_if(lines.begin(), lines.end(), [state](const Line& line) { return line.state == state; });
  return at == lines.end() ? nullptr : &*at;
}

std::string Verification::verdict() const {
  const std::string of = product.empty() ? "the package" : product;
  if (const Line* wrong = first(ClaimState::wrong)) return fmt::format("REJECTED: {}: {}", wrong->what, wrong->words);
  if (const Line* undone = first(ClaimState::undone))
    return fmt::format("NOT VERIFIED: {}: {}", undone->what, undone->words);
  const char* waivers = waived > 0 ? " WITH WAIVERS" : "";
  std::string out = replayed > 0 ? fmt::format("VERIFIED{}, RUN HERE: {} of {} cases: ", waivers, replayed, to_replay)
                                 : fmt::format("TOLD{}, NOT RUN HERE: ", waivers);
  if (waived > 0)
    out += fmt::format("{} fails {} of the {} cases of profile {}, as its waivers say", of, waived, records, profile);
  else
    out += fmt::format("{} passes {}", of, records == passed ? "all" : fmt::format("{} of the", passed)) +
           fmt::format(" {} cases of profile {}", records, profile);
  if (const std::int64_t others = records - passed - waived; others > 0)
    out += fmt::format(", {} are declared unsupported or refused", others);
  return out + (challenged ? fmt::format(", {} blind negatives caught", negatives) : ", but no challenge was checked");
}

int Verification::status() const {
  if (first(ClaimState::wrong) != nullptr) return exit_unexpected;
  return first(ClaimState::undone) != nullptr ? exit_incomplete : waived > 0 ? exit_waived : exit_as_expected;
}

Verification verify(const CertificateOptions& options, const Globals& globals) { return Verifier(options, globals).run(); }

json to_json(const Verification& v) {
  json lines = json::array();
  for (const Line& line : v.lines)
    lines.push_back({{"what", line.what}, {"state", state_text[static_cast<int>(line.state)]}, {"words", line.words}});
  return {{"verdict", v.verdict()}, {"lines", lines},       {"product", v.product},     {"profile", v.profile},
          {"signer", v.signer},     {"records", v.records}, {"negatives", v.negatives}, {"challenged", v.challenged},
          {"claims", v.claims}};
}

}  // namespace kvcts::cli
