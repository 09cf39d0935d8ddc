// SPDX-License-Identifier: Apache-2.0
// Soft-max with mask, ALiBi and sinks; fused attention.
//
//   soft_max        y = softmax(scale x + slope mask), over ne0
//   flash_attn_ext  y = softmax(cap tanh(scale q.k / cap) + slope mask) . v;  cap 0: no tanh
//
// A sink is one more score of a head whose value is zero. The slope of head h of n is 1 without ALiBi; with it
// 2^(-max_bias (h+1) / 2^floor(log2 n)), and for the heads behind the largest power of two the places between.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/ascii.hpp"
#include "reference/ggml/volume.hpp"

namespace assay::reference::ggml {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double slope_of(double max_bias, int64_t head, int64_t heads) {
  if (max_bias <= 0) return 1;
  int64_t power = 1;
  while (power * 2 <= heads) power *= 2;
  const auto n = static_cast<double>(power);
  return head < power ? std::exp2(-max_bias / n * static_cast<double>(head + 1))
                      : std::exp2(-max_bias / 2 / n * static_cast<double>(2 * (head - power) + 1));
}

/// Mask and sinks of both operators.
struct Bias {
  std::optional<Volume> mask, sinks;
  double max_bias = 0;
  int64_t heads = 1;

  /// Adds to the scores of one query.
  void add(int64_t query, int64_t head, int64_t batch, std::span<double> scores) const {
    if (!mask) return;
    const double slope = slope_of(max_bias, head, heads);
    const double* row = mask->row(query, head % mask->ne[2], batch % mask->ne[3]);
    for (size_t i = 0; i < scores.size(); ++i) scores[i] += slope * row[i];
  }
  [[nodiscard]] std::optional<double> sink(int64_t head) const {
    return sinks ? std::optional(sinks->values.values[static_cast<size_t>(head)]) : std::nullopt;
  }
};
Result<Bias> bias_of(const Arguments& arguments, std::string_view mask, std::string_view sinks,
                     int64_t columns, int64_t queries, int64_t heads) {
  Bias bias;
  bias.heads = heads;
  ASSAY_TRY(bias.mask, optional_source(arguments, mask));
  ASSAY_TRY(bias.sinks, optional_source(arguments, sinks));
  ASSAY_TRY(bias.max_bias, real(arguments, "max_bias", 1, 0.0));
  if (bias.mask && (bias.mask->ne[0] != columns || bias.mask->ne[1] < queries ||
                    bias.mask->ne[2] == 0 || bias.mask->ne[3] == 0))
    return fail(arguments.invalid("mask " + text_of(bias.mask->ne) + " for " +
                                  std::to_string(queries) + " rows of " + std::to_string(columns)));
  if (bias.sinks && bias.sinks->values.size() != heads)
    return fail(arguments.invalid("sinks " + text_of(bias.sinks->ne) + " for " +
                                  std::to_string(heads) + " heads"));
  return bias;
}

/// Scores become probabilities; returns the largest score. A row of nothing but -inf gives NaN, as the kernels do.
double to_probabilities(std::span<double> scores, std::optional<double> sink) {
  double largest = sink.value_or(-kInfinity);
  for (const double score : scores) largest = std::fmax(largest, score);
  double sum = sink ? std::exp(*sink - largest) : 0;
  for (double& score : scores) sum += score = std::exp(score - largest);
  for (double& score : scores) score /= sum;
  return largest;
}

// ---- soft_max ---------------------------------------------------------------------------------

struct Scaled {
  Volume x;
  Bias bias;
  double scale = 1;
};
Result<Scaled> scaled_of(const Arguments& arguments) {
  Scaled scaled;
  ASSAY_TRY(scaled.x, source(arguments, "src0"));
  ASSAY_TRY(scaled.scale, real(arguments, "scale", 0, 1.0));
  const Sizes& ne = scaled.x.ne;
  ASSAY_TRY(scaled.bias, bias_of(arguments, "src1", "src2", ne[0], ne[1], ne[2]));
  return scaled;
}
/// visit(row, query, head, batch)
template <typename F>
void for_each_row(Volume& x, F visit) {
  for (int64_t i3 = 0; i3 < x.ne[3]; ++i3)
    for (int64_t i2 = 0; i2 < x.ne[2]; ++i2)
      for (int64_t i1 = 0; i1 < x.ne[1]; ++i1)
        visit(std::span(x.row(i1, i2, i3), static_cast<size_t>(x.ne[0])), i1, i2, i3);
}

Result<Values> soft_max(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Scaled scaled, scaled_of(arguments));
  for_each_row(scaled.x, [&](std::span<double> row, int64_t query, int64_t head, int64_t batch) {
    for (double& value : row) value *= scaled.scale;
    scaled.bias.add(query, head, batch, row);
    to_probabilities(row, scaled.bias.sink(head));
  });
  return single(std::move(scaled.x));
}

