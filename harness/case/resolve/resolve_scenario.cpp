#include "case/resolve/resolve_scenario.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>

#include "case/catalogue/tables.hpp"
#include "case/resolve/model.hpp"
#include "case/scenario_walk.hpp"
#include "case/text.hpp"
#include "layout/checked.hpp"

namespace kvcts {

using nlohmann::json;
using scenario::Action;
using scenario::Operation;
using scenario::Scenario;
using scenario::Step;
using scenario::View;
using text::fail;

namespace {

template <class T>
std::string number(T value) {
  return std::to_string(value);
}

// Bounds all numbers of bytes and elements in a file, before anything is laid out by them.
constexpr double most_bytes = static_cast<double>(std::int64_t{1} << 56), most_elements = 1 << 27;

std::string fmt_count(double value) { return value < 1e15 ? number(static_cast<std::int64_t>(value)) : "more than 10^15"; }
std::string fmt_bytes(double value) { return fmt_count(std::abs(value)) + " bytes"; }

// ---- planes ----------------------------------------------------------------------------------------------------------

/// How a memory or a view of it is laid out, before its planes are made.
struct Shape {
  std::string layout;  ///< for messages
  std::string text;    ///< template; "" = raw bytes, or `planes`
  std::string planes;
  layout::TensorSpec tensors;
  std::map<std::string, std::int64_t> fixed;  ///< numbers that the layout requires
  Model model;
  std::set<std::string> declared;  ///< numbers that the memory or view itself names
  std::string dtype;
  layout::Cache cache;  ///< of the memory as declared
};

// A layout of the catalogue, another project's name, or a template.
void choose_layout(Shape& shape, const View& view, const catalogue::Catalogue& catalogue) {
  if (view.layout.empty() && view.text.empty() && view.planes.empty()) return;
  shape.text = view.text, shape.planes = view.planes, shape.layout = "(template)";
  shape.tensors = {}, shape.fixed = {};
  if (view.layout.empty()) return;
  shape.layout = view.layout;
  if (const auto* entry = catalogue.layouts().find(view.layout)) {
    shape.text = entry->text, shape.tensors = entry->tensors, shape.fixed = entry->fixed;
    return;
  }
  try {
    shape.text = layout::template_from_name(view.layout);
  } catch (const std::exception& error) {
    const std::string near = catalogue::nearest(view.layout, catalogue.layouts().ids());
    fail("layout: " + std::string(error.what()) + (near.empty() ? "" : "; in the catalogue there is '" + near + "'"));
  }
}

void restride(layout::Cache& cache, const std::map<std::string, std::int64_t>& strides, bool scales) {
  for (const auto& [word, bytes] : strides) {
    bool found = false;
    for (auto& plane : cache.planes) {
      if ((plane.component == layout::Component::data) == scales) continue;
      layout::Mode* outermost = nullptr;
      for (auto& mode : plane.modes) {
        if (layout::name(mode.axis) == word && (!outermost || mode.step > outermost->step)) outermost = &mode;
      }
      if (!outermost) continue;
      outermost->stride = layout::checked::mul(bytes, 8);
      found = true;
    }
    if (!found)
      fail(std::string(scales ? "scale_strides: no scale" : "strides: no data") + " plane has a " + word +
           " axis; it is a list of allocations, or not there");
  }
}

// Every mode sane and no coordinate at two places, wherever the plane reaches.
void expect_sane(layout::Cache cache) {
  cache.tensors.clear();
  for (auto& plane : cache.planes) {
    if (plane.allocation < 0 || static_cast<std::size_t>(plane.allocation) >= cache.allocations.size()) {
      fail("planes: a plane lies in allocation " + number(plane.allocation) + ", and there are " +
           number(cache.allocations.size()));
    }
    const auto range = layout::bounds(plane);
    plane.offset -= range.begin * 8;
    auto& allocation = cache.allocations[static_cast<std::size_t>(plane.allocation)];
    allocation.bytes = std::max(allocation.bytes, range.end - range.begin);
  }
  layout::validate(cache);
}

void apply_fixed(Shape& shape) {
  for (const auto& [key, value] : shape.fixed) {
    auto* field = field_of(shape.model, key);
    if (!field) continue;
    if (shape.declared.contains(key) && *field != value) {
      fail("layout " + shape.layout + " demands " + key + " = " + number(value) + ", the geometry says " + number(*field));
    }
    *field = value;
  }
}

layout::Cache make_cache(const Shape& shape, const View& view, const catalogue::Catalogue& catalogue) {
  layout::Cache cache;
  if (!shape.planes.empty()) {
    cache = layout::cache_from_text(shape.planes);
    if (cache.allocations.empty()) cache.allocations = shape.cache.allocations;
  } else {
    cache = layout::instantiate(shape.text, shape.model.geometry, catalogue::scheme_of(catalogue.dtypes().at(shape.dtype)),
                                shape.tensors);
  }
  restride(cache, view.strides, false);
  restride(cache, view.scale_strides, true);
  return cache;
}

// The planes of one allocation, as a separate cache.
layout::Cache only(const layout::Cache& whole, std::size_t allocation) {
  layout::Cache out;
  out.allocations = {whole.allocations[allocation]};
  for (auto plane : whole.planes) {
    if (plane.allocation != static_cast<int>(allocation)) continue;
    plane.allocation = 0;
    out.planes.push_back(plane);
  }
  for (auto tensor : whole.tensors) {
    if (tensor.allocation != static_cast<int>(allocation)) continue;
    tensor.allocation = 0;
    out.tensors.push_back(tensor);
  }
  return out;
}

std::string names_of(const layout::Cache& cache, const std::string& memory) {
  std::string out;
  for (const auto& a : cache.allocations) out += (out.empty() ? "" : ", ") + memory + "/" + a.name;
  return out;
}

class Resolver {
 public:
  Resolver(const CaseSpec& spec, const catalogue::Catalogue& catalogue)
      : scenario_(spec.scenario),
        catalogue_(catalogue),
        arch_(spec.arch),
        dtype_(spec.dtype),
        model_(model_of(spec.geometry, spec.geometry_values, catalogue)) {}

