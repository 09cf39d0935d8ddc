// SPDX-License-Identifier: Apache-2.0
// Whether two ranks were given the same work.
#pragma once
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "run/run.hpp"

namespace assay::pair {

/// Whether two ranks compute the same of the same inputs in a step.
enum class Work : uint8_t { Same, Other, Unknown };

/// What two tensors in one place tell; Unknown: nothing.
using Judgement = std::function<Work(const run::TensorRecord& a, const run::TensorRecord& b)>;

/// What the ranks of a run are given first in each step.
class FirstInputs {
 public:
  /// run  outlives this
  explicit FirstInputs(const run::Run& run);

  /// By what the first module or operation of the step that has inputs on both is given there.
  [[nodiscard]] Work compare(int rank, int64_t step, const FirstInputs& other, int other_rank,
                             const Judgement& judge) const;
  /// Of a rank, those in which something has inputs.
  [[nodiscard]] std::set<int64_t> steps_of(int rank) const;

 private:
  const run::Run& run_;
  std::map<std::pair<int, int64_t>, std::vector<size_t>> inputs_;  // rank, step
};

/// Equal in every value, as far as the records tell; integers whatever their size and shape.
[[nodiscard]] bool have_equal_values(const run::TensorRecord& a, const run::TensorRecord& b);

}  // namespace assay::pair