/// C = |y| (1 + (|s - max| + |s| + |max|) / 16): the scores are rounded before their difference is.
Result<Magnitudes> rounding_of_soft_max(const Arguments& arguments, int) {
  ASSAY_TRY(Scaled scaled, scaled_of(arguments));
  std::vector<double> scores;
  for_each_row(scaled.x, [&](std::span<double> row, int64_t query, int64_t head, int64_t batch) {
    for (double& value : row) value *= scaled.scale;
    scaled.bias.add(query, head, batch, row);
    scores.assign(row.begin(), row.end());
    const double largest = to_probabilities(row, scaled.bias.sink(head));
    for (size_t i = 0; i < row.size(); ++i) {
      const double sizes =
          std::fabs(scores[i] - largest) + std::fabs(scores[i]) + std::fabs(largest);
      row[i] = row[i] > 0 ? row[i] * (1 + sizes / 16) : 0;
    }
  });
  return scaled_rounding(std::move(scaled.x.values), 16 * kFloat32Roundoff);
}

// ---- flash_attn_ext ---------------------------------------------------------------------------

/// q [d, queries, heads, batches], k [d, keys, kv heads, ...], v [dv, keys, kv heads, ...]; result [dv, heads,
/// queries, batches].
struct Attention {
  Volume q, k, v;
  Bias bias;
  double scale = 1;
  double cap = 0;
  std::string key_type, value_type;

  [[nodiscard]] Sizes result_sizes() const { return {v.ne[0], q.ne[2], q.ne[1], q.ne[3]}; }
  [[nodiscard]] int64_t key_head(int64_t head) const { return head / (q.ne[2] / k.ne[2]); }
  [[nodiscard]] int64_t value_head(int64_t head) const { return head / (q.ne[2] / v.ne[2]); }
  [[nodiscard]] int64_t key_batch(int64_t batch) const { return batch / (q.ne[3] / k.ne[3]); }
  [[nodiscard]] int64_t value_batch(int64_t batch) const { return batch / (q.ne[3] / v.ne[3]); }
};

Result<std::string> type_of(const Arguments& arguments, std::string_view name) {
  ASSAY_TRY(const std::string given, arguments.text(std::string(name) + "_type", ""));
  if (!given.empty()) return lower_case(given);
  ASSAY_TRY(const Tensor tensor, arguments.tensor(name));
  return std::string(assay::name(tensor.view.dtype));
}

Result<Attention> attention_of(const Arguments& arguments) {
  Attention attention;
  ASSAY_TRY(attention.q, source(arguments, "src0"));
  ASSAY_TRY(attention.k, source(arguments, "src1"));
  ASSAY_TRY(attention.v, source(arguments, "src2"));
  const Sizes &q = attention.q.ne, &k = attention.k.ne, &v = attention.v.ne;
  const auto groups = [&](const Sizes& kv) {
    return kv[2] > 0 && kv[3] > 0 && q[2] % kv[2] == 0 && q[3] % kv[3] == 0;
  };
  if (q[0] != k[0] || k[1] != v[1] || !groups(k) || !groups(v))
    return fail(arguments.invalid("queries " + text_of(q) + ", keys " + text_of(k) + ", values " +
                                  text_of(v)));
  ASSAY_TRY(attention.scale, real(arguments, "scale", 0));
  ASSAY_TRY(attention.cap, real(arguments, "logit_softcap", 2, 0.0));
  ASSAY_TRY(attention.bias, bias_of(arguments, "src3", "src4", k[1], q[1], q[2]));
  ASSAY_TRY(attention.key_type, type_of(arguments, "src1"));
  ASSAY_TRY(attention.value_type, type_of(arguments, "src2"));
  return attention;
}

