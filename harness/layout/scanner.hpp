// A cursor over one line of text; every error names the column, what was expected and what was found. Internal.
#pragma once

#include <cctype>
#include <cstdint>
#include <string>
#include <string_view>

#include "layout/checked.hpp"

namespace kvcts::layout {

class Scanner {
 public:
  explicit Scanner(std::string_view text, std::string where = "") : text_(text), where_(std::move(where)) {}

  [[noreturn]] void fail(const std::string& expected) const {
    std::string found = "end of text";
    if (at_ < text_.size()) {
      std::string rest;
      for (char c : text_.substr(at_, 12)) rest += std::isprint(static_cast<unsigned char>(c)) != 0 ? c : '?';
      found = '\'' + rest + '\'';
    }
    throw Error(where_ + "column " + std::to_string(at_ + 1) + ": expected " + expected + ", found " + found);
  }

  void spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r'))
      ++at_;
  }
  bool done() {
    spaces();
    return at_ == text_.size();
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  char peek(std::size_t ahead) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  std::size_t column() const { return at_; }
  void rewind(std::size_t column) { at_ = column; }
  void skip() { ++at_; }
  bool accept(char c) {
    if (peek() != c || at_ >= text_.size()) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(std::string("'") + c + "'");
  }

  /// Letters, digits and '_': a keyword or a dtype. "" where none starts here.
  std::string_view word() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_')) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  /// A name as print_name writes it: bare, or quoted with \" and \\ and \n escaped.
  std::string name(const std::string& what);

  /// A decimal integer with an optional minus sign. Throws on overflow.
  std::int64_t integer(const std::string& what) {
    const std::size_t begin = at_;
    const bool negative = accept('-');
    if (std::isdigit(static_cast<unsigned char>(peek())) == 0) {
      at_ = begin;
      fail(what);
    }
    std::int64_t value = 0;
    while (std::isdigit(static_cast<unsigned char>(peek())) != 0) {
      const int digit = text_[at_++] - '0';
      value = checked::add(checked::mul(value, 10), negative ? -digit : digit);
    }
    return value;
  }

 private:
  std::string_view text_;
  std::string where_;
  std::size_t at_{0};
};

/// Bare where possible, quoted where necessary.
std::string print_name(std::string_view name);

}  // namespace kvcts::layout
