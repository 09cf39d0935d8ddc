// SPDX-License-Identifier: Apache-2.0
// One model of a model's structure: operations inside graphs, wired by tensor names. Built from
// ATB's topology files, from module trees and from the texts of the graph engine; read by the
// exporters and by the comparison of structures.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "topology/model_tree.hpp"

namespace assay::topology {

inline constexpr size_t kMaxGraphNodes = size_t{1} << 20;

/// One attribute of an operation; objects are flattened with dots, so "normParam.epsilon" is a
/// name.
struct Parameter {
  /// monostate is null, of which only the presence is known. A list of mixed kinds is a list of
  /// texts.
  using Value = std::variant<std::monostate, bool, int64_t, double, std::string,
                             std::vector<int64_t>, std::vector<double>, std::vector<std::string>>;
  std::string name;
  Value value;
  std::string text;  // as it was written, strings without quotes: for people and for comparison
  friend bool operator==(const Parameter&, const Parameter&) = default;
};

/// What is known of a tensor from operation lists and file headers.
struct TensorType {
  std::string dtype;  // the source's word: "float16", "bf16"; empty when unknown
  /// For each dimension the lengths that were seen, ascending; more than one in a run with prefill
  /// and decode. Nothing when unknown, or when the number of dimensions itself changed; none for a
  /// dynamic dimension.
  std::optional<std::vector<std::vector<int64_t>>> shape;
  bool rank_varies = false;
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

/// "float16[1|37,4096]", "float16[]" for rank 0, "float16[?]" for an unknown shape; a dynamic
/// dimension is "?", too.
[[nodiscard]] std::string type_text(const TensorType& type);

/// Adds what one more call showed.
/// dims    nothing when it could not be read
void merge_type(std::string_view dtype, const std::optional<std::vector<int64_t>>& dims,
                TensorType* type);

struct Node {
  std::string name;  // opName "LinearOperation_0_1_0", or a module's dotted path
  std::string type;  // opType, or the module's class
  std::string ids;   // "0_1_0"; empty when the name has none
  std::vector<Parameter> parameters;
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  std::vector<std::string> internals;
  uint32_t parent = 0;             // the root is its own
  std::vector<uint32_t> children;  // in execution order
  uint32_t depth = 0;              // root 0
  bool is_graph = false;           // has a list of nodes, even an empty one
  bool truncated = false;          // its wires were not all known to the probe
  uint64_t csv_row = 0;  // first row of the operation list that describes it; 0 without one
};

enum class GraphKind : uint8_t { Layer, Model, ModuleTree, Engine };

/// nodes[0] is the root; parents stand before their children, and the order is that of the file.
struct Graph {
  GraphKind kind = GraphKind::Layer;
  std::vector<Node> nodes;
  std::vector<std::string> weights;  // of a model; they are inputs, too
  std::map<std::string, TensorType> tensors;
  std::vector<Parameter> properties;  // keys of the file that have no meaning here
  std::vector<std::string> notes;     // what had to be guessed, one sentence each
  [[nodiscard]] const Node& root() const { return nodes.front(); }
};

/// Reads a layer file, a model file, ATB's own report of a layer, a module tree (model_tree.json,
/// topology.json), or a text of the graph engine (ge_graph.hpp).
///
/// Missing lists, missing or null parameters and plugin nodes with a name only are accepted. A root
/// without lists of its tensors gets them from its nodes: inputs are what is read and never
/// produced, outputs what is produced and never read or is named "..._output_...".
///
/// errors  Invalid | Truncated with byte offset: no JSON, no topology, a key of the wrong type |
///         TooLarge: nesting deeper than 1000 graphs, more than 1048576 nodes
[[nodiscard]] Result<Graph> read_graph(std::string_view text);

/// A module tree that is in memory already.
[[nodiscard]] Graph graph_of_tree(const ModuleNode& tree);

/// A model whose file knows its layers by name only gets their insides from the layers' own files;
/// the layers' inputs and outputs become the tensors that the model hands over.
/// layer_of   gives the layer of that opName, or nothing
[[nodiscard]] Graph with_layers(
    Graph model, const std::function<std::optional<Graph>(const std::string& op_name)>& layer_of);

/// The nodes that a reader of one level sees, in file order: -1 all leaves, 0 the root, N >= 1
/// graphs at depth N as one node and leaves above it. Other negative levels are 1, as in the
/// original.
[[nodiscard]] std::vector<uint32_t> nodes_at_level(const Graph& graph, int level);

/// Tensors that an operation without outputs writes although they are its inputs: the cache of
/// KvCacheOperation. For a graph those of its operations that reach outside.
[[nodiscard]] std::vector<std::string> outputs_in_place(const Graph& graph, uint32_t node);

/// Where a leaf's data comes from when every write gives a tensor a new version.
struct WiredNode {
  uint32_t node = 0;
  std::vector<std::string> inputs;   // "cache", "cache@1"
  std::vector<std::string> outputs;  // each name once in the whole wiring
};

struct Wiring {
  std::vector<WiredNode> nodes;      // every producer before its consumers
  std::vector<std::string> inputs;   // names without version; read and not produced ones at the end
  std::vector<std::string> outputs;  // last versions
  std::vector<std::string> output_names;        // the same without version
  std::map<std::string, std::string> versions;  // "cache@1" -> "cache"
};

/// What a node reads and writes as seen from its neighbours.
struct Interface {
  uint32_t node = 0;
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
};

/// Brings nodes into an order in which producers come first and makes every name be written once.
/// inputs, outputs   of the graph around them, as declared; an output that nothing produces is left
///                   out
[[nodiscard]] Wiring wire(std::vector<Interface> nodes, const std::vector<std::string>& inputs,
                          const std::vector<std::string>& outputs);

/// The wiring of one level of the whole graph.
[[nodiscard]] Wiring wire_level(const Graph& graph, int level);

}  // namespace assay::topology
