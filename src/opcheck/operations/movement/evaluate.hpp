// SPDX-License-Identifier: Apache-2.0
// What moves of data have in common: lists of integers in tensors, results written into an input.
//   docs/opcheck/movement.md
#pragma once
#include <functional>
#include <string_view>
#include <vector>

#include "opcheck/operation.hpp"
#include "opcheck/operations/elementwise/expect.hpp"
#include "opcheck/operations/read_inputs.hpp"

namespace assay::opcheck::movement {

inline constexpr Accuracy kMove{Precision::Move, 0};

/// errors  Invalid "indices are float16, no integers"
[[nodiscard]] Status require_integers(const Tensor& tensor, std::string_view what);
/// All values of a tensor of integers, in C order.
/// errors  of require_integers(); TooLarge
[[nodiscard]] Result<std::vector<int64_t>> integers_of(const Tensor& tensor, std::string_view what);

/// A result that is written into an input. Judged is the listed output where the dump has it,
/// otherwise the input as the operation left it.
struct InPlace {
  size_t input = 0;
  size_t output = 0;
  /// The state before the operation -> the state after it.
  std::function<Result<Tensor>(const Tensor& before)> write;
  /// What the operation wrote, out of the state after it, and the same from the sources. Used where
  /// the state before is not known.
  std::function<Result<Tensor>(const Tensor& after)> pick;
  std::function<Result<Tensor>()> written;
  Accuracy accuracy = kMove;
};
[[nodiscard]] Result<Expectation> expect_in_place(const Case& one, InPlace place);

}  // namespace assay::opcheck::movement

namespace assay::opcheck {

Result<Evaluation> evaluate_as_strided(const Case& one);
Result<Evaluation> evaluate_concat(const Case& one);
Result<Evaluation> evaluate_split(const Case& one);
Result<Evaluation> evaluate_slice(const Case& one);
Result<Evaluation> evaluate_set_value(const Case& one);
Result<Evaluation> evaluate_gather(const Case& one);
Result<Evaluation> evaluate_transpose(const Case& one);
Result<Evaluation> evaluate_transdata(const Case& one);
Result<Evaluation> evaluate_fill(const Case& one);
Result<Evaluation> evaluate_repeat(const Case& one);
Result<Evaluation> evaluate_where(const Case& one);
Result<Evaluation> evaluate_scatter_elements(const Case& one);

Result<Evaluation> evaluate_pad(const Case& one);
Result<Evaluation> evaluate_unpad(const Case& one);
Result<Evaluation> evaluate_gen_attention_mask(const Case& one);
Result<Evaluation> evaluate_pad_with_hidden_state(const Case& one);
Result<Evaluation> evaluate_unpad_with_hidden_state(const Case& one);

Result<Evaluation> evaluate_kv_cache(const Case& one);
Result<Evaluation> evaluate_reshape_and_cache(const Case& one);
Result<Evaluation> evaluate_reshape_and_cache_with_stride(const Case& one);
Result<Evaluation> evaluate_reshape_and_cache_omni(const Case& one);
Result<Evaluation> evaluate_paged_cache_load(const Case& one);
Result<Evaluation> evaluate_block_copy(const Case& one);

Result<Evaluation> evaluate_broadcast(const Case& one);
Result<Evaluation> evaluate_all_gather(const Case& one);
Result<Evaluation> evaluate_all_gather_v(const Case& one);
Result<Evaluation> evaluate_reduce_scatter(const Case& one);
Result<Evaluation> evaluate_reduce_scatter_v(const Case& one);
Result<Evaluation> evaluate_all_to_all(const Case& one);
Result<Evaluation> evaluate_all_to_all_v(const Case& one);

}  // namespace assay::opcheck
