// SPDX-License-Identifier: Apache-2.0
// The table of layouts: names for machines and people, and the traits.
#include "run/layout.hpp"

#include <cstddef>
#include <initializer_list>

namespace assay::run {
namespace {

class Traits {
 public:
  constexpr Traits(std::initializer_list<Trait> traits) {
    for (const Trait trait : traits) bits_ |= static_cast<uint16_t>(trait);
  }
  [[nodiscard]] constexpr bool has(Trait trait) const {
    return (bits_ & static_cast<uint16_t>(trait)) != 0;
  }

 private:
  uint16_t bits_ = 0;
};

struct LayoutRow {
  Layout layout;
  std::string_view name;
  std::string_view title;
  Traits traits;
};

using enum Trait;

constexpr LayoutRow kLayouts[] = {
    {Layout::None, "", "", {}},
    {Layout::File, "file", "tensor file", {OneFile, Files, ModuleNames}},
    {Layout::Flat, "flat", "folder of tensor files", {Files, ModuleNames}},
    {Layout::Manual, "manual", "named tensors", {}},
    {Layout::Native,
     "native",
     "assay run",
     {ModuleNames, ModuleClasses, Hooks, AtenOperators, Steps}},
    {Layout::TorchTree,
     "torch-tree",
     "PyTorch dump",
     {ModuleNames, ModuleClasses, Hooks, StrictHooks, Steps}},
    {Layout::AtbTree, "atb-tree", "ATB dump", {AtbOperations, Steps}},
    {Layout::GeTree, "ge-tree", "GE graph dump", {CompiledGraphs, GeOperators, Steps}},
    {Layout::FxTree, "fx-tree", "FX graph dump", {CompiledGraphs, FxNodes, Steps}},
    {Layout::CapturedGraph, "captured-graph", "captured-graph", {CompiledGraphs, Steps}},
    {Layout::Msprobe, "msprobe", "msprobe dump", {ModuleNames, ModuleClasses}},
    {Layout::TransformersDebug, "transformers-debug", "transformers debug dump", {ModuleNames}},
    {Layout::Checkpoint, "checkpoint", "checkpoint", {}},
    {Layout::Gguf, "gguf", "gguf", {GgufNames}},
    {Layout::NativeGraph,
     "native-graph",
     "assay run of compiled graphs",
     {CompiledGraphs, GeOperators, Steps}},
    {Layout::Fingerprint,
     "fingerprint",
     "fingerprint",
     {ModuleNames, ModuleClasses, Hooks, AtenOperators, Steps, WithoutValues}},
};

// The place of a row is the number of its layout.
constexpr bool is_in_order() {
  size_t place = 0;
  for (const LayoutRow& row : kLayouts) {
    if (static_cast<size_t>(row.layout) != place++) return false;
  }
  return place == static_cast<size_t>(Layout::Fingerprint) + 1;
}
static_assert(is_in_order());

const LayoutRow& row_of(Layout layout) { return kLayouts[static_cast<size_t>(layout)]; }

}  // namespace

std::string_view layout_name(Layout layout) { return row_of(layout).name; }

std::string_view layout_title(Layout layout) { return row_of(layout).title; }

bool has_trait(Layout layout, Trait trait) { return row_of(layout).traits.has(trait); }

}  // namespace assay::run
