#include "golden/golden.hpp"

#include <gtest/gtest.h>
#include <hdf5.h>
#include <sys/stat.h>

#include <bit>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "golden/child.hpp"
#include "golden/sha256.hpp"
#include "golden/verify.hpp"
#include "kernels/poison.hpp"
#include "testing/checkout.hpp"

namespace kvcts::golden {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// The repository's own folder; KVCTS_GOLDEN_FOLDER names another one (fuzz_layouts.py does).
const fs::path golden_folder = std::getenv("KVCTS_GOLDEN_FOLDER") != nullptr ? fs::path(std::getenv("KVCTS_GOLDEN_FOLDER"))
                                                                             : fs::path(checkout::source()) / "golden";

void write(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

/// A folder with a copy of the smallest golden file, to be damaged.
class Damaged : public testing::Test {
 protected:
  void SetUp() override {
    folder = fs::path(testing::TempDir()) /
             ("golden-" + std::to_string(::getpid()) + "-" + testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(folder);
    manifest = json::parse(read_file(golden_folder / "MANIFEST.json", 1 << 26));
    ASSERT_FALSE(manifest["files"].empty());
    for (const auto& [name, entry] : manifest["files"].items()) {
      if (file.empty() || entry["bytes"] < manifest["files"][file]["bytes"]) file = name;
    }
    const json only = manifest["files"][file];
    manifest["files"] = {{file, only}};
    layout = only["layouts"][0];
    manifest["files"][file]["layouts"] = {layout};
    dtype = only["dtypes"].begin().key();
    bytes = read_file(golden_folder / file, 1 << 26);
    save(bytes);
  }
  void TearDown() override { fs::remove_all(folder); }

  void save(const std::string& content) {
    write(folder / file, content);
    write(folder / "MANIFEST.json", manifest.dump());
  }
  /// As a liar would: the manifest agrees with the file.
  void save_and_sign(const std::string& content) {
    manifest["files"][file]["sha256"] = sha256(content);
    save(content);
  }
  /// The error of loading, which must be one line; "" when it loads.
  std::string error(const LoadOptions& options = {}) {
    try {
      load(folder, layout, dtype, options);
      return "";
    } catch (const Error& fault) {
      EXPECT_EQ(std::string(fault.what()).find('\n'), std::string::npos) << fault.what();
      return fault.what();
    }
  }
  fs::path scenario(const std::string& text) {
    const fs::path path = folder / "reader.sh";
    write(path, "#!/bin/sh\n" + text + "\n");
    fs::permissions(path, fs::perms::owner_all);
    return path;
  }

  fs::path folder;
  json manifest;
  std::string file, layout, dtype, bytes;
};

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

std::uint32_t code_at(const GoldenTensor& t, const GoldenPlane& p, std::size_t i) {
  const auto& memory = t.allocations.at(static_cast<std::size_t>(p.allocation[i])).bytes;
  std::uint64_t word = 0;
  for (std::int64_t b = 0; b < (p.bits + 7) / 8; ++b) {
    word |= std::uint64_t{memory.at(static_cast<std::size_t>(p.bit[i] / 8 + b))} << (8 * b);
  }
  return static_cast<std::uint32_t>((word >> (p.bit[i] % 8)) & ((std::uint64_t{1} << p.bits) - 1));
}

TEST(Sha256, MatchesKnownAnswers) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  const std::vector<std::uint8_t> tail{'c'};
  EXPECT_EQ(sha256("ab", tail), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Golden, ListsEveryFile) {
  const auto entries = list(golden_folder);
  std::set<std::string> files;
  for (const auto& e : entries) files.insert(e.file);
  EXPECT_FALSE(entries.empty());
  for (const auto& f : files) EXPECT_TRUE(fs::exists(golden_folder / f)) << f;
}

TEST(Golden, FilesAreSmall) {
  std::uintmax_t total = 0;
  for (const auto& f : fs::directory_iterator(golden_folder)) {
    if (f.path().extension() == ".h5" || f.path().extension() == ".json") total += f.file_size();
  }
  EXPECT_LT(total, std::uintmax_t{20} << 20);
}

/// Tags lie where 'bit' says, and every other bit is poison: the file suffices, no layout is needed.
TEST(Golden, TagsPlacesAndPoisonExplainEveryBit) {
  std::map<std::string, int> dtypes;
  for (const auto& entry : list(golden_folder)) {
    if (dtypes[entry.dtype]++ != 0) continue;  // one layout per dtype
    const GoldenTensor t = load(golden_folder, entry.layout, entry.dtype);
    for (const GoldenPlane& p : t.planes) {
      ASSERT_EQ(p.tags.size(), p.records.size());
      const auto& s = p.pool_shape;
      for (std::size_t i = 0; i < p.tags.size(); ++i) {
        const Record r = p.records[i];
        std::int64_t at = 0;
        const std::array<std::int64_t, 6> who{r.layer, r.kv, r.block, r.slot, r.head, r.channel};
        for (std::size_t axis = 0; axis < 6; ++axis) at = at * s[axis] + (who[axis] - p.first[axis]) / p.step[axis];
        ASSERT_EQ(p.tags[i], code_at(t, p, static_cast<std::size_t>(at)))
            << entry.layout << "/" << entry.dtype << " " << p.text;
      }
    }
    const auto masks = tag_bits(t);
    std::size_t tagged = 0, expected = 0;
    for (const GoldenPlane& p : t.planes) expected += p.tags.size() * static_cast<std::size_t>(p.bits);
    for (const auto& mask : masks) {
      for (const std::uint8_t byte : mask) tagged += static_cast<std::size_t>(std::popcount(byte));
    }
    ASSERT_EQ(tagged, expected) << entry.layout << "/" << entry.dtype;
    for (std::size_t a = 0; a < masks.size(); ++a) {
      std::vector<std::uint8_t> poison(masks[a].size());
      kernels::fill_poison(kernels::poison_key(t.seed, t.side, t.rank, static_cast<std::uint32_t>(a)), 0, poison);
      for (std::size_t i = 0; i < poison.size(); ++i) {
        const auto free = static_cast<std::uint8_t>(~masks[a][i]);
        ASSERT_EQ(t.allocations[a].bytes[i] & free, poison[i] & free) << entry.layout << "/" << entry.dtype << " byte " << i;
      }
    }
  }
  EXPECT_GE(dtypes.size(), 1u);
}

TEST(Golden, NamesTheOwnerOfABit) {
  const auto entry = list(golden_folder).front();
  const GoldenTensor t = load(golden_folder, entry.layout, entry.dtype);
  const GoldenPlane& p = t.planes.front();
  const std::string words = what_is_at(t, p.allocation.back(), p.bit.back());
  EXPECT_TRUE(has(words, "layer " + std::to_string(p.first[0] + p.step[0] * (p.pool_shape[0] - 1)))) << words;
  EXPECT_TRUE(has(words, "channel " + std::to_string(p.first[5] + p.step[5] * (p.pool_shape[5] - 1)))) << words;
  EXPECT_EQ(what_is_at(t, 0, 8 * static_cast<std::int64_t>(t.allocations[0].bytes.size())), "padding");
}

TEST_F(Damaged, LoadsUndamagedFiles) { EXPECT_EQ(error(), ""); }

TEST_F(Damaged, IgnoresFilesInTheWorkingDirectory) {
  const fs::path before = fs::current_path();
  fs::current_path(checkout::source());  // has a folder "golden"
  EXPECT_EQ(error(), "");
  fs::current_path(before);
}

TEST_F(Damaged, RefusesATruncatedFile) {
  for (const std::size_t n : {bytes.size() - 1, bytes.size() / 2, std::size_t{100}, std::size_t{0}}) {
    save(bytes.substr(0, n));
    EXPECT_TRUE(has(error(), "SHA-256")) << n << error();
  }
}

TEST_F(Damaged, RefusesAMissingFile) {
  fs::remove(folder / file);
  EXPECT_TRUE(has(error(), "expected a file, found none")) << error();
}

TEST_F(Damaged, RefusesAnOversizedFile) {
  LoadOptions options;
  options.file_bytes = 1000;
  EXPECT_TRUE(has(error(options), "expected at most 1000 bytes")) << error(options);
}

TEST_F(Damaged, NeverOpensAFileWithAFlippedBit) {
  std::mt19937_64 random(1);
  LoadOptions options;
  options.reader = scenario("echo opened >> " + (folder / "opened").string());
  for (int i = 0; i < 200; ++i) {
    std::string flipped = bytes;
    flipped[random() % flipped.size()] ^= static_cast<char>(1 << random() % 8);
    save(flipped);
    EXPECT_TRUE(has(error(options), "SHA-256"));
  }
  EXPECT_FALSE(fs::exists(folder / "opened"));
}

/// The manifest agrees with the damage, so libhdf5 sees it: one error, or content that the digest proves intact.
TEST_F(Damaged, SignedBitFlipsGiveOneErrorOrTheSameContent) {
  std::mt19937_64 random(2);
  const GoldenTensor good = load(folder, layout, dtype);
  int errors = 0;
  for (int i = 0; i < 200; ++i) {
    std::string flipped = bytes;
    // Half of them in the first 4 KiB, where the essential metadata lies.
    flipped[random() % (i % 2 == 0 ? flipped.size() : std::min<std::size_t>(4096, flipped.size()))] ^=
        static_cast<char>(1 << random() % 8);
    save_and_sign(flipped);
    if (!error().empty()) {
      ++errors;
      continue;
    }
    const GoldenTensor other = load(folder, layout, dtype);
    ASSERT_EQ(good.allocations.size(), other.allocations.size());
    for (std::size_t a = 0; a < good.allocations.size(); ++a)
      ASSERT_EQ(good.allocations[a].bytes, other.allocations[a].bytes);
  }
  EXPECT_GT(errors, 10);
}

TEST_F(Damaged, RefusesSignedGarbage) {
  for (const std::string& rubbish :
       {std::string(), std::string("no HDF5"), std::string(100000, '\0'), bytes.substr(0, bytes.size() / 2)}) {
    save_and_sign(rubbish);
    EXPECT_TRUE(has(error(), "the reader (kvcts-golden-reader) exit status 1")) << error();
  }
}

TEST_F(Damaged, ReportsAReaderThatMisbehaves) {
  LoadOptions options;
  options.deadline = std::chrono::milliseconds(300);
  options.output_bytes = 1 << 20;
  const auto with = [&](const fs::path& reader) {
    options.reader = reader;
    return error(options);
  };
  EXPECT_TRUE(has(with(scenario("kill -SEGV $$")), "crashed with SIGSEGV")) << error(options);
  EXPECT_TRUE(has(with(scenario("sleep 60 & sleep 60")), "did not finish within 300 ms")) << error(options);
  EXPECT_TRUE(has(with(scenario("exec >&- 2>&-; sleep 60")), "did not finish within 300 ms")) << error(options);
  EXPECT_TRUE(has(with(scenario("yes")), "wrote more than")) << error(options);
  EXPECT_TRUE(has(with(scenario("echo no such thing >&2; exit 3")), "exit status 3: no such thing")) << error(options);
  EXPECT_TRUE(has(with(scenario("cat")), "no golden dump")) << error(options);
  EXPECT_TRUE(has(with(scenario("printf 'KVGOLD01\\377\\0\\0\\0\\0\\0\\0\\0{'")), "cut off within its header"))
      << error(options);
  EXPECT_TRUE(has(with(scenario("printf 'KVGOLD01\\2\\0\\0\\0\\0\\0\\0\\0{}'")), "not a golden file of this format"))
      << error(options);
  EXPECT_TRUE(has(with(folder / "unknown"), "could not be started")) << error(options);
}

TEST_F(Damaged, RefusesWrongManifests) {
  const auto with = [&](const std::string& text) {
    write(folder / "MANIFEST.json", text);
    return error();
  };
  EXPECT_TRUE(has(with("{"), "not a manifest"));
  EXPECT_TRUE(has(with("[]"), "not a manifest"));
  EXPECT_TRUE(has(with(R"({"format": 9, "files": {}})"), "expected format 1, found 9"));
  EXPECT_TRUE(has(with(R"({"format": 1, "files": {"../x.h5": {}}})"), "is not a file name"));
  EXPECT_TRUE(has(with(R"({"format": 1, "files": {}})"), "has no golden file"));
  json wrong = manifest;
  wrong["files"][file]["dtypes"][dtype] = std::string(64, '0');
  EXPECT_TRUE(has(with(wrong.dump()), "content digest"));
  wrong["files"][file]["dtypes"] = {{"other", ""}};
  EXPECT_TRUE(has(with(wrong.dump()), "holds no dtype"));
  fs::remove(folder / "MANIFEST.json");
  EXPECT_TRUE(has(error(), "found none"));
}

/// First line of the failures of a report.
std::string failures(const VerifyReport& report) {
  std::string all;
  for (const auto& item : report.items) {
    if (item.check == GoldenCheck::fail) all += item.what + ": " + item.detail + "\n";
  }
  return all;
}

TEST_F(Damaged, VerifyPasses) {
  const VerifyReport report = verify(folder);
  EXPECT_EQ(failures(report), "");
  EXPECT_EQ(report.count(GoldenCheck::pass), 1 + static_cast<int>(manifest["files"][file]["dtypes"].size()));
  ASSERT_EQ(report.count(GoldenCheck::skipped), 1);
  EXPECT_EQ(report.items.back().detail, "no Python environment was named");
}

TEST_F(Damaged, VerifyNamesDamagedAndUnlistedFiles) {
  save(bytes.substr(0, 1000));
  write(folder / "stranger.h5", "?");
  const VerifyReport report = verify(folder);
  EXPECT_EQ(report.count(GoldenCheck::fail), 2) << failures(report);
  EXPECT_TRUE(has(failures(report), file + ": ")) << failures(report);
  EXPECT_TRUE(has(failures(report), "stranger.h5: lies in the folder but not in the manifest")) << failures(report);
  GoldenVerifyOptions other;
  other.layouts = {"unknown"};
  EXPECT_TRUE(has(failures(verify(folder, other)), "unknown: has no golden file")) << failures(verify(folder, other));
  write(folder / "MANIFEST.json", "{");
  EXPECT_EQ(verify(folder).items.size(), 1u);
}

/// A file with the manifest's hash and correct data set digests, but a false seed.
TEST_F(Damaged, VerifyFindsAFalseSeedInASignedFile) {
  const std::string path = (folder / file).string();
  const hid_t id = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  ASSERT_GE(id, 0);
  const hid_t attribute = H5Aopen(id, "seed", H5P_DEFAULT);
  const std::int64_t lie = 7;
  ASSERT_GE(H5Awrite(attribute, H5T_NATIVE_INT64, &lie), 0);
  H5Aclose(attribute);
  H5Fclose(id);
  save_and_sign(read_file(path, 1 << 26));
  const VerifyReport report = verify(folder);
  EXPECT_EQ(report.count(GoldenCheck::fail), static_cast<int>(manifest["files"][file]["dtypes"].size()));
  EXPECT_TRUE(has(failures(report), "bytes differ, first allocation 0 ")) << failures(report);
}

/// One byte of one allocation changed, file signed: the content digest catches it.
TEST_F(Damaged, VerifyFindsAChangedByteInASignedFile) {
  const std::string path = (folder / file).string(), name = "/dtypes/" + dtype + "/memory/a0";
  std::vector<std::uint8_t> memory(load(folder, layout, dtype).allocations[0].bytes);
  const hid_t id = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  const hid_t data = H5Dopen2(id, name.c_str(), H5P_DEFAULT);
  ASSERT_GE(data, 0);
  memory[memory.size() / 2] ^= 1;
  ASSERT_GE(H5Dwrite(data, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, memory.data()), 0);
  H5Dclose(data);
  H5Fclose(id);
  save_and_sign(read_file(path, 1 << 26));
  EXPECT_TRUE(has(error(), "content digest")) << error();
  EXPECT_GE(verify(folder).count(GoldenCheck::fail), 1);
}

/// The main check: the C++ layouts and kernels make every golden tensor again, identical to the last bit.
TEST(Verify, ChecksEveryTensorOfTheRepository) {
  const VerifyReport report = verify(golden_folder);
  EXPECT_EQ(failures(report), "");
  EXPECT_EQ(report.count(GoldenCheck::pass),
            static_cast<int>(list(golden_folder).size() + read_manifest(golden_folder).files.size()));
}

/// The same through verify(): NumPy makes one layout again. Skipped, with the reason, if the Python packages are not
/// installed.
TEST(Verify, NumPyAgrees) {
  GoldenVerifyOptions options;
  options.cpp = false;
  options.layouts = {list(golden_folder).front().layout};
  options.python = fs::path(checkout::source()) / "harness/python/python";
  const VerifyReport report = verify(golden_folder, options);
  EXPECT_EQ(failures(report), "");
  if (report.count(GoldenCheck::skipped) != 0) GTEST_SKIP() << report.items.back().detail;
  EXPECT_EQ(report.items.back().what, "generate.py --check");
}

TEST(Verify, NamesADifferenceInLogicalCoordinates) {
  const auto entry = list(golden_folder).front();
  GoldenTensor t = load(golden_folder, entry.layout, entry.dtype);
  EXPECT_EQ(differs_from_cpp(t), std::nullopt);
  const GoldenPlane& p = t.planes.front();
  const std::size_t last = p.bit.size() - 1;
  t.allocations.at(static_cast<std::size_t>(p.allocation[last])).bytes.at(static_cast<std::size_t>(p.bit[last] / 8)) ^= 0x10;
  const auto fault = differs_from_cpp(t);
  ASSERT_TRUE(fault);
  EXPECT_TRUE(has(*fault, "1 bytes differ, first allocation ")) << *fault;
  EXPECT_TRUE(has(*fault, "block " + std::to_string(t.geometry.blocks - 1))) << *fault;
  t.allocations[0].bytes.pop_back();
  EXPECT_TRUE(has(differs_from_cpp(t).value(), "in the golden file"));
  t.allocations.pop_back();
  EXPECT_TRUE(has(differs_from_cpp(t).value(), "allocations"));
  t.template_text = "L x nonsense";
  EXPECT_TRUE(has(differs_from_cpp(t).value(), "the C++ refuses"));
}

TEST_F(Damaged, SkipsWithTheReasonIfPythonIsMissing) {
  GoldenVerifyOptions options;
  options.cpp = false;
  options.python = folder / "no-python";
  EXPECT_TRUE(has(verify(folder, options).items.back().detail, "could not be started"));
  options.python = scenario("echo \"ModuleNotFoundError: No module named 'h5py'\" >&2; exit 1");
  const auto item = verify(folder, options).items.back();
  EXPECT_EQ(item.check, GoldenCheck::skipped);
  EXPECT_TRUE(has(item.detail, "No module named 'h5py'")) << item.detail;
  options.python =
      scenario("test \"$1\" = -c && exit 0; echo '{\"files\": {\"a\": [\"a.h5: lies\"]}, \"missing\": [\"b\"]}'; exit 1");
  EXPECT_EQ(verify(folder, options).count(GoldenCheck::fail), 2);
  options.python = scenario("test \"$1\" = -c && exit 0; echo Traceback >&2; exit 1");
  EXPECT_TRUE(has(verify(folder, options).items.back().detail, "failed: Traceback"));
}

}  // namespace
}  // namespace kvcts::golden
