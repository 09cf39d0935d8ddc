// SPDX-License-Identifier: Apache-2.0
// Parts of tensors that correspond to the whole of another.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pair/operand.hpp"
#include "tensor/dims.hpp"

namespace assay::pair {

/// The steps that cut the last row out of [..., rows, n] when `one` has a single row of n and
/// `many` several in one sequence: a head that computes the last position only.
[[nodiscard]] std::optional<std::vector<RecipeStep>> last_row(const Dims& many, const Dims& one);

struct RopeSlice {
  std::vector<RecipeStep> golden;
  std::vector<RecipeStep> mine;
  std::string note;
};

/// What of PyTorch's rotary tensors corresponds to what ATB's operation was given. As many
/// elements: everything. Otherwise golden's position `length` - 1: of rank 4 [:, :, length - 1, :]
/// or [:, length - 1, :, :], of rank 3 [length - 1, :, type]; and of the other side's [1, 2k] the
/// first half.
///
/// type    0 cosine, 1 sine
/// strict  the original's test, which leaves out a length equal to the axis
[[nodiscard]] std::optional<RopeSlice> rope_slice(const Dims& golden, const Dims& mine,
                                                  int64_t length, int type, bool strict);

/// The single integer that a small tensor holds; nothing when it holds none.
[[nodiscard]] std::optional<int64_t> integer_value(const run::TensorRecord& record);
/// All values of a tensor of integers, in C order; nothing for others and for what cannot be read.
[[nodiscard]] std::optional<std::vector<int64_t>> integer_values(const run::TensorRecord& record);
/// From the record, else from the header of its file.
[[nodiscard]] std::optional<Dims> shape_of_record(const run::TensorRecord& record);

}  // namespace assay::pair
