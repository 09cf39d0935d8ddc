// SPDX-License-Identifier: Apache-2.0
// The data flow of a structure whose operations name their tensors, once for each step and rank that
// there are records of.
#pragma once
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "report/html/flow_builder.hpp"

namespace assay::report::html {

struct Wire {
  std::string name;  // of what comes from outside
  FlowLeaf leaf = FlowLeaf::None;
  std::string type;
};

/// An operation as the structure has it.
struct WiredOperation {
  std::string name;  // as in the records
  std::string type;
  std::string module;  // FlowNode::module
  bool encloses = false;
  // By number of the tensor: indices into Structure::wires; kNoIndex: an operand that was left out,
  // or is not known.
  std::vector<uint32_t> inputs;
  std::vector<uint32_t> outputs;
  size_t numbered_inputs = SIZE_MAX;  // from here on nobody knows the number of an input
};

struct Structure {
  std::vector<WiredOperation> operations;  // in the order of execution
  std::vector<Wire> wires;

  // Filled by index(), when all operations are there:
  std::unordered_map<std::string_view, uint32_t> place_of;  // by name
  std::vector<std::vector<uint32_t>> operations_of;         // by wire; those that enclose none
  void index();
};

/// The records of one step of one graph on one rank.
struct ExecutionRecords {
  int rank = 0;
  uint32_t graph = 0;
  std::vector<size_t> records;  // indices into Run::records
};
[[nodiscard]] std::vector<ExecutionRecords> executions_of(const run::Run& run);

/// Adds the operations that have records, and of the others those that share a tensor with one.
///
/// structure  indexed
/// records    of one execution of the structure, indices into Run::records; those of nodes that the
///            structure does not know become nodes without links
void add_execution(const Structure& structure, const std::vector<size_t>& records,
                   FlowBuilder* builder);

}  // namespace assay::report::html
