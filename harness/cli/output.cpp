#include "cli/output.hpp"

#include <poll.h>
#include <unistd.h>
#include <ext/stdio_sync_filebuf.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iostream>
#include <regex>
#include <system_error>

#include "cli/report/text.hpp"

namespace kvcts::cli {
namespace {

bool plain(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c >= 0x20 && c < 0x7f) || c == '\n' || c == '\t'; });
}

/// Bytes at the end that begin a character of UTF-8 whose rest comes with the next write.
std::size_t unfinished(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0U) == 0x80U) continue;
    const std::size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return length > back ? back : 0;
  }
  return 0;
}

}  // namespace

/// A FILE on a descriptor. The first error is kept; what comes after it is dropped, so that a working verb continues to its
/// end.
struct Output::Stream {
  Stream(int descriptor, bool filters) : fd(descriptor), safe(filters) {
    cookie_io_functions_t functions{};
    functions.write = [](void* self, const char* data, std::size_t size) {
      static_cast<Stream*>(self)->take({data, size});
      return static_cast<ssize_t>(size);
    };
    file = ::fopencookie(this, "w", functions);
    if (file == nullptr) throw std::system_error(errno, std::generic_category(), "standard output");
    std::setvbuf(file, nullptr, fd == STDERR_FILENO ? _IONBF : ::isatty(fd) == 1 ? _IOLBF : _IOFBF, BUFSIZ);
  }
  ~Stream() {
    std::fclose(file);
    if (!tail.empty()) put(report::visible(tail, true));
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void take(std::string_view text) {
    if (!safe || (tail.empty() && plain(text))) return put(text);
    tail += text;
    const std::size_t whole = tail.size() - unfinished(tail);
    put(report::visible(std::string_view(tail).substr(0, whole), true));
    tail.erase(0, whole);
  }
  void put(std::string_view text) {
    while (!text.empty() && error == 0) {
      const ssize_t n = ::write(fd, text.data(), text.size());
      if (n >= 0) {
        text.remove_prefix(static_cast<std::size_t>(n));
      } else if (errno == EAGAIN) {  // another process made the open file non-blocking
        pollfd ready{fd, POLLOUT, 0};
        ::poll(&ready, 1, -1);
      } else if (errno != EINTR) {
        error = errno;
      }
    }
  }

  int fd;
  bool safe;
  std::FILE* file{nullptr};
  std::string tail;
  int error{0};
};

Output::Output()
    : safe_out_(std::make_unique<Stream>(STDOUT_FILENO, true)),
      safe_err_(std::make_unique<Stream>(STDERR_FILENO, true)),
      plain_out_(std::make_unique<Stream>(STDOUT_FILENO, false)),
      plain_buffer_(std::make_unique<__gnu_cxx::stdio_sync_filebuf<char>>(plain_out_->file)),
      old_out_(stdout),
      old_err_(stderr) {
  std::fflush(stdout);
  stdout = safe_out_->file;
  stderr = safe_err_->file;
  old_buffer_ = std::cout.rdbuf(plain_buffer_.get());
}

Output::~Output() {
  std::cout.rdbuf(old_buffer_);
  stdout = old_out_;
  stderr = old_err_;
}

std::string Output::finish() {
  std::fflush(plain_out_->file);
  std::fflush(safe_out_->file);
  for (const auto* stream : {plain_out_.get(), safe_out_.get()})
    if (stream->error != 0 && stream->error != EPIPE) return std::strerror(stream->error);
  return "";
}

std::string one_line(std::string_view text) {
  static const std::regex numbering(R"(\[json\.exception\.[a-z_]+\.[0-9]+\] )");
  std::string line = std::regex_replace(std::string(text), numbering, "");
  while (!line.empty() && (line.back() == '\n' || line.back() == ' ')) line.pop_back();
  std::replace_if(line.begin(), line.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
  return report::cut(report::visible(line), 2000);
}

}  // namespace kvcts::cli
