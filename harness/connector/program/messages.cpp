#include "connector/program/messages.hpp"

#include <algorithm>

namespace kvcts::connector::program {

using nlohmann::json;

namespace {

json tensor_json(const layout::TensorView& tensor, int first_region) {
  json shape = json::array(), strides = json::array(), axes = json::array();
  bool bytes = false;
  for (const auto& dim : tensor.dims) {
    shape.push_back(dim.extent), strides.push_back(dim.stride), axes.push_back(dim.axes);
    bytes = bytes || dim.axes == "*";
  }
  json origin = json::object();
  for (const auto axis : layout::all_axes)
    if (tensor.origin[axis] != 0) origin[std::string(1, layout::letter(axis))] = tensor.origin[axis];
  // Codes of four bits and rows of raw bytes are shown as uint8.
  const int itemsize = bytes ? 1 : std::max(1, layout::bits(tensor.dtype) / 8);
  return {{"name", tensor.name},
          {"memory", first_region + tensor.allocation},
          {"offset", tensor.offset},
          {"component", layout::name(tensor.component)},
          {"dtype", layout::name(tensor.dtype)},
          {"itemsize", itemsize},
          {"shape", std::move(shape)},
          {"strides", std::move(strides)},
          {"axes", std::move(axes)},
          {"origin", std::move(origin)}};
}

const SideCache& cache_of(const Group& group, Side side) { return side == Side::producer ? group.producer : group.consumer; }

}  // namespace

json register_arguments(const ResolvedCase& view, Side side, const std::vector<MemoryMessage>& memory) {
  json files = json::array(), groups = json::array();
  for (const MemoryMessage& one : memory)
    files.push_back({{"name", one.name}, {"file", one.file}, {"offset", one.offset}, {"bytes", one.bytes}});
  int region = 0;
  for (const Group& group : view.groups) {
    json ranks = json::array();
    for (const RankCache& rank : cache_of(group, side).ranks) {
      const layout::Geometry& g = rank.geometry;
      json tensors = json::array();
      for (const auto& tensor : rank.claim.tensors) tensors.push_back(tensor_json(tensor, region));
      ranks.push_back({{"geometry",
                        {{"layers", g.layers},
                         {"blocks", g.blocks},
                         {"block_size", g.block_size},
                         {"heads", g.heads},
                         {"head_dim", g.head_dim},
                         {"v_head_dim", g.v_head_dim == 0 ? g.head_dim : g.v_head_dim},
                         {"kv", g.kv},
                         {"first_layer", g.first_layer},
                         {"first_head", g.first_head}}},
                       {"tensors", std::move(tensors)}});
      region += static_cast<int>(rank.claim.allocations.size());
    }
    groups.push_back({{"name", group.name}, {"ranks", std::move(ranks)}});
  }
  json options = view.connector.options.value("job_options", json::object());
  options.update(view.engine.options);
  return {{"op", view.op},
          {"dtype", view.dtype},
          {"memory", std::move(files)},
          {"groups", std::move(groups)},
          {"options", std::move(options)}};
}

json transfer_arguments(const ResolvedCase& view, Side side) {
  json requests = json::array();
  for (std::size_t g = 0; g < view.groups.size(); ++g) {
    for (const Request& request : view.groups[g].requests) {
      const auto &p = request.producer_blocks, &c = request.consumer_blocks;
      requests.push_back({{"request", "r" + std::to_string(request.generation)},
                          {"group", g},
                          {"tokens", request.tokens},
                          {"blocks", side == Side::producer ? p : c},
                          {"peer_blocks", side == Side::producer ? c : p}});
    }
  }
  return {{"requests", std::move(requests)}};
}

}  // namespace kvcts::connector::program
