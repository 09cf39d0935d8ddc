// SPDX-License-Identifier: Apache-2.0
#include "kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace atb_host {
namespace {

constexpr std::pair<std::string_view, Fault> kFaultNames[] = {
    {"none", Fault::kNone},
    {"wrong_epsilon", Fault::kWrongEpsilon},
    {"dropped_scale", Fault::kDroppedScale},
    {"rope_off_by_one", Fault::kRopeOffByOne},
    {"missing_mask_row", Fault::kMissingMaskRow},
    {"swapped_heads", Fault::kSwappedHeads},
    {"accumulate_bf16", Fault::kAccumulateBf16},
    {"truncate_rounding", Fault::kTruncateRounding},
    {"one_element", Fault::kOneElement},
    {"stale_cache", Fault::kStaleCache},
    {"overflow", Fault::kOverflow},
};
constexpr float kWrongEpsilon = 1e-4F;
constexpr float kOverflowingFactor = 1e38F;
constexpr float kLargestInt8 = 127.0F;
constexpr float kBf16MaskFactor = -3e38F;

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

// One head of one query row. `key` and `value` give the start of the j-th cached row of this head.
template <typename Key, typename Value>
void attend_row(const float* query, size_t length, size_t head_size, float scale, const float* bias,
                Key key, Value value, float* output) {
  std::vector<float> scores(length);
  float largest = -INFINITY;
  for (size_t j = 0; j < length; ++j) {
    scores[j] = dot(query, key(j), head_size) * scale + (bias != nullptr ? bias[j] : 0.0F);
    largest = std::max(largest, scores[j]);
  }
  float total = 0;
  for (float& score : scores) {
    score = std::exp(score - largest);
    total += score;
  }
  for (size_t i = 0; i < head_size; ++i) {
    float sum = 0;
    for (size_t j = 0; j < length; ++j) sum += scores[j] * value(j)[i];
    output[i] = sum / total;
  }
}

// Rows of [rows, heads * head_size].
void swap_first_heads(std::vector<float>& values, size_t heads, size_t head_size) {
  for (size_t row = 0; heads > 1 && row < values.size(); row += heads * head_size) {
    auto* start = values.data() + row;
    std::swap_ranges(start, start + head_size, start + head_size);
  }
}

}  // namespace

std::optional<Fault> fault_from_name(std::string_view name) {
  for (const auto& [known, fault] : kFaultNames) {
    if (known == name) return fault;
  }
  return std::nullopt;
}

void gather_rows(const Tensor& table, const Tensor& indices, const Tensor& output) {
  const size_t row_bytes = last_dim(table) * element_bytes(table.desc.dtype);
  const auto* positions = indices.data<const int64_t>();
  for (size_t t = 0; t < dim(indices, 0); ++t) {
    std::memcpy(output.memory->data() + t * row_bytes,
                table.memory->data() + static_cast<size_t>(positions[t]) * row_bytes, row_bytes);
  }
}

void rms_norm(const Tensor& x, const Tensor& gamma, float epsilon, const Tensor& output,
              Fault fault) {
  std::vector<float> values = load(x);
  const std::vector<float> weights = load(gamma);
  const size_t width = weights.size();
  if (fault == Fault::kWrongEpsilon) epsilon = kWrongEpsilon;
  for (size_t row = 0; row < values.size(); row += width) {
    const float mean = dot(&values[row], &values[row], width) / static_cast<float>(width);
    const float factor = 1.0F / std::sqrt(mean + epsilon);
    for (size_t i = 0; i < width; ++i) values[row + i] *= factor * weights[i];
  }
  store(output, values);
}

void matmul_transposed(const Tensor& x, const Tensor& weight, const Tensor& output, Fault fault) {
  const size_t depth = last_dim(weight);
  const size_t columns = dim(weight, 0);
  const std::vector<float> left = load(x);
  const std::vector<float> right = load(weight);
  const size_t rows = left.size() / depth;
  std::vector<float> product(rows * columns);
  const auto sum = fault == Fault::kAccumulateBf16 ? dot_in_bf16 : dot;
  for (size_t t = 0; t < rows; ++t) {
    for (size_t n = 0; n < columns; ++n) {
      product[t * columns + n] = sum(&left[t * depth], &right[n * depth], depth);
    }
  }
  if (fault == Fault::kOneElement) product.back() += 0.5F;
  store(output, product,
        fault == Fault::kTruncateRounding ? Rounding::kTowardsZero : Rounding::kNearestEven);
}

