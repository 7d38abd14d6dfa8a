// The field table of every kind of YAML file: one screen each, in tables.cpp and case_table.cpp.
#pragma once

#include "case/catalogue/entries.hpp"
#include "case/catalogue/fields.hpp"
#include "case/direction.hpp"

namespace kvcts::catalogue {

const Table<Source>& source_table();
const Table<layout::TensorSpec>& tensor_spec_table();
const Table<LayoutEntry>& layout_table();
const Table<SchemeEntry>& dtype_table();
const Table<GeometryEntry>& geometry_table();
const Table<BackendEntry>& backend_table();
const Table<ArchEntry>& arch_table();
const Table<ConnectorEntry>& connector_table();
const Table<EngineEntry>& engine_table();
const Table<ConstraintEntry>& constraint_table();
const Table<MatrixBlock>& block_table();
const Table<SuiteEntry>& suite_table();
const Table<WaiverEntry>& waiver_table();

/// Names of outcomes ("PASS", ...) and phases ("resolve", ...), for closed lists.
std::vector<std::string> outcome_names();
std::vector<std::string> phase_names();
Codec<FaultClass> fault_class_codec();
Codec<Direction> direction_codec();
Codec<Outcome> outcome_codec(std::vector<std::string> allowed);
/// Phase name -> milliseconds.
Codec<std::map<std::string, std::int64_t>> deadlines();

}  // namespace kvcts::catalogue
