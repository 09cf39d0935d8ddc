// SPDX-License-Identifier: Apache-2.0
// The numbers of logitscmp: two tensors of logits of one token.   docs/commands/logitscmp.md
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::vendor::msit {

/// What a file name "logits_{task}_{key}_{token}.pth" says.
struct LogitsName {
  std::string language;  // of HumanEval-X: "cpp" ...; empty for every other data set
  int64_t key = 0;
  int64_t token = 0;
  [[nodiscard]] std::string key_text() const;  // "1352", "cpp/12"
};

/// errors    Invalid with the original's words: "invalid_format_A_B", "missing_digits_after_cpp",
///           "invalid logits file name"
[[nodiscard]] Result<LogitsName> parse_logits_name(std::string_view file_name);

struct LogitsMetrics {
  double cosine_similarity = 0;  // [-1, 1], rounded to 10 decimals
  double kl_divergence = 0;      // nats, [0, inf)
  double l1_norm = 0;            // signed: 0.01 when mine is one percent larger
  bool l1_is_defined = true;     // false: golden is all zero
  double ulp_max_diff = 0;       // |max golden - max mine|
  double ulp = 0;                // spacing of numbers at the maximum of mine
};

/// Rules of Ascend/msit: components/utils/cmp_algorithm.py and msit_llm/logits_compare.
///
/// golden, mine   logits [1, vocabulary] or [vocabulary]; of more axes the last one is the
///                vocabulary
/// spacing        of numbers in [1, 2): 2^-10 for fp16, 2^-7 for bf16, 2^-23 for fp32
/// errors         Invalid with the original's words: shapes differ, NaN or infinities, a maximum of
///                zero; an empty tensor
[[nodiscard]] Result<LogitsMetrics> compare_logits(const TensorView& golden, const TensorView& mine,
                                                   double spacing);

/// sum p (log p - log q) over the last axis, p = softmax(golden), q = softmax(mine), with every
/// intermediate rounded to the tensors' own dtype as torch's CPU kernels round it. Of half types
/// the result is mostly their rounding; negative results are 0. Precondition: equal shapes, finite
/// values.
[[nodiscard]] double kl_divergence_in_own_dtype(const TensorView& golden, const TensorView& mine);

}  // namespace assay::vendor::msit
