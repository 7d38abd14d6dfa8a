// What cases require of the machine, and whether it is available. A missing requirement means SKIPPED, with the reason; an
// existing plug-in that cannot be loaded means failed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "case/catalogue/catalogue.hpp"
#include "run/supervisor/decide.hpp"

namespace kvcts::cli {

class Availability {
 public:
  explicit Availability(const catalogue::Catalogue& catalogue) : catalogue_(catalogue) {}

  struct Lack {
    std::vector<std::string> names;  ///< the missing thing first ("nixl-1.5.1"), then what is missing with it ("nixl-cma")
    std::string reason;              ///< one sentence, with what to do
    bool no_file{false};             ///< of a connector: its entry names a program that is nowhere
  };
  /// Why cases with this engine, or this connector, cannot run here, or nullopt. Asked once, then remembered.
  const std::optional<Lack>& lack(const std::string& engine) { return standing(engine).lack; }
  const std::optional<Lack>& connector_lack(const std::string& connector);
  /// How loading the engine's plug-in ended, where its file is there and it cannot be loaded.
  const std::optional<supervisor::PhaseResult>& broken(const std::string& engine) { return standing(engine).broken; }

  /// Bytes that one case may take: four fifths of what is free now. Asked once.
  std::int64_t memory();

  struct Needs {
    std::vector<std::string> started;  ///< by a worker: the engine; or the connector program, after its environments
    std::vector<std::string> all;      ///< everything, by the names that --require takes
  };
  /// Of a case with this engine and this connector.
  Needs needs(const std::string& engine, const std::string& connector) const;
  /// For --require. Throws UsageError on a name that nothing can lack.
  void check_names(const std::vector<std::string>& required) const;

 private:
  struct Standing {
    std::optional<Lack> lack;
    std::optional<supervisor::PhaseResult> broken;
  };
  const Standing& standing(const std::string& engine);
  Standing examine(const std::string& engine) const;
  const catalogue::Catalogue& catalogue_;
  std::map<std::string, Standing> engines_;
  std::map<std::string, std::optional<Lack>> connectors_;
  std::optional<std::int64_t> memory_;
};

/// The lack of memory, as a name.
inline constexpr const char* memory_lack = "memory";

}  // namespace kvcts::cli
