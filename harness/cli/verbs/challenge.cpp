// kvcts challenge: makes what a second party gives to a vendor before the run.
#include "cli/certify/challenge.hpp"

#include <fmt/format.h>

#include <memory>

#include "cli/verbs/verbs.hpp"

namespace kvcts::cli::challenge_verb {

Action declare(Command& command, const Globals&) {
  constexpr std::int64_t usual = 24;
  auto negatives = std::make_shared<std::int64_t>(usual);
  command.add_option("--negatives", *negatives, "Number of blind negatives")
      .show_default()
      .range(std::int64_t{1}, std::int64_t{1000});
  return [negatives] {
    fmt::print("{}", to_text(new_challenge(*negatives)));
    return exit_as_expected;
  };
}

}  // namespace kvcts::cli::challenge_verb
