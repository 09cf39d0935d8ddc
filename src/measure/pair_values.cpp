// SPDX-License-Identifier: Apache-2.0
// How a block of either side is read: the parts of complex elements, the imaginary parts that one
// side lacks, and 64-bit integers, which are subtracted before they are rounded.
#include "measure/pair_values.hpp"

#include <algorithm>
#include <span>

#include "measure/pair_sums.hpp"
#include "tensor/convert.hpp"

namespace assay::measure {
namespace {

bool is_64_bit_integer(DType dtype) { return dtype == DType::Int64 || dtype == DType::UInt64; }

/// Values [first, first + count) of a view: whole elements are read, then the part of them that was
/// asked for.
void read_parts(const TensorView& view, int64_t first, int64_t count, double* out) {
  const int64_t parts = values_per_element(view.dtype);
  if (parts == 1) {
    read_values(view, first, count, {out, static_cast<size_t>(count)});
    return;
  }
  double buffer[kBlockValues + 16];
  const int64_t first_element = first / parts;
  const int64_t elements = (first + count + parts - 1) / parts - first_element;
  read_values(view, first_element, elements, {buffer, static_cast<size_t>(elements * parts)});
  std::copy_n(buffer + (first - first_element * parts), count, out);
}

/// The same, counted in the pair's values.
void read_side(const PairSource& source, const TensorView& view, int64_t first, int64_t count,
               double* out) {
  if (source.real_part_only && is_complex(view.dtype)) {
    double both[kBlockValues];
    for (int64_t done = 0; done < count; done += kBlockValues / 2) {
      const int64_t part = std::min(kBlockValues / 2, count - done);
      read_values(view, first + done, part, {both, static_cast<size_t>(2 * part)});
      for (int64_t i = 0; i < part; ++i) out[done + i] = both[2 * i];
    }
  } else if (source.pads_imaginary && !is_complex(view.dtype)) {
    double real[kBlockValues / 2 + 1];
    const int64_t first_real = first / 2;
    read_parts(view, first_real, (first + count + 1) / 2 - first_real, real);
    for (int64_t i = 0; i < count; ++i) {
      out[i] = (first + i) % 2 == 0 ? real[(first + i) / 2 - first_real] : 0;
    }
  } else {
    read_parts(view, first, count, out);
  }
}

__extension__ typedef __int128 int128;

/// Integers of one side without the rounding to double that `values` have behind them.
void read_integers(const TensorView& view, int64_t first, int64_t count, const double* values,
                   int128* out) {
  if (!is_64_bit_integer(view.dtype)) {
    std::transform(values, values + count, out,
                   [](double value) { return static_cast<int128>(value); });
    return;
  }
  alignas(64) uint64_t bits[kBlockValues];
  gather_bytes(view, first, count,
               std::as_writable_bytes(std::span(bits, static_cast<size_t>(count))));
  std::transform(bits, bits + count, out, [&](uint64_t value) {
    return view.dtype == DType::UInt64 ? int128{value} : int128{static_cast<int64_t>(value)};
  });
}

/// mine - golden for integers, rounded once.
void subtract_integers(const PairSource& source, int64_t first, Block& block) {
  int128 golden[kBlockValues];
  int128 mine[kBlockValues];
  read_integers(*source.golden, first, block.count, block.golden, golden);
  read_integers(*source.mine, first, block.count, block.mine, mine);
  for (int64_t i = 0; i < block.count; ++i)
    block.difference[i] = static_cast<double>(mine[i] - golden[i]);
}

}  // namespace

PairSource make_source(const TensorView& golden, const TensorView& mine, MetricRules rules) {
  PairSource source{&golden, &mine, rules, rules == MetricRules::Float32, false, false, 0};
  const bool golden_complex = is_complex(golden.dtype);
  const bool mine_complex = is_complex(mine.dtype);
  source.pads_imaginary = !source.real_part_only && golden_complex != mine_complex;
  const auto is_whole = [](const TensorView& view) {
    return (is_integer(view.dtype) || view.dtype == DType::Bool) && !view.negative;
  };
  source.exact_integers = rules == MetricRules::Corrected && is_whole(golden) && is_whole(mine) &&
                          (is_64_bit_integer(golden.dtype) || is_64_bit_integer(mine.dtype));
  return source;
}

int64_t value_count_of(const PairSource& source, const TensorView& view) {
  if (source.real_part_only && is_complex(view.dtype)) return view.element_count();
  const int64_t values = view.element_count() * values_per_element(view.dtype);
  return source.pads_imaginary && !is_complex(view.dtype) ? 2 * values : values;
}

int64_t row_values_of(const TensorView& golden, int64_t value_count) {
  if (golden.shape.empty() || value_count == 0) return 1;
  return golden.shape[golden.shape.size() - 1] * (value_count / golden.element_count());
}

// The hardware's prefetcher follows a run of addresses, and here two runs of some kilobytes take
// turns.
void prefetch_values(const TensorView& view, int64_t first, int64_t count) {
  const int64_t bits = info(view.dtype).element_bits / info(view.dtype).element_values;
  const auto begin = static_cast<size_t>((view.offset_elements + first) * bits / 8);
  const size_t end = std::min(view.storage.size(), begin + static_cast<size_t>(count * bits / 8));
  for (size_t at = begin; at < end; at += 64) __builtin_prefetch(view.storage.data() + at, 0, 2);
}

void read_block(const PairSource& source, int64_t first, int64_t count, Block& block) {
  block.count = count;
  read_side(source, *source.golden, first, count, block.golden);
  read_side(source, *source.mine, first, count, block.mine);
  if (source.rules == MetricRules::Float32) {
    round_to_float32(block.golden, count);
    round_to_float32(block.mine, count);
  }
  if (source.exact_integers) {
    subtract_integers(source, first, block);
  } else {
    subtract(block.golden, block.mine, count, block.difference);
    if (source.rules == MetricRules::Float32) round_to_float32(block.difference, count);
  }
}

void pooled_differences(const Block& block, double* out) {
  for (int64_t i = 0; i < block.count; ++i) {
    const double golden = block.golden[i];
    const double mine = block.mine[i];
    const bool is_finite = std::isfinite(golden) && std::isfinite(mine);
    const bool is_same = golden == mine || (std::isnan(golden) && std::isnan(mine));
    out[i] = is_finite ? block.difference[i] : is_same ? 0 : HUGE_VAL;
  }
}

}  // namespace assay::measure
