// SPDX-License-Identifier: Apache-2.0
// Equal layers of a stack shown once, as `print(model)` of PyTorch does.
#pragma once
#include <string>
#include <vector>

namespace assay::run {

/// One line of a listing.
struct ListedPart {
  std::vector<std::string> path;  // "model" "layers" "5" "mlp"
  std::string what;  // type, shape, ... : layers whose lines differ in it are different
};

/// A line that stays, with the layers that it stands for at `depths` of its path.
struct FoldedPart {
  size_t index = 0;               // of the line of the first of these layers
  std::vector<std::string> path;  // "model" "layers" "0-11" "mlp"
  /// Of each folded place of the path how many layers it is: "12 times" at depth 2.
  struct Fold {
    size_t depth = 0;
    size_t times = 0;
  };
  std::vector<Fold> folds = {};  // the outermost first

  [[nodiscard]] size_t times() const {
    size_t all = 1;
    for (const Fold& fold : folds) all *= fold.times;
    return all;
  }
};

/// Layers are parts of a path as layer_of_part() knows them. Those of one stack whose lines are
/// equal - the paths below the layer and `what`, in their order - fold into the first of them,
/// wherever they stand: a model that alternates between two kinds becomes two. Numbered lines
/// without any below are steps, as those of a Sequential: they fold only where they are
/// neighbours. Folded layers are looked into again: experts within a layer fold, too.
[[nodiscard]] std::vector<FoldedPart> fold_layers(const std::vector<ListedPart>& parts);

}  // namespace assay::run
