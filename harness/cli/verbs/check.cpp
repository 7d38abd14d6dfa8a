// kvcts check: predicts whether a pair of caches fits through a connector on some architectures, before anything moves.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "case/resolve/resolve.hpp"
#include "cli/drawing.hpp"
#include "cli/report/repro.hpp"
#include "cli/report/text.hpp"
#include "cli/verbs/verbs.hpp"
#include "layout/template.hpp"
#include "tools/compat/answer.hpp"

namespace kvcts::cli::check_verb {
namespace {

using namespace compat;
using catalogue::Catalogue;

struct Options {
  std::string producer, consumer, connector{"reference"}, archs{"cpu"}, geometry, case_file;
};

/// "sm90,sm_75" -> ids of the catalogue.
std::vector<std::string> archs_of(const std::string& text, const Catalogue& cat) {
  std::vector<std::string> out;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    if (word.starts_with("sm") && !word.starts_with("sm_")) word.insert(2, "_");
    cat.archs().at(word);
    out.push_back(word);
  }
  if (out.empty()) throw UsageError("--arch expects architectures, such as sm_90,sm_75");
  return out;
}

nlohmann::json side_json(const Description& d) {
  return {{"said", d.written}, {"backend", d.backend},       {"layout", d.layout}, {"dtype", d.dtype},
          {"tp", d.tp},        {"block_size", d.block_size}, {"note", d.note}};
}

nlohmann::json answer_json(const Answer& a) {
  nlohmann::json out{
      {"arch", a.arch}, {"verdict", name(a.verdict)}, {"exit_status", exit_status(a.verdict)}, {"text", a.text},
      {"case", a.id},   {"others", a.others}};
  if (!a.by.empty()) out["by"] = a.by;
  if (a.fault_class != FaultClass::none) out["class"] = a.fault_class, out["bytes"] = a.bytes;
  if (!a.document.empty()) out["case_document"] = a.document;
  return out;
}

void print_side(const char* role, const Description& d, const Catalogue& cat) {
  fmt::print("{:<10} {}\n", role, d.written);
  fmt::print("           {}: {}{}\n", d.layout, cat.layouts().at(d.layout).text, d.note.empty() ? "" : "; " + d.note);
}

/// The loops of both sides, so that one sees what is in which order.
void draw(const Description& d, const Catalogue& cat) {
  const auto& entry = cat.layouts().at(d.layout);
  layout::Geometry g = catalogue::geometry_of(
      cat.geometries().at(entry.fixed.contains("kv") && entry.fixed.at("kv") == 1 ? "mla-576" : "small"));
  const auto scheme = catalogue::scheme_of(cat.dtypes().at(d.dtype.empty() ? "bf16" : d.dtype));
  try {
    const auto cache = layout::instantiate(entry.text, g, scheme, entry.tensors);
    fmt::print("           {}, one {}:\n", d.layout, cache.allocations.front().name);
    std::istringstream lines(draw_modes(cache.planes.front()));
    for (std::string line; std::getline(lines, line);) fmt::print("             {}\n", line);
  } catch (const layout::Error&) {
    // A layout that needs other numbers is not drawn.
  }
}

std::vector<Answer> ask(const Options& o, const Catalogue& cat, Pair& pair) {
  try {
    const auto archs = archs_of(o.archs, cat);
    pair.producer = describe(o.producer, cat);
    pair.consumer = describe(o.consumer, cat);
    pair.connector = find_connector(o.connector, pair.producer, cat);
    pair.geometry = o.geometry;
    if (!o.geometry.empty()) cat.geometries().at(o.geometry);
    return check(pair, archs, cat);
  } catch (const Ambiguous& open) {
    Answer a;
    a.verdict = compat::Verdict::ambiguous, a.text = open.what(), a.others = open.choices;
    return {a};
  } catch (const compat::Error& e) {
    throw UsageError(e.what());
  }
}

void write_case(const Answer& worst, const std::string& path, const Globals& globals) {
  if (worst.id.empty()) throw UsageError("--case-file: there is no case behind an ambiguous description");
  std::ofstream file(path, std::ios::binary);
  file << worst.document;
  file.close();
  if (!file || worst.document.empty())
    throw UsageError(worst.document.empty()
                         ? "--case-file: this case needs no file: " + report::repro_here(globals.cases).line(worst.id)
                         : path + " cannot be written");
}

void print_answers(const Pair& pair, const std::vector<Answer>& answers, compat::Verdict worst, const Catalogue& cat,
                   const report::Repro& repro) {
  if (!pair.producer.layout.empty() && !pair.consumer.layout.empty()) {
    print_side("producer", pair.producer, cat);
    print_side("consumer", pair.consumer, cat);
    fmt::print("connector  {}: {}\n\n", pair.connector, cat.connectors().at(pair.connector).title);
  }
  for (const auto& a : answers) {
    fmt::print("{:<10} {}{}: {}\n", a.arch.empty() ? "answer" : a.arch, name(a.verdict),
               a.by.empty() ? "" : " by the " + a.by, report::visible(a.text));
    for (const auto& line : a.bytes) fmt::print("             {}\n", line);
    for (const auto& line : a.others) fmt::print("           {}{}\n", a.id.empty() ? "could be " : "", line);
    if (!a.document.empty())
      fmt::print("           run it: kvcts check ... --case-file FILE, then kvcts run --file FILE\n");
    else if (!a.id.empty())
      fmt::print("           run it: {}\n", repro.line(a.id));
  }
  if (worst == compat::Verdict::wrong) {
    fmt::print("\n");
    draw(pair.producer, cat);
    draw(pair.consumer, cat);
  }
}

int run(const Options& o, const Globals& globals) {
  const auto begin = std::chrono::steady_clock::now();
  const Catalogue cat(catalogue::find_cases(globals.cases));
  Pair pair;
  const std::vector<Answer> answers = ask(o, cat, pair);
  const auto worst =
      std::max_element(answers.begin(), answers.end(), [](const auto& a, const auto& b) { return a.verdict < b.verdict; });
  if (!o.case_file.empty()) write_case(*worst, o.case_file, globals);
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  if (globals.json) {
    nlohmann::json list = nlohmann::json::array();
    for (const auto& a : answers) list.push_back(answer_json(a));
    fmt::print("{}\n", nlohmann::json{{"producer", side_json(pair.producer)},
                                      {"consumer", side_json(pair.consumer)},
                                      {"connector", pair.connector},
                                      {"verdict", name(worst->verdict)},
                                      {"exit_status", exit_status(worst->verdict)},
                                      {"answers", list},
                                      {"ms", ms}}
                           .dump(2));
    return exit_status(worst->verdict);
  }
  print_answers(pair, answers, worst->verdict, cat, report::repro_here(globals.cases));
  fmt::print("\n{}\n", name(worst->verdict));
  return exit_status(worst->verdict);
}

}  // namespace

Action declare(Command& command, const Globals& globals) {
  auto o = std::make_shared<Options>();
  command
      .add_option("--producer", o->producer,
                  "The side that fills its cache: SYSTEM-VERSION:BACKEND[:SETTING][:DTYPE][:tpN][:bsN], a layout or backend "
                  "of the catalogue, or a JSON file")
      .required();
  command.add_option("--consumer", o->consumer, "The other side, in the same form").required();
  command.add_option("--connector", o->connector, "Connector of the catalogue, or a short name (nixl, mooncake)")
      .show_default();
  command.add_option("--arch", o->archs, "GPU architectures, comma-separated").show_default();
  command.add_option("--geometry", o->geometry,
                     "Geometry: sizes of the model and its pool (default: a small one that suits both layouts)");
  command
      .add_option("--case-file", o->case_file,
                  "Write the case behind the answer into this file, if the matrix has no id for it")
      .type_name("YAML");
  return [=, &globals] { return run(*o, globals); };
}

}  // namespace kvcts::cli::check_verb
