// One bad host, one bad link, two of them, or none: found in few rounds, and no innocent is named.
#include "cli/hosts/group_testing.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace kvcts::cli::hosts {
namespace {

struct Faults {
  std::set<int> hosts;
  std::set<Link> links;
  double chance{1};  ///< that a run over a bad link fails; of a bad host always

  bool fails(const Link& pair, std::mt19937& drawn) const {
    if (hosts.contains(pair.first) || hosts.contains(pair.second)) return true;
    return links.contains(pair) && (chance == 1 || std::bernoulli_distribution(chance)(drawn));
  }
};

struct Found {
  PairVerdict verdict;
  int rounds{0}, cost{0}, decided_cost{0};  ///< pairs of the busiest host: of all rounds, of the dearest deciding one
};

Found search(int hosts, const Faults& faults, std::mt19937& drawn) {
  GroupTesting testing(hosts);
  Found out;
  bool any = false;
  for (std::vector<Link> round = testing.next(); !round.empty(); round = testing.next()) {
    EXPECT_EQ(std::set(round.begin(), round.end()).size(), round.size()) << "each pair once";
    std::vector<Link> failed;
    for (const Link& pair : round)
      if (faults.fails(pair, drawn)) failed.push_back(pair);
    out.cost += busiest(round);
    if (any) out.decided_cost = std::max(out.decided_cost, busiest(round));
    any = any || !failed.empty();
    testing.failed(failed);
  }
  out.verdict = testing.verdict();
  out.rounds = testing.rounds();
  EXPECT_LE(out.rounds, GroupTesting::most_rounds);
  return out;
}

std::vector<Link> all_links(int hosts) {
  std::vector<Link> out;
  for (int a = 0; a < hosts; ++a)
    for (int b = a + 1; b < hosts; ++b) out.emplace_back(a, b);
  return out;
}

/// A bad link's host all of whose links are bad is a bad host.
void expect_no_innocent(int hosts, const Faults& faults, const PairVerdict& verdict) {
  for (const int host : verdict.hosts) {
    bool all = true;
    for (int other = 0; other < hosts; ++other)
      all = all && (other == host || faults.hosts.contains(other) || faults.links.contains(std::minmax(host, other)));
    EXPECT_TRUE(faults.hosts.contains(host) || all) << hosts << " hosts, host " << host;
  }
  for (const Link& link : verdict.links) EXPECT_TRUE(faults.links.contains(link)) << link.first << "-" << link.second;
}

constexpr int sizes[] = {3, 5, 17, 64};

TEST(Tournament, PlaysEveryPairOnceInRoundsOfDisjointPairs) {
  for (int hosts = 0; hosts <= 65; ++hosts) {
    std::vector<Link> all;
    const auto rounds = tournament(hosts);
    if (hosts >= 2) {
      EXPECT_EQ(std::ssize(rounds), hosts - 1 + hosts % 2);
    }
    for (const auto& round : rounds) {
      EXPECT_EQ(busiest(round), 1) << hosts;
      all.insert(all.end(), round.begin(), round.end());
    }
    std::ranges::sort(all);
    EXPECT_EQ(all, all_links(hosts));
  }
}

TEST(GroupTesting, TestsEveryLinkOnceWithoutFaults) {
  std::mt19937 drawn(1);
  for (const int hosts : {0, 1, 2, 3, 5, 17, 64}) {
    const Found found = search(hosts, Faults{}, drawn);
    EXPECT_TRUE(found.verdict.none());
    EXPECT_EQ(found.verdict.tested, all_links(hosts).size());
    if (hosts == 64) {
      EXPECT_EQ(std::pair(found.rounds, found.cost), std::pair(6, 63));
    }
  }
}

TEST(GroupTesting, NamesEveryBadHost) {
  std::mt19937 drawn(1);
  for (const int hosts : sizes) {
    int rounds = 0, cost = 0;
    for (int bad = 0; bad < hosts; ++bad) {
      const Found found = search(hosts, Faults{{bad}, {}}, drawn);
      EXPECT_TRUE(found.verdict.single());
      EXPECT_EQ(found.verdict.hosts, std::vector{bad}) << hosts << " hosts";
      rounds = std::max(rounds, found.rounds), cost = std::max(cost, found.cost);
    }
    EXPECT_LE(rounds, hosts == 64 ? 3 : 4);
    EXPECT_LE(cost, hosts == 64 ? 7 : 8);
  }
}

TEST(GroupTesting, NamesEveryBadLink) {
  std::mt19937 drawn(1);
  for (const int hosts : sizes) {
    int rounds = 0, cost = 0, deciding = 0;
    for (const Link& bad : all_links(hosts)) {
      const Found found = search(hosts, Faults{{}, {bad}}, drawn);
      EXPECT_TRUE(found.verdict.single());
      EXPECT_EQ(found.verdict.links, std::vector{bad}) << hosts << " hosts";
      rounds = std::max(rounds, found.rounds), cost = std::max(cost, found.cost);
      deciding = std::max(deciding, found.decided_cost);
    }
    EXPECT_LE(rounds, 7);
    EXPECT_LE(cost, hosts + hosts % 2);
    EXPECT_LE(deciding, 4);
  }
}

TEST(GroupTesting, CannotSeparateALinkFromItsHostsWithOnlyTwoHosts) {
  std::mt19937 drawn(1);
  for (const Faults& faults : {Faults{{0}, {}}, Faults{{}, {{0, 1}}}}) {
    const PairVerdict verdict = search(2, faults, drawn).verdict;
    EXPECT_EQ(verdict.open, std::vector<Link>({{0, 1}}));
    EXPECT_TRUE(verdict.hosts.empty() && verdict.links.empty());
  }
}

/// Two faults drawn at random, `bad_hosts` of them hosts: what is named is guilty.
void two_faults(int hosts, int bad_hosts, double chance, int times) {
  std::mt19937 drawn(7);
  const std::vector<Link> links = all_links(hosts);
  for (int i = 0; i < times; ++i) {
    Faults faults{{}, {}, chance};
    while (std::ssize(faults.hosts) < bad_hosts) faults.hosts.insert(std::uniform_int_distribution(0, hosts - 1)(drawn));
    while (std::ssize(faults.hosts) + std::ssize(faults.links) < 2)
      faults.links.insert(links[std::uniform_int_distribution<std::size_t>(0, links.size() - 1)(drawn)]);
    const PairVerdict verdict = search(hosts, faults, drawn).verdict;
    expect_no_innocent(hosts, faults, verdict);
    EXPECT_TRUE(chance < 1 || !verdict.none());
    EXPECT_TRUE(bad_hosts < 2 || hosts != 64 || verdict.hosts.size() == 2) << "both, in 3 rounds";
  }
}

TEST(GroupTesting, BlamesNoHealthyPartForTwoFaults) {
  for (const int hosts : sizes)
    for (const int bad_hosts : {0, 1, 2})
      for (const double chance : {1.0, 0.9}) two_faults(hosts, bad_hosts, chance, 1000);
}

TEST(GroupTesting, BlamesNoHealthyPartForAnIntermittentLink) {
  std::mt19937 drawn(3);
  for (const int hosts : sizes) {
    int named = 0, times = 0;
    const std::vector<Link> links = all_links(hosts);
    for (; times < 2000; ++times) {
      const Faults faults{{}, {links[static_cast<std::size_t>(times) % links.size()]}, 0.9};
      const Found found = search(hosts, faults, drawn);
      expect_no_innocent(hosts, faults, found.verdict);
      EXPECT_TRUE(found.verdict.hosts.empty());
      named += found.verdict.links.size() == 1;
    }
    EXPECT_GT(named, times * 85 / 100);
  }
}

TEST(GroupTesting, ConcludesNothingIfEveryPairFails) {
  std::mt19937 drawn(1);
  for (const int hosts : sizes) {
    Faults faults;
    for (const Link& link : all_links(hosts)) faults.links.insert(link);
    const Found found = search(hosts, faults, drawn);
    EXPECT_TRUE(found.verdict.hosts.empty() && found.verdict.links.empty());
    EXPECT_EQ(found.verdict.open.size(), found.verdict.tested);
    EXPECT_LE(found.rounds, 2);
  }
}

}  // namespace
}  // namespace kvcts::cli::hosts
