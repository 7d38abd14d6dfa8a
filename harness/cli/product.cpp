#include "cli/product.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cli/child_query.hpp"
#include "cli/exit.hpp"
#include "engines/transport/session.hpp"
#include "process/grants.hpp"

namespace kvcts::cli {
namespace {

namespace fs = std::filesystem;

bool is_library(const std::string& file) {
  std::string magic(4, '\0');
  return std::ifstream(file, std::ios::binary).read(magic.data(), 4) && magic == "\177ELF";
}

/// As the ids of cases/engines are written.
std::string id_of(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '_' ? static_cast<char>(std::tolower(c)) : '-';
  });
  return name;
}

catalogue::EngineEntry engine_of(const std::string& file) {
  const ChildAnswer answer = ask("describe", {{"file", file}}, process::grant_names(), {file}, std::chrono::seconds(20));
  if (!answer.ok)
    throw UsageError(fmt::format("--engine expects a transport's plug-in; {} does not answer: {}", file, answer.error));
  catalogue::EngineEntry entry;
  entry.id = id_of(answer.value.at("name"));
  entry.title =
      fmt::format("{} {}", answer.value.at("name").get<std::string>(), answer.value.at("version").get<std::string>());
  entry.plugin = entry.file = file;
  entry.processes = answer.value.at("processes");
  entry.grants = process::grant_names();  // what it needs is not known
  return entry;
}

}  // namespace

void declare_engine(Command& command, std::string& file) {
  command
      .add_option("--engine", file, "Test this transport, a shared library of your own, under the name that it gives itself")
      .type_name("FILE");
}

void take_plugin(const std::string& file) {
  if (!is_library(file))
    throw UsageError(fmt::format("--engine expects a transport's plug-in, a shared library; found '{}'", file));
  ::setenv(catalogue::product_variable, fs::absolute(file).lexically_normal().c_str(), 1);
}

void declare_subject(Command& command, const Subject& subject, std::string& text) {
  command
      .add_option(subject.option, text,
                  fmt::format("{}: MODULE:CLASS, after its FOLDER and a colon if that is not the current one (suite {})",
                              subject.what, subject.suite))
      .type_name("CLASS");
}

void take_subject(const Subject& subject, const std::string& text) {
  const auto name = text.rfind(':');
  const auto module = name == std::string::npos || name == 0 ? std::string::npos : text.rfind(':', name - 1);
  const std::string folder = module == std::string::npos ? "." : text.substr(0, module);
  const std::string what = module == std::string::npos ? text : text.substr(module + 1);
  const auto colon = what.find(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == what.size() || what.find('/') != std::string::npos)
    throw UsageError(
        fmt::format("{} expects [FOLDER:]MODULE:CLASS, like my_package.kv:MyClass; found '{}'", subject.option, text));
  std::error_code none;
  if (!fs::is_directory(folder, none)) throw UsageError(fmt::format("{}: there is no folder '{}'", subject.option, folder));
  ::setenv(subject.variable, fmt::format("{}:{}", fs::canonical(folder).string(), what).c_str(), 1);
}

catalogue::Additions additions_here(const std::string& cases) {
  const char* named = std::getenv(catalogue::product_variable);
  if (named == nullptr || *named == 0) return {};
  if (!is_library(named)) return catalogue::additions_of_file(named);
  catalogue::ProductEntry product;
  product.engine = engine_of(named);
  return catalogue::additions_of(catalogue::load_profile(catalogue::find_cases(cases), "core"), product);
}

nlohmann::json describe_plugin(const nlohmann::json& about) {
  const transport::Session session(transport::Plugin::load(about.at("file").get<std::string>()),
                                   {"product/producer", transport::Role::producer, {}});
  const bool between = (session.claims().reach & ~std::uint32_t{KVCTS_REACH_PROCESS}) != 0;
  return {{"name", session.plugin().engine()}, {"version", session.plugin().version()}, {"processes", between ? 2 : 1}};
}

}  // namespace kvcts::cli
