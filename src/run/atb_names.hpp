// SPDX-License-Identifier: Apache-2.0
// The nodes of an ATB dump and what their names say.   docs/formats/atb-tree.md
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "formats/atb_paths.hpp"
#include "run/record.hpp"

namespace assay::run {

using formats::AtbFileName;
using formats::AtbNodeName;
using formats::AtbProcessName;
using formats::parse_atb_file_name;
using formats::parse_atb_node_folder;
using formats::parse_atb_process_folder;
using formats::parse_atb_run_count;

/// "1_Decoder_layer/0_Attention" -> "1_0"; empty when a part has no id.
[[nodiscard]] std::string atb_ids_of_node(std::string_view node);

/// The operation or graph that a node stands in: "0_layer" of "0_layer/1_LinearOperation"; empty:
/// in none.
[[nodiscard]] std::string_view atb_parent(std::string_view node);

/// Kernels are saved like the operations that run them; no topology knows them.
[[nodiscard]] bool is_atb_kernel(std::string_view name);

/// The type of an operation in ATB's own tables: "LinearOperation" of the folder
/// "1_Decoder_LinearOperation". A kernel's is all of its name.
[[nodiscard]] std::string atb_operation_type(const TensorRecord& record);

/// The number of the tensor in a slot: 3 of "3", "3.before" and "3.after". Nothing for the second
/// tensor of a number, which has the name of a parameter behind it: two versions of ATB wrote into
/// one folder.
[[nodiscard]] std::optional<size_t> atb_operand_number(std::string_view slot);

}  // namespace assay::run
