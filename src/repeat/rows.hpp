// SPDX-License-Identifier: Apache-2.0
// Which elements of a tensor belong to one row of the batch.   docs/invariance.md
#pragma once
#include <optional>
#include <vector>

#include "repeat/differences.hpp"

namespace assay::repeat {

/// Where the rows of the batch lie in a tensor.
struct Split {
  enum class State : uint8_t {
    Shared,   // its shape does not depend on the batch: weights, positions, masks
    Rows,     // an axis has `per_row` places for each row
    Unknown,  // it cannot be split: rows are mixed, or its size depends on what is in them
  };
  State state = State::Unknown;
  size_t axis = 0;
  int64_t per_row = 1;
  bool interleaved = false;  // place i of row r is i * rows + r, and not r * per_row + i

  [[nodiscard]] bool has_rows() const { return state == State::Rows; }
};

/// The elements of one row of `rows`. Precondition: split.has_rows(), of a tensor of that shape.
[[nodiscard]] TensorView row_of(const TensorView& tensor, const Split& split, int64_t row,
                                int64_t rows);

/// Tokens and keys of a forward call in the runs that splits are learned from, and in those that
/// are cut, whose rows are padded.
struct Lengths {
  int64_t tokens = 1;
  int64_t keys = 1;
  int64_t padded_tokens = 1;
  int64_t padded_keys = 1;
};

/// Learned from two runs of equal rows, one with a row more than the other: an axis that grows with
/// their number holds the rows, and the right way to cut it makes equal parts.
class Splits {
 public:
  /// rows     of `few`; `more` has one more
  /// lengths  by step; empty: the runs that are cut have the same
  Splits(const Execution& few, const Execution& more, int64_t rows,
         std::vector<Lengths> lengths = {})
      : few_(few), more_(more), rows_(rows), lengths_(std::move(lengths)) {}

  [[nodiscard]] int64_t rows() const { return rows_; }
  /// Of an input or output of an operator, by its number. Unknown where a run has no such operator.
  ///
  /// shape  of the tensor at hand: Unknown where it is not that of `few`, but for the lengths
  [[nodiscard]] Split of_use(const locate::Operator& one, bool is_output, size_t number,
                             InternedDims shape) const;
  /// The same for a value that a module takes or returns.
  [[nodiscard]] Split of_boundary(const locate::ModuleCall& call, bool is_output, size_t number,
                                  InternedDims shape) const;

 private:
  [[nodiscard]] Split learn(int64_t step, const locate::Use& few, const locate::Use& more,
                            InternedDims shape) const;
  [[nodiscard]] bool is_padded(int64_t step, const Dims& few, const Dims& shape,
                               std::optional<size_t> axis) const;
  [[nodiscard]] Split cut(const run::TensorRecord& record, size_t axis, int64_t per_row) const;

  const Execution& few_;
  const Execution& more_;
  int64_t rows_;
  std::vector<Lengths> lengths_;
};

}  // namespace assay::repeat