  Scenario resolve() {
    for (const auto& [name, memory] : scenario_.memories) within("memory '" + name + "'", [&, &of = name] { declare(of); });
    scenario::each_action(scenario_, [&](Step& step, Action& action, bool intended) {
      within("step '" + step.name + "'" + (intended ? "" : ", actually"), [&] {
        if (intended) keep_tables(step);
        settle(action, intended);
        if (!intended) expect_meant(step, action);
      });
    });
    return std::move(scenario_);
  }

 private:
  template <class F>
  void within(const std::string& where, F&& f) {
    try {
      f();
    } catch (const std::exception& error) {
      fail(where + ": " + error.what());
    }
  }

  // ---- memory ----

  const Shape& declare(const std::string& name) {
    if (const auto known = shapes_.find(name); known != shapes_.end()) return known->second;
    scenario::Memory& memory = scenario_.memories.at(name);
    Shape shape;
    shape.model = model_, shape.dtype = dtype_;
    if (!memory.view.of.empty()) {
      const Shape& base = declare(scenario::memory_of(memory.view.of));
      shape.model = base.model, shape.dtype = base.dtype;
      if (memory.view.layout.empty() && memory.view.text.empty() && memory.view.planes.empty()) {
        const std::string text = base.text;
        shape = base;
        if (const auto slash = memory.view.of.find('/'); slash != std::string::npos && !shape.cache.allocations.empty()) {
          if (!memory.view.geometry.empty() || !memory.view.dtype.empty() || !memory.view.strides.empty()) {
            fail("one allocation of '" + scenario::memory_of(memory.view.of) +
                 "' in another geometry, dtype or stride: say through which layout or template");
          }
          shape.cache = only(shape.cache, allocation_of(memory.view.of));
          return finish(name, std::move(shape));
        }
      }
    }
    adjust(shape, memory.view);
    if (shape.text.empty() && shape.planes.empty()) return finish(name, std::move(shape));
    shape.cache = make_cache(shape, memory.view, catalogue_);
    if (shape.cache.allocations.empty()) fail("planes: add a line 'allocation <name> <bytes>' for each piece of memory");
    for (auto& plane : shape.cache.planes) {  // explicit strides may reach further
      auto& allocation = shape.cache.allocations.at(static_cast<std::size_t>(plane.allocation));
      allocation.bytes = std::max(allocation.bytes, layout::bounds(plane).end);
    }
    layout::validate(shape.cache);
    if (!memory.pool && memory.view.of.empty() && memory.bytes > 0 && shape.cache.allocations.size() > 1) {
      fail("bytes: it has " + number(shape.cache.allocations.size()) + " allocations; add pool: true, or leave bytes out");
    }
    return finish(name, std::move(shape));
  }

