// What the second party writes before a run: a secret that determines the run's seed and its blind negatives.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "certificate/merkle.hpp"

namespace kvcts::cli {

struct Challenge {
  std::string secret;         ///< 64 hexadecimal digits
  std::int64_t negatives{0};  ///< 1 to 1000
  bool operator==(const Challenge&) const = default;
};

/// Random hexadecimal digits, from the system; at most 64.
std::string random_digits(std::size_t count);
Challenge new_challenge(std::int64_t negatives);
/// JSON: {"challenge": 1, "negatives": 24, "secret": "..."} and nothing else, so that there is one text of a challenge.
std::string to_text(const Challenge& challenge);
/// Throws UsageError: what was expected, what was found.
Challenge read_challenge(const std::filesystem::path& file);
Challenge challenge_from_text(const std::string& text, const std::string& shown);

/// SHA-256 of the secret and a purpose: what is drawn for one says nothing of another.
certificate::Digest drawn(const Challenge& challenge, const std::string& purpose);
/// One of the four numbers in a digest, most significant byte first.
std::uint64_t word_of(const certificate::Digest& digest, std::size_t which);
/// Of the run: never 0.
std::uint64_t seed_of(const Challenge& challenge);

/// A whole file, at most 1 GiB. Throws UsageError.
std::string bytes_of_file(const std::filesystem::path& file);

}  // namespace kvcts::cli
