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
/// What an untyped exception of the modelled code would be -> FAIL. `type` e.g. "ValueError".
struct Raised : std::runtime_error {
  Raised(std::string type_name, const std::string& text) : std::runtime_error(text), type(std::move(type_name)) {}
  std::string type;
};

struct Plan {
  std::vector<Copy> copies;  ///< regions numbered as kvcts::regions(case, side)
  bool relayout{
      false};        ///< the pair's inner orders differ: copies are smaller than a row of channels or reorder within a block
  std::string note;  ///< one sentence for people
};

class Connector {
 public:
  virtual ~Connector() = default;
  /// Looks at what one side was handed (worker_view: claims, tensors). Throws Refusal or Raised.
  virtual void register_caches(const ResolvedCase& view, Side side) = 0;
  /// Throws Refusal or Raised.
  virtual Plan plan(const ResolvedCase& view, process::Progress progress) = 0;
};

/// Kinds "reference", "blocks", "contract", "explicit", "none" (kind "program" is hosted by program/host.hpp instead); with
/// an option `sabotage`, one that misreads what it is handed (misread.hpp). Throws std::runtime_error on an unknown kind or
/// bad options.
std::unique_ptr<Connector> make_connector(const ConnectorSpec& spec);

}  // namespace kvcts::connector
