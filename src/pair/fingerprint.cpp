// SPDX-License-Identifier: Apache-2.0
// One vector kernel takes blocks of 2048 values, from the tensor's memory or widened into a buffer.
// Records are mapped some at a time and read in chunks by all threads, which merge in their order.
#include "pair/fingerprint.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/simd.hpp"
#include "base/thread_pool.hpp"
#include "pair/operand.hpp"
#include "run/strided_payload.hpp"
#include "tensor/convert.hpp"
#include "tensor/widen.hpp"

namespace assay::pair {
namespace {

using simd::add_lanes;
using simd::f64x8;
using simd::load;
using simd::store;
using simd::u64x8;

constexpr int64_t kBlock = 2048;  // values for which one 64-bit hash a sketch entry lasts
constexpr int64_t kChunk = int64_t{1} << 20;  // values of one work item
constexpr size_t kBatchRecords = 256;         // mapped at the same time
constexpr uint64_t kSignBit = 0x8000000000000000u;
constexpr double kHuge = 1e140;  // beyond, squares would overflow; counted as infinite
static_assert(kBlock == 64 * kSketchSize);

/// Bit t from the top is the sign of value 2048 block + 32 t + entry. SplitMix64 of the counter.
uint64_t sign_bits(uint64_t block, uint64_t entry) {
  uint64_t value = (block * kSketchSize + entry + 1) * 0x9E3779B97F4A7C15u;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

// Halving the bits of a double halves its exponent and is within 6 % of the square root:
// continuous, monotonic, the same on every machine, and two integer instructions instead of thirty
// cycles.
constexpr uint64_t kRootBias = 0x1FF8000000000000u;
double root_of(double value) {
  const auto bits = std::bit_cast<uint64_t>(value);
  return std::bit_cast<double>((((bits & ~kSignBit) >> 1) + kRootBias) | (bits & kSignBit));
}

/// What is added up over values; merged in index order.
struct Part {
  double sum = 0;
  double squares = 0;
  double magnitudes = 0;
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  int64_t non_finite_count = 0;
  alignas(64) Sketch sketch{};
  alignas(64) Sketch root_sketch{};

  void merge(const Part& next) {
    sum += next.sum;
    squares += next.squares;
    magnitudes += next.magnitudes;
    min = std::min(min, next.min);
    max = std::max(max, next.max);
    non_finite_count += next.non_finite_count;
    for (size_t k = 0; k < kSketchSize; ++k) {
      sketch[k] += next.sketch[k];
      root_sketch[k] += next.root_sketch[k];
    }
  }
};

// ---- 32 consecutive values as four vectors of eight ----

struct LoadFloat64 {
  static constexpr int64_t kSize = 8;
  [[gnu::always_inline]] static void load32(const std::byte* source, f64x8* out) {
    for (int j = 0; j < 4; ++j) out[j] = load<f64x8>(source + 64 * j);
  }
};

template <typename Elements>
struct LoadFloats {
  static constexpr int64_t kSize = Elements::kBytes;
  [[gnu::always_inline]] static void load32(const std::byte* source, f64x8* out) {
    for (int j = 0; j < 4; ++j) out[j] = Elements::eight(source + 8 * kSize * j);
  }
};
using LoadFloat32 = LoadFloats<simd::Float32Elements>;
using LoadBFloat16 = LoadFloats<simd::BFloat16Elements>;
using LoadFloat16 = LoadFloats<simd::Float16Elements>;

/// One block of 2048 values, all finite for a result that means something. Every loader gives the
/// same bits for the same values.
template <typename Load>
[[gnu::always_inline]] inline void add_block_by(const std::byte* source, uint64_t block,
                                                Part* out) {
  alignas(64) uint64_t signs[kSketchSize];
  for (uint64_t k = 0; k < kSketchSize; ++k) signs[k] = sign_bits(block, k);
  u64x8 hashes[4];
  f64x8 sketch[4] = {};
  f64x8 roots[4] = {};
  f64x8 sums[2] = {};
  f64x8 squares[2] = {};
  f64x8 magnitudes[2] = {};
  f64x8 low = f64x8{} + std::numeric_limits<double>::infinity();
  f64x8 high = -low;
  for (int j = 0; j < 4; ++j) hashes[j] = load<u64x8>(signs + 8 * j);
  for (int64_t i = 0; i < kBlock; i += kSketchSize) {
    f64x8 values[4];
    Load::load32(source + i * Load::kSize, values);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const f64x8 v = values[j];
      const u64x8 bits = (u64x8)v;
      const u64x8 sign = hashes[j] & kSignBit;
      hashes[j] += hashes[j];
      const u64x8 root = ((bits & ~kSignBit) >> 1) + kRootBias;
      sums[j % 2] += v;
      squares[j % 2] += v * v;
      low = v < low ? v : low;
      high = v > high ? v : high;
      sketch[j] += (f64x8)(bits ^ sign);
      roots[j] += (f64x8)(root ^ sign ^ (bits & kSignBit));
      magnitudes[j % 2] += (f64x8)(bits & ~kSignBit);
    }
  }
  out->sum = add_lanes(sums[0] + sums[1]);
  out->squares = add_lanes(squares[0] + squares[1]);
  out->magnitudes = add_lanes(magnitudes[0] + magnitudes[1]);
  for (int j = 0; j < 4; ++j) {
    store(out->sketch.data() + 8 * j, sketch[j]);
    store(out->root_sketch.data() + 8 * j, roots[j]);
  }
  for (int i = 0; i < 8; ++i) {
    out->min = std::min(out->min, low[i]);
    out->max = std::max(out->max, high[i]);
  }
}

ASSAY_CLONES void add_float64(const std::byte* source, uint64_t block, Part* out) {
  add_block_by<LoadFloat64>(source, block, out);
}
ASSAY_CLONES void add_float32(const std::byte* source, uint64_t block, Part* out) {
  add_block_by<LoadFloat32>(source, block, out);
}
ASSAY_CLONES void add_bfloat16(const std::byte* source, uint64_t block, Part* out) {
  add_block_by<LoadBFloat16>(source, block, out);
}
ASSAY_CLONES void add_float16(const std::byte* source, uint64_t block, Part* out) {
  add_block_by<LoadFloat16>(source, block, out);
}

/// Adds one block straight from the tensor's memory. False for other types, which are widened
/// first.
bool add_block_of(DType dtype, const std::byte* source, uint64_t block, Part* out) {
  switch (dtype) {
    case DType::Float64:
      add_float64(source, block, out);
      return true;
    case DType::Float32:
      add_float32(source, block, out);
      return true;
    case DType::BFloat16:
      add_bfloat16(source, block, out);
      return true;
    case DType::Float16:
      add_float16(source, block, out);
      return true;
    default:
      return false;
  }
}

/// Replaces what is not finite by 0 and counts it.
int64_t remove_non_finite(std::span<double> values) {
  int64_t count = 0;
  for (double& value : values) {
    if (std::fabs(value) < kHuge) continue;
    value = 0;
    ++count;
  }
  return count;
}

int64_t value_count_of(const TensorView& view) {
  return view.element_count() * values_per_element(view.dtype);
}

/// At most one block of values through a buffer: other types, strides, the last block, and values
/// that are not finite.
Part widened_block(const TensorView& view, int64_t first, int64_t count) {
  const int64_t per_element = values_per_element(view.dtype);
  alignas(64) double values[kBlock];
  const auto real = std::span(values).first(static_cast<size_t>(count));
  read_values(view, first / per_element, count / per_element, real);
  std::fill(values + count, values + kBlock, 0.0);  // zeros add nothing to the sums
  Part part;
  part.non_finite_count = remove_non_finite(real);
  add_float64(reinterpret_cast<const std::byte*>(values), static_cast<uint64_t>(first / kBlock),
              &part);
  if (count < kBlock) {
    part.min = *std::min_element(real.begin(), real.end());
    part.max = *std::max_element(real.begin(), real.end());
  }
  return part;
}

/// Values [first, first + count); first is a multiple of the block.
Part fingerprint_part(const TensorView& view, int64_t first, int64_t count) {
  const bool plain = view.is_contiguous() && !view.conjugate && !view.negative;
  const int64_t element_bytes = info(view.dtype).element_bits / 8;
  const std::byte* const source = plain ? view.contiguous_bytes().data() : nullptr;
  Part total;
  for (int64_t at = first; at < first + count; at += kBlock) {
    const int64_t length = std::min(kBlock, first + count - at);
    Part part;
    const bool is_added = plain && length == kBlock &&
                          add_block_of(view.dtype, source + at * element_bytes,
                                       static_cast<uint64_t>(at / kBlock), &part);
    // A sum that is NaN or huge: something is not finite.
    if (!is_added || !(part.squares < kHuge * kHuge)) part = widened_block(view, at, length);
    total.merge(part);
  }
  return total;
}

Fingerprint finish(const Part& total, int64_t value_count) {
  Fingerprint out;
  out.source = Fingerprint::Source::Values;
  out.value_count = value_count;
  out.non_finite_count = total.non_finite_count;
  out.l2_norm = std::sqrt(total.squares);
  out.mean = value_count == 0 ? 0 : total.sum / static_cast<double>(value_count);
  out.min = value_count == 0 ? 0 : total.min;
  out.max = value_count == 0 ? 0 : total.max;
  out.root_norm = std::sqrt(total.magnitudes);
  out.sketch = total.sketch;
  out.root_sketch = total.root_sketch;
  return out;
}

Fingerprint of_statistics(const run::TensorRecord& record) {
  Fingerprint out;
  if (!record.stats) return out;
  const stats::TensorStats& stats = *record.stats;
  out.source = Fingerprint::Source::Statistics;
  const auto by_shape = record.shape ? element_count(*record.shape) : std::nullopt;
  out.value_count = by_shape.value_or(stats.count);
  out.non_finite_count = stats.nan_count + stats.positive_inf_count + stats.negative_inf_count;
  out.l2_norm = stats.l2_norm;
  out.mean = stats.mean;
  out.min = stats.min;
  out.max = stats.max;
  return out;
}

/// Names the bytes of a record, so that shared ones are read once.
std::string content_key(const run::TensorRecord& record) {
  if (!record.bytes) return {};
  const run::ByteLocation& bytes = *record.bytes;
  std::string key = bytes.file + '\n' + bytes.member + '\n' + std::to_string(bytes.offset) + '\n' +
                    std::to_string(bytes.size_bytes) + '\n' + record.memory_format;
  if (record.dtype) key += '\n' + std::string(name(*record.dtype));
  if (record.shape) key += list_text(record.shape->span());
  if (run::is_strided(record)) key += list_text(record.strides->span());
  return key;
}

/// Some records whose tensors are mapped and read together.
class Batch {
 public:
  Batch(const run::Run& run, unsigned jobs) : run_(run), jobs_(jobs) {}

