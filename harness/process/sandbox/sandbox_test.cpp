// What a program in the sandbox can see and do.
#include "process/sandbox/sandbox.hpp"

#include <gtest/gtest.h>

#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "process/pointers.hpp"
#include "testing/checkout.hpp"

extern char** environ;  // NOLINT

namespace kvcts::process {
namespace {

namespace fs = std::filesystem;

struct Output {
  int status{0};  ///< exit status; negative: not an exit
  std::string text;
};

/// Runs a shell script inside.
Output inside(const std::string& script, const Sandbox& sandbox = {}) {
  const UniqueFd filter = filter_of(sandbox);
  std::vector<std::string> argv = sandboxed(sandbox, 3, {"/bin/sh", "-c", script});
  std::vector<char*> pointers = pointers_to(argv);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {-1, "pipe"};
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
  ::posix_spawn_file_actions_adddup2(&actions, filter.get(), 3);
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, pointers[0], &actions, nullptr, pointers.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  Output reported;
  std::array<char, 4096> buffer;
  for (ssize_t n = 0; error == 0 && (n = ::read(ends[0], buffer.data(), buffer.size())) > 0;)
    reported.text.append(buffer.data(), static_cast<std::size_t>(n));
  ::close(ends[0]);
  int status = 0;
  if (error == 0) ::waitpid(pid, &status, 0);
  reported.status = error != 0 || !WIFEXITED(status) ? -1 : WEXITSTATUS(status);
  return reported;
}

std::string python(const std::string& code) { return "python3 -c '" + code + "'"; }

class InSandbox : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!why_no_sandbox().empty()) GTEST_SKIP() << "no sandbox here: " << why_no_sandbox();
  }
};

TEST_F(InSandbox, SeesOnlyItsOwnProcesses) {
  EXPECT_EQ(inside("echo /proc/[0-9]* $$").text, "/proc/1 /proc/2 2\n") << "bubblewrap and the shell";
  EXPECT_NE(inside("kill -0 " + std::to_string(::getpid())).status, 0);
  EXPECT_NE(inside("cat /proc/" + std::to_string(::getpid()) + "/cmdline").status, 0);
}

TEST_F(InSandbox, LeavesNoFilesBehind) {
  const std::string name = "kvcts-sandbox-" + std::to_string(::getpid());
  for (const std::string folder : {"/tmp/", "/dev/shm/", "/run/", "/var/tmp/"}) {
    const Output reported = inside("echo x > " + folder + name + " && cat " + folder + name + " && ls " + folder);
    EXPECT_TRUE(reported.text.starts_with("x\n")) << folder << reported.text;
    EXPECT_LE(std::count(reported.text.begin(), reported.text.end(), '\n'), 3)
        << "beside it at most a checkout: " << reported.text;
    EXPECT_FALSE(fs::exists(folder + name)) << folder;
  }
  for (const std::string folder : {"/", "/etc/", "/usr/lib/"})
    EXPECT_NE(inside("echo x > " + folder + name).status, 0) << folder;
}

TEST_F(InSandbox, HasNoCapabilitiesAndGainsNone) {
  EXPECT_EQ(inside("grep -h CapEff /proc/self/status").text, "CapEff:\t0000000000000000\n");
  EXPECT_NE(inside("unshare -r true").status, 0);
  EXPECT_NE(inside("mount -t tmpfs x /mnt").status, 0);
  EXPECT_NE(inside("test -e /dev/mem -o -e /dev/kmsg -o -e /dev/sda").status, 0);
}

TEST_F(InSandbox, RefusesSystemCallsOnOtherProcesses) {
  // By number: the C library's functions exist only in some versions.
  const std::string call =
      "import ctypes, os; c = ctypes.CDLL(None, use_errno=True); r = c.syscall(%d, %s); print(r, ctypes.get_errno())";
  struct Row {
    const char* name;
    long number;
    const char* arguments;
  };
  for (const Row& row :
       {Row{"ptrace", SYS_ptrace, "16, 1, 0, 0"}, Row{"process_vm_readv", SYS_process_vm_readv, "1, 0, 0, 0, 0, 0"},
        Row{"pidfd_getfd", SYS_pidfd_getfd, "-1, 0, 0"}, Row{"bpf", SYS_bpf, "0, 0, 0"},
        Row{"keyctl", SYS_keyctl, "0, 0, 0, 0, 0"}, Row{"userfaultfd", SYS_userfaultfd, "1"},
        Row{"unshare", SYS_unshare, "0x10000000"}, Row{"setns", SYS_setns, "0, 0"},
        Row{"clone", SYS_clone, "0x10000011, 0, 0, 0, 0"}}) {
    std::string code = call;
    code.replace(code.find("%d"), 2, std::to_string(row.number));
    code.replace(code.find("%s"), 2, row.arguments);
#if defined(__SANITIZE_ADDRESS__)
    if (row.number == SYS_ptrace) continue;
#endif
    EXPECT_EQ(inside(python(code)).text, "-1 1\n") << row.name;
  }
  std::string newer = call;  // the filter cannot read its flags, so it is disabled
  newer.replace(newer.find("%d"), 2, std::to_string(SYS_clone3)).replace(newer.find("%s"), 2, "0, 0");
  EXPECT_EQ(inside(python(newer)).text, "-1 " + std::to_string(ENOSYS) + "\n") << "clone3";
  const std::string copies = "import ctypes, os; print(ctypes.CDLL(None).syscall(" + std::to_string(SYS_process_vm_readv) +
                             ", os.getpid(), 0, 0, 0, 0, 0))";
  EXPECT_EQ(inside(python(copies), {{"process-vm"}, {}, {}}).text, "0\n") << "granted";
}

