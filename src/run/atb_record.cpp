// SPDX-License-Identifier: Apache-2.0
// The header gives type and shape, a view of the payload gives strides and the place of the bytes.
// A file that cannot be used becomes a record with the problem and the whole file as its bytes.
#include "run/atb_record.hpp"

#include <cmath>

#include "formats/atb_types.hpp"

namespace assay::run {
namespace {

double magnitude(const std::optional<formats::AtbNumber>& number) {
  if (!number) return NAN;
  return number->imaginary == 0 ? number->real : std::hypot(number->real, number->imaginary);
}

void set_problem(const std::string& file, Error error, TensorRecord* record) {
  if (error.path.empty()) error.path = file;
  record->problem = error.describe();
  ByteLocation location;
  location.file = file;
  record->bytes = std::move(location);
}

}  // namespace

stats::TensorStats stats_of(const formats::AtbStatistics& statistics, int64_t count) {
  stats::TensorStats stats;
  stats.count = count;
  stats.max = magnitude(statistics.max);
  stats.min = magnitude(statistics.min);
  const bool complex_mean = statistics.mean && statistics.mean->imaginary != 0;
  stats.mean = complex_mean ? NAN : magnitude(statistics.mean);
  stats.l2_norm = magnitude(statistics.l2norm);
  stats.nan_count = statistics.nan_count.value_or(0);
  // The record has one count for both infinities; which of them occur is seen at the extremes.
  const int64_t infinities = statistics.inf_count.value_or(0);
  const bool negative = infinities > 0 && stats.min == -INFINITY;
  const bool positive = infinities > 0 && stats.max == INFINITY;
  stats.negative_inf_count = !negative ? 0 : positive ? 1 : infinities;
  stats.positive_inf_count = infinities - stats.negative_inf_count;
  return stats;
}

std::string atb_memory_format(int64_t format) {
  if (format == formats::kAtbFormatNd || format == formats::kAtbUndefined) return {};
  const std::string_view word = formats::atb_format_text(format);
  return word.empty() ? "format " + std::to_string(format) : std::string(word);
}

void fill_from_atb_bin(const std::string& file, const Result<formats::AtbBin>& parsed,
                       TensorRecord* record) {
  if (!parsed) {
    set_problem(file, parsed.error(), record);
    return;
  }
  record->shape = parsed->dims;
  record->dtype = formats::dtype_from_atb(parsed->dtype);
  record->memory_format = atb_memory_format(parsed->format);
  if (parsed->statistics)
    record->stats = stats_of(*parsed->statistics, element_count(parsed->dims).value_or(0));
  if (!parsed->payload) {
    if (record->stats) record->stats_file = file;
    return;
  }
  Result<TensorView> view = formats::atb_bin_view(*parsed);
  if (!view) {
    set_problem(file, view.error(), record);
    return;
  }
  record->dtype = view->dtype;
  record->shape = view->shape;
  record->strides = view->strides;
  ByteLocation location;
  location.file = file;
  location.offset = parsed->payload_offset;
  location.size_bytes = view->contiguous_bytes().size();
  location.raw = true;
  record->bytes = std::move(location);
}

}  // namespace assay::run
