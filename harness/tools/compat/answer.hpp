// What will come of a pair, before anything moves: the connector's plan is made and carried out in this process, on a small
// pool of the same layouts, and every byte is looked at. What is answered is what the case of `id` ends as when it is run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "case/case.hpp"
#include "case/catalogue/catalogue.hpp"
#include "tools/compat/side.hpp"

namespace kvcts::compat {

/// In the order of severity: of several answers the last one is the pair's.
enum class Verdict { compatible, conversion, ambiguous, refused, wrong };
std::string_view name(
    Verdict verdict);  ///< "compatible", "compatible with conversion", "ambiguous", "refused", "silently wrong"
/// Exit status of `kvcts check`: 0, 10, 13, 11, 12.
int exit_status(Verdict verdict);

struct Answer {
  std::string arch;
  Verdict verdict{Verdict::compatible};
  std::string by;                  ///< refused: "backend", "layout", "connector"; else ""
  std::string text;                ///< one sentence: which conversion, where it refuses, what breaks, what to declare
  FaultClass fault_class{};        ///< silently wrong
  std::vector<std::string> bytes;  ///< silently wrong: the first wrong bytes, who they should be and who they are
  std::string id;                  ///< the case; "" when no case can be run (an ambiguous description)
  std::string document;            ///< the case as YAML, where it is no point of the matrix
  std::vector<std::string>
      others;  ///< other numbers of the pool that change the answer: "with 2 blocks in the pool: silently wrong, ..."
};

struct Pair {
  Description producer, consumer;
  std::string connector;  ///< catalogue id
  std::string geometry;   ///< catalogue id; "" = a small one that both layouts can have
};

/// The connector of that name: an id, or the one that the producer's system has ("mooncake" -> vllm-mooncake-0.33). Throws
/// Error.
std::string find_connector(const std::string& text, const Description& producer, const catalogue::Catalogue& catalogue);

/// An answer an architecture. Throws Error on what cannot be asked (a connector that is a program: only running tells).
std::vector<Answer> check(const Pair& pair, const std::vector<std::string>& archs, const catalogue::Catalogue& catalogue);

}  // namespace kvcts::compat
