// The program's standard output and error: printed text cannot steer a terminal, and lost output is noticed.
#pragma once

#include <cstdio>
#include <iosfwd>
#include <memory>
#include <string>

namespace kvcts::cli {

/// While it lives, the variables `stdout` and `stderr` are streams that make control characters visible, so that no verb can
/// forget to: texts of plug-ins, files and arguments come from anywhere. std::cout writes to the same descriptor without
/// that, because the console's colours and progress bar are control characters; whatever prints there passes
/// report::visible() itself. A verb prints with one of the two.
class Output {
 public:
  Output();
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  /// Writes what is left of standard output. "", or why something printed there is lost. A reader that went away (`| head`)
  /// has what it wanted: that is no loss.
  std::string finish();

 private:
  struct Stream;
  std::unique_ptr<Stream> safe_out_, safe_err_, plain_out_;
  std::unique_ptr<std::streambuf> plain_buffer_;
  std::FILE *old_out_, *old_err_;
  std::streambuf* old_buffer_;
};

/// `text` as one line that neither steers a terminal nor shows a library's own numbering ("[json.exception.parse_error.101]
/// ").
std::string one_line(std::string_view text);

}  // namespace kvcts::cli
