// What cases need of the machine, and whether it is there. What is not is SKIPPED, with the reason.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "catalogue/catalogue.hpp"

namespace kvcts::cli {

class Availability {
 public:
  explicit Availability(const catalogue::Catalogue& catalogue) : catalogue_(catalogue) {}

  struct Lack {
    std::string name;    ///< of the engine or of what it needs: "ucx-tcp", "gpu"
    std::string reason;  ///< one sentence, with what to do
  };
  /// Why cases with this engine cannot run here, or nullopt. Asked once an engine, then remembered.
  const std::optional<Lack>& lack(const std::string& engine);

  /// Bytes that one case may take: four fifths of what is free now. Asked once.
  std::int64_t memory();

  /// Engines and needs, for --require. Throws UsageError on a name that is neither.
  void check_names(const std::vector<std::string>& required) const;
  /// Is a case that is skipped for that lack required to run?
  static bool required(const std::vector<std::string>& required, const std::string& engine, const Lack& lack);

 private:
  std::optional<Lack> find(const std::string& engine) const;
  const catalogue::Catalogue& catalogue_;
  std::map<std::string, std::optional<Lack>> known_;
  std::optional<std::int64_t> memory_;
};

}  // namespace kvcts::cli
