// SPDX-License-Identifier: Apache-2.0
// Reads the statistics beside each dump file, or computes them from the dump where there are none,
// and writes the rows in the order of time. Columns without any value are left out.
#include "cli/convert/statistics_table.hpp"
#include "cli/visit_files.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <set>

#include "base/mapped_file.hpp"
#include "base/numbers.hpp"
#include "base/text.hpp"
#include "base/thread_pool.hpp"
#include "cli/convert/byte_budget.hpp"
#include "cli/convert/dump_converter.hpp"
#include "cli/convert/dump_file_name.hpp"
#include "cli/interrupt.hpp"
#include "cli/tensor_files.hpp"
#include "formats/cann_dump.hpp"
#include "formats/cann_statistics.hpp"
#include "formats/csv.hpp"
#include "run/folder.hpp"
#include "run/ge_names.hpp"
#include "stats/tensor_stats.hpp"

namespace assay::cli {
namespace {

using formats::CannStatisticsRow;

constexpr std::string_view kStatisticsSuffix = ".csv";
constexpr uint64_t kMemoryBytes = uint64_t{1} << 30;

struct File {
  std::string path;
  std::string inside;  // path below the folder that was asked for
  run::GeFileName name;
};

struct FileRows {
  std::vector<CannStatisticsRow> rows;
  std::vector<std::string> problems;
};

std::vector<File> collect(const std::string& folder, std::vector<std::string>* problems) {
  std::vector<File> files;
  std::set<std::string> with_statistics;  // dumps whose statistics lie beside them
  const auto add = [&](const run::FolderEntry& entry, const std::string& inside) {
    const bool is_statistics = entry.name.ends_with(kStatisticsSuffix);
    if (is_statistics)
      with_statistics.insert(entry.path.substr(0, entry.path.size() - kStatisticsSuffix.size()));
    if (!is_statistics && !may_be_dump(entry.name)) return;
    const auto name = run::parse_ge_file_name(entry.name);
    if (name && name->task && name->kind != run::GeFileKind::Overflow)
      files.push_back({entry.path, inside + (inside.empty() ? "" : "/") + entry.name, *name});
  };
  visit_files(folder,
              {add, [&](const std::string& sentence) { problems->push_back(sentence); }, {}});
  std::erase_if(files, [&](const File& file) { return with_statistics.contains(file.path); });
  return files;
}

FileRows read_rows(const std::string& path) {
  FileRows out;
  const auto file = MappedFile::open(path);
  auto table = file ? formats::read_cann_statistics(as_text(file->bytes()))
                    : Result<formats::CannStatistics>(fail(file.error()));
  if (!table) {
    out.problems.push_back(in_file(path, Status(fail(table.error()))).error().describe());
    return out;
  }
  out.rows = std::move(table->rows);
  for (const std::string& warning : table->warnings) out.problems.push_back(path + ": " + warning);
  return out;
}

FileRows compute_rows(const std::string& path, ByteBudget* budget) {
  FileRows out;
  const Result<OpenDump> read = open_dump(path);
  if (!read) {
    out.problems.push_back(read.error().describe());
    return out;
  }
  const formats::CannDump& dump = read->dump;
  for (const bool is_input : {true, false}) {
    const auto& tensors = is_input ? dump.inputs : dump.outputs;
    for (size_t i = 0; i < tensors.size(); ++i) {
      // Statistics of a tiled tensor are those of its values without the filling of the tiles.
      const ByteBudget::Share share(*budget, tensors[i].data.size());
      const Result<Tensor> tensor = formats::cann_tensor(tensors[i]);
      const auto index = static_cast<uint32_t>(formats::cann_operand_index(dump, tensors[i], i));
      CannStatisticsRow row;
      if (tensor) {
        row = formats::cann_statistics_row(is_input, index, tensor->view.dtype, tensor->view.shape,
                                           statistics_until_interrupted(tensor->view));
      } else {
        out.problems.push_back(in_file(path, Status(fail(tensor.error()))).error().describe());
        row.is_input = is_input;
        row.index = index;
        row.shape = tensors[i].shape;
      }
      row.size_bytes = tensors[i].size_bytes;
      row.data_type = formats::cann_dtype_name(tensors[i].data_type);
      row.format = formats::cann_format_name(tensors[i].format);
      out.rows.push_back(std::move(row));
    }
  }
  return out;
}

// ---- the table ----------------------------------------------------------------------------------

std::string number_text(const std::optional<uint64_t>& value) {
  return value ? std::to_string(*value) : std::string();
}

std::string sizes_text(const std::optional<Dims>& shape) {
  std::string text;
  for (const int64_t size : shape.value_or(Dims{}))
    text += (text.empty() ? "" : "x") + std::to_string(size);
  return text.empty() ? "-" : text;
}

/// A name from a file, which a spreadsheet must not run as a formula.
std::string harmless(const std::string& name) {
  constexpr std::string_view kFormula = "=+-@\t\r";
  const bool is_formula = !name.empty() && kFormula.find(name[0]) != std::string_view::npos;
  return is_formula ? "'" + name : name;
}

/// A column of values that may be absent.
struct ValueColumn {
  std::string_view name;
  std::optional<std::string> (*text)(const CannStatisticsRow& row);
};

template <auto Member>
std::optional<std::string> value_of(const CannStatisticsRow& row) {
  const auto& value = row.*Member;
  if (!value) return std::nullopt;
  if constexpr (std::is_same_v<std::decay_t<decltype(*value)>, double>) {
    return python_repr(*value);
  } else {
    return std::to_string(*value);
  }
}

constexpr std::array<ValueColumn, 7> kValueColumns = {{
    {"Max Value", value_of<&CannStatisticsRow::max>},
    {"Min Value", value_of<&CannStatisticsRow::min>},
    {"Avg Value", value_of<&CannStatisticsRow::average>},
    {"L2Norm Value", value_of<&CannStatisticsRow::l2_norm>},
    {"NaN Count", value_of<&CannStatisticsRow::nan>},
    {"Negative Inf Count", value_of<&CannStatisticsRow::negative_inf>},
    {"Positive Inf Count", value_of<&CannStatisticsRow::positive_inf>},
}};

std::vector<const ValueColumn*> columns_with_values(const std::vector<FileRows>& read) {
  std::vector<const ValueColumn*> columns;
  for (const ValueColumn& column : kValueColumns) {
    const bool has_values = std::any_of(read.begin(), read.end(), [&](const FileRows& file) {
      return std::any_of(file.rows.begin(), file.rows.end(), [&](const CannStatisticsRow& row) {
        return column.text(row).has_value();
      });
    });
    if (has_values) columns.push_back(&column);
  }
  return columns;
}

std::string table_text(const std::vector<File>& files, const std::vector<FileRows>& read,
                       size_t* row_count) {
  const formats::CsvOptions options{.line_end = "\n"};
  const std::vector<const ValueColumn*> columns = columns_with_values(read);
  std::vector<std::string> cells = {"Op Type",   "Op Name",      "Task ID", "Stream ID",
                                    "Timestamp", "Input/Output", "Slot",    "Data Size",
                                    "Data Type", "Format",       "Shape"};
  for (const ValueColumn* column : columns) cells.emplace_back(column->name);
  cells.emplace_back("File");
  std::string text;
  formats::append_csv_row(cells, options, &text);
  for (size_t i = 0; i < files.size(); ++i) {
    const File& file = files[i];
    for (const CannStatisticsRow& row : read[i].rows) {
      cells = {harmless(file.name.op_type),
               harmless(file.name.op_name),
               number_text(file.name.task),
               number_text(file.name.stream),
               file.name.time,
               row.is_input ? "input" : "output",
               std::to_string(row.index),
               std::to_string(row.size_bytes),
               row.data_type,
               row.format,
               sizes_text(row.shape)};
      for (const ValueColumn* column : columns) cells.push_back(column->text(row).value_or("NA"));
      cells.push_back(harmless(file.inside));
      formats::append_csv_row(cells, options, &text);
      ++*row_count;
    }
  }
  return text;
}

}  // namespace

Result<StatisticsTable> merge_statistics(const std::string& path) {
  StatisticsTable table;
  std::vector<File> files;
  if (run::is_folder(path)) {
    if (const auto listed = run::list_folder(path, run::real_path(path)); !listed)
      return fail(listed.error());
    files = collect(path, &table.problems);
  } else {
    const std::string base = run::base_name(path);
    const auto name = run::parse_ge_file_name(base);
    if (!run::is_file(path))
      return fail(Error{Errc::NotFound, path, std::nullopt, "there is no such file or folder"});
    if (name) files.push_back({path, base, *name});
  }
  if (files.empty())
    return fail(
        Error{Errc::Usage, path, std::nullopt,
              "holds no statistics ({type}.{name}.{task}.{stream}.{time}.csv) and no dump files"});
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) {
    return a.name.time != b.name.time ? a.name.time < b.name.time : a.inside < b.inside;
  });
  std::vector<FileRows> read(files.size());
  ByteBudget budget(kMemoryBytes);
  parallel_for(files.size(), resolve_job_count(0), [&](size_t i) {
    if (interrupted()) return;
    read[i] =
        files[i].name.statistics ? read_rows(files[i].path) : compute_rows(files[i].path, &budget);
  });
  for (FileRows& file : read)
    std::move(file.problems.begin(), file.problems.end(), std::back_inserter(table.problems));
  table.csv = table_text(files, read, &table.row_count);
  return table;
}

}  // namespace assay::cli
