// SPDX-License-Identifier: Apache-2.0
// A topology file as it lies in a dump, with the layers beside it that it only names.
#pragma once
#include <string>

#include "base/result.hpp"
#include "topology/graph.hpp"

namespace assay::run {

/// Opens and reads a topology file of any kind; its tensors have no types yet. Layers of a model
/// that its own file does not describe come from the layer files of the same process.
[[nodiscard]] Result<topology::Graph> read_topology_file(const std::string& path);

}  // namespace assay::run