void matmul_quantised(const Tensor& x, const Tensor& weight, const Tensor& scales,
                      const Tensor& output) {
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
      row[i] = static_cast<int32_t>(std::lround(left[t * depth + i] / scale));
    }
    for (size_t n = 0; n < columns; ++n) {
      int32_t sum = 0;
      for (size_t i = 0; i < depth; ++i) sum += row[i] * right[n * depth + i];
      product[t * columns + n] = static_cast<float>(sum) * scale * column_scales[n];
    }
  }
  store(output, product);
}

void add(const Tensor& a, const Tensor& b, const Tensor& output) {
  std::vector<float> values = load(a);
  const std::vector<float> others = load(b);
  for (size_t i = 0; i < values.size(); ++i) values[i] += others[i % others.size()];
  store(output, values);
}

void multiply(const Tensor& a, const Tensor& b, const Tensor& output, Fault fault) {
  std::vector<float> values = load(a);
  const std::vector<float> others = load(b);
  for (size_t i = 0; i < values.size(); ++i) values[i] *= others[i];
  if (fault == Fault::kOverflow) {
    for (float& value : values) value = value * kOverflowingFactor * kOverflowingFactor;
  }
  store(output, values);
}

void swish(const Tensor& x, const Tensor& output) {
  std::vector<float> values = load(x);
  for (float& value : values) value = value / (1.0F + std::exp(-value));
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
  for (size_t t = 0; t < tokens; ++t) {
    const size_t angle = fault == Fault::kRopeOffByOne ? std::min(t + 1, tokens - 1) : t;
    const float* c = &cosines[angle * head_size];
    const float* s = &sines[angle * head_size];
    for (size_t head = t * width; head < (t + 1) * width; head += head_size) {
      for (size_t i = 0; i < half; ++i) {
        const float u = values[head + i];
        const float v = values[head + half + i];
        values[head + i] = u * c[i] - v * s[i];
        values[head + half + i] = v * c[half + i] + u * s[half + i];
      }
    }
  }
  store(output, values);
}

void write_cache(const Tensor& tokens, const Tensor& slots, const Tensor& cache) {
  const size_t row_bytes = last_dim(tokens) * dim(tokens, 1) * element_bytes(tokens.desc.dtype);
  const auto* positions = slots.data<const int32_t>();
  for (size_t t = 0; t < dim(slots, 0); ++t) {
    if (positions[t] < 0) continue;  // a token that is not kept
    std::memcpy(cache.memory->data() + static_cast<size_t>(positions[t]) * row_bytes,
                tokens.memory->data() + t * row_bytes, row_bytes);
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
  const auto heads = static_cast<size_t>(shape.heads);
  const auto kv_heads = static_cast<size_t>(shape.kv_heads);
  const size_t head_size = last_dim(q) / heads;
  const float scale = fault == Fault::kDroppedScale ? 1.0F : shape.scale;
  std::vector<float> result(queries.size());
  for (size_t t = 0; t < tokens; ++t) {
    for (size_t h = 0; h < heads; ++h) {
      const size_t kv_head = h * kv_heads / heads;
      const auto row_of = [&](const std::vector<float>& all) {
        return [&, kv_head](size_t j) { return &all[(j * kv_heads + kv_head) * head_size]; };
      };
      const size_t at = (t * heads + h) * head_size;
      attend_row(&queries[at], tokens, head_size, scale, &bias[t * tokens], row_of(keys),
                 row_of(values), &result[at]);
    }
  }
  if (fault == Fault::kSwappedHeads) swap_first_heads(result, heads, head_size);
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
    const size_t seen = fault == Fault::kStaleCache && length > 1 ? length - 1 : length;
    for (size_t h = 0; h < heads; ++h) {
      const size_t kv_head = h * kv_heads / heads;
      const auto row_of = [&](const std::vector<float>& cache) {
        return [&, kv_head](size_t j) {
          const size_t row =
              static_cast<size_t>(table[j / block_size]) * block_size + j % block_size;
          return &cache[(row * kv_heads + kv_head) * head_size];
        };
      };
      const size_t at = (b * heads + h) * head_size;
      attend_row(&queries[at], seen, head_size, scale, nullptr, row_of(keys), row_of(values),
                 &result[at]);
    }
  }
  if (fault == Fault::kSwappedHeads) swap_first_heads(result, heads, head_size);
  store(output, result);
}

void split_columns(const Tensor& x, const std::vector<Tensor>& outputs) {
  const size_t bytes = element_bytes(x.desc.dtype);
  const std::byte* in = x.memory->data();
  for (size_t row = 0; row < dim(x, 0); ++row) {
    for (const Tensor& output : outputs) {
      const size_t width = last_dim(output) * bytes;
      std::memcpy(output.memory->data() + row * width, in, width);
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
