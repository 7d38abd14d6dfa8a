#include "run/checker/open_case.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>

#include <fmt/format.h>

#include "case/text.hpp"
#include "diagnose/name_cause.hpp"
#include "kernels/generate.hpp"
#include "kernels/poison.hpp"
#include "scene/oracle/tail.hpp"
#include "scene/reader/reader.hpp"

namespace kvcts::checker {

using nlohmann::json;

namespace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

constexpr std::size_t window = 8;  ///< bytes shown of a wrong range

std::string hex(std::span<const std::uint8_t> bytes, std::size_t at) {
  return at < bytes.size() ? text::hex(bytes.subspan(at, std::min(window, bytes.size() - at))) : "";
}

Diagnosis certain(FaultClass fault_class, std::string words) { return named({{fault_class, std::move(words)}}, ""); }

constexpr std::size_t shown = 8;                                // wrong ranges kept for display
constexpr std::size_t seen_whole = 64 << 20, seen_page = 4096;  // bytes

// Memory that this machine could provide now; all of it if unknown.
double free_memory() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  for (std::int64_t kib = 0; file >> key >> kib; file.ignore(64, '\n')) {
    if (key == "MemAvailable:") return static_cast<double>(kib) * 1024;
  }
  return 1e18;
}

}  // namespace

OpenCase::OpenCase(ResolvedCase resolved, std::optional<Side> own)
    : case_(std::move(resolved)), own_(own), content_(make_content(case_)), reuse_(case_) {
  const auto add = [&](const RegionRef& region) {
    File file;
    file.region = region;
    file.shape = oracle::file_shape(case_, region.bytes);
    file.memory = process::MemoryFile("kvcts:" + region.name, static_cast<std::size_t>(file.shape.size));
    files_.push_back(std::move(file));
  };
  for (const auto& region : regions(case_, Side::producer)) add(region);
  producers_ = files_.size();
  for (const auto& region : regions(case_, Side::consumer)) add(region);
  consumers_ = files_.size() - producers_;
  if (const auto bytes = reader::output_bytes(case_); bytes > 0) {
    add({Side::consumer, -1, 0, 0, "reader/output", bytes});
  }
}

json OpenCase::describe() const {
  json files = json::array();
  std::int64_t total = 0;
  int number = 0;
  for (const auto& f : files_) {
    const bool output = f.region.group < 0;
    if (&f == &files_[producers_] || output) number = 0;
    files.push_back({{"side", output ? "output" : name(f.region.side)},
                     {"region", number++},
                     {"name", f.region.name},
                     {"size", f.shape.size},
                     {"base", f.shape.base},
                     {"bytes", f.shape.bytes}});
    total += f.shape.size;
  }
  return {{"files", std::move(files)}, {"total_bytes", total}};
}

std::vector<int> OpenCase::descriptors() const {
  std::vector<int> out;
  for (const auto& f : files_) out.push_back(f.memory.fd.get());
  return out;
}

json OpenCase::fill(int pass) {
  const auto start = now_ns();
  pass_ = pass;
  seen_.clear();
  reuse_.forget();
  if (pass == 0) digests_ = {};
  std::int64_t bytes = 0;
  for (auto& f : files_) {
    if (f.region.group < 0) {
      kernels::fill_poison(oracle::output_key(case_), 0, f.bytes());
    } else {
      content_->write_initial(f.region, pass, f.bytes());
      digests_.before(f.region.side, kernels::digest(f.bytes()));
    }
    bytes += f.shape.size;
  }
  return {{"bytes", bytes}, {"ns", now_ns() - start}};
}

std::vector<std::span<const std::uint8_t>> OpenCase::producer_views() const {
  std::vector<std::span<const std::uint8_t>> out;
  for (std::size_t i = 0; i < producers_; ++i) out.emplace_back(files_[i].bytes());
  return out;
}

