// SPDX-License-Identifier: Apache-2.0
// How a run lies on disk, and what follows from that for those who read it. A new layout is a row of the table in
// layout.cpp: nobody outside src/run asks for a layout by its name.
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
};

/// "torch-tree": in JSON, in Python and in messages.
[[nodiscard]] std::string_view layout_name(Layout layout);
/// "PyTorch dump": for people.
[[nodiscard]] std::string_view layout_title(Layout layout);

/// What can be said of a run because of its layout.
enum class Trait : uint16_t {
  OneFile = 1 << 0,      // one tensor file: slots are its keys
  Files = 1 << 1,        // nodes are names of tensor files, slots keys in them; no ranks, no steps
  ModuleNames = 1 << 2,  // nodes are paths of modules, which wrappers and prefixes may differ in
  ModuleClasses = 1 << 3,  // types of nodes are classes of PyTorch modules
  Hooks = 1 << 4,          // captured by our hooks in PyTorch
  StrictHooks =
      1 << 5,  // by those of the strict API: "root" stands in front of the paths of modules
  AtenOperators = 1 << 6,  // may hold operators of its modules: "model.norm::aten.mul.Tensor.1"
  AtbOperations =
      1 << 7,  // nodes are operations of ATB inside each other: "0_layer/1_LinearOperation"
  CompiledGraphs =
      1 << 8,  // nodes are operators of compiled graphs: one word each, unique in its graph
  GeOperators = 1 << 9,  // those of the graph engine
  FxNodes = 1 << 10,     // those of FX, which TorchAir interpreted
  Steps = 1 << 11,       // the layout tells the step of every record
  GgufNames = 1 << 12,   // weights under the names of a GGUF file
};
[[nodiscard]] bool has_trait(Layout layout, Trait trait);

}  // namespace assay::run
