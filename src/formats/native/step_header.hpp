// SPDX-License-Identifier: Apache-2.0
// The header of a step file: that of a safetensors file whose tensors are found by their records,
// too.
//   docs/formats/native.md
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/native/record_lines.hpp"

namespace assay::native {

/// What a header begins with. Empty: a file of an earlier version.
struct StepMetadata {
  std::string run;     // id
  std::string file;    // name that it was written under
  std::string digest;  // of everything behind the header
};
/// `header` is its first kilobyte or more.
[[nodiscard]] StepMetadata read_step_metadata(std::string_view header);

/// "step-000012": the file of a step without kStepFileSuffix.
[[nodiscard]] std::string step_file_stem(int64_t step);

/// "<number>:<node>.<role>.<slot>", the tensor's name in the step file.
[[nodiscard]] std::string payload_name(const Record& record);

/// The header of a file that is being written.
class StepHeader {
 public:
  /// More than the metadata take.
  static constexpr uint64_t kMetadataBytes = 256;
  /// Upper bound of the bytes that a record and the gap behind it add.
  [[nodiscard]] static uint64_t bound(const Record& record);

  /// begin   of the record's payload, from the end of the header
  void add(const RecordBatch& batch, const Record& record, uint64_t begin);
  [[nodiscard]] uint64_t size() const { return entries_.size(); }
  /// The metadata first, where a reader finds it without parsing; then the entries by offset, and
  /// pads in between and up to `end`.
  [[nodiscard]] std::string text(const StepMetadata& metadata, uint64_t end);

 private:
  struct Entry {
    uint64_t begin, end;
    size_t text_begin, text_size;
  };
  std::vector<Entry> entries_;
  RecordText texts_;
};

}  // namespace assay::native
