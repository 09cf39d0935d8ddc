// SPDX-License-Identifier: Apache-2.0
// The order people expect of numbered names: layers.2 before layers.10.
#pragma once
#include <string_view>

namespace assay::run {

/// Runs of digits compare as numbers of any length, everything else byte by byte; names that differ
/// only in leading zeros are ordered by their bytes, so that the order is total.
[[nodiscard]] bool natural_less(std::string_view a, std::string_view b);

struct NaturalLess {
  using is_transparent = void;
  bool operator()(std::string_view a, std::string_view b) const { return natural_less(a, b); }
};

}  // namespace assay::run
