#include "cli/report/console.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "cli/report/text.hpp"
#include "run/store/counts.hpp"

namespace kvcts::report {

namespace {
constexpr std::size_t findings_shown = 3;  // of a failure
}
namespace {

using std::chrono::duration_cast;
using std::chrono::nanoseconds;

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

// Characters on screen; close enough for ids and words, which hold no wide ones.
std::size_t columns(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

std::string fit(std::string text, std::size_t width) {
  return columns(text) <= width ? text : cut(text, width < 4 ? 0 : width - 3);
}

std::string without_codes(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      i = std::min(text.find('m', i), text.size());
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

Terminal terminal_of(int fd) {
  Terminal out;
  const bool terminal = ::isatty(fd) == 1;
  const char* kind = std::getenv("TERM");
  const bool dumb = kind != nullptr && std::string_view(kind) == "dumb";
  const char* ci = std::getenv("CI");
  const bool in_ci = is_set("CI") && std::string_view(ci) != "false" && std::string_view(ci) != "0";
  out.live = terminal && !dumb && !in_ci;
  out.colour = terminal && !dumb && !is_set("NO_COLOR");
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20) out.width = size.ws_col;
  return out;
}

std::string paint(const Terminal& terminal, Colour colour, std::string_view text) {
  if (!terminal.colour || colour == Colour::none) return std::string(text);
  const char* code = colour == Colour::good ? "32" : colour == Colour::bad ? "1;31" : colour == Colour::warn ? "33" : "2";
  return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

ConsoleReporter::ConsoleReporter(std::ostream& out, Terminal terminal, std::function<Clock::time_point()> now)
    : out_(out), terminal_(terminal), now_(std::move(now)) {}

void ConsoleReporter::begin(std::string_view suite, std::int64_t planned, std::int64_t done_before) {
  planned_ = planned;
  done_ = done_before;
  ran_ = 0;
  open_ = true;
  last_ = now_();
  samples_.assign(1, {last_, ran_});
  out_ << fmt::format("{}: {}", visible(suite), plural(planned, "case"));
  if (done_before > 0) out_ << fmt::format(", {} already decided", thousands(done_before));
  out_ << std::endl;
}

void ConsoleReporter::slowest(std::string_view id, Clock::time_point since, std::string_view doing) {
  slowest_ = id, slowest_does_ = doing;
  slowest_since_ = since;
}

void ConsoleReporter::finished(const CaseResult& result) {
  ++done_;
  // What is decided without running takes no time and says nothing about the rest.
  if (store::was_executed(result.outcome)) ++ran_;
  if (result.verdict == Verdict::error || store::is_failure(result.verdict)) {
    ++(result.verdict == Verdict::error ? errors_ : failed_);
    if (++failures_logged_ <= failures_shown) {
      const std::string word(result.verdict == Verdict::error ? "SUITE ERROR" : name(result.verdict));
      log(fmt::format("{} {} {}: {}", paint(terminal_, Colour::bad, word), ending_text(result), visible(result.id),
                      visible(cut(result.message, 300))));
      // A cause does not say where; where no cause is known the message has it.
      if (result.diagnosis.exact)
        for (std::size_t i = 0; i < std::min(findings_shown, result.what_happened.size()); ++i)
          log("    " + visible(cut(result.what_happened[i].text, 300)));
      if (failures_logged_ == failures_shown) log("further ones are in the summary at the end");
    }
  }
  tick();
}

void ConsoleReporter::tick() {
  if (!open_) return;
  const auto now = now_();
  if (now - samples_.back().first >= std::chrono::seconds(1)) {
    samples_.emplace_back(now, ran_);
    while (samples_.size() > 30) samples_.pop_front();
  }
  if (terminal_.live) {
    if (!drawn_ || now - last_ >= redraw) draw();
  } else if (now - last_ >= plain_line) {
    plain();
  }
}

void ConsoleReporter::log(std::string_view line) {
  clear();
  out_ << line << std::endl;
  if (terminal_.live && open_) draw();
}

void ConsoleReporter::end() {
  clear();
  open_ = false;
  out_.flush();
}

double ConsoleReporter::rate() const {
  const auto& [since, before] = samples_.front();
  const double seconds = std::chrono::duration<double>(now_() - since).count();
  return seconds < 0.2 ? 0 : static_cast<double>(ran_ - before) / seconds;
}

std::string ConsoleReporter::progress(bool with_slowest) const {
  std::string out = fmt::format("{}/{}", thousands(done_), thousands(planned_));
  if (const double per_second = rate(); per_second > 0) {
    out += per_second >= 9.95 ? fmt::format(", {:.0f}/s", per_second) : fmt::format(", {:.1f}/s", per_second);
    if (planned_ > done_)
      out += fmt::format(", {} left",
                         duration(static_cast<std::int64_t>(static_cast<double>(planned_ - done_) / per_second * 1e9)));
  }
  if (failed_ > 0) out += ", " + paint(terminal_, Colour::bad, fmt::format("{} not as expected", thousands(failed_)));
  if (errors_ > 0) out += ", " + paint(terminal_, Colour::bad, plural(errors_, "suite error"));
  if (with_slowest && !slowest_.empty()) {
    const auto age = duration_cast<nanoseconds>(now_() - slowest_since_).count();
    if (age > 1'000'000'000)
      out += fmt::format(", {} {}: {}", slowest_does_.empty() ? "slowest" : slowest_does_, duration(age), visible(slowest_));
  }
  return out;
}

void ConsoleReporter::draw() {
  last_ = now_();
  const auto width = static_cast<std::size_t>(std::max(terminal_.width, 20)) - 1;
  const std::size_t bar = width < 60 ? 0 : 20;
  const std::size_t room = bar == 0 ? width : width - bar - 3;
  std::string text = progress(true);
  // Escape codes have no width: where the coloured text does not fit, it is shown without colour, cut.
  if (const std::string bare = without_codes(text); columns(bare) > room) text = fit(bare, room);
  out_ << "\r\x1b[2K";
  if (bar > 0) {
    const auto done = planned_ <= 0 ? 1.0 : static_cast<double>(done_) / static_cast<double>(planned_);
    const auto filled = std::min(bar, static_cast<std::size_t>(static_cast<double>(bar) * done));
    out_ << '[' << std::string(filled, '#') << std::string(bar - filled, '.') << "] ";
  }
  out_ << text << std::flush;
  drawn_ = true;
}

void ConsoleReporter::clear() {
  if (drawn_) out_ << "\r\x1b[2K";
  drawn_ = false;
}

void ConsoleReporter::plain() {
  last_ = now_();
  out_ << progress(true) << std::endl;
}

}  // namespace kvcts::report
