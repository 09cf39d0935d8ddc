// SPDX-License-Identifier: Apache-2.0
// Tables grow case by case under a name with .tmp while the run goes on; workbook and page are
// written at the end. Without a table a spare one is kept until these are on disk.
#include "report/opcheck_files.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "base/atomic_file.hpp"
#include "base/file_descriptor.hpp"
#include "report/files.hpp"
#include "report/html/opcheck_page.hpp"
#include "report/mark.hpp"
#include "report/xlsx.hpp"

namespace assay::report {
namespace {

constexpr const char* kSheet = "opcheck_result";

/// A file that grows by whole cases under the name it will have, followed by ".tmp".
class LiveFile {
 public:
  static Result<LiveFile> create(const std::string& final_path, std::string format) {
    LiveFile file;
    file.final_path_ = final_path;
    file.path_ = final_path + ".tmp";
    file.format_ = std::move(format);
    file.fd_ = above_standard_streams(
        ::open(file.path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kReportMode));
    if (file.fd_ < 0) return fail(errno_error(errno, "create", file.path_));
    return file;
  }
  LiveFile(LiveFile&& other) noexcept { *this = std::move(other); }
  LiveFile& operator=(LiveFile&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(path_, other.path_);
    std::swap(final_path_, other.final_path_);
    std::swap(format_, other.format_);
    std::swap(empty_, other.empty_);
    return *this;
  }
  LiveFile(const LiveFile&) = delete;
  LiveFile& operator=(const LiveFile&) = delete;
  ~LiveFile() {
    if (fd_ >= 0) ::close(fd_);
  }

  [[nodiscard]] const std::string& format() const { return format_; }
  [[nodiscard]] const std::string& final_path() const { return final_path_; }

  /// One write(2) a case.
  Status append(const Table& rows) {
    std::string text;
    if (format_ == "jsonl") {
      text = jsonl_text(rows, false);
    } else {
      text = csv_text(rows, true);
      if (!empty_) text.erase(0, text.find('\n') + 1);  // columns have no line feed in their names
    }
    empty_ = false;
    return write_all(fd_, as_bytes(text), path_);
  }

  Status keep() {
    const int fd = std::exchange(fd_, -1);
    if (::close(fd) != 0) return fail(errno_error(errno, "close", path_));
    if (::rename(path_.c_str(), final_path_.c_str()) != 0)
      return fail(errno_error(errno, "rename into place", path_));
    return {};
  }

  void drop() {
    ::close(std::exchange(fd_, -1));
    ::unlink(path_.c_str());
  }

 private:
  LiveFile() = default;
  int fd_ = -1;
  std::string path_;
  std::string final_path_;
  std::string format_;
  bool empty_ = true;
};

void append_case(const opcheck::CaseResult& result, const OpcheckTable& rows, Table* table) {
  for (Cells& cells : rows.rows(result)) table->rows.push_back(std::move(cells));
}

// A table of a workbook, with the place in the report that each row comes from.
struct CaseTable {
  Table table;
  std::vector<OutputPlace> outputs = {};
};

void append_case(const opcheck::Report& report, size_t number, const OpcheckTable& rows,
                 CaseTable* to) {
  append_case(report.cases[number], rows, &to->table);
  for (size_t i = 0; i < report.cases[number].rows.size(); ++i) to->outputs.push_back({number, i});
}

// The first reason of each type leads to its row.
void link_reasons(const opcheck::Report& report, const std::vector<CaseTable>& tables,
                  Table* summary) {
  const std::vector<OpcheckTotals> totals = opcheck_totals(report);
  for (size_t row = 0; row < totals.size(); ++row) {
    for (size_t t = 0; t < tables.size(); ++t) {
      const std::vector<OutputPlace>& outputs = tables[t].outputs;
      const auto found = std::ranges::find(outputs, totals[row].first);
      if (found == outputs.end()) continue;
      summary->links.push_back({.row = row,
                                .column = summary->columns.size() - 1,
                                .table = t,
                                .target = static_cast<size_t>(found - outputs.begin())});
    }
  }
}

Status write_workbook(const opcheck::Report& report, const OpcheckTable& rows,
                      const ByteSink& sink) {
  std::vector<CaseTable> cases = {{{kSheet, rows.columns(), {}}},
                                  {{"addition_failed_cases", rows.columns(), {}}}};
  for (size_t i = 0; i < report.cases.size(); ++i)
    append_case(report, i, rows, &cases[report.cases[i].description.in_table ? 0 : 1]);
  std::erase_if(cases, [](const CaseTable& one) { return one.table.rows.empty(); });
  Table summary = build_opcheck_summary(report);
  link_reasons(report, cases, &summary);
  std::vector<Table> tables;
  for (CaseTable& one : cases) tables.push_back(std::move(one.table));
  tables.push_back(std::move(summary));
  std::ranges::for_each(tables, [](Table& table) { mark_cells(&table); });
  return write_xlsx(tables, {.opens_on = tables.size() - 1}, sink);
}

bool is_live(const std::string& format) { return format == "csv" || format == "jsonl"; }

/// A name that neither a report nor one that is being written has.
std::string free_live_path(const std::string& folder, const std::string& stem,
                           const std::string& ending) {
  std::string path = free_path(folder, stem, ending);
  for (int n = 1; ::access((path + ".tmp").c_str(), F_OK) == 0; ++n)
    path = free_path(folder, stem + "_" + std::to_string(n), ending);
  return path;
}

}  // namespace

std::string opcheck_timestamp() {
  std::string text = utc_timestamp();
  text.insert(8, "_");
  return text;
}

struct OpcheckWriter::State {
  OpcheckFileOptions files;
  OpcheckTable table;
  std::vector<LiveFile> live = {};
  Table rows = {};     // of the case that was added last
  bool spare = false;  // the only live file was not asked for and goes when the others are written
  size_t added = 0;    // cases in the live files

