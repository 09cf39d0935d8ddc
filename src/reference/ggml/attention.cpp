// SPDX-License-Identifier: Apache-2.0
// Soft-max with mask, ALiBi and sinks; fused attention.
//
//   soft_max        y = softmax(scale x + slope mask), over ne0
//   flash_attn_ext  y = softmax(cap tanh(scale q.k / cap) + slope mask) . v;  cap 0: no tanh
//
// A sink is one more score of a head whose value is zero. The slope of a head is 1 without ALiBi.
#include "reference/attention/attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/attention/softmax_row.hpp"
#include "reference/ggml/dialect.hpp"
#include "reference/movement/assemble.hpp"
#include "reference/movement/gather.hpp"
#include "reference/norms/rows.hpp"
#include "reference/products/matmul.hpp"

namespace assay::reference::ggml {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Mask and sinks of both operators.
struct Bias {
  std::optional<Source> mask;  // [batches, heads, queries, columns]; batch b takes b mod batches
  std::vector<double> slopes;  // factors of the mask, one a head; empty: 1
  std::vector<double> sinks;   // one a head, or none

  [[nodiscard]] ScoreBias of_batch(int64_t batch) const {
    ScoreBias bias;
    bias.head_coefficients = slopes;
    if (!mask) return bias;
    const TensorView& all = mask->view();
    bias.dense = all;
    bias.dense->offset_elements += batch % all.shape[0] * all.strides[0];
    bias.dense->shape = Dims(all.shape.span().subspan(1));
    bias.dense->strides = Dims(all.strides.span().subspan(1));
    return bias;
  }
};
Result<Bias> bias_of(const Arguments& arguments, std::string_view mask, std::string_view sinks,
                     int64_t columns, int64_t queries, int64_t heads) {
  Bias bias;
  ASSAY_TRY(bias.mask, optional_source(arguments, mask));
  ASSAY_TRY(const std::optional<Source> sink, optional_source(arguments, sinks));
  ASSAY_TRY(const double max_bias, real(arguments, "max_bias", 1, 0.0));
  if (max_bias > 0) bias.slopes = alibi_slopes(heads, max_bias);
  if (bias.mask) {
    const Sizes& ne = bias.mask->ne;
    if (ne[0] != columns || ne[1] < queries || ne[2] == 0 || ne[3] == 0 || heads % ne[2] != 0)
      return fail(arguments.invalid("mask ", text_of(ne), " for ", queries, " rows of ", columns));
    TensorView& view = bias.mask->tensor.view;
    const int64_t times[] = {1, heads / ne[2], 1, 1};
    if (ne[2] == 1) {
      view.shape[1] = heads;
      view.strides[1] = 0;
    } else if (times[1] != 1) {
      ASSAY_TRY(bias.mask->tensor, tile(bias.mask->tensor, times));
    }
  }
  if (!sink) return bias;
  ASSAY_TRY(const Wide values, widen(sink->view()));
  if (values.size() != heads)
    return fail(arguments.invalid("sinks ", text_of(sink->ne), " for ", heads, " heads"));
  bias.sinks.assign(values.values.begin(), values.values.end());
  return bias;
}

// ---- soft_max ---------------------------------------------------------------------------------

/// finish(scores, sink) of every row, in place.
template <typename Finish>
Result<Wide> softmax(const Arguments& arguments, Finish finish) {
  ASSAY_TRY(Wide x, values_of(arguments, "src0"));
  ASSAY_TRY(const double scale, real(arguments, "scale", 0, 1.0));
  const int64_t columns = x.shape[3], queries = x.shape[2], heads = x.shape[1];
  ASSAY_TRY(const Bias bias, bias_of(arguments, "src1", "src2", columns, queries, heads));
  std::vector<double> scratch(static_cast<size_t>(columns));
  double* row = x.data();
  for (int64_t batch = 0; batch < x.shape[0]; ++batch) {
    const ScoreBias terms = bias.of_batch(batch);
    for (int64_t head = 0; head < heads; ++head)
      for (int64_t query = 0; query < queries; ++query, row += columns) {
        const std::span<double> scores(row, scratch.size());
        scale_row(row, columns, scale);
        add_bias(terms, head, query, scores, scratch);
        finish(scores, bias.sinks.empty() ? -kInfinity : bias.sinks[static_cast<size_t>(head)]);
      }
  }
  return x;
}

Result<Values> soft_max(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Wide y, softmax(arguments, [](std::span<double> scores, double sink) {
              softmax_row(scores.data(), static_cast<int64_t>(scores.size()), sink);
            }));
  return result_of(std::move(y));
}

/// C = |y| (1 + (|s - max| + |s| + |max|) / 16): the scores are rounded before their difference is.
Result<Magnitudes> rounding_of_soft_max(const Arguments& arguments, int) {
  std::vector<double> kept;
  ASSAY_TRY(Wide c, softmax(arguments, [&](std::span<double> row, double sink) {
              kept.assign(row.begin(), row.end());
              const double largest =
                  softmax_row(row.data(), static_cast<int64_t>(row.size()), sink).largest;
              for (size_t i = 0; i < row.size(); ++i) {
                const double sizes =
                    std::fabs(kept[i] - largest) + std::fabs(kept[i]) + std::fabs(largest);
                row[i] = row[i] > 0 ? row[i] * (1 + sizes / 16) : 0;
              }
            }));
  return scaled_rounding(std::move(c), 16 * kFloat32Roundoff);
}

