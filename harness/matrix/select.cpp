#include "matrix/select.hpp"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <queue>
#include <set>
#include <tuple>
#include <unordered_map>

#include "case/catalogue/case_file.hpp"
#include "case/catalogue/nearest.hpp"
#include "layout/dtype.hpp"
#include "matrix/ids.hpp"

namespace kvcts::matrix {

using nlohmann::json;
namespace fs = std::filesystem;

struct Selection::State {
  explicit State(const Catalogue& catalogue) : space(catalogue) {}

  // A case is a point of the matrix or a hand-written spec.
  struct Item {
    bool written{false};
    std::uint32_t index{0};  ///< into points or specs
    std::uint16_t suite{0};  ///< into suites
  };
  Space space;
  std::unique_ptr<Constraints> constraints;
  std::vector<Point> points;
  std::vector<int> constraint;  ///< of points
  std::vector<CaseSpec> specs;
  std::vector<const catalogue::SuiteEntry*> suites{nullptr};
  std::vector<Item> items;
  CoverReport cover;
  std::vector<std::pair<std::string, CoverReport>> suite_covers;
  std::int64_t considered{0}, left_out{0};
  std::int64_t whole{0};             ///< before the shard step; 0 = none
  std::uint64_t cut{0};              ///< digest of a cut by time
  std::vector<std::int64_t> places;  ///< positions of the items among those
  std::string why_empty;

  std::string id(const Item& item) const { return item.written ? specs[item.index].id : id_of(space, points[item.index]); }
};

namespace {

using State = Selection::State;
using Item = State::Item;

// Points seen so far, as indices into a vector of them: open addressing, because a selection may hold a million.
class PointSet {
 public:
  explicit PointSet(const std::vector<Point>& points) : points_(points) {}
  /// Is the point new? If so it must become points[points.size()] next.
  bool insert(const Point& point) {
    if (2 * (count_ + 1) > slots_.size()) grow();
    std::size_t i = place(point);
    for (; slots_[i] != 0; i = (i + 1) & (slots_.size() - 1)) {
      if (points_[slots_[i] - 1] == point) return false;
    }
    slots_[i] = static_cast<std::uint32_t>(points_.size() + 1);
    ++count_;
    return true;
  }

 private:
  std::size_t place(const Point& point) const { return XXH3_64bits(point.data(), sizeof(point)) & (slots_.size() - 1); }
  void grow() {
    slots_.assign(slots_.empty() ? 1024 : 2 * slots_.size(), 0);
    for (std::size_t n = 0; n < count_; ++n) {
      std::size_t i = place(points_[n]);
      while (slots_[i] != 0) i = (i + 1) & (slots_.size() - 1);
      slots_[i] = static_cast<std::uint32_t>(n + 1);
    }
  }
  const std::vector<Point>& points_;
  std::vector<std::uint32_t> slots_;
  std::size_t count_{0};
};

bool is_glob(std::string_view text) { return text.find_first_of("*?[") != std::string_view::npos; }

// Fills a state with the cases of suites, files and literal ids; later steps only remove.
class Gatherer {
 public:
  /// `draws`: only stores the suites' matrix blocks, for draw().
  Gatherer(State& state, bool draws) : state_(state), catalogue_(state.space.catalogue()), draws_(draws) {}

  void add_suite(const std::string& name) {
    const auto& suite = catalogue_.suites().at(name);
    if (std::find(open_.begin(), open_.end(), name) != open_.end()) {
      throw Error(suite.file + ":1: expected suites that do not include one another in a ring, found '" + name +
                  "' again; remove an include");
    }
    if (!done_.insert(name).second) return;
    open_.push_back(name);
    for (const auto& other : suite.include) add_suite(other);
    open_.pop_back();
    suite_ = static_cast<std::uint16_t>(state_.suites.size());
    state_.suites.push_back(&suite);
    for (const auto& glob : draws_ ? std::vector<std::string>() : suite.files) add_files(suite, glob);
    for (std::size_t i = 0; i < suite.matrix.size(); ++i) {
      const std::string where_from = suite.file + ":1: suite '" + name + "', matrix block " + std::to_string(i + 1);
      EnumerationBlock block = resolve_block(state_.space, suite.matrix[i], where_from);
      if (draws_)
        blocks_.push_back(std::move(block)), suite_of_block_.push_back(suite_);
      else
        add_block(block, name, i);
    }
    suite_ = 0;
  }