// A range ends where a whole window is right: single bytes can be right by chance.
std::int64_t OpenCase::note_wrong(const File& file, std::span<const std::uint8_t> expected, Wrong& wrong) const {
  const auto observed = file.bytes();
  const auto found = kernels::compare(observed, expected, 1);
  std::size_t at = found.first.empty() ? observed.size() : static_cast<std::size_t>(found.first[0]);
  while (at < observed.size() && wrong.first.size() < shown) {
    std::size_t end = at + 1, next = end;
    for (; next < observed.size() && next < end + window; ++next)
      if (observed[next] != expected[next]) end = next + 1;
    const auto offset = static_cast<std::int64_t>(at) - file.shape.base,
               last = offset + static_cast<std::int64_t>(end - at) - 1;
    std::string where = file.region.group < 0 ? "gathered row" : oracle::where(case_, file.region, offset);
    if (last > offset) where += "; wrong to " + std::to_string(last);
    wrong.first.push_back({file.region.name, offset, hex(expected, at), hex(observed, at), std::move(where)});
    for (at = next; at < observed.size() && observed[at] == expected[at];) ++at;
  }
  wrong.bytes += found.wrong_bytes;
  return found.wrong_bytes;
}

void OpenCase::compare_producer(std::size_t index, Wrong& wrong) {
  const auto& f = files_[index];
  if (content_->holds_expected(f.region, pass_, f.bytes())) return;
  scratch_.resize(f.bytes().size());
  content_->write_expected(f.region, pass_, scratch_);
  const std::uint64_t right = kernels::digest(scratch_);
  if (note_wrong(f, scratch_, wrong) == 0) found_[index] = right;
}

void OpenCase::compare_consumer(std::size_t index, const std::vector<std::span<const std::uint8_t>>& producer_files,
                                Wrong& wrong) {
  const auto& f = files_[index];
  if (content_->holds_expected(f.region, pass_, f.bytes())) return;
  scratch_.resize(f.bytes().size());
  content_->write_expected(f.region, pass_, scratch_);
  const std::uint64_t right = kernels::digest(scratch_);
  if (content_->tail_is_unused()) oracle::Tail(case_, f.region).mask_tail(producer_files, f.bytes(), scratch_);
  if (note_wrong(f, scratch_, wrong) == 0) found_[index] = right;
}

/// The file of the reader's output, before it ran or as it must be.
void OpenCase::write_output(const File& file, std::span<std::uint8_t> out, bool expected) const {
  kernels::fill_poison(oracle::output_key(case_), 0, out);
  if (expected) std::ranges::copy(oracle::expected_output(case_, pass_), out.begin() + file.shape.base);
}

void OpenCase::compare_output(Wrong& wrong) {
  const auto& f = files_.back();
  scratch_.resize(f.bytes().size());
  write_output(f, scratch_, true);
  note_wrong(f, scratch_, wrong);
}

void OpenCase::see() {
  seen_.clear();
  std::size_t total = 0;
  for (std::size_t i = producers_; i < producers_ + consumers_; ++i) total += files_[i].bytes().size();
  for (std::size_t i = producers_; i < producers_ + consumers_; ++i) {
    const auto now = files_[i].bytes();
    Seen seen{i, {}, {}};
    if (total <= seen_whole) seen.bytes.assign(now.begin(), now.end());
    for (std::size_t at = 0; at < now.size() && seen.bytes.empty(); at += seen_page)
      seen.pages.push_back(kernels::digest(now.subspan(at, std::min(seen_page, now.size() - at))));
    seen_.push_back(std::move(seen));
  }
}

void OpenCase::reuse(const std::string& request, const std::string& word) {
  Reuse::Files files;
  for (std::size_t i = 0; i < producers_; ++i) files.push_back(files_[i].bytes());
  reuse_.give(pass_, std::move(files), request, word);
}

