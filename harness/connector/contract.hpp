// A historical or foreign connector as data: how many dims it unpacks from the tensors it receives and what it believes they
// mean; it then moves whole blocks unchanged. Options:
//   unpack: [names]      what the code assigns the shape to; another number of dims raises as Python does
//   error: ValueError    the exception's type
//   reading: "K B N H C" one group of letters per dim (default: taken from the names)
#pragma once

#include <string>
#include <vector>

#include "connector/connector.hpp"

namespace kvcts::connector {

class Contract final : public Connector {
 public:
  explicit Contract(const nlohmann::json& options);
  void register_caches(const ResolvedCase& view, Side side) override;
  Plan plan(const ResolvedCase& view, process::Progress progress) override;

 private:
  /// What the contract believes a tensor to be: packed, in the order of `reading_`.
  struct Believed {
    int region{0};
    std::int64_t offset{0}, kv{1}, kv_stride{0}, block_stride{0}, block_bytes{0};  ///< bytes; kv is a count
  };
  std::vector<Believed> believe(const ResolvedCase& view, Side side) const;

  std::vector<std::string> unpack_;
  std::string error_;
  std::vector<std::string> reading_;
};

}  // namespace kvcts::connector