  const Shape& finish(const std::string& name, Shape shape) {
    double bytes = static_cast<double>(scenario_.memories.at(name).bytes);
    for (const auto& a : shape.cache.allocations) bytes += static_cast<double>(a.bytes + scenario_.memories.at(name).gap);
    if (bytes > most_bytes) fail(fmt_bytes(bytes) + ": expected at most 2^56 bytes; use smaller numbers");
    if (!shape.cache.allocations.empty()) scenario_.memories.at(name).view.cache = layout::to_text(shape.cache);
    return shapes_[name] = std::move(shape);
  }

  void adjust(Shape& shape, const View& view) const {
    choose_layout(shape, view, catalogue_);
    replace(shape.model, view.geometry);
    for (const auto& [key, value] : view.geometry.items()) shape.declared.insert(key);
    if (!view.dtype.empty()) shape.dtype = view.dtype;
    apply_fixed(shape);
  }

  std::size_t allocation_of(const std::string& place) const {
    const std::string memory = scenario::memory_of(place);
    const auto& allocations = shapes_.at(memory).cache.allocations;
    for (std::size_t i = 0; i < allocations.size(); ++i) {
      if (memory + "/" + allocations[i].name == place) return i;
    }
    fail("'" + memory + "' has no allocation '" + place.substr(memory.size() + 1) + "'; there " +
         (allocations.empty() ? "are none, it is raw bytes" : "are " + names_of(shapes_.at(memory).cache, memory)));
  }

  bool has_memory(const std::string& place) const { return shapes_.contains(scenario::memory_of(place)); }

  // The stretch of bytes that a name denotes, and its length.
  std::int64_t bytes_of(const std::string& place) const {
    const std::string name = scenario::memory_of(place);
    const auto& memory = scenario_.memories.at(name);
    const auto& cache = shapes_.at(name).cache;
    if (place != name) return cache.allocations[allocation_of(place)].bytes;
    if (cache.allocations.empty())
      return memory.view.of.empty() || memory.bytes > 0 ? memory.bytes : bytes_of(memory.view.of);
    if (cache.allocations.size() == 1) return std::max(cache.allocations[0].bytes, memory.bytes);
    if (!memory.pool)
      fail("'" + name + "' has " + number(cache.allocations.size()) + " allocations; name one: " + names_of(cache, name));
    std::int64_t total = -memory.gap;
    for (const auto& a : cache.allocations) total = layout::checked::add(total, layout::checked::add(a.bytes, memory.gap));
    return std::max(total, memory.bytes);
  }

  // ---- views of steps ----

  void settle(View& view) {
    const std::string name = scenario::memory_of(view.of);
    Shape shape;
    shape.model = model_, shape.dtype = dtype_;
    if (has_memory(view.of)) shape = shapes_.at(name);
    const bool one = view.of != name;
    const bool relaid = !view.layout.empty() || !view.text.empty() || !view.planes.empty();
    if (one && has_memory(view.of)) {
      const std::size_t at = allocation_of(view.of);
      if (!relaid && (!view.geometry.empty() || !view.dtype.empty())) {
        // The same template with other numbers; this is one of its allocations.
        adjust(shape, view);
        View plain;
        const layout::Cache whole = make_cache(shape, plain, catalogue_);
        if (whole.allocations.size() <= at)
          fail("'" + view.of + "' in this geometry is not one of its allocations; say through which layout");
        shape.cache = only(whole, at);
        restride(shape.cache, view.strides, false), restride(shape.cache, view.scale_strides, true);
        return place(view, shape.cache);
      }
      if (!shape.cache.allocations.empty()) shape.cache = only(shape.cache, at);
    }
    if (relaid) {
      adjust(shape, view);
      shape.cache = make_cache(shape, view, catalogue_);
    } else if (shape.cache.allocations.empty()) {
      fail("'" + view.of + "' is raw bytes; say through which layout, template or planes");
    } else {
      const bool numbers = !view.geometry.empty() || !view.dtype.empty();
      if (numbers && !shape.planes.empty())
        fail("'" + view.of + "' is declared by planes; write the planes of this view, too");
      if (numbers) {
        adjust(shape, view);
        View declared = scenario_.memories.at(name).view;  // its own strides stay, unless the view has others
        for (const auto& [axis, bytes] : view.strides) declared.strides[axis] = bytes;
        for (const auto& [axis, bytes] : view.scale_strides) declared.scale_strides[axis] = bytes;
        shape.cache = make_cache(shape, declared, catalogue_);
      } else {
        restride(shape.cache, view.strides, false), restride(shape.cache, view.scale_strides, true);
      }
    }
    place(view, shape.cache);
  }