// ---- flash_attn_ext ---------------------------------------------------------------------------

/// [batch, heads, rows, size] -> rows [rows, heads, size] of one batch.
TensorView rows_of_batch(const TensorView& all, int64_t batch) {
  TensorView rows = all;
  rows.offset_elements += batch * all.strides[0];
  rows.shape = {all.shape[2], all.shape[1], all.shape[3]};
  rows.strides = {all.strides[2], all.strides[1], all.strides[3]};
  return rows;
}

/// Columns of a mask [heads, queries, columns] that any query may see.
Result<std::vector<int64_t>> seen_columns(const TensorView& mask, int64_t queries) {
  TensorView used = mask;
  used.shape[1] = queries;
  if (mask.strides[0] == 0) used.shape[0] = 1;
  ASSAY_TRY(const Wide values, widen(used));
  const int64_t columns = mask.shape[2];
  std::vector<bool> seen(static_cast<size_t>(columns), false);
  for (int64_t i = 0; i < values.size(); ++i)
    if (values.data()[i] != -kInfinity) seen[static_cast<size_t>(i % columns)] = true;
  std::vector<int64_t> places;
  for (int64_t i = 0; i < columns; ++i)
    if (seen[static_cast<size_t>(i)]) places.push_back(i);
  return places;
}

/// Leaves keys out that no query may see: what stands in the cache there may be anything.
Status keep_seen(Attention* attention, AttentionSequence* one) {
  const int64_t keys = one->keys[0].shape[0];
  if (!one->bias.dense || keys == 0) return {};
  ASSAY_TRY(const std::vector<int64_t> places, seen_columns(*one->bias.dense, one->query.shape[0]));
  if (static_cast<int64_t>(places.size()) == keys) return {};
  const TensorView key = one->keys[0], value = one->values[0];
  one->keys.clear();
  one->values.clear();
  for (size_t first = 0, last = 0; first < places.size(); first = last) {
    while (last < places.size() &&
           places[last] - places[first] == static_cast<int64_t>(last - first))
      ++last;
    const auto count = static_cast<int64_t>(last - first);
    one->keys.push_back(section(key, 0, places[first], count));
    one->values.push_back(section(value, 0, places[first], count));
  }
  Whole columns(Dims{static_cast<int64_t>(places.size())});
  std::ranges::copy(places, columns.values.begin());
  ASSAY_TRY(const Tensor mask,
            gather(Tensor{*one->bias.dense, nullptr}, to_tensor(std::move(columns)), 2, 0));
  one->bias.dense = mask.view;
  attention->owners.push_back(mask);
  return {};
}

/// q [d, queries, heads, batches], k [d, keys, kv heads, ...], v [dv, keys, kv heads, ...]; result
/// [dv, heads, queries, batches].
Result<Attention> attention_of(const Arguments& arguments) {
  ASSAY_TRY(const Source query, source(arguments, "src0"));
  ASSAY_TRY(const Source key, source(arguments, "src1"));
  ASSAY_TRY(const Source value, source(arguments, "src2"));
  const Sizes &q = query.ne, &k = key.ne, &v = value.ne;
  if (q[0] != k[0] || k[1] != v[1] || k[2] != v[2] || k[3] != v[3] || k[2] <= 0 || k[3] <= 0 ||
      q[2] % k[2] != 0 || q[3] % k[3] != 0)
    return fail(
        arguments.invalid("queries ", text_of(q), ", keys ", text_of(k), ", values ", text_of(v)));
  Attention attention;
  attention.heads = q[2];
  attention.kv_heads = k[2];
  attention.head_size = q[0];
  attention.value_size = v[0];
  ASSAY_TRY(attention.scale, real(arguments, "scale", 0));
  ASSAY_TRY(attention.soft_cap, real(arguments, "logit_softcap", 2, 0.0));
  attention.output_shape = {q[3], q[1], q[2], v[0]};
  attention.output_row_stride = q[2] * v[0];
  attention.output_head_stride = v[0];
  ASSAY_TRY(Bias bias, bias_of(arguments, "src3", "src4", k[1], q[1], q[2]));
  attention.sinks = bias.sinks;
  attention.owners = {query.tensor, key.tensor, value.tensor};
  if (bias.mask) attention.owners.push_back(bias.mask->tensor);
  for (int64_t batch = 0; batch < q[3]; ++batch) {
    AttentionSequence one;
    one.query = rows_of_batch(query.view(), batch);
    one.keys = {rows_of_batch(key.view(), batch / (q[3] / k[3]))};
    one.values = {rows_of_batch(value.view(), batch / (q[3] / k[3]))};
    one.bias = bias.of_batch(batch);
    one.output_offset = batch * q[1] * attention.output_row_stride;
    ASSAY_TRY_STATUS(keep_seen(&attention, &one));
    attention.sequences.push_back(std::move(one));
  }
  return attention;
}

