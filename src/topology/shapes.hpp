// SPDX-License-Identifier: Apache-2.0
// Types and shapes of a graph's tensors, from the lists of operations that a run left beside its
// topology.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.hpp"
#include "topology/graph.hpp"

namespace assay::topology {

/// What the calls of each operation were given and returned, over all rounds that were added.
class ShapeTable {
 public:
  /// Adds an operation list (operation_tensors_<n>.csv). Rows that are damaged are left out.
  void add_op_csv(std::string_view text);
  /// Adds one tensor of one operation, from any other source.
  /// dtype    the source's word, "float16"
  void add(const std::string& op_name, bool is_input, size_t index, std::string_view dtype,
           const std::optional<std::vector<int64_t>>& dims);

  [[nodiscard]] size_t operation_count() const { return operations_.size(); }

  /// Writes the types into `graph->tensors`, by the operations' names and the order of their
  /// tensors.
  void apply(Graph* graph) const;

 private:
  struct Operation {
    std::vector<TensorType> inputs;
    std::vector<TensorType> outputs;
    uint64_t csv_row = 0;
  };
  std::map<std::string, Operation> operations_;
};

/// ONNX's number of an element type; 0 (undefined) for what ONNX has no number for at IR version 8.
[[nodiscard]] int32_t onnx_element_type(std::string_view dtype_word);

}  // namespace assay::topology
