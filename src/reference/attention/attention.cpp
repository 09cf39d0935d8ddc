// SPDX-License-Identifier: Apache-2.0
// A unit of work is one sequence and kv head: its keys and values are widened once, then each block
// of query rows of its heads passes Q K^T, bias, softmax and V. Products are dgemm's.
//   docs/opcheck/attention.md
#include "reference/attention/attention.hpp"

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "base/interruption.hpp"
#include "base/thread_pool.hpp"
#include "reference/attention/operand_rows.hpp"
#include "reference/attention/softmax_row.hpp"
#include "reference/blas.hpp"
#include "tensor/sentence.hpp"

namespace assay::reference {
namespace {

constexpr int64_t kMaxKeyValues = int64_t{1} << 29;  // 4 GB in fp64
constexpr int64_t kScoreBlock = int64_t{1} << 17;    // scores held at a time: 1 MB
constexpr int64_t kMinRows = 16;                     // of a product, for its speed

Status check_rows(const TensorView& view, int64_t heads, int64_t size, const char* what) {
  int64_t columns = 1;
  for (size_t i = 2; i < view.shape.size(); ++i) columns *= view.shape[i];
  if (view.shape.size() < 3 || view.shape[1] != heads || columns != size)
    return fail(Errc::Invalid, what, " rows have shape ", view.shape, ", not [rows, ", heads, ", ",
                size, "]");
  return check_real(view);
}

Status check_sizes(size_t found, int64_t expected, const char* what) {
  if (found == 0 || found == static_cast<size_t>(expected)) return {};
  return fail(Errc::Invalid, what, " has ", found, " values, not ", expected);
}

Status check_bias(const ScoreBias& bias, int64_t heads, int64_t rows, int64_t columns) {
  ASSAY_TRY_STATUS(check_sizes(bias.slopes.size(), heads, "slopes"));
  if (!bias.dense) return {};
  const Dims& shape = bias.dense->shape;
  const int64_t needed = bias.block_columns > 0 ? std::min(bias.block_columns, columns) : columns;
  if (shape.size() != 3 || shape[0] < heads || shape[1] < rows || shape[2] < needed)
    return fail(Errc::Invalid, "mask ", bias.dense->shape, " is smaller than the scores ",
                Dims{heads, rows, needed});
  return {};
}

Status check_sequence(const Attention& attention, const AttentionSequence& one) {
  ASSAY_TRY_STATUS(check_rows(one.query, attention.heads, attention.head_size, "query"));
  for (const KeyValueRows& part : one.keys)
    ASSAY_TRY_STATUS(check_rows(part, attention.kv_heads, attention.head_size, "key"));
  for (const KeyValueRows& part : one.values)
    ASSAY_TRY_STATUS(check_rows(part, attention.kv_heads, attention.value_size, "value"));
  const int64_t m = one.query.shape[0];
  int64_t n = 0;
  for (const KeyValueRows& part : one.keys) {
    // Blocks may be listed any number of times, so the sum is not bounded by the size of a file.
    n += part.shape[0];
    if (n > kMaxKeyValues) return fail(Errc::TooLarge, "more than 2^29 keys in a sequence");
  }
  const int64_t widest = std::max({attention.head_size, attention.value_size, int64_t{1}});
  if (n > kMaxKeyValues / widest)
    return fail(Errc::TooLarge, n, " keys of ", widest,
                " values in one sequence; at most 2^29 values");
  if (n != row_count(one.values))
    return fail(Errc::Invalid, n, " keys, but ", row_count(one.values), " values");
  ASSAY_TRY_STATUS(check_sizes(one.column_bias.size(), n, "the bias of the keys"));
  ASSAY_TRY_STATUS(check_sizes(one.row_scale.size(), m, "the scale of the rows"));
  ASSAY_TRY_STATUS(check_bias(one.bias, attention.heads, m, n));
  if (m == 0) return {};
  const int64_t last = one.output_offset + (m - 1) * attention.output_row_stride +
                       (attention.heads - 1) * attention.output_head_stride + attention.value_size;
  if (one.output_offset < 0 || last > element_count(attention.output_shape).value_or(0))
    return fail(Errc::Invalid, "the result ", attention.output_shape,
                " does not hold all query rows");
  return {};
}

void round_weights(const Attention& attention, int64_t head, std::span<double> weights) {
  double factor = 127.0;
  if (attention.rounding != WeightRounding::Online) {
    const double scale = attention.weight_scale[static_cast<size_t>(head)];
    factor = attention.rounding == WeightRounding::OfflineDivide ? 1.0 / scale : scale;
  }
  for (double& weight : weights) weight = round_half_even(weight * factor);
}

/// What a rounded weight stands for.
double weight_unit(const Attention& attention, int64_t head) {
  switch (attention.rounding) {
    case WeightRounding::Online:
      return 1.0 / 127.0;
    case WeightRounding::OfflineDivide:
      return attention.weight_scale[static_cast<size_t>(head)];
    default:
      return 1.0;
  }
}

/// Scores of one row as they enter the softmax.
void finish_scores(const Attention& attention, const AttentionSequence& one, int64_t head,
                   int64_t row, std::span<double> scores, std::span<double> scratch) {
  const auto columns = static_cast<int64_t>(scores.size());
  double first = attention.query_scale;
  if (!attention.score_scale.empty()) first *= attention.score_scale[static_cast<size_t>(head)];
  double second = attention.scale;
  if (!one.row_scale.empty()) second *= one.row_scale[static_cast<size_t>(row)];
  const auto clamp = [&] {
    if (!attention.clamp) return;
    for (double& score : scores)  // NaN stays
      score = score < attention.clamp->first    ? attention.clamp->first
              : score > attention.clamp->second ? attention.clamp->second
                                                : score;
  };
  if (!one.column_bias.empty()) {
    scale_row(scores.data(), columns, first);
    add_row(scores.data(), one.column_bias.data(), columns, 1.0);
    first = 1;
  }
  if (attention.bias_before_scale) {
    scale_row(scores.data(), columns, first);
    clamp();
    add_bias(one.bias, head, row, scores, scratch);
    scale_row(scores.data(), columns, second);
  } else {
    scale_row(scores.data(), columns, first * second);
    clamp();
    if (attention.soft_cap != 0)
      for (double& score : scores)
        score = attention.soft_cap * std::tanh(score / attention.soft_cap);
    add_bias(one.bias, head, row, scores, scratch);
  }
}

/// Turns scores into weights (numerators of the softmax, perhaps rounded) and returns their sum
/// before rounding: 0 when every score is -Inf, NaN when one is NaN.
double make_weights(const Attention& attention, int64_t head, std::span<double> scores,
                    double& largest) {
  const auto columns = static_cast<int64_t>(scores.size());
  const double sink =
      attention.sinks.empty() ? -INFINITY : attention.sinks[static_cast<size_t>(head)];
  largest = std::max(row_maximum(scores.data(), columns), sink);
  if (std::isinf(largest) && largest < 0) {
    const bool broken =
        std::any_of(scores.begin(), scores.end(), [](double score) { return std::isnan(score); });
    std::fill(scores.begin(), scores.end(), 0.0);
    return broken ? NAN : 0.0;
  }
  if (attention.rounding == WeightRounding::None)
    return exponentials(scores.data(), columns, largest) +
           (attention.sinks.empty() ? 0 : std::exp(sink - largest));
  if (attention.rounding_block <= 0) {
    const double sum = exponentials(scores.data(), columns, largest);
    round_weights(attention, head, scores);
    return sum;
  }
  // As a kernel meets them: each block against the largest score so far, brought to the scale of
  // the whole row afterwards.
  double sum = 0;
  double so_far = -INFINITY;
  for (int64_t first = 0; first < columns; first += attention.rounding_block) {
    const int64_t width = std::min(attention.rounding_block, columns - first);
    const std::span<double> block =
        scores.subspan(static_cast<size_t>(first), static_cast<size_t>(width));
    so_far = std::max(so_far, row_maximum(block.data(), width));
    if (std::isinf(so_far) && so_far < 0) {
      std::fill(block.begin(), block.end(), 0.0);
      continue;
    }
    const double weight = std::exp(so_far - largest);
    sum += weight * exponentials(block.data(), width, so_far);
    round_weights(attention, head, block);
    scale_row(block.data(), width, weight);
  }
  return sum;
}

/// Buffers of one thread.
struct Workspace {
  std::vector<double, NoInitAllocator<double>> keys, values, query, scores, result, scratch;
};

/// Where the terms of a sequence begin.
struct TermsPlace {
  AttentionTerms* terms = nullptr;  // none are wanted
  int64_t first_line = 0;
  int64_t first_weight = 0;
};

/// result [stacked, dv] = weights [stacked, used] . values; precondition: columns is the length of
/// rows of weights
void weigh(Workspace& work, blasint stacked, int64_t used, int64_t columns, int64_t dv) {
  if (used == 0) {
    std::fill_n(work.result.data(), stacked * dv, 0.0);
    return;
  }
  cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, stacked, static_cast<blasint>(dv),
              static_cast<blasint>(used), 1.0, work.scores.data(), static_cast<blasint>(columns),
              work.values.data(), static_cast<blasint>(dv), 0.0, work.result.data(),
              static_cast<blasint>(dv));
}

/// One block of query rows of all heads of a kv head.
struct Lines {
  int64_t kv_head, group, first, rows;
  [[nodiscard]] int64_t head(int64_t line) const { return kv_head * group + line / rows; }
  [[nodiscard]] int64_t row(int64_t line) const { return first + line % rows; }
};

/// out = result * factor(line), where each line belongs
template <typename Factor>
void put_lines(const Attention& attention, const AttentionSequence& one, const Lines& lines,
               const Workspace& work, double* out, Factor factor_of) {
  const int64_t dv = attention.value_size;
  for (int64_t line = 0; line < lines.group * lines.rows; ++line) {
    const double factor = factor_of(line);
    const double* from = work.result.data() + line * dv;
    double* to = out + one.output_offset + lines.row(line) * attention.output_row_stride +
                 lines.head(line) * attention.output_head_stride;
    for (int64_t c = 0; c < dv; ++c) to[c] = factor == 0 ? 0.0 : from[c] * factor;
  }
}

/// The terms of a block, from its weights (numerators of the softmax), which it changes.
void put_terms(const Attention& attention, const AttentionSequence& one, const Lines& lines,
               const TermsPlace& place, std::span<const double> sums,
               std::span<const double> largest, int64_t columns, int64_t used, Workspace& work) {
  AttentionTerms& terms = *place.terms;
  const int64_t m = one.query.shape[0];
  const int64_t n = row_count(one.keys);
  const auto stacked = static_cast<int64_t>(sums.size());
  for (int64_t line = 0; line < stacked; ++line) {
    const auto at = static_cast<size_t>(line);
    const int64_t number = lines.head(line) * m + lines.row(line);
    terms.log_sums.data()[place.first_line + number] =
        sums[at] == 0 ? -INFINITY : largest[at] + std::log(sums[at]);
    if (!terms.with_weights || sums[at] == 0) continue;
    const double* weights = work.scores.data() + line * columns;
    double* to = terms.weights.data() + place.first_weight + number * n;
    for (int64_t c = 0; c < columns; ++c) to[c] = weights[c] / sums[at];
  }
  if (!terms.with_magnitudes) return;
  const int64_t dv = attention.value_size;
  const std::vector<double> values(work.values.begin(), work.values.end());
  const auto count = static_cast<size_t>(n * dv);
  for (size_t i = 0; i < count; ++i) work.values[i] = std::fabs(values[i]);
  weigh(work, static_cast<blasint>(stacked), used, columns, dv);
  put_lines(attention, one, lines, work, terms.absolute.data(), [&](int64_t line) {
    const double sum = sums[static_cast<size_t>(line)];
    return sum == 0 ? 0.0 : 1.0 / sum;
  });
  for (size_t i = 0; i < count; ++i) work.values[i] = values[i] * values[i];
  for (int64_t i = 0; i < stacked * columns; ++i) {
    double& weight = work.scores[static_cast<size_t>(i)];
    weight *= weight;
  }
  weigh(work, static_cast<blasint>(stacked), used, columns, dv);
  put_lines(attention, one, lines, work, terms.squared.data(), [&](int64_t line) {
    const double sum = sums[static_cast<size_t>(line)];
    return sum == 0 ? 0.0 : 1.0 / (sum * sum);
  });
  std::copy(values.begin(), values.end(), work.values.begin());
}

/// All query heads of one kv head in one sequence.
void attend_group(const Attention& attention, const AttentionSequence& one, int64_t kv_head,
                  const TermsPlace& place, Workspace& work, double* out) {
  const int64_t m = one.query.shape[0];
  const int64_t n = row_count(one.keys);
  const int64_t d = attention.head_size;
  const int64_t dv = attention.value_size;
  const int64_t group = attention.heads / attention.kv_heads;
  if (m == 0 || n == 0 || dv == 0) return;

  work.keys.resize(static_cast<size_t>(n * d));
  work.values.resize(static_cast<size_t>(n * dv));
  read_key_value_rows(one.keys, kv_head, d, attention.key_dequant_scale,
                      attention.key_dequant_offset, one.first_scale_head, work.keys.data());
  read_key_value_rows(one.values, kv_head, dv, attention.value_dequant_scale,
                      attention.value_dequant_offset, one.first_scale_head, work.values.data());

  const int64_t least = std::max<int64_t>(1, kMinRows / group);
  const int64_t block = std::clamp(kScoreBlock / (n * group), std::min(least, m), m);
  work.query.resize(static_cast<size_t>(group * block * d));
  work.scores.resize(static_cast<size_t>(group * block * n));
  work.result.resize(static_cast<size_t>(group * block * dv));
  work.scratch.resize(static_cast<size_t>(n));

  for (int64_t first = 0; first < m && !is_interrupted(); first += block) {
    const int64_t rows = std::min(block, m - first);
    const int64_t columns = visible_columns(one.bias, first + rows - 1, n);
    if (columns == 0) continue;
    for (int64_t g = 0; g < group; ++g)
      read_head_rows(one.query, kv_head * group + g, first, rows, work.query.data() + g * rows * d);
    const auto stacked = static_cast<blasint>(group * rows);
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, stacked, static_cast<blasint>(columns),
                static_cast<blasint>(d), 1.0, work.query.data(),
                static_cast<blasint>(std::max<int64_t>(d, 1)), work.keys.data(),
                static_cast<blasint>(std::max<int64_t>(d, 1)), 0.0, work.scores.data(),
                static_cast<blasint>(columns));
    if (d == 0) std::fill(work.scores.begin(), work.scores.end(), 0.0);

    const Lines lines{kv_head, group, first, rows};
    std::vector<double> sums(static_cast<size_t>(stacked));
    std::vector<double> largest(static_cast<size_t>(stacked));
    int64_t used = 0;  // columns behind which all weights are 0
    for (int64_t line = 0; line < stacked; ++line) {
      const int64_t head = lines.head(line);
      const std::span<double> scores(work.scores.data() + line * columns,
                                     static_cast<size_t>(columns));
      finish_scores(attention, one, head, lines.row(line), scores, work.scratch);
      sums[static_cast<size_t>(line)] =
          make_weights(attention, head, scores, largest[static_cast<size_t>(line)]);
      int64_t last = columns;
      while (last > used && scores[static_cast<size_t>(last - 1)] == 0) --last;
      used = last;
    }
    weigh(work, stacked, used, columns, dv);
    put_lines(attention, one, lines, work, out, [&](int64_t line) {
      const int64_t head = lines.head(line);
      const double sum = sums[static_cast<size_t>(line)];
      double factor = sum == 0 ? 0.0 : weight_unit(attention, head) / sum;
      if (!attention.value_scale.empty())
        factor *= attention.value_scale[static_cast<size_t>(head)];
      return factor;
    });
    if (place.terms != nullptr)
      put_terms(attention, one, lines, place, sums, largest, columns, used, work);
  }
}

