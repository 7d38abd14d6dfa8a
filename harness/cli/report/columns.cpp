#include "cli/report/columns.hpp"

#include <algorithm>

namespace kvcts::report {

void WordColumn::add(const std::string& word) {
  const auto [at, is_new] = numbers_.emplace(word, words_.size());
  if (is_new) words_.push_back(word);
  rows_.push_back(static_cast<std::uint32_t>(at->second));
}

nlohmann::json WordColumn::json() const {
  static constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  int width = words_.size() > 1 ? 1 : 0;
  for (std::size_t most = digits.size(); words_.size() > most; most *= digits.size()) ++width;
  std::string text;
  text.reserve(rows_.size() * static_cast<std::size_t>(width));
  for (const auto row : rows_) {
    for (int digit = width - 1; digit >= 0; --digit) text += digits[row >> (6 * digit) & 63U];
  }
  return {{"d", words_}, {"w", width}, {"v", std::move(text)}};
}

void IdColumn::add(const std::string& id) {
  auto kept = static_cast<std::size_t>(
      std::mismatch(id.begin(), id.begin() + static_cast<std::ptrdiff_t>(std::min(id.size(), last_.size())), last_.begin())
          .first -
      id.begin());
  // Never inside a character.
  while (kept > 0 && kept < id.size() && (static_cast<unsigned char>(id[kept]) & 0xC0U) == 0x80U) --kept;
  // The page counts UTF-16 units: only ASCII is kept.
  if (std::any_of(id.begin(), id.begin() + static_cast<std::ptrdiff_t>(kept),
                  [](char c) { return static_cast<unsigned char>(c) >= 0x80; }))
    kept = 0;
  if (kept < 4)
    rows_.push_back(id);
  else
    rows_.push_back({kept, id.substr(kept)});
  last_ = id;
}

}  // namespace kvcts::report
