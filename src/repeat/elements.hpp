// SPDX-License-Identifier: Apache-2.0
// What kind of difference it is, of an operator whose values were kept in two runs.
//   docs/commands/repeat.md, "Reordering or a wrong element"
#pragma once
#include <cmath>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "locate/program/engine.hpp"
#include "repeat/differences.hpp"

namespace assay::repeat {

enum class Kind : uint8_t {
  Reordering,      // both results are within rounding of the exact one: sums in another order
  WrongElement,    // one of them is further off than rounding explains
  LooksReordered,  // the operator has no reference; the difference is as small as rounding
  LooksWrong,      // likewise; it is larger
};
/// "reordering" "wrong element" "looks like a reordering" "looks like a wrong element"
[[nodiscard]] std::string_view kind_name(Kind kind);

struct Elements {
  Kind kind = Kind::Reordering;
  int64_t count = 0;         // of the output
  int64_t different = 0;     // bit for bit
  double largest_ulp = NAN;  // between the two results; NaN of types without a last place
  int64_t worst = -1;        // flat index of it
  double first = NAN;        // the two values there
  double other = NAN;
  std::string worst_place;  // "[3, 5]"
  /// Of the exact result: which run is wrong (0 the first, 1 the other), and how far off in ULP.
  std::optional<int> wrong_side;
  double off_ulp = NAN;
  double allowed_ulp = NAN;
};

/// The output of the operator in two runs that kept data and digests.
///
/// engines  one of them may have made the runs
/// returns  nothing: the inputs are others, or the outputs are equal this time
/// errors   NotFound (a run has no such operator, or no bytes of it) | of run::load_tensor() |
///          Interrupted
[[nodiscard]] Result<std::optional<Elements>> compare_elements(const run::Run& first,
                                                               const run::Run& other,
                                                               const Place& place,
                                                               locate::Engines engines);

}  // namespace assay::repeat
