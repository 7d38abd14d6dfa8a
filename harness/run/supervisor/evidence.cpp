#include "run/supervisor/evidence.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "case/text.hpp"
#include "process/procfs.hpp"

namespace kvcts::supervisor {

namespace {

constexpr std::size_t evidence_cap = 64 * 1024;
constexpr int threads_shown = 16;

}  // namespace

std::string proc_text(pid_t pid) {
  std::ostringstream out;
  const std::string folder = "/proc/" + std::to_string(pid) + "/task";
  DIR* tasks = ::opendir(folder.c_str());
  if (tasks == nullptr) return "process " + std::to_string(pid) + " is gone\n";
  int shown = 0, all = 0;
  while (const dirent* entry = ::readdir(tasks)) {
    if (entry->d_name[0] == '.') continue;
    ++all;
    if (shown >= threads_shown) continue;
    ++shown;
    const auto thread = static_cast<pid_t>(std::atoi(entry->d_name));
    const auto stat = process::read_stat(thread);
    out << "thread " << thread;
    if (stat) out << " (" << stat->command << ") state " << stat->state;
    const auto one_line = [](std::string text) {
      while (!text.empty() && text.back() == '\n') text.pop_back();
      return text;
    };
    out << "\n  wchan: " << one_line(process::read_proc_text(thread, "wchan"))
        << "\n  syscall: " << one_line(process::read_proc_text(thread, "syscall")) << "\n  kernel stack:\n    ";
    for (const char c : one_line(process::read_proc_text(thread, "stack"))) {
      out << c;
      if (c == '\n') out << "    ";
    }
    out << "\n";
  }
  ::closedir(tasks);
  if (all > shown) out << "(" << all - shown << " more threads)\n";
  return out.str();
}

std::string progress_text(const process::StatusView& status) {
  if (status.total != 0) return text::thousands(status.done) + " of " + text::thousands(status.total);
  if (status.done != 0) return text::thousands(status.done);
  return {};
}

std::string status_text(const process::StatusView& status, std::int64_t now) {
  std::ostringstream out;
  if (!status.valid) return "the status page was overwritten\n";
  out << "phase: " << (status.phase ? name(*status.phase) : "(unknown)") << "\n";
  if (status.since_ns != 0) out << "since: " << (now - status.since_ns) / 1'000'000 << " ms\n";
  const std::string progress = progress_text(status);
  out << "progress: " << (progress.empty() ? "(none)" : progress) << "\n";
  out << "note: " << (status.note.empty() ? "(none)" : status.note) << (status.torn ? " (torn)" : "") << "\n";
  return out.str();
}

std::string events_text(const std::vector<nlohmann::json>& events) {
  std::string out;
  for (const nlohmann::json& event : events) {
    std::string line = event.value("step", "") + " " + event.value("op", "");
    for (const auto& [key, value] : event.items()) {
      if (key == "step" || key == "op" || key == "backing" || value.is_null() || (value.is_structured() && value.empty()))
        continue;
      line += " " + key + "=" + (value.is_string() ? value.get<std::string>() : value.dump());
    }
    out += line + "\n";
  }
  return out;
}

void add_evidence(CaseResult& result, const std::string& kind, const std::string& text) {
  if (text.empty()) return;
  if (text.size() <= evidence_cap) {
    result.evidence_files.push_back({kind, text});
    return;
  }
  const std::string cut = "\n(" + std::to_string(text.size() - evidence_cap) + " bytes left out)\n";
  const std::size_t half = (evidence_cap - cut.size()) / 2;
  result.evidence_files.push_back({kind, text.substr(0, half) + cut + text.substr(text.size() - half)});
}

std::int64_t busy_ns(pid_t pid) {
  std::int64_t total = 0;
  std::error_code gone;
  for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task", gone)) {
    std::ifstream in(task.path() / "schedstat");
    std::int64_t ran = 0, waited = 0;
    if (in >> ran >> waited) total += ran + waited;
  }
  if (total == 0) {  // a kernel without schedstat: only CPU time
    static const std::int64_t tick = 1'000'000'000 / ::sysconf(_SC_CLK_TCK);
    if (const auto stat = process::read_stat(pid)) total = static_cast<std::int64_t>(stat->cpu_ticks) * tick;
  }
  return total;
}

}  // namespace kvcts::supervisor