Result<Values> flash_attention(const Arguments& arguments, const EvaluateOptions& options) {
  ASSAY_TRY(const Attention call, attention_of(arguments));
  AttentionTerms terms;
  ASSAY_TRY(Wide result, attention(call, options.jobs, &terms));
  // A query that sees nothing gives NaN, as the kernels do. Lines of terms: [batch, head, query].
  const int64_t queries = call.output_shape[1], heads = call.heads, size = call.value_size;
  for (int64_t line = 0; line < terms.log_sums.size(); ++line) {
    if (terms.log_sums.data()[line] != -kInfinity) continue;
    const int64_t batch = line / (queries * heads);
    const int64_t row = (batch * queries + line % queries) * heads + line / queries % heads;
    std::fill_n(result.data() + row * size, size, std::nan(""));
  }
  return result_of(std::move(result));
}

/// What kernels convert queries to: the roundoff of a value, or the step of blocks of 32.
struct QueryConversion {
  double roundoff = kFloat32Roundoff;
  bool in_steps = false;
};
QueryConversion conversion_for(std::string_view type) {
  if (type == "f16" || type == "float16") return {kFloat16Roundoff, false};
  if (type == "bf16" || type == "bfloat16") return {kBFloat16Roundoff, false};
  if (type == "f32" || type == "float32" || type == "float64") return {};
  return {kFloat16Roundoff, true};
}

double largest_norm(const Wide& values) {
  const int64_t size = values.shape[3];
  double largest = 0;
  for (int64_t first = 0; first < values.size(); first += size)
    largest = std::fmax(largest, row_sum_of_squares(values.data() + first, size, 0.0));
  return std::sqrt(largest);
}

/// Keys decide into what queries are converted, so that every score is off by s = roundoff scale
/// |q| |k| or by half the
/// step of q; values in float16 are summed up in float16 over all n keys: 2^-11 sqrt(n) each of C =
/// sum p |v|. Four standard deviations of the latter bound it.
Result<Magnitudes> rounding_of_flash_attention(const Arguments& arguments, int jobs) {
  ASSAY_TRY(const Attention call, attention_of(arguments));
  ASSAY_TRY(const std::string key_type, stored_type(arguments, "src1"));
  ASSAY_TRY(const std::string value_type, stored_type(arguments, "src2"));
  ASSAY_TRY(const Wide queries, values_of(arguments, "src0"));
  ASSAY_TRY(const Wide all_keys, values_of(arguments, "src1"));
  AttentionTerms terms;
  terms.with_magnitudes = true;
  ASSAY_TRY_STATUS(attention(call, jobs, &terms));
  const QueryConversion conversion = conversion_for(key_type);
  const bool half_sums = value_type == "f16" || value_type == "float16";
  const double sums = half_sums ? kFloat16Roundoff : kFloat32Roundoff;
  const double of_sum = kMeanRounding * sums;
  const auto keys = static_cast<double>(all_keys.shape[2]);
  const double key_norm = largest_norm(all_keys) * std::fabs(call.scale);
  const int64_t d = call.head_size, size = call.value_size, heads = call.heads;
  const int64_t rows = queries.shape[2];
  Magnitudes rounding = no_rounding(call.output_shape);
  for (int64_t line = 0; size > 0 && line < terms.absolute.size() / size; ++line) {
    // Lines of the result are [batch, query, head], those of the queries [batch, head, query].
    const int64_t batch = line / (rows * heads);
    const int64_t from = (batch * heads + line % heads) * rows + line / heads % rows;
    const double* query = queries.data() + from * d;
    const double norm = std::sqrt(row_sum_of_squares(query, d, 0.0));
    double largest = 0;
    for (int64_t i = 0; i < d; ++i) largest = std::fmax(largest, std::fabs(query[i]));
    // Standard deviation of a score, then its bound.
    const double step = conversion.in_steps ? largest / 127 : 0;
    const double spread =
        key_norm * (kMeanRounding * conversion.roundoff * largest + step / std::sqrt(12.0));
    const double score =
        key_norm * (conversion.roundoff * norm + step / 2 * std::sqrt(static_cast<double>(d)));
    const double fixed = 4 * kFloat32Roundoff * (1 + key_norm * norm);
    for (int64_t at = line * size; at < (line + 1) * size; ++at) {
      const double c = terms.absolute.data()[at];
      rounding.c.data()[at] = c;
      rounding.allowed.data()[at] = c * (2 * score + 4 * sums * std::sqrt(keys) + fixed);
      rounding.variance.data()[at] =
          terms.squared.data()[at] * (2 * spread * spread + keys * of_sum * of_sum) +
          c * c * fixed * fixed / 12;
    }
  }
  return rounding;
}

}  // namespace

std::span<const DialectRow> attention_operators() {
  static constexpr DialectRow kTable[] = {
      own("ggml.flash_attn_ext", OperatorClass::Attention, flash_attention,
          rounding_of_flash_attention),
      own("ggml.soft_max", OperatorClass::Softmax, soft_max, rounding_of_soft_max),
  };
  return kTable;
}

}  // namespace assay::reference::ggml
