// SPDX-License-Identifier: Apache-2.0
// assay.reference: attention.
#include "reference/attention/attention.hpp"
#include "python/reference/operators.hpp"
#include "reference/attention/sequences.hpp"
#include "reference/attention/training_attention.hpp"

namespace assay::python {
namespace {

using namespace reference;
using Integers = std::vector<int64_t>;
using Slopes = std::vector<double>;
using OptionalView = std::optional<TensorView>;

/// In fp64, or as a kernel of type `dtype` computes it.
Result<Wide> computed(const Attention& call, const std::string& dtype, int jobs) {
  if (dtype.empty()) return reference::attention(call, jobs);
  const std::optional<DType> named = dtype_from_name(dtype);
  if (!named) return fail(Errc::Usage, "unknown dtype '" + dtype + "'");
  ASSAY_TRY(const Tensor model, flash_attention_model(call, *named, jobs));
  return widen(model.view);
}

Result<Wide> attention_of(const Tensor& q, const Tensor& k, const Tensor& v, const Integers& q_lens,
                          const Integers& kv_lens, std::optional<double> scale,
                          const OptionalView& mask, bool causal, int64_t window,
                          const Slopes& slopes, std::optional<std::pair<double, double>> clamp,
                          const std::string& dtype, int jobs) {
  ASSAY_TRY(Attention call, attention_of_sequences(q, k, v, q_lens, kv_lens, scale,
                                                   {mask, causal, window, slopes}));
  call.clamp = clamp;
  return computed(call, dtype, jobs);
}

Result<Wide> paged_attention_of(const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                                const Tensor& block_tables, const Integers& context_lens,
                                const Integers& q_lens, std::optional<double> scale,
                                const OptionalView& mask, bool causal, const Slopes& slopes,
                                const std::string& dtype, int jobs) {
  ASSAY_TRY(const Attention call,
            attention_of_blocks(q, k_cache, v_cache, block_tables, context_lens, q_lens, scale,
                                {mask, causal, 0, slopes}));
  return computed(call, dtype, jobs);
}

}  // namespace

void add_attention(Operators& operators) {
  using Options = TrainingAttention;
  using Statistics = AttentionWithStatistics;
  using Gradients = AttentionGradients;
  operators.add("attention", attention_of);
  operators.add("paged_attention", paged_attention_of);
  operators.add(
      "attention_with_statistics",
      with_options<&Options::scale, &Options::mask, &Options::mask_value, &Options::pre_tokens>(
          attention_with_statistics),
      kFields<&Statistics::output, &Statistics::maximum, &Statistics::sum>);
  operators.add(
      "attention_gradients",
      with_options<&Options::scale, &Options::mask, &Options::mask_value, &Options::pre_tokens>(
          attention_gradients),
      kFields<&Gradients::query, &Gradients::key, &Gradients::value>);
  operators.add("combine_attention", combine_attention);
  operators.add("alibi_slopes", [](int64_t heads) { return alibi_slopes(heads); });
}

}  // namespace assay::python