  void add(size_t record, Fingerprint* out) { entries_.push_back({record, out, {}, {}, {}}); }
  [[nodiscard]] bool is_full() const { return entries_.size() >= kBatchRecords; }

  void read(const std::atomic<bool>* interrupted) {
    const auto stopped = [&] { return interrupted != nullptr && interrupted->load(); };
    parallel_for(entries_.size(), jobs_, [&](size_t i) {
      if (stopped()) return;
      auto plain = load_plain(run_.records[entries_[i].record], nullptr);
      if (plain) entries_[i].tensor = std::move(plain->tensor);
    });
    std::vector<std::pair<size_t, int64_t>> items;  // entry, first value
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (!entries_[i].tensor) continue;
      const int64_t count = value_count_of(entries_[i].tensor->view);
      entries_[i].first_part = items.size();
      for (int64_t at = 0; at < count; at += kChunk) items.emplace_back(i, at);
      entries_[i].end_part = items.size();
    }
    std::vector<Part> parts(items.size());
    parallel_for(items.size(), jobs_, [&](size_t item) {
      if (stopped()) return;
      const auto [entry, first] = items[item];
      const TensorView& view = entries_[entry].tensor->view;
      parts[item] = fingerprint_part(view, first, std::min(kChunk, value_count_of(view) - first));
    });
    if (!stopped()) {
      for (Entry& entry : entries_) {
        if (!entry.tensor) continue;
        Part total;
        for (size_t i = entry.first_part; i < entry.end_part; ++i) total.merge(parts[i]);
        *entry.out = finish(total, value_count_of(entry.tensor->view));
      }
    }
    entries_.clear();
  }