double dot(const double* a, const double* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

/// visit(query, head, batch, probabilities) for every query.
template <typename F>
void for_each_query(const Attention& attention, F visit) {
  const Sizes& q = attention.q.ne;
  std::vector<double> scores(static_cast<size_t>(attention.k.ne[1]));
  for (int64_t batch = 0; batch < q[3]; ++batch)
    for (int64_t head = 0; head < q[2]; ++head)
      for (int64_t query = 0; query < q[1]; ++query) {
        const double* of_query = attention.q.row(query, head, batch);
        for (size_t i = 0; i < scores.size(); ++i) {
          double score = attention.scale *
                         dot(of_query,
                             attention.k.row(static_cast<int64_t>(i), attention.key_head(head),
                                             attention.key_batch(batch)),
                             q[0]);
          if (attention.cap != 0) score = attention.cap * std::tanh(score / attention.cap);
          scores[i] = score;
        }
        attention.bias.add(query, head, batch, scores);
        to_probabilities(scores, attention.bias.sink(head));
        visit(query, head, batch, std::span<const double>(scores));
      }
}

Result<Values> flash_attention(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Attention attention, attention_of(arguments));
  Volume result(attention.result_sizes());
  const int64_t size = attention.v.ne[0];
  for_each_query(attention, [&](int64_t query, int64_t head, int64_t batch,
                                std::span<const double> probabilities) {
    double* out = result.row(head, query, batch);
    std::fill_n(out, size, 0.0);
    for (size_t j = 0; j < probabilities.size(); ++j) {
      const double p = probabilities[j];
      if (p == 0) continue;  // masked: what stands in the cache there may be anything
      const double* value = attention.v.row(static_cast<int64_t>(j), attention.value_head(head),
                                            attention.value_batch(batch));
      for (int64_t i = 0; i < size; ++i) out[i] += p * value[i];
    }
  });
  return single(std::move(result));
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

double largest_norm(const Volume& values) {
  double largest = 0;
  for (int64_t row = 0; row < values.rows(); ++row) {
    const double* from = values.values.data() + row * values.ne[0];
    largest = std::fmax(largest, dot(from, from, values.ne[0]));
  }
  return std::sqrt(largest);
}

/// Keys decide into what queries are converted, so that every score is off by s = roundoff scale |q| |k| or by half the
/// step of q; values in float16 are summed up in float16 over all n keys: 2^-11 sqrt(n) each of C = sum p |v|. Four
/// standard deviations of the latter bound it.
Result<Magnitudes> rounding_of_flash_attention(const Arguments& arguments, int) {
  ASSAY_TRY(const Attention attention, attention_of(arguments));
  const QueryConversion conversion = conversion_for(attention.key_type);
  const bool half_sums = attention.value_type == "f16" || attention.value_type == "float16";
  const double sums = half_sums ? kFloat16Roundoff : kFloat32Roundoff;
  const auto keys = static_cast<double>(attention.k.ne[1]);
  const double key_norm = largest_norm(attention.k) * std::fabs(attention.scale);
  const int64_t size = attention.v.ne[0];
  Magnitudes rounding{Wide(shape_of(attention.result_sizes())),
                      Wide(shape_of(attention.result_sizes())),
                      {},
                      1,
                      Wide(shape_of(attention.result_sizes()))};
  std::vector<double> absolute(static_cast<size_t>(size));
  std::vector<double> squares(static_cast<size_t>(size));
  for_each_query(attention, [&](int64_t query, int64_t head, int64_t batch,
                                std::span<const double> probabilities) {
    std::ranges::fill(absolute, 0.0);
    std::ranges::fill(squares, 0.0);
    for (size_t j = 0; j < probabilities.size(); ++j) {
      const double p = probabilities[j];
      if (p == 0) continue;
      const double* value = attention.v.row(static_cast<int64_t>(j), attention.value_head(head),
                                            attention.value_batch(batch));
      for (int64_t i = 0; i < size; ++i) {
        const double term = p * std::fabs(value[i]);
        absolute[static_cast<size_t>(i)] += term;
        squares[static_cast<size_t>(i)] += term * term;
      }
    }
    const double* of_query = attention.q.row(query, head, batch);
    const double norm = std::sqrt(dot(of_query, of_query, attention.q.ne[0]));
    double largest = 0;
    for (int64_t i = 0; i < attention.q.ne[0]; ++i)
      largest = std::fmax(largest, std::fabs(of_query[i]));
    // Standard deviation of a score, then its bound.
    const double step = conversion.in_steps ? largest / 127 : 0;
    const double spread =
        key_norm * (kMeanRounding * conversion.roundoff * largest + step / std::sqrt(12.0));
    const double score = key_norm * (conversion.roundoff * norm +
                                     step / 2 * std::sqrt(static_cast<double>(attention.q.ne[0])));
    const double fixed = 4 * kFloat32Roundoff * (1 + key_norm * norm);
    const int64_t first = head + attention.q.ne[2] * (query + attention.q.ne[1] * batch);
    for (int64_t i = 0; i < size; ++i) {
      const auto at = static_cast<size_t>(first * size + i);
      const double c = absolute[static_cast<size_t>(i)];
      rounding.c.values[at] = c;
      rounding.allowed.values[at] = c * (2 * score + 4 * sums * std::sqrt(keys) + fixed);
      const double of_sum = kMeanRounding * sums;
      rounding.variance.values[at] =
          squares[static_cast<size_t>(i)] * (2 * spread * spread + keys * of_sum * of_sum) +
          c * c * fixed * fixed / 12;
    }
  });
  return rounding;
}

}  // namespace

std::span<const Operator> attention_operators() {
  static constexpr Operator kTable[] = {
      {"ggml.flash_attn_ext", OperatorClass::Attention, flash_attention,
       rounding_of_flash_attention},
      {"ggml.soft_max", OperatorClass::Softmax, soft_max, rounding_of_soft_max},
  };
  return kTable;
}

}  // namespace assay::reference::ggml