/// Makes room for the terms of all sequences.
Result<std::vector<TermsPlace>> prepare_terms(const Attention& attention, AttentionTerms& terms) {
  std::vector<TermsPlace> places;
  int64_t lines = 0;
  int64_t weights = 0;
  for (const AttentionSequence& one : attention.sequences) {
    places.push_back({&terms, lines, weights});
    const Dims shape{attention.heads, one.query.shape[0], row_count(one.keys)};
    ASSAY_TRY(const int64_t count, checked_count(shape));
    lines += attention.heads * one.query.shape[0];
    weights += terms.with_weights ? count : 0;
    ASSAY_TRY_STATUS(checked_count(Dims{std::max(lines, weights)}));
  }
  terms.log_sums = Wide(Dims{lines}, -INFINITY);
  terms.weights.assign(static_cast<size_t>(weights), 0.0);
  if (terms.with_magnitudes) {
    terms.absolute = Wide(attention.output_shape, 0.0);
    terms.squared = Wide(attention.output_shape, 0.0);
  }
  return places;
}

}  // namespace

Status check_attention(const Attention& attention) {
  if (attention.heads <= 0 || attention.kv_heads <= 0 || attention.heads % attention.kv_heads != 0)
    return fail(Errc::Invalid, attention.kv_heads, " kv heads do not divide ", attention.heads,
                " query heads");
  if (attention.head_size < 0 || attention.value_size < 0)
    return fail(Errc::Invalid, "a negative head size");
  ASSAY_TRY_STATUS(checked_count(attention.output_shape));
  ASSAY_TRY_STATUS(
      check_sizes(attention.score_scale.size(), attention.heads, "the scale of the scores"));
  ASSAY_TRY_STATUS(
      check_sizes(attention.value_scale.size(), attention.heads, "the scale of the values"));
  ASSAY_TRY_STATUS(check_sizes(attention.sinks.size(), attention.heads, "the sinks"));
  ASSAY_TRY_STATUS(check_sizes(attention.weight_scale.size(), attention.heads, "pScale"));
  const bool offline = attention.rounding == WeightRounding::OfflineDivide ||
                       attention.rounding == WeightRounding::OfflineMultiply;
  if (offline && attention.weight_scale.empty())
    return fail(Errc::Invalid, "offline quantisation needs a scale of the weights");
  int64_t scale_heads = attention.kv_heads;
  for (const AttentionSequence& one : attention.sequences) {
    ASSAY_TRY_STATUS(check_sequence(attention, one));
    if (one.first_scale_head < 0) return fail(Errc::Invalid, "a negative head of scales");
    scale_heads = std::max(scale_heads, one.first_scale_head + attention.kv_heads);
  }
  const auto check_dequant = [&](const std::vector<double>& values, int64_t size,
                                 const char* what) -> Status {
    if (values.empty() || values.size() >= static_cast<size_t>(scale_heads * size)) return {};
    return fail(Errc::Invalid, what, " has ", values.size(), " values, not ", scale_heads * size);
  };
  ASSAY_TRY_STATUS(check_dequant(attention.key_dequant_scale, attention.head_size, "kDescale"));
  ASSAY_TRY_STATUS(check_dequant(attention.key_dequant_offset, attention.head_size, "kOffset"));
  ASSAY_TRY_STATUS(check_dequant(attention.value_dequant_scale, attention.value_size, "vDescale"));
  return check_dequant(attention.value_dequant_offset, attention.value_size, "vOffset");
}

Result<Wide> attention(const Attention& attention, int jobs, AttentionTerms* terms) {
  ASSAY_TRY_STATUS(check_attention(attention));
  prepare_blas();
  Wide out(attention.output_shape, 0.0);
  const auto kv_heads = static_cast<size_t>(attention.kv_heads);
  const size_t units = attention.sequences.size() * kv_heads;
  std::vector<TermsPlace> places(attention.sequences.size());
  if (terms != nullptr) {
    ASSAY_TRY(places, prepare_terms(attention, *terms));
  }
  const auto run = [&](size_t unit, Workspace& work) {
    const size_t sequence = unit / kv_heads;
    attend_group(attention, attention.sequences[sequence], static_cast<int64_t>(unit % kv_heads),
                 places[sequence], work, out.data());
  };
  if (jobs == 1) {
    Workspace work;
    for (size_t unit = 0; unit < units; ++unit) {
      throw_if_interrupted();
      run(unit, work);
    }
    throw_if_interrupted();
  } else {
    parallel_for(units, resolve_job_count(jobs), [&](size_t unit) {
      Workspace work;
      run(unit, work);
    });
  }
  return out;
}

}  // namespace assay::reference
