// SPDX-License-Identifier: Apache-2.0
// ATB's operation names: the type, then the ids on the way from the layer down:
// "LinearOperation_0_1_0".
#pragma once
#include <string>
#include <string_view>

namespace assay::topology {

/// "0_1_0" of "LinearOperation_0_1_0"; empty when the name ends without ids. A type that itself
/// ends with a number ("Layer_2" in "Layer_2_0") is told apart only when it is given.
[[nodiscard]] std::string ids_of(std::string_view op_name, std::string_view op_type = {});

/// What stands before the ids: "LinearOperation".
[[nodiscard]] std::string type_of(std::string_view op_name);

/// "0_1" and "2" give "0_1_2"; an empty parent gives "".
[[nodiscard]] std::string joined_ids(std::string_view parent_ids, std::string_view child_index);

}  // namespace assay::topology