TEST_F(InSandbox, AllowsThreadsAndProcesses) {
  EXPECT_EQ(
      inside(python("import threading, subprocess; t = threading.Thread(target=lambda: print(1, flush=True)); t.start(); "
                    "t.join(); print(subprocess.run([\"echo\", \"2\"], capture_output=True, text=True).stdout)"))
          .text,
      "1\n2\n\n");
}

class Shown : public InSandbox {
 protected:
  void SetUp() override {
    InSandbox::SetUp();
    fs::create_directories(folder_ / "run");
    std::ofstream(folder_ / "plugin.so") << "here\n";
    std::ofstream(folder_ / "run" / "store.db") << "verdicts\n";
  }
  void TearDown() override { fs::remove_all(folder_); }
  static std::string read(const fs::path& file, const Sandbox& sandbox) {
    return inside("cat " + file.string() + " 2>&1", sandbox).text;
  }
  Sandbox showing(const fs::path& path) const { return {{}, {path.string()}, {}}; }

  const fs::path folder_ = fs::temp_directory_path() / ("kvcts-sandbox-" + std::to_string(::getpid()));
  const fs::path file_ = folder_ / "plugin.so";
};

TEST_F(Shown, NamedPathsAreReadOnly) {
  EXPECT_NE(read(file_, {}), "here\n") << "in /tmp: not there unless it is named";
  EXPECT_EQ(read(file_, showing(folder_)), "here\n");
  EXPECT_EQ(read(file_, showing(file_)), "here\n");
  EXPECT_NE(inside("echo x > " + file_.string(), showing(folder_)).status, 0);
}

TEST_F(Shown, HiddenFoldersAreEmptyEvenIfNamed) {
  Sandbox sandbox = showing(folder_);
  sandbox.hidden = {(folder_ / "run").string()};
  EXPECT_EQ(read(file_, sandbox), "here\n");
  sandbox.named.push_back((folder_ / "run/store.db").string());
  EXPECT_EQ(inside("ls -A " + (folder_ / "run").string(), sandbox).text, "") << "also where it is named";
  sandbox.named = {(folder_ / "run/store.db").string()};
  sandbox.hidden = {folder_.string()};
  EXPECT_NE(read(folder_ / "run/store.db", sandbox), "verdicts\n") << "and where nothing around it is shown";
}

TEST_F(Shown, LinksAreFollowedAndOuterFoldersIncludeInnerOnes) {
  const fs::path other = folder_.string() + "-other";
  fs::create_directory(other);
  fs::create_symlink(folder_, other / "link");
  fs::create_symlink("/bin/sh", folder_ / "outside");
  fs::create_symlink("plugin.so", folder_ / "beside");
  EXPECT_EQ(read(other / "link/plugin.so", showing(other / "link/plugin.so")), "here\n") << "a folder on the way is a link";
  Sandbox sandbox = showing(folder_);
  for (const char* name : {"outside", "beside", "run"}) sandbox.named.push_back((folder_ / name).string());
  EXPECT_EQ(read(folder_ / "beside", sandbox), "here\n") << "a link in a folder that is shown";
  EXPECT_EQ(inside(folder_.string() + "/outside -c \"echo runs\"", sandbox).text, "runs\n");
  fs::remove_all(other);
}

TEST_F(Shown, FoldersTheSandboxReplacesAreNeverExposedWhole) { EXPECT_NE(read(file_, showing("/tmp")), "here\n"); }

TEST_F(InSandbox, EndsWithItsParent) {
  const std::string time = "1000." + std::to_string(::getpid());
  EXPECT_EQ(inside("(setsid sleep " + time + " &) ; sleep 0.1; ps -e -o comm | grep -c \"^sleep$\"").text, "1\n")
      << "it was there";
  EXPECT_NE(std::system(("pgrep -f '[s]leep " + time + "' > /dev/null").c_str()), 0)
      << "a daemon of the sandbox is gone with it";
}

TEST(Sandbox, EveryGrantIsDescribed) {
  for (const Grant& grant : grants()) {
    EXPECT_FALSE(grant.meaning.empty()) << grant.name;
    EXPECT_TRUE(!grant.folders.empty() || !grant.globs.empty() || !grant.calls.empty() || grant.network)
        << grant.name << " grants nothing";
  }
}

TEST(Sandbox, AProbeOutsideItFails) {
  std::FILE* message = ::popen((checkout::build() + "/bin/kvcts-launcher probe").c_str(), "r");
  char words[200]{};
  EXPECT_NE(std::fgets(words, sizeof words, message), nullptr);
  EXPECT_NE(::pclose(message), 0);
  EXPECT_TRUE(std::string(words).starts_with("the sandbox does not hold: ")) << words;
}

}  // namespace
}  // namespace kvcts::process
