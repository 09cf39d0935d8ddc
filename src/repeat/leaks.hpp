// SPDX-License-Identifier: Apache-2.0
// One row of a batch in two runs of the same shapes, beside other neighbours; and alone.
//   docs/invariance.md
#pragma once
#include <cmath>
#include <string>
#include <vector>

#include "repeat/rows.hpp"

namespace assay::repeat {

/// An operator, or a module, that read equal values for the row and made others.
struct RowFinding {
  Place place;        // of a module: without an operation
  std::string slot;   // of the output
  Dims shape;         // of the output in the first run
  int64_t count = 0;  // of the row's elements
  int64_t different = 0;
  double largest_ulp = NAN;
  double relative_error = 0;
  /// False: the inputs are equal but for the rounding of a module before whose sums depend on the
  /// batch, and the output is not by far.
  bool is_exact = true;
  std::vector<std::string> mixed;  // inputs in which rows cannot be told apart
};

struct RowComparison {
  std::vector<RowFinding> findings;  // in the order of execution
  size_t judged = 0;                 // operators
  size_t inherited = 0;              // that read other values for the row already
  size_t unsplit = 0;                // that mix rows, so that nothing can be said
  /// Calls of modules whose operators depend on what is in the batch: judged as a whole.
  std::vector<std::string> content_dependent;
};

/// Where the row's values lie in a run: `row` of as many rows as `splits` knows, or alone.
struct RowPlace {
  const Execution* run = nullptr;
  int64_t row = 0;
  bool is_alone = false;  // its batch is the row
};

/// The row has the same content in both, and both have the same shapes, or one has the row alone.
/// errors  of run::load_tensor()
[[nodiscard]] Result<RowComparison> compare_rows(const RowPlace& first, const RowPlace& other,
                                                 const Splits& splits);

}  // namespace assay::repeat
