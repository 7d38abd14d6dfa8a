#include "layout/scanner.hpp"

namespace kvcts::layout {
namespace {
bool bare(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || std::string_view("_.-/()*%").find(c) != std::string_view::npos;
}
}  // namespace

std::string Scanner::name(const std::string& what) {
  std::string out;
  if (accept('"')) {
    while (!accept('"')) {
      if (at_ >= text_.size()) fail("a closing quote");
      char c = text_[at_++];
      if (c == '\\') {
        if (at_ >= text_.size()) fail("an escaped character");
        c = text_[at_++];
        if (c == 'n')
          c = '\n';
        else if (c != '"' && c != '\\')
          fail("\\\", \\\\ or \\n");
      }
      out += c;
    }
    return out;
  }
  while (at_ < text_.size() && bare(text_[at_])) out += text_[at_++];
  if (out.empty()) fail(what);
  return out;
}

std::string print_name(std::string_view name) {
  bool plain = !name.empty();
  for (char c : name) plain = plain && bare(c);
  if (plain) return std::string(name);
  std::string out = "\"";
  for (char c : name) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return out + '"';
}

}  // namespace kvcts::layout
