// What many nights say together: what is new, what is flaky, what became slower, and since which night.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "run/store/history.hpp"

namespace kvcts::history {

using store::CaseHistory;
using store::History;
using store::Point;

/// A case that fails now and did not before.
struct New {
  std::string id, ending;
  std::size_t good{0}, bad{0};  ///< indices of runs: the last good night, the first bad one after it
  std::string strip;
};

/// A case that fails at times, and passes again.
struct Flaky {
  std::string id, ending;  ///< of its last failure
  std::size_t last{0};     ///< index of that run
  std::int64_t failed{0}, nights{0};
  std::string strip;
};

/// Cases that take longer since one night.
struct SlowCase {
  std::string group;     ///< "engine acme, op read"; "" = these cases share nothing of their own
  std::size_t since{0};  ///< index of the first slow run
  double ratio{1};       ///< median over its cases
  std::vector<std::string> ids;
};

struct Answers {
  std::vector<History::Run> runs;
  std::int64_t cases{0};       ///< that ran at all
  std::int64_t always{0};      ///< of them, those that have failed since their first night
  std::vector<New> fresh;      ///< by first bad night, the latest first
  std::vector<Flaky> flaky;    ///< the most failures first
  std::vector<SlowCase> slow;  ///< the latest first
};

/// "2026-11-01", in UTC.
std::string day(const History::Run& run);
/// {"engine": "acme", ...}
nlohmann::json axes_of(const CaseHistory& one);
/// A letter a point.
std::string strip(const std::vector<Point>& points);

/// What began, or failed at times, since then (Unix time), by all nights of one suite, or of all with "", up to `until_ms`.
///   new: all nights since its first bad one fail, and one before was good. A case that had failed before counts only when
///   as many failures in a row have less than 1 % probability at the rate that it was seen with (wilson()).
///   flaky: a night with FLAKY, or at most two failing nights between good ones.
///   slow: at least five nights before and five after; of those after nearly all, of those before hardly any are beyond the
///   middle of their two medians, which are a factor of 1.3 apart: by chance, so many nights have less than 1 % probability
///   in all cases together. A night's own pace, the median over all cases, is taken out first. The last 60 nights count.
Answers answers(const History& history, std::int64_t since_ms, const std::string& suite, std::int64_t until_ms = INT64_MAX);

/// What a case's own nights say, for a person.
std::string story(const CaseHistory& one, const std::vector<History::Run>& runs);

/// The three lists; `only`: "new", "flaky", "slow", or "" for all.
std::string text(const Answers& found, const std::string& only);
nlohmann::json to_json(const Answers& found);
nlohmann::json to_json(const CaseHistory& one, const std::vector<History::Run>& runs);

}  // namespace kvcts::history
