#include "connector/misread.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>

namespace kvcts::connector {

using layout::Axis;
using layout::Cache;
using layout::Component;
using layout::Plane;
using nlohmann::json;

namespace {

/// The keys of one misreading, with their defaults.
struct How {
  std::string side{"consumer"}, how, swap, axis;
  std::int64_t n{1}, divide{1};
};

How how_of(const json& sabotage) {
  static const std::set<std::string> known{"fault", "side", "how", "swap", "axis", "n", "divide"};
  for (const auto& [key, value] : sabotage.items()) {
    if (!known.contains(key))
      throw std::runtime_error("sabotage: unknown key '" + key + "'; known are fault, side, how, swap, axis, n, divide");
  }
  How out{sabotage.value("side", "consumer"),   sabotage.value("how", ""),
          sabotage.value("swap", ""),           sabotage.value("axis", ""),
          sabotage.value("n", std::int64_t{1}), sabotage.value("divide", std::int64_t{1})};
  if (out.side != "producer" && out.side != "consumer")
    throw std::runtime_error("sabotage side: expected producer or consumer, found '" + out.side + "'");
  return out;
}

SideCache& side_of(Group& group, const How& how) { return how.side == "producer" ? group.producer : group.consumer; }

void each_plane(Group& group, const How& how, const std::function<void(Plane&, RankCache&)>& change) {
  for (auto& rank : side_of(group, how).ranks) {
    for (auto& plane : rank.claim.planes) change(plane, rank);
  }
}

[[noreturn]] void unknown_how(const std::string& fault, const How& how, const char* words) {
  throw std::runtime_error("sabotage " + fault + ": expected how to be " + words + ", found '" + how.how + "'");
}

// ---- layouts -------------------------------------------------------------------------------------------------------

/// Two axes swap places in the nesting; strides are those of the resulting packed order. `swap: NH`.
void axes(Group& group, const How& how) {
  const auto a = layout::axis_from_letter(how.swap.at(0)), b = layout::axis_from_letter(how.swap.at(1));
  if (!a || !b) throw std::runtime_error("sabotage axes: expected swap to be two axis letters, found '" + how.swap + "'");
  each_plane(group, how, [&](Plane& plane, RankCache&) {
    auto& modes = plane.modes;
    std::vector<std::size_t> nest(modes.size());
    std::iota(nest.begin(), nest.end(), std::size_t{0});
    std::stable_sort(nest.begin(), nest.end(), [&](auto i, auto j) { return modes[i].stride > modes[j].stride; });
    const auto place = [&](Axis axis) {
      return std::find_if(nest.begin(), nest.end(), [&](auto i) { return modes[i].axis == axis; });
    };
    const auto at_a = place(*a), at_b = place(*b);
    if (at_a == nest.end() || at_b == nest.end()) return;
    std::vector<std::int64_t> gaps;  // the gap between a mode's reach and the next step, as a factor: padding stays in place
    std::int64_t reach = layout::bits(plane.dtype);
    for (auto i = nest.rbegin(); i != nest.rend(); ++i) {
      gaps.push_back(modes[*i].stride - reach);
      reach = modes[*i].stride * modes[*i].extent;
    }
    if (std::any_of(gaps.begin(), gaps.end(), [](auto gap) { return gap != 0; })) {
      std::swap(modes[*at_a].stride, modes[*at_b].stride);  // not packed: only the two steps are swapped
      return;
    }
    std::iter_swap(at_a, at_b);
    std::int64_t stride = layout::bits(plane.dtype);
    for (auto i = nest.rbegin(); i != nest.rend(); ++i) {
      modes[*i].stride = stride;
      stride *= modes[*i].extent;
    }
  });
}

/// The step of an axis, divided, or n bytes larger.
void stride(Group& group, const How& how) {
  const auto axis = how.axis.size() == 1 ? layout::axis_from_letter(how.axis[0]) : std::nullopt;
  if (!axis) throw std::runtime_error("sabotage stride: expected axis to be an axis letter, found '" + how.axis + "'");
  each_plane(group, how, [&](Plane& plane, RankCache&) {
    for (auto& mode : plane.modes) {
      if (mode.axis != *axis || plane.component != Component::data) continue;
      mode.stride = how.divide > 1 ? mode.stride / how.divide : mode.stride + how.n * 8;
    }
  });
}

/// Every plane n bytes further on, in rows of a head for `how: rows`.
void offset(Group& group, const How& how) {
  each_plane(group, how, [&](Plane& plane, RankCache& rank) {
    const std::int64_t row = how.how == "rows" ? rank.geometry.head_dim * layout::bits(plane.dtype) : 8;
    plane.offset += how.n * row;
  });
}

/// Two coordinates of an axis swap places: first and last. Works on a mode of the axis and on planes of one value each.
void exchange_ends(Plane& plane, Axis axis, std::int64_t first, std::int64_t last) {
  bool mode_found = false;
  for (auto& mode : plane.modes) {
    if (mode.axis != axis || mode.extent < 2) continue;
    plane.offset += mode.stride * (mode.extent - 1);
    mode.stride = -mode.stride;
    mode_found = true;
  }
  if (mode_found) return;
  auto& at = plane.origin[axis];
  if (at == first)
    at = last;
  else if (at == last)
    at = first;
}

/// exchanged: K for V and V for K. k-for-v: V is read where K lies.
void kv(Group& group, const How& how) {
  if (how.how == "exchanged") {
    each_plane(group, how, [](Plane& plane, RankCache& rank) {
      if (rank.geometry.kv == 2) exchange_ends(plane, Axis::kv, 0, 1);
    });
    return;
  }
  if (how.how != "k-for-v") unknown_how("kv", how, "exchanged or k-for-v");
  for (auto& rank : side_of(group, how).ranks) {
    std::map<std::pair<Component, std::int64_t>, Plane> keys;  // by component and layer
    for (const auto& plane : rank.claim.planes) {
      if (plane.origin[Axis::kv] == 0) keys.try_emplace({plane.component, plane.origin[Axis::layer]}, plane);
    }
    for (auto& plane : rank.claim.planes) {
      for (auto& mode : plane.modes) {
        if (mode.axis == Axis::kv) mode.stride = 0;
      }
      const auto key = keys.find({plane.component, plane.origin[Axis::layer]});
      if (plane.origin[Axis::kv] != 1 || key == keys.end() || key->second.modes.size() != plane.modes.size()) continue;
      plane = key->second;
      plane.origin[Axis::kv] = 1;
    }
  }
}

/// missing: the last layer is unknown. exchanged: first and last. next: each is taken for the one after it.
void layers(Group& group, const How& how) {
  for (auto& rank : side_of(group, how).ranks) {
    const std::int64_t count = rank.geometry.layers, first = rank.geometry.first_layer, last = first + count - 1;
    if (count < 2) continue;
    auto& planes = rank.claim.planes;
    if (how.how == "missing") {
      std::erase_if(planes, [&](const Plane& p) {
        return p.origin[Axis::layer] == last &&
               std::none_of(p.modes.begin(), p.modes.end(), [](auto& m) { return m.axis == Axis::layer; });
      });
      for (auto& plane : planes) {
        for (auto& mode : plane.modes) {
          if (mode.axis == Axis::layer && mode.extent == count) --mode.extent;
        }
      }
      continue;
    }
    if (how.how != "exchanged" && how.how != "next") unknown_how("layers", how, "missing, exchanged or next");
    for (auto& plane : planes) {
      if (how.how == "exchanged")
        exchange_ends(plane, Axis::layer, first, last);
      else if (std::none_of(plane.modes.begin(), plane.modes.end(), [](auto& m) { return m.axis == Axis::layer; })) {
        plane.origin[Axis::layer] = first + (plane.origin[Axis::layer] - first + 1) % count;
      }
    }
  }
}

/// next-rank: each rank takes its neighbour's heads for its own. first-rank: every rank takes those of the first.
void heads(Group& group, const How& how) {
  auto& ranks = side_of(group, how).ranks;
  if (how.how != "next-rank" && how.how != "first-rank") unknown_how("heads", how, "next-rank or first-rank");
  std::vector<std::int64_t> first;
  for (const auto& rank : ranks) first.push_back(rank.geometry.first_head);
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const std::int64_t move = first[how.how == "first-rank" ? 0 : (r + 1) % ranks.size()] - first[r];
    for (auto& plane : ranks[r].claim.planes) {
      if (plane.component != Component::global_scale) plane.origin[Axis::head] += move;  // that one has no heads
    }
  }
}

/// missing: scale planes do not move. next: each group's scale is taken from n bytes further on.
void scales(Group& group, const How& how) {
  if (how.how != "missing" && how.how != "displaced") unknown_how("scales", how, "missing or displaced");
  for (auto& rank : side_of(group, how).ranks) {
    if (how.how == "missing") {
      std::erase_if(rank.claim.planes, [](const Plane& p) { return p.component != Component::data; });
      continue;
    }
    for (auto& plane : rank.claim.planes) {
      if (plane.component == Component::scale) exchange_ends(plane, how.axis == "H" ? Axis::head : Axis::slot, 0, 0);
    }
  }
}

/// Half of the channels: an extent that counts bytes used as one that counts 4-bit codes.
void packed(Group& group, const How& how) {
  each_plane(group, how, [](Plane& plane, RankCache&) {
    for (auto& mode : plane.modes) {
      if (mode.axis == Axis::channel && plane.component == Component::data && mode.stride == layout::bits(plane.dtype))
        mode.extent /= 2;
    }
  });
}

// ---- requests ------------------------------------------------------------------------------------------------------

std::vector<std::int64_t>& ids_of(Request& request, const How& how) {
  return how.side == "producer" ? request.producer_blocks : request.consumer_blocks;
}

struct IdRule {
  std::string_view name;
  void (*change)(std::vector<std::int64_t>& ids, const std::vector<std::int64_t>& others, std::int64_t pool, std::int64_t n);
};
constexpr std::array id_rules{
    IdRule{"reversed", [](auto& ids, auto&, auto, auto) { std::reverse(ids.begin(), ids.end()); }},
    IdRule{"sorted", [](auto& ids, auto&, auto, auto) { std::sort(ids.begin(), ids.end()); }},
    IdRule{"consecutive",
           [](auto& ids, auto&, auto pool, auto) {
             for (std::size_t i = 1; i < ids.size(); ++i) ids[i] = (ids[0] + static_cast<std::int64_t>(i)) % pool;
           }},
    IdRule{"plus",
           [](auto& ids, auto&, auto pool, auto n) {
             for (auto& id : ids) id = std::clamp<std::int64_t>(id + n, 0, pool - 1);
           }},
    IdRule{"rotated",
           [](auto& ids, auto&, auto, auto) {
             if (!ids.empty()) std::rotate(ids.begin(), ids.begin() + 1, ids.end());
           }},
    IdRule{"all-first", [](auto& ids, auto&, auto, auto) { std::fill(ids.begin(), ids.end(), ids.empty() ? 0 : ids[0]); }},
    IdRule{"first-two-exchanged",
           [](auto& ids, auto&, auto, auto) {
             if (ids.size() > 1) std::swap(ids[0], ids[1]);
           }},
    IdRule{"other-side",
           [](auto& ids, auto& others, auto pool, auto) {
             if (others.size() == ids.size() &&
                 std::all_of(others.begin(), others.end(), [&](auto id) { return id < pool; }))
               ids = others;
           }},
    // Blocks that the request does not own, in id order: another request's, or free ones.
    IdRule{"not-ours",
           [](auto& ids, auto&, auto pool, auto) {
             const std::set<std::int64_t> ours(ids.begin(), ids.end());
             std::vector<std::int64_t> free;
             for (std::int64_t id = 0; id < pool; ++id) {
               if (!ours.contains(id)) free.push_back(id);
             }
             for (std::size_t i = 0; i < ids.size() && !free.empty(); ++i) ids[i] = free[i % free.size()];
           }},
};

void ids(Group& group, const How& how) {
  const auto rule = std::find_if(id_rules.begin(), id_rules.end(), [&](auto& r) { return r.name == how.how; });
  if (rule == id_rules.end())
    unknown_how("ids", how,
                "reversed, sorted, consecutive, plus, rotated, all-first, first-two-exchanged, other-side or not-ours");
  How other = how;
  other.side = how.side == "producer" ? "consumer" : "producer";
  const std::int64_t pool = side_of(group, how).ranks.at(0).geometry.blocks;
  for (auto& request : group.requests) {
    const auto others = ids_of(request, other);
    rule->change(ids_of(request, how), others, pool, how.n);
  }
}

/// down, up: to a multiple of n (0 = of the producer's blocks). fewer: n less.
void tokens(Group& group, const How& how) {
  const std::int64_t p = group.producer.ranks.at(0).geometry.block_size, c = group.consumer.ranks.at(0).geometry.block_size;
  const std::int64_t unit = how.n > 0 ? how.n : p;
  for (auto& request : group.requests) {
    const std::int64_t room = std::min(static_cast<std::int64_t>(request.producer_blocks.size()) * p,
                                       static_cast<std::int64_t>(request.consumer_blocks.size()) * c);
    auto& count = request.tokens;
    if (how.how == "down")
      count = count >= unit ? count / unit * unit : count;
    else if (how.how == "up")
      count = std::min(room, (count + unit - 1) / unit * unit);
    else if (how.how == "fewer")
      count = std::max<std::int64_t>(0, count - how.n);
    else
      unknown_how("tokens", how, "down, up or fewer");
  }
}

/// Takes the other side's tokens per block for this side's: block i of one list goes to block i of the other.
void block_size(Group& group, const How&) {
  auto &p = group.producer.ranks, &c = group.consumer.ranks;
  const std::int64_t smaller = std::min(p.at(0).geometry.block_size, c.at(0).geometry.block_size);
  for (auto* ranks : {&p, &c}) {
    for (auto& rank : *ranks) rank.geometry.block_size = smaller;
  }
  for (auto& r : group.requests) {
    r.tokens = std::min(r.tokens,
                        smaller * static_cast<std::int64_t>(std::min(r.producer_blocks.size(), r.consumer_blocks.size())));
  }
}

struct Row {
  std::string_view name;
  void (*change)(Group&, const How&);
};
constexpr std::array rows{Row{"axes", axes},     Row{"stride", stride},         Row{"offset", offset},
                          Row{"kv", kv},         Row{"layers", layers},         Row{"heads", heads},
                          Row{"scales", scales}, Row{"packed", packed},         Row{"ids", ids},
                          Row{"tokens", tokens}, Row{"block_size", block_size}, Row{"none", [](Group&, const How&) {}}};

}  // namespace

std::vector<std::string> misreadings() {
  std::vector<std::string> out;
  for (const auto& row : rows) out.emplace_back(row.name);
  out.emplace_back("label");
  return out;
}

void misread(ResolvedCase& view, const json& sabotage) {
  const std::string fault = sabotage.value("fault", "");
  if (fault == "label") {  // readers only: the other of the two
    auto& options = view.reader.options;
    options["label"] = options.value("label", "") == "NHD" ? "HND" : "NHD";
    return;
  }
  const auto row = std::find_if(rows.begin(), rows.end(), [&](auto& r) { return r.name == fault; });
  if (row == rows.end())
    throw std::runtime_error("sabotage: there is no misreading '" + fault + "'; the table is in connector/misread.cpp");
  const How how = how_of(sabotage);
  for (auto& group : view.groups) row->change(group, how);
}

Plan Misreading::plan(const ResolvedCase& view, process::Progress progress) {
  ResolvedCase believed = view;
  misread(believed, sabotage_);
  return inside_->plan(believed, progress);
}

}  // namespace kvcts::connector