  [[nodiscard]] std::string stem() const { return "opcheck_result_" + files.timestamp; }

  Status create(const std::string& format) {
    ASSAY_TRY(LiveFile file,
              LiveFile::create(free_live_path(files.folder, stem(), "." + format), format));
    live.push_back(std::move(file));
    return {};
  }

  Status add(const opcheck::CaseResult& result) {
    if (rows.columns.empty()) rows = {kSheet, table.columns(), {}};
    rows.rows = {};
    append_case(result, table, &rows);
    for (LiveFile& file : live) ASSAY_TRY_STATUS(file.append(rows));
    ++added;
    return {};
  }

  void drop() {
    for (LiveFile& file : live) file.drop();
    live.clear();
  }

  Result<std::string> write_whole(const std::string& format, const opcheck::Report& report) {
    const std::string path = free_path(files.folder, stem(), "." + format);
    if (format == "html") ASSAY_TRY_STATUS(write_page(path, report));
    if (format == "xlsx") {
      const auto write = [&](const ByteSink& sink) { return write_workbook(report, table, sink); };
      ASSAY_TRY_STATUS(write_pieces_atomically(path, write, kReportMode));
    }
    return path;
  }

  Status write_page(const std::string& path, const opcheck::Report& report) const {
    return html::write_page(html::opcheck_page(report, table), path);
  }
};

OpcheckWriter::OpcheckWriter(const OpcheckFileOptions& files, const OpcheckTableOptions& table)
    : state_(std::make_unique<State>(files, OpcheckTable(table))) {}
OpcheckWriter::OpcheckWriter(OpcheckWriter&&) noexcept = default;
OpcheckWriter& OpcheckWriter::operator=(OpcheckWriter&&) noexcept = default;
OpcheckWriter::~OpcheckWriter() = default;

Result<OpcheckWriter> OpcheckWriter::open(const OpcheckFileOptions& files,
                                          const OpcheckTableOptions& table) {
  for (const std::string& format : files.formats) {
    if (!is_live(format) && format != "xlsx" && format != "html")
      return fail(Errc::Usage, "a report cannot be written as '" + format + "'");
  }
  ASSAY_TRY_STATUS(make_directories(files.folder, 0750));
  OpcheckWriter writer(files, table);
  State& state = *writer.state_;
  for (const std::string& format : files.formats) {
    if (is_live(format)) ASSAY_TRY_STATUS(state.create(format));
  }
  state.spare = state.live.empty();
  if (state.spare) ASSAY_TRY_STATUS(state.create("jsonl"));
  return writer;
}

Status OpcheckWriter::add(const opcheck::CaseResult& result) {
  Status added = state_->add(result);
  if (!added) state_->drop();
  return added;
}

Result<std::vector<std::string>> OpcheckWriter::finish(const opcheck::Report& report) {
  State& state = *state_;
  if (report.cases.empty()) {
    state.drop();
    return std::vector<std::string>{};
  }
  // What an interrupted run finished out of order.
  while (state.added < report.cases.size()) ASSAY_TRY_STATUS(add(report.cases[state.added]));
  // Tables that grew with the run are whole and only renamed. The spare one, which nobody asked for,
  // is kept only when a report that was asked for cannot be written.
  if (!state.spare) {
    for (LiveFile& file : state.live) ASSAY_TRY_STATUS(file.keep());
  }
  std::vector<std::string> paths;
  for (const std::string& format : state.files.formats) {
    if (is_live(format)) {
      const auto file = std::find_if(state.live.begin(), state.live.end(),
                                     [&](const LiveFile& one) { return one.format() == format; });
      paths.push_back(file->final_path());
      continue;
    }
    Result<std::string> path = state.write_whole(format, report);
    if (!path && state.spare) ASSAY_TRY_STATUS(state.live.front().keep());
    ASSAY_TRY(std::string written, std::move(path));
    paths.push_back(std::move(written));
  }
  if (!state.files.page.empty()) {
    ASSAY_TRY_STATUS(state.write_page(state.files.page, report));
    paths.push_back(state.files.page);
  }
  if (state.spare) state.drop();
  return paths;
}

}  // namespace assay::report
