// SPDX-License-Identifier: Apache-2.0
// Names of the files of an operator dump, in every form that was written.   docs/formats/ge-tree.md
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace assay::run {

/// What a file of a dump is about.
enum class GeFileKind : uint8_t {
  Operator,   // the operands of one operator
  Overflow,   // Opdebug.Node_OpDebug: a report of the device, not an operator
  Exception,  // the operands of an operator that failed
};

struct GeFileName {
  GeFileKind kind = GeFileKind::Operator;
  bool statistics = false;  // a .csv: statistics instead of bytes
  std::string op_type;      // of an exception "exception_info"
  std::string op_name;      // of an exception that of its kernel
  std::optional<uint64_t> task;
  std::optional<uint64_t> stream;
  bool has_dump_number = false;
  std::string slice;  // what stands behind the time: the thread of a fused task; empty otherwise
  std::optional<uint64_t> context;  // of a fused task
  std::optional<uint64_t> thread;
  std::string time;  // as in the name: microseconds since 1970
};

/// {type}.{name}.[{dump}.]{task}.[{stream}.]{time}[.{kind}.{context}.{thread}.{device}], counted
/// from the 16 digits of the time; without them the name ends before the last three parts. A .csv
/// at the end, or _min_max.npz of a user's script, is left out of the name. Of exceptions:
/// {kernel}.{stream}.{task}.{core type}.{core id}.{time}, the first three of them only when the
/// name starts with exception_info.
///
/// in_exception_folder    the file lies in extra-info/data-dump/{device}
/// returns                nothing for names that are none of these
[[nodiscard]] std::optional<GeFileName> parse_ge_file_name(std::string_view name,
                                                           bool in_exception_folder = false);

/// True for a name with all that makes it a dump's: a time of 16 digits, or a reduced array.
[[nodiscard]] bool is_ge_dump_name(std::string_view name);

/// Arrays that a script of the original's users reduced a dump file to.
inline constexpr std::string_view kReducedArrays = "_min_max.npz";

/// Files that lie beside dumps and are none: texts, arrays, logs.
[[nodiscard]] bool is_other_file(std::string_view name);

/// {name}.tmp{pid}: a file that is being written, or whose writer was killed.
[[nodiscard]] bool is_unfinished_file(std::string_view name);

/// As the writer replaces characters of type and name in a file's name.
[[nodiscard]] std::string sanitized(std::string name);

/// mapping.csv: names that the file system refused, by what they were replaced with. With the
/// header `file,name` cells are quoted where they must be; without it the name is all that follows
/// the first comma. Lines that are cut off or have one cell are left out.
[[nodiscard]] std::map<std::string, std::string> read_long_names(std::string_view text);

}  // namespace assay::run
