#include "process/procfs.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <unordered_map>
#include <unordered_set>

#include <sstream>
#include "process/unique_fd.hpp"

namespace kvcts::process {

namespace {

/// Reads a whole small file; nullopt with errno set if it cannot be opened or read.
std::optional<std::string> slurp(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return std::nullopt;
  std::string text;
  char buffer[4096];
  for (;;) {
    const ssize_t got = ::read(fd.get(), buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    if (got == 0) return text;
    text.append(buffer, static_cast<std::size_t>(got));
    if (text.size() > 1 << 20) return text;
  }
}

std::string path_of(pid_t pid, std::string_view file) { return "/proc/" + std::to_string(pid) + "/" + std::string(file); }

/// Number after "Name:" in a /proc status file; 0 if absent.
std::int64_t status_number(const std::string& text, std::string_view field) {
  const std::size_t at = text.find("\n" + std::string(field) + ":");
  if (at == std::string::npos) return 0;
  return std::strtoll(text.c_str() + at + field.size() + 2, nullptr, 10);
}

}  // namespace

std::string host_name() {
  std::array<char, 256> host{};
  return ::gethostname(host.data(), host.size() - 1) == 0 ? host.data() : "";
}

std::string read_text_file(const std::string& path) { return slurp(path).value_or(std::string()); }

std::optional<ProcessStat> read_stat(pid_t pid) {
  const auto text = slurp(path_of(pid, "stat"));
  if (!text) return std::nullopt;
  // pid (command, which may contain anything) state ppid pgrp session tty tpgid flags minflt cminflt majflt cmajflt utime
  // stime ...
  const std::size_t open = text->find('('), close = text->rfind(')');
  if (open == std::string::npos || close == std::string::npos || close + 2 >= text->size()) return std::nullopt;
  ProcessStat stat;
  stat.pid = pid;
  stat.command = text->substr(open + 1, close - open - 1);
  stat.state = (*text)[close + 2];
  const char* cursor = text->c_str() + close + 3;
  char* end = nullptr;
  for (int field = 4; field <= 22; ++field) {
    const long long value = std::strtoll(cursor, &end, 10);
    if (end == cursor) return std::nullopt;
    cursor = end;
    if (field == 4) stat.parent = static_cast<pid_t>(value);
    if (field == 5) stat.group = static_cast<pid_t>(value);
    if (field == 6) stat.session = static_cast<pid_t>(value);
    if (field == 14 || field == 15) stat.cpu_ticks += static_cast<std::uint64_t>(value);
    if (field == 22) stat.start_ticks = static_cast<std::uint64_t>(value);
  }
  return stat;
}

std::size_t count_processes() {
  std::size_t count = 0;
  DIR* directory = ::opendir("/proc");
  while (const dirent* entry = directory != nullptr ? ::readdir(directory) : nullptr)
    count += entry->d_name[0] >= '1' && entry->d_name[0] <= '9';
  if (directory != nullptr) ::closedir(directory);
  return count;
}

std::vector<ProcessStat> all_processes() {
  std::vector<ProcessStat> all;
  DIR* directory = ::opendir("/proc");
  if (directory == nullptr) return all;
  while (const dirent* entry = ::readdir(directory)) {
    const char* first = entry->d_name;
    const char* last = first + std::strlen(first);
    pid_t pid = 0;
    if (const auto [rest, error] = std::from_chars(first, last, pid); error != std::errc() || rest != last) continue;
    if (auto stat = read_stat(pid)) all.push_back(std::move(*stat));
  }
  ::closedir(directory);
  return all;
}

std::string environment_of(pid_t pid, std::string_view variable) {
  const auto text = slurp(path_of(pid, "environ"));
  if (!text) return {};
  const std::string wanted = std::string(variable) + "=";
  for (std::size_t at = 0; at < text->size();) {
    const std::size_t end = std::min(text->find('\0', at), text->size());
    if (text->compare(at, wanted.size(), wanted) == 0) return text->substr(at + wanted.size(), end - at - wanted.size());
    at = end + 1;
  }
  return {};
}

pid_t thread_group_of(pid_t id) {
  const auto text = slurp(path_of(id, "status"));
  return text ? static_cast<pid_t>(status_number(*text, "Tgid")) : 0;
}

pid_t pid_inside(pid_t pid) {
  const std::string status = read_text_file(path_of(pid, "status"));
  const std::size_t at = status.find("\nNSpid:");
  if (at == std::string::npos) return 0;
  std::istringstream numbers(status.substr(at + 7, status.find('\n', at + 1) - at - 7));
  pid_t last = 0;
  for (pid_t number = 0; numbers >> number;) last = number;
  return last;
}

pid_t child_in_namespace(pid_t parent, pid_t inner) {
  std::istringstream children(
      read_text_file("/proc/" + std::to_string(parent) + "/task/" + std::to_string(parent) + "/children"));
  for (pid_t child = 0; children >> child;)
    if (pid_inside(child) == inner) return child;
  for (const ProcessStat& stat : all_processes())  // the children file may omit one while its siblings end (proc(5))
    if (stat.parent == parent && pid_inside(stat.pid) == inner) return stat.pid;
  return 0;
}

bool catches_signal(pid_t pid, int signal) {
  const auto text = slurp(path_of(pid, "status"));
  const auto at = text ? text->find("\nSigCgt:") : std::string::npos;
  return at != std::string::npos && (std::strtoull(text->c_str() + at + 8, nullptr, 16) >> (signal - 1) & 1) != 0;
}

bool stands_still(pid_t pid) {
  const std::string folder = path_of(pid, "task");
  DIR* tasks = ::opendir(folder.c_str());
  if (tasks == nullptr) return true;
  bool still = true;
  while (const dirent* entry = still ? ::readdir(tasks) : nullptr) {
    if (entry->d_name[0] == '.') continue;
    const std::string stat = read_text_file(folder + "/" + entry->d_name + "/stat");
    const std::size_t at = stat.rfind(')');
    still = at == std::string::npos || std::strchr("TtZX", stat[std::min(at + 2, stat.size() - 1)]) != nullptr;
  }
  ::closedir(tasks);
  return still;
}

std::set<std::string> mapped_code(pid_t pid) {
  std::set<std::string> out;
  std::ifstream maps(path_of(pid, "maps"));
  for (std::string line; std::getline(maps, line);)
    if (const std::size_t path = line.find('/');
        path != std::string::npos && line.find("x") < line.find(' ', line.find(' ') + 1))
      out.insert(line.substr(path));
  return out;
}

std::uint64_t private_bytes(pid_t pid) {
  const auto text = slurp(path_of(pid, "statm"));  // pages: size resident shared ...
  if (!text) return 0;
  char* end = nullptr;
  std::strtoull(text->c_str(), &end, 10);
  const std::uint64_t resident = std::strtoull(end, &end, 10), shared = std::strtoull(end, &end, 10);
  static const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return resident > shared ? (resident - shared) * page : 0;
}

std::string read_proc_text(pid_t pid, std::string_view file) {
  errno = 0;
  const auto text = slurp(path_of(pid, file));
  if (!text) return "(" + std::string(std::strerror(errno)) + ")";
  return *text;
}

std::vector<ProcessStat> descendants(const std::vector<ProcessStat>& all, const std::vector<pid_t>& roots) {
  std::unordered_multimap<pid_t, const ProcessStat*> children;
  for (const ProcessStat& stat : all) children.emplace(stat.parent, &stat);
  std::unordered_set<pid_t> seen(roots.begin(), roots.end());
  std::vector<pid_t> todo(roots);
  std::vector<ProcessStat> found;
  while (!todo.empty()) {
    const pid_t parent = todo.back();
    todo.pop_back();
    const auto [first, last] = children.equal_range(parent);
    for (auto it = first; it != last; ++it) {
      if (!seen.insert(it->second->pid).second) continue;
      found.push_back(*it->second);
      todo.push_back(it->second->pid);
    }
  }
  return found;
}

bool mark_matches(std::string_view mark, std::string_view wanted) {
  if (mark.empty() || wanted.empty()) return false;
  return wanted.back() == '/' ? mark.starts_with(wanted) : mark == wanted;
}

PidWatch::PidWatch() : fd_(::open("/proc/loadavg", O_RDONLY | O_CLOEXEC)) {
  highest_ = std::strtoll(read_text_file("/proc/sys/kernel/pid_max").c_str(), nullptr, 10);
  if (highest_ <= 0) highest_ = 32768;
}

PidWatch::~PidWatch() {
  if (fd_ >= 0) ::close(fd_);
}

std::int64_t PidWatch::last() const {
  char text[128];
  const ssize_t got = fd_ < 0 ? -1 : ::pread(fd_, text, sizeof(text) - 1, 0);
  if (got <= 0) return -1;
  text[got] = '\0';
  const char* blank = std::strrchr(text, ' ');
  return blank == nullptr ? -1 : std::strtoll(blank, nullptr, 10);
}

std::vector<pid_t> PidWatch::created_since(std::int64_t before) const {
  const std::int64_t now = last();
  std::vector<pid_t> found;
  if (now == before && now >= 0) return found;
  const std::int64_t count = now > before ? now - before : now + highest_ - before;
  if (now < 0 || before < 0 || count > 512) {  // unknown, or a busy machine: scan every process
    for (const ProcessStat& stat : all_processes()) found.push_back(stat.pid);
    return found;
  }
  for (std::int64_t step = 1; step <= count; ++step) {
    std::int64_t id = before + step;
    if (id >= highest_) id -= highest_;
    if (id > 1 && ::access(("/proc/" + std::to_string(id)).c_str(), F_OK) == 0) found.push_back(static_cast<pid_t>(id));
  }
  return found;
}

}  // namespace kvcts::process
