// Words, numbers and escapes that all reports share. Text of code under test may contain anything: it passes visible()
// first.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "case/result.hpp"
#include "case/text.hpp"

namespace kvcts::report {

/// Text that neither steers a terminal nor breaks XML: control characters become "\x1b", direction overrides "\u202e", bytes
/// that are no UTF-8 U+FFFD. Line feeds and tabs stay when `lines` is true, else they become "\n" and "\t".
std::string visible(std::string_view text, bool lines = false);

/// For XML and HTML, in text and in quoted attributes. Includes visible().
std::string escaped(std::string_view text, bool lines = false);

/// The first `most` characters (not bytes), with "..." when something was cut.
std::string cut(std::string_view text, std::size_t most);

/// One shell word: 'text', with quotes inside taken care of.
std::string shell_word(std::string_view text);

/// What most of its wrong bytes are a case of, without numbers: "not written by layer"; "" = nothing was found.
std::string kind_of(const CaseResult& result);

using text::thousands;                                          ///< 31,744
std::string duration(std::int64_t ns);                          ///< "0.61 ms", "12.3 s", "3 min 20 s", "1 h 02 min"
std::string bytes(std::int64_t count);                          ///< "512 B", "1.5 MiB"
std::string plural(std::int64_t count, std::string_view noun);  ///< "1 case", "2 cases"

/// "FAIL axis-permuted at compare", "HANG stalled at complete", "CRASH SIGSEGV at transfer".
std::string ending_text(const CaseResult& result, bool with_class = true);
/// The message has the diagnosis already, word for word; a guess is always said as one.
bool is_reported(const CaseResult& result);
/// "failed 3 of 10 tries (11 to 60 % at 95 % confidence)"; of retries "failed, then 1 of 3 retries (6.1 to 79 % ...)". ""
/// for a single try.
std::string tries_text(const Tries& tries);
/// "PASS", "FAIL rank-mismatch at register or REFUSED".
std::string expected_text(const std::vector<Expected>& expected);
/// A case without a GPU architecture that an engine or a connector really moved on this CPU: modelled to the
/// store, executed on this CPU in words.
bool ran_here(const CaseResult& result);
/// "executed", "executed on this CPU", "modelled"; "" for a case that did not run.
std::string_view evidence_name(const CaseResult& result);
/// One sentence on what a kind of evidence means.
std::string_view evidence_text(Evidence evidence);

}  // namespace kvcts::report
