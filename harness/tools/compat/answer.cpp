#include "tools/compat/answer.hpp"

#include <algorithm>
#include <map>

#include "case/catalogue/case_file.hpp"
#include "case/catalogue/case_text.hpp"
#include "case/catalogue/nearest.hpp"
#include "case/resolve/resolve.hpp"
#include "matrix/constraints.hpp"
#include "matrix/ids.hpp"
#include "tools/compat/carry_out.hpp"

namespace kvcts::compat {

using catalogue::Catalogue;
using matrix::AxisId;
using matrix::Point;

namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

/// One question: a point of the matrix, or the same with a dtype a side.
struct Question {
  Point point;
  CaseSpec spec;
  bool in_matrix{true};
};

class Checker {
 public:
  Checker(const Pair& pair, const Catalogue& catalogue)
      : pair_(pair), catalogue_(catalogue), space_(catalogue), constraints_(space_) {}

  Answer answer(const std::string& arch) {
    Answer out;
    out.arch = arch;
    Question asked = question(pair_.geometry.empty() ? fitting_geometry(arch) : pair_.geometry, arch);
    // Contracts of the past are stated by hand-written cases only: then this is one.
    if (const int rule = constraints_.check(asked.point); rule != 0 && depends_on(rule) == bit(AxisId::connector))
      write_out(asked);
    if (asked.in_matrix)
      out.id = matrix::id_of(space_, asked.point);
    else
      out.id = asked.spec.id, out.document = catalogue::readable_yaml(catalogue::to_document(asked.spec));
    if (const std::string no = backend_limit(arch, asked.point); !no.empty()) {
      out.verdict = Verdict::refused, out.by = "backend", out.text = no;
      return out;
    }
    if (const int rule = asked.in_matrix ? constraints_.check(asked.point) : 0; rule != 0 && !constraints_.refuses(rule)) {
      const auto declared = constraints_.declared(asked.point, rule);
      const bool of_connector = (depends_on(rule) & bit(AxisId::connector)) != 0;
      out.verdict = of_connector ? Verdict::ambiguous : Verdict::refused;
      out.by = of_connector ? "" : "layout";
      out.text = declared.reason;
      return out;
    }
    if (catalogue_.connectors().at(pair_.connector).kind == "program") {
      out.verdict = Verdict::ambiguous;
      out.text = "connector " + pair_.connector + " is a program: what it does is known when it is run";
      return out;
    }
    tell(carried(asked), asked, out);
    if (pair_.geometry.empty() && out.verdict < Verdict::refused) awkward_numbers(arch, out);
    return out;
  }

 private:
  Question question(const std::string& geometry, const std::string& arch) {
    const auto& p = pair_.producer;
    const auto& c = pair_.consumer;
    Question q;
    q.point = space_.origin();
    const auto set = [&](AxisId axis, const std::string& value) { at(q.point, axis) = space_.number(axis, value); };
    const std::string dtype = !p.dtype.empty() ? p.dtype : !c.dtype.empty() ? c.dtype : "bf16";
    set(AxisId::producer, p.layout);
    if (c.layout != p.layout) set(AxisId::consumer, c.layout);
    set(AxisId::dtype, dtype);
    set(AxisId::geometry, geometry);
    const auto own = catalogue_.geometries().at(geometry).block_size;
    if (p.block_size != 0 && p.block_size != own) set(AxisId::pbs, std::to_string(p.block_size));
    if (c.block_size != 0 && c.block_size != own) set(AxisId::cbs, std::to_string(c.block_size));
    if (p.block_size != 0 && c.block_size == 0 && p.block_size != own)
      set(AxisId::cbs, std::to_string(p.block_size));  // not said: as the other side
    if (c.block_size != 0 && p.block_size == 0 && c.block_size != own) set(AxisId::pbs, std::to_string(c.block_size));
    if (p.tp != 1) set(AxisId::ptp, std::to_string(p.tp));
    if (c.tp != 1) set(AxisId::ctp, std::to_string(c.tp));
    set(AxisId::connector, pair_.connector);
    if (catalogue_.connectors().at(pair_.connector).kind == "program") set(AxisId::engine, "own");
    set(AxisId::arch, arch);
    q.point = space_.canonical(q.point);
    q.spec = matrix::spec_of(space_, q.point);
    if (!p.dtype.empty() && !c.dtype.empty() && p.dtype != c.dtype) {
      write_out(q);
      q.spec.consumer.dtype = c.dtype;
    }
    return q;
  }

