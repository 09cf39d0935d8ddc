// SPDX-License-Identifier: Apache-2.0
// Algorithms of the user as metrics of a check of operations.
#pragma once
#include <memory>
#include <vector>

#include "compare/algorithms.hpp"
#include "opcheck/check.hpp"

namespace assay::cli {

[[nodiscard]] inline std::vector<opcheck::CustomMetric> custom_metrics(
    const std::vector<std::shared_ptr<compare::Algorithm>>& algorithms) {
  std::vector<opcheck::CustomMetric> metrics;
  for (const std::shared_ptr<compare::Algorithm>& algorithm : algorithms) {
    const auto compute = [algorithm](const TensorView& golden, const TensorView& mine) {
      compare::AlgorithmValue found = algorithm->compute(golden, mine);
      return opcheck::CustomMetric::Value{std::move(found.value), std::move(found.message)};
    };
    metrics.push_back({algorithm->name(), compute});
  }
  return metrics;
}

}  // namespace assay::cli
