// SPDX-License-Identifier: Apache-2.0
// Large float32 products, held against sums over blocks of their columns instead of the product
// itself.
//   docs/localisation.md, "Golden by sums and in parts"
//
// The kernel of a float32 product may err by w = 2 sqrt(K) u C in one element, and errs by far
// less: 64 healthy errors together stay below half of w. So a weighted sum over 64 columns shows a
// single element beyond the limit of the element test, while it costs a hundredth of the product.
#pragma once
#include "locate/judge/own_error.hpp"

namespace assay::locate {

/// Whether sums may tell: a float32 result of at least 8 rows, whose product is much dearer than
/// reading its operands.
[[nodiscard]] bool can_judge_by_sums(const reference::aten::Call& call, const TensorView& mine,
                                     double multiplications);

/// The measures of a result whose every sum is within half of what one element is allowed (so `e`
/// is at most a half), taken of sums in place of elements. Nothing when some sum is not, or
/// something is not finite: then only the product can tell.
///
/// errors  of aten::product_sums()
[[nodiscard]] Result<std::optional<OwnError>> judge_by_sums(const reference::aten::Call& call,
                                                            const TensorView& mine, int jobs);

}  // namespace assay::locate
