// SPDX-License-Identifier: Apache-2.0
// Head by head, in blocks of 256 query rows: the gradient computes the scores of a block again, so
// the scores of a whole head never exist.
//   docs/opcheck/attention.md, "Training, partial results"
#include "reference/attention/training_attention.hpp"

#include <algorithm>
#include <string>

#include "reference/attention/softmax_row.hpp"
#include "reference/products/matmul.hpp"
#include "tensor/sentence.hpp"

namespace assay::reference {
namespace {

constexpr int64_t kBlockRows = 256;  // query rows whose scores exist at a time

std::string named_shape(const char* name, const TensorView& view) {
  return std::string(name) + " " + shape_text(view.shape);
}

struct Sizes {
  int64_t batch = 0, heads = 0, kv_heads = 0, rows = 0, d = 0, dv = 0;
};

Result<Sizes> sizes_of(const TensorView& q, const TensorView& k, const TensorView& v,
                       const TrainingAttention& options) {
  const std::string shapes = named_shape("query", q) + ", " + named_shape("key", k) + ", " +
                             named_shape("value", v) + " do not fit";
  if (q.shape.size() != 4 || k.shape.size() != 4 || v.shape.size() != 4)
    return fail(Errc::Invalid, shapes, ": [batch, heads, rows, size] is expected");
  const Sizes sizes{q.shape[0], q.shape[1], k.shape[1], q.shape[2], q.shape[3], v.shape[3]};
  const bool fits = k.shape[0] == sizes.batch && v.shape[0] == sizes.batch &&
                    v.shape[1] == sizes.kv_heads && k.shape[2] == sizes.rows &&
                    v.shape[2] == sizes.rows && k.shape[3] >= sizes.d && sizes.kv_heads > 0 &&
                    sizes.heads % std::max<int64_t>(sizes.kv_heads, 1) == 0;
  if (!fits) return fail(Errc::Invalid, shapes);
  if (options.mask) {
    const Dims& shape = options.mask->shape;
    if (shape.size() != 2 || shape[0] != sizes.rows || shape[1] != sizes.rows)
      return fail(Errc::Invalid, named_shape("the mask has shape", *options.mask), ", needs [",
                  sizes.rows, ", ", sizes.rows, "]");
  }
  return sizes;
}

/// The matrix of one batch and head.
TensorView plane_of(const TensorView& view, int64_t batch, int64_t head) {
  TensorView plane = view;
  plane.offset_elements += batch * view.strides[0] + head * view.strides[1];
  plane.shape = Dims{view.shape[2], view.shape[3]};
  plane.strides = Dims{view.strides[2], view.strides[3]};
  return plane;
}

TensorView matrix_of(const Wide& wide, int64_t offset, int64_t rows, int64_t columns) {
  TensorView view = view_of(wide);
  view.shape = Dims{rows, columns};
  view.strides = Dims{columns, 1};
  view.offset_elements = offset;
  return view;
}

/// Masked and scaled scores of query rows [first, first + count) of one head: [count, rows].
Wide scores_of(const TensorView& query, const TensorView& key, const std::optional<Wide>& mask,
               int64_t first, int64_t count, const TrainingAttention& options) {
  const int64_t columns = key.shape[0];
  Wide scores(Dims{count, columns});
  multiply_into(section(query, 0, first, count), transposed(section(key, 1, 0, query.shape[1])),
                scores.data(), columns, 1);
  for (int64_t i = 0; i < count; ++i) {
    double* row = scores.data() + i * columns;
    scale_row(row, columns, options.scale);
    if (!mask) continue;
    add_row(row, mask->data() + (first + i) * columns, columns, options.mask_value);
    const int64_t before = std::min(first + i - options.pre_tokens + 1, columns);
    for (int64_t j = 0; j < before; ++j) row[j] += options.mask_value;
  }
  return scores;
}

Result<std::optional<Wide>> mask_values(const TrainingAttention& options) {
  if (!options.mask) return std::optional<Wide>();
  ASSAY_TRY(Wide mask, widen(*options.mask));
  return std::optional<Wide>(std::move(mask));
}

Status check_real(std::initializer_list<const TensorView*> views) {
  for (const TensorView* view : views) ASSAY_TRY_STATUS(reference::check_real(*view));
  return {};
}

void add_into(const Wide& values, double* out) {
  for (const double value : values.values) *out++ += value;
}

}  // namespace

Result<AttentionWithStatistics> attention_with_statistics(const TensorView& q, const TensorView& k,
                                                          const TensorView& v,
                                                          const TrainingAttention& options) {
  ASSAY_TRY_STATUS(check_real({&q, &k, &v}));
  ASSAY_TRY(const Sizes sizes, sizes_of(q, k, v, options));
  const Dims out_shape{sizes.batch, sizes.heads, sizes.rows, sizes.dv};
  ASSAY_TRY_STATUS(checked_count(out_shape));
  ASSAY_TRY_STATUS(checked_count(Dims{kBlockRows, sizes.rows}));
  ASSAY_TRY(const std::optional<Wide> mask, mask_values(options));
  const Dims row_shape{sizes.batch, sizes.heads, sizes.rows};
  AttentionWithStatistics result{Wide(row_shape), Wide(row_shape), Wide(out_shape)};
  for (int64_t head = 0; head < sizes.batch * sizes.heads; ++head) {
    const int64_t batch = head / sizes.heads;
    const int64_t kv_head = head % sizes.heads * sizes.kv_heads / sizes.heads;
    const TensorView query = plane_of(q, batch, head % sizes.heads);
    const TensorView key = plane_of(k, batch, kv_head);
    const TensorView value = plane_of(v, batch, kv_head);
    for (int64_t first = 0; first < sizes.rows; first += kBlockRows) {
      const int64_t count = std::min(kBlockRows, sizes.rows - first);
      Wide weights = scores_of(query, key, mask, first, count, options);
      for (int64_t i = 0; i < count; ++i) {
        const auto [largest, sum] = softmax_row(weights.data() + i * sizes.rows, sizes.rows);
        const auto place = static_cast<size_t>(head * sizes.rows + first + i);
        result.maximum.values[place] = largest;
        result.sum.values[place] = sum;
      }
      multiply_into(matrix_of(weights, 0, count, sizes.rows), value,
                    result.output.data() + (head * sizes.rows + first) * sizes.dv, sizes.dv, 1);
    }
  }
  return result;
}

Result<AttentionGradients> attention_gradients(const TensorView& q, const TensorView& k,
                                               const TensorView& v,
                                               const TensorView& output_gradient,
                                               const TensorView& maximum, const TensorView& sum,
                                               const TensorView& output,
                                               const TrainingAttention& options) {
  ASSAY_TRY_STATUS(check_real({&q, &k, &v, &output_gradient, &maximum, &sum, &output}));
  ASSAY_TRY(const Sizes sizes, sizes_of(q, k, v, options));
  const Dims out_shape{sizes.batch, sizes.heads, sizes.rows, sizes.dv};
  const int64_t rows = sizes.batch * sizes.heads * sizes.rows;
  if (!(output_gradient.shape == out_shape) || !(output.shape == out_shape))
    return fail(Errc::Invalid, named_shape("the gradient of the output", output_gradient), ", ",
                named_shape("the output", output), " need ", out_shape);
  if (maximum.element_count() != rows || sum.element_count() != rows)
    return fail(Errc::Invalid, named_shape("maxima", maximum), ", ", named_shape("sums", sum),
                " need one value for each of ", rows, " rows");
  ASSAY_TRY_STATUS(checked_count(k.shape));
  ASSAY_TRY_STATUS(checked_count(Dims{kBlockRows, sizes.rows}));
  ASSAY_TRY(const std::optional<Wide> mask, mask_values(options));
  ASSAY_TRY(const Wide maxima, widen(maximum));
  ASSAY_TRY(const Wide sums, widen(sum));
  ASSAY_TRY(const Wide forward, widen(output));
  ASSAY_TRY(const Wide gradient, widen(output_gradient));
  AttentionGradients result{Wide(q.shape), Wide(k.shape, 0.0), Wide(v.shape, 0.0)};
  const int64_t dk = k.shape[3];
  for (int64_t head = 0; head < sizes.batch * sizes.heads; ++head) {
    const int64_t batch = head / sizes.heads;
    const int64_t kv_head = head % sizes.heads * sizes.kv_heads / sizes.heads;
    const int64_t kv_plane = (batch * sizes.kv_heads + kv_head) * sizes.rows;
    const TensorView query = plane_of(q, batch, head % sizes.heads);
    const TensorView key = plane_of(k, batch, kv_head);
    const TensorView value = plane_of(v, batch, kv_head);
    for (int64_t first = 0; first < sizes.rows; first += kBlockRows) {
      const int64_t count = std::min(kBlockRows, sizes.rows - first);
      const int64_t row0 = head * sizes.rows + first;
      Wide weights = scores_of(query, key, mask, first, count, options);
      const TensorView upstream = matrix_of(gradient, row0 * sizes.dv, count, sizes.dv);
      Wide score_gradient(Dims{count, sizes.rows});
      multiply_into(upstream, transposed(value), score_gradient.data(), sizes.rows, 1);
      for (int64_t i = 0; i < count; ++i) {
        const auto row = static_cast<size_t>(row0 + i);
        const double shift = maxima.values[row] + std::log(sums.values[row]);
        double dot = 0;
        for (int64_t c = 0; c < sizes.dv; ++c) {
          const auto place = row * static_cast<size_t>(sizes.dv) + static_cast<size_t>(c);
          dot += forward.values[place] * gradient.values[place];
        }
        double* p = weights.data() + i * sizes.rows;
        double* ds = score_gradient.data() + i * sizes.rows;
        for (int64_t j = 0; j < sizes.rows; ++j) {
          p[j] = std::exp(p[j] - shift);
          ds[j] = (ds[j] - dot) * p[j] * options.scale;
        }
      }
      const TensorView p = matrix_of(weights, 0, count, sizes.rows);
      const TensorView ds = matrix_of(score_gradient, 0, count, sizes.rows);
      multiply_into(ds, section(key, 1, 0, sizes.d), result.query.data() + row0 * sizes.d, sizes.d,
                    1);
      Wide part(Dims{sizes.rows, sizes.dv});
      multiply_into(transposed(p), upstream, part.data(), sizes.dv, 1);
      add_into(part, result.value.data() + kv_plane * sizes.dv);
      Wide key_part(Dims{sizes.rows, sizes.d});
      multiply_into(transposed(ds), section(query, 0, first, count), key_part.data(), sizes.d, 1);
      for (int64_t j = 0; j < sizes.rows; ++j)
        add_row(result.key.data() + (kv_plane + j) * dk, key_part.data() + j * sizes.d, sizes.d,
                1.0);
    }
  }
  return result;
}

Result<Wide> combine_attention(const TensorView& lse, const TensorView& outputs) {
  ASSAY_TRY_STATUS(check_real({&lse, &outputs}));
  if (outputs.shape.size() != 3 || lse.shape.size() != 2 || lse.shape[0] != outputs.shape[0] ||
      lse.shape[1] != outputs.shape[1])
    return fail(Errc::Invalid, named_shape("lse", lse), " and ", named_shape("outputs", outputs),
                " do not fit: [parts, rows] and [parts, rows, size]");
  const int64_t parts = lse.shape[0];
  const int64_t rows = lse.shape[1];
  const int64_t size = outputs.shape[2];
  ASSAY_TRY(const Wide exponents, widen(lse));
  ASSAY_TRY(const Wide values, widen(outputs));
  ASSAY_TRY_STATUS(checked_count({rows, size}));
  Wide result(Dims{rows, size}, 0.0);
  std::vector<double> weights(static_cast<size_t>(parts));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t part = 0; part < parts; ++part)
      weights[static_cast<size_t>(part)] = exponents.values[static_cast<size_t>(part * rows + row)];
    softmax_row(weights.data(), parts);
    for (int64_t part = 0; part < parts; ++part)
      add_row(result.data() + row * size, values.data() + (part * rows + row) * size, size,
              weights[static_cast<size_t>(part)]);
  }
  return result;
}

}  // namespace assay::reference