  // A view with as many allocations as its memory uses those; any other takes one stretch, consecutively.
  void place(View& view, const layout::Cache& cache) const {
    expect_sane(cache);
    if (has_memory(view.of)) {
      const std::string name = scenario::memory_of(view.of);
      const auto& own = shapes_.at(name).cache.allocations;
      if (view.of == name && own.size() > 1 && own.size() != cache.allocations.size() && !scenario_.memories.at(name).pool) {
        fail("a view with " + number(cache.allocations.size()) + " allocations of '" + name + "', which has " +
             number(own.size()) + "; name one of them (" + names_of(shapes_.at(name).cache, name) +
             "), or declare it with pool: true");
      }
    }
    view.cache = layout::to_text(cache);
  }

  void settle(Action& action, bool intended) {
    const bool raw_fill = action.op == Operation::fill && action.request.empty() && !action.to_blocks;
    if (action.op == Operation::copy || raw_fill) {
      for (auto* views : {&action.from, &action.to}) {
        for (auto& view : *views) {
          if (has_memory(view.of)) bytes_of(view.of);
        }
      }
      if (raw_fill && action.bytes == 0 && has_memory(action.to.front().of))
        action.bytes = bytes_of(action.to.front().of) - action.to_offset;
      for (const auto* views : {&action.from, &action.to}) {
        for (const auto& view : *views) expect_fits(view.of, action.bytes, action.count);
      }
      for (const auto step : {action.from_step, action.to_step}) {
        if (std::abs(static_cast<double>(step)) * static_cast<double>(action.count) > most_bytes) {
          fail(number(action.count) + " times " + number(step) + " bytes: expected at most 2^56 bytes; use smaller steps");
        }
      }
      return;
    }
    for (auto* views : {&action.from, &action.to}) {
      for (auto& view : *views) {
        if (!view.dtype.empty()) catalogue_.dtypes().at(view.dtype);
        settle(view);
      }
    }
    if (!action.memory.empty() && has_memory(action.memory)) settle_memory(action);
    if (action.op == Operation::require) take_facts(action);
    for (const auto* views : {&action.from, &action.to}) expect_parts(action, *views);
    if (intended && !action.request.empty()) {
      for (const auto& view : action.from) expect_table(action, view, action.from_blocks);
      for (const auto& view : action.to) expect_table(action, view, action.to_blocks);
    }
    for (const auto& view : action.from) expect_reach(action, view, action.from_blocks);
    for (const auto& view : action.to) expect_reach(action, view, action.to_blocks);
    if (action.op == Operation::read) expect_readable(action);
    if (action.op == Operation::move) expect_widths(action);
  }

  // A step with parts has them at each end.
  void expect_parts(const Action& action, const std::vector<View>& views) const {
    if (action.parts == "all" || views.empty()) return;
    for (const auto& view : views) {
      const auto planes = layout::cache_from_text(view.cache).planes;
      if (std::any_of(planes.begin(), planes.end(), [&](const auto& plane) { return wanted(action, plane.component); }))
        return;
    }
    fail("parts: " + action.parts + ", and '" + views.front().of + "' has no " + action.parts +
         "; name a memory or a layout that has them, or leave parts out");
  }

