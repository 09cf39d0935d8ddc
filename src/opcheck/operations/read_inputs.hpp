// SPDX-License-Identifier: Apache-2.0
// The inputs of an operation that always takes the same ones.
#pragma once
#include <initializer_list>
#include <string_view>
#include <vector>

#include "opcheck/operation.hpp"

namespace assay::opcheck {

/// All inputs, which must be exactly those named, in this order.
/// errors  Invalid "RopeOperation takes q, k; the dump has 1 input" | of Operands::input()
[[nodiscard]] Result<std::vector<Tensor>> read_inputs(const Case& one,
                                                      const std::vector<std::string_view>& names);
/// The same of another rank's execution.
[[nodiscard]] Result<std::vector<Tensor>> read_inputs(const Operands& operands,
                                                      std::string_view op_type,
                                                      const std::vector<std::string_view>& names);

}  // namespace assay::opcheck
