// SPDX-License-Identifier: Apache-2.0
// A tensor of one of golden's module calls, made of records that mine has in other pieces.
#pragma once
#include <optional>
#include <vector>

#include "pair/operand.hpp"

namespace assay::locate {

/// Records put together by a recipe. Rows (the last axis but one, or all axes but the last) that
/// they lack are golden's.
class MadeRows final : public run::MadeTensor {
 public:
  /// recipe  of records of `run`, which are copied
  MadeRows(const run::Run& run, pair::Recipe recipe);
  /// rows       of golden's tensor that the recipe makes, in its order
  /// row_count  of golden's tensor
  void fill_from(const run::TensorRecord& golden, std::vector<int64_t> rows, int64_t row_count);

  [[nodiscard]] Result<Tensor> make() const override;

 private:
  run::Run parts_;
  pair::Recipe recipe_;
  std::optional<run::TensorRecord> golden_;
  std::vector<int64_t> rows_;
  int64_t row_count_ = 0;
};

}  // namespace assay::locate
