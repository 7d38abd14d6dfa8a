#include "run/supervisor/checkers.hpp"

#include <algorithm>

namespace kvcts::supervisor {

using nlohmann::json;
using process::CheckerRequest;

namespace {

/// The files of both sides, each from the checker on whose host it lies, and their descriptors in the same order.
json files_of(const json& producer, const json& consumer, std::vector<process::UniqueFd>& producers,
              std::vector<process::UniqueFd>& consumers, std::vector<process::UniqueFd>* fds) {
  json files = json::array();
  for (std::size_t i = 0; i < consumer.size(); ++i) {
    const bool first = consumer[i].value("side", "") == "producer";
    files.push_back((first ? producer : consumer).at(i));
    auto& from = first ? producers : consumers;
    if (fds != nullptr && i < from.size()) fds->push_back(std::move(from[i]));
  }
  return files;
}

}  // namespace

Report together(const Report& producer, const Report& consumer) {
  Report out = consumer;
  out.checked_bytes += producer.checked_bytes;
  out.wrong_bytes += producer.wrong_bytes;
  out.source_changed = producer.source_changed;
  out.digests.producer = producer.digests.producer;
  out.compare_ns = std::max(producer.compare_ns, consumer.compare_ns);
  out.diagnose_ns = std::max(producer.diagnose_ns, consumer.diagnose_ns);
  if (producer.outcome == Outcome::pass) return out;
  out.first_wrong.insert(out.first_wrong.end(), producer.first_wrong.begin(), producer.first_wrong.end());
  out.message = (consumer.message.empty() ? "" : consumer.message + "; ") + "on the producer's host: " + producer.message;
  if (consumer.outcome != Outcome::pass) return out;
  out.outcome = producer.outcome;
  out.phase = producer.phase;
  out.diagnosis = producer.diagnosis;
  out.what_happened = producer.what_happened;
  out.picture = producer.picture;
  return out;
}

LateWrite together(const LateWrite& producer, const LateWrite& consumer) {
  if (!producer.changed) return consumer;
  if (!consumer.changed) return producer;
  return {true, producer.bytes + consumer.bytes, consumer.message + "; " + producer.message};
}

Checkers::Checkers(Run& run, int executor, Signal& wake, std::function<void()> check_running) {
  for (std::size_t side = 0; side < run.options.hosts.size() || side == 0; ++side)
    each_.push_back(std::make_unique<CheckerLink>(run, run.host_link(side), executor, wake, check_running));
}

void Checkers::need() {
  for (const auto& one : each_) one->need();
}

void Checkers::request(json body) {
  asked_.push_back(process::request_in<CheckerRequest>(body).value());
  for (std::size_t i = 0; i < each_.size(); ++i) {
    json own = i + 1 < each_.size() ? body : std::move(body);
    if (each_.size() == 2 && asked_.back() == CheckerRequest::open) own["side"] = i == 0 ? "producer" : "consumer";
    each_[i]->request(std::move(own));
  }
}

Task<json> Checkers::reply(std::int64_t limit_ms, std::vector<process::UniqueFd>* fds) {
  const CheckerRequest op = asked_.empty() ? CheckerRequest::hello : asked_.front();
  if (!asked_.empty()) asked_.pop_front();
  if (each_.size() == 1) co_return co_await each_[0]->reply(limit_ms, fds);
  json answer[2];
  std::vector<process::UniqueFd> files[2];
  std::string absent;
  for (std::size_t i = 0; i < 2; ++i) {
    try {
      answer[i] = co_await each_[i]->reply(limit_ms, &files[i]);
    } catch (const Lost&) {
      const bool by_one = op == CheckerRequest::compare || op == CheckerRequest::close;
      if (each_[i]->host_lost().empty() || !absent.empty() || !by_one) throw;
      absent = each_[i]->host_lost();
    }
  }
  if (!absent.empty()) {
    json& other = answer[0].is_null() ? answer[1] : answer[0];
    other["absent"] = absent;
    co_return std::move(other);
  }
  if (op == CheckerRequest::look) co_return std::move(answer[answer[0].contains("error") ? 1 : 0]);
  for (json& one : answer)
    if (one.contains("error")) co_return std::move(one);
  if (op == CheckerRequest::open)
    answer[1]["files"] = files_of(answer[0].at("files"), answer[1].at("files"), files[0], files[1], fds);
  if (op == CheckerRequest::compare)
    answer[1]["report"] =
        to_json(together(report_from_json(answer[0].at("report")), report_from_json(answer[1].at("report"))));
  if (op == CheckerRequest::recheck)
    answer[1]["late"] =
        to_json(together(late_write_from_json(answer[0].at("late")), late_write_from_json(answer[1].at("late"))));
  co_return std::move(answer[1]);
}

Task<void> Checkers::drain(std::uint64_t key) {
  asked_.clear();
  for (const auto& one : each_) co_await one->drain(key);
}

bool Checkers::there() const {
  return std::ranges::all_of(each_, [](const auto& one) { return one->there(); });
}

bool Checkers::ended() const {
  return std::ranges::any_of(each_, [](const auto& one) { return one->ended(); });
}

void Checkers::forget() {
  asked_.clear();
  for (const auto& one : each_) one->forget();
}

void Checkers::kill() {
  asked_.clear();
  for (const auto& one : each_) one->kill();
}

}  // namespace kvcts::supervisor
