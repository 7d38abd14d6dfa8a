// Progress as it would be seen, with a clock that the test turns.
#include "cli/report/console.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <sstream>

#include "run/store/testing/sample.hpp"

namespace kvcts::report {
namespace {

using namespace std::chrono_literals;

struct Screen {
  explicit Screen(Terminal terminal) : reporter(out, terminal, [this] { return now; }) {}
  std::ostringstream out;
  ConsoleReporter::Clock::time_point now{ConsoleReporter::Clock::time_point{} + 1h};
  ConsoleReporter reporter;
  std::string take() {
    const std::string text = out.str();
    out.str("");
    return text;
  }
};

CaseResult result(std::string id, Verdict verdict = Verdict::as_expected) {
  CaseResult r = store::sample::passed(store::sample::planned(0));
  r.id = std::move(id);
  r.verdict = verdict;
  if (verdict != Verdict::as_expected) r.outcome = Outcome::fail, r.message = "1 byte is wrong\x1b[2J";
  return r;
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

TEST(Console, PrintsPlainLinesPeriodicallyAndOnFailure) {
  Screen screen(Terminal{false, false, 80});
  screen.reporter.begin("smoke", 1000, 100);
  EXPECT_EQ(screen.take(), "smoke: 1,000 cases, 100 already decided\n");
  for (int i = 0; i < 100; ++i) {
    screen.now += 20ms;
    screen.reporter.finished(result("c" + std::to_string(i)));
  }
  EXPECT_EQ(screen.take(), "") << "two seconds without news";
  screen.reporter.finished(result("broken/case", Verdict::unexpected));
  EXPECT_EQ(screen.take(), "unexpected FAIL broken/case: 1 byte is wrong\\x1b[2J\n");
  screen.now += 3s;
  screen.reporter.tick();
  EXPECT_EQ(screen.take(), "201/1,000, 20/s, 39.6 s left, 1 not as expected\n");
  screen.reporter.end();
  EXPECT_EQ(screen.take(), "");
}

TEST(Console, BarShowsTheSlowestRunningCase) {
  Screen screen(Terminal{true, false, 80});
  screen.reporter.begin("smoke", 40);
  screen.reporter.slowest("slow/case", screen.now);
  screen.now += 500ms;
  for (int i = 0; i < 20; ++i) {
    screen.reporter.finished(result("quick"));
  }
  screen.now += 1500ms;
  screen.take();
  screen.reporter.tick();
  EXPECT_EQ(screen.take(), "\r\x1b[2K[##########..........] 20/40, 10/s, 2.0 s left, slowest 2.0 s: slow/case");
  screen.now += 50ms;
  screen.reporter.tick();
  EXPECT_EQ(screen.take(), "") << "not more than ten times a second";
  screen.reporter.log("a line");
  const std::string text = screen.take();
  EXPECT_TRUE(text.starts_with("\r\x1b[2Ka line\n\r\x1b[2K[")) << text;
  screen.reporter.end();
  EXPECT_EQ(screen.take(), "\r\x1b[2K");
}

TEST(Console, ExcludesUnsupportedCasesFromTheSpeed) {
  Screen screen(Terminal{false, false, 80});
  screen.reporter.begin("smoke", 200);
  for (int i = 0; i < 100; ++i) {
    auto r = result("u" + std::to_string(i));
    r.outcome = Outcome::unsupported;
    screen.reporter.finished(r);
  }
  screen.now += 10s;
  screen.take();
  for (int i = 0; i < 50; ++i) screen.reporter.finished(result("c" + std::to_string(i)));
  EXPECT_EQ(screen.take(), "101/200, 0.1/s, 16 min 30 s left\n");
  screen.now += 5s;
  screen.reporter.tick();
  EXPECT_EQ(screen.take(), "150/200, 3.3/s, 15.0 s left\n");
}

TEST(Console, FitsTheBarToTheTerminal) {
  for (const int width : {20, 40, 60, 80, 200}) {
    for (const bool colour : {false, true}) {
      Screen screen(Terminal{true, colour, width});
      screen.reporter.begin("smoke", 100000);
      screen.reporter.slowest("a/very/long/id/" + std::string(300, 'x'), screen.now);
      screen.now += 10s;
      screen.reporter.finished(result("b", Verdict::unexpected));
      screen.take();
      screen.now += 1s;
      screen.reporter.tick();
      std::string text = screen.take();
      for (std::size_t at = 0; (at = text.find('\x1b')) != std::string::npos;)
        text.erase(at, text.find_first_of("mK", at) - at + 1);
      EXPECT_LT(text.size(), static_cast<std::size_t>(width) + 1) << text;  // the leading \r counts one
      EXPECT_EQ(text.find('\n'), std::string::npos);
    }
  }
}

TEST(Console, TruncatesAFloodOfFailures) {
  Screen screen(Terminal{false, false, 80});
  screen.reporter.begin("smoke", 1000);
  for (int i = 0; i < 1000; ++i) screen.reporter.finished(result("c" + std::to_string(i), Verdict::unexpected));
  const std::string text = screen.take();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1 + ConsoleReporter::failures_shown + 1);
  EXPECT_TRUE(has(text, "in the summary"));
}

class Environment : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const auto* name : names) {
      const char* value = std::getenv(name);
      before_.emplace_back(value ? std::optional<std::string>(value) : std::nullopt);
      ::unsetenv(name);
    }
    ::setenv("TERM", "xterm", 1);
    master_ = ::posix_openpt(O_RDWR | O_NOCTTY);
    if (master_ < 0) GTEST_SKIP() << "this machine has no pseudo-terminals (/dev/ptmx)";
    ASSERT_EQ(::grantpt(master_), 0);
    ASSERT_EQ(::unlockpt(master_), 0);
    tty_ = ::open(::ptsname(master_), O_RDWR | O_NOCTTY);
    ASSERT_GE(tty_, 0);
  }
  void TearDown() override {
    ::close(tty_);
    ::close(master_);
    for (std::size_t i = 0; i < before_.size(); ++i) {
      if (before_[i]) {
        ::setenv(names[i], before_[i]->c_str(), 1);
      } else {
        ::unsetenv(names[i]);
      }
    }
  }
  static constexpr std::array names{"CI", "NO_COLOR", "TERM"};
  std::vector<std::optional<std::string>> before_;
  int master_{-1}, tty_{-1};
};

TEST_F(Environment, ControlsColourAndLiveOutput) {
  EXPECT_TRUE(terminal_of(tty_).live);
  EXPECT_TRUE(terminal_of(tty_).colour);
  ::setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(terminal_of(tty_).colour);
  ::setenv("CI", "true", 1);
  EXPECT_FALSE(terminal_of(tty_).live);
  ::setenv("CI", "false", 1);
  EXPECT_TRUE(terminal_of(tty_).live);
  ::setenv("TERM", "dumb", 1);
  EXPECT_FALSE(terminal_of(tty_).live);
  const int null = ::open("/dev/null", O_WRONLY);
  EXPECT_FALSE(terminal_of(null).live);
  EXPECT_FALSE(terminal_of(null).colour);
  ::close(null);
}

}  // namespace
}  // namespace kvcts::report
