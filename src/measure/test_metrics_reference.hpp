// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "measure/metrics.hpp"

namespace assay::measure {

/// The plain loops that compare_tensors is tested against. Holds both tensors in memory as doubles.
[[nodiscard]] PairMetrics compare_tensors_reference(const TensorView& golden,
                                                    const TensorView& mine,
                                                    const MetricOptions& options = {});

}  // namespace assay::measure
