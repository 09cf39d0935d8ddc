// SPDX-License-Identifier: Apache-2.0
// The model of a kernel in a narrow type: blocks of 128 keys with running maximum and sum in fp32,
// weights rounded before they meet the values, the result rounded once.
//   docs/opcheck/attention.md
#include <cblas.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/interruption.hpp"
#include "base/thread_pool.hpp"
#include "reference/attention/attention.hpp"
#include "reference/attention/operand_rows.hpp"
#include "reference/blas.hpp"
#include "tensor/half.hpp"
#include "tensor/sentence.hpp"

namespace assay::reference {
namespace {

constexpr int64_t kKeyBlock = 128;
constexpr int64_t kRowBlock = 128;

/// Rounds to the type in which a kernel hands its weights to the second product. Magnitudes beyond
/// the largest float16 are kept.
float rounded(float value, DType dtype) {
  switch (dtype) {
    case DType::BFloat16: {
      const auto bits = std::bit_cast<uint32_t>(value);
      if (std::isnan(value)) return value;
      return std::bit_cast<float>((bits + 0x7FFFu + ((bits >> 16) & 1u)) & 0xFFFF0000u);
    }
    case DType::Float16: {
      // Below 2^-14 the step is 2^-24, above it ten bits behind the first.
      if (!(std::abs(value) >= 6.103515625e-05F))
        return std::nearbyint(value * 16777216.0F) / 16777216.0F;
      const auto bits = std::bit_cast<uint32_t>(value);
      return std::bit_cast<float>((bits + 0x0FFFu + ((bits >> 13) & 1u)) & 0xFFFFE000u);
    }
    default:
      return value;
  }
}

struct Model {
  const Attention& attention;
  const AttentionSequence& one;
  DType dtype;
  int64_t kv_head;
  std::vector<double> wide = {};
  std::vector<float> keys = {}, values = {}, query = {}, scores = {}, block_result = {};
  std::vector<double> terms = {}, scratch = {};

  void load_operands() {
    const int64_t n = row_count(one.keys);
    const auto load = [&](const std::vector<KeyValueRows>& parts, int64_t size,
                          const std::vector<double>& scale, const std::vector<double>& offset,
                          std::vector<float>& out) {
      wide.resize(static_cast<size_t>(n * size));
      read_key_value_rows(parts, kv_head, size, scale, offset, one.first_scale_head, wide.data());
      out.assign(wide.begin(), wide.end());
    };
    load(one.keys, attention.head_size, attention.key_dequant_scale, attention.key_dequant_offset,
         keys);
    load(one.values, attention.value_size, attention.value_dequant_scale,
         attention.value_dequant_offset, values);
  }

  /// Scores of one row and block of keys, in fp32, as finish_scores() of attention.cpp orders them.
  void finish_scores(int64_t head, int64_t row, int64_t first, std::span<float> scores_of_row) {
    float before = static_cast<float>(attention.query_scale);
    if (!attention.score_scale.empty())
      before *= static_cast<float>(attention.score_scale[static_cast<size_t>(head)]);
    float after = static_cast<float>(attention.scale);
    if (!one.row_scale.empty())
      after *= static_cast<float>(one.row_scale[static_cast<size_t>(row)]);
    const size_t width = scores_of_row.size();
    for (size_t j = 0; j < width; ++j) {
      float& score = scores_of_row[j];
      score = stored(score) * before;
      if (!one.column_bias.empty())
        score += static_cast<float>(one.column_bias[static_cast<size_t>(first) + j]);
      if (!attention.bias_before_scale) score = stored(score * after);
      if (attention.clamp && !std::isnan(score))
        score = std::clamp(score, static_cast<float>(attention.clamp->first),
                           static_cast<float>(attention.clamp->second));
      score = stored(score + static_cast<float>(terms[static_cast<size_t>(first) + j]));
      if (attention.bias_before_scale) score = stored(score * after);
    }
  }

  /// A score as the kernel keeps it between two steps.
  float stored(float score) const { return attention.round_scores ? rounded(score, dtype) : score; }
  float round_weight(float weight, int64_t head) const {
    switch (attention.rounding) {
      case WeightRounding::None:
        return rounded(weight, dtype);
      case WeightRounding::Online:
        return std::nearbyint(weight * 127.0F);
      case WeightRounding::OfflineDivide:
        return std::nearbyint(
            weight / static_cast<float>(attention.weight_scale[static_cast<size_t>(head)]));
      case WeightRounding::OfflineMultiply:
        return std::nearbyint(
            weight * static_cast<float>(attention.weight_scale[static_cast<size_t>(head)]));
    }
    return weight;
  }
  float weight_unit(int64_t head) const {
    if (attention.rounding == WeightRounding::Online) return 1.0F / 127.0F;
    if (attention.rounding == WeightRounding::OfflineDivide)
      return static_cast<float>(attention.weight_scale[static_cast<size_t>(head)]);
    return 1.0F;
  }

