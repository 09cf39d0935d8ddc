// SPDX-License-Identifier: Apache-2.0
// Metrics of the user: FILE.py:FUNC in a helper process, FILE.so:FUNC in this one, or a callable
// that
// a binding brings.   docs/commands/compare.md
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::compare {

struct AlgorithmValue {
  std::variant<std::monostate, double, int64_t, std::string> value;  // monostate: none
  std::string message;  // joins cmp_fail_reason; also when the algorithm failed
};

class Algorithm {
 public:
  virtual ~Algorithm() = default;
  [[nodiscard]] virtual const std::string& name() const = 0;  // column of the report
  /// Called from any thread; implementations serialise themselves where they must. A failure of the
  /// user's code is a message, never an exception.
  [[nodiscard]] virtual AlgorithmValue compute(const TensorView& golden,
                                               const TensorView& mine) = 0;
};

/// specs   "FILE.py:FUNC" or "FILE.so:FUNC", one column each
/// errors  Usage | Invalid, with the original's sentences: wrong form, not importable, wrong
///         signature, wrong result for ones([1]), ones([1])
[[nodiscard]] Result<std::vector<std::shared_ptr<Algorithm>>> load_algorithms(
    const std::vector<std::string>& specs);

}  // namespace assay::compare