  struct Table {
    std::vector<std::int64_t> ids;
    bool windows{false};  ///< has positions: lists its blocks itself
    std::vector<std::int64_t> positions;
  };
  struct Now {
    std::int64_t tokens{0}, first_token{0};
    std::map<std::string, Table> tables;
  };

  // A list of blocks instead of the request's table has one for some token that the step takes.
  void expect_served(const Action& action, const View& view, const Now& now, const std::vector<std::int64_t>& ids,
                     const std::vector<std::int64_t>& positions, std::int64_t slots) const {
    if (std::all_of(ids.begin(), ids.end(), [](auto id) { return id == scenario::no_block; })) return;
    std::vector<std::int64_t> served;
    for (std::size_t i = 0; i < ids.size(); ++i) served.push_back(positions[i]);
    const auto serves = [&](std::int64_t token) {
      return token >= now.first_token &&
             std::find(served.begin(), served.end(), (token - now.first_token) / slots) != served.end();
    };
    const auto& picks = &view >= action.to.data() && &view < action.to.data() + action.to.size() && action.pick_to.tokens
                            ? action.pick_to.tokens
                            : action.pick.tokens;
    if (picks ? picks->empty() || std::any_of(picks->begin(), picks->end(), serves)
              : now.tokens == 0 || *std::min_element(served.begin(), served.end()) * slots < now.tokens)
      return;
    const std::int64_t first = picks ? *std::min_element(picks->begin(), picks->end()) : now.first_token;
    fail("a list of " + number(static_cast<std::int64_t>(ids.size())) + " blocks has none for token " + number(first) +
         ", which is entry " + number((first - now.first_token) / slots) +
         " of the request's table: expected as many entries as the whole table, -1 for those that the step does not touch");
  }

  // Everything a step takes from a view can be counted and addressed, and its block ids serve some of its tokens.
  void expect_reach(const Action& action, const View& view, const std::optional<std::vector<std::int64_t>>& instead) const {
    if (!has_memory(view.of)) return;
    const Table none;
    const Now* now = requests_.contains(action.request) ? &requests_.at(action.request) : nullptr;
    const Table* table = &none;
    if (now && now->tables.contains(scenario::memory_of(view.of))) table = &now->tables.at(scenario::memory_of(view.of));
    const auto& ids = instead ? *instead : table->ids;
    std::vector<std::int64_t> positions = table->positions;
    for (std::size_t i = positions.size(); i < ids.size(); ++i)
      positions.push_back(positions.empty() ? static_cast<std::int64_t>(i) : positions.back() + 1);
    double elements = 0;
    std::int64_t slots = 1;
    bool blocked = false;
    const auto cache = layout::cache_from_text(view.cache);
    for (const auto& plane : cache.planes) slots = std::max(slots, layout::domain(plane).hi[layout::Axis::slot]);
    for (const auto& plane : cache.planes) {
      if (!wanted(action, plane.component)) continue;
      double here = 1;
      bool of_blocks = false;
      for (const auto& mode : plane.modes) {
        if (mode.axis == layout::Axis::block) {
          for (const auto id : ids) {
            // As code computes it: an id beyond the pool has an address, too.
            if (id != scenario::no_block && std::abs(static_cast<double>(id)) * std::abs(static_cast<double>(mode.stride)) /
                                                    static_cast<double>(mode.step) >
                                                8 * most_bytes) {
              fail("block " + number(id) + " of '" + view.of + "' would lie " +
                   fmt_bytes(static_cast<double>(id) * static_cast<double>(mode.stride) / 8) +
                   " away: expected at most 2^56 bytes");
            }
          }
        }
        of_blocks = of_blocks || mode.axis == layout::Axis::block || mode.axis == layout::Axis::slot;
        if (mode.axis != layout::Axis::block) here *= static_cast<double>(mode.extent);
      }
      blocked = blocked || of_blocks;
      elements += here * (of_blocks ? static_cast<double>(ids.size()) : 1);
    }
    if (elements > most_elements) {
      fail(fmt_count(elements) + " elements of '" + view.of +
           "' in one step: expected at most 2^27; use a smaller geometry, or fewer blocks");
    }
    if (!blocked || ids.empty()) {
      if (blocked && instead)
        fail("an empty list of blocks, so that nothing is touched; write 'skipped' if the code did nothing");
      return;
    }
    for (const auto position : positions) {
      if (static_cast<double>(position) * static_cast<double>(slots) > most_bytes)
        fail("position " + number(position) + " in blocks of " + number(slots) + " tokens: expected tokens up to 2^56");
    }
    if (instead && now) expect_served(action, view, *now, ids, positions, slots);
  }

