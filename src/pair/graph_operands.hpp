// SPDX-License-Identifier: Apache-2.0
// The records of a dump of graph mode by operator, and the operands of operators in the graph.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "formats/graph_text.hpp"
#include "run/run.hpp"

namespace assay::pair {

/// The records of one operator or FX node in one token.
struct Operands {
  std::string name;
  std::string op_type;
  std::string file;
  std::vector<size_t> inputs;  // in the order of their slots
  std::vector<size_t> outputs;
};

/// By name.
using Operators = std::map<std::string, Operands, std::less<>>;
/// By number of the token.
using GraphTokens = std::map<int64_t, Operators>;

/// Inputs and outputs of one graph on one rank; of a node that ran several times in a token, the
/// first.
[[nodiscard]] GraphTokens group_by_token(const run::Run& run, int rank, uint32_t graph);

/// The file that tells of a record: with its bytes, or with its statistics only.
[[nodiscard]] const std::string& file_of(const run::TensorRecord& record);

/// "file,inputs,0": how the original names an operand of a dump file.
[[nodiscard]] std::string operand_label(const run::TensorRecord& record);

/// An operand of an operator of the graph before fusion.
struct GraphOperand {
  const formats::GraphOp* op = nullptr;
  size_t place = 0;       // among the operands that have data
  size_t data_place = 0;  // the same without constants
  std::string producer;
  int64_t producer_output = 0;
  bool constant = false;
};

}  // namespace assay::pair