  /// Makes it a hand-written case.
  void write_out(Question& q) const {
    const auto& p = pair_.producer;
    const auto& c = pair_.consumer;
    const auto word = [](const Description& d) {
      return d.layout + (d.dtype.empty() ? "" : "-" + d.dtype) + (d.tp == 1 ? "" : "-tp" + std::to_string(d.tp));
    };
    q.in_matrix = false;
    q.spec.id = "check/" + pair_.connector + "/" + word(p) + "-to-" + word(c);
  }

  static std::uint32_t bit(AxisId axis) { return std::uint32_t{1} << static_cast<unsigned>(axis); }
  std::uint32_t depends_on(int rule) const { return constraints_.rules()[static_cast<std::size_t>(rule) - 1].support; }

  /// A small pool that both layouts can have; with two heads for every rank, because with one NHD and HND are the same
  /// bytes.
  std::string fitting_geometry(const std::string& arch) {
    const auto ranks = std::max(pair_.producer.tp, pair_.consumer.tp);
    const std::string first = ranks > 4 ? "gqa-16" : ranks > 2 ? "gqa-8" : "small";
    const std::vector<std::string> wanted{first,     "small",   "gqa-8",       "gqa-16",  "mla-576",
                                          "mla-512", "mla-320", "indexer-128", "block-1", "mla-576-block-64"};
    for (const auto& geometry : wanted) {
      const Question q = question(geometry, arch);
      const int rule = constraints_.check(q.point);
      // What does not depend on the numbers of the pool is no reason to try others.
      if (rule == 0 || constraints_.refuses(rule) || (depends_on(rule) & bit(AxisId::geometry)) == 0) return geometry;
    }
    return wanted.front();
  }

  /// What the attention backends themselves cannot: an architecture, a dtype, a block size. "" = nothing.
  std::string backend_limit(const std::string& arch, const Point& asked) {
    for (const auto* side : {&pair_.producer, &pair_.consumer}) {
      if (side->backend.empty()) continue;
      Point point = asked;
      at(point, AxisId::producer) = space_.number(AxisId::producer, side->backend);
      at(point, AxisId::consumer) = 0;
      at(point, AxisId::arch) = space_.number(AxisId::arch, arch);
      if (side == &pair_.consumer) at(point, AxisId::pbs) = at(asked, AxisId::cbs);
      if (!side->dtype.empty()) at(point, AxisId::dtype) = space_.number(AxisId::dtype, side->dtype);
      for (std::size_t rule = 0; rule < constraints_.rules().size(); ++rule)
        if (constraints_.rules()[rule].name == "backend" && constraints_.violates(rule, point))
          return constraints_.declared(point, static_cast<int>(rule) + 1).reason;
    }
    return "";
  }

  /// Cases that differ only in arch are one execution.
  const Carried& carried(const Question& asked) {
    const ResolvedCase resolved = resolve(asked.spec, catalogue_);
    const std::string key = digest(resolved, false);
    const auto known = carried_.find(key);
    // In this process: a run would ask the machine what it has.
    constexpr std::int64_t most = std::int64_t{4} << 30;
    if (const auto needed = memory_needed(resolved); needed > most) {
      throw Error("this pair in geometry " + asked.spec.geometry + " takes " + std::to_string(needed >> 30) +
                  " GiB of memory: expected at most 4 GiB; name a smaller --geometry");
    }
    return known != carried_.end() ? known->second : carried_.emplace(key, carry_out(resolved)).first->second;
  }

