#include "case/resolve/model.hpp"

#include <stdexcept>

namespace kvcts {

std::int64_t* field_of(Model& model, const std::string& key) {
  auto& g = model.geometry;
  if (key == "layers") return &g.layers;
  if (key == "blocks") return &g.blocks;
  if (key == "block_size") return &g.block_size;
  if (key == "heads") return &g.heads;
  if (key == "head_dim") return &g.head_dim;
  if (key == "v_head_dim") return &g.v_head_dim;
  if (key == "kv") return &g.kv;
  if (key == "first_layer") return &g.first_layer;
  if (key == "first_head") return &g.first_head;
  if (key == "tokens") return &model.tokens;
  return nullptr;
}

void replace(Model& model, const nlohmann::json& values) {
  for (const auto& [key, value] : values.items()) {
    auto* field = field_of(model, key);
    if (!field) {
      throw std::runtime_error(
          "geometry: expected layers, blocks, block_size, heads, head_dim, v_head_dim, kv, first_layer, first_head or "
          "tokens, found '" +
          key + "'");
    }
    if (!value.is_number_integer())
      throw std::runtime_error("geometry " + key + ": expected a whole number, found " + value.dump());
    *field = value.get<std::int64_t>();
  }
}

Model model_of(const std::string& geometry, const nlohmann::json& values, const catalogue::Catalogue& catalogue) {
  const auto& entry = catalogue.geometries().at(geometry);
  Model model{catalogue::geometry_of(entry), entry.tokens};
  replace(model, values);
  return model;
}

}  // namespace kvcts