  void add_file(const fs::path& path, const std::string& shown, const std::vector<std::string>& ids = {}) {
    for (auto& spec : catalogue::read_case_file(path, shown, &catalogue_)) {
      const std::string base = spec.id.substr(0, spec.id.find('#'));
      const bool meant = ids.empty() || std::any_of(ids.begin(), ids.end(),
                                                    [&](const auto& glob) { return catalogue::matches_glob(glob, base); });
      if (meant) add_spec(std::move(spec));
    }
  }

  /// False: already present.
  bool add_point(const Point& point, int constraint) {
    if (!seen_points_.insert(point)) return false;
    state_.items.push_back({false, static_cast<std::uint32_t>(state_.points.size()), suite_});
    state_.points.push_back(point);
    state_.constraint.push_back(constraint);
    return true;
  }

  /// Random points of the blocks of all added suites.
  void draw(std::int64_t n, std::uint64_t seed, const Expression* where) {
    if (blocks_.empty())
      throw Error("expected a suite with matrix blocks to draw from, found none; name another --suite, or leave out --draw");
    draw_points(state_.space, *state_.constraints, blocks_, seed, n, [&](std::size_t block, const Point& point) {
      suite_ = suite_of_block_[block];
      return (where == nullptr || (*where)(point, where->uses_id() ? id_of(state_.space, point) : std::string())) &&
             add_point(point, 0);
    });
    suite_ = 0;
  }

  /// Only these, in their order.
  void add_part(const Part& part, const std::vector<fs::path>& files) {
    std::map<std::string, std::uint16_t> suites{{"", std::uint16_t{0}}};
    std::unordered_map<std::string, Item> written;
    const auto written_item = [&](const std::string& id) {
      if (const auto found = written.find(id); found != written.end()) return found->second;
      const auto& suite = state_.suites[suite_];
      for (const auto& glob : suite ? suite->files : std::vector<std::string>()) add_files(*suite, glob);
      for (const auto& file : suite ? std::vector<fs::path>() : files) add_file(file, "");
      if (!suite && !seen_ids_.contains(id)) add_written(id);
      for (const Item& item : state_.items)
        if (item.written) written.emplace(state_.id(item), item);
      return written.at(id);
    };
    std::vector<Item> items;
    for (const auto& [place, suite, id] : part.cases) {
      const auto [at, fresh] = suites.try_emplace(suite, static_cast<std::uint16_t>(state_.suites.size()));
      if (fresh) state_.suites.push_back(&catalogue_.suites().at(suite));
      suite_ = at->second;
      if (is_matrix_id(id))
        add_id(id), items.push_back(state_.items.back());
      else
        items.push_back(written_item(id)), items.back().suite = suite_;
      state_.places.push_back(place);
    }
    state_.items = std::move(items);
    state_.whole = part.whole, state_.cut = part.cut;
  }

  /// A case whose whole id is written out.
  void add_id(const std::string& id) {
    if (!is_matrix_id(id)) return add_written(id);
    const Point point = point_from_id(state_.space, id);
    add_point(point, state_.constraints->check(point));
  }

 private:
  // An id of a case file, found in any folder of case files.
  void add_written(const std::string& id) {
    const std::string base = id.substr(0, id.find('#'));
    std::vector<std::string> known;
    for (const auto& [path, shown] : all_case_files()) {
      auto specs = catalogue::read_case_file(path, shown, &catalogue_);
      for (auto& spec : specs) {
        if (spec.id == id) return add_spec(std::move(spec));
        known.push_back(spec.id);
      }
    }
    throw Error("expected the id of a case, found '" + id.substr(0, 200) + "'" + catalogue::suggestion(id, known));
  }