std::optional<std::int64_t> OpenCase::wrong_as(const ResolvedCase& late) const {
  const auto producer_files = producer_views();
  std::int64_t wrong = 0;
  std::vector<std::uint8_t> expected, stale;
  for (std::size_t i = producers_; i < producers_ + consumers_; ++i) {
    const File& f = files_[i];
    const auto now = f.bytes();
    expected.resize(now.size()), stale.resize(now.size());
    content_->write_expected(f.region, pass_, expected);
    if (content_->tail_is_unused()) oracle::Tail(case_, f.region).mask_tail(producer_files, now, expected);
    oracle::write_expected(late, f.region, pass_, stale);
    for (std::size_t b = 0; b < now.size(); ++b) {
      if (now[b] == expected[b]) continue;
      if (now[b] != stale[b]) return std::nullopt;
      ++wrong;
    }
  }
  return wrong;
}

std::optional<Diagnosis> OpenCase::name_reuse() const {
  const auto wrong = wrong_as(reuse_.transferred_late());
  if (!wrong || *wrong == 0) return std::nullopt;
  std::map<std::string, std::string> late;  // requests that were read too late, by the words by which they were free
  for (const auto& [generation, word] : reuse_.given())
    if (!wrong_as(reuse_.transferred_late(generation)))
      late[word] += fmt::format("{} r{}", late[word].empty() ? "" : ",", generation);
  std::string answered = late.empty() || late.contains("done") ? "answered done" : "";
  for (const auto& [word, requests] : late)
    if (word != "done") answered += fmt::format("{}said {} of{}", answered.empty() ? "" : " and ", word, requests);
  return named({{FaultClass::stale_block,
                 fmt::format("the producer {}, its blocks were given to the next request (generation {}) at once, and the "
                             "consumer received that request's content",
                             answered, reuse_.generation())}},
               explains_all(*wrong));
}

OpenCase::Wrong OpenCase::compare_seen() const {
  Wrong early;
  const auto note = [&](const File& file, std::size_t at, std::span<const std::uint8_t> then) {
    WrongByte w;
    w.region = file.region.name;
    w.offset = static_cast<std::int64_t>(at) - file.shape.base;
    w.expected = hex(file.bytes(), at);
    w.observed = hex(then, at);
    w.where = oracle::where(case_, file.region, w.offset);
    early.first.push_back(std::move(w));
  };
  for (const Seen& seen : seen_) {
    const File& file = files_[seen.file];
    const auto now = file.bytes();
    for (std::size_t at = 0; at < now.size(); at += seen_page) {
      const std::size_t count = std::min(seen_page, now.size() - at);
      if (!seen.pages.empty()) {
        if (seen.pages[at / seen_page] == kernels::digest(now.subspan(at, count))) continue;
        if (early.bytes == 0) note(file, at, {});
        early.bytes += static_cast<std::int64_t>(count);
        continue;
      }
      if (std::memcmp(seen.bytes.data() + at, now.data() + at, count) == 0) continue;
      for (std::size_t b = at; b < at + count; ++b) {
        if (seen.bytes[b] == now[b]) continue;
        if (early.bytes++ == 0) note(file, b, seen.bytes);
      }
    }
  }
  return early;
}

/// All that names a cause: bytes before and expected, and where those that are there come from.
struct OpenCase::Traced {
  explicit Traced(ResolvedCase stripped) : truth(std::move(stripped)) {}
  ResolvedCase truth;
  std::vector<std::vector<std::uint8_t>> images;
  diagnose::CaseBytes bytes{truth};
  std::optional<diagnose::RegionExtents> extents;  ///< unless bytes are too many, or alike
};

