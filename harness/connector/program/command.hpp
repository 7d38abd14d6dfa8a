// How a connector program is started: the options of a connector of kind "program".
//   command: [word, ...]   "{python}" is the suite's interpreter; "{python:vllm}" that of another environment:
//                          $KVCTS_PYTHON_VLLM, else .venv/with/vllm of the checkout; "{connectors}/x" is x in
//                          $KVCTS_CONNECTOR_PATH (colon-separated folders), else among the suite's own programs
//   environment: {KEY: value}
//   ports: n               TCP ports on loopback, per side and job (default 0)
//   start_ms: n            time limit to answer hello (default: as any worker)
//   options: {...}         passed verbatim with hello
//   options_with: hello    when a case's engine_options are sent: hello (default: such a case has its own processes)
//                          or register
//   job_options: {...}     with options_with register: sent with each register, overridden by the case's engine_options;
//                          connectors that differ only in these share processes
//   producer, consumer     any of the above, for that side only: one version against another
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "case/case.hpp"

namespace kvcts::connector::program {

struct ProgramCommand {
  std::vector<std::string> argv;  ///< words as they are executed
  std::map<std::string, std::string> environment;
  std::int64_t ports{0}, start_ms{0};
  nlohmann::json options = nlohmann::json::object();
};

/// The program is not on this machine: its cases are SKIPPED.
struct NotHere : std::runtime_error {
  NotHere(std::string lacking, const std::string& text) : std::runtime_error(text), name(std::move(lacking)) {}
  std::string name;  ///< of the environment ("vllm"), otherwise of the file
};

/// There is no such file among the connector programs: not installed, or misspelt.
struct NoFile : NotHere {
  using NotHere::NotHere;
};

/// A connector's options as one side sees them.
nlohmann::json options_of_side(nlohmann::json options, Side side);

/// Throws std::runtime_error on unknown or ill-typed options, NotHere when the file or the interpreter is missing.
ProgramCommand command_of(const std::string& connector, const nlohmann::json& options);

/// The interpreter of a separate environment ("vllm"). Throws NotHere with what to do.
std::string find_python(const std::string& environment);

}  // namespace kvcts::connector::program
