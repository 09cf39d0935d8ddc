// SPDX-License-Identifier: Apache-2.0
// view -> layout (which bytes, in which order) -> blocks -> chunks of blocks -> one result.
//
//   element   0      8192   16384                       the cuts depend on the element count alone,
//             | block | block | block | ... | block |    so threads cannot change the result
//             |---- chunk 0 ----|---- chunk 1 ... ---|   at most 256 chunks: partial results fit on the stack
#include "stats/tensor_stats.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "stats/block_stats.hpp"
#include "tensor/convert.hpp"

namespace assay::stats {
namespace {

constexpr int64_t kGatherBytes = 64 * 1024;  // rows of a scattered tensor are collected here
constexpr int64_t kBlockElements = 8192;     // of up to 8 bytes each: one gather buffer
// one-byte types, whose kernel has a fixed cost per block
constexpr int64_t kByteBlockElements = 65536;
constexpr int64_t kValueBlockElements = 4096;  // types read as doubles, two per element
constexpr int64_t kMaxChunks = 256;
static_assert(kBlockElements % kSketchGroup == 0 && kByteBlockElements % kSketchGroup == 0 &&
              kValueBlockElements % kSketchGroup == 0);
constexpr int64_t kMinParallelBytes =
    128 * 1024;                        // docs/metrics.md: below it a thread's wake-up costs more
constexpr size_t kMaxSortedRank = 64;  // torch's limit; beyond it a view is read in C order

/// Where a tensor's elements are, each element of storage once.
struct Layout {
  const std::byte* dense = nullptr;     // start of `count` consecutive elements, or null
  std::optional<TensorView> scattered;  // set when not dense: rows to gather, smallest stride last
  int64_t count = 0;                    // distinct elements
  int64_t factor = 1;                   // how often each occurs (expanded dimensions)
  bool row_major = true;                // read in the order of the view
};

/// Drops size-1 dimensions, takes stride-0 dimensions out as a factor, sorts by stride and joins
/// what is consecutive: any transpose of a matrix is dense in memory order.
Layout analyse_layout(const TensorView& view) {
  struct Axis {
    int64_t size;
    int64_t stride;
  };
  Layout layout;
  const int64_t bits = info(view.dtype).element_bits;
  layout.count = 1;
  for (const int64_t size : view.shape) layout.count *= size;
  if (layout.count == 0) return layout;
  const size_t rank = view.shape.size();
  if (rank > kMaxSortedRank || bits < 8) {
    layout.scattered = view;
    return layout;
  }
  std::array<Axis, kMaxSortedRank> axes;
  size_t axis_count = 0;
  int64_t offset = view.offset_elements;
  for (size_t i = 0; i < rank; ++i) {
    Axis axis{view.shape[i], view.strides[i]};
    if (axis.size == 1) continue;
    if (axis.stride == 0) {
      layout.factor *= axis.size;
      layout.count /= axis.size;
      layout.row_major = false;
      continue;
    }
    if (axis.stride < 0) {
      offset += (axis.size - 1) * axis.stride;
      axis.stride = -axis.stride;
      layout.row_major = false;
    }
    // Insertion sort, largest stride first: C order stays as it is.
    size_t at = axis_count++;
    for (; at > 0 && axes[at - 1].stride < axis.stride; --at) {
      axes[at] = axes[at - 1];
      layout.row_major = false;
    }
    axes[at] = axis;
  }
  size_t joined = 0;
  for (size_t i = 0; i < axis_count; ++i) {
    if (joined != 0 && axes[joined - 1].stride == axes[i].size * axes[i].stride) {
      axes[joined - 1] = {axes[joined - 1].size * axes[i].size, axes[i].stride};
    } else {
      axes[joined++] = axes[i];
    }
  }
  if (joined == 0 || (joined == 1 && axes[0].stride == 1)) {
    layout.dense = view.storage.data() + offset * (bits / 8);
    return layout;
  }
  TensorView& rows = layout.scattered.emplace();
  rows.dtype = view.dtype;
  rows.storage = view.storage;
  rows.offset_elements = offset;
  rows.shape.resize(joined);
  rows.strides.resize(joined);
  for (size_t i = 0; i < joined; ++i) {
    rows.shape[i] = axes[i].size;
    rows.strides[i] = axes[i].stride;
  }
  return layout;
}

/// One computation over one layout, shared by the threads that work on it.
struct Job {
  const Layout* layout = nullptr;
  /// Null: elements are read as doubles, complex ones as their absolute value.
  BlockKernel kernel = nullptr;
  DType dtype = DType::Float32;
  double scale = 1;  // Float64 and types read as doubles only
  int64_t element_bytes = 1;
  int64_t block_elements = 0;
  int64_t chunk_elements = 0;  // a multiple of block_elements
  BlockStats* partials = nullptr;

