// SPDX-License-Identifier: Apache-2.0
// Which operands of two lists belong together when nothing but their order and shapes is known.
#pragma once
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "tensor/dims.hpp"
#include "tensor/dtype.hpp"

namespace assay::pair {

/// What is known of an operand without its values; what is not known fits everything.
struct OperandShape {
  std::optional<DType> dtype;
  std::optional<Dims> shape;
};

/// 0: the two cannot be the same tensor (other element count, a float against an integer); larger
/// for equal shapes and types.
[[nodiscard]] int operand_similarity(const OperandShape& a, const OperandShape& b);

struct OperandAlignment {
  std::vector<std::pair<size_t, size_t>> pairs;  // (first list, second list), ascending in both
  std::vector<size_t> ambiguous_first;           // several partners would do as well
  std::vector<size_t> ambiguous_second;
};

/// The pairs that every best alignment in order has: the one with the largest sum of similarities,
/// in which operands of either side may be left out. Lists whose sizes multiply to more than a
/// million are not aligned: everything is ambiguous.
[[nodiscard]] OperandAlignment align_operands(const std::vector<OperandShape>& first,
                                              const std::vector<OperandShape>& second);

}  // namespace assay::pair
