#include "case/catalogue/yaml.hpp"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <sstream>
#include <unordered_map>

namespace kvcts::catalogue {

namespace {

// Shortens quoted text for a message and makes it printable.
std::string shown(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 60)) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
  while (!out.empty() && (static_cast<unsigned char>(out.back()) & 0xC0) == 0x80 && text.size() > 60) out.pop_back();
  return text.size() > 60 ? out + "..." : out;
}

// Offset of the first byte that cannot be in a text file (invalid UTF-8, a control character), or npos.
std::size_t first_bad_byte(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c < 0x80) {
      if ((c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7f) return i;
      ++i;
      continue;
    }
    const int more = c >= 0xC2 && c <= 0xDF ? 1 : c >= 0xE0 && c <= 0xEF ? 2 : c >= 0xF0 && c <= 0xF4 ? 3 : 0;
    if (more == 0 || i + static_cast<std::size_t>(more) >= text.size() + (more ? 0 : 1)) return i;
    for (int k = 1; k <= more; ++k) {
      if ((static_cast<unsigned char>(text[i + static_cast<std::size_t>(k)]) & 0xC0) != 0x80) return i;
    }
    i += static_cast<std::size_t>(more) + 1;
  }
  return std::string_view::npos;
}

class Builder final : public YAML::EventHandler {
 public:
  explicit Builder(std::shared_ptr<const std::string> file) : file_(std::move(file)) {}

  std::vector<Node> documents;

  void OnDocumentStart(const YAML::Mark&) override { stack_.clear(), anchors_.clear(), root_ = Node{}, root_.file = file_; }
  void OnDocumentEnd() override { documents.push_back(std::move(root_)); }
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { add(make(Node::Kind::null, mark), anchor); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto it = anchors_.find(anchor);
    if (it == anchors_.end()) fail(mark, "expected an alias to a finished value, found one to itself; write the value out");
    count(mark, it->second.second);
    add(Node(it->second.first), 0);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& value) override {
    Node node = make(Node::Kind::scalar, mark);
    if (tag != "?" && tag != "!" && !tag.empty()) refuse_tag(mark, tag);
    node.quoted = tag == "!";
    node.text = value;
    add(std::move(node), anchor);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(Node::Kind::list, mark, tag, anchor);
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(Node::Kind::mapping, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    Node node;
    YAML::anchor_t anchor{0};
    std::size_t first_count{0};
    bool has_key{false};
    std::string key;
    int key_line{0};
  };

  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& text) const {
    throw Error(*file_ + ":" + std::to_string(mark.line + 1) + ": " + text);
  }
  [[noreturn]] void refuse_tag(const YAML::Mark& mark, const std::string& tag) const {
    fail(mark, "expected a plain value, found the tag '" + shown(tag) + "'; remove it");
  }
  Node make(Node::Kind kind, const YAML::Mark& mark) const {
    Node node;
    node.kind = kind;
    node.line = mark.line + 1;
    node.file = file_;
    return node;
  }
  void count(const YAML::Mark& mark, std::size_t n) {
    nodes_ += n;
    if (nodes_ > max_nodes) {
      fail(mark, "expected at most " + std::to_string(max_nodes) + " values, found more (aliases expanded); split the file");
    }
  }
  void open(Node::Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (tag != "?" && tag != "!" && !tag.empty()) refuse_tag(mark, tag);
    if (stack_.size() >= max_depth) {
      fail(mark, "expected at most " + std::to_string(max_depth) + " levels, found a deeper one; flatten the document");
    }
    expect_value(mark, kind);
    count(mark, 1);
    stack_.push_back({make(kind, mark), anchor, nodes_ - 1, false, "", 0});
  }
  void close() {
    Open top = std::move(stack_.back());
    stack_.pop_back();
    attach(std::move(top.node), top.anchor, nodes_ - top.first_count);
  }
  void add(Node node, YAML::anchor_t anchor) {
    const YAML::Mark mark = [&] {
      YAML::Mark m;
      m.line = node.line - 1;
      return m;
    }();
    if (!stack_.empty() && stack_.back().node.kind == Node::Kind::mapping && !stack_.back().has_key)
      return key(std::move(node), mark);
    count(mark, 1);
    attach(std::move(node), anchor, 1);
  }
  void expect_value(const YAML::Mark& mark, Node::Kind kind) const {
    if (!stack_.empty() && stack_.back().node.kind == Node::Kind::mapping && !stack_.back().has_key) {
      fail(mark, std::string("expected a key, found a ") + (kind == Node::Kind::list ? "list" : "mapping") +
                     "; keys are plain text (a value that starts with '{' or '[' may need quotes)");
    }
  }
  void key(Node node, const YAML::Mark& mark) {
    Open& top = stack_.back();
    if (node.kind != Node::Kind::scalar) fail(mark, "expected a key, found nothing before ':'; name the key");
    for (std::size_t i = 0; i < top.node.keys.size(); ++i) {
      if (top.node.keys[i] == node.text) {
        fail(mark, "expected key '" + shown(node.text) + "' once, found it again (first at line " +
                       std::to_string(top.node.key_lines[i]) + "); remove one");
      }
    }
    if (top.node.keys.size() >= 4096) fail(mark, "expected at most 4096 keys in a mapping, found more; split it");
    top.has_key = true;
    top.key = std::move(node.text);
    top.key_line = node.line;
  }
  void attach(Node node, YAML::anchor_t anchor, std::size_t size) {
    if (anchor) anchors_[anchor] = {node, size};
    if (stack_.empty()) {
      root_ = std::move(node);
      return;
    }
    Open& top = stack_.back();
    if (top.node.kind == Node::Kind::mapping) {
      top.node.keys.push_back(std::move(top.key));
      if (node.kind == Node::Kind::null) node.line = top.key_line;  // yaml-cpp marks what comes after it
      top.node.key_lines.push_back(top.key_line);
      top.has_key = false;
    }
    top.node.items.push_back(std::move(node));
  }