  [[nodiscard]] BlockStats block(int64_t first, int64_t count) const {
    if (kernel == nullptr) return value_block(first, count);
    const uint64_t group = static_cast<uint64_t>(first / kSketchGroup);
    if (layout->dense != nullptr)
      return run_kernel(layout->dense + first * element_bytes, count, group);
    alignas(64) std::byte buffer[kGatherBytes];
    gather_bytes(*layout->scattered, first, count,
                 {buffer, static_cast<size_t>(count * element_bytes)});
    return run_kernel(buffer, count, group);
  }
  [[nodiscard]] BlockStats chunk(int64_t index) const {
    const int64_t begin = index * chunk_elements;
    const int64_t end = std::min(begin + chunk_elements, layout->count);
    BlockStats total = block(begin, std::min(block_elements, end - begin));
    for (int64_t at = begin + block_elements; at < end; at += block_elements) {
      total.merge(block(at, std::min(block_elements, end - at)));
    }
    return total;
  }

 private:
  [[nodiscard]] BlockStats run_kernel(const std::byte* elements, int64_t count,
                                      uint64_t group) const {
    return scale == 1.0 ? kernel(elements, count, group)
                        : scaled_float64_block(elements, count, group, scale);
  }
  [[nodiscard]] BlockStats value_block(int64_t first, int64_t count) const {
    alignas(64) double values[2 * kValueBlockElements];
    const auto value_count = static_cast<size_t>(count * values_per_element(dtype));
    if (layout->dense != nullptr) {
      TensorView dense;
      dense.dtype = dtype;
      dense.storage = {layout->dense, static_cast<size_t>(layout->count * element_bytes)};
      dense.shape = Dims{layout->count};
      dense.strides = Dims{1};
      read_values(dense, first, count, {values, value_count});
    } else {
      read_values(*layout->scattered, first, count, {values, value_count});
    }
    if (is_complex(dtype)) {
      for (int64_t i = 0; i < count; ++i) values[i] = std::hypot(values[2 * i], values[2 * i + 1]);
    }
    return scaled_float64_block(reinterpret_cast<const std::byte*>(values), count,
                                static_cast<uint64_t>(first / kSketchGroup), scale);
  }
};

void run_chunk(void* data, size_t index) {
  auto* job = static_cast<Job*>(data);
  job->partials[index] = job->chunk(static_cast<int64_t>(index));
}

BlockStats run_job(Job& job, BlockRunner run_blocks) {
  const int64_t count = job.layout->count;
  const int64_t block_count = (count + job.block_elements - 1) / job.block_elements;
  const int64_t blocks_per_chunk = (block_count + kMaxChunks - 1) / kMaxChunks;
  job.chunk_elements = blocks_per_chunk * job.block_elements;
  const int64_t chunk_count = (count + job.chunk_elements - 1) / job.chunk_elements;
  if (run_blocks == nullptr || chunk_count == 1 || count * job.element_bytes < kMinParallelBytes) {
    BlockStats total = job.chunk(0);
    for (int64_t i = 1; i < chunk_count; ++i) total.merge(job.chunk(i));
    return total;
  }
  std::array<BlockStats, kMaxChunks> partials;
  job.partials = partials.data();
  run_blocks(run_chunk, &job, static_cast<size_t>(chunk_count));
  BlockStats total = partials[0];
  for (int64_t i = 1; i < chunk_count; ++i) total.merge(partials[static_cast<size_t>(i)]);
  return total;
}

/// Sums of doubles can leave the range of a double although the mean and the norm do not: then a
/// power of two brings the largest value near 1. 1 when no scaling is needed.
double needed_scale(const BlockStats& stats) {
  if (!(stats.min <= stats.max)) return 1;
  const double largest = std::max(std::fabs(stats.min), std::fabs(stats.max));
  // 1e-140 squared is 1e-280: what underflows beside it is below the last bit of the sum.
  const bool underflows = largest != 0 && largest < 1e-140;
  if (!underflows && std::isfinite(stats.sum_of_squares) && std::isfinite(stats.sum)) return 1;
  return std::ldexp(1.0, std::clamp(-std::ilogb(largest), -1000, 1000));
}

/// Leaves it out when a sum is no float32 number.
void set_sketch(const BlockStats& stats, double scale, TensorStats* out) {
  Sketch& sketch = out->sketch.emplace();
  const double factor = 1 / scale;  // a power of two
  double largest = 0;
  for (size_t i = 0; i < kSketchBuckets; ++i) {
    const double sum = stats.sketch[i] * factor;
    const double size = std::fabs(sum);
    largest = size > largest ? size : largest;
    sketch[i] = static_cast<float>(sum + 0.0);  // no -0: one text for equal sketches
  }
  if (!(largest <= static_cast<double>(std::numeric_limits<float>::max()))) out->sketch.reset();
}

TensorStats finish(const BlockStats& stats, int64_t count, int64_t factor, double scale) {
  TensorStats out;
  out.count = count * factor;
  out.nan_count = stats.nan_count * factor;
  out.positive_inf_count = stats.positive_inf_count * factor;
  out.negative_inf_count = stats.negative_inf_count * factor;
  const int64_t finite = out.finite_count();
  if (finite == 0) return out;
  out.min = stats.min;
  out.max = stats.max;
  out.mean = stats.sum / static_cast<double>(finite / factor) / scale;
  out.l2_norm = std::sqrt(stats.sum_of_squares * static_cast<double>(factor)) / scale;
  return out;
}

/// Applies torch's lazy negation to finished statistics.
void negate(TensorStats* stats) {
  const double min = stats->min;
  stats->min = -stats->max;
  stats->max = -min;
  stats->mean = -stats->mean;
  std::swap(stats->positive_inf_count, stats->negative_inf_count);
  if (stats->sketch)
    for (float& sum : *stats->sketch) sum = 0.0f - sum;
}

}  // namespace

TensorStats compute_stats(const TensorView& view) { return compute_stats(view, nullptr); }

TensorStats compute_stats(const TensorView& view, BlockRunner run_blocks) {
  const DTypeInfo& type = info(view.dtype);
  if (type.kind == DTypeKind::Bits) return {};
  const Layout layout = analyse_layout(view);
  if (layout.count == 0) return {};
  Job job;
  job.layout = &layout;
  job.kernel = block_kernel(view.dtype);
  job.dtype = view.dtype;
  job.element_bytes = std::max(1, type.element_bits / 8);
  job.block_elements = block_elements(view.dtype);
  BlockStats stats = run_job(job, run_blocks);
  if (view.dtype == DType::Float64 || job.kernel == nullptr) {
    job.scale = needed_scale(stats);
    if (job.scale != 1) stats = run_job(job, run_blocks);
  }
  TensorStats out = finish(stats, layout.count * type.element_values, layout.factor, job.scale);
  if (layout.row_major && has_sketch(view.dtype) && out.finite_count() != 0)
    set_sketch(stats, job.scale, &out);
  // Types read as doubles come with their lazy bits applied.
  if (view.negative && job.kernel != nullptr) negate(&out);
  return out;
}

int64_t block_elements(DType dtype) {
  if (block_kernel(dtype) == nullptr) return kValueBlockElements;
  return info(dtype).element_bits <= 8 ? kByteBlockElements : kBlockElements;
}

TensorStats statistics_of_sums(const BlockStats& sums, DType dtype, int64_t count, int64_t times,
                               bool row_major) {
  TensorStats out = finish(sums, count * info(dtype).element_values, times, 1);
  if (row_major && has_sketch(dtype) && out.finite_count() != 0) set_sketch(sums, 1, &out);
  return out;
}

TensorStats TensorStats::with_non_finite() const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  TensorStats out = *this;
  if (nan_count != 0) {
    out.min = out.max = out.mean = out.l2_norm = NAN;
    return out;
  }
  if (!has_non_finite()) return out;
  // Without finite values one infinity is both the smallest and the largest value.
  if (negative_inf_count != 0)
    out.min = -kInfinity;
  else if (finite_count() == 0)
    out.min = kInfinity;
  if (positive_inf_count != 0)
    out.max = kInfinity;
  else if (finite_count() == 0)
    out.max = -kInfinity;
  if (positive_inf_count != 0 && negative_inf_count != 0)
    out.mean = NAN;
  else
    out.mean = positive_inf_count != 0 ? kInfinity : -kInfinity;
  out.l2_norm = kInfinity;
  return out;
}

