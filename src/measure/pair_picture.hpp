// SPDX-License-Identifier: Apache-2.0
// Where and how two tensors differ, small enough for a page: errors by place, histograms, worst
// elements.   docs/metrics.md, "Where two tensors differ"
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "measure/cell_grid.hpp"
#include "measure/metrics.hpp"

namespace assay::measure {

/// Sizes as one byte each, an eighth of an octave apart. 0 is no error and kNotFinite a NaN or an
/// infinity on one side alone; c stands for errors nearest to 2^(base + c / 8). The largest finite
/// error is 254, and those too small for the scale are 1.
struct ErrorScale {
  double base = 0;  // a multiple of 1/8
  static constexpr uint8_t kNotFinite = 255;

  [[nodiscard]] static ErrorScale up_to(double largest);
  [[nodiscard]] uint8_t code_of(double error) const;
  [[nodiscard]] double error_of(uint8_t code) const;
};

/// Counts of values; bin i reaches from edges[i] to edges[i + 1].
struct Histogram {
  std::vector<double> edges;
  std::vector<int64_t> counts;
  int64_t nan = 0;
  int64_t inf = 0;
};

/// Errors in units of the last place of golden's value, as the coarser type of both has them.
/// counts[i] is of edges[i] and more units, whole ones, below edges[i + 1]; the last of all beyond.
struct UlpHistogram {
  std::string type;  // "bfloat16"
  std::vector<double> edges;
  std::vector<int64_t> counts;
};

struct WorstElement {
  Dims index;    // in golden's shape
  int part = 0;  // of an element of several values
  double golden = 0;
  double mine = 0;
  double error = 0;  // |mine - golden|
  double ulp = 0;    // in units of UlpHistogram; NaN where there are none
  /// The same part of up to three elements to each side on the last axis of the grid.
  int64_t around_first = 0;  // position of the first on that axis
  std::vector<double> golden_around;
  std::vector<double> mine_around;
};

struct PairPicture {
  DType golden_type = DType::Float32;
  DType mine_type = DType::Float32;
  CellGrid grid;
  ErrorScale scale;
  std::vector<uint8_t> largest;  // code of the largest error, a cell
  std::vector<uint8_t> rms;      // code of the root of the mean squared error
  int64_t values = 0;
  int64_t sampled = 0;  // of these in the histograms
  Histogram golden;     // over the same edges
  Histogram mine;
  std::optional<UlpHistogram> ulp;  // none of types without a last place
  std::vector<WorstElement> worst;  // largest error first, NaN and infinities before all
  std::string shape_of_error;       // "all in channel 3 of 64"
};

struct PictureOptions {
  MetricRules rules = MetricRules::Corrected;
  int jobs = 1;  // threads; never changes the result
};

/// The picture of a pair. Nothing where the sides have other numbers of values or none.
[[nodiscard]] std::optional<PairPicture> picture_of(const TensorView& golden,
                                                    const TensorView& mine,
                                                    const PictureOptions& options = {});

/// The same from what compare_tensors() has pooled: of the values, only a sample is read again and
/// the cells of the worst.
[[nodiscard]] std::optional<PairPicture> picture_of(const TensorView& golden,
                                                    const TensorView& mine, MetricRules rules,
                                                    const PooledErrors& pooled);

}  // namespace assay::measure