  void add_spec(CaseSpec spec) {
    const auto [it, fresh] = seen_ids_.emplace(spec.id, spec.declared_by);
    if (!fresh) {
      if (it->second == spec.declared_by) return;  // the same file through another path
      throw Error(spec.declared_by + ":1: expected a new case id, found '" + spec.id + "' again (first in " + it->second +
                  "); rename one of them");
    }
    state_.items.push_back({true, static_cast<std::uint32_t>(state_.specs.size()), suite_});
    state_.specs.push_back(std::move(spec));
  }

  void add_files(const catalogue::SuiteEntry& suite, const std::string& glob) {
    const fs::path pattern(glob);
    if (pattern.is_absolute() || glob.find("..") != std::string::npos) {
      throw Error(suite.file + ":1: key 'files': expected a glob below cases/, found '" + glob + "'; write folder/*.yaml");
    }
    for (const auto& path : catalogue::yaml_files(catalogue_.directory() / pattern.parent_path())) {
      const std::string shown = (pattern.parent_path() / path.filename()).string();
      if (catalogue::matches_glob(glob, shown)) add_file(path, "cases/" + shown, suite.ids);
    }
  }

  // Folders with case files: those that suites name.
  std::vector<std::pair<fs::path, std::string>> all_case_files() const {
    std::vector<std::pair<fs::path, std::string>> out;
    std::set<std::string> folders;
    for (const auto& [name, suite] : catalogue_.suites()) {
      for (const auto& glob : suite.files) folders.insert(fs::path(glob).parent_path().string());
    }
    for (const auto& folder : folders) {
      for (const auto& path : catalogue::yaml_files(catalogue_.directory() / folder)) {
        out.emplace_back(path, "cases/" + folder + "/" + path.filename().string());
      }
    }
    return out;
  }

  void add_block(const EnumerationBlock& block, const std::string& suite, std::size_t number) {
    const std::string title = suite + ": " + (block.title.empty() ? "block " + std::to_string(number + 1) : block.title);
    std::vector<std::pair<Point, int>> points;
    if (block.cover > 0) {
      CoverReport report;
      for (const auto& point : covering_array(state_.space, *state_.constraints, block, block.cover, report))
        points.emplace_back(point, 0);
      state_.suite_covers.emplace_back(title, std::move(report));
    } else if (block.sample > 0) {
      each_point(state_.space, *state_.constraints, block,
                 [&](const Point& point, int constraint) { points.emplace_back(point, constraint); });
    } else {
      state_.points.reserve(state_.points.size() +
                            static_cast<std::size_t>(std::min<std::int64_t>(block.product(), 1 << 21)));
      each_point(state_.space, *state_.constraints, block,
                 [&](const Point& point, int constraint) { add_point(point, constraint); });
      return;
    }
    if (block.sample > 0 && points.size() > static_cast<std::size_t>(block.sample))
      sample(points, static_cast<std::size_t>(block.sample));
    for (const auto& [point, constraint] : points) add_point(point, constraint);
  }

  // The n points with the lowest id hashes, in their old order: stable when other points come and go.
  void sample(std::vector<std::pair<Point, int>>& points, std::size_t n) const {
    std::vector<std::pair<std::uint64_t, std::size_t>> order;
    for (std::size_t i = 0; i < points.size(); ++i) order.emplace_back(id_hash(id_of(state_.space, points[i].first)), i);
    std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(n), order.end());
    order.resize(n);
    std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    std::vector<std::pair<Point, int>> kept;
    for (const auto& [hash, i] : order) kept.push_back(points[i]);
    points = std::move(kept);
  }

