// SPDX-License-Identifier: Apache-2.0
// Largest and smallest values, truth of rows, medians, counts.
#pragma once
#include "reference/aten/registry.hpp"

namespace assay::reference::aten {

/// A part of reduction_overloads().
[[nodiscard]] std::span<const Overloads> extreme_overloads();

}  // namespace assay::reference::aten
