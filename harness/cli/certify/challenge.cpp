#include "cli/certify/challenge.hpp"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "cli/exit.hpp"

namespace kvcts::cli {

namespace {

constexpr std::int64_t most_negatives = 1000;

bool is_secret(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

}  // namespace

std::string random_digits(std::size_t count) {
  certificate::Digest bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw std::system_error(errno, std::generic_category(), "getrandom");
  return certificate::hex(bytes).substr(0, count);
}

Challenge new_challenge(std::int64_t negatives) { return {random_digits(64), negatives}; }

std::string to_text(const Challenge& challenge) {
  return nlohmann::json{{"challenge", 1}, {"negatives", challenge.negatives}, {"secret", challenge.secret}}.dump() + "\n";
}

Challenge challenge_from_text(const std::string& text, const std::string& shown) {
  const nlohmann::json in = nlohmann::json::parse(text, nullptr, false);
  const auto refuse = [&](const std::string& what) {
    throw UsageError(shown + ": expected a challenge as `kvcts challenge` writes it, found " + what);
  };
  if (!in.is_object()) refuse("no JSON object");
  if (in.value("challenge", nlohmann::json()) != 1)
    refuse("challenge " + in.value("challenge", nlohmann::json()).dump().substr(0, 60) + ", this program knows 1");
  Challenge out;
  if (const auto at = in.find("secret"); at != in.end() && at->is_string()) out.secret = *at;
  if (!is_secret(out.secret)) refuse("a secret that is not 64 hexadecimal digits");
  if (const auto at = in.find("negatives"); at != in.end() && at->is_number_integer()) out.negatives = *at;
  if (out.negatives < 1 || out.negatives > most_negatives) refuse("negatives that are not a number from 1 to 1000");
  if (to_text(out) != text) refuse("other keys or other spaces");
  return out;
}

Challenge read_challenge(const std::filesystem::path& file) {
  return challenge_from_text(bytes_of_file(file), file.string());
}

certificate::Digest drawn(const Challenge& challenge, const std::string& purpose) {
  return certificate::sha256(challenge.secret + " " + purpose);
}

std::uint64_t word_of(const certificate::Digest& digest, std::size_t which) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < 8; ++i) value = value << 8 | digest[8 * which + i];
  return value;
}

std::uint64_t seed_of(const Challenge& challenge) {
  return std::max<std::uint64_t>(1, word_of(drawn(challenge, "seed"), 0));
}

std::string bytes_of_file(const std::filesystem::path& file) {
  constexpr std::size_t most = std::size_t{1} << 30;
  std::error_code ec;
  if (!std::filesystem::is_regular_file(file, ec))
    throw UsageError(fmt::format("{}: {}", file.string(), ec ? ec.message() : "expected a file"));
  if (std::filesystem::file_size(file, ec) > most) throw UsageError(file.string() + ": expected at most 1 GiB");
  std::ifstream in(file, std::ios::binary);
  std::string out{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (!in.is_open() || in.bad()) throw UsageError(file.string() + ": cannot be read");
  return out;
}

}  // namespace kvcts::cli
