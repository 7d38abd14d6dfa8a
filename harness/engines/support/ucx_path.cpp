#include "engines/support/ucx_path.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <vector>

namespace kvcts::engines {
namespace {

constexpr const char* calls[] = {" ucp_put", " ucp_get", " ucp_am_send"};  // in the order of UcxLog::Verb

}  // namespace

UcxLog::UcxLog() {
  if (const char* known = std::getenv("UCX_LOG_FILE"); known != nullptr) {
    file_ = open(known, O_RDONLY | O_CLOEXEC);
    return;
  }
  file_ = memfd_create("ucx-log", MFD_CLOEXEC);
  if (file_ < 0) return;
  setenv("UCX_LOG_FILE", ("/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file_)).c_str(), 1);
  setenv("UCX_PROTO_INFO", "y", 0);
}

UcxLog::~UcxLog() {
  if (file_ >= 0) close(file_);
}

std::string UcxLog::read() {
  std::fflush(nullptr);  // UCX buffers the end of its log
  struct stat about{};
  if (file_ < 0 || fstat(file_, &about) != 0) return {};
  std::string text(static_cast<std::size_t>(about.st_size), '\0');
  const auto got = pread(file_, text.data(), text.size(), 0);
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text;
}

// A table: the endpoint ("... intra-node cfg#1") and the operation ("remote memory write by ucp_put* from host memory to
// host"), in one line (UCX 1.20) or in two (1.23), then one line per range of lengths ("0..inf | zero-copy | cma/memory").
// The last range of the last table counts; tables of a worker's endpoint to itself do not, unless there is no other.
UcxLog::Path UcxLog::path(Verb verb) {
  const std::string text = read();
  if (text.size() == parsed_) return known_[verb];
  Path others[3], own[3];
  Path* open = nullptr;
  bool to_itself = false;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto bar = line.find("| ");
    if (bar == std::string::npos) continue;
    std::vector<std::string> cells;
    std::istringstream words(line.substr(bar + 1));
    for (std::string cell; std::getline(words, cell, '|');) {
      const auto first = cell.find_first_not_of(' '), last = cell.find_last_not_of(' ');
      cells.push_back(first == std::string::npos ? "" : cell.substr(first, last - first + 1));
    }
    bool title = false;
    for (const std::string& cell : cells) {
      if (cell.find(" cfg#") != std::string::npos) {
        to_itself = cell.find("self cfg#") != std::string::npos;
        title = true;
      } else if (cell.find(" by ucp_") != std::string::npos) {
        const auto of = std::find_if(std::begin(calls), std::end(calls),
                                     [&](const char* call) { return cell.find(call) != std::string::npos; });
        open = of != std::end(calls) ? &(to_itself ? own : others)[of - std::begin(calls)] : nullptr;
        title = true;
      }
    }
    if (!title && open != nullptr && cells.size() >= 3 && cells[0] != "Range") *open = {cells[2], cells[1]};
  }
  parsed_ = text.size();
  for (const Verb known : {put, get, message}) known_[known] = others[known].transport.empty() ? own[known] : others[known];
  return known_[verb];
}

}  // namespace kvcts::engines
