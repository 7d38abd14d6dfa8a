#include "cli/report/ci.hpp"

#include <gtest/gtest.h>

namespace kvcts::report {
namespace {

RunView failed(const std::string& title, const std::string& message) {
  RunView view;
  view.info.suite = "a,b:\"c\"";
  view.headline = "100 % wrong";
  Cause cause{title, message, false, "", "", 2, {1}, {"kv/x"}, {}};
  view.causes[static_cast<std::size_t>(Section::failed)].push_back(cause);
  return view;
}

// What code under test says may hold anything.
TEST(Ci, EscapesTextInAnnotationsAndTableCells) {
  const RunView view = failed("FAIL a, b: c", "100 % of\n|7|\r`bytes` <b>");
  const std::string github = github_annotations(view);
  EXPECT_EQ(std::count(github.begin(), github.end(), '\n'), 2) << github;
  EXPECT_TRUE(github.starts_with("::error title=FAIL a%2C b%3A c (2 cases)::100 %25 of")) << github;
  EXPECT_NE(github.find("::notice title=kvcts a%2Cb%3A\"c\"::100 %25 wrong\n"), std::string::npos) << github;
  const std::string markdown = summary_markdown(view);
  EXPECT_NE(markdown.find("| 2 | FAIL a, b: c | 100 % of"), std::string::npos) << markdown;
  EXPECT_NE(markdown.find("\\|7\\|"), std::string::npos) << markdown;
  EXPECT_NE(markdown.find("\\<b>"), std::string::npos) << markdown;
  EXPECT_NE(openmetrics(view).find("{suite=\"a,b:\\\"c\\\"\",outcome=\"PASS\"} 0\n"), std::string::npos)
      << openmetrics(view);
}

TEST(Ci, LimitsTheNumberOfAnnotationsAndCauses) {
  RunView view = failed("FAIL", "x");
  auto& causes = view.causes[static_cast<std::size_t>(Section::failed)];
  causes.resize(25, causes.front());
  const std::string github = github_annotations(view), markdown = summary_markdown(view);
  EXPECT_EQ(std::count(github.begin(), github.end(), '\n'), 11);
  EXPECT_NE(markdown.find("and 5 more causes"), std::string::npos) << markdown;
}

}  // namespace
}  // namespace kvcts::report