  /// One block of query rows of one head against all keys.
  void attend_rows(int64_t head, int64_t first_row, int64_t rows, double* out) {
    const int64_t n = row_count(one.keys);
    const int64_t d = attention.head_size;
    const int64_t dv = attention.value_size;
    wide.resize(static_cast<size_t>(rows * d));
    read_head_rows(one.query, head, first_row, rows, wide.data());
    query.assign(wide.begin(), wide.end());
    const int64_t columns = visible_columns(one.bias, first_row + rows - 1, n);
    // Terms of the bias are the same for every block: made once, [rows, columns].
    terms.assign(static_cast<size_t>(columns), 0.0);
    scratch.resize(static_cast<size_t>(columns));
    std::vector<double> all_terms(static_cast<size_t>(rows * columns), 0.0);
    for (int64_t i = 0; i < rows; ++i)
      add_bias(one.bias, head, first_row + i,
               {all_terms.data() + i * columns, static_cast<size_t>(columns)}, scratch);

    std::vector<float> maxima(static_cast<size_t>(rows), -INFINITY);
    std::vector<float> sums(static_cast<size_t>(rows), 0.0F);
    std::vector<float> result(static_cast<size_t>(rows * dv), 0.0F);
    scores.resize(static_cast<size_t>(rows * kKeyBlock));
    block_result.resize(static_cast<size_t>(rows * dv));
    for (int64_t first = 0; first < columns; first += kKeyBlock) {
      const int64_t width = std::min(kKeyBlock, columns - first);
      std::fill(scores.begin(), scores.end(), 0.0F);
      if (d > 0)
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, static_cast<blasint>(rows),
                    static_cast<blasint>(width), static_cast<blasint>(d), 1.0F, query.data(),
                    static_cast<blasint>(d), keys.data() + first * d, static_cast<blasint>(d), 0.0F,
                    scores.data(), static_cast<blasint>(width));
      for (int64_t i = 0; i < rows; ++i) {
        const std::span<float> line(scores.data() + i * width, static_cast<size_t>(width));
        std::copy_n(all_terms.data() + i * columns + first, width, terms.data() + first);
        finish_scores(head, first_row + i, first, line);
        float& maximum = maxima[static_cast<size_t>(i)];
        const float before = maximum;
        for (const float score : line) maximum = score > maximum ? score : maximum;
        const bool nothing = std::isinf(maximum) && maximum < 0;
        const float keep = nothing ? 1.0F : std::exp(before - maximum);
        float sum = 0;
        for (float& score : line) {
          const float weight = nothing && !std::isnan(score) ? 0.0F : std::exp(score - maximum);
          sum += weight;
          score = round_weight(weight, head);
        }
        sums[static_cast<size_t>(i)] = sums[static_cast<size_t>(i)] * keep + sum;
        for (int64_t c = 0; c < dv; ++c) result[static_cast<size_t>(i * dv + c)] *= keep;
      }
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, static_cast<blasint>(rows),
                  static_cast<blasint>(dv), static_cast<blasint>(width), 1.0F, scores.data(),
                  static_cast<blasint>(width), values.data() + first * dv, static_cast<blasint>(dv),
                  0.0F, block_result.data(), static_cast<blasint>(dv));
      for (size_t k = 0; k < result.size(); ++k) result[k] += block_result[k];
    }
    float unit = weight_unit(head);
    if (!attention.value_scale.empty())
      unit *= static_cast<float>(attention.value_scale[static_cast<size_t>(head)]);
    for (int64_t i = 0; i < rows; ++i) {
      const float sum = sums[static_cast<size_t>(i)];
      double* to = out + one.output_offset + (first_row + i) * attention.output_row_stride +
                   head * attention.output_head_stride;
      for (int64_t c = 0; c < dv; ++c)
        to[c] = sum == 0
                    ? 0.0
                    : static_cast<double>(result[static_cast<size_t>(i * dv + c)] * unit / sum);
    }
  }
};

}  // namespace

Result<Tensor> flash_attention_model(const Attention& attention, DType dtype, int jobs) {
  if (dtype != DType::Float16 && dtype != DType::BFloat16 && dtype != DType::Float32)
    return fail(Errc::Unsupported, "no kernel of type ", dtype, " is modelled");
  if (attention.soft_cap != 0 || !attention.sinks.empty())
    return fail(Errc::Unsupported, "no kernel with a soft cap or sinks is modelled");
  ASSAY_TRY_STATUS(check_attention(attention));
  prepare_blas();
  Wide out(attention.output_shape, 0.0);
  const auto kv_heads = static_cast<size_t>(attention.kv_heads);
  const int64_t group = attention.heads / attention.kv_heads;
  const auto run = [&](size_t unit) {
    const AttentionSequence& one = attention.sequences[unit / kv_heads];
    Model model{attention, one, dtype, static_cast<int64_t>(unit % kv_heads)};
    if (row_count(one.keys) == 0 || attention.value_size == 0) return;
    model.load_operands();
    const int64_t m = one.query.shape[0];
    for (int64_t g = 0; g < group; ++g) {
      for (int64_t first = 0; first < m && !is_interrupted(); first += kRowBlock)
        model.attend_rows(model.kv_head * group + g, first, std::min(kRowBlock, m - first),
                          out.data());
    }
  };
  parallel_for(attention.sequences.size() * kv_heads, jobs == 1 ? 1 : resolve_job_count(jobs), run);
  return narrow(view_of(out), dtype);
}

}  // namespace assay::reference