  State& state_;
  const Catalogue& catalogue_;
  const bool draws_;
  std::vector<EnumerationBlock> blocks_;  ///< to draw from
  std::vector<std::uint16_t> suite_of_block_;
  std::uint16_t suite_{0};
  std::vector<std::string> open_;
  std::set<std::string> done_;
  PointSet seen_points_{state_.points};
  std::map<std::string, std::string> seen_ids_;
};

// ---- the steps that remove -----------------------------------------------------------------------------------------

using Keep = std::function<bool(const Item&)>;

Keep by_id(const State& state, std::vector<std::string> patterns) {
  // Also match an id that is not in canonical form.
  for (auto& pattern : patterns) {
    if (!is_glob(pattern) && is_matrix_id(pattern)) {
      pattern = id_of(state.space, point_from_id(const_cast<Space&>(state.space), pattern));
    }
  }
  return [&state, patterns](const Item& item) {
    const std::string id = state.id(item);
    return std::any_of(patterns.begin(), patterns.end(),
                       [&](const auto& p) { return p == id || catalogue::matches_glob(p, id); });
  };
}

Keep by_expression(State& state, std::shared_ptr<const Expression> where) {
  return [&state, where](const Item& item) {
    const std::string id = item.written || where->uses_id() ? state.id(item) : std::string{};
    if (!item.written) return (*where)(state.points[item.index], id);
    return where->evaluate(lookup_of(state.space, axes_of(state.specs[item.index])), id);
  };
}

Keep by_failed(const State& state, const Failed& failed) {
  return [&state, ids = std::set<std::string>(failed.ids.begin(), failed.ids.end())](const Item& item) {
    return ids.contains(state.id(item));
  };
}

/// What failed and is not there yet, e.g. because it was drawn.
void add_failed(const State& state, Gatherer& gatherer, const Failed& failed) {
  std::set<std::string> missing(failed.ids.begin(), failed.ids.end());
  for (const Item& item : state.items) missing.erase(state.id(item));
  for (const std::string& id : missing) {
    try {
      gatherer.add_id(id);
    } catch (const Error& e) {
      throw Error("'" + id.substr(0, 200) + "' failed in " + failed.run +
                  ", but the catalogue no longer has it: " + e.what());
    }
  }
}

/// Cases that differ only in arch share one execution, so they are in one shard.
std::string without_arch(std::string id) {
  if (const auto arch = id.find("/arch="); arch != std::string::npos) id.erase(arch, id.find('/', arch + 1) - arch);
  return id;
}

void throw_if_empty(State& state, std::size_t before, const std::string& step) {
  if (state.items.empty() && before > 0 && state.why_empty.empty()) {
    state.why_empty =
        step + " removed the last " + std::to_string(before) + " of " + std::to_string(state.considered) + " cases";
  }
}

void narrow(State& state, const Keep& keep, const std::string& step) {
  const std::size_t before = state.items.size();
  std::erase_if(state.items, [&](const Item& item) { return !keep(item); });
  throw_if_empty(state, before, step);
}

void cover_items(State& state, int strength) {
  std::vector<Point> points;
  std::vector<int> constraint;
  std::vector<std::size_t> item_of;
  for (std::size_t i = 0; i < state.items.size(); ++i) {
    if (state.items[i].written) continue;
    points.push_back(state.points[state.items[i].index]);
    constraint.push_back(state.constraint[state.items[i].index]);
    item_of.push_back(i);
  }
  std::vector<bool> kept(state.items.size(), false);
  for (const std::size_t p : covering_subset(state.space, *state.constraints, points, constraint, strength, state.cover))
    kept[item_of[p]] = true;
  std::vector<Item> items;
  for (std::size_t i = 0; i < state.items.size(); ++i) {
    if (kept[i] || state.items[i].written) items.push_back(state.items[i]);
  }
  state.items = std::move(items);
}

// Rough seconds of a case: the minimum for any (31 ms in a run of smoke), the engine's set-up, and its bytes generated,
// moved and compared at 1 GB/s.
double estimate(const State& state, const Item& item) {
  const Catalogue& catalogue = state.space.catalogue();
  const auto cost = [&](const std::string& engine, const std::string& geometry, const std::string& dtype) {
    const auto* e = catalogue.engines().find(engine);
    const auto* g = catalogue.geometries().find(geometry);
    const auto* d = catalogue.dtypes().find(dtype);
    double bytes = 0;
    if (g && d) {
      const std::int64_t v = g->v_head_dim ? g->v_head_dim : g->head_dim;
      const std::int64_t channels = g->kv == 2 ? g->head_dim + v : g->head_dim;
      bytes = static_cast<double>(g->layers * g->blocks * g->block_size * g->heads * channels) *
              static_cast<double>(layout::bits(layout::dtype_from_name(d->data))) / 8;
    }
    constexpr double any_case_ms = 25;
    return (any_case_ms + (e ? static_cast<double>(e->setup_ms) : 10.0)) * 1e-3 + 4 * bytes * 1e-9;
  };
  if (!item.written) {
    const Point& point = state.points[item.index];
    const int stopped = state.constraint[item.index];
    if (stopped > 0 && !state.constraints->refuses(stopped)) return 0;
    const auto text = [&](AxisId a) { return state.space.text(a, at(point, a)); };
    return cost(text(AxisId::engine), text(AxisId::geometry), text(AxisId::dtype));
  }
  const CaseSpec& spec = state.specs[item.index];
  double seconds = cost(spec.engine, spec.geometry, spec.dtype);
  const bool hangs =
      std::any_of(spec.expected.begin(), spec.expected.end(), [](const Expected& e) { return e.outcome == Outcome::hang; });
  if (hangs) {
    double longest = 1;
    for (const auto& [phase, ms] : spec.deadlines_ms) longest = std::max(longest, static_cast<double>(ms) * 1e-3);
    seconds += longest;
  }
  return seconds;
}

/// Cases of one shard, and what they cost.
struct Load {
  bool measured{false};
  std::int64_t ns{0};
  std::vector<std::size_t> items;
};

std::vector<Load> loads_of(const State& state, const std::vector<Item>& items, const Times& times_ns) {
  std::vector<Load> loads;
  std::unordered_map<std::string, std::size_t> load_of;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string id = state.id(items[i]);
    const auto [at, fresh] = load_of.try_emplace(without_arch(id), loads.size());
    Load& load = fresh ? loads.emplace_back() : loads[at->second];
    load.items.push_back(i);
    if (const auto time = times_ns.find(id); time != times_ns.end())
      load.ns = std::max(load.measured ? load.ns : 0, time->second), load.measured = true;
    else if (!load.measured)
      load.ns = std::max<std::int64_t>(load.ns, std::llround(estimate(state, items[i]) * 1e9));
  }
  return loads;
}

