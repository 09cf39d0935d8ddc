// SPDX-License-Identifier: Apache-2.0
// One tensor out of those of all ranks.   docs/opcheck/products.md
#pragma once
#include <span>

#include "reference/movement/collectives.hpp"
#include "reference/wide.hpp"

namespace assay::reference {

/// Element by element over the ranks, in their order. NaN is passed on by all four.
///
/// ranks     at least one tensor, of equal shapes and types
/// returns   Float64; Int64 of integers, wrapped to their type as hardware does
/// errors    Invalid (no ranks; shapes or types differ, with the rank) | Unsupported (complex,
///           packed types)
[[nodiscard]] Result<Tensor> all_reduce(std::span<const TensorView> ranks, RankReduction reduction);

/// Elements [first, first + count) of all ranks reduced in double: exact for integers up to 2^53,
/// which do not wrap.
/// returns  one dimension
/// errors   of all_reduce() | Invalid (range)
[[nodiscard]] Result<Wide> reduce_part(std::span<const Tensor> ranks, RankReduction reduction,
                                       int64_t first, int64_t count);

/// (sum of the ranks + offset ranks) scale, of int8.
///
/// scale, offset  broadcast to the ranks' shape: [1] for the tensor, [channels] for its last
///                dimension
/// errors         of all_reduce() | Invalid (scale or offset of another shape)
[[nodiscard]] Result<Wide> quantised_all_reduce(std::span<const TensorView> ranks,
                                                const TensorView& scale, const TensorView& offset);

}  // namespace assay::reference