  void tell(const Carried& ran, const Question& asked, Answer& out) const {
    switch (ran.end) {
      case Carried::End::refused:
        out.verdict = Verdict::refused, out.by = "connector", out.text = ran.text;
        return;
      case Carried::End::raised:
        out.verdict = Verdict::refused, out.by = "connector", out.text = ran.text + "; an exception, not a clean refusal";
        return;
      case Carried::End::outside:
        out.verdict = Verdict::refused, out.by = "engine", out.text = ran.text;
        return;
      case Carried::End::wrong:
        out.verdict = Verdict::wrong, out.text = ran.text, out.fault_class = ran.fault_class, out.bytes = ran.bytes;
        return;
      case Carried::End::exact:
        break;
    }
    std::vector<std::string> what;
    const auto pbs = space_.block_size(asked.point, AxisId::pbs), cbs = space_.block_size(asked.point, AxisId::cbs);
    if (ran.relayout)
      what.push_back("blocks are laid out anew on the way, in pieces of down to " + std::to_string(ran.smallest) + " bytes");
    if (pbs != cbs) what.push_back("blocks of " + std::to_string(pbs) + " tokens become blocks of " + std::to_string(cbs));
    if (pair_.producer.tp != pair_.consumer.tp)
      what.push_back("the heads of " + std::to_string(pair_.producer.tp) + (pair_.producer.tp == 1 ? " rank" : " ranks") +
                     " become those of " + std::to_string(pair_.consumer.tp));
    out.verdict = what.empty() ? Verdict::compatible : Verdict::conversion;
    for (const auto& one : what) out.text += (out.text.empty() ? "" : "; ") + one;
    if (out.text.empty()) out.text = "every byte arrives as it is";
  }

  /// Pools whose numbers let a shape be misread: the answer may be another there.
  void awkward_numbers(const std::string& arch, Answer& out) {
    for (const auto& [geometry, words] : {std::pair{"nb-2-one", "with 2 blocks in the pool"},
                                          {"heads-eq-block", "with as many heads as tokens in a block"},
                                          {"heads-1", "with one KV head"}}) {
      const Question q = question(geometry, arch);
      if (!q.in_matrix) continue;
      const int rule = constraints_.check(q.point);
      if (rule != 0 && !constraints_.refuses(rule)) continue;
      Answer there;
      tell(carried(q), q, there);
      if (there.verdict > out.verdict && there.verdict != Verdict::conversion)
        out.others.push_back(std::string(words) + ": " + std::string(name(there.verdict)) + ", " + there.text + " (" +
                             matrix::id_of(space_, q.point) + ")");
    }
  }

  const Pair& pair_;
  const Catalogue& catalogue_;
  matrix::Space space_;
  matrix::Constraints constraints_;
  std::map<std::string, Carried> carried_;
};

}  // namespace

std::string_view name(Verdict verdict) {
  static constexpr std::array<std::string_view, 5> names{"compatible", "compatible with conversion", "ambiguous", "refused",
                                                         "silently wrong"};
  return names[static_cast<std::size_t>(verdict)];
}

int exit_status(Verdict verdict) {
  static constexpr std::array<int, 5> statuses{0, 10, 13, 11, 12};
  return statuses[static_cast<std::size_t>(verdict)];
}

std::string find_connector(const std::string& text, const Description& producer, const Catalogue& catalogue) {
  std::vector<std::string> plans;
  for (const auto& [id, entry] : catalogue.connectors())
    if (entry.kind != "explicit" && entry.kind != "none") plans.push_back(id);
  if (std::find(plans.begin(), plans.end(), text) != plans.end()) return text;
  if (catalogue.connectors().contains(text))
    throw Error("connector " + text + " makes no plan: a pair can be checked with " + plans.front() + ", ...");
  std::vector<std::string> of_system, named;
  for (const auto& id : plans) {
    if (id.find(lower(text)) == std::string::npos) continue;
    named.push_back(id);
    if (!producer.system.empty() && id.starts_with(lower(producer.system) + "-")) of_system.push_back(id);
  }
  if (of_system.size() == 1) return of_system.front();
  if (named.size() == 1) return named.front();
  if (!named.empty()) {
    std::string all;
    for (const auto& id : named) all += (all.empty() ? "" : ", ") + id;
    throw Error("expected one connector, found several that are called " + text + ": " + all);
  }
  throw Error("expected a connector of the catalogue, found '" + text + "'" + catalogue::suggestion(text, plans));
}

std::vector<Answer> check(const Pair& pair, const std::vector<std::string>& archs, const Catalogue& catalogue) {
  Checker checker(pair, catalogue);
  std::vector<Answer> out;
  for (const auto& arch : archs) out.push_back(checker.answer(arch));
  return out;
}

}  // namespace kvcts::compat