/// The shard of each item, from 0: the longest first, each to the shard with the least. What was never measured may be
/// skipped on these machines: it is dealt out by itself, so that the others are balanced without it.
std::vector<int> by_time(const State& state, const std::vector<Item>& items, int shards, const Times& times_ns) {
  constexpr std::int64_t any_ns = 5'000'000;  // beside its own time; and so that unsupported cases are dealt out evenly
  std::vector<Load> loads = loads_of(state, items, times_ns);
  std::stable_sort(loads.begin(), loads.end(),
                   [](const Load& a, const Load& b) { return std::tie(b.measured, b.ns) < std::tie(a.measured, a.ns); });
  using Shard = std::pair<std::int64_t, int>;
  std::priority_queue<Shard, std::vector<Shard>, std::greater<>> least;
  std::vector<int> shard_of(items.size());
  for (std::size_t i = 0; i < loads.size(); ++i) {
    if (i == 0 || loads[i].measured != loads[i - 1].measured) {
      least = {};
      for (int shard = 0; shard < shards && shard < std::ssize(loads); ++shard) least.emplace(0, shard);
    }
    const auto [ns, shard] = least.top();
    least.pop();
    least.emplace(ns + loads[i].ns + any_ns, shard);
    for (const std::size_t item : loads[i].items) shard_of[item] = shard;
  }
  return shard_of;
}

/// The shard of each item, from 0.
std::vector<int> shards_of(const State& state, const std::vector<Item>& items, int shards, const Times& times_ns) {
  if (!times_ns.empty()) return by_time(state, items, shards, times_ns);
  std::vector<int> shard_of;
  for (const Item& item : items)
    shard_of.push_back(static_cast<int>(id_hash(without_arch(state.id(item))) % static_cast<std::uint64_t>(shards)));
  return shard_of;
}

