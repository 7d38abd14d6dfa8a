// A file that appears complete or not at all.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace kvcts::report {

/// Written beside its place and renamed when complete: a reader never sees half a file, a failure leaves the old one. Throws
/// std::runtime_error,
/// "<role> <path>: cannot be written (<why>); <advice>".
class WholeFile {
 public:
  WholeFile(std::filesystem::path path, std::string role, std::string advice)
      : path_(std::move(path)),
        part_(path_.string() + fmt::format(".part{}", ::getpid())),
        role_(std::move(role)),
        advice_(std::move(advice)),
        out_(part_, std::ios::binary) {
    if (!out_) throw failed();
  }
  ~WholeFile() {
    std::error_code ignored;
    if (!done_) std::filesystem::remove(part_, ignored);
  }
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;
  std::ostream& out() { return out_; }
  std::filesystem::path keep() {
    out_.close();
    if (!out_) throw failed();
    std::error_code ec;
    std::filesystem::rename(part_, path_, ec);
    if (ec) throw std::runtime_error(fmt::format("{} {}: cannot be written ({})", role_, path_.string(), ec.message()));
    done_ = true;
    return path_;
  }

 private:
  std::runtime_error failed() const {
    return std::runtime_error(fmt::format("{} {}: cannot be written ({}); {}", role_, path_.string(),
                                          errno != 0 ? std::strerror(errno) : "unknown reason", advice_));
  }
  std::filesystem::path path_, part_;
  std::string role_, advice_;
  std::ofstream out_;
  bool done_{false};
};

}  // namespace kvcts::report
