// SPDX-License-Identifier: Apache-2.0
// The table of operations: one entry each, listed by `assay opcheck --ops-list`.
#pragma once
#include <span>
#include <string_view>

#include "opcheck/operation.hpp"

namespace assay::opcheck {

/// nullptr for a name that is not in the table.
[[nodiscard]] const Operator* find_operator(std::string_view name);
/// All, by name.
[[nodiscard]] std::span<const Operator> all_operators();

// The groups, one folder under operations/ each.
[[nodiscard]] std::span<const Operator> movement_operators();
[[nodiscard]] std::span<const Operator> elementwise_operators();
[[nodiscard]] std::span<const Operator> norm_operators();
[[nodiscard]] std::span<const Operator> selection_operators();
[[nodiscard]] std::span<const Operator> product_operators();  // and collectives
[[nodiscard]] std::span<const Operator> attention_operators();

}  // namespace assay::opcheck
