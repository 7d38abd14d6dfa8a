// YAML text -> a plain tree with line numbers. Uses yaml-cpp's events rather than its nodes: that gives a line for every
// value, makes duplicate keys errors, caps depth and alias expansion, and takes a fifth of the time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "case/catalogue/error.hpp"

namespace kvcts::catalogue {

inline constexpr std::size_t max_file_bytes = std::size_t{1} << 20;
inline constexpr int max_depth = 32;
inline constexpr std::size_t max_nodes = 100'000;  ///< of all documents of a text, alias copies counted

/// One value of a document and where it stands.
struct Node {
  enum class Kind : std::uint8_t { null, scalar, list, mapping };
  Kind kind{Kind::null};
  bool quoted{false};  ///< scalar written in quotes (or a block scalar): always text
  int line{0};         ///< 1-based
  std::shared_ptr<const std::string> file;
  std::string text;               ///< scalar
  std::vector<Node> items;        ///< list elements, or mapping values
  std::vector<std::string> keys;  ///< mapping keys, in order; keys.size() == items.size()
  std::vector<int> key_lines;

  const Node* find(std::string_view key) const;
  std::string where() const { return (file ? *file : std::string{"(text)"}) + ":" + std::to_string(line); }
  /// "text 'abc'", "a list of 3", "a mapping with 2 keys", "nothing": for error messages.
  std::string describe() const;
};

/// All documents of a text; errors call it `name`. Throws Error for anything that is not plain YAML: bad syntax, bytes that
/// are not UTF-8, duplicate keys, keys that are not text, tags, undefined aliases, more than the caps above.
std::vector<Node> parse_yaml(std::string_view text, const std::string& name);
/// Reads and parses a file. `shown`: its name in errors (default: the path). Throws Error when unreadable or too large.
std::vector<Node> parse_yaml_file(const std::filesystem::path& path, const std::string& shown = "");
/// The bytes of a file. Throws Error when unreadable or larger than `limit`.
std::string read_text_file(const std::filesystem::path& path, const std::string& shown, std::size_t limit = max_file_bytes);

/// YAML 1.2 core schema: null, true/false, integers, floats; anything else (and anything quoted) is text.
nlohmann::json to_json(const Node& node);
/// JSON merge patch (RFC 7396) on trees: mappings merge key by key, null removes, everything else replaces.
Node merge_patch(Node target, const Node& patch);

}  // namespace kvcts::catalogue
