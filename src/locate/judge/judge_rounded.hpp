// SPDX-License-Identifier: Apache-2.0
// An output whose elements were rounded, against its reference: dense, element and row tests.
//   docs/localisation.md, "Own error"
//
// The size of the terms of a sum (C) costs as much as the sum itself, so it is computed only where
// an answer depends on it: in rows with an element beyond one rounding (e > 1) or with z above 2,
// and everywhere when z of the whole is above 1.5. Elsewhere z is given with v = 0, from above:
// what is reported as at most 1.5 is at most that, and no limit of 2.1 lies lower.
#pragma once
#include <span>

#include "locate/judge/own_error.hpp"
#include "locate/noise/error_classes.hpp"

namespace assay::locate {

/// Rows of shorter last axes are judged together: they tell nothing apart.
///   docs/localisation.md, "Own error"
inline constexpr int64_t kShortestRow = 16;

/// What is held against what.
struct RoundedOutput {
  const reference::aten::Call& call;
  size_t output = 0;
  const TensorView& reference;
  const TensorView& mine;  // of the same shape
  ErrorRow row;
  FloatGrid grid;  // of the run under test's type
  /// Of a sampled product: the rows of the whole that reference and mine hold; empty: they are the
  /// whole.
  std::span<const int64_t> parts = {};
};

/// Fills the measures and the state.
/// errors  of aten::magnitudes()
[[nodiscard]] Status judge_rounded(const RoundedOutput& what, int jobs, OwnError* result);

}  // namespace assay::locate
