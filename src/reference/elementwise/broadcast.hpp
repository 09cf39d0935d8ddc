// SPDX-License-Identifier: Apache-2.0
// A view read as if it had a larger shape (NumPy's rules), block by block.
#pragma once
#include <vector>

#include "reference/wide.hpp"

namespace assay::reference {

/// Values that loops over several operands read at a time; a few of these blocks fit in the first
/// cache.
inline constexpr int64_t kBlock = 2048;

/// Values of a view under a larger shape, in C order of that shape.
class BroadcastValues {
 public:
  /// errors  of broadcast_to() | Unsupported (types without real values)
  [[nodiscard]] static Result<BroadcastValues> make(const TensorView& view, const Dims& shape);
  /// `count` values from `first` on.
  void read(int64_t first, int64_t count, double* out) const;

 private:
  TensorView view_;          // of one period, or of the whole shape
  int64_t period_ = 0;       // values after which the view repeats; 0: it does not
  std::vector<double> row_;  // a short period, repeated to at least kBlock + period_ values
};

}  // namespace assay::reference
