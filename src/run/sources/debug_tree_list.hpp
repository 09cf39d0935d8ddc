// SPDX-License-Identifier: Apache-2.0
// One tree of calls as transformers' model_addition_debugger writes it.
//   docs/formats/transformers-debug.md
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "run/run.hpp"
#include "run/sources/module_tree.hpp"

namespace assay::run::sources {

inline constexpr size_t kMaxDebugTreeDepth = 1024;  // of JSON; a module takes two levels

/// Where a tree was found.
struct DebugTreePlace {
  std::string tree_path;  // of the tree itself
  std::string folder;     // with the files that it names
};

/// What the tree says of the model as a whole.
struct DebugTreeModel {
  std::string model_class;  // "LlamaForCausalLM"
  bool has_output = false;  // of the whole model: left out where it has modules
  bool has_files = false;   // tensors are in files of their own
  uint64_t end = 0;         // order of what the whole model returned
};

/// Appends the records of a tree in the order of the calls, and the layers that were left out of
/// it.
/// errors    Invalid | Truncated | TooLarge with byte offset: no JSON, or no object with
///           "module_path"
[[nodiscard]] Result<DebugTreeModel> read_debug_tree(std::string_view text,
                                                     const DebugTreePlace& place,
                                                     ModuleTree* modules, Run* run);

/// "tensor([[1., 2.]], dtype=torch.float16)" -> 1 2; nothing for other text, and where torch left
/// numbers out ("...").
[[nodiscard]] std::optional<std::vector<double>> printed_numbers(std::string_view text);

}  // namespace assay::run::sources
