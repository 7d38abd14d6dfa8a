#include "diagnose/quantity.hpp"

#include <map>

namespace kvcts::scenario {

FaultClass class_of_quantity(const std::string& about) {
  static const std::map<std::string, FaultClass> classes{{"dims", FaultClass::rank_mismatch},
                                                         {"groups", FaultClass::rank_mismatch},
                                                         {"heads", FaultClass::head_shard_mapping},
                                                         {"layers", FaultClass::layer_missing},
                                                         {"block_size", FaultClass::wrong_block_size},
                                                         {"bytes", FaultClass::truncated},
                                                         {"tokens", FaultClass::truncated},
                                                         {"stride", FaultClass::wrong_stride},
                                                         {"axes", FaultClass::axis_permuted},
                                                         {"kv", FaultClass::kv_split_vs_interleaved},
                                                         {"alignment", FaultClass::misaligned},
                                                         {"registration", FaultClass::registration_missing_region},
                                                         {"dtype", FaultClass::dtype_reinterpreted},
                                                         {"capability", FaultClass::capability_mismatch},
                                                         {"blocks", FaultClass::wrong_block_id},
                                                         {"key", FaultClass::identity_collision},
                                                         {"scales", FaultClass::scale_lost},
                                                         {"size", FaultClass::int32_overflow},
                                                         {"width", FaultClass::packed_dim_misread}};
  const auto found = classes.find(about);
  return found == classes.end() ? FaultClass::none : found->second;
}

}  // namespace kvcts::scenario
