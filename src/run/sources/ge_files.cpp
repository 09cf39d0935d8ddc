// SPDX-License-Identifier: Apache-2.0
// A folder's place is read from the components of its path, counted from the time in it where there
// is one. Records come from one of three kinds of files: dumps, reduced arrays, tables of
// statistics.
#include "run/sources/ge_files.hpp"

#include <algorithm>

#include "base/mapped_file.hpp"
#include "formats/cann_statistics.hpp"
#include "formats/cann_types.hpp"
#include "run/container.hpp"
#include "run/sources/graph_folders.hpp"

namespace assay::run::sources {
namespace {

constexpr size_t kFolderTimeDigits = 14;  // 20250102030405
constexpr std::string_view kExceptionFolder = "data-dump";

TensorRecord operand(Role role, const std::string& slot) {
  TensorRecord record;
  record.role = role;
  record.slot = slot;
  return record;
}

/// Arrays `inputs` and `outputs`, [operands, 2]: minimum and maximum of each.
Result<std::vector<TensorRecord>> list_reduced(const std::string& path,
                                               const Container& container) {
  std::vector<TensorRecord> records;
  for (const auto& [name, role] : {std::pair("inputs", Role::Input), {"outputs", Role::Output}}) {
    const Result<Tensor> array = container.tensor(name);
    if (!array && array.error().code == Errc::NotFound) continue;
    if (!array) return fail(array.error());
    const Dims& shape = array->view.shape;
    if (shape.empty()) return fail(Errc::Invalid, std::string(name) + " is no list of operands");
    for (int64_t i = 0; i < shape[0]; ++i) {
      TensorRecord record = operand(role, std::to_string(i));
      record.dtype = array->view.dtype;
      record.shape = Dims(shape.span().subspan(1));
      ByteLocation location;
      location.file = path;
      location.member = std::string(name) + "." + std::to_string(i);
      record.bytes = std::move(location);
      records.push_back(std::move(record));
    }
  }
  return records;
}

/// Counts of a table can be of any size; those of a tensor are signed.
int64_t as_count(std::optional<uint64_t> count) {
  return static_cast<int64_t>(std::min<uint64_t>(count.value_or(0), INT64_MAX));
}

/// A statistic that the table does not have is NaN: not known.
stats::TensorStats stats_of(const formats::CannStatisticsRow& row) {
  stats::TensorStats stats;
  stats.count = as_count(row.count);
  if (!row.count) stats.count = element_count(row.shape.value_or(Dims())).value_or(0);
  stats.nan_count = as_count(row.nan);
  stats.positive_inf_count = as_count(row.positive_inf);
  stats.negative_inf_count = as_count(row.negative_inf);
  stats.min = row.min.value_or(NAN);
  stats.max = row.max.value_or(NAN);
  stats.mean = row.average.value_or(NAN);
  stats.l2_norm = row.l2_norm.value_or(NAN);
  return stats;
}

Result<std::vector<TensorRecord>> list_statistics(const std::string& path,
                                                  std::vector<std::string>* warnings) {
  ASSAY_TRY(const MappedFile file, MappedFile::open(path));
  ASSAY_TRY(const formats::CannStatistics table,
            in_file(path, formats::read_cann_statistics(as_text(file.bytes()))));
  for (const std::string& warning : table.warnings) warnings->push_back(path + ": " + warning);
  std::vector<TensorRecord> records;
  for (const formats::CannStatisticsRow& row : table.rows) {
    TensorRecord record =
        operand(row.is_input ? Role::Input : Role::Output, std::to_string(row.index));
    if (const auto type = formats::cann_dtype_from_name(row.data_type))
      record.dtype = formats::dtype_from_cann(*type);
    record.shape = row.shape;
    record.stats = stats_of(row);
    record.stats_file = path;
    records.push_back(std::move(record));
  }
  return records;
}

/// Gives the operands of a dump the statistics of the table beside it: the i-th input those of the
/// table's i-th input, outputs alike, where the shapes agree.
void add_statistics(const std::vector<TensorRecord>& table, std::vector<TensorRecord>* records) {
  for (const Role role : {Role::Input, Role::Output}) {
    auto from = table.begin();
    for (TensorRecord& record : *records) {
      if (record.role != role) continue;
      from = std::find_if(from, table.end(),
                          [role](const TensorRecord& row) { return row.role == role; });
      if (from == table.end()) break;
      if (record.shape == from->shape) {
        record.stats = from->stats;
        record.stats_file = from->stats_file;
      }
      ++from;
    }
  }
}

}  // namespace

GeFolder ge_place_of(const std::string& real_folder) {
  const std::vector<std::string_view> parts = components_of(real_folder);
  GeFolder folder;
  if (const auto rank = rank_of(parts)) {
    folder.rank = *rank;
    folder.has_rank = true;
  }
  if (parts.empty()) return folder;
  const auto is_time = [](std::string_view part) {
    return is_digits(part) && part.size() == kFolderTimeDigits;
  };
  const auto time = std::find_if(parts.rbegin(), parts.rend(), is_time);
  // What stands behind the time: device, model name, model id, token, as far as the writer knew
  // them.
  const std::vector<std::string_view> behind(time.base(), parts.end());
  const bool anchored = time != parts.rend();
  if (anchored) folder.time = *time;
  if (parts.size() > 1 && parts[parts.size() - 2] == kExceptionFolder) {
    folder.is_exception = true;
    folder.device = parts.back();
    return folder;
  }
  if (anchored && !behind.empty()) folder.device = behind.front();
  if (anchored && behind.size() < 2) return folder;
  folder.has_model = true;
  folder.token = token_number(parts.back()).value_or(0);
  if (parts.size() < 2 || (anchored && behind.size() < 3)) return folder;
  folder.model_id = token_number(parts[parts.size() - 2]).value_or(0);
  if (anchored && behind.size() >= 4) folder.model_name = parts[parts.size() - 3];
  return folder;
}

Result<std::vector<TensorRecord>> list_ge_members(const GeFile& file,
                                                  std::vector<std::string>* warnings) {
  if (file.name.statistics) return list_statistics(file.path, warnings);
  ASSAY_TRY(const std::shared_ptr<const Container> container, open_container(file.path));
  if (file.path.ends_with(kReducedArrays)) return list_reduced(file.path, *container);
  ASSAY_TRY(std::vector<TensorRecord> records, container->list());
  for (TensorRecord& record : records) {
    const bool is_operand = record.role == Role::Input || record.role == Role::Output;
    if (is_operand) record.slot = record.slot.substr(record.slot.find('.') + 1);
  }
  if (!file.statistics_path.empty()) {
    // The tensors can be used without their statistics: computing them anew costs only time.
    const auto table = list_statistics(file.statistics_path, warnings);
    table ? add_statistics(*table, &records) : warnings->push_back(table.error().describe());
  }
  return records;
}

}  // namespace assay::run::sources
