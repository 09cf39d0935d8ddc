// SPDX-License-Identifier: Apache-2.0
// What ATB's numbers mean: 4 as an activationType is SWISH.
#pragma once
#include <string>
#include <string_view>

#include "topology/graph.hpp"

namespace assay::topology {

/// The name of a parameter's value, empty when it is no enumeration or the number is unknown.
/// op_type     "ActivationOperation"
/// parameter   "activationType"; of a flattened name the part behind the last dot counts
[[nodiscard]] std::string_view enum_name(std::string_view op_type, std::string_view parameter,
                                         int64_t value);

/// "4 (SWISH)", or the parameter's text as it was written.
[[nodiscard]] std::string parameter_text(const Node& node, const Parameter& parameter);

}  // namespace assay::topology
