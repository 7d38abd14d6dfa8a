// A connector turns two caches and two block-id lists into a plan. It knows claims and tensors, never the truth.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "case/case.hpp"
#include "process/status.hpp"

namespace kvcts::connector {

/// A clean, typed "no" before any byte moves -> REFUSED.
struct Refusal : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// Stands for an untyped exception of the modelled code -> FAIL. `type` e.g. "ValueError".
struct Raised : std::runtime_error {
  Raised(std::string type_name, const std::string& text) : std::runtime_error(text), type(std::move(type_name)) {}
  std::string type;
};

struct Plan {
  std::vector<Copy> copies;  ///< regions numbered as kvcts::regions(case, side)
  bool relayout{
      false};        ///< the pair's inner orders differ: copies are smaller than a row of channels or reorder within a block
  std::string note;  ///< one readable sentence
};

class Connector {
 public:
  virtual ~Connector() = default;
  /// Inspects what one side received (worker_view: claims, tensors). Throws Refusal or Raised.
  virtual void register_caches(const ResolvedCase& view, Side side) = 0;
  /// Throws Refusal or Raised.
  virtual Plan plan(const ResolvedCase& view, process::Progress progress) = 0;
};

/// Kinds "reference", "blocks", "contract", "explicit", "none" (program/host.hpp hosts kind "program"). With an option
/// `sabotage`, one that misreads its input (misread.hpp). Throws std::runtime_error on an unknown kind or bad options.
std::unique_ptr<Connector> make_connector(const ConnectorSpec& spec);

}  // namespace kvcts::connector
