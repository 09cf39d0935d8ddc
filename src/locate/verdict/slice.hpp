// SPDX-License-Identifier: Apache-2.0
// What one output of a run depends on: the backward slice of a program.
//   docs/localisation.md, "Slices"
#pragma once
#include <set>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "locate/program/finding.hpp"

namespace assay::locate {

class Slice {
 public:
  /// name   a module path, "path:slot", an operator's node, or "step 3": the model's outputs in it
  ///        ("token 3", its earlier word, too). A module is sliced at its last call in every step.
  /// errors Usage (nothing has this name)
  [[nodiscard]] static Result<Slice> make(const Program& mine, const std::string& name);

  /// True when the finding may have changed the sliced output. Without operators whatever came
  /// before may have.
  [[nodiscard]] bool holds(const Finding& finding) const;

  /// Indices of operators, ascending; empty for a run without operators.
  [[nodiscard]] const std::set<size_t>& operators() const { return operators_; }

 private:
  void follow(const Program& mine, std::vector<const Use*> open);

  bool has_operators_ = false;
  std::set<size_t> operators_;
  std::set<std::pair<int, std::string>> modules_;  // (rank, path) of these operators
  int64_t last_step_ = 0;
  uint64_t last_time_ = 0;  // of the sliced output
};

}  // namespace assay::locate
