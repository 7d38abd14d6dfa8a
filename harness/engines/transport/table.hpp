// Shared by the tables of both plug-in ABIs (kvcts_transport.h, kvcts_memory.h): a file, an entry point, a head of
// size, version and names. The pointers are the plug-in's: nothing is read before it is known to exist.
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <string>
#include <utility>

#include "engines/transport/session.hpp"

namespace kvcts::transport {

/// A short printable word, or a contract error; reads at most 256 bytes.
std::string table_word(const char* text, const char* what, const std::string& origin);
/// The address of an exported function. Throws TransportError(cannot_load | contract).
void* entry_of(const std::filesystem::path& file, const char* entry, const char* kind);

/// Requests this suite's version. If the plug-in does not support it, the error names the versions that it does.
template <class Table>
const Table* ask_table(const std::filesystem::path& file, const char* entry, std::uint32_t abi, const char* kind) {
  const auto ask = reinterpret_cast<const Table* (*)(std::uint32_t)>(entry_of(file, entry, kind));
  if (const Table* table = ask(abi); table != nullptr) return table;
  std::string spoken;
  for (std::uint32_t other = 0; other < abi + 4; ++other) {
    if (other != abi && ask(other) != nullptr)
      spoken += (spoken.empty() ? "; it speaks version " : ", ") + std::to_string(other);
  }
  throw TransportError(Code::contract, file.string() + ": " + entry + "(" + std::to_string(abi) +
                                           ") returned NULL: it does not speak version " + std::to_string(abi) + " of the " +
                                           kind + " ABI" + spoken + "; build it against this suite's header");
}

/// A copy of the table: members beyond the plug-in's size are NULL. Throws TransportError(contract).
template <class Table>
Table checked_table(const Table* table, std::uint32_t abi, const char* kind, const std::string& origin) {
  if (table == nullptr) throw TransportError(Code::contract, origin + ": the entry point returned no table");
  // size and abi come first: check both before reading anything else.
  constexpr std::uint64_t head = offsetof(Table, name), largest = 1u << 16;
  if (table->size < head || table->size > largest) {
    throw TransportError(Code::contract, origin + ": the table claims a size of " + std::to_string(table->size) +
                                             " bytes; expected " + std::to_string(sizeof(Table)));
  }
  if (table->abi != abi) {
    throw TransportError(Code::contract, origin + ": built for " + kind + " ABI " + std::to_string(table->abi) +
                                             ", expected " + std::to_string(abi) +
                                             "; rebuild it against this suite's header");
  }
  Table copy{};
  std::memcpy(&copy, table, std::min<std::uint64_t>(table->size, sizeof copy));
  return copy;
}

/// Throws TransportError(contract) with the names of all required calls that are NULL. `size`: of the plug-in's table.
void need_calls(std::initializer_list<std::pair<const char*, bool>> present, std::uint64_t size, std::uint64_t expected,
                const std::string& origin);

/// An out-parameter followed by guard words that a plug-in must not touch: it may be longer or shorter than the
/// structure that the plug-in knows.
template <class Out>
struct Guarded {
  static constexpr std::uint64_t pattern = 0x6b76637473677564;  // "kvctsgud"
  Out out{};
  std::uint64_t behind[8];
  Guarded() {
    out.size = sizeof out;
    std::fill(std::begin(behind), std::end(behind), pattern);
  }
  void check(const std::string& engine, const char* call) const {
    const bool kept = std::all_of(std::begin(behind), std::end(behind), [](std::uint64_t word) { return word == pattern; });
    if (kept && out.size == sizeof out) return;
    throw TransportError(Code::contract, engine + ": " + call + ": " + (kept ? "changed the size" : "wrote beyond the end") +
                                             " of a structure of " + std::to_string(sizeof out) + " bytes");
  }
};

/// A plug-in's text: the first 4096 bytes if it does not end, "" for NULL.
std::string given_text(const char* text);

/// What a plug-in reports about its last failure.
struct LastError {
  std::string text;
  std::int64_t native{0};
};
/// `state`: the agent or pool that failed, NULL where none was opened.
template <class Table, class State>
LastError last_error(const Table& api, State* state, const std::string& plugin) {
  Guarded<kvcts_error> error;
  error.out.text = "";
  api.last_error(state, &error.out);
  error.check(plugin, "last_error");
  return {given_text(error.out.text), error.out.native};
}

[[noreturn]] void throw_status(const std::string& plugin, const char* call, std::int32_t status, const LastError& error);
[[noreturn]] void throw_unknown_status(const std::string& plugin, const char* call, std::int32_t status);

/// A failed call as an error: the plug-in's text, or a contract error if the ABI has no such status.
template <class Table, class State>
[[noreturn]] void fail(const Table& api, State* state, const std::string& plugin, const char* call, std::int32_t status) {
  if (status > 0 || status < KVCTS_E_NOT_POSTED) throw_unknown_status(plugin, call, status);
  throw_status(plugin, call, status, last_error(api, state, plugin));
}

}  // namespace kvcts::transport
