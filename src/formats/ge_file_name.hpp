// SPDX-License-Identifier: Apache-2.0
// Names of the files of a graph-mode dump, as they are written.   docs/formats/ge-tree.md
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace assay::formats {

/// Longest name of a file, in bytes; longer ones are kept in mapping.csv.
inline constexpr size_t kMaxFileNameBytes = 255;

/// An operator's type or name as part of a file name: blank . / \ become '_', as the vendor writes
/// them, and so do control characters and < > : " | ? *, which Windows refuses. An empty text
/// becomes "_".
[[nodiscard]] std::string ge_name_part(std::string_view text);

/// "Add.model_add.3.7.1760000000123456"; type and name go through ge_name_part().
[[nodiscard]] std::string ge_file_name(std::string_view op_type, std::string_view op_name,
                                       int64_t task_id, int64_t stream_id, uint64_t time_us);

/// The name on disk: `name`, or the 32 hex digits of its XXH3-128 when it is longer than 255 bytes.
/// An ending ".csv" is kept, readers tell statistics by it.
[[nodiscard]] std::string ge_stored_name(std::string_view name);

/// Appends the row of a name that is not on disk to a mapping.csv; to an empty one its header, too.
void append_ge_mapping(const std::string& stored, const std::string& name, bool is_first,
                       std::string* rows);

}  // namespace assay::formats
