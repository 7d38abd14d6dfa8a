#include "process/installation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "testing/temporary_folder.hpp"

namespace kvcts::process {
namespace {

namespace fs = std::filesystem;

class NeededPaths : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"env/bin/python", "a:b", "plugin.so"}) temporary_.write(name, "\n");
  }

  static bool needs(const fs::path& path, const std::vector<std::string>& named) {
    const auto all = needed_paths(named);
    return std::find(all.begin(), all.end(), path) != all.end();
  }

  const testing_support::TemporaryFolder temporary_;
  const fs::path& folder_ = temporary_.path();
};

TEST_F(NeededPaths, AlwaysIncludeThePrefix) {
  EXPECT_TRUE(needs(prefix(), {}));
  EXPECT_TRUE(needs(program_folder(), {}));
}

TEST_F(NeededPaths, IncludeNamedPaths) {
  const std::string file = (folder_ / "plugin.so").string();
  for (const std::string& word : {file, "/nowhere:" + file, "--plugin=" + file}) {
    EXPECT_TRUE(needs(file, {word})) << word;
    EXPECT_TRUE(needs(folder_, {word})) << word << ": what it loads lies beside it";
  }
  EXPECT_FALSE(needs(file, {"word", "/nowhere"}));
  EXPECT_TRUE(needs(folder_ / "a:b", {(folder_ / "a:b").string()})) << "a name with a colon";
}

TEST_F(NeededPaths, IncludeTheEnvironmentOfAnInterpreter) {
  EXPECT_TRUE(needs(folder_ / "env", {(folder_ / "env/bin/python").string()}));
}

TEST_F(NeededPaths, ReadOnlyListedEnvironmentVariables) {
  for (const auto& [variable, counts] :
       {std::pair("KVCTS_ENGINE_PATH", true), std::pair("PYTHONPATH", true), std::pair("KVTEST_OTHER", false)}) {
    const char* before = std::getenv(variable);
    const std::string saved = before != nullptr ? before : "";
    ::setenv(variable, folder_.c_str(), 1);
    EXPECT_EQ(needs(folder_, {}), counts) << variable;
    before != nullptr ? ::setenv(variable, saved.c_str(), 1) : ::unsetenv(variable);
  }
}

}  // namespace
}  // namespace kvcts::process
