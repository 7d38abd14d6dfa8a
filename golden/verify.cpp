#include "golden/verify.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "golden/child.hpp"
#include "kernels/generate.hpp"
#include "kernels/poison.hpp"

namespace kvcts::golden {
namespace fs = std::filesystem;

std::string_view name(GoldenCheck check) {
  switch (check) {
    case GoldenCheck::pass:
      return "PASS";
    case GoldenCheck::fail:
      return "FAIL";
    case GoldenCheck::skipped:
      return "SKIPPED";
  }
  return "?";
}

int VerifyReport::count(GoldenCheck check) const {
  return static_cast<int>(std::count_if(items.begin(), items.end(), [&](const VerifyItem& i) { return i.check == check; }));
}

namespace {

/// The request of a golden tensor, in the form of the C++ kernels.
std::vector<kernels::BlockContent> content_of(const GoldenTensor& tensor) {
  std::vector<kernels::BlockContent> content;
  const std::int64_t size = tensor.geometry.block_size;
  for (std::size_t i = 0; i < tensor.block_table.size(); ++i) {
    const std::int64_t first = static_cast<std::int64_t>(i) * size;
    const std::int64_t count = std::min(size, tensor.tokens - first);
    if (count > 0) content.push_back({tensor.block_table[i], tensor.generation, first, 0, count});
  }
  return content;
}

std::string hex(std::uint8_t byte) {
  constexpr std::string_view digits = "0123456789abcdef";
  return {'0', 'x', digits[byte >> 4], digits[byte & 15]};
}

}  // namespace

std::optional<std::string> differs_from_cpp(const GoldenTensor& tensor) {
  layout::Cache cache;
  try {
    cache = layout::instantiate(tensor.template_text, tensor.geometry, tensor.scheme);
  } catch (const layout::Error& fault) {
    return "the C++ refuses what NumPy made: " + std::string(fault.what());
  }
  if (cache.allocations.size() != tensor.allocations.size())
    return "C++ has " + std::to_string(cache.allocations.size()) + " allocations, the golden file " +
           std::to_string(tensor.allocations.size());
  std::vector<std::vector<std::uint8_t>> memory;
  for (std::size_t a = 0; a < cache.allocations.size(); ++a) {
    const auto& golden = tensor.allocations[a].bytes;
    if (cache.allocations[a].bytes != static_cast<std::int64_t>(golden.size()))
      return "allocation " + std::to_string(a) + " (" + cache.allocations[a].name + ") has " +
             std::to_string(cache.allocations[a].bytes) + " bytes in C++, " + std::to_string(golden.size()) +
             " in the golden file";
    memory.emplace_back(golden.size());
    kernels::fill_poison(kernels::poison_key(tensor.seed, tensor.side, tensor.rank, static_cast<std::uint32_t>(a)), 0,
                         memory[a]);
  }
  const kernels::TagKey key{tensor.seed, tensor.pass, tensor.origin};
  const auto content = content_of(tensor);
  for (const layout::Plane& plane : cache.planes)
    kernels::generate(memory.at(static_cast<std::size_t>(plane.allocation)), plane, content, key, tensor.generation);
  std::string first;
  std::int64_t wrong = 0;
  for (std::size_t a = 0; a < memory.size(); ++a) {
    const auto& golden = tensor.allocations[a].bytes;
    for (std::size_t i = 0; i < golden.size(); ++i) {
      if (memory[a][i] == golden[i]) continue;
      if (wrong++ != 0) continue;
      const int bit = (memory[a][i] ^ golden[i]) & 15 ? 0 : 4;  // the nibble that differs
      const std::int64_t at = 8 * static_cast<std::int64_t>(i) + bit;
      const auto ours = layout::inverse(cache, static_cast<int>(a), at);
      std::string place =
          ours.empty() ? "padding"
                       : std::string(layout::name(cache.planes.at(static_cast<std::size_t>(ours[0].plane)).component));
      for (const auto axis : layout::all_axes)
        if (!ours.empty()) place += " " + std::string(layout::name(axis)) + " " + std::to_string(ours[0].coord[axis]);
      first = "allocation " + std::to_string(a) + " (" + cache.allocations[a].name + ") byte " + std::to_string(i) +
              ": C++ " + hex(memory[a][i]) + ", golden " + hex(golden[i]) + "; in C++ it is " + place +
              ", in the golden file " + what_is_at(tensor, static_cast<int>(a), at);
    }
  }
  if (wrong == 0) return std::nullopt;
  return std::to_string(wrong) + " bytes differ, first " + first;
}

namespace {

void verify_file(const fs::path& folder, const std::string& file, const ManifestFile& entry,
                 const GoldenVerifyOptions& options, VerifyReport& report) {
  std::vector<GoldenTensor> tensors;
  try {
    tensors = load_all(folder, entry.layouts.at(0), options.load);
  } catch (const Error& fault) {
    report.items.push_back({file, GoldenCheck::fail, fault.what()});
    return;
  }
  report.items.push_back({file, GoldenCheck::pass, ""});
  for (const GoldenTensor& tensor : tensors) {
    if (!options.cpp) break;
    std::optional<std::string> fault;
    try {
      fault = differs_from_cpp(tensor);
    } catch (const std::exception& error) {
      fault = std::string("the C++ fails on it: ") + error.what();
    }
    for (const std::string& layout : entry.layouts)
      report.items.push_back(
          {layout + "/" + tensor.dtype, fault ? GoldenCheck::fail : GoldenCheck::pass, fault.value_or("")});
  }
}

std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

void verify_python(const fs::path& folder, const GoldenVerifyOptions& options, VerifyReport& report) {
  const std::string what = "generate.py --check";
  const auto skip = [&](const std::string& why) { report.items.push_back({what, GoldenCheck::skipped, why}); };
  const auto fail = [&](const std::string& why) { report.items.push_back({what, GoldenCheck::fail, why}); };
  if (options.python.empty()) return skip("no Python environment was named");
  const ChildLimits limits{options.python_deadline, std::size_t{64} << 20};
  const std::string python = options.python.string();
  const ChildResult probe = run_child({python, "-c", "import numpy, ml_dtypes, h5py, yaml"}, -1, limits);
  if (probe.end == ChildResult::End::not_started) return skip("'" + python + "' " + probe.how(limits));
  if (!probe.ok()) return skip("'" + python + "' lacks a package: " + last_line(probe.err));
  const fs::path generator = options.generator.empty() ? folder / "generate.py" : options.generator;
  std::vector<std::string> argv{python, generator.string(), "--check", "--json", "--golden", folder.string()};
  if (!options.cases.empty()) argv.insert(argv.end(), {"--cases", options.cases.string()});
  argv.insert(argv.end(), options.layouts.begin(), options.layouts.end());
  const ChildResult run = run_child(argv, -1, limits);
  if (run.end != ChildResult::End::exited) return fail(generator.string() + " " + run.how(limits));
  const auto doc = nlohmann::json::parse(run.out, nullptr, false);
  if (!doc.is_object() || !doc.contains("files")) return fail(generator.string() + " failed: " + last_line(run.err));
  std::size_t faults = 0;
  for (const auto& [layout, lines] : doc["files"].items())
    for (const auto& line : lines) fail(line.get<std::string>()), ++faults;
  for (const auto& layout : doc.value("missing", nlohmann::json::array())) {
    fail(layout.get<std::string>() + " has no golden file; run generate.py"), ++faults;
  }
  if (faults != 0) return;
  if (run.code != 0) return fail(generator.string() + ": exit status " + std::to_string(run.code) + " without a reason");
  report.items.push_back({what, GoldenCheck::pass, ""});
}

}  // namespace

VerifyReport verify(const fs::path& folder, const GoldenVerifyOptions& options) {
  VerifyReport report;
  Manifest manifest;
  try {
    manifest = read_manifest(folder);
  } catch (const Error& fault) {
    report.items.push_back({"MANIFEST.json", GoldenCheck::fail, fault.what()});
    return report;
  }
  std::set<std::string> wanted(options.layouts.begin(), options.layouts.end());
  for (const auto& [file, entry] : manifest.files) {
    std::size_t named = 0;
    for (const std::string& layout : entry.layouts) named += wanted.erase(layout);
    if (!options.layouts.empty() && named == 0) continue;
    verify_file(folder, file, entry, options, report);
  }
  for (const std::string& layout : wanted)
    report.items.push_back({layout, GoldenCheck::fail, "has no golden file in the manifest"});
  if (options.layouts.empty()) {
    std::error_code fault;
    for (const auto& found : fs::directory_iterator(folder, fault)) {
      const std::string file = found.path().filename().string();
      if (found.path().extension() != ".h5" || manifest.files.contains(file)) continue;
      report.items.push_back(
          {file, GoldenCheck::fail, "lies in the folder but not in the manifest; remove it or run generate.py"});
    }
    if (manifest.files.empty())
      report.items.push_back({"MANIFEST.json", GoldenCheck::fail, "names no golden file; run generate.py"});
  }
  verify_python(folder, options, report);
  return report;
}

}  // namespace kvcts::golden