TensorStats compute_stats_reference(const TensorView& view) {
  TensorStats out;
  const DTypeInfo& type = info(view.dtype);
  if (type.kind == DTypeKind::Bits) return out;
  const int64_t elements = view.element_count();
  std::vector<double> values(static_cast<size_t>(elements * values_per_element(view.dtype)));
  read_values(view, 0, elements, values);
  if (is_complex(view.dtype)) {
    for (size_t i = 0; i < values.size() / 2; ++i) {
      values[i] = std::hypot(values[2 * i], values[2 * i + 1]);
    }
    values.resize(values.size() / 2);
  }
  const bool sketched = analyse_layout(view).row_major && has_sketch(view.dtype);
  // Long double: 64 bits of fraction and a range that no sum of squares of doubles leaves.
  long double sum = 0;
  long double sum_of_squares = 0;
  std::array<long double, kSketchBuckets> sketch{};
  for (size_t i = 0; i < values.size(); ++i) {
    const double value = values[i];
    ++out.count;
    if (std::isnan(value)) {
      ++out.nan_count;
    } else if (std::isinf(value)) {
      ++(value > 0 ? out.positive_inf_count : out.negative_inf_count);
    } else {
      out.min = std::isnan(out.min) || value < out.min ? value : out.min;
      out.max = std::isnan(out.max) || value > out.max ? value : out.max;
      sum += static_cast<long double>(value);
      sum_of_squares += static_cast<long double>(value) * static_cast<long double>(value);
      const size_t bucket = i % kSketchBuckets;
      const bool against = ((sketch_signs(i / kSketchGroup) >> bucket) & 1u) != 0;
      const bool is_second_sixteen = i % kSketchGroup / kSketchBuckets == 1;
      sketch[bucket] += static_cast<long double>(against != is_second_sixteen ? -value : value);
    }
  }
  if (out.finite_count() != 0) {
    out.mean = static_cast<double>(sum / static_cast<long double>(out.finite_count()));
    out.l2_norm = static_cast<double>(std::sqrt(sum_of_squares));
    if (sketched) {
      out.sketch.emplace();
      for (size_t i = 0; i < kSketchBuckets; ++i) {
        if (std::fabs(sketch[i]) > static_cast<long double>(std::numeric_limits<float>::max())) {
          out.sketch.reset();
          break;
        }
        (*out.sketch)[i] = static_cast<float>(sketch[i]);
      }
    }
  }
  return out;
}

}  // namespace assay::stats
