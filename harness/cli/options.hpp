// The options of a verb. CLI11 parses them; only options.cpp, app.cpp and help.cpp include it, because that costs a file 4
// s.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace kvcts::cli {

/// A declared option, flag or argument. Every call refines it and returns it.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option required();
  Option type_name(const std::string& name);  ///< what the help text calls a value
  Option show_default();                      ///< in the help text
  Option repeatable();                        ///< one value each time; a vector takes them all
  Option delimiter(char between);             ///< several values in one word
  /// Values outside [least, most] are refused.
  Option range(int least, int most);
  Option range(std::int64_t least, std::int64_t most);
  Option range(double least, double most);
  Option not_negative();
  Option one_of(const std::vector<std::string>& words);
  Option duration();      ///< "250ms", "1.5s", "2m": the value is in milliseconds
  Option whole_number();  ///< decimal or 0x; other values are refused
  Option no_value();      ///< a flag that is given or not: refuses --flag=false
  Option needs(Option other);
  Option excludes(Option other);

 private:
  CLI::Option* option_;
};

/// A verb, as its declare function sees it. A name without dashes is an argument. Values are written when the command line
/// is parsed and must live until then.
class Command {
 public:
  explicit Command(CLI::App& app) : app_(&app) {}

  Option add_option(const std::string& names, std::string& value, const std::string& help);
  Option add_option(const std::string& names, int& value, const std::string& help);
  Option add_option(const std::string& names, std::int64_t& value, const std::string& help);
  Option add_option(const std::string& names, std::uint64_t& value, const std::string& help);
  Option add_option(const std::string& names, double& value, const std::string& help);
  Option add_option(const std::string& names, std::optional<std::int64_t>& value, const std::string& help);
  Option add_option(const std::string& names, std::optional<std::uint64_t>& value, const std::string& help);
  Option add_option(const std::string& names, std::vector<std::string>& value, const std::string& help);
  Option add_option(const std::string& names, std::vector<std::int64_t>& value, const std::string& help);
  Option add_flag(const std::string& names, bool& value, const std::string& help);
  /// A flag that is only accepted: whoever wants it reads the command line.
  Option add_flag(const std::string& names, const std::string& help);
  /// One that was added. Throws where there is none.
  Option option(const std::string& name) const;
  /// A command below this one, which then needs one of them. `chosen` is called when the command line names it.
  Command add_command(const std::string& name, const std::string& help, std::function<void()> chosen);

 private:
  CLI::App* app_;
};

/// Parses `words` as the command line of a verb with these options. Throws UsageError.
void parse_words(std::vector<std::string> words, const std::function<void(Command&)>& declare);

}  // namespace kvcts::cli
