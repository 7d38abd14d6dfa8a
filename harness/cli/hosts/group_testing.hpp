// Which host or link is bad, by adaptive group testing over pairs of hosts.
//
// A pair's run answers for one link and two hosts. A bad host fails with every partner, so a round of disjoint pairs tests
// all hosts at once: one pair per host finds one bad host among any number. A bad link fails in its own run alone: only
// running every pair rules it out. So rounds grow: 1, 2, 4, 8, ... disjoint sets of pairs (a round-robin tournament), until
// a pair fails. Then small rounds decide: the failed pair again, and each of its two hosts with three others.
//
//   cost of a round    pairs run by its busiest host (busiest()), one after another: 1, 2, 4, 8, 16, 32 when it searches
//                      among 64 hosts; at most 4 when it decides about a single fault
//   64 hosts           a bad host: at most 3 rounds, 7 pairs of the busiest host. A bad link: at most 7 rounds, 64 pairs.
//                      Nothing fails: 6 rounds, 63 pairs, every link once. Never more than 12 rounds
//   certain            a link: it failed twice, and each of its hosts passed with three others
//                      a host: it failed with three hosts that passed elsewhere, and passed with none
//                      (with fewer hosts: with all others)
//
// A link that fails only sometimes may pass its one run: then it is not found. It never makes another link or host certain.
// Where nothing has passed in two rounds, all hosts share the cause: nothing is certain, and it stops.
#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

namespace kvcts::cli::hosts {

/// Two hosts, by number: the lower first.
using Link = std::pair<int, int>;

/// Every pair of `hosts` hosts once, in rounds of disjoint pairs: hosts - 1 rounds, or `hosts` if that is odd.
std::vector<std::vector<Link>> tournament(int hosts);

/// Pairs that the busiest host of these takes part in.
int busiest(const std::vector<Link>& pairs);

struct PairVerdict {
  std::vector<int> hosts;   ///< certainly bad
  std::vector<Link> links;  ///< certainly bad, between hosts that are not
  std::vector<Link> open;   ///< failed at least once, and nothing above explains it
  std::size_t tested{0};    ///< links; of hosts * (hosts - 1) / 2

  bool none() const { return hosts.empty() && links.empty() && open.empty(); }
  /// One bad host or link explains every failure.
  bool single() const { return hosts.size() + links.size() == 1 && open.empty(); }
};

/// Plans rounds and judges their results; runs nothing.
class GroupTesting {
 public:
  static constexpr int most_rounds = 12;

  explicit GroupTesting(int hosts);
  /// Pairs to run now, each once, in any order as far as hosts are free. Empty: the verdict is final.
  std::vector<Link> next();
  /// Tells how the pairs of the last next() ended: those of it that failed.
  void failed(const std::vector<Link>& links);
  PairVerdict verdict() const;
  int rounds() const { return rounds_; }

 private:
  struct Tries {
    int passes{0}, failures{0};
  };
  /// What is known of one host, over its links.
  struct Record {
    int good{0}, bad{0};   ///< links that always passed; that failed at least once
    int bad_with_good{0};  ///< of `bad`: with a host that has a good link
  };

  std::vector<Record> records() const;
  std::vector<Link> search();
  std::vector<Link> decide() const;
  bool is_settled(const Record& host) const;
  bool is_bad(const Record& host) const;
  bool is_sound(const Record& host) const;
  const Tries* tries(int a, int b) const;

  int hosts_;
  int rounds_{0};
  int searched_{0};  ///< rounds of the tournament
  std::vector<std::vector<Link>> tournament_;
  std::map<Link, Tries> tried_;
  std::vector<Link> asked_;
};

}  // namespace kvcts::cli::hosts
