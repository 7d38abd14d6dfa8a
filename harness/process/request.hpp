// What the processes of a run ask of each other: key "op" of a request. protocol.hpp has the contract of each.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace kvcts::process {

enum class LauncherRequest : std::uint8_t { spawn, kill, stop, resume };
enum class CheckerRequest : std::uint8_t { hello, open, fill, see, compare, recheck, look, close };
enum class WorkerRequest : std::uint8_t {
  hello,
  prepare,
  connect,
  upload,
  download,
  plan,
  transfer,
  read,
  end,
  close,
  cancel,
  forget,
  bye,
};

/// The words of a kind of request, in the order of its enumerators.
template <class R>
inline constexpr std::array<std::string_view, 0> request_words{};
template <>
inline constexpr std::array<std::string_view, 4> request_words<LauncherRequest>{"spawn", "kill", "stop", "resume"};
template <>
inline constexpr std::array<std::string_view, 8> request_words<CheckerRequest>{"hello",   "open",    "fill", "see",
                                                                               "compare", "recheck", "look", "close"};
template <>
inline constexpr std::array<std::string_view, 13> request_words<WorkerRequest>{
    "hello", "prepare", "connect", "upload", "download", "plan", "transfer",
    "read",  "end",     "close",   "cancel", "forget",   "bye",
};
static_assert(request_words<LauncherRequest>.size() == static_cast<std::size_t>(LauncherRequest::resume) + 1);
static_assert(request_words<CheckerRequest>.size() == static_cast<std::size_t>(CheckerRequest::close) + 1);
static_assert(request_words<WorkerRequest>.size() == static_cast<std::size_t>(WorkerRequest::bye) + 1);

template <class R>
concept Request = !request_words<R>.empty();

template <Request R>
constexpr std::string_view name(R request) {
  return request_words<R>[static_cast<std::size_t>(request)];
}
template <Request R>
void to_json(nlohmann::json& out, R request) {
  out = name(request);
}

/// What a request asks; nothing for a word that is none.
template <Request R>
std::optional<R> request_in(const nlohmann::json& body) {
  const auto op = body.find("op");
  if (op == body.end() || !op->is_string()) return std::nullopt;
  for (std::size_t i = 0; i < request_words<R>.size(); ++i)
    if (*op->template get_ptr<const std::string*>() == request_words<R>[i]) return static_cast<R>(i);
  return std::nullopt;
}

/// "expected spawn, kill, found 'x'"
template <Request R>
std::string unknown_request(const nlohmann::json& body) {
  std::string out = "expected ";
  for (const std::string_view word : request_words<R>) out += std::string(word) + ", ";
  const auto op = body.find("op");
  return out + "found " + (op == body.end() ? "no op" : op->is_string() ? "'" + op->get<std::string>() + "'" : op->dump());
}

}  // namespace kvcts::process
