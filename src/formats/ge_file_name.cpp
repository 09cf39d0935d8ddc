// SPDX-License-Identifier: Apache-2.0
// Characters that have a meaning in the name of a file become '_'; a name that is too long is
// stored under its digest, with a row in mapping.csv.   docs/formats/ge-tree.md, "File names"
#include "formats/ge_file_name.hpp"

#include <algorithm>

#include "base/bytes.hpp"
#include "formats/csv.hpp"
#include "stats/digest.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::formats {
namespace {

bool is_unsafe(char c) {
  return static_cast<unsigned char>(c) <= ' ' || c == 0x7F ||
         std::string_view("./\\<>:\"|?*").find(c) != std::string_view::npos;
}

}  // namespace

std::string ge_name_part(std::string_view text) {
  if (text.empty()) return "_";
  std::string part(text);
  std::replace_if(part.begin(), part.end(), is_unsafe, '_');
  return part;
}

std::string ge_file_name(std::string_view op_type, std::string_view op_name, int64_t task_id,
                         int64_t stream_id, uint64_t time_us) {
  std::string name = ge_name_part(op_type);
  name.append(".").append(ge_name_part(op_name));
  name.append(".").append(std::to_string(task_id));
  name.append(".").append(std::to_string(stream_id));
  name.append(".").append(std::to_string(time_us));
  return name;
}

std::string ge_stored_name(std::string_view name) {
  if (name.size() <= kMaxFileNameBytes) return std::string(name);
  const ByteSpan bytes = as_bytes(name);
  TensorView view{.dtype = DType::UInt8,
                  .shape = Dims{static_cast<int64_t>(bytes.size())},
                  .strides = Dims{1},
                  .storage = bytes};
  std::string stored = stats::digest_text(stats::digest(view));
  if (name.ends_with(".csv")) stored += ".csv";
  return stored;
}

void append_ge_mapping(const std::string& stored, const std::string& name, bool is_first,
                       std::string* rows) {
  const CsvOptions options{.line_end = "\n"};
  if (is_first) append_csv_row({"file", "name"}, options, rows);
  append_csv_row({stored, name}, options, rows);
}

}  // namespace assay::formats
