// The evidence kept of a process that hangs or crashed.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "case/result.hpp"
#include "process/status_view.hpp"

namespace kvcts::supervisor {

/// State, wait channel, kernel stack and system call of a process and its threads, from /proc; for unreadable ones
/// the reason.
std::string proc_text(pid_t pid);
/// The status page in words.
std::string status_text(const process::StatusView& status, std::int64_t now_ns);
/// "3 of 4,294,967,192"; "" if nothing was ever reported.
std::string progress_text(const process::StatusView& status);
/// What the steps of our machine reported, one line per event: "move2 move bytes=1280 moved=true".
std::string events_text(const std::vector<nlohmann::json>& events);
/// Adds evidence, capped at 64 KiB (beginning and end are kept); empty text adds nothing.
void add_evidence(CaseResult& result, const std::string& kind, const std::string& text);
/// Nanoseconds for which a process's threads wanted a CPU, running or waiting: a spinning process counts as busy on a
/// crowded machine, too. 0 if gone.
std::int64_t busy_ns(pid_t pid);

}  // namespace kvcts::supervisor
