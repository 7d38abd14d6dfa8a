// The id of a point: "kv/producer=vllm-fa-nhd/consumer=flashinfer-hnd/dtype=fp16/engine=shm". Axes in their order, those at
// their default left out; what is printed parses back to the same point.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "matrix/space.hpp"

namespace kvcts::matrix {

std::string id_of(const Space& space, const Point& point);
/// Is this an id of the matrix ("kv/...") rather than of a case file?
bool is_matrix_id(std::string_view id);
/// Axes may stand in any order and say their default. Throws Error on an unknown axis or value, one given twice, or no
/// producer.
Point point_from_id(Space& space, std::string_view id);
/// The case at a point: what `kvcts repro` of its id runs. `expected` stays empty.
CaseSpec spec_of(const Space& space, const Point& point);
/// spec_of(point_from_id(id)).
CaseSpec spec_from_id(Space& space, std::string_view id);
/// XXH3-64 of the id: stable, so that shards and samples are.
std::uint64_t id_hash(std::string_view id);

}  // namespace kvcts::matrix
