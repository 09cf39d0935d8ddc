// SPDX-License-Identifier: Apache-2.0
// The names of an ATB dump: folders, tensor files, operations.   docs/formats/atb-tree.md
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "run/run.hpp"

namespace assay::run {

/// "0_39943", "-1_39943": device and process. The oldest dumps had process and thread there.
struct AtbProcessName {
  int64_t device = 0;
  int64_t process = 0;
  friend bool operator==(const AtbProcessName&, const AtbProcessName&) = default;
};
[[nodiscard]] std::optional<AtbProcessName> parse_atb_process_folder(std::string_view name);

/// "1_Decoder_layer": place among its siblings and type of an operation, graph or kernel.
struct AtbNodeName {
  uint64_t id = 0;
  std::string_view type;  // borrows the name
};
[[nodiscard]] std::optional<AtbNodeName> parse_atb_node_folder(std::string_view name);

/// "intensor0.bin", "outtensor12_y.bin" (also inTensor, outTensor).
struct AtbFileName {
  Role role = Role::Output;
  std::string_view index;      // "12"
  std::string_view parameter;  // "y"; empty in dumps before 2026
};
[[nodiscard]] std::optional<AtbFileName> parse_atb_file_name(std::string_view name);

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

/// A number without sign or other characters: the folder of one run of the operations.
[[nodiscard]] std::optional<int64_t> parse_atb_run_count(std::string_view name);

}  // namespace assay::run
