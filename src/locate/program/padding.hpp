// SPDX-License-Identifier: Apache-2.0
// Tokens that a model was told to take no notice of: whatever is computed at their places, no
// output is made of it, and kernels fill it in differently.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "locate/program/program.hpp"
#include "reference/wide.hpp"

namespace assay::locate {

/// Whether an input of a module is a mask, by its name.
[[nodiscard]] bool is_mask(std::string_view slot);
/// Whether it holds the tokens of a model, or their embeddings: [sequences, tokens, ...].
[[nodiscard]] bool is_tokens(std::string_view slot);

/// Rows of a tensor seen as [row, value].
struct RowsOfTokens {
  std::vector<int64_t> rows;
  int64_t width = 0;  // values of one
};

/// Zeros of `attention_mask`, [sequence, token], that the model was given in one step. Its last
/// tokens are the step's, those in front of them are in the cache.
class Padding {
 public:
  Padding() = default;
  Padding(const Program& program, int64_t step);

  /// from_end   1: the last one
  [[nodiscard]] bool holds(int64_t sequence, int64_t from_end) const;
  /// The rows of a value of the step that belong to tokens that are no padding. Axes of tokens are
  /// the second ([sequence, token, ...]), the third ([sequence, head, token, ...]) or the first
  /// ([all tokens, ...]). Nothing when the step has no padding, or nothing else, or the
  /// shape no such axis.
  [[nodiscard]] std::optional<RowsOfTokens> shown_rows(const Dims& shape) const;
  /// That zeros hide, as nearly everywhere, and do not show: the step's tokens at zeros are all the
  /// same, as a filler is. Whether another step tells it, only of_steps() knows.
  [[nodiscard]] bool is_certain() const { return is_certain_; }

  /// Of every step in which the model was called.
  [[nodiscard]] static std::map<int64_t, Padding> of_steps(const Program& program);

 private:
  /// In a step behind a cache: the tokens that were decoded last are surely shown.
  [[nodiscard]] bool shows_decoded() const;
  [[nodiscard]] bool hides_one_token_id(const reference::Whole& tokens) const;
  [[nodiscard]] bool hides_any() const;

  int64_t sequences_ = 0;
  int64_t seen_ = 0;    // tokens of the mask
  int64_t tokens_ = 0;  // of the step
  std::vector<int64_t> values_;
  bool is_certain_ = false;
};

}  // namespace assay::locate
