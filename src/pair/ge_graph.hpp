// SPDX-License-Identifier: Apache-2.0
// A graph of the graph engine, as far as the names of dumped operators have to be traced back in
// it.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "formats/graph_text.hpp"
#include "pair/rule.hpp"

namespace assay::pair {

/// A tensor named by the operator that makes it.
struct GraphValue {
  std::string op;
  int64_t output = 0;
};

/// A value of the FX graph: "add_1-aten.add.Tensor.OUTPUT.0".
struct FxValue {
  std::string node;  // "add_1-aten.add.Tensor"
  int64_t output = 0;
};

/// What an operator of a dump was before fusion.
struct OperatorOrigin {
  std::vector<const formats::GraphOp*> members;  // in the order of execution; empty: unknown
  Rule rule = Rule::None;
  std::string rest;  // of the name, where decomposition ended
};

/// The graph before the engine's passes, with what later texts of it say about fusion.
/// Names are found as they are in the graph and as they are in file names, where blanks, dots and
/// slashes are underscores.
class GeGraph {
 public:
  GeGraph() = default;
  /// errors  of reading the file and of formats::read_graph_text()
  [[nodiscard]] static Result<GeGraph> read(const std::string& path);
  /// Takes the fusion attributes of an optimised graph or of the text of the build.
  /// errors  as read()
  [[nodiscard]] Status add_metadata(const std::string& path);

  /// In the order of execution.
  [[nodiscard]] const std::vector<formats::GraphOp>& operators() const { return graph_.ops; }
  /// nullptr: not in the graph.
  [[nodiscard]] const formats::GraphOp* find(std::string_view name) const;
  /// Place in the order of execution; -1 for operators that are not in the graph.
  [[nodiscard]] int64_t position(std::string_view name) const;

  /// The operators that one of a dump stands for: by the metadata of the optimised graph, its own
  /// name, `origins` (what its dump file says), or its name taken apart.
  /// dumped   operators that have a file; one of them that is not in the graph stops taking names
  ///          apart
  [[nodiscard]] OperatorOrigin origin(std::string_view name,
                                      const std::vector<std::string>& origins,
                                      const std::set<std::string, std::less<>>& dumped) const;
  /// The same by names only, as the original did: the longest prefix first, never another one.
  [[nodiscard]] OperatorOrigin decompose(std::string_view name,
                                         const std::set<std::string, std::less<>>& dumped) const;

  /// The values before fusion that an operator takes, in the order of its inputs in the optimised
  /// graph; an absent one has no name. Nothing where there is no such operator.
  [[nodiscard]] std::optional<std::vector<GraphValue>> values_of_inputs(
      std::string_view name) const;

  /// Which value before fusion an output is, by the metadata of the optimised graph.
  [[nodiscard]] std::optional<GraphValue> origin_of_output(std::string_view name,
                                                           size_t output) const;

 private:
  struct Index {
    std::vector<formats::GraphOp> ops;
    std::map<std::string, size_t, std::less<>> places;  // of names in both spellings
    void add(formats::GraphOp op);
    [[nodiscard]] const formats::GraphOp* find(std::string_view name) const;
  };
  [[nodiscard]] std::optional<std::vector<const formats::GraphOp*>> whole_decomposition(
      std::string_view name) const;

  Index graph_;
  Index optimized_;
};

/// The FX value that an output of an operator equals, by its attribute _fx_tensor_name.
[[nodiscard]] std::optional<FxValue> fx_value_of(const formats::GraphOp& op, size_t output);

/// As the engine writes a name into a file name.
[[nodiscard]] std::string file_spelling(std::string_view name);

}  // namespace assay::pair
