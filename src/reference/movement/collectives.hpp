// SPDX-License-Identifier: Apache-2.0
// What several ranks exchange: pieces of flat tensors, and sums over ranks of such pieces.
#pragma once
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tensor/tensor_view.hpp"

namespace assay::reference {

/// Elements [first, first + count) of a tensor in C order, as one dimension.
/// errors  Invalid (outside the tensor) | Unsupported (packed types with gaps)
[[nodiscard]] Result<Tensor> flat_part(const Tensor& x, int64_t first, int64_t count);

/// Part `rank` of all ranks' parts: y = x_0.flat[r n / R : (r + 1) n / R], the same of x_1, ...
///
/// ranks       x of every rank, equal shapes and types, element counts that R divides
/// rank        whose output this is
/// transposed  x [h, w] is cut along its columns: y [h * R, w / R]
/// returns     x's shape, or [h * R, w / R]
/// errors      Invalid (shapes, rank) | Unsupported (packed types)
[[nodiscard]] Result<Tensor> all_to_all(std::span<const Tensor> ranks, int64_t rank,
                                        bool transposed);

enum class RankReduction : uint8_t { Sum, Max, Min, Product };
/// The reduction called "sum", "max", "min" or "prod".
[[nodiscard]] std::optional<RankReduction> rank_reduction_from_name(std::string_view name);

[[nodiscard]] std::vector<TensorView> views_of(std::span<const Tensor> ranks);

/// errors  Invalid (no ranks; "rank 1 has float32 [2, 1], rank 0 float32 [2]")
[[nodiscard]] Status check_ranks(std::span<const TensorView> ranks);

}  // namespace assay::reference
