// kvcts golden list | verify | show: the golden tensors, as values.
#include "golden/golden.hpp"

#include <fmt/format.h>

#include <memory>

#include "case/catalogue/catalogue.hpp"
#include "cli/verbs/verbs.hpp"
#include "golden/verify.hpp"
#include "process/installation.hpp"

namespace kvcts::cli::golden_verb {
namespace {

using namespace golden;

struct Options {
  std::string folder, layout, dtype;
  std::vector<std::string> layouts;
  bool no_python{false};
  int rows{8};
};

std::filesystem::path folder_of(const Options& o) {
  return o.folder.empty() ? process::golden_folder() : std::filesystem::path(o.folder);
}

/// Golden files are the user's: what is wrong with them is one clear line and exit_usage.
template <class Function>
auto reading(Function&& function) {
  try {
    return function();
  } catch (const golden::Error& e) {
    throw UsageError(e.what());
  }
}

int list_tensors(const Options& o, const Globals& globals) {
  const auto entries = reading([&] { return golden::list(folder_of(o)); });
  if (globals.json) {
    nlohmann::json all = nlohmann::json::array();
    for (const auto& e : entries)
      all.push_back({{"layout", e.layout}, {"dtype", e.dtype}, {"template", e.template_text}, {"file", e.file}});
    fmt::print("{}\n", all.dump(2));
    return exit_as_expected;
  }
  std::string layout;
  for (const auto& e : entries) {
    if (e.layout != layout) fmt::print("{}{:<34}", layout.empty() ? "" : "\n", layout = e.layout);
    fmt::print(" {}", e.dtype);
  }
  fmt::print("\n{} tensors\n", entries.size());
  return entries.empty() ? exit_nothing_selected : exit_as_expected;
}

int verify_tensors(const Options& o, const Globals& globals) {
  GoldenVerifyOptions options;
  options.layouts = o.layouts;
  options.cases = catalogue::find_cases(globals.cases);
  if (!o.no_python) options.python = process::find_python();
  const VerifyReport report = verify(folder_of(o), options);
  if (globals.json) {
    nlohmann::json items = nlohmann::json::array();
    for (const auto& i : report.items) items.push_back({{"what", i.what}, {"check", name(i.check)}, {"detail", i.detail}});
    fmt::print("{}\n", nlohmann::json{{"ok", report.ok()}, {"items", items}}.dump(2));
  } else {
    for (const auto& i : report.items)
      if (i.check != GoldenCheck::pass) fmt::print("{} {}: {}\n", name(i.check), i.what, i.detail);
    fmt::print("{} checks passed, {} failed, {} skipped\n", report.count(GoldenCheck::pass), report.count(GoldenCheck::fail),
               report.count(GoldenCheck::skipped));
  }
  return report.ok() ? exit_as_expected : exit_unexpected;
}

std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

int show_tensor(const Options& o, const Globals& globals) {
  const GoldenTensor t = reading([&] { return load(folder_of(o), o.layout, o.dtype); });
  const auto& g = t.geometry;
  if (globals.json) {
    nlohmann::json out{{"layout", t.layout},          {"dtype", t.dtype}, {"template", t.template_text},
                       {"geometry", t.geometry_name}, {"seed", t.seed},   {"tokens", t.tokens},
                       {"block_table", t.block_table}};
    for (const auto& a : t.allocations) out["allocations"].push_back({{"name", a.name}, {"bytes", a.bytes.size()}});
    for (const auto& p : t.planes)
      out["planes"].push_back(
          {{"text", p.text}, {"component", p.component}, {"dtype", p.dtype}, {"shape", p.shape}, {"tags", p.tags}});
    fmt::print("{}\n", out.dump(2));
    return exit_as_expected;
  }
  fmt::print("{} {}: {}\n", t.layout, t.dtype, t.template_text);
  fmt::print("geometry {}: {} layers, {} blocks of {} tokens, {} heads, head_dim {}; {} tokens in blocks {}\n",
             t.geometry_name, g.layers, g.blocks, g.block_size, g.heads, g.head_dim, t.tokens,
             fmt::join(t.block_table, " "));
  for (const auto& a : t.allocations) fmt::print("allocation {} {} bytes\n", a.name, a.bytes.size());
  for (const auto& p : t.planes) {
    fmt::print("{} {}: written {} of pool {}\n", p.component, p.dtype, shape_text(p.shape), shape_text(p.pool_shape));
    const int digits = (p.bits + 3) / 4;
    for (std::size_t i = 0; i < std::min<std::size_t>(static_cast<std::size_t>(o.rows), p.records.size()); ++i) {
      const Record& r = p.records[i];
      fmt::print("  layer {} kv {} token {} (block {} slot {}) head {} channel {}  0x{:0{}x}\n", r.layer, r.kv, r.token,
                 r.block, r.slot, r.head, r.channel, p.tags[i], digits);
    }
  }
  return exit_as_expected;
}

}  // namespace

Action declare(Command& command, const Globals& globals) {
  auto options = std::make_shared<Options>();
  auto action = std::make_shared<Action>();
  command.add_option("--folder", options->folder, "Folder of the golden files (default: beside the program)")
      .type_name("DIR");
  const auto add = [&](const char* name, const char* help, int (*function)(const Options&, const Globals&)) {
    return command.add_command(name, help,
                               [=, &globals] { *action = [=, &globals] { return function(*options, globals); }; });
  };
  add("list", "List every golden tensor: layout and dtype", list_tensors);
  Command check =
      add("verify", "Verify manifest, digests and fresh NumPy content against the C++ bytes, bit for bit", verify_tensors);
  check.add_option("LAYOUT", options->layouts, "Verify only these layouts");
  check.add_flag("--no-python", options->no_python, "Skip the fresh NumPy content");
  Command show = add("show", "Show one tensor: which element is where, and its tags", show_tensor);
  show.add_option("LAYOUT", options->layout, "Layout id").required();
  show.add_option("DTYPE", options->dtype, "Cache dtype").required();
  show.add_option("--rows", options->rows, "Number of elements of each plane to show").show_default().range(0, 1000000);
  return [action] { return (*action)(); };
}

}  // namespace kvcts::cli::golden_verb
