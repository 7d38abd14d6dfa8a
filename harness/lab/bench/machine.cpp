#include "lab/bench/machine.hpp"

#include <sys/utsname.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <string>

#include "kernels/isa.hpp"
#include "kernels/parallel.hpp"

namespace kvcts::bench {
namespace {

std::string cpu_model() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
}

std::string now() {
  const std::time_t t = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&t, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

}  // namespace

nlohmann::json machine() {
  utsname name{};
  uname(&name);
  double load = 0;
  getloadavg(&load, 1);
  const double gib = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 30);
  return {{"cpu", cpu_model()},
          {"processors", kernels::processors()},
          {"memory_gib", std::round(gib * 10) / 10},
          {"os", std::string(name.sysname) + " " + name.release + " " + name.machine},
          {"compiler", __VERSION__},
          {"isa", kernels::best_isa().name},
          {"load", std::round(load * 100) / 100},
          {"date", now()}};
}

}  // namespace kvcts::bench
