#include "connector/program/command.hpp"

#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "case/texts.hpp"
#include "process/installation.hpp"

namespace kvcts::connector::program {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

std::vector<fs::path> folders() {
  std::vector<fs::path> out = process::folders_of("KVCTS_CONNECTOR_PATH");
  out.push_back(process::data_folder() / "connectors");
  out.push_back(process::prefix() / "lib" / "kvcts" / "connectors");
  return out;
}

std::string expand(const std::string& word) {
  static const std::string marker = "{connectors}/", named = "{python:";
  if (word == "{python}") return process::find_python();
  if (word.starts_with(named) && word.ends_with("}"))
    return find_python(word.substr(named.size(), word.size() - named.size() - 1));
  if (!word.starts_with(marker)) return word;
  const std::string file = word.substr(marker.size());
  std::string searched;
  for (const fs::path& folder : folders()) {
    std::error_code absent;
    if (fs::exists(folder / file, absent)) return (folder / file).string();
    searched += (searched.empty() ? "" : ", ") + folder.string();
  }
  throw NoFile(file, "no connector program " + file + " in " + searched + "; set KVCTS_CONNECTOR_PATH to its folder");
}

/// As execvp finds it; "" when no executable has the name.
std::string executable(const std::string& name) {
  if (name.find('/') != std::string::npos) return ::access(name.c_str(), X_OK) == 0 ? name : "";
  const char* path = std::getenv("PATH");
  std::istringstream words(path != nullptr ? path : "/usr/bin:/bin");
  for (std::string folder; std::getline(words, folder, ':');)
    if (const std::string file = folder + "/" + name; !folder.empty() && ::access(file.c_str(), X_OK) == 0) return file;
  return "";
}

[[noreturn]] void bad(const std::string& connector, const std::string& text) {
  throw std::runtime_error("connector '" + connector + "': " + text);
}

}  // namespace

std::string find_python(const std::string& environment) {
  std::string variable = "KVCTS_PYTHON_";
  for (const char c : environment)
    variable +=
        std::isalnum(static_cast<unsigned char>(c)) ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : '_';
  if (const char* set = std::getenv(variable.c_str()); set != nullptr && *set != '\0') return set;
  std::error_code none;
  const fs::path here = process::checkout() / ".venv" / "with" / environment / "bin" / "python";
  if (here.is_absolute() && fs::exists(here, none)) return here.string();
  throw NotHere(environment, "there is no environment " + environment + ": ./run_suite.sh --with " + environment +
                                 " install makes one, or set " + variable + " to an interpreter that has it");
}

json options_of_side(json options, Side side) {
  const json own = options.value(std::string(name(side)), json::object());
  options.erase("producer"), options.erase("consumer");
  options.update(own);
  return options;
}

ProgramCommand command_of(const std::string& connector, const json& options) {
  ProgramCommand out;
  for (const auto& [key, value] : options.items()) {
    if (key == "command") {
      if (!value.is_array() || value.empty()) bad(connector, "command: expected a list of words, found " + value.dump());
      for (const json& word : value) {
        if (!word.is_string()) bad(connector, "command: expected words, found " + word.dump());
        out.argv.push_back(expand(word.get<std::string>()));
      }
    } else if (key == "environment") {
      if (!value.is_object()) bad(connector, "environment: expected a mapping, found " + value.dump());
      out.environment = texts_of(value);
    } else if (key == "ports" || key == "start_ms") {
      if (!value.is_number_integer() || value < 0) bad(connector, key + ": expected a number, found " + value.dump());
      (key == "ports" ? out.ports : out.start_ms) = value.get<std::int64_t>();
    } else if (key == "options") {
      if (!value.is_object()) bad(connector, "options: expected a mapping, found " + value.dump());
      out.options = value;
    } else if (key == "job_options") {
      if (!value.is_object() || options.value("options_with", "") != "register")
        bad(connector, "job_options: expected a mapping, and options_with: register");
    } else if (key == "options_with") {
      if (value != "hello" && value != "register")
        bad(connector, "options_with: expected hello or register, found " + value.dump());
    } else {
      bad(connector,
          "a program has the options command, environment, ports, start_ms, options, job_options and options_with, each "
          "also below producer or consumer, found '" +
              key + "'");
    }
  }
  if (out.argv.empty()) bad(connector, "a connector of kind program needs options: {command: [word, ...]}");
  const std::string file = executable(out.argv[0]);
  if (file.empty())
    throw NotHere(out.argv[0], "connector '" + connector + "': no program '" + out.argv[0] + "' can be executed here");
  out.argv[0] = file;
  return out;
}

}  // namespace kvcts::connector::program
