// Right steps through a wrong map: another layout, another base, other arithmetic.
#include <algorithm>
#include <map>

#include "diagnose/hypotheses/tools.hpp"

namespace kvcts::scenario {

using layout::Axis;
using layout::Component;

namespace {

const char* end_words(const Action& a, int ends) {
  if (a.op == Operation::write || a.op == Operation::get) return "written";
  if (a.op == Operation::read || a.op == Operation::put) return "read";
  return ends == 1 ? "read from the source" : ends == 2 ? "written to the destination" : "moved at both ends";
}

// One belief about a memory, in every step that touches it; or about all memories declared alike.
void generate_beliefs(HypothesisSearch& search,
                      const std::function<std::vector<Variant>(const layout::Cache&, std::size_t step)>& variants) {
  std::set<std::string> tried;
  for (const auto& [name, memory] : search.scenario().memories) {
    if (memory.view.cache.empty() || search.spent()) continue;
    for (const bool alike : {false, true}) {
      if (alike && !tried.insert(memory.view.cache).second) continue;
      for (const Variant& variant : variants(cache_of(memory.view), 0)) {
        const std::string now = layout::to_text(variant.cache);
        CandidateSteps bodies = search.bodies();
        int steps = 0;
        for (auto& body : bodies) {
          for (Action& a : body) {
            if (!through_views(a)) continue;
            bool changed = false;
            for (auto* views : {&a.from, &a.to}) {
              for (View& view : *views) {
                if (view.cache != memory.view.cache || (!alike && memory_of(view) != name)) continue;
                view.cache = now;
                changed = true;
              }
            }
            steps += changed;
          }
        }
        if (steps > 1)
          search.attempt(variant.fault_class, (alike ? "everywhere: " : "wherever " + name + " is used: ") + variant.words,
                         std::move(bodies));
        if (search.spent()) return;
      }
    }
  }
}

// Variants of the layouts at the ends of a step.
void generate_variants(HypothesisSearch& search,
                       const std::function<std::vector<Variant>(const layout::Cache&, std::size_t step)>& variants) {
  for (std::size_t i = 0; i < search.scenario().steps.size() && !search.spent(); ++i) {
    const Action& a = search.action(i);
    if (!through_views(a)) continue;
    const auto variants_of = [&](const std::vector<View>& views) {
      std::vector<std::vector<Variant>> out;
      for (const View& view : views) out.push_back(variants(cache_of(view), i));
      return out;
    };
    const auto from = variants_of(a.from), to = variants_of(a.to);
    const auto apply = [](std::vector<View>& views, const std::vector<std::vector<Variant>>& all, const std::string& words) {
      const Variant* used = nullptr;
      for (std::size_t v = 0; v < views.size(); ++v) {
        const auto same = std::ranges::find_if(all[v], [&](const Variant& x) { return x.words == words; });
        if (same == all[v].end()) continue;
        views[v].cache = layout::to_text(same->cache);
        used = &*same;
      }
      return used;
    };
    std::set<std::string> seen;
    for (const int ends : {1, 2, 3}) {
      const auto& lead = ends == 2 ? to : from;
      if (ends == 3 && (from.empty() || to.empty())) continue;
      seen.clear();
      for (const auto& list : lead) {
        for (const Variant& variant : list) {
          if (!seen.insert(variant.words).second || search.spent()) continue;
          Action body = a;
          const Variant* used = nullptr;
          if (ends & 1) used = apply(body.from, from, variant.words);
          if (ends & 2) {
            const Variant* other = apply(body.to, to, variant.words);
            if (ends == 3 && (!used || !other)) continue;
            used = used ? used : other;
          }
          if (used)
            search.attempt(used->fault_class, symbol_of(search, i) + ": " + end_words(a, ends) + " with " + used->words, i,
                           body);
        }
      }
    }
  }
}

/// Whole blocks, of k times their size, at k times the id.
void generate_larger_blocks(HypothesisSearch& search) {
  for (std::size_t i = 0; i < search.scenario().steps.size() && !search.spent(); ++i) {
    const Action& a = search.action(i);
    const auto table = a.op == Operation::move ? table_at(search, i, false) : std::nullopt;
    const auto request = search.request_at(i, a.request);
    if (!table || !request || a.from.size() != 1 || a.to.size() != 1) continue;
    const auto from = reblocked(cache_of(a.from.front())), to = reblocked(cache_of(a.to.front()));
    for (const Variant& there : to) {
      const auto here = std::ranges::find(from, there.words, &Variant::words);
      if (here == from.end()) continue;
      Action body = a;
      body.from.front().cache = layout::to_text(here->cache), body.to.front().cache = layout::to_text(there.cache);
      const std::int64_t tokens = static_cast<std::int64_t>(table->size()) * slots_of(body.to.front());
      if (tokens <= request->tokens) continue;
      body.pick.tokens.emplace();
      for (std::int64_t t = 0; t < tokens; ++t) body.pick.tokens->push_back(request->first_token + t);
      search.attempt(FaultClass::wrong_block_size, symbol_of(search, i) + ": whole blocks moved, with " + there.words, i,
                     body);
    }
  }
}

}  // namespace

void generate_arithmetic(HypothesisSearch& search) {
  for (std::size_t i = 0; i < search.scenario().steps.size() && !search.spent(); ++i) {
    const Action& a = search.action(i);
    if (!through_views(a)) continue;
    // Only for addresses large enough to be affected.
    std::int64_t reach = 0;
    for (const auto* views : {&a.from, &a.to}) {
      for (const View& view : *views) {
        for (const auto& allocation : cache_of(view).allocations) reach = std::max(reach, allocation.bytes);
      }
    }
    for (const std::int64_t bits : {32, 31, 16}) {
      if (reach < (std::int64_t{1} << (bits - 2))) continue;
      for (const bool is_signed : {true, false}) {
        for (const char* unit : {"elements", "bytes"}) {
          for (const char* of : {"product", "sum"}) {
            for (const int ends : {1, 2, 3}) {
              if ((ends & 1 && a.from.empty()) || (ends & 2 && a.to.empty())) continue;
              Action body = a;
              const Arithmetic narrow{bits, is_signed, unit, of};
              if (ends & 1) {
                for (View& view : body.from) view.arithmetic = narrow;
              }
              if (ends & 2) {
                for (View& view : body.to) view.arithmetic = narrow;
              }
              search.attempt(FaultClass::int32_overflow,
                             std::string("addresses computed in ") + std::to_string(bits) + " bits (" +
                                 (is_signed ? "signed" : "unsigned") + ", " + of + " in " + unit + ") in " +
                                 symbol_of(search, i),
                             i, body);
            }
          }
        }
      }
    }
    for (const std::int64_t align : {16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 65536}) {
      for (const int ends : {1, 2, 3}) {
        if ((ends & 1 && a.from.empty()) || (ends & 2 && a.to.empty())) continue;
        Action body = a;
        if (ends & 1) {
          for (View& view : body.from) view.align = align;
        }
        if (ends & 2) {
          for (View& view : body.to) view.align = align;
        }
        search.attempt(FaultClass::misaligned,
                       "addresses rounded down to " + std::to_string(align) + " bytes in " + symbol_of(search, i), i, body);
      }
    }
  }
}

void generate_offsets(HypothesisSearch& search) {
  for (std::size_t i = 0; i < search.scenario().steps.size() && !search.spent(); ++i) {
    const Action& a = search.action(i);
    if (!through_views(a)) continue;
    // By how much sources or destinations are off, read off the bytes.
    std::map<std::int64_t, std::int64_t> at_source, at_destination;
    std::int64_t budget = 2000;
    for (const Attribution& attribution : search.attributions().all) {
      if (!attribution.wrong || --budget < 0) continue;
      if (attribution.is.kind == Symbol::Kind::tag) {
        for (const BufferAddress& p : search.element_index().of(attribution.is)) {
          for (const BufferAddress& q : search.element_index().of(attribution.must)) {
            if (p.buffer == q.buffer && p.offset != q.offset) ++at_source[p.offset - q.offset];
          }
          if (p.buffer == attribution.buffer && p.offset != attribution.offset)
            ++at_destination[attribution.offset - p.offset];
        }
      } else if (attribution.is.kind == Symbol::Kind::poison) {
        for (const BufferAddress& q : search.element_index().of(attribution.must)) {
          if (attribution.is.buffer == q.buffer && attribution.is.offset != q.offset)
            ++at_source[attribution.is.offset - q.offset];
        }
      }
    }
    for (const nlohmann::json& event : search.evidence().observation.events) {
      if (!event.contains("violation")) continue;
      for (const Buffer& b : search.evidence().space.buffers()) {
        if (b.ordinal != event["backing"]) continue;
        for (const std::int64_t unit : {std::int64_t{1} << 32, std::int64_t{1} << 31, b.bytes})
          at_source[unit], at_source[-unit], at_destination[unit], at_destination[-unit];
      }
    }
    const auto best = [](const std::map<std::int64_t, std::int64_t>& votes) {
      std::vector<std::pair<std::int64_t, std::int64_t>> out;
      for (const auto& [shift, count] : votes) out.emplace_back(-count, shift);
      std::ranges::sort(out);
      if (out.size() > 12) out.resize(12);
      return out;
    };
    for (const bool source : {true, false}) {
      for (const auto& [count, shift] : best(source ? at_source : at_destination)) {
        Action body = a;
        auto& views = source ? body.from : body.to;
        if (views.empty()) continue;
        for (View& view : views) view.offset += shift;
        const bool wraps = shift % (std::int64_t{1} << 31) == 0;
        search.attempt(wraps ? FaultClass::int32_overflow : FaultClass::wrong_stride,
                       "addresses " + std::to_string(shift) + " bytes off in " + symbol_of(search, i), i, body);
        body = a;
        auto& scaled = source ? body.from : body.to;
        for (View& view : scaled) view.scale_offset += shift;
        search.attempt(FaultClass::scale_misplaced,
                       "scales " + std::to_string(shift) + " bytes off in " + symbol_of(search, i), i, body);
      }
    }
  }
}

void generate_everywhere(HypothesisSearch& search) {
  const auto near = [](const layout::Cache& cache) { return permuted(cache, false, true); };
  for (const std::function<std::vector<Variant>(const layout::Cache&)>& variants :
       {std::function<std::vector<Variant>(const layout::Cache&)>(near),
        std::function<std::vector<Variant>(const layout::Cache&)>(renamed),
        std::function<std::vector<Variant>(const layout::Cache&)>(reblocked),
        std::function<std::vector<Variant>(const layout::Cache&)>(resized),
        std::function<std::vector<Variant>(const layout::Cache&)>(rescaled)}) {
    generate_beliefs(search, [&](const layout::Cache& cache, std::size_t) { return variants(cache); });
    if (search.found()) return;
  }
  generate_beliefs(search, [](const layout::Cache& cache, std::size_t) { return restrided(cache, {}); });
  // A table that one memory has in every step.
  for (const auto& [request, r] : search.scenario().requests) {
    for (const auto& [memory, table] : r.blocks) {
      std::set<std::vector<std::int64_t>> lists;
      for (const auto& [other, ids] : r.blocks) lists.insert(ids);
      for (const auto& [other, q] : search.scenario().requests) {
        if (const auto ids = q.blocks.find(memory); ids != q.blocks.end()) lists.insert(ids->second);
      }
      std::vector<std::int64_t> ids = table;
      std::ranges::reverse(ids);
      lists.insert(ids);
      lists.insert(std::vector<std::int64_t>(table.size(), 0));
      lists.insert(std::vector<std::int64_t>(table.size(), table.empty() ? 0 : table.front()));
      for (std::size_t k = 0; k < table.size(); ++k) {
        ids = table;
        std::fill(ids.begin() + static_cast<std::ptrdiff_t>(k), ids.end(), 0);
        lists.insert(ids);
        ids = table;
        ids[k] = no_block;
        lists.insert(ids);
      }
      for (const auto& list : lists) {
        if (list == table) continue;
        CandidateSteps bodies = search.bodies();
        for (auto& body : bodies) {
          for (Action& a : body) {
            if (a.request != request || !through_views(a)) continue;
            if (memory_of(a.from) == memory) a.from_blocks = list;
            if (memory_of(a.to) == memory) a.to_blocks = list;
          }
        }
        search.attempt(FaultClass::wrong_block_id,
                       "wherever " + memory + " is used: blocks " + list_text(list) + " instead of " + list_text(table),
                       std::move(bodies));
      }
    }
  }
}

void generate_layouts(HypothesisSearch& search) {
  generate_variants(search, [](const layout::Cache& cache, std::size_t) { return recoded(cache); });
  generate_variants(search, [](const layout::Cache& cache, std::size_t) { return relaid(cache); });
  generate_variants(search, [](const layout::Cache& cache, std::size_t) { return exchanged_parts(cache); });
  generate_variants(search, [](const layout::Cache& cache, std::size_t) { return permuted(cache, false, true); });
  generate_variants(search, [](const layout::Cache& cache, std::size_t) { return renamed(cache); });
  generate_variants(search, [](const layout::Cache& cache, std::size_t) { return reblocked(cache); });
  generate_larger_blocks(search);
  generate_variants(search, [&](const layout::Cache& cache, std::size_t step) {
    std::vector<std::int64_t> others;  // strides of other views: numbers of another pool
    const Action& a = search.action(step);
    for (const auto* views : {&a.from, &a.to}) {
      for (const View& view : *views) {
        for (const auto& plane : cache_of(view).planes) {
          for (const auto& mode : plane.modes) {
            if (mode.axis == Axis::block || mode.axis == Axis::layer || mode.axis == Axis::kv) others.push_back(mode.stride);
          }
        }
      }
    }
    return restrided(cache, others);
  });
  std::set<std::int64_t> ranks;
  for (const auto& [name, memory] : search.scenario().memories) ranks.insert(memory.rank);
  generate_variants(search, [&](const layout::Cache& cache, std::size_t) {
    std::vector<Variant> out = resized(cache);
    for (Variant& variant : out) {
      if (ranks.size() > 1 && variant.fault_class == FaultClass::wrong_stride)
        variant.fault_class = FaultClass::head_shard_mapping;  // a row cut by the number of ranks
    }
    return out;
  });
  generate_variants(search, [](const layout::Cache& cache, std::size_t) { return repitched(cache); });
}

void generate_scales(HypothesisSearch& search) {
  generate_variants(search, [](const layout::Cache& cache, std::size_t) { return swizzled(cache); });
  generate_variants(search, [](const layout::Cache& cache, std::size_t) { return rescaled(cache); });
  for (std::size_t i = 0; i < search.scenario().steps.size() && !search.spent(); ++i) {
    const Action& a = search.action(i);
    if (!through_views(a)) continue;
    std::set<std::int64_t> shifts;
    for (const auto* views : {&a.from, &a.to}) {
      for (const View& view : *views) {
        const layout::Cache cache = cache_of(view);
        for (const auto& plane : cache.planes) {
          for (const auto& mode : plane.modes) {
            for (const std::int64_t k : {1, 2}) shifts.insert(k * mode.stride / 8), shifts.insert(-k * mode.stride / 8);
          }
          for (const auto& other : cache.planes) {
            if (plane.component != Component::data && plane.allocation == other.allocation)
              shifts.insert((other.offset - plane.offset) / 8);
          }
        }
      }
    }
    for (const std::int64_t shift : shifts) {
      for (const int ends : {1, 2, 3}) {
        if ((ends & 1 && a.from.empty()) || (ends & 2 && a.to.empty()) || shift == 0) continue;
        Action body = a;
        if (ends & 1) {
          for (View& view : body.from) view.scale_offset += shift;
        }
        if (ends & 2) {
          for (View& view : body.to) view.scale_offset += shift;
        }
        search.attempt(FaultClass::scale_misplaced,
                       "scales " + std::to_string(shift) + " bytes off in " + symbol_of(search, i), i, body);
      }
    }
  }
}

void generate_far_layouts(HypothesisSearch& search) {
  generate_variants(search, [](const layout::Cache& cache, std::size_t) { return permuted(cache, true, true); });
}

}  // namespace kvcts::scenario
