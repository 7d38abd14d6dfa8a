// The engine behind plug-in front: its table, called with a separate agent. Its errors are rethrown with the engine's
// own text.
#pragma once

#include <cstdlib>
#include <map>
#include <memory>
#include <string>

#include "engines/support/failure.hpp"
#include "engines/transport/open_args.hpp"
#include "engines/transport/session.hpp"

namespace kvcts::engines::sabotage {

/// Names the plug-in behind the front: the engine must be known before an agent is opened.
inline constexpr const char* behind_variable = "KVCTS_FRONT_OF";

/// The plug-in that the variable names. Throws transport::TransportError.
inline const transport::Plugin& behind() {
  static const std::shared_ptr<const transport::Plugin> plugin = [] {
    const char* stem = std::getenv(behind_variable);
    if (stem == nullptr)
      throw transport::TransportError(transport::Code::cannot_load, std::string(behind_variable) + " names no plug-in");
    return transport::Plugin::load(transport::find_plugin(stem));
  }();
  return *plugin;
}

/// Returns a status that is no failure; otherwise throws what the engine reports.
inline std::int32_t real_status(kvcts_agent* agent, std::int32_t status) {
  if (status >= 0) return status;
  kvcts_error error{};
  error.size = sizeof error;
  behind().table().last_error(agent, &error);
  throw Failure{status, error.text != nullptr ? error.text : "", error.native};
}

/// An agent of the engine behind.
class Real {
 public:
  Real(const std::string& name, std::uint32_t role, const std::map<std::string, std::string>& options) {
    const transport::OpenOptions opened{name, static_cast<transport::Role>(role), options};
    real_status(nullptr, api().open(transport::OpenArgs(opened).get(), &agent_));
  }
  ~Real() { api().close(agent_); }
  Real(const Real&) = delete;
  Real& operator=(const Real&) = delete;

  static const kvcts_transport& api() { return behind().table(); }
  kvcts_agent* get() const { return agent_; }
  /// Calls one function of the table: real(&kvcts_transport::post, request).
  template <class Call, class... Args>
  std::int32_t operator()(Call kvcts_transport::* call, Args... args) const {
    return real_status(agent_, (api().*call)(agent_, args...));
  }

 private:
  kvcts_agent* agent_{nullptr};
};

}  // namespace kvcts::engines::sabotage
