// kvcts verify: checks a package offline, with nothing but the package and the suite.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/verb.hpp"

namespace kvcts::cli {

struct CertificateOptions {
  std::string package;
  std::string key;          ///< public key of the vendor; "" = the one in the package, which the answer says
  std::string challenge;    ///< "" = none
  double replay{0};         ///< per cent of the cases that are run again here
  std::string replay_seed;  ///< chooses them; "" = drawn here and now, so that no vendor can know which
  std::string html;         ///< page for the customer; "" = none
  int jobs{1};
};

enum class ClaimState : std::uint8_t {
  holds,
  wrong,
  told,    ///< by the vendor; nothing here can check it
  open,    ///< not asked for
  undone,  ///< asked for, and could not be done here
};
inline constexpr const char* state_text[] = {"holds", "wrong", "told", "open", "undone"};

/// One thing that was looked at.
struct Line {
  std::string what;
  ClaimState state{ClaimState::holds};
  std::string words;
};

struct Verification {
  std::vector<Line> lines;  ///< behind the first that is wrong there may be none
  std::string product, profile, signer;
  std::int64_t records{0}, negatives{0};
  std::int64_t passed{0}, waived{0};  ///< of the records; the rest is declared unsupported, or was refused as it had to be
  bool challenged{false};             ///< and the challenge was given here
  std::size_t replayed{0}, to_replay{0};
  nlohmann::json claims = nlohmann::json::array();
  nlohmann::json run = nlohmann::json::object();  ///< run.json
  nlohmann::json plan = nlohmann::json::object();
  const Line* first(ClaimState state) const;  ///< null: there is none
  std::string verdict() const;                ///< one sentence
  int status() const;                         ///< an Exit
};

/// Throws UsageError where a file that the reader gave cannot be read.
Verification verify(const CertificateOptions& options, const Globals& globals);

std::string page_of(const Verification& verification);
nlohmann::json to_json(const Verification& verification);

}  // namespace kvcts::cli
