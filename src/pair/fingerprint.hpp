// SPDX-License-Identifier: Apache-2.0
// A few numbers that tell tensors apart and stay near each other when values only lose precision.
#pragma once
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "run/run.hpp"

namespace assay::pair {

/// Random projections of a tensor, each over every 32nd value.
inline constexpr size_t kSketchSize = 32;
using Sketch = std::array<double, kSketchSize>;

/// Entry k of a sketch is the sum of +-f(value i) over all i with i % 32 == k, i counting values in
/// C order; the signs are bits of a hash of i. The squared distance of two sketches estimates the
/// squared L2 distance of the tensors, with a relative standard deviation of at most 25 % (it is
/// exact where few values make the difference). There are two: of the values, and of their signed
/// square roots, so that some huge activations do not hide the rest.
struct Fingerprint {
  enum class Source : uint8_t { None, Statistics, Values };
  Source source = Source::None;
  int64_t value_count = 0;
  int64_t non_finite_count = 0;  // these count as 0 below
  // NaN where statistics lack them.
  double l2_norm = NAN;
  double mean = NAN;  // over all values
  double min = NAN;
  double max = NAN;
  double root_norm = NAN;  // L2 norm of the roots: the root of the sum of all |value|
  Sketch sketch{};
  Sketch root_sketch{};

  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
};

/// The fingerprint of a view, all in fp64. The same values give the same bits for any strides, type
/// and number of threads. Of complex elements both parts are values.
[[nodiscard]] Fingerprint fingerprint_of(const TensorView& view);
/// The plain loop the kernel is tested against.
[[nodiscard]] Fingerprint fingerprint_reference(const TensorView& view);

/// Fingerprints of records, in their order. A record without data has that of its statistics, an
/// unreadable one Source::None. Bytes that several records share are read once.
///
/// jobs          <= 0: one per core
/// interrupted   may be null; when set, what is not yet read is Source::None
[[nodiscard]] std::vector<Fingerprint> fingerprint_records(const run::Run& run,
                                                           std::span<const size_t> records,
                                                           int jobs,
                                                           const std::atomic<bool>* interrupted);

}  // namespace assay::pair
