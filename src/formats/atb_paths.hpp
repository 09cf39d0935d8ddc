// SPDX-License-Identifier: Apache-2.0
// The names of folders and files in an ATB dump, as the library makes them.
//   docs/formats/atb-tree.md
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "tensor/node.hpp"

namespace assay::formats {

inline constexpr unsigned kAtbFileMode = 0640;
inline constexpr unsigned kAtbFolderMode = 0750;

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

/// A number without sign or other characters: the folder of one run of the operations.
[[nodiscard]] std::optional<int64_t> parse_atb_run_count(std::string_view name);

/// "0_39943/2/1_Decoder_layer/0_Attention/before/intensor0.bin" in its parts, which borrow it.
struct AtbTensorPath {
  std::string_view process;  // "0_39943"
  int64_t run_count = 0;
  std::string_view node;  // "1_Decoder_layer/0_Attention"
  bool before = false;
  AtbFileName file;
};
/// Nothing when a part is not as the library names it, or has zeros in front of its number.
[[nodiscard]] std::optional<AtbTensorPath> parse_atb_tensor_path(std::string_view path);

/// The folder of an operation in the same way: "0_39943/2/1_Decoder_layer/0_Attention".
struct AtbNodePath {
  std::string_view process;
  int64_t run_count = 0;
  std::string_view node;
};
[[nodiscard]] std::optional<AtbNodePath> parse_atb_node_path(std::string_view path);

}  // namespace assay::formats
