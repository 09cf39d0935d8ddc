// SPDX-License-Identifier: Apache-2.0
// One row of a batch in two runs of the same shapes, beside other neighbours; and alone.
//   docs/invariance.md
#pragma once
#include <cmath>
#include <string>
#include <vector>

#include "repeat/rows.hpp"

namespace assay::repeat {

/// A module whose operators depend on the batch may sum in another order: more than so many units
/// of roundoff are no rounding.
inline constexpr double kRoundoffs = 64;

/// Behind such a module rows differ by rounding whatever is right: what is read equal to this, and
/// made other by that, is no rounding.
inline constexpr double kRounding = 1e-5;
inline constexpr double kFarOff = 0.03;

/// What became of the row in an operator's outputs.
enum class RowState : uint8_t {
  Same,
  Differs,    // a finding says how
  Inherited,  // and so do its inputs
  NotJudged,  // nobody can tell which elements are the row's
};
/// "same" "differs" "inherited" "not judged"
[[nodiscard]] std::string_view state_name(RowState state);

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
  /// By more than rounding explains of sums in another order.
  bool is_beyond_rounding = false;
  std::vector<std::string> mixed;  // inputs in which rows cannot be told apart
};

struct RowComparison {
  std::vector<RowFinding> findings;  // in the order of execution
  std::vector<RowState> states;      // by operator of the first run; of compare_tokens() the other
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

/// Where it reads or writes, or how much it makes, is what some of its inputs hold.
[[nodiscard]] bool reads_content(std::string_view name);

/// Its bytes were kept. Of an engine's weights, whose file has them, they are not.
[[nodiscard]] bool has_values(const run::TensorRecord& record);

/// It allocates memory, and what lies there is no result.
[[nodiscard]] bool is_without_values(const locate::Operator& one);

/// The row has the same content in both, and both have the same shapes, or one has the row alone.
/// errors  of run::load_tensor()
[[nodiscard]] Result<RowComparison> compare_rows(const RowPlace& first, const RowPlace& other,
                                                 const Splits& splits);

}  // namespace assay::repeat
