// SPDX-License-Identifier: Apache-2.0
// One dump file of CANN's graph engine to the files that the original's converter makes of it.
// Names and options: docs/commands/convert.md
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mapped_file.hpp"
#include "base/result.hpp"
#include "cli/convert/byte_budget.hpp"
#include "cli/convert/tensor_layout.hpp"
#include "formats/cann_dump.hpp"
#include "vendor/cann/long_names.hpp"

namespace assay::cli {

using vendor::cann::LongNames;

enum class DumpTarget : uint8_t { Npy, Bin, Msnpy, Pt };

/// Status of the original's converter, which is its exit status, too.
enum class ConvertCode : int {
  None = 0,
  Unknown = 1,
  NoDumpFile = 2,
  InvalidPath = 3,
  ParseDumpFile = 4,
  InvalidParameter = 6,
  InvalidDumpData = 11,
  DumpFile = 18,
  WriteFile = 19,
  InvalidDataType = 21,
  InvalidFormat = 22,
  OverflowType = 35,
  SizeMismatch = 39,
  NanoParse = 47,
};

struct DumpConversion {
  struct Operand {
    bool is_input = false;
    size_t index = 0;
  };

  DumpTarget target = DumpTarget::Npy;
  std::optional<Layout> layout;    // nothing: tensors as they are stored
  std::optional<Operand> operand;  // nothing: all
  std::string
      script_folder;     // absolute; with format_convert/convert_{from}_to_{to}.py; may be empty
  unsigned mode = 0600;  // of the files
};

struct DumpProblem {
  std::string operand;  // "input:0"; empty: the whole file
  Error error;
  ConvertCode code = ConvertCode::Unknown;
};

struct DumpOutcome {
  std::vector<std::string> files;  // written, in order
  std::vector<DumpProblem> problems;
  std::vector<std::string> warnings;

  /// That of the last problem, as the original returns it.
  [[nodiscard]] ConvertCode code() const {
    return problems.empty() ? ConvertCode::None : problems.back().code;
  }
};

/// Safe to use from several threads. Memory: the file is mapped; tensors that change layout or type
/// are held one at a time, all threads together within the budget.
class DumpConverter {
 public:
  /// names, budget   outlive the converter
  DumpConverter(DumpConversion conversion, LongNames* names, ByteBudget* budget);

  /// Writes {file}.input.0.npy ... below `folder`, which exists. Files in the way are replaced.
  /// What cannot be converted is a problem, and the rest goes on.
  [[nodiscard]] DumpOutcome convert(const std::string& path, const std::string& folder) const;

 private:
  class File;
  const DumpConversion conversion_;
  LongNames* const names_;
  ByteBudget* const budget_;
};

/// A dump file and what it holds, which borrows the file's bytes.
struct OpenDump {
  MappedFile file;
  formats::CannDump dump;
};
/// errors    of opening and of formats::read_cann_dump(), with the path
[[nodiscard]] Result<OpenDump> open_dump(const std::string& path);

/// "Add.Add_1.3.7.1760000000123456.input.0": the beginning of the names that belong to an operand.
[[nodiscard]] std::string operand_file_stem(const std::string& dump_name, bool is_input,
                                            size_t index);

/// The end of the name of a file of bare bytes: ".2_3.float32.ND.bin"; the shape of a scalar is
/// empty.
[[nodiscard]] std::string raw_file_ending(const Dims& shape, DType dtype, std::string_view format);

/// The payload of a debug file as JSON text.
/// errors    as formats::read_overflow_report()
[[nodiscard]] Result<std::string> overflow_json(ByteSpan payload);

}  // namespace assay::cli
