// What a person sees during a run: a progress bar on a terminal, plain lines elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <ostream>
#include <string>
#include <string_view>

#include "case/result.hpp"

namespace kvcts::report {

/// How to write to a place. `live`: lines may be rewritten.
struct Terminal {
  bool live{false};
  bool colour{false};
  int width{80};
};
/// Asks the descriptor and the environment: not live when it is no terminal, TERM=dumb, or CI is set (and not "false" or
/// "0"); no colour with NO_COLOR (any value but the empty one) or where it is not a terminal.
Terminal terminal_of(int fd);

enum class Colour : std::uint8_t { none, good, bad, warn, quiet };
/// Wraps text in the colour's escape codes when the terminal takes them.
std::string paint(const Terminal& terminal, Colour colour, std::string_view text);

/// Not for several threads. Costs about a microsecond a case; it writes at most ten times a second.
class ConsoleReporter {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds redraw{100};
  static constexpr std::chrono::seconds plain_line{5};
  static constexpr int failures_shown = 20;

  ConsoleReporter(std::ostream& out, Terminal terminal, std::function<Clock::time_point()> now = Clock::now);

  /// `done_before`: results of earlier sessions of a resumed run.
  void begin(std::string_view suite, std::int64_t planned, std::int64_t done_before = 0);
  /// The case that has been running longest, and since when; "" = none.
  void slowest(std::string_view id, Clock::time_point since, std::string_view doing = {});
  void finished(const CaseResult& result);
  /// Redraws when it is time; call it whenever the event loop turns.
  void tick();
  /// A line of its own, above the bar.
  void log(std::string_view line);
  /// Removes the bar; the summary comes next.
  void end();

 private:
  void draw();
  void clear();
  void plain();
  std::string progress(bool with_slowest) const;
  double rate() const;

  std::ostream& out_;
  Terminal terminal_;
  std::function<Clock::time_point()> now_;
  std::int64_t planned_{0}, done_{0}, ran_{0}, failed_{0}, errors_{0}, failures_logged_{0};
  bool open_{false}, drawn_{false};
  Clock::time_point last_{};
  std::deque<std::pair<Clock::time_point, std::int64_t>> samples_;  // of ran_, one a second, half a minute long
  std::string slowest_, slowest_does_;
  Clock::time_point slowest_since_{};
};

}  // namespace kvcts::report
