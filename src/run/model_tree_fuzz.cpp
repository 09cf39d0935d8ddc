// SPDX-License-Identifier: Apache-2.0
// Any bytes as model_tree.json, and as the statistics' shape and file names that stand beside it.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "run/layers.hpp"
#include "run/torch_names.hpp"
#include "topology/model_tree.hpp"

namespace {
size_t depth_of(const assay::run::TopologyNode& node) {
  size_t deepest = 0;
  for (const auto& child : node.children) deepest = std::max(deepest, depth_of(child));
  return deepest + 1;
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto tree = assay::topology::read_model_tree(text)) {
    if (depth_of(*tree) > assay::topology::kMaxTreeDepth) std::abort();
    const std::string type = assay::run::layer_type(*tree, assay::run::kAnySizeLayerRule);
    if (!type.empty() && assay::run::layers_of_type(*tree, type).empty()) std::abort();
  }
  (void)assay::run::parse_torch_file_name(text);
  (void)assay::run::parse_device_folder(text);
  if (const auto shape = assay::run::parse_shape_text(text)) {
    for (const int64_t length : *shape) {
      if (length < 0) std::abort();
    }
  }
  return 0;
}
