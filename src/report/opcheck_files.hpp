// SPDX-License-Identifier: Apache-2.0
// The report files of an opcheck run: opcheck_result_{YYYYmmdd_HHMMSS}.xlsx, .csv, .jsonl, .html
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "report/opcheck_table.hpp"

namespace assay::report {

/// "20250102_030405": now, in UTC.
[[nodiscard]] std::string opcheck_timestamp();

struct OpcheckFileOptions {
  std::string folder = "./";         // created with all parents
  std::string timestamp;             // opcheck_timestamp()
  std::vector<std::string> formats;  // "xlsx" "csv" "jsonl" "html"
  std::string page = {};             // path of a page besides; empty: none
};

/// Writes csv and jsonl while cases finish, so that a crash keeps what is done; the others at the
/// end.
class OpcheckWriter {
 public:
  /// errors  Permission | NotFound | NoSpace | Io
  [[nodiscard]] static Result<OpcheckWriter> open(const OpcheckFileOptions& files,
                                                  const OpcheckTableOptions& table);
  OpcheckWriter(OpcheckWriter&&) noexcept;
  OpcheckWriter& operator=(OpcheckWriter&&) noexcept;
  ~OpcheckWriter();

  /// Appends the rows of a case to the live files.
  [[nodiscard]] Status add(const opcheck::CaseResult& result);
  /// Completes all files. Nothing is written when there was no case.
  /// returns   their paths, in the order of the formats
  [[nodiscard]] Result<std::vector<std::string>> finish(const opcheck::Report& report);

 private:
  OpcheckWriter(const OpcheckFileOptions& files, const OpcheckTableOptions& table);
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace assay::report