std::uint64_t digest_of_cut(const std::vector<int>& shard_of, const Times& times_ns) {
  return times_ns.empty() ? 0 : XXH3_64bits(shard_of.data(), shard_of.size() * sizeof(int));
}

void take_shard(State& state, const Query& query) {
  const std::vector<int> shard_of = shards_of(state, state.items, query.shards, query.times_ns);
  state.cut = digest_of_cut(shard_of, query.times_ns);
  std::vector<Item> kept;
  for (std::size_t i = 0; i < shard_of.size(); ++i) {
    if (shard_of[i] == query.shard - 1) kept.push_back(state.items[i]), state.places.push_back(static_cast<std::int64_t>(i));
  }
  std::swap(state.items, kept);
  state.whole = std::ssize(kept);
  throw_if_empty(state, kept.size(), "shard " + std::to_string(query.shard) + "/" + std::to_string(query.shards));
}

void check_query(const Query& query) {
  if (query.shards < 1 || query.shard < 1 || query.shard > query.shards) {
    throw Error("expected a shard i/n with 1 <= i <= n, found " + std::to_string(query.shard) + "/" +
                std::to_string(query.shards) + "; write e.g. --shard 1/4");
  }
  if (query.cover < 0 || query.cover > 6)
    throw Error("expected a cover of strength 1 to 6, found " + std::to_string(query.cover) + "; write e.g. --cover 2");
  if (query.draw < 0 || query.draw > max_draw) {
    throw Error("expected a draw of 1 to " + std::to_string(max_draw) + " points, found " + std::to_string(query.draw) +
                "; write e.g. --draw 1000");
  }
  if (!(query.budget_s >= 0))
    throw Error("expected a budget of at least 0 seconds, found " + std::to_string(query.budget_s) +
                "; write e.g. --budget 60");
}

}  // namespace

Selection select(const Catalogue& catalogue, const Query& query) {
  check_query(query);
  auto state = std::make_shared<State>(catalogue);
  state->constraints = std::make_unique<Constraints>(state->space);
  std::shared_ptr<const Expression> where;
  if (!query.where.empty()) where = std::make_shared<const Expression>(query.where, state->space);

  Gatherer gatherer(*state, query.draw > 0);
  const bool all_written_out =
      !query.ids.empty() && std::none_of(query.ids.begin(), query.ids.end(), [](const auto& id) { return is_glob(id); });
  std::vector<std::string> globs;
  if (query.part.whole > 0) {
    gatherer.add_part(query.part, query.files);
  } else if (query.draw == 0 && query.suites.empty() && query.files.empty() && !query.failed.anywhere && all_written_out) {
    for (const auto& id : query.ids) gatherer.add_id(id);
  } else {
    std::vector<std::string> suites = query.suites;
    if (suites.empty() && query.files.empty() && !query.failed.anywhere)
      suites = {query.ids.empty() && query.where.empty() ? "smoke" : "full"};
    for (const auto& suite : suites) gatherer.add_suite(suite);
    if (query.draw > 0) gatherer.draw(query.draw, query.draw_seed, where.get());
    for (const auto& file : query.files) gatherer.add_file(file, "");
    if (query.failed.anywhere) add_failed(*state, gatherer, query.failed);
    globs = query.ids;
  }
  state->considered = static_cast<std::int64_t>(state->items.size());
  if (state->items.empty()) state->why_empty = "the suites hold no case";

  if (!globs.empty()) {
    std::string shown;
    for (const auto& glob : globs) shown += (shown.empty() ? "'" : ", '") + glob + "'";
    narrow(*state, by_id(*state, globs), "the id " + shown);
  }
  if (where) narrow(*state, by_expression(*state, where), "the expression '" + query.where + "'");
  if (!query.failed.run.empty()) narrow(*state, by_failed(*state, query.failed), "what failed in " + query.failed.run);
  if (query.part.whole == 0 && query.cover > 0) cover_items(*state, query.cover);
  if (query.part.whole == 0 && query.shards > 1) take_shard(*state, query);
  if (query.budget_s > 0) {
    double spent = 0;
    const auto first_out = std::find_if(state->items.begin(), state->items.end(), [&](const Item& item) {
      return (spent += estimate(*state, item)) > query.budget_s;
    });
    state->left_out = state->items.end() - first_out;
    state->items.erase(first_out, state->items.end());
    state->places.resize(std::min(state->places.size(), state->items.size()));
    if (state->items.empty() && state->left_out > 0) {
      state->why_empty = "the first of " + std::to_string(state->left_out) + " cases takes longer than the budget";
    }
  }
  return Selection(std::move(state));
}

