#include "engines/transport/table.hpp"

namespace kvcts::transport {

std::string table_word(const char* text, const char* what, const std::string& origin) {
  constexpr std::size_t longest = 256;
  if (text == nullptr)
    throw TransportError(Code::contract, origin + ": the table's " + what + " is NULL; set it to a short text");
  const std::size_t length = strnlen(text, longest);
  const bool printable = std::all_of(text, text + length, [](unsigned char c) { return c >= 0x20 && c < 0x7f; });
  if (length == 0 || length == longest || !printable) {
    throw TransportError(Code::contract,
                         origin + ": the table's " + what + " is empty, longer than 255 bytes or not printable ASCII");
  }
  return {text, length};
}

std::string given_text(const char* text) {
  constexpr std::size_t longest = 4096;
  return text == nullptr ? "" : std::string(text, strnlen(text, longest));
}

void throw_status(const std::string& plugin, const char* call, std::int32_t status, const LastError& error) {
  const Code code = static_cast<Code>(status);
  throw TransportError(code,
                       plugin + ": " + call + ": " + std::string(name(code)) + (error.text.empty() ? "" : ": ") + error.text,
                       error.native);
}

void throw_unknown_status(const std::string& plugin, const char* call, std::int32_t status) {
  throw TransportError(Code::contract, plugin + ": " + call + ": returned status " + std::to_string(status) +
                                           ", which the ABI does not allow here");
}

void* entry_of(const std::filesystem::path& file, const char* entry, const char* kind) {
  dlerror();
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    throw TransportError(Code::cannot_load, "cannot load " + file.string() + ": " + (why ? why : "no reason given"));
  }
  void* symbol = dlsym(library, entry);
  if (symbol == nullptr)
    throw TransportError(Code::contract, file.string() + ": exports no " + entry + "; it is not a " + kind + " plug-in");
  return symbol;
}

void need_calls(std::initializer_list<std::pair<const char*, bool>> present, std::uint64_t size, std::uint64_t expected,
                const std::string& origin) {
  std::string missing;
  for (const auto& [name, there] : present) {
    if (!there) missing += (missing.empty() ? "" : ", ") + std::string(name);
  }
  if (missing.empty()) return;
  const std::string truncated =
      size < expected ? " of " + std::to_string(size) + " bytes (expected " + std::to_string(expected) + ")" : "";
  throw TransportError(Code::contract, origin + ": the table" + truncated + " lacks required calls: " + missing);
}

}  // namespace kvcts::transport
