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
[[nodiscard]] std::span<const OperationRow> movement_operators();     // opcheck 8.1, 8.7
[[nodiscard]] std::span<const OperationRow> elementwise_operators();  // 8.2, 8.3
[[nodiscard]] std::span<const OperationRow> norm_operators();         // 8.8, 8.9
[[nodiscard]] std::span<const OperationRow> selection_operators();    // 8.4, 8.5
[[nodiscard]] std::span<const OperationRow> product_operators();      // 8.6, collectives
[[nodiscard]] std::span<const OperationRow> attention_operators();    // 8.11

}  // namespace assay::opcheck
