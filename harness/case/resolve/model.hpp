// The numbers of a case: a geometry of the catalogue with some of them replaced.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "case/catalogue/catalogue.hpp"
#include "layout/template.hpp"

namespace kvcts {

struct Model {
  layout::Geometry geometry;
  std::int64_t tokens{0};
};

/// The number for a key as cases write it (layers, blocks, block_size, heads, head_dim, v_head_dim, kv, first_layer,
/// first_head, tokens); nullptr: unknown key.
std::int64_t* field_of(Model& model, const std::string& key);
/// Replaces numbers. Throws std::runtime_error on an unknown key or a value that is not a whole number.
void replace(Model& model, const nlohmann::json& values);
Model model_of(const std::string& geometry, const nlohmann::json& values, const catalogue::Catalogue& catalogue);

}  // namespace kvcts
