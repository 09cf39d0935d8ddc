// SPDX-License-Identifier: Apache-2.0
// How large the rounding errors of a correct kernel are: the table of classes.
//   docs/localisation.md, "Own error"
#pragma once
#include <cstdint>
#include <optional>

#include "reference/aten/call.hpp"
#include "tensor/float_grid.hpp"

namespace assay::locate {

/// The unit roundoff of the accumulators of 16 and 32 bit kernels.
inline constexpr double kAccumulatorRoundoff = 0x1p-24;
/// Relative L2 error of one rounding in units of the unit roundoff, for spread-out values.
inline constexpr double kRoundingL2 = 0.425;

/// True when every value of `narrow` is one of `wide`.
[[nodiscard]] bool holds_all_values(DType wide, DType narrow);

/// What a row of the table measures errors against, element by element.
enum class ErrorScale : uint8_t {
  Result,       // |y|
  One,          // 1
  LargerInput,  // max(|y|, |x|), x the operand `side`
  PlusSide,     // |y| + |side| * side_factor, or |y| + side_constant
  Terms,        // C: the size of the terms that are added up; aten::magnitudes() has it
  Given,        // none: aten::magnitudes() has w and v themselves
};

/// One row of the table: v_i = v_factor scale_i^2 and w_i = w_factor scale_i.
struct ErrorRow {
  ErrorScale scale = ErrorScale::Result;
  double w_factor = 0;
  double v_factor = 0;
  /// Scale::Terms of sums: w and v grow with the square root of the number of terms.
  bool by_terms = false;
  /// Fused attention: its w and v also hold one rounding of the probabilities and the error of the
  /// scores.
  bool attention = false;
  /// Half a ULP of 1 of these probabilities, where they are narrower than the result.
  double probabilities = 0;
  std::optional<Tensor> side = std::nullopt;
  double side_factor = 1;
  double side_constant = 0;
};

/// How an output is held against its reference.
struct ErrorModel {
  enum class Kind : uint8_t {
    Exact,    // no rounding at all: any difference is wrong
    Rounded,  // `row` says what is allowed
    None,     // `reason` says why it cannot be judged
  };
  Kind kind = Kind::None;
  ErrorRow row;
  std::string reason;
};

/// The row for one output of a call.
///
/// reference  type of the result that evaluate() gave
/// mine       type of the captured output
[[nodiscard]] ErrorModel error_model(const reference::aten::Call& call, size_t output,
                                     DType reference, DType mine);

}  // namespace assay::locate