  std::shared_ptr<const std::string> file_;
  Node root_;
  std::vector<Open> stack_;
  std::unordered_map<YAML::anchor_t, std::pair<Node, std::size_t>> anchors_;
  std::size_t nodes_{0};
};

// from_chars over the whole text. `base` only for integers.
template <class Number, class... Base>
bool whole(std::string_view text, Number& value, Base... base) {
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value, base...);
  return result.ec == std::errc{} && result.ptr == end;
}

}  // namespace

const Node* Node::find(std::string_view key) const {
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (keys[i] == key) return &items[i];
  }
  return nullptr;
}

std::string Node::describe() const {
  switch (kind) {
    case Kind::null:
      return "nothing";
    case Kind::scalar:
      return "'" + shown(text) + "'";
    case Kind::list:
      return "a list of " + std::to_string(items.size());
    case Kind::mapping:
      return "a mapping with " + std::to_string(items.size()) + (items.size() == 1 ? " key" : " keys");
  }
  return "?";
}

std::vector<Node> parse_yaml(std::string_view text, const std::string& name) {
  const auto file = std::make_shared<const std::string>(name);
  if (text.size() > max_file_bytes) {
    throw Error(name + ":1: expected at most " + std::to_string(max_file_bytes) + " bytes, found " +
                std::to_string(text.size()) + "; split the file");
  }
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  if (const std::size_t bad = first_bad_byte(text); bad != std::string_view::npos) {
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(bad), '\n');
    throw Error(name + ":" + std::to_string(line) + ": expected UTF-8 text, found byte " +
                std::to_string(static_cast<unsigned char>(text[bad])) + " at offset " + std::to_string(bad) +
                "; save the file as UTF-8");
  }
  Builder builder(file);
  std::istringstream stream{std::string(text)};
  try {
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    throw Error(name + ":" + std::to_string(error.mark.line + 1) + ": expected YAML, found a syntax error (" + error.msg +
                "); see the lines before it, too");
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {  // yaml-cpp passes std exceptions of its conversions through on some damaged input
    throw Error(name + ":1: expected YAML, found text that cannot be read (" + error.what() + "); check the syntax");
  }
  return std::move(builder.documents);
}

