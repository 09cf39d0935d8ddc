// SPDX-License-Identifier: Apache-2.0
// The table of operations: one entry each, listed by `assay opcheck --ops-list`.
#pragma once
#include <span>
#include <string_view>

#include "opcheck/operation.hpp"

namespace assay::opcheck {

/// nullptr for a name that is not in the table.
[[nodiscard]] const OperationRow* find_operator(std::string_view name);
/// All, by name.
[[nodiscard]] std::span<const OperationRow> all_operators();

// The groups, one folder under operations/ each.
[[nodiscard]] std::span<const OperationRow> movement_operators();
[[nodiscard]] std::span<const OperationRow> elementwise_operators();
[[nodiscard]] std::span<const OperationRow> norm_operators();
[[nodiscard]] std::span<const OperationRow> selection_operators();
[[nodiscard]] std::span<const OperationRow> product_operators();  // and collectives
[[nodiscard]] std::span<const OperationRow> attention_operators();

}  // namespace assay::opcheck
