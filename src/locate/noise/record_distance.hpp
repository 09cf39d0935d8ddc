// SPDX-License-Identifier: Apache-2.0
// How far the values of two runs are apart, record by record: what floors are made of and held
// against.
//   docs/localisation.md, "Measured floors"
#pragma once
#include <atomic>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "locate/program/program.hpp"
#include "pair/places.hpp"

namespace assay::locate {

/// One input or output that both runs have.
struct Measured {
  size_t golden_record = kNone;
  size_t mine_record = kNone;
  std::string place;  // "model.layers.0.mlp call 0 step 0 output"
  /// N: of value_components(). S: of statistics_components().
  std::vector<double> components;
  /// Leading elements that can be compared; fewer than all behind a router that chose otherwise.
  int64_t elements = std::numeric_limits<int64_t>::max();
  bool partial = false;  // fewer than all of them, or statistics that hold other tokens' values
  int64_t count = 0;     // S: values of mine that the statistics are of
  // relative L2 that one rounding of the run under test's storage type leaves
  double one_rounding = 0;
  bool shape_differs = false;
  std::string reason;  // why there are no components
};

/// Every floating input and output of mine, in its order (rank, execution). `reason` says what has
/// no partner.
///
/// statistics  compare statistics only; those of tensors without any are computed
/// errors      Interrupted
[[nodiscard]] Result<std::vector<Measured>> measure_records(const run::Run& golden,
                                                            const run::Run& mine, bool statistics,
                                                            int jobs,
                                                            const std::atomic<bool>* interrupted);

/// How many numbers value_components() gives.
inline constexpr size_t kValueComponents = 5;

/// Five measures of m - g, each about the relative L2 error when errors are independent and even:
/// relative L2 = |m - g| / |g|; peak = max |m - g| sqrt(N) / |g|; row, column = the largest
/// relative L2 of a row (the
/// last axis; the relative L2 of all when it is shorter than 16) or a column, in |g| sqrt(1 / rows)
/// or
/// sqrt(1 / columns); slope = |(m - g).g| / |g|^2 sqrt(N) 0.3, what
/// a scale adds. Over positions where both are finite; infinite where one is and the other is not.
///
/// elements      how many, from the first in C order
/// precondition  equal element counts
[[nodiscard]] std::vector<double> value_components(
    const TensorView& golden, const TensorView& mine,
    int64_t elements = std::numeric_limits<int64_t>::max());
/// How many of the numbers that statistics_components() gives are of l2, mean, max and min.
inline constexpr size_t kPlainStatistics = 4;

/// |dl2| / l2 sqrt(N) 0.3, |dmean| sqrt(N) / l2, |dmax| / max|g|, |dmin| / max|g|; and, where both have a sketch,
/// |sketch(m) - sketch(g)| / l2, which estimates the relative L2 error. Infinite where the counts of NaN or infinities
/// differ.
[[nodiscard]] std::vector<double> statistics_components(const stats::TensorStats& golden,
                                                        const stats::TensorStats& mine);
/// Statistics of a parameter over what rounding from golden's type to the other's leaves, above 1:
/// they differ. Rounding to nearest and truncation are healthy.
///
/// columns  of the last axis, whose rows may repeat each other where they are short; 0: not known
[[nodiscard]] double weight_statistics_ratio(const stats::TensorStats& golden,
                                             const stats::TensorStats& mine,
                                             const std::optional<DType>& golden_dtype,
                                             const std::optional<DType>& mine_dtype,
                                             int64_t columns = 0);
/// Of a record, or of its bytes.
/// errors  of run::load_tensor()
[[nodiscard]] Result<stats::TensorStats> statistics_of(const run::TensorRecord& record);
/// 0.425 u of the coarser of two types; of float32 where a type is not known or has no fraction.
[[nodiscard]] double rounding_of(const std::optional<DType>& golden,
                                 const std::optional<DType>& mine);

}  // namespace assay::locate
