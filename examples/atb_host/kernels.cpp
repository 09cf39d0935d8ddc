// SPDX-License-Identifier: Apache-2.0
#include "kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace atb_host {
namespace {

constexpr float kWrongEpsilon = 1e-4F;
constexpr float kOverflowingFactor = 1e38F;
constexpr float kLargestInt8 = 127.0F;
constexpr float kSqrtHalf = 0.70710678F;
constexpr float kBf16MaskFactor = -3e38F;
constexpr size_t kTile = 16;  // rows and columns that a matrix unit takes at once

size_t dim(const Tensor& tensor, size_t index) {
  return static_cast<size_t>(tensor.desc.dims[index]);
}

size_t last_dim(const Tensor& tensor) { return static_cast<size_t>(tensor.desc.dims.back()); }

float dot(const float* a, const float* b, size_t count) {
  float sum = 0;
  for (size_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

float dot_in_bf16(const float* a, const float* b, size_t count) {
  float sum = 0;
  for (size_t i = 0; i < count; ++i) {
    sum = widen(DType::kBfloat16, narrow(DType::kBfloat16, sum + a[i] * b[i]));
  }
  return sum;
}

// Of weight [columns, depth].
void transpose_first_tile(std::vector<float>& weight, size_t columns, size_t depth) {
  const size_t side = std::min({kTile, columns, depth});
  for (size_t i = 0; i < side; ++i) {
    for (size_t j = 0; j < i; ++j) std::swap(weight[i * depth + j], weight[j * depth + i]);
  }
}

// One head of one query row. `key` and `value` give the start of the j-th cached row of this head.
template <typename Key, typename Value>
void attend_row(const float* query, size_t length, size_t head_size, float scale, const float* bias,
                Key key, Value value, float* output, Fault fault) {
  std::vector<float> scores(length);
  std::vector<float> offsets(
      length);  // of exp(); in a kernel that goes block by block the maximum so far
  float largest = -INFINITY;
  for (size_t j = 0; j < length; ++j) {
    scores[j] = dot(query, key(j), head_size) * scale + (bias != nullptr ? bias[j] : 0.0F);
    largest = std::max(largest, scores[j]);
    offsets[j] = largest;
  }
  if (fault != Fault::kNoRescale) std::fill(offsets.begin(), offsets.end(), largest);
  float total = 0;
  for (size_t j = 0; j < length; ++j) {
    scores[j] = std::exp(scores[j] - offsets[j]);
    total += scores[j];
  }
  for (size_t i = 0; i < head_size; ++i) {
    float sum = 0;
    for (size_t j = 0; j < length; ++j) sum += scores[j] * value(j)[i];
    output[i] = sum / total;
  }
}

size_t kv_head_of(size_t head, size_t heads, size_t kv_heads, Fault fault) {
  return fault == Fault::kWrongGroup ? head % kv_heads : head * kv_heads / heads;
}

// Rows of [rows, heads * head_size].
void misplace_heads(std::vector<float>& values, size_t heads, size_t head_size, Fault fault) {
  const auto swap_heads = [&](float* row, size_t a, size_t b) {
    std::swap_ranges(row + a * head_size, row + (a + 1) * head_size, row + b * head_size);
  };
  for (size_t at = 0; heads > 1 && at < values.size(); at += heads * head_size) {
    if (fault == Fault::kSwappedHeads) swap_heads(&values[at], 0, 1);
    for (size_t h = 0; fault == Fault::kHeadOrderReversed && h < heads / 2; ++h) {
      swap_heads(&values[at], h, heads - 1 - h);
    }
  }
}

}  // namespace

void gather_rows(const Tensor& table, const Tensor& indices, const Tensor& output, Fault fault) {
  const size_t row_bytes = last_dim(table) * element_bytes(table.desc.dtype);
  const auto* positions = indices.data<const int64_t>();
  for (size_t t = 0; t < dim(indices, 0); ++t) {
    auto row = static_cast<size_t>(positions[t]);
    if (fault == Fault::kGatherOffByOne) row = (row + 1) % dim(table, 0);
    std::memcpy(output.memory->data() + t * row_bytes, table.memory->data() + row * row_bytes,
                row_bytes);
  }
}

void rms_norm(const Tensor& x, const Tensor& gamma, float epsilon, const Tensor& output,
              Fault fault) {
  std::vector<float> values = load(x);
  std::vector<float> weights = load(gamma);
  const size_t width = weights.size();
  const size_t counted = fault == Fault::kNormOfHalfRow ? width / 2 : width;
  if (fault == Fault::kWrongEpsilon) epsilon = kWrongEpsilon;
  if (fault == Fault::kGammaPlusOne) {
    for (float& weight : weights) weight += 1.0F;
  }
  for (size_t row = 0; row < values.size(); row += width) {
    const float mean = dot(&values[row], &values[row], counted) / static_cast<float>(counted);
    const float factor = 1.0F / std::sqrt(mean + epsilon);
    for (size_t i = 0; i < width; ++i) values[row + i] *= factor * weights[i];
  }
  store(output, values);
}

void matmul_transposed(const Tensor& x, const Tensor& weight, const Tensor& output, Fault fault) {
  const size_t depth = last_dim(weight);
  const size_t columns = dim(weight, 0);
  const std::vector<float> left = load(x);
  std::vector<float> right = load(weight);
  const size_t rows = left.size() / depth;
  std::vector<float> product(rows * columns);
  const auto sum = fault == Fault::kAccumulateBf16 ? dot_in_bf16 : dot;
  const size_t terms = fault == Fault::kMissingTail && depth > kTile ? depth - kTile : depth;
  if (fault == Fault::kTransposedTile) transpose_first_tile(right, columns, depth);
  for (size_t t = 0; t < rows; ++t) {
    for (size_t n = 0; n < columns; ++n) {
      product[t * columns + n] = sum(&left[t * depth], &right[n * depth], terms);
    }
  }
  if (fault == Fault::kOneElement) product.back() += 0.5F;
  store(output, product,
        fault == Fault::kTruncateRounding ? Rounding::kTowardsZero : Rounding::kNearestEven);
}

void matmul_quantised(const Tensor& x, const Tensor& weight, const Tensor& scales,
                      const Tensor& output, Fault fault) {
  const size_t depth = last_dim(weight);
  const size_t columns = dim(weight, 0);
  const std::vector<float> left = load(x);
  const auto* right = weight.data<const int8_t>();
  const auto* column_scales = scales.data<const float>();
  const size_t rows = left.size() / depth;
  std::vector<float> product(rows * columns);
  std::vector<int32_t> row(depth);
  for (size_t t = 0; t < rows; ++t) {
    float largest = 0;
    for (size_t i = 0; i < depth; ++i) largest = std::max(largest, std::fabs(left[t * depth + i]));
    const float scale = largest > 0 ? largest / kLargestInt8 : 1.0F;
    for (size_t i = 0; i < depth; ++i) {
      row[i] = static_cast<int32_t>(std::lrint(left[t * depth + i] / scale));
    }
    for (size_t n = 0; n < columns; ++n) {
      int32_t sum = 0;
      for (size_t i = 0; i < depth; ++i) sum += row[i] * right[n * depth + i];
      const size_t column = fault == Fault::kScaleOffByOne ? (n + 1) % columns : n;
      product[t * columns + n] = static_cast<float>(sum) * scale * column_scales[column];
    }
  }
  store(output, product);
}

void add(const Tensor& a, const Tensor& b, const Tensor& output, Fault fault) {
  std::vector<float> values = load(a);
  const std::vector<float> others = load(b);
  int times = fault == Fault::kBiasTwice ? 2 : 1;
  if (fault == Fault::kDroppedBias || fault == Fault::kResidualDropped) times = 0;
  for (; times > 0; --times) {
    for (size_t i = 0; i < values.size(); ++i) values[i] += others[i % others.size()];
  }
  store(output, values);
}

void multiply(const Tensor& a, const Tensor& b, const Tensor& output, Fault fault) {
  std::vector<float> values = load(a);
  const std::vector<float> others = load(b);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = fault == Fault::kMulAsAdd ? values[i] + others[i] : values[i] * others[i];
  }
  if (fault == Fault::kOverflow) {
    for (float& value : values) value = value * kOverflowingFactor * kOverflowingFactor;
  }
  store(output, values);
}

void swish(const Tensor& x, const Tensor& output, Fault fault) {
  std::vector<float> values = load(x);
  for (float& value : values) {
    const float gate = fault == Fault::kSwishAsGelu ? 0.5F * (1.0F + std::erf(value * kSqrtHalf))
                                                    : 1.0F / (1.0F + std::exp(-value));
    value = fault == Fault::kSwishAsSigmoid ? gate : value * gate;
  }
  store(output, values);
}

void rotate(const Tensor& x, const Tensor& cos, const Tensor& sin, const Tensor& output,
            Fault fault) {
  std::vector<float> values = load(x);
  const std::vector<float> cosines = load(cos);
  const std::vector<float> sines = load(sin);
  const size_t tokens = dim(cos, 0);
  const size_t head_size = last_dim(cos);
  const size_t half = head_size / 2;
  const size_t width = last_dim(x);
  const bool interleaved = fault == Fault::kRopeInterleaved;
  const float sign = fault == Fault::kRopeSign ? -1.0F : 1.0F;
  for (size_t t = 0; t < tokens; ++t) {
    const size_t angle = fault == Fault::kRopeOffByOne ? std::min(t + 1, tokens - 1) : t;
    const float* c = &cosines[angle * head_size];
    const float* s = &sines[angle * head_size];
    for (size_t head = t * width; head < (t + 1) * width; head += head_size) {
      for (size_t i = 0; i < half; ++i) {
        float& first = values[head + (interleaved ? 2 * i : i)];
        float& second = values[head + (interleaved ? 2 * i + 1 : half + i)];
        const float u = first;
        const float v = second;
        first = u * c[i] - v * s[i] * sign;
        second = v * c[half + i] + u * s[half + i] * sign;
      }
    }
  }
  store(output, values);
}

void write_cache(const Tensor& tokens, const Tensor& slots, const Tensor& cache, Fault fault) {
  const size_t row_bytes = last_dim(tokens) * dim(tokens, 1) * element_bytes(tokens.desc.dtype);
  const auto* positions = slots.data<const int32_t>();
  for (size_t t = 0; t < dim(slots, 0); ++t) {
    if (positions[t] < 0) continue;  // a token that is not kept
    auto slot = static_cast<size_t>(positions[t]);
    if (fault == Fault::kWrongSlot) slot = (slot + 1) % (dim(cache, 0) * dim(cache, 1));
    std::memcpy(cache.memory->data() + slot * row_bytes, tokens.memory->data() + t * row_bytes,
                row_bytes);
  }
}

void attend_prompt(const AttentionShape& shape, const Tensor& q, const Tensor& k, const Tensor& v,
                   const Tensor& mask, const Tensor& output, Fault fault) {
  const std::vector<float> queries = load(q);
  const std::vector<float> keys = load(k);
  const std::vector<float> values = load(v);
  std::vector<float> bias = load(mask);
  if (mask.desc.dtype == DType::kBfloat16) {
    for (float& value : bias) value *= kBf16MaskFactor;
  }
  const size_t tokens = dim(mask, 0);
  if (fault == Fault::kMissingMaskRow) std::fill_n(bias.begin(), tokens, 0.0F);
  for (size_t t = 0; fault == Fault::kMaskOffByOne && t + 1 < tokens; ++t) {
    bias[t * tokens + t + 1] = 0.0F;
  }
  const auto heads = static_cast<size_t>(shape.heads);
  const auto kv_heads = static_cast<size_t>(shape.kv_heads);
  const size_t head_size = last_dim(q) / heads;
  const float scale = fault == Fault::kDroppedScale ? 1.0F : shape.scale;
  std::vector<float> result(queries.size());
  for (size_t t = 0; t < tokens; ++t) {
    for (size_t h = 0; h < heads; ++h) {
      const size_t kv_head = kv_head_of(h, heads, kv_heads, fault);
      const auto row_of = [&](const std::vector<float>& all) {
        return [&, kv_head](size_t j) { return &all[(j * kv_heads + kv_head) * head_size]; };
      };
      const size_t at = (t * heads + h) * head_size;
      attend_row(&queries[at], tokens, head_size, scale, &bias[t * tokens], row_of(keys),
                 row_of(values), &result[at], fault);
    }
  }
  misplace_heads(result, heads, head_size, fault);
  store(output, result);
}

void attend_cache(const AttentionShape& shape, const Tensor& q, const Tensor& key_cache,
                  const Tensor& value_cache, const Tensor& block_tables, const Tensor& context_lens,
                  const Tensor& output, Fault fault) {
  const std::vector<float> queries = load(q);
  const std::vector<float> keys = load(key_cache);
  const std::vector<float> values = load(value_cache);
  const auto heads = static_cast<size_t>(shape.heads);
  const auto kv_heads = static_cast<size_t>(shape.kv_heads);
  const size_t head_size = last_dim(q);
  const size_t block_size = dim(key_cache, 1);
  const float scale = fault == Fault::kDroppedScale ? 1.0F : shape.scale;
  std::vector<float> result(queries.size());
  for (size_t b = 0; b < dim(q, 0); ++b) {
    const int32_t* table = block_tables.data<const int32_t>() + b * last_dim(block_tables);
    const auto length = static_cast<size_t>(context_lens.data<const int32_t>()[b]);
    size_t seen = length;
    if (fault == Fault::kStaleCache && length > 1) --seen;
    if (fault == Fault::kContextOneMore)
      seen = std::min(length + 1, last_dim(block_tables) * block_size);
    for (size_t h = 0; h < heads; ++h) {
      const size_t kv_head = kv_head_of(h, heads, kv_heads, fault);
      const auto row_of = [&](const std::vector<float>& cache) {
        return [&, kv_head](size_t j) {
          const size_t row =
              static_cast<size_t>(table[j / block_size]) * block_size + j % block_size;
          return &cache[(row * kv_heads + kv_head) * head_size];
        };
      };
      const size_t at = (b * heads + h) * head_size;
      attend_row(&queries[at], seen, head_size, scale, nullptr, row_of(keys), row_of(values),
                 &result[at], fault);
    }
  }
  misplace_heads(result, heads, head_size, fault);
  store(output, result);
}

void split_columns(const Tensor& x, const std::vector<Tensor>& outputs, Fault fault) {
  const size_t bytes = element_bytes(x.desc.dtype);
  const std::byte* in = x.memory->data();
  for (size_t row = 0; row < dim(x, 0); ++row) {
    for (size_t i = 0; i < outputs.size(); ++i) {
      const size_t width = last_dim(outputs[i]) * bytes;
      const size_t early = fault == Fault::kSplitOffset && i == 1 ? bytes : 0;
      std::memcpy(outputs[i].memory->data() + row * width, in - early, width);
      in += width;
    }
  }
}

void top_one(const Tensor& x, const Tensor& values, const Tensor& positions) {
  const std::vector<float> all = load(x);
  const size_t width = last_dim(x);
  std::vector<float> best;
  auto* position = positions.data<int32_t>();
  for (auto row = all.begin(); row != all.end(); row += static_cast<int64_t>(width)) {
    const auto found = std::max_element(row, row + static_cast<int64_t>(width));
    best.push_back(*found);
    *position++ = static_cast<int32_t>(found - row);
  }
  store(values, best);
}

void last_row(const Tensor& x, const Tensor& output) {
  const size_t bytes = size_bytes(output.desc);
  std::memcpy(output.memory->data(), x.memory->data() + x.memory->size() - bytes, bytes);
}

}  // namespace atb_host
