// SPDX-License-Identifier: Apache-2.0
// Who made and who reads each value of a run, from the best that the run has: operator records, a
// topology, texts of graphs, or values that are equal.   docs/formats/page.md, "Graph and links"
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "run/run.hpp"

namespace assay::report::html {

/// No such node, value or record: indices are of 32 bits, since a run has millions of them.
inline constexpr uint32_t kNoIndex = UINT32_MAX;

/// A tensor that goes into or comes out of a node.
struct FlowPort {
  uint32_t record = kNoIndex;  // index into Run::records; kNoIndex: it was not captured
  uint32_t value = kNoIndex;   // index into DataFlow::values; kNoIndex: nothing is known of it
  bool has_number = true;      // the place of the port is the tensor's number at the node
};

/// One execution of one operator, or one call of a module or graph with others inside.
struct FlowNode {
  std::string name;    // as in the records: "model.norm::aten.mul.Tensor.1", "0_layer/1_Linear"
  std::string type;    // "aten.mul.Tensor", "LlamaRMSNorm"; may be empty
  std::string module;  // path of what it runs in; of a module, and of an operation of ATB, its own
  int rank = 0;
  int64_t step = 0;
  uint32_t call = 0;
  uint64_t begin = 0;  // TensorRecord::order of its first and of its last record
  uint64_t end = 0;
  bool encloses = false;  // others run inside it
  std::vector<FlowPort> inputs;
  std::vector<FlowPort> outputs;
  std::vector<uint32_t> parameters;  // values that it holds, where nothing says who reads them
};

/// A place at a node: an index into its inputs or outputs. kNoIndex: the node holds the value, as a
/// module its parameters.
struct FlowPlace {
  uint32_t node = kNoIndex;
  uint32_t port = kNoIndex;
  friend bool operator==(const FlowPlace&, const FlowPlace&) = default;
};

/// What a value is that comes from outside and has a name.
enum class FlowLeaf : uint8_t {
  None,  // it does not
  Parameter,
  Input,
  Unknown,  // a weight, a cache or an input: the run does not say which
};

/// One value: a tensor between two writes. Modules inside each other make and read the same ones.
struct FlowValue {
  std::string name;  // of a parameter, or what a topology calls the tensor; empty: it has none
  FlowLeaf leaf = FlowLeaf::None;
  uint32_t record = kNoIndex;     // of a parameter: where it was captured
  std::string type;               // "float32 [4, 64]", where only the graph's text says it
  std::vector<FlowPlace> makers;  // outputs
  std::vector<FlowPlace> users;   // inputs
};

enum class FlowBasis : uint8_t { Nothing, Operators, Topology, GraphText, EqualValues };
[[nodiscard]] std::string_view basis_name(FlowBasis basis);  // "operators" ... "" of Nothing

struct DataFlow {
  const run::Run* run = nullptr;  // outlives the flow
  FlowBasis basis = FlowBasis::Nothing;
  std::string reason;              // why nothing is known of who reads what; empty: something is
  std::vector<std::string> notes;  // texts of graphs that could not be read, one sentence each
  std::vector<FlowNode> nodes;     // in execution order, as far as the run knows it
  std::vector<FlowValue> values;
  // By record of the run; kNoIndex: none.
  std::vector<uint32_t> node_of_record;
  std::vector<uint32_t> value_of_record;

  /// `inner` runs inside `outer`.
  [[nodiscard]] bool encloses(const FlowNode& outer, const FlowNode& inner) const;
};

/// Opens nothing but texts of graphs.
[[nodiscard]] DataFlow data_flow(const run::Run& run);

}  // namespace assay::report::html
