// SPDX-License-Identifier: Apache-2.0
// The rules that say what corresponds to what, and the names that reports give them.
#pragma once
#include <cstdint>
#include <string_view>

namespace assay::pair {

enum class Rule : uint8_t {
  None,
  // What the user said.
  Explicit,     // --map
  DumpData,     // named with dump_data() in both programs
  MappingFile,  // --op-mapping-file
  // Names of nodes and tensors.
  EqualNames,
  EqualKeys,
  TwoFiles,       // each side is one tensor
  EqualPosition,  // of two nodes that a rule paired: their n-th tensors
  // Between two trees, as the original calls them; policies.hpp.
  LayerMatch,
  LayerSpecial,
  ModuleMatch,
  Output,
  NameFullMatch,
  LayerTypeCount,
  MapCount,
  Rope,
  EnhancedName,
  FusedQkv,
  // What the text of a compiled graph says of an operator's origin; ge_graph.hpp.
  FusionMetadata,
  DumpMetadata,
  NameDecomposition,
  FxTensorName,
  AlignedByShape,
  OwnInput,  // an operator that changes layout or precision only, against its own input
  // Between an engine of its own and the model that was converted for it.
  EngineTable,
  // Names of weights; weight_names.hpp.
  PrefixedNames,
  GgufNames,
  TiedEmbedding,
  // What both sides hold; by_value.hpp.
  Values,  // holds the same on both sides,
  // or made pairs of the same places in other layers or tokens, and these do not hold the same;
  Pattern,
  Place,  // or the place among pairs by value, type and shape
};

/// What the column `matched_by` says; "" of None.
[[nodiscard]] std::string_view rule_name(Rule rule);

}  // namespace assay::pair