std::unique_ptr<OpenCase::Traced> OpenCase::trace(const Differences& found, const json& events) const {
  // The diagnoser must not know the case's name or expected outcome.
  auto out = std::make_unique<Traced>(case_);
  ResolvedCase& truth = out->truth;
  truth.id.clear(), truth.title.clear(), truth.expected.clear();
  truth.facts = json::object();
  truth.engine = {};
  truth.connector.options.erase("sabotage"), truth.reader.options.erase("sabotage");
  auto& images = out->images;
  images.reserve(2 * files_.size());
  const auto image = [&](const File& f) -> std::vector<std::uint8_t>& { return images.emplace_back(f.bytes().size()); };
  std::vector<std::span<const std::uint8_t>> producer = producer_views();
  diagnose::CaseBytes& bytes = out->bytes;
  bytes.pass = pass_, bytes.producer = producer;
  bytes.wrong_bytes = found.target.bytes + found.output.bytes, bytes.source_wrong = found.source.bytes;
  if (events.is_array()) bytes.events.assign(events.begin(), events.end());
  std::size_t all = 0;
  for (const auto& f : files_) all += f.bytes().size();
  for (std::size_t i = 0; i < producers_ && found.source.bytes != 0; ++i) {
    content_->write_expected(files_[i].region, pass_, image(files_[i]));
    producer[i] = images.back();
  }
  if (case_.content.kind != "specials" && all <= 2 * diagnose::RegionExtents::most_bytes)
    out->extents.emplace(truth, producer);
  const auto add = [&](const diagnose::RegionBytes& one) {
    if (out->extents) out->extents->add(one);
  };
  for (std::size_t i = 0; i < files_.size(); ++i) {
    const auto& f = files_[i];
    if (i < producers_) {
      if (!std::ranges::equal(producer[i], f.bytes())) add({f.region, producer[i], producer[i], f.bytes()});
      continue;
    }
    auto &before = image(f), &expected = image(f);
    if (f.region.group < 0) {
      write_output(f, before, false);
      write_output(f, expected, true);
      bytes.output = f.bytes(), bytes.output_before = before, bytes.output_expected = expected;
    } else {
      content_->write_initial(f.region, pass_, before);
      content_->write_expected(f.region, pass_, expected);
      if (content_->tail_is_unused()) oracle::Tail(case_, f.region).mask_tail(producer, f.bytes(), expected);
      bytes.consumer.emplace_back(f.bytes());
      bytes.consumer_before.emplace_back(before), bytes.consumer_expected.emplace_back(expected);
    }
    add({f.region, before, expected, f.bytes()});
  }
  if (out->extents) out->extents->search();
  return out;
}

void OpenCase::add_state_of_data(Report& report) const {
  if (!compares(Side::consumer)) return;
  // Of the bytes that the transfer must change: how many are correct.
  std::int64_t to_change = 0, arrived = 0, changed = 0;
  std::vector<std::uint8_t> before, expected;
  for (std::size_t i = producers_; i < producers_ + consumers_; ++i) {
    const auto& f = files_[i];
    before.resize(f.bytes().size());
    expected.resize(f.bytes().size());
    content_->write_initial(f.region, pass_, before);
    content_->write_expected(f.region, pass_, expected);
    for (std::size_t b = 0; b < before.size(); ++b) {
      if (before[b] != expected[b]) {
        ++to_change;
        arrived += f.bytes()[b] == expected[b];
      }
      changed += f.bytes()[b] != before[b];
    }
  }
  if (to_change == 0) return;
  report.all_arrived = arrived == to_change;
  report.state = changed == 0         ? "no byte had arrived"
                 : report.all_arrived ? "all " + std::to_string(to_change) + " bytes had arrived"
                                      : std::to_string(arrived) + " of " + std::to_string(to_change) + " bytes had arrived";
}

/// In words, why the search for a cause cannot have the memory that it needs; empty: it can.
std::string OpenCase::lack_of_memory(bool source_changed) const {
  constexpr double searched = 8;       // times the files: who lies where, and a few predictions
  constexpr double in_part = 1 << 30;  // of larger ones
  double needed = 0, all = 0;
  for (std::size_t i = 0; i < files_.size(); ++i) {
    const auto bytes = static_cast<double>(files_[i].bytes().size());
    all += bytes, needed += (i >= producers_ ? 2.0 : source_changed ? 1.0 : 0.0) * bytes;
  }
  if (all <= 2.0 * diagnose::RegionExtents::cut_whole)
    needed = searched * all;
  else if (all <= 2.0 * diagnose::RegionExtents::most_bytes)
    needed += in_part;
  const double there = free_memory() / 2;
  return needed <= there ? ""
                         : fmt::format(
                               "the search for the cause was skipped: it needs {:.1f} GiB of memory, and the limit is "
                               "{:.1f} GiB; try fewer blocks, layers or heads",
                               needed / (1 << 30), there / (1 << 30));
}

