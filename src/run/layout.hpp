// SPDX-License-Identifier: Apache-2.0
// How a run lies on disk, and what follows from that for those who read it. A new layout is a row
// of the table in layout.cpp: nobody outside src/run asks for a layout by its name.
#pragma once
#include <cstdint>
#include <string_view>

namespace assay::run {

enum class Layout : uint8_t {
  None,  // made in memory, by no reader
  File,
  Flat,
  Manual,
  Native,
  TorchTree,
  AtbTree,
  GeTree,
  FxTree,
  CapturedGraph,
  Msprobe,
  TransformersDebug,
  Checkpoint,
  Gguf,
  NativeGraph,
  Fingerprint,
};

/// "torch-tree": in JSON, in Python and in messages.
[[nodiscard]] std::string_view layout_name(Layout layout);
/// "PyTorch dump": for people.
[[nodiscard]] std::string_view layout_title(Layout layout);

/// What can be said of a run because of its layout.
enum class Trait : uint16_t {
  /// One tensor file: slots are its keys.
  OneFile = 1 << 0,
  /// Nodes are names of tensor files, slots keys in them; there are no ranks and no steps.
  Files = 1 << 1,
  /// Nodes are paths of modules, which wrappers and prefixes may differ in.
  ModuleNames = 1 << 2,
  /// Types of nodes are classes of PyTorch modules.
  ModuleClasses = 1 << 3,
  /// Captured by our hooks in PyTorch.
  Hooks = 1 << 4,
  /// Captured by those of the strict API: "root" stands in front of the paths of modules.
  StrictHooks = 1 << 5,
  /// May hold operators of its modules: "model.norm::aten.mul.Tensor.1".
  AtenOperators = 1 << 6,
  /// Nodes are operations of ATB inside each other: "0_layer/1_LinearOperation".
  AtbOperations = 1 << 7,
  /// Nodes are operators of compiled graphs: one word each, unique in its graph.
  CompiledGraphs = 1 << 8,
  /// These are the graph engine's.
  GeOperators = 1 << 9,
  /// These are FX's, interpreted by TorchAir.
  FxNodes = 1 << 10,
  /// The layout tells the step of every record.
  Steps = 1 << 11,
  /// Weights under the names of a GGUF file.
  GgufNames = 1 << 12,
  /// Holds what tells values from others, and only few of the values.
  WithoutValues = 1 << 13,
};
[[nodiscard]] bool has_trait(Layout layout, Trait trait);

}  // namespace assay::run
