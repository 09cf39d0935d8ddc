// SPDX-License-Identifier: Apache-2.0
// Names of dump files that we make, and which files to look into; read by run/ge_names.hpp
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace assay::cli {

/// Name of a file that we make ourselves: task and stream 0. What stands for something else in
/// names becomes '_'.
[[nodiscard]] std::string dump_file_name(std::string_view op_type, std::string_view op_name,
                                         uint64_t time_us);

/// False for files that lie among dumps but are none, by their ending: .csv .txt .json .npy .tmp77
/// ...
[[nodiscard]] bool may_be_dump(std::string_view name);

}  // namespace assay::cli