  // A sparse memory is as large as its touched part.
  void expect_fits(const std::string& place, std::int64_t bytes, std::int64_t count) const {
    constexpr double most = 1 << 28;
    if (!has_memory(place) || static_cast<double>(bytes) * static_cast<double>(count) <= most) return;
    const auto* memory = &scenario_.memories.at(scenario::memory_of(place));
    while (!memory->view.of.empty()) memory = &scenario_.memories.at(scenario::memory_of(memory->view.of));
    if (memory->sparse)
      fail("'" + place + "' is sparse, and exists only where it is touched: expected at most 2^28 bytes, found " +
           number(bytes) + " x " + number(count));
  }

  // Part of an output has its intended place.
  void expect_meant(const Step& step, const Action& action) const {
    const Action& meant = step.intended;
    if (action.op != Operation::read || meant.op != Operation::read || action.output != meant.output) return;
    const auto reads = [](const Action& read) {
      std::set<layout::Component> out;
      for (const auto& view : read.from) {
        for (const auto& plane : layout::cache_from_text(view.cache).planes) {
          if (read.decode ? plane.component == layout::Component::data : wanted(read, plane.component))
            out.insert(plane.component);
        }
      }
      return out;
    };
    const auto all = reads(meant);
    for (const auto component : reads(action)) {
      if (all.contains(component)) continue;
      fail("reads " + std::string(layout::name(component)) + " into the output '" + action.output +
           "', which was meant for " + meant.parts +
           " and has no place for it; read it into another 'output', or add it to the intended read");
    }
  }

  void expect_readable(const Action& action) const {
    constexpr std::int64_t most = 1 << 22;
    double picked = 1;
    for (const auto* picks :
         {&action.pick.layers, &action.pick.kv, &action.pick.tokens, &action.pick.heads, &action.pick.channels}) {
      if (*picks) picked *= static_cast<double>((*picks)->size());
    }
    if (picked > most_elements) fail("an output of " + fmt_count(picked) + " elements: expected at most 2^27; pick fewer");
    const auto request = scenario_.requests.find(action.request);
    const std::int64_t tokens = action.pick.tokens                    ? static_cast<std::int64_t>(action.pick.tokens->size())
                                : request == scenario_.requests.end() ? 0
                                                                      : request->second.tokens;
    if (tokens > most) fail("an output of " + number(tokens) + " tokens: expected at most " + number(most) + "; pick some");
  }

  void settle_memory(Action& action) {
    const std::string name = scenario::memory_of(action.memory);
    const auto& cache = shapes_.at(name).cache;
    if (action.memory != name) allocation_of(action.memory);
    if (action.bytes > 0 || action.to_offset != 0) bytes_of(action.memory);
    if (action.op != Operation::unpack) return;
    const std::size_t at = action.memory == name ? 0 : allocation_of(action.memory);
    for (const auto& tensor : cache.tensors) {
      if (tensor.allocation != static_cast<int>(at) && action.memory != name) continue;
      action.found = json::array();
      for (const auto& dim : tensor.dims) action.found.push_back(dim.extent);
      return;
    }
    fail("'" + action.memory +
         "' shows no tensor; declare it by a layout or a template, or write a tensor line in its planes");
  }

  void take_facts(Action& action) const {
    const auto& entry = catalogue_.archs().at(arch_);
    std::vector<std::string> known;
    for (const auto& field : catalogue::arch_table().fields) known.push_back(field.key);
    for (const auto& [fact, least] : action.needs.items()) {
      const auto& fields = catalogue::arch_table().fields;
      const auto field =
          std::find_if(fields.begin(), fields.end(), [&, &wanted = fact](const auto& f) { return f.key == wanted; });
      if (field == fields.end())
        fail("needs: expected a fact of archs, found '" + fact + "'" + catalogue::suggestion(fact, known));
      action.has[fact] = field->write(entry);
    }
  }

