#include "run/supervisor/child.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <system_error>

namespace kvcts::supervisor {

using nlohmann::json;
using process::Channel;
using process::FrameError;
using process::FrameFault;
using process::LauncherRequest;
using process::UniqueFd;

void OutputTail::append(const char* data, std::size_t bytes) {
  text_.append(data, bytes);
  if (text_.size() > 2 * capacity) {
    dropped_ += text_.size() - capacity;
    text_.erase(0, text_.size() - capacity);
  }
}

std::string OutputTail::text() const {
  const std::size_t kept = std::min(text_.size(), capacity);
  const std::uint64_t missing = dropped_ + text_.size() - kept;
  const std::string end = text_.substr(text_.size() - kept);
  return missing == 0 ? end : "(" + std::to_string(missing) + " earlier bytes are not kept)\n" + end;
}

Child::Child(Loop& loop, Link& link, Signal& wake, const Spec& spec)
    : loop_(loop), link_(link), wake_(wake), name_(spec.name), mark_(spec.mark) {
  auto [out, out_end] = process::stream_pipe();
  auto [err, err_end] = process::stream_pipe();
  std::vector<int> fds{out_end.get(), err_end.get()};
  UniqueFd theirs;
  if (spec.channel) {
    auto [own, other] = process::socket_pair();
    channel_ = Channel(std::move(own), {spec.max_frame_bytes, spec.accept_fds});
    theirs = std::move(other);
    fds.push_back(theirs.get());
  }
  if (spec.status_page) {
    page_ = process::MemoryFile("kvcts-status", sizeof(process::StatusPage));
    new (page_.map.data()) process::StatusPage();
    fds.push_back(page_.fd.get());
  }
  fds.insert(fds.end(), spec.more.begin(), spec.more.end());
  out_ = std::move(out);
  err_ = std::move(err);
  process::SpawnRequest request;
  request.argv = spec.argv;
  request.environment = spec.environment;
  request.mark = spec.mark;
  request.memory_limit = spec.memory_limit;
  id_ = link_.add(*this, request, fds);
  if (spec.channel) channel_watch_ = loop_.add(channel_.fd(), EPOLLIN, [this](std::uint32_t events) { on_channel(events); });
  out_watch_ = loop_.add(out_.get(), EPOLLIN, [this](std::uint32_t) { on_stream(out_, out_watch_, out_tail_); });
  err_watch_ = loop_.add(err_.get(), EPOLLIN, [this](std::uint32_t) { on_stream(err_, err_watch_, err_tail_); });
}

Child::~Child() {
  link_.forget(id_);
  for (const Loop::Watch watch : {channel_watch_, out_watch_, err_watch_})
    if (watch != 0) loop_.remove(watch);
}

void Child::request(json body, std::span<const int> fds) {
  body["seq"] = ++sent_;
  if (fault_ || !channel_.open()) return;
  try {
    channel_.queue(body, fds);
    const bool all = channel_.flush();
    if (all == watching_output_) {
      watching_output_ = !all;
      loop_.modify(channel_watch_, all ? EPOLLIN : EPOLLIN | EPOLLOUT);
    }
  } catch (const FrameError& error) {
    // The peer's last output must still be read: only our own failure closes the channel here.
    if (error.fault != FrameFault::eof) broken(error);
  }
}

std::optional<process::Message> Child::take() {
  if (inbox_.empty()) return std::nullopt;
  process::Message message = std::move(inbox_.front());
  inbox_.pop_front();
  return message;
}

void Child::broken(const FrameError& error) {
  fault_ = error;
  if (channel_watch_ != 0) loop_.remove(channel_watch_);
  channel_watch_ = 0;
  wake_.notify();
}

void Child::on_channel(std::uint32_t events) {
  try {
    if ((events & EPOLLOUT) != 0 && channel_.flush() && watching_output_) {
      watching_output_ = false;
      loop_.modify(channel_watch_, EPOLLIN);
    }
  } catch (const FrameError& error) {
    if (error.fault != FrameFault::eof) return broken(error);
  }
  try {
    // A few at a time: a peer that floods its channel must not starve the others.
    for (int i = 0; i < 16; ++i) {
      auto message = channel_.pump();
      if (!message) break;
      const auto sequence = message->body.find("seq");
      if (sequence == message->body.end() || !sequence->is_number_unsigned() ||
          sequence->get<std::uint64_t>() != answered_ + 1 || answered_ == sent_)
        throw FrameError(FrameFault::malformed, "an unsolicited reply: " + process::dump(message->body).substr(0, 200));
      ++answered_;
      inbox_.push_back(std::move(*message));
      wake_.notify();
    }
  } catch (const FrameError& error) {
    broken(error);
  }
}

bool Child::on_stream(UniqueFd& fd, Loop::Watch& watch, OutputTail& tail) {
  char buffer[64 * 1024];
  const ssize_t got = ::read(fd.get(), buffer, sizeof(buffer));
  if (got > 0) {
    tail.append(buffer, static_cast<std::size_t>(got));
    return true;
  }
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  loop_.remove(watch);
  watch = 0;
  fd.reset();
  wake_.notify();
  return false;
}

void Child::drain() {
  // Bounded: an orphan may still be writing.
  for (int i = 0; i < 64 && out_ && on_stream(out_, out_watch_, out_tail_); ++i) {
  }
  for (int i = 0; i < 64 && err_ && on_stream(err_, err_watch_, err_tail_); ++i) {
  }
}

void Child::kill() { link_.send({{"op", LauncherRequest::kill}, {"id", id_}}); }

void Child::stop() {
  left_moving_.reset();
  link_.send({{"op", LauncherRequest::stop}, {"id", id_}});
}

void Child::resume(const std::vector<std::uint64_t>& also) {
  link_.send({{"op", LauncherRequest::resume}, {"id", id_}, {"also", also}});
}

void Child::await_announcement() {
  counted_ = page()->completions.load(std::memory_order_acquire);
  stopped_ = taken_ = false;
}

bool Child::has_counted() const { return page_.map && page()->completions.load(std::memory_order_acquire) != counted_; }

bool Child::take_announcement() {
  taken_ = std::exchange(stopped_, false);
  return taken_;
}

void Child::announcement_is_over() {
  if (taken_) await_announcement();
}

std::string Child::freed() const {
  const auto& text = page()->freed;
  return std::string(text, ::strnlen(text, sizeof text));
}

void Child::on_event(const json& event) {
  const std::string kind = event.value("event", "");
  if (kind == "spawned") {
    pid_ = event.at("pid").get<pid_t>();
    far_pid_ = event.value("far_pid", 0);
    if (pid_ <= 0) return wake_.notify();
    // If memory runs out the kernel should kill code under test, not its supervisors.
    const process::UniqueFd score(
        ::open(("/proc/" + std::to_string(pid_) + "/oom_score_adj").c_str(), O_WRONLY | O_CLOEXEC));
    if (score) [[maybe_unused]]
      const auto written = ::write(score.get(), "500", 3);
  } else if (kind == "spawn-failed") {
    failed_ = event.value("text", "");
  } else if (kind == "exit") {
    ending_ = ProcessEnding{event.at("status").get<int>(), event.value("max_rss", std::int64_t{0}),
                            event.value("cpu_us", std::int64_t{0})};
    // The socket may still hold a reply: read it before handling the end.
    if (channel_watch_ != 0) on_channel(EPOLLIN);
  } else if (kind == "stopped") {
    stopped_ = has_counted();
    if (!stopped_) resume();
  } else if (kind == "still") {
    stopped_ = false;
    left_moving_ = event.value("left", json::array());
    orphans_ = event.value("orphans", std::vector<std::string>{});
  } else if (kind == "killed") {
    killed_ = Killed{event.value("pids", std::vector<pid_t>{}), event.value("left", json::array()),
                     event.value("ms", std::int64_t{0})};
  }
  wake_.notify();
}

Link::Link(Loop& loop, std::string program, std::string run, std::optional<process::Sandbox> sandbox)
    : loop_(loop), program_(std::move(program)), run_(std::move(run)), sandbox_(std::move(sandbox)) {
  if (!sandbox_) ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // if the launcher dies, we inherit its orphans
  start();
}

Link::Link(Loop& loop, std::string program, std::string run, const Host& host)
    : loop_(loop),
      program_(std::move(program)),
      run_(std::move(run)),
      far_{{"name", host.name}, {"start", host.start}, {"address", host.address}} {
  start();
}

Link::Link(Loop& loop, Link& host, std::optional<process::Sandbox> sandbox)
    : loop_(loop), run_(host.run_), sandbox_(std::move(sandbox)), host_(&host) {
  start();
}

Link::~Link() {
  if (host_ != nullptr) {  // its socket closes: kvcts-host ends the rest
    if (watch_ != 0) loop_.remove(watch_);
  } else if (sandbox_) {
    end_sandbox();
  } else {
    shut_down();
    if (far_.is_null()) ::prctl(PR_SET_CHILD_SUBREAPER, 0);
  }
}

/// The kernel ends all processes of the sandbox when its first one ends, and that one ends with bubblewrap.
void Link::end_sandbox() {
  if (watch_ != 0) loop_.remove(watch_);
  watch_ = 0;
  const process::UniqueFd first(first_ != 0 ? static_cast<int>(::syscall(SYS_pidfd_open, first_, 0)) : -1);
  ::kill(launcher_.pid, SIGKILL);
  while (::waitpid(launcher_.pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  pollfd gone{first.get(), POLLIN, 0};
  constexpr int patience_ms = 10'000;
  if (first) ::poll(&gone, 1, patience_ms);
  if (first_ != 0) ::waitpid(first_, nullptr, WNOHANG);  // if we are its subreaper, we inherit an orphan of bubblewrap
}

void Link::start() {
  facts_ = nullptr;
  ++starts_;
  if (host_ != nullptr) {
    auto [own, theirs] = process::socket_pair();
    launcher_.socket = std::move(own);
    json sandbox;
    if (sandbox_) sandbox = {{"granted", sandbox_->granted}, {"named", sandbox_->named}, {"hidden", sandbox_->hidden}};
    const int fds[] = {theirs.get()};
    host_->send({{"op", "line"}, {"sandbox", std::move(sandbox)}}, fds);
  } else if (!far_.is_null()) {
    errors_ = process::UniqueFd(::memfd_create("kvcts-host-errors", MFD_CLOEXEC));
    launcher_ = process::start_launcher({program_, "near", far_.dump()}, {}, errors_.get());
  } else if (sandbox_) {
    errors_ = process::UniqueFd(::memfd_create("kvcts-sandbox-errors", MFD_CLOEXEC));
    launcher_ = process::start_launcher_in(*sandbox_, {program_, run_}, errors_.get());
  } else {
    launcher_ = process::start_launcher({program_, run_});
  }
  channel_ = Channel(std::move(launcher_.socket));
  watch_ = loop_.add(channel_.fd(), EPOLLIN, [this](std::uint32_t) { on_socket(); });
  lost_ = false;
}

std::uint64_t Link::add(Child& child, const process::SpawnRequest& request, std::span<const int> fds) {
  const std::uint64_t id = next_++;
  process::SpawnRequest numbered = request;
  numbered.id = id;
  children_[id] = &child;
  send(process::to_json(numbered), fds);
  return id;
}

void Link::forget(std::uint64_t id) {
  children_.erase(id);
  std::erase_if(pids_, [&](const auto& entry) { return entry.second == id; });
}

void Link::send(const json& body, std::span<const int> fds) {
  if (lost_) return;
  try {
    channel_.send(body, fds, 10'000);  // the launcher is ours and always reads
  } catch (const FrameError&) {
    lose();
  }
}

void Link::on_socket() {
  try {
    while (auto message = channel_.pump()) take(std::move(message->body));
  } catch (const FrameError&) {
    lose();
  }
}

void Link::take(json event) {
  const std::string kind = event.value("event", "");
  if (kind == "host") facts_ = event;
  if (kind == "launcher-ended") failed_ = event.value("text", "");
  if (sandbox_ && host_ == nullptr && kind == "spawned") {
    if (first_ == 0) first_ = process::child_in_namespace(launcher_.pid, 1);
    // Bubblewrap was killed before it tied its child to its own life: a process without a pid cannot be watched
    // or ended.
    if (first_ == 0) return lose();
    event["pid"] = process::child_in_namespace(first_, event.at("pid").get<pid_t>());  // 0: it has already ended
  }
  if (sandbox_ && kind == "still") {  // all of it
    for (const auto& [id, child] : children_) child->on_event(event);
    return;
  }
  if (kind == "too-many") too_many_ = event.value("processes", std::size_t{0});
  const auto child = children_.find(event.value("id", std::uint64_t{0}));
  if (kind == "spawned") pids_[event.at("pid").get<pid_t>()] = event.at("id").get<std::uint64_t>();
  if (child != children_.end()) child->second->on_event(event);
}

/// bubblewrap's or kvcts-host's own line, which it has said by the time that its socket closes; "" if something killed it.
std::string Link::why_no_start() const { return process::first_line_of(errors_.get()); }

/// Of a host, or of a launcher there: why it is gone, in words.
std::string Link::why_lost() const {
  if (host_ != nullptr && !failed_.empty()) return failed_;
  const std::string why = host_ != nullptr ? host_->why_no_start() : why_no_start();
  const json& host = host_ != nullptr ? host_->far_ : far_;
  return why.empty() ? "host " + host.value("name", "") + ": kvcts-host ended without a word" : why;
}

void Link::lose() {
  if (lost_) return;
  lost_ = true;
  if (watch_ != 0) loop_.remove(watch_);
  watch_ = 0;
  const std::string why = far() ? why_lost() : sandbox_ && first_ == 0 ? why_no_start() : "";
  for (const auto& [id, child] : children_) {
    if (far()) child->host_lost_ = why;
    if (far() || why.empty()) {
      child->lost_ = true;
      child->fault_ = FrameError(FrameFault::eof, far() ? why : "the launcher is gone");
    } else {
      child->failed_ = "the sandbox did not start: " + why;
    }
    child->wake_.notify();
  }
}

/// After the launcher's death: its children died with it (PR_SET_PDEATHSIG); end what they started, and orphans, here.
void Link::end_marked() {
  for (int round = 0; round < 500; ++round) {
    bool any = false;
    for (const process::ProcessStat& stat : process::all_processes()) {
      if (stat.dead() || stat.pid == ::getpid()) continue;
      if (!process::mark_matches(process::environment_of(stat.pid, process::mark_variable), run_ + "/")) continue;
      ::kill(stat.pid, SIGKILL);
      any = true;
    }
    while (::waitpid(launcher_.pid, nullptr, WNOHANG) > 0) {
    }
    if (!any) break;
    ::usleep(4000);
  }
}

void Link::watch() {
  constexpr int most = 40;
  const auto stat = lost_ ? std::nullopt : process::read_stat(launcher_pid());
  stopped_ = stat && stat->state == 'T' ? stopped_ + 1 : 0;
  if (stopped_ == most) ::kill(launcher_pid(), SIGKILL);
}

void Link::restart() {
  if (far()) {
    shut_down();
  } else {
    channel_.close();
    end_marked();
  }
  pids_.clear();
  start();
}

void Link::shut_down(int patience_ms) {
  if (watch_ != 0) loop_.remove(watch_);
  watch_ = 0;
  channel_.close();
  if (launcher_.pid <= 0) return;
  bool ended = false;
  for (int waited = 0; waited < patience_ms && !ended; waited += 2) {
    ended = ::waitpid(launcher_.pid, nullptr, WNOHANG) != 0;
    if (!ended) ::usleep(2000);
  }
  if (!ended) {  // it is stopped: end it with everything it started
    ::kill(launcher_.pid, SIGKILL);
    if (far())
      ::waitpid(launcher_.pid, nullptr, 0);
    else
      end_marked();
  }
  launcher_.pid = 0;
}

}  // namespace kvcts::supervisor
