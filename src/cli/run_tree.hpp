// SPDX-License-Identifier: Apache-2.0
// The nodes of a run as an indented tree, equal layers once.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "run/run.hpp"

namespace assay::cli {

struct TreeOptions {
  bool fold = true;               // equal layers are shown once
  std::optional<int> width = {};  // of lines, in columns; nothing: they are as long as they are
};

struct TreeText {
  std::string lines;
  size_t folded = 0;  // layers that are not shown because an equal one is
};

/// A line a node: its name, indented by its depth, and what its records are. Nodes stand in the
/// order of their first records, each below the node that it is part of; of graph mode graph after
/// graph. The operators of a program without modules stand below "layer 5" where their names tell
/// the layer.
[[nodiscard]] TreeText tree_text(const run::Run& run,
                                 const std::vector<const run::TensorRecord*>& records,
                                 const TreeOptions& options);

/// A line of a listing of files: a record, and how it is called.
struct FileLine {
  size_t index = 0;   // of the record
  std::string label;  // "model.safetensors model.layers.0-11.mlp.up_proj.weight"
  size_t times = 1;   // records that it stands for
};

/// The records of files, equal layers once.
[[nodiscard]] std::vector<FileLine> folded_files(
    const std::vector<const run::TensorRecord*>& records);

}  // namespace assay::cli
