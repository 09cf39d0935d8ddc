// SPDX-License-Identifier: Apache-2.0
// Scaled dot-product attention of any number of sequences in fp64.   docs/opcheck/attention.md
#pragma once
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "reference/attention/score_bias.hpp"
#include "reference/wide.hpp"

namespace assay::reference {

/// Keys or values of a sequence that lie together: [rows, kv_heads, size], any strides; `size` may
/// be split into several dimensions (blocks of FRACTAL_NZ).
using KeyValueRows = TensorView;

/// One sequence: m query rows against n keys.
struct AttentionSequence {
  TensorView query;  // [m, heads, d]
  /// In order; their rows add up to n.
  std::vector<KeyValueRows> keys;
  std::vector<KeyValueRows> values;
  ScoreBias bias;
  /// Added to the scores before they are scaled; n values or none.
  std::vector<double> column_bias;
  /// Factor of every score of a query row beside the scale; m values, or none.
  std::vector<double> row_scale;
  /// kv head of the stored tensors that kv head 0 stands for: where scales of all kv heads lie
  /// together but the caches hold one head each.
  int64_t first_scale_head = 0;
  /// Where result [row i, head h, column c] goes: output_offset + i * row_stride + h * head_stride
  /// + c.
  int64_t output_offset = 0;
};

/// How int8 attention rounds the weights e^(s - max) before they meet the values.
enum class WeightRounding : uint8_t {
  None,
  Online,           // rne(127 p), the result times 1 / 127
  OfflineDivide,    // rne(p / weight_scale), the result times weight_scale
  OfflineMultiply,  // rne(p * weight_scale), not undone
};

struct Attention {
  int64_t heads = 0;
  int64_t kv_heads = 0;    // divides heads; query head h uses kv head h / (heads / kv_heads)
  int64_t head_size = 0;   // d
  int64_t value_size = 0;  // columns of the values and of the result

  double query_scale = 1;  // of the scores, before everything else
  double scale = 1;
  std::optional<std::pair<double, double>> clamp;  // of the scaled scores
  double soft_cap = 0;  // not 0: scaled scores s become soft_cap tanh(s / soft_cap)
  /// Fused kernels of the first library versions: the bias is added to unscaled scores, and
  /// clamping comes before both.
  bool bias_before_scale = false;

  /// One value a query head, or none.
  std::vector<double> score_scale;  // of Q K^T, for int8 operands
  std::vector<double> value_scale;  // of the result, the same
  std::vector<double> sinks;        // the same: one more score of each row, whose value is zero
  /// Dequantisation of keys and values: (x + offset) * scale, kv_heads * d (or value_size) values,
  /// or none; stored by kv head, see first_scale_head.
  std::vector<double> key_dequant_scale, key_dequant_offset;
  std::vector<double> value_dequant_scale, value_dequant_offset;

  WeightRounding rounding = WeightRounding::None;
  std::vector<double> weight_scale;  // one a query head for the offline roundings
  /// Above 0: weights are rounded in blocks of so many keys, each against the largest score so far,
  /// as kernels do that never see a whole row. 0: against the largest score of the row.
  int64_t rounding_block = 0;

  /// The model of a kernel only: scores are stored in its type after each step, as a chain of
  /// operators does.
  bool round_scores = false;

  std::vector<AttentionSequence> sequences;
  Dims output_shape;
  int64_t output_row_stride = 0;
  int64_t output_head_stride = 0;
  /// Keeps the bytes of all views.
  std::vector<Tensor> owners;
};

/// Checks that shapes fit each other; everything else here does so first.
/// errors  Invalid (a sentence with the shapes) | TooLarge (keys and values of one sequence and kv
///         head beyond 2^29 values)
[[nodiscard]] Status check_attention(const Attention& attention);

/// What the scores of an attention tell beside its result. Line l of head h in sequence i is number
/// (lines of the sequences before) + h m + l.
struct AttentionTerms {
  bool with_magnitudes = false;
  bool with_weights = false;
  Wide log_sums;  // log(sum over the keys of e^s) of each line; -Inf where all scores are
  /// with_weights: softmax(s), the n keys of each line; lines one after the other.
  std::vector<double> weights;
  Wide absolute, squared;  // with_magnitudes: softmax(s) |V|, softmax(s)^2 V^2; output_shape
};

/// For each sequence and head:
///
///   s = (Q K^T) * query_scale [* score_scale[h]] [+ column_bias]
///   s = clamp(s * scale [* row_scale[i]]) + bias        or, bias_before_scale, (clamp(s) + bias) * scale
///   out = softmax(s) V [* value_scale[h]]               rows with every score -Inf give zeros
///
/// Operands are widened once per sequence and kv head; scores exist for a block of query rows at a
/// time. Rows that no sequence writes are 0. One unit of work is one sequence and kv head: the
/// result does not depend on jobs.
///
/// terms    nullptr, or where the rest goes; precondition: without rounding of weights and scales
///          of values
/// returns  output_shape
/// source   docs/opcheck/attention.md
/// errors   of check_attention() | Unsupported (types without real values) | TooLarge (weights)
[[nodiscard]] Result<Wide> attention(const Attention& attention, int jobs = 1,
                                     AttentionTerms* terms = nullptr);

/// The same as a kernel of type `dtype` computes it: blocks of 128 keys with running maximum and
/// sum, scores and sums in fp32, weights rounded to `dtype` before they meet the values (or to
/// int8, see WeightRounding), the result rounded once. Its distance from attention() tells how
/// large errors of a correct kernel are.
///
/// returns  output_shape, of type `dtype` (Float16, BFloat16 or Float32)
/// errors   the same; Unsupported (any other dtype; a soft cap, sinks)
[[nodiscard]] Result<Tensor> flash_attention_model(const Attention& attention, DType dtype,
                                                   int jobs = 1);

}  // namespace assay::reference
