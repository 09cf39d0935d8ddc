// SPDX-License-Identifier: Apache-2.0
// What a long records.jsonl says, in columns, in a file beside it: made when the lines are read
// for the first time, and used as long as they are the same.   docs/formats/native.md
#pragma once
#include <functional>
#include <string>

#include "run/native_damage.hpp"
#include "run/run.hpp"

namespace assay::run {

inline constexpr std::string_view kIndexFile = "records.index";
/// Lines of less than this are read as fast as an index of them.
inline constexpr uint64_t kLeastIndexedBytes = uint64_t{4} << 20;

/// Writes the index of lines of which nothing had to be said. A folder that cannot be written, or
/// ASSAY_INDEX=off, leaves it away: it is only there to be faster.
///
/// lines        the whole file, with facts.digest its digest
/// records,
/// operations   of this rank alone
/// packed       called when some more records were written
void write_records_index(const std::string& folder, const RecordsFacts& facts, uint64_t lines_bytes,
                         std::span<const TensorRecord> records,
                         std::span<const OperationRecord> operations,
                         const std::function<void()>& packed);

struct IndexedRecords {
  std::vector<OperationRecord> operations;
  RecordsFacts facts;  // but for its path and file
};
/// Appends to run->records what the index of these lines has; run->held keeps it mapped.
///
/// facts   with the digest of the lines
/// file    what a name of a file becomes, given the end of what records say is in it; nothing:
///         the index is not used
/// returns nothing, and leaves the run alone, when there is no index, or one of other lines or of
///         another version, or a damaged one
[[nodiscard]] std::optional<IndexedRecords> read_records_index(
    const std::string& folder, const stats::Digest& digest, uint64_t lines_bytes, int rank,
    const std::function<std::optional<InternedText>(const std::string& name, uint64_t end)>& file,
    Run* run);

}  // namespace assay::run
