// SPDX-License-Identifier: Apache-2.0
// The names of the torch hook dump: folders, files, statistics rows.   docs/formats/torch-tree.md
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "run/record.hpp"

namespace assay::run {

/// The type of the root that the models of a native run stand below.
inline constexpr std::string_view kModelsType = "models";

/// What a file name inside a module folder says.
struct TorchFileName {
  Role role = Role::Output;
  std::string slot;                   // "input_0" -> "0", "output" -> "", "output_1_0" -> "1.0"
  std::optional<uint64_t> execution;  // v0.2.1 "input_exec7_0": the hook's call counter
};

/// (input|output)[_exec<n>](_<index>)*.pth, and kwargs_<name>.pth as input "kwargs.<name>"; .pt
/// counts as .pth.
[[nodiscard]] std::optional<TorchFileName> parse_torch_file_name(std::string_view name);

struct DeviceFolderName {
  std::string device;  // "npu5", "cpu"
  std::string process;
};

/// "npu5_7624", and the oldest versions' "7624_npu5": split at the last, respectively the first
/// underscore.
[[nodiscard]] std::optional<DeviceFolderName> parse_device_folder(std::string_view name);

/// msit_dump, msit_dump_20250220_083154, and the same with ait_dump.
[[nodiscard]] bool is_dump_root_name(std::string_view name);
/// "root" or "root.<path>": what every module folder is called.
[[nodiscard]] bool is_module_name(std::string_view name);

/// "(1, 5, 4096)", "(5,)", "()"; also "torch.Size([1, 5])". Nothing for other text.
[[nodiscard]] std::optional<Dims> parse_shape_text(std::string_view text);

}  // namespace assay::run
