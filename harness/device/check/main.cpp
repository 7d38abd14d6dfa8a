// kvcts-gpu-check: the suite's kernels and memory kinds on one device, without a supervisor. Writes one JSON
// document.
//
// Exit status: 0 all passed or were skipped with a reason (without a device everything is), 1 something is wrong, 2
// usage.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <fstream>

#include "device/check/checks.hpp"
#include "process/installation.hpp"

namespace kvcts::device::checks {

std::span<const DeviceCheck> all() {
  static constexpr DeviceCheck table[] = {
      {"canary", "the device computes", canary},
      {"peers", "devices that reach each other", peers},
      {"neighbours", "two processes, one of which hangs", neighbours},
      {"goldens", "golden tensors by device kernels", goldens},
      {"memory", "every kind of memory", memory_kinds},
      {"far", "offsets beyond 4 GiB", far_offsets},
      {"conversions", "conversions between dtypes", conversions},
      {"relayouts", "relayout between layouts", relayouts},
      {"speed", "kernels compared with the driver's own", speed},
  };
  return table;
}

}  // namespace kvcts::device::checks

namespace {

using namespace kvcts::device;
using nlohmann::json;

json facts_json(const Facts& facts, const Driver& driver) {
  return {{"name", facts.name},
          {"arch", facts.arch},
          {"uuid", facts.uuid},
          {"memory_bytes", facts.memory_bytes},
          {"multiprocessors", facts.multiprocessors},
          {"virtual_memory", facts.virtual_memory},
          {"memory_pools", facts.memory_pools},
          {"cuda", std::to_string(driver.version / 1000) + "." + std::to_string(driver.version % 1000 / 10)},
          {"evidence", facts.modelled ? "modelled" : "executed"}};
}

json run(checks::DeviceBench& bench, const checks::DeviceCheck& check) {
  const auto begin = std::chrono::steady_clock::now();
  json out{{"check", check.name}, {"title", check.title}};
  bench.numbers = json::object();
  const auto end = [&](const char* outcome, const std::string& text) {
    out["outcome"] = outcome;
    out["text"] = text;
  };
  try {
    end("pass", check.run(bench));
  } catch (const checks::Skip& skip) {
    end("skipped", skip.what());
  } catch (const Error& error) {
    // Insufficient memory is the machine's fault; anything else is wrong.
    end(error.status == status::out_of_memory || error.status == status::not_supported ? "skipped" : "fail", error.text);
  } catch (const std::exception& error) {
    end("fail", error.what());
  }
  out["numbers"] = bench.numbers;
  out["ms"] = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  std::printf("%-8s %-12s %s\n", out["outcome"].get<std::string>().c_str(), check.name,
              out["text"].get<std::string>().c_str());
  std::fflush(stdout);
  return out;
}

void save(const std::string& path, const json& document) {
  if (path.empty()) return;
  std::ofstream out(path);
  out << document.dump(2) << '\n';
  if (!out) std::fprintf(stderr, "kvcts-gpu-check: %s cannot be written\n", path.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"checks the suite's device kernels and every kind of device memory on one GPU"};
  std::string golden, file, only, role;
  int ordinal = 0;
  std::uint64_t mebibytes = 1024;
  app.add_option("--golden", golden, "folder of golden tensors (default: next to the program)");
  app.add_option("--json", file, "where the document goes");
  app.add_option("--device", ordinal, "device ordinal");
  app.add_option("--only", only, "run only the check of this name");
  app.add_option("--mib", mebibytes, "size of the measured buffers");
  app.add_option("--as", role, "role of a second process")->group("");
  CLI11_PARSE(app, argc, argv);
  if (golden.empty()) {
    std::error_code none;
    const auto beside = kvcts::process::golden_folder();
    if (std::filesystem::is_directory(beside, none)) golden = beside.string();
  }
  if (!only.empty() &&
      std::none_of(checks::all().begin(), checks::all().end(), [&](const auto& c) { return only == c.name; })) {
    std::fprintf(stderr, "kvcts-gpu-check: --only expects the name of a check, found '%s'\n", only.c_str());
    return 2;
  }

  json document{{"kvcts_gpu_check", 1}, {"checks", json::array()}};
  std::string reason;
  const Driver* found = driver(reason);
  if (found == nullptr) {
    std::printf("SKIPPED: %s\n", reason.c_str());
    document["skipped"] = reason;
    save(file, document);
    return 0;
  }
  bool wrong = false;
  try {
    Gpu gpu(*found, ordinal);
    document["device"] = facts_json(gpu.facts(), *found);
    std::printf("%s, %s, CUDA %s, %s\n", gpu.facts().name.c_str(), gpu.facts().arch.c_str(),
                document["device"]["cuda"].get<std::string>().c_str(),
                document["device"]["evidence"].get<std::string>().c_str());
    if (!role.empty()) return checks::act_as(role, gpu);
    OwnStream stream(gpu);
    checks::DeviceBench bench{gpu, stream, golden, ordinal, std::min<std::uint64_t>(mebibytes << 20, gpu.free_bytes() / 4),
                              {}};
    document["device"]["free_bytes"] = gpu.free_bytes();
    for (const auto& check : checks::all()) {
      if (!only.empty() && only != check.name) continue;
      document["checks"].push_back(run(bench, check));
      wrong = wrong || document["checks"].back()["outcome"] == "fail";
      save(file, document);  // keep partial results if the next check hangs the device
    }
  } catch (const Error& error) {
    std::printf("fail: %s\n", error.text.c_str());
    document["failed"] = error.text;
    save(file, document);
    return 1;
  }
  std::printf("%s\n", wrong ? "something is wrong: see the failed checks above" : "all well");
  return wrong ? 1 : 0;
}
