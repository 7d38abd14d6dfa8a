// The arguments of open() and canary(), as the C table takes them.
#pragma once

#include <vector>

#include "engines/transport/session.hpp"

namespace kvcts::transport {

/// Points into `options`, which has to outlive it.
inline std::vector<kvcts_option> option_list(const OpenOptions& options) {
  std::vector<kvcts_option> out;
  for (const auto& [key, value] : options.options) out.push_back({key.c_str(), value.c_str()});
  return out;
}

/// Points into `options`, which has to outlive it.
class OpenArgs {
 public:
  explicit OpenArgs(const OpenOptions& options) : list_(option_list(options)) {
    raw_.size = sizeof raw_;
    raw_.name = options.name.c_str();
    raw_.role = static_cast<std::uint32_t>(options.role);
    raw_.options = list_.data();
    raw_.option_count = list_.size();
  }
  OpenArgs(const OpenArgs&) = delete;
  OpenArgs& operator=(const OpenArgs&) = delete;
  const kvcts_open_args* get() const { return &raw_; }

 private:
  std::vector<kvcts_option> list_;
  kvcts_open_args raw_{};
};

}  // namespace kvcts::transport
