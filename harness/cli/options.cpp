#include "cli/options.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

#include "cli/exit.hpp"

namespace kvcts::cli {

Option Option::required() { return Option(option_->required()); }
Option Option::type_name(const std::string& name) { return Option(option_->type_name(name)); }
Option Option::show_default() { return Option(option_->capture_default_str()); }
Option Option::repeatable() { return Option(option_->expected(1)->take_all()); }
Option Option::delimiter(char between) { return Option(option_->delimiter(between)); }
Option Option::range(int least, int most) { return Option(option_->check(CLI::Range(least, most))); }
Option Option::range(std::int64_t least, std::int64_t most) { return Option(option_->check(CLI::Range(least, most))); }
Option Option::range(double least, double most) { return Option(option_->check(CLI::Range(least, most))); }
Option Option::not_negative() { return Option(option_->check(CLI::NonNegativeNumber)); }
Option Option::one_of(const std::vector<std::string>& words) { return Option(option_->check(CLI::IsMember(words))); }
Option Option::no_value() { return Option(option_->disable_flag_override()); }
Option Option::needs(Option other) { return Option(option_->needs(other.option_)); }
Option Option::excludes(Option other) { return Option(option_->excludes(other.option_)); }

Option Option::duration() {
  const auto to_milliseconds = [](std::string& text) -> std::string {  // returns what is wrong with it
    double number = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
    const std::string_view unit = std::string_view(text).substr(static_cast<std::size_t>(parsed.ptr - text.data()));
    const double ms = number * (unit == "ms" ? 1 : unit == "s" ? 1e3 : unit == "m" ? 6e4 : -1);
    if (parsed.ec != std::errc{} || !(ms >= 0) || ms > 3.6e6)
      return "expected a time of at most 60m (0s, 250ms, 2s), found '" + text + "'";
    text = std::to_string(std::llround(ms));
    return {};
  };
  return Option(option_->transform(CLI::Validator(to_milliseconds, "")));
}

Option Option::whole_number() {
  const auto to_decimal = [](std::string& text) {  // returns what is wrong with it
    try {
      std::size_t used = 0;
      const std::int64_t value = std::stoll(text, &used, 0);
      if (used != text.size()) return "expected a whole number, decimal or 0x, found '" + text + "'";
      text = std::to_string(value);
      return std::string();
    } catch (const std::exception&) {
      return "expected a whole number, decimal or 0x, found '" + text + "'";
    }
  };
  return Option(option_->transform(CLI::Validator(to_decimal, "N")));
}

Option Command::add_option(const std::string& names, std::string& value, const std::string& help) {
  return Option(app_->add_option(names, value, help));
}

Option Command::add_option(const std::string& names, int& value, const std::string& help) {
  return Option(app_->add_option(names, value, help));
}

Option Command::add_option(const std::string& names, std::int64_t& value, const std::string& help) {
  return Option(app_->add_option(names, value, help));
}

Option Command::add_option(const std::string& names, std::uint64_t& value, const std::string& help) {
  return Option(app_->add_option(names, value, help));
}

Option Command::add_option(const std::string& names, double& value, const std::string& help) {
  return Option(app_->add_option(names, value, help));
}

Option Command::add_option(const std::string& names, std::optional<std::int64_t>& value, const std::string& help) {
  return Option(app_->add_option(names, value, help));
}

Option Command::add_option(const std::string& names, std::optional<std::uint64_t>& value, const std::string& help) {
  return Option(app_->add_option(names, value, help));
}

Option Command::add_option(const std::string& names, std::vector<std::string>& value, const std::string& help) {
  return Option(app_->add_option(names, value, help));
}

Option Command::add_option(const std::string& names, std::vector<std::int64_t>& value, const std::string& help) {
  return Option(app_->add_option(names, value, help));
}

Option Command::add_flag(const std::string& names, bool& value, const std::string& help) {
  return Option(app_->add_flag(names, value, help));
}

Option Command::add_flag(const std::string& names, const std::string& help) { return Option(app_->add_flag(names, help)); }

Option Command::option(const std::string& name) const { return Option(app_->get_option(name)); }

Command Command::add_command(const std::string& name, const std::string& help, std::function<void()> chosen) {
  CLI::App* command = app_->add_subcommand(name, help);
  command->callback(std::move(chosen));
  app_->require_subcommand(1);
  return Command(*command);
}

void parse_words(std::vector<std::string> words, const std::function<void(Command&)>& declare) {
  CLI::App app;
  Command command(app);
  declare(command);
  std::reverse(words.begin(), words.end());  // as CLI::App::parse(vector) wants them
  try {
    app.parse(words);
  } catch (const CLI::ParseError& e) {
    throw UsageError(e.what());
  }
}

}  // namespace kvcts::cli