OpenCase::Differences OpenCase::differences(bool transferred) {
  Differences out;
  const auto producer_files = producer_views();
  for (std::size_t i = 0; i < files_.size(); ++i) {
    const auto& f = files_[i];
    if (!compares(f.region.side)) continue;
    out.checked += f.shape.size;
    if (f.region.group < 0) {
      if (transferred) compare_output(out.output);
    } else if (i < producers_) {
      compare_producer(i, out.source);
    } else if (transferred) {
      compare_consumer(i, producer_files, out.target);
    } else {
      scratch_.resize(f.bytes().size());
      content_->write_initial(f.region, pass_, scratch_);
      note_wrong(f, scratch_, out.target);
    }
  }
  return out;
}

std::optional<Diagnosis> OpenCase::miscounted(const oracle::Amount& amount, std::int64_t planned, std::int64_t moved) const {
  if (moved < 0 || !compares(Side::consumer)) return std::nullopt;
  const bool explicit_plan = case_.connector.kind == "explicit";
  if ((planned < 0 || planned == moved) && (explicit_plan || (moved >= amount.least && moved <= amount.most)))
    return std::nullopt;
  const std::string counts = planned >= 0 ? fmt::format("planned {} bytes, moved ", planned) : "moved, by its own words, ";
  const std::string most = amount.most != amount.least ? fmt::format(" to {}", amount.most) : "";
  return certain(FaultClass::false_success,
                 fmt::format("{}{}, expected {}{}: the bytes are right but the counts do not agree", counts, moved,
                             amount.least, most));
}

void OpenCase::name_cause(Report& report, const Differences& found, const json& request) {
  const bool transferred = request.value("transferred", true);
  const json events = request.value("events", json::array());
  std::optional<Diagnosis> reused;
  if (transferred && reuse_.began() && found.source.bytes == 0 && found.target.bytes != 0) reused = name_reuse();
  if (reused) {  // of the next request's content a trace knows nothing
    report.diagnosis = std::move(*reused);
  } else if (report.wrong_bytes != 0 || !events.empty()) {
    scratch_ = {};
    report.diagnosis.text = lack_of_memory(found.source.bytes != 0);
    if (report.diagnosis.text.empty()) {
      const auto traced = trace(found, events);
      if (traced->extents && transferred) {
        report.what_happened = traced->extents->what_happened();
        report.picture = traced->extents->moves();
      }
      report.diagnosis = transferred ? diagnose::name_the_cause(traced->bytes, traced->extents ? &*traced->extents : nullptr,
                                                                request.value("search", true),
                                                                request.value("trace", false) ? &report.trace : nullptr)
                                     : diagnose::name_the_end(traced->bytes);
    }
  }
}

void OpenCase::judge_completion(Report& report, const oracle::Amount& amount, const json& request) {
  // A connector program has no plan to count.
  std::optional<Diagnosis> other =
      miscounted(amount, request.value("planned", std::int64_t{-1}), request.value("moved", std::int64_t{-1}));
  if (!other) {
    if (const Wrong early = compare_seen(); early.bytes > 0) {
      const WrongByte& w = early.first[0];
      other = certain(
          FaultClass::read_before_ready,
          fmt::format("completion was reported before the data had arrived: at that moment {} bytes {}differed "
                      "from now, first at {} offset {} ({})",
                      early.bytes, seen_.front().pages.empty() ? "" : "in pages that ", w.region, w.offset, w.where));
      report.phase = Phase::complete;
      report.first_wrong.push_back(w);
    }
  }
  if (other) {
    report.outcome = Outcome::fail;
    report.diagnosis = std::move(*other);
    report.message = report.diagnosis.text;
  }
}

