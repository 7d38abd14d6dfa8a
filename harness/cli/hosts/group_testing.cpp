#include "cli/hosts/group_testing.hpp"

#include <algorithm>
#include <set>
#include <tuple>

namespace kvcts::cli::hosts {

namespace {

constexpr int enough = 3;     // partners that settle a host
constexpr int most_runs = 3;  // of a failed link: two failures make it certain

Link link(int a, int b) { return std::minmax(a, b); }

}  // namespace

/// The circle method: one host stays, the others turn around it.
std::vector<std::vector<Link>> tournament(int hosts) {
  const int slots = hosts + hosts % 2, turns = slots - 1;  // an odd host out plays against an empty seat
  std::vector<std::vector<Link>> rounds(static_cast<std::size_t>(hosts < 2 ? 0 : turns));
  for (int turn = 0; turn < std::ssize(rounds); ++turn) {
    auto& pairs = rounds[static_cast<std::size_t>(turn)];
    if (slots == hosts) pairs.push_back(link(turn, turns));
    for (int i = 1; i < slots / 2; ++i) pairs.push_back(link((turn + i) % turns, (turn + turns - i) % turns));
  }
  return rounds;
}

int busiest(const std::vector<Link>& pairs) {
  std::map<int, int> load;
  int most = 0;
  for (const auto& [a, b] : pairs) most = std::max({most, ++load[a], ++load[b]});
  return most;
}

GroupTesting::GroupTesting(int hosts) : hosts_(hosts), tournament_(tournament(hosts)) {}

const GroupTesting::Tries* GroupTesting::tries(int a, int b) const {
  const auto found = tried_.find(link(a, b));
  return found == tried_.end() ? nullptr : &found->second;
}

std::vector<GroupTesting::Record> GroupTesting::records() const {
  std::vector<Record> out(static_cast<std::size_t>(hosts_));
  const auto of = [&](int host) -> Record& { return out[static_cast<std::size_t>(host)]; };
  for (const auto& [pair, tries] : tried_)
    for (const int host : {pair.first, pair.second}) ++(tries.failures == 0 ? of(host).good : of(host).bad);
  for (const auto& [pair, tries] : tried_) {
    if (tries.failures == 0) continue;
    of(pair.first).bad_with_good += of(pair.second).good > 0;
    of(pair.second).bad_with_good += of(pair.first).good > 0;
  }
  return out;
}

bool GroupTesting::is_bad(const Record& host) const {
  return host.good == 0 && host.bad_with_good > 0 && host.bad_with_good >= std::min(enough, hosts_ - 1);
}

bool GroupTesting::is_sound(const Record& host) const {
  return host.good >= enough || (host.good > 0 && host.good + host.bad == hosts_ - 1);
}

bool GroupTesting::is_settled(const Record& host) const {
  return is_sound(host) || is_bad(host) || host.good + host.bad == hosts_ - 1;
}

/// The next rounds of the tournament, twice as many as last time.
std::vector<Link> GroupTesting::search() {
  std::vector<Link> pairs;
  const int until = std::min<int>(searched_ == 0 ? 1 : 2 * searched_ + 1, static_cast<int>(tournament_.size()));
  for (; searched_ < until; ++searched_)
    for (const Link& pair : tournament_[static_cast<std::size_t>(searched_)])
      if (tries(pair.first, pair.second) == nullptr) pairs.push_back(pair);
  return pairs;
}

/// Failed links again, and their hosts with partners that nothing is known against.
std::vector<Link> GroupTesting::decide() const {
  const std::vector<Record> records = this->records();
  std::vector<int> load(static_cast<std::size_t>(hosts_));
  std::set<Link> pairs;
  const auto add = [&](int a, int b) {
    if (pairs.insert(link(a, b)).second) ++load[static_cast<std::size_t>(a)], ++load[static_cast<std::size_t>(b)];
  };
  std::set<int> unsettled;
  for (const auto& [pair, tries] : tried_) {
    if (tries.failures == 0) continue;
    bool explained = false;
    for (const int host : {pair.first, pair.second}) {
      explained = explained || is_bad(records[static_cast<std::size_t>(host)]);
      if (!is_settled(records[static_cast<std::size_t>(host)])) unsettled.insert(host);
    }
    if (!explained && tries.failures < 2 && tries.passes + tries.failures < most_runs) add(pair.first, pair.second);
  }
  for (const int host : unsettled) {
    const Record& known = records[static_cast<std::size_t>(host)];
    std::vector<int> partners;
    for (int other = 0; other < hosts_; ++other)
      if (other != host && tries(host, other) == nullptr) partners.push_back(other);
    std::ranges::stable_sort(partners, {}, [&](int other) {
      const Record& of = records[static_cast<std::size_t>(other)];
      return std::tuple(of.bad > 0, of.good == 0, load[static_cast<std::size_t>(other)]);
    });
    const auto wanted = std::min(std::ssize(partners), std::ptrdiff_t{enough - std::max(known.good, known.bad - 1)});
    for (std::ptrdiff_t i = 0; i < std::max<std::ptrdiff_t>(wanted, 1); ++i)
      add(host, partners[static_cast<std::size_t>(i)]);
  }
  return {pairs.begin(), pairs.end()};
}

std::vector<Link> GroupTesting::next() {
  const bool deciding = std::ranges::any_of(tried_, [](const auto& one) { return one.second.failures > 0; });
  const bool all_fail = rounds_ >= 2 && std::ranges::none_of(tried_, [](const auto& one) { return one.second.passes > 0; });
  const bool over = rounds_ == most_rounds || (all_fail && deciding);
  asked_ = over ? std::vector<Link>() : deciding ? decide() : search();
  rounds_ += !asked_.empty();
  return asked_;
}

void GroupTesting::failed(const std::vector<Link>& links) {
  for (const Link& pair : asked_) {
    Tries& tries = tried_[pair];
    ++(std::ranges::find(links, pair) == links.end() ? tries.passes : tries.failures);
  }
  asked_.clear();
}

PairVerdict GroupTesting::verdict() const {
  const std::vector<Record> records = this->records();
  const auto of = [&](int host) -> const Record& { return records[static_cast<std::size_t>(host)]; };
  PairVerdict out;
  out.tested = tried_.size();
  for (int host = 0; host < hosts_; ++host)
    if (is_bad(of(host))) out.hosts.push_back(host);
  for (const auto& [pair, tries] : tried_) {
    if (tries.failures == 0 || is_bad(of(pair.first)) || is_bad(of(pair.second))) continue;
    const bool certain =
        tries.failures >= 2 && tries.failures > tries.passes && is_sound(of(pair.first)) && is_sound(of(pair.second));
    (certain ? out.links : out.open).push_back(pair);
  }
  return out;
}

}  // namespace kvcts::cli::hosts