std::vector<Part> parts_of(const Selection& whole, const std::vector<SelectionGroup>& groups, const Times& times_ns) {
  std::vector<int> shard_of(whole.size());
  int shards = 0;
  for (const SelectionGroup& group : groups) {
    std::vector<Item> items;
    for (const std::size_t i : group.cases) items.push_back(whole.state_->items[i]);
    const std::vector<int> own = shards_of(*whole.state_, items, group.shards, times_ns);
    for (std::size_t i = 0; i < own.size(); ++i) shard_of[group.cases[i]] = shards + own[i];
    shards += group.shards;
  }
  std::vector<Part> parts(static_cast<std::size_t>(shards),
                          Part{std::ssize(shard_of), digest_of_cut(shard_of, times_ns), {}});
  for (std::size_t i = 0; i < shard_of.size(); ++i)
    parts[static_cast<std::size_t>(shard_of[i])].cases.push_back(
        {static_cast<std::int64_t>(i), whole.suite(i), whole.id(i)});
  return parts;
}

// ---- what a selection reports --------------------------------------------------------------------------------------

std::size_t Selection::size() const { return state_->items.size(); }
const std::string& Selection::why_empty() const { return state_->why_empty; }
const std::vector<std::int64_t>& Selection::places() const { return state_->places; }
std::int64_t Selection::whole() const { return state_->whole; }
std::uint64_t Selection::cut() const { return state_->cut; }
std::int64_t Selection::left_out() const { return state_->left_out; }
std::int64_t Selection::considered() const { return state_->considered; }
const CoverReport& Selection::cover() const { return state_->cover; }
const std::vector<std::pair<std::string, CoverReport>>& Selection::suite_covers() const { return state_->suite_covers; }
const Space& Selection::space() const { return state_->space; }
std::string Selection::id(std::size_t i) const { return state_->id(state_->items.at(i)); }

const std::string& Selection::suite(std::size_t i) const {
  static const std::string none;
  const auto* suite = state_->suites[state_->items.at(i).suite];
  return suite ? suite->id : none;
}

bool Selection::optional(std::size_t i, const std::vector<std::string>& lacking) const {
  const auto* suite = state_->suites[state_->items.at(i).suite];
  return suite && std::any_of(suite->optional.begin(), suite->optional.end(), [&](const std::string& glob) {
           return std::any_of(lacking.begin(), lacking.end(),
                              [&](const std::string& name) { return catalogue::matches_glob(glob, name); });
         });
}

std::optional<Declared> Selection::declared(std::size_t i) const {
  const Item& item = state_->items.at(i);
  if (!item.written && state_->constraint[item.index] > 0) {
    Declared out = state_->constraints->declared(state_->points[item.index], state_->constraint[item.index]);
    return out;
  }
  return std::nullopt;
}

CaseSpec Selection::spec(std::size_t i) const {
  const Item& item = state_->items.at(i);
  CaseSpec spec = item.written ? state_->specs[item.index] : spec_of(state_->space, state_->points[item.index]);
  const auto* suite = state_->suites[item.suite];
  if (!item.written) {
    spec.declared_by = suite ? suite->file : "";
    const int stopped = state_->constraint[item.index];
    Expected expected;
    if (stopped > 0) expected.outcome = state_->constraints->refuses(stopped) ? Outcome::refused : Outcome::unsupported;
    spec.expected = {expected};
  }
  if (suite) {
    for (const auto& [phase, ms] : suite->deadlines_ms) spec.deadlines_ms.try_emplace(phase, ms);
  }
  return spec;
}

