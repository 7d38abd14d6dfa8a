// The id of a point: "kv/producer=vllm-fa-nhd/consumer=flashinfer-hnd/dtype=fp16/engine=shm". Axes appear in their order,
// without those at their default; a printed id parses back to the same point.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "matrix/space.hpp"

namespace kvcts::matrix {

std::string id_of(const Space& space, const Point& point);
/// Is this an id of the matrix ("kv/...") rather than of a case file?
bool is_matrix_id(std::string_view id);
/// Axes may appear in any order and state their default. Throws Error on an unknown axis or value, on a duplicate, or
/// without a producer.
Point point_from_id(Space& space, std::string_view id);
/// The case at a point: what `kvcts repro` of its id runs. `expected` stays empty.
CaseSpec spec_of(const Space& space, const Point& point);
/// The id of the same case as it is printed: axes at their default are left out. Other ids are returned as they are.
std::string canonical_id(Space& space, std::string_view id);
/// spec_of(point_from_id(id)).
CaseSpec spec_from_id(Space& space, std::string_view id);
/// The value of an axis in an id of the matrix; its default where the id leaves it out.
std::string_view value_in_id(std::string_view id, const Axis& axis);
/// The id with another value of one axis. Both work on the text: the values need not be this catalogue's.
std::string id_with(std::string_view id, const Axis& axis, std::string_view value);
/// XXH3-64 of the id: stable, so shards and samples are too.
std::uint64_t id_hash(std::string_view id);

}  // namespace kvcts::matrix