Report OpenCase::compare(const json& request) {
  const auto start = now_ns();
  pass_ = request.value("pass", 0);
  // A case that ended early (refusal, exception) must leave the destination unchanged.
  const bool transferred = request.value("transferred", true);
  const json events = request.value("events", json::array());
  if (reuse_.began()) reuse_.end();
  // Digest before comparing: whatever arrives meanwhile is a change.
  compared_ = digest_all();
  const Differences found = differences(transferred);
  for (std::size_t i = 0; i < producers_ + consumers_; ++i) digests_.after(files_[i].region.side, found_[i]);
  const oracle::Amount amount = oracle::transfer_bytes(case_);
  Report report;
  report.outcome = Outcome::pass;
  report.checked_bytes = found.checked;
  report.wrong_bytes = found.source.bytes + found.target.bytes + found.output.bytes;
  report.source_changed = found.source.bytes != 0;
  report.expected_bytes = amount.least;
  report.digests = digests_.whole();
  for (const auto* list : {&found.target.first, &found.output.first, &found.source.first}) {
    for (const auto& w : *list) {
      if (report.first_wrong.size() < shown) report.first_wrong.push_back(w);
    }
  }
  const auto compared_at = now_ns();

  name_cause(report, found, request);
  if (report.wrong_bytes != 0) {
    report.outcome = Outcome::fail;
    if (!report.diagnosis.exact && !report.diagnosis.text.empty() && !report.what_happened.empty())
      report.diagnosis.text.insert(not_identified.size(), "; what happened: " + in_a_line(report.what_happened));
    report.message = std::to_string(report.wrong_bytes) + " wrong bytes";
    if (found.source.bytes)
      report.message += ", " + std::to_string(found.source.bytes) + " of them in the source, which must not change";
    if (!transferred) report.message += " although nothing may be written before the error";
    if (!report.diagnosis.text.empty())
      report.message += "; " + report.diagnosis.text;
    else if (!report.what_happened.empty())
      report.message += "; " + in_a_line(report.what_happened);
  } else if (transferred) {
    judge_completion(report, amount, request);
  }
  // The state of the data is reported only after a failure: it costs another pass over every byte.
  if (report.outcome != Outcome::pass || !events.empty() || request.value("state", false)) add_state_of_data(report);
  report.compare_ns = compared_at - start;
  report.diagnose_ns = now_ns() - compared_at;
  return report;
}

json OpenCase::look(const std::string& region, std::int64_t offset, std::int64_t bytes) const {
  for (const auto& f : files_) {
    if (f.region.name != region || !compares(f.region.side)) continue;
    const std::int64_t begin = offset + f.shape.base;
    if (bytes < 0 || begin < 0 || begin + bytes > f.shape.size)
      throw std::runtime_error("look: " + region + " has no bytes " + std::to_string(offset) + " to " +
                               std::to_string(offset + bytes));
    return {{"hex", text::hex(f.bytes().subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(bytes)))}};
  }
  throw std::runtime_error("look: no region is called " + region);
}

std::uint64_t OpenCase::digest_all() {
  std::uint64_t all = 0;
  found_.resize(files_.size());
  for (std::size_t i = 0; i < files_.size(); ++i) {
    found_[i] = kernels::digest(files_[i].bytes());
    all = all * 0x9e3779b97f4a7c15ull + found_[i];
  }
  return all;
}

LateWrite OpenCase::recheck() {
  const std::uint64_t now = digest_all();
  LateWrite late;
  late.changed = now != compared_;
  if (!late.changed) return late;
  Wrong wrong;
  const auto producer_files = producer_views();
  for (std::size_t i = 0; i < producers_ + consumers_; ++i) {
    if (!compares(files_[i].region.side)) continue;
    if (i < producers_)
      compare_producer(i, wrong);
    else
      compare_consumer(i, producer_files, wrong);
  }
  late.bytes = wrong.bytes;
  if (!wrong.first.empty()) {
    const WrongByte& w = wrong.first[0];
    late.message = fmt::format("first at {} offset {} ({})", w.region, w.offset, w.where);
  }
  compared_ = now;
  return late;
}

}  // namespace kvcts::checker
