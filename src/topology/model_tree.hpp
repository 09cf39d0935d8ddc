// SPDX-License-Identifier: Apache-2.0
// Module trees as JSON: model_tree.json of the torch hook dump and topology.json of the native
// layout.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace assay::topology {

inline constexpr size_t kMaxTreeDepth = 256;  // nesting of modules; torch models stay below 20
inline constexpr size_t kMaxTreeNodes = size_t{1} << 22;

/// A module tree as the host declared it.
struct ModuleNode {
  std::string name;  // dotted path
  std::string type;  // class
  std::vector<ModuleNode> children;
  std::optional<int64_t> exec_order = {};  // when the writer recorded one; -1 was never executed
  std::map<std::string, std::string> parameters = {};  // of an operation: flattened name and text
  // Of an operation: names of its tensors, by their numbers; empty where one is left out, or where
  // the writer lists none. Names are those of one model, or of one operation outside models.
  std::vector<std::string> inputs = {};
  std::vector<std::string> outputs = {};  // behind them the inputs that it writes
  /// Of a module's own parameters and buffers, where the writer lists them: "weight" -> "bfloat16".
  std::map<std::string, std::string> parameter_types = {};
  std::string source = {};  // file and line of its code: "models/llama.py:312"; empty when unknown
};

/// Reads {"name": str, "type": str, "children": [...]} recursively; "exec_order" and "source" are
/// taken where they stand, and "parameters": [{"name": str, "dtype": str}]; other keys are skipped.
/// Only the first JSON value counts: the oldest writer did not truncate the file, so that the tail
/// of a longer earlier tree can follow.
/// errors    Invalid with the byte offset: no JSON, cut off, or the value is no object |
///           TooLarge: a limit above
[[nodiscard]] Result<ModuleNode> read_model_tree(std::string_view text);

/// Name and `source` of every module that has one. The texts borrow `root`.
[[nodiscard]] std::map<std::string_view, std::string_view> module_sources(const ModuleNode& root);

}  // namespace assay::topology