  static bool wanted(const Action& action, layout::Component component) {
    return action.parts == "all" || (action.parts == "data") == (component == layout::Component::data);
  }

  void expect_widths(const Action& action) const {
    std::set<int> source;
    for (const auto& view : action.from) {
      for (const auto& plane : layout::cache_from_text(view.cache).planes) {
        if (wanted(action, plane.component)) source.insert(layout::bits(plane.dtype));
      }
    }
    for (const auto& view : action.to) {
      for (const auto& plane : layout::cache_from_text(view.cache).planes) {
        if (!wanted(action, plane.component) || source.contains(layout::bits(plane.dtype))) continue;
        fail("'" + view.of + "' has " + std::string(layout::name(plane.component)) + " in codes of " +
             number(layout::bits(plane.dtype)) + " bits (" + std::string(layout::name(plane.dtype)) +
             "), and no 'from' has such codes; a move keeps bits, so give both ends dtypes of one width, or copy bytes");
      }
    }
  }

  // ---- block tables ----

  // The tables at each step of the intended sequence.
  void keep_tables(const Step& step) {
    if (requests_.empty()) {
      for (const auto& [name, request] : scenario_.requests) {
        auto& now = requests_[name];
        now.tokens = request.tokens, now.first_token = request.first_token;
        for (const auto& [memory, ids] : request.blocks) {
          const auto positions = request.positions.find(memory);
          const bool windows = positions != request.positions.end();
          now.tables[memory] = {ids, windows, windows ? positions->second : std::vector<std::int64_t>{}};
        }
      }
    }
    if (step.intended.op != Operation::assign) return;
    auto& now = requests_.at(step.intended.request);
    for (const auto& [memory, ids] : step.intended.blocks) now.tables[memory].ids = ids;
    if (step.intended.tokens) now.tokens = *step.intended.tokens;
  }

  void expect_table(const Action& action, const View& view, const std::optional<std::vector<std::int64_t>>& instead) const {
    if (!has_memory(view.of)) return;
    std::int64_t slots = 1, blocks = 1;
    bool blocked = false;
    for (const auto& plane : layout::cache_from_text(view.cache).planes) {
      const auto box = layout::domain(plane);
      slots = std::max(slots, box.hi[layout::Axis::slot]), blocks = std::max(blocks, box.hi[layout::Axis::block]);
      for (const auto& mode : plane.modes)
        blocked = blocked || mode.axis == layout::Axis::block || mode.axis == layout::Axis::slot;
    }
    if (!blocked) return;
    const std::string name = scenario::memory_of(view.of);
    const auto& now = requests_.at(action.request);
    const auto known = now.tables.find(name);
    if (known == now.tables.end() && !instead) {
      fail("request '" + action.request + "' has no blocks in memory '" + name + "'; add blocks: {" + name +
           ": [...]} to it, or name them in the step");
    }
    const auto& ids = instead ? *instead : known->second.ids;
    for (const auto id : ids) {
      if (id != scenario::no_block && (id < 0 || id >= blocks)) {
        fail("request '" + action.request + "' has block " + number(id) + " in memory '" + name + "': expected ids in 0.." +
             number(blocks - 1) + " (what the code did with a wrong one belongs under 'actually')");
      }
    }
    std::int64_t last = now.tokens;
    if (action.pick.tokens && !action.pick.tokens->empty())
      last = *std::max_element(action.pick.tokens->begin(), action.pick.tokens->end()) + 1 - now.first_token;
    if (!instead && !known->second.windows && static_cast<std::int64_t>(ids.size()) * slots < last) {
      fail("request '" + action.request + "' has " + number(ids.size()) + " blocks of " + number(slots) + " in memory '" +
           name + "', which cannot hold " + number(last) + " tokens");
    }
  }

  Scenario scenario_;
  const catalogue::Catalogue& catalogue_;
  std::string arch_, dtype_;
  Model model_;
  std::map<std::string, Shape> shapes_;
  std::map<std::string, Now> requests_;
};

}  // namespace

Scenario resolve_scenario(const CaseSpec& spec, const catalogue::Catalogue& catalogue) {
  return Resolver(spec, catalogue).resolve();
}

}  // namespace kvcts