std::string read_text_file(const std::filesystem::path& path, const std::string& shown_name, std::size_t limit) {
  std::error_code ignored;
  const auto refuse = [&](const std::string& found) {
    return Error(shown_name + ":1: expected a readable file of at most " + std::to_string(limit) + " bytes, found " + found +
                 "; check the path");
  };
  if (std::filesystem::is_directory(path, ignored)) throw refuse("a directory");
  std::ifstream in(path, std::ios::binary);
  if (!in) throw refuse(std::filesystem::exists(path, ignored) ? "one that cannot be opened" : "none");
  std::string text;
  std::array<char, 1 << 14> buffer{};
  while (in.read(buffer.data(), buffer.size()) || in.gcount() > 0) {
    text.append(buffer.data(), static_cast<std::size_t>(in.gcount()));
    if (text.size() > limit) throw refuse("a larger one");
  }
  if (in.bad()) throw refuse("one that cannot be read");
  return text;
}

std::vector<Node> parse_yaml_file(const std::filesystem::path& path, const std::string& shown_name) {
  const std::string name = shown_name.empty() ? path.string() : shown_name;
  return parse_yaml(read_text_file(path, name), name);
}

nlohmann::json to_json(const Node& node) {
  switch (node.kind) {
    case Node::Kind::null:
      return nullptr;
    case Node::Kind::list: {
      nlohmann::json out = nlohmann::json::array();
      for (const auto& item : node.items) out.push_back(to_json(item));
      return out;
    }
    case Node::Kind::mapping: {
      nlohmann::json out = nlohmann::json::object();
      for (std::size_t i = 0; i < node.keys.size(); ++i) out[node.keys[i]] = to_json(node.items[i]);
      return out;
    }
    case Node::Kind::scalar:
      break;
  }
  if (node.quoted) return node.text;
  if (node.text == "true") return true;
  if (node.text == "false") return false;
  if (node.text == "~" || node.text == "null") return nullptr;
  std::int64_t integer = 0;
  std::uint64_t natural = 0;
  double real = 0;
  if (whole(node.text, integer)) return integer;
  if (whole(node.text, natural)) return natural;
  if (node.text.starts_with("0x") && whole(std::string_view(node.text).substr(2), natural, 16)) return natural;
  if (!node.text.empty() && node.text.find_first_of("0123456789") != std::string::npos && whole(node.text, real))
    return real;
  return node.text;
}

Node merge_patch(Node target, const Node& patch) {
  if (patch.kind != Node::Kind::mapping) return patch;
  if (target.kind != Node::Kind::mapping) {
    target = Node{};
    target.kind = Node::Kind::mapping;
    target.file = patch.file;
    target.line = patch.line;
  }
  for (std::size_t i = 0; i < patch.keys.size(); ++i) {
    std::size_t at = 0;
    while (at < target.keys.size() && target.keys[at] != patch.keys[i]) ++at;
    const Node& value = patch.items[i];
    const bool removes = value.kind == Node::Kind::null ||
                         (value.kind == Node::Kind::scalar && !value.quoted && (value.text == "~" || value.text == "null"));
    if (removes) {
      if (at == target.keys.size()) continue;
      const auto offset = static_cast<std::ptrdiff_t>(at);
      target.keys.erase(target.keys.begin() + offset);
      target.key_lines.erase(target.key_lines.begin() + offset);
      target.items.erase(target.items.begin() + offset);
    } else if (at == target.keys.size()) {
      target.keys.push_back(patch.keys[i]);
      target.key_lines.push_back(patch.key_lines[i]);
      target.items.push_back(merge_patch(Node{}, value));
    } else {
      target.items[at] = merge_patch(std::move(target.items[at]), value);
    }
  }
  return target;
}

}  // namespace kvcts::catalogue