json Selection::facts(std::size_t i) const {
  const Item& item = state_->items.at(i);
  json out = json::object();
  out["suite"] = suite(i);
  if (!item.written) {
    out["axes"] = axes_of(state_->space, state_->points[item.index]);
    return out;
  }
  const CaseSpec& spec = state_->specs[item.index];
  out["axes"] = axes_of(spec);
  if (!spec.title.empty()) out["title"] = spec.title;
  if (!spec.links.empty()) out["links"] = spec.links;
  out["file"] = spec.declared_by;
  return out;
}

double Selection::seconds(std::size_t i) const { return estimate(*state_, state_->items.at(i)); }

json axes_of(const Space& space, const Point& point) {
  json out = json::object();
  for (const auto& a : axes()) {
    if (a.id == AxisId::consumer && at(point, a.id) == 0) {
      out[std::string(a.name)] = space.text(AxisId::producer, at(point, AxisId::producer));
    } else if (a.id == AxisId::pbs || a.id == AxisId::cbs) {
      out[std::string(a.name)] = std::to_string(space.block_size(point, a.id));
    } else {
      out[std::string(a.name)] = space.text(a.id, at(point, a.id));
    }
  }
  return out;
}

json axes_of(const CaseSpec& spec) {
  json out = json::object();
  const auto of_scenarios = [](AxisId a) {
    return a == AxisId::dtype || a == AxisId::geometry || a == AxisId::arch || a == AxisId::seed;
  };
  for (const auto& a : axes()) {
    if (!spec.scenario.empty() && !of_scenarios(a.id)) continue;
    if (std::string value = a.of(spec); !value.empty() && value != "geometry") out[std::string(a.name)] = std::move(value);
  }
  if (spec.geometry_values.is_object()) {
    for (const auto& [key, value] : spec.geometry_values.items()) out["geometry." + key] = value;
  }
  return out;
}

Lookup lookup_of(Space& space, const json& axes_object) {
  return [&space, axes_object](const NameRef& ref) -> Value {
    const auto text_of = [&](AxisId a) -> std::optional<std::string> {
      const auto it = axes_object.find(std::string(axis(a).name));
      if (it == axes_object.end() || !it->is_string()) return std::nullopt;
      return it->get<std::string>();
    };
    const auto replaced = [&](const std::string& fact) -> std::optional<std::int64_t> {
      const auto it = axes_object.find("geometry." + fact);
      if (it == axes_object.end() || !it->is_number_integer()) return std::nullopt;
      return it->get<std::int64_t>();
    };
    const auto known = [&](AxisId a) -> int {
      const auto text = text_of(a);
      return text ? space.find(a, *text) : -1;
    };
    if (ref.fact >= 0) {
      if (ref.axis == AxisId::geometry) {
        if (const auto value = replaced(space.fact_names(ref.axis)[static_cast<std::size_t>(ref.fact)])) return *value;
      }
      const int value = known(ref.axis);
      return value < 0 ? Value{} : space.fact(ref.axis, ref.fact, value);
    }
    const auto text = text_of(ref.axis);
    if (ref.axis == AxisId::pbs || ref.axis == AxisId::cbs) {
      if (text) return std::stoll(*text);
      if (const auto value = replaced("block_size")) return *value;
      const auto names = space.fact_names(AxisId::geometry);
      const auto at_name = std::find(names.begin(), names.end(), "block_size");
      const int geometry = known(AxisId::geometry);
      return geometry < 0 || at_name == names.end()
                 ? Value{}
                 : space.fact(AxisId::geometry, static_cast<int>(at_name - names.begin()), geometry);
    }
    if (!text) return {};
    if (axis(ref.axis).open) return std::stoll(*text);
    return *text;
  };
}

}  // namespace kvcts::matrix
