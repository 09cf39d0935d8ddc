// SPDX-License-Identifier: Apache-2.0
// Reads the positions of the tokens out of the leaf in which llama.cpp hands them over.
#include "capture/ggml/positions.hpp"

#include "capture/ggml/graph_plan.hpp"

namespace assay::capture::ggml {

std::optional<Positions> positions_of(const Engine& engine, EngineGraph* graph) {
  const EngineFunctions& functions = engine.functions();
  const int count = functions.ggml_graph_n_nodes(graph);
  for (int i = 0; i < count; ++i) {
    const TensorFields node = engine.fields(functions.ggml_graph_node(graph, i));
    for (size_t k = 0; k < node.source_count(); ++k) {
      if (node.source(k) == nullptr) continue;
      const TensorFields leaf = engine.fields(node.source(k));
      if (leaf.op() != 0 || origin_name(leaf.name()) != "inp_pos") continue;
      const int64_t tokens = leaf.ne()[0];
      EngineBuffer* buffer = leaf.buffer();
      if (leaf.data() == nullptr || buffer == nullptr || tokens <= 0 ||
          engine.type_info(leaf.type()).dtype != DType::Int32 ||
          !functions.ggml_backend_buffer_is_host(buffer))
        return std::nullopt;
      const auto at = [&](int64_t token) {
        int32_t position = 0;
        std::memcpy(&position, leaf.data() + token * int64_t{sizeof(position)}, sizeof(position));
        return position;
      };
      return Positions{tokens, at(0), at(tokens - 1)};
    }
  }
  return std::nullopt;
}

bool may_be_warm_up(const Positions& positions) {
  return positions.count == 2 && positions.first == 0 && positions.last == 1;
}

}  // namespace assay::capture::ggml
