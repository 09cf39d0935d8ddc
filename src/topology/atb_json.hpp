// SPDX-License-Identifier: Apache-2.0
// Topology files of ATB: what the library reports, with tensor ids, becomes what the probe leaves
// on disk, with tensor
// names; a model's file gets the layers that were reported before it.
//   docs/formats/atb-topology.md
#pragma once
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace assay::topology {

inline constexpr size_t kMaxNesting = 1000;  // of graphs in graphs; deeper files are refused

/// The layer file's text (compact, no newline) for one report of ATB.
///
/// op_name   the name the report came under; must equal the report's "opName"
/// errors    Invalid with byte offset: no JSON, cut off, a required key (opName, opType,
///           inTensorNum, outTensorNum) is missing or of the wrong type, another name | TooLarge:
///           nesting, counts beyond the limits
[[nodiscard]] Result<std::string> layer_file(std::string_view op_name, std::string_view report);

/// One layer as it was reported.
struct LayerReport {
  std::string op_name;  // "Decoder_layer_1"
  std::string op_type;  // "Decoder_layer"
  std::string report;   // ATB's JSON, unchanged
};

/// What the models of one process have used up so far, so that the next model goes on behind them.
struct ModelMerge {
  std::map<std::string, size_t>
      used_by_type;       // layers of each type already given to a model's node
  size_t node_count = 0;  // nodes of all models so far: the id of a node without layer
};

/// The model file's text for one report of the model layer. The k-th node of a type takes the k-th
/// layer reported with
/// that type, and so its true id; a node without such a layer gets `merge->node_count` as id and
/// stays a leaf.
/// layers   in the order of their reports
[[nodiscard]] Result<std::string> model_file(std::string_view report,
                                             std::span<const LayerReport> layers,
                                             ModelMerge* merge);

}  // namespace assay::topology
