// Runs bodies of engine tests in separate processes: a plug-in is loaded once per process, and some hang or die.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "engines/testing/target.hpp"

namespace kvcts::testing {

/// Runs `body` in a child under a time limit, which prints its failures. "": it held, else how the child ended.
inline std::string ending_of(const std::function<void()>& body, std::chrono::seconds limit = std::chrono::seconds(60)) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(static_cast<unsigned>(limit.count()));
    try {
      body();
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    std::fflush(nullptr);
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return "ended by signal " + std::to_string(WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? "" : "failed with status " + std::to_string(WEXITSTATUS(status));
}

/// Runs `body` in a child under a time limit and reports its failures as this test's.
inline void run_isolated(const std::function<void()>& body, std::chrono::seconds limit = std::chrono::seconds(60)) {
  EXPECT_EQ(ending_of(body, limit), "");
}

/// Opens the initiator in this process, which takes over the engine's environment.
inline transport::Session open_initiator(const Placement& setup) {
  for (const auto& [key, value] : setup.environment) setenv(key.c_str(), value.c_str(), 1);
  return transport::Session(transport::Plugin::load(transport::find_plugin(setup.plugin)),
                            {.name = "initiator", .options = setup.options});
}

/// The text that a call is refused with; "" if it is not refused.
inline std::string refusal(const std::function<void()>& call) {
  try {
    call();
    return "";
  } catch (const transport::TransportError& error) {
    return error.what();
  }
}

}  // namespace kvcts::testing
