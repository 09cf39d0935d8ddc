// SPDX-License-Identifier: Apache-2.0
// Softmax of attention scores that lie without padding one after the other, and its gradient.
//   docs/opcheck/norms.md
#pragma once
#include <span>

#include "reference/wide.hpp"

namespace assay::reference {

/// For each sequence `heads` blocks of s * s scores; softmax of every row of s.
///
/// x          any shape of sum(heads * s * s) elements
/// seq_lens   s of each sequence
/// returns    shape of x; a row whose largest value is -inf or NaN gives NaN
/// errors     Invalid (element count, negative sizes) | Unsupported (no real numbers) | TooLarge
[[nodiscard]] Result<Wide> block_softmax(const TensorView& x, int64_t heads,
                                         std::span<const int64_t> seq_lens);

/// dx = y * (dy - sum over the row of y * dy), y the result of block_softmax().
/// errors     the same; Invalid when y and dy have other shapes
[[nodiscard]] Result<Wide> block_softmax_gradient(const TensorView& y, const TensorView& dy,
                                                  int64_t heads, std::span<const int64_t> seq_lens);

}  // namespace assay::reference
