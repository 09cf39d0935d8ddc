// SPDX-License-Identifier: Apache-2.0
// The parameters of a node, decoded from the 64 bytes that every operator lays out in its own way.
// Table: docs/design/ggml-probe.md
#pragma once
#include <string>

#include "capture/ggml/engine.hpp"

namespace assay::capture::ggml {

/// {"src0":{"tensor":"src0"},"eps":1e-05}: the sources, then the parameters. An operator that is
/// not known gives its 16 words as "op_params". A node that lists itself as a source (a cast) is
/// not its own input.
[[nodiscard]] std::string arguments_json(const Engine& engine, const TensorFields& node);

}  // namespace assay::capture::ggml