 private:
  struct Entry {
    size_t record;
    Fingerprint* out;
    std::optional<Tensor> tensor;
    size_t first_part;
    size_t end_part;
  };
  const run::Run& run_;
  unsigned jobs_;
  std::vector<Entry> entries_;
};

}  // namespace

Fingerprint fingerprint_of(const TensorView& view) {
  const int64_t count = value_count_of(view);
  Part total;
  for (int64_t at = 0; at < count; at += kChunk) {
    total.merge(fingerprint_part(view, at, std::min(kChunk, count - at)));
  }
  return finish(total, count);
}

Fingerprint fingerprint_reference(const TensorView& view) {
  const int64_t count = value_count_of(view);
  std::vector<double> values(static_cast<size_t>(count));
  read_values(view, 0, view.element_count(), values);
  Part total;
  for (size_t i = 0; i < values.size(); ++i) {
    double value = values[i];
    if (!(std::fabs(value) < kHuge)) {
      value = 0;
      ++total.non_finite_count;
    }
    const uint64_t bits = sign_bits(i / kBlock, i % kSketchSize);
    const uint64_t place = i % kBlock / kSketchSize;
    const double sign = (bits >> (63 - place) & 1) != 0 ? -1 : 1;
    const double root = root_of(value);
    total.sum += value;
    total.squares += value * value;
    total.magnitudes += std::fabs(value);
    total.min = std::min(total.min, value);
    total.max = std::max(total.max, value);
    total.sketch[i % kSketchSize] += sign * value;
    total.root_sketch[i % kSketchSize] += sign * root;
  }
  return finish(total, count);
}

std::vector<Fingerprint> fingerprint_records(const run::Run& run, std::span<const size_t> records,
                                             int jobs, const std::atomic<bool>* interrupted) {
  std::vector<Fingerprint> out(records.size());
  std::map<std::string, size_t> read_at;  // content key -> place in `records`
  std::vector<std::pair<size_t, size_t>> copies;
  Batch batch(run, resolve_job_count(jobs));
  for (size_t i = 0; i < records.size(); ++i) {
    const run::TensorRecord& record = run.records[records[i]];
    if (!record.bytes) continue;
    const auto [place, is_new] = read_at.emplace(content_key(record), i);
    if (!is_new) {
      copies.emplace_back(i, place->second);
      continue;
    }
    batch.add(records[i], &out[i]);
    if (batch.is_full()) batch.read(interrupted);
  }
  batch.read(interrupted);
  for (const auto& [copy, original] : copies) out[copy] = out[original];
  for (size_t i = 0; i < records.size(); ++i) {
    if (out[i].source == Fingerprint::Source::None && !run.records[records[i]].bytes) {
      out[i] = of_statistics(run.records[records[i]]);
    }
  }
  return out;
}

}  // namespace assay::pair
