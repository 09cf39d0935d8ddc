// SPDX-License-Identifier: Apache-2.0
// Calls are merged by operation and by place among its tensors; the merged types go to the tensors
// that a node of that name has in these places.
#include "topology/shapes.hpp"

#include <charconv>

#include "base/text.hpp"
#include "formats/atb_types.hpp"
#include "formats/op_csv.hpp"

namespace assay::topology {
namespace {

constexpr size_t kMaxTensorIndex = 4096;  // an operation with more is left without types

/// "1,4096"; nothing when a dimension is no number.
std::optional<std::vector<int64_t>> dims_of(std::string_view shape) {
  std::vector<int64_t> dims;
  if (shape.empty()) return dims;
  for (std::string_view part : split(shape, ',')) {
    while (part.starts_with(' ')) part.remove_prefix(1);
    int64_t length = 0;
    const auto [end, code] = std::from_chars(part.data(), part.data() + part.size(), length);
    if (code != std::errc() || end != part.data() + part.size() || length < 0) return std::nullopt;
    dims.push_back(length);
  }
  return dims;
}

void set_types(const std::vector<TensorType>& types, const std::vector<std::string>& names,
               std::map<std::string, TensorType>* tensors) {
  for (size_t i = 0; i < types.size() && i < names.size(); ++i) {
    if (types[i].dtype.empty() && !types[i].shape) continue;
    TensorType& known = (*tensors)[names[i]];
    // Of several operations that a tensor passes the first one to know its type, or its shape,
    // wins.
    if (known.dtype.empty()) known.dtype = types[i].dtype;
    if (!known.shape && !known.rank_varies) {
      known.shape = types[i].shape;
      known.rank_varies = types[i].rank_varies;
    }
  }
}

}  // namespace

void ShapeTable::add(const std::string& op_name, bool is_input, size_t index,
                     std::string_view dtype, const std::optional<std::vector<int64_t>>& dims) {
  if (index >= kMaxTensorIndex) return;
  Operation& operation = operations_[op_name];
  std::vector<TensorType>& types = is_input ? operation.inputs : operation.outputs;
  if (types.size() <= index) types.resize(index + 1);
  merge_type(dtype, dims, &types[index]);
}

void ShapeTable::add_op_csv(std::string_view text) {
  const formats::OpCsv csv = formats::read_op_csv(text);
  for (const formats::OpCsvRow& row : csv.rows) {
    const std::string name = repair_utf8(row.op_name);
    for (size_t i = 0; i < row.inputs.size(); ++i)
      add(name, true, i, repair_utf8(row.inputs[i].dtype_text), dims_of(row.inputs[i].shape));
    for (size_t i = 0; i < row.outputs.size(); ++i)
      add(name, false, i, repair_utf8(row.outputs[i].dtype_text), dims_of(row.outputs[i].shape));
    Operation& operation = operations_[name];
    if (operation.csv_row == 0) operation.csv_row = row.case_num;
  }
}

void ShapeTable::apply(Graph* graph) const {
  for (Node& node : graph->nodes) {
    const auto found = operations_.find(node.name);
    if (found == operations_.end()) continue;
    if (node.csv_row == 0) node.csv_row = found->second.csv_row;
    set_types(found->second.inputs, node.inputs, &graph->tensors);
    set_types(found->second.outputs, node.outputs, &graph->tensors);
  }
}

int32_t onnx_element_type(std::string_view word) {
  if (word == "string") return 8;
  const std::optional<int64_t> number = formats::atb_dtype_from_text(word);
  const std::optional<DType> dtype =
      number ? formats::dtype_from_atb(*number) : dtype_from_name(word);
  if (!dtype) return 0;
  switch (*dtype) {
    case DType::Float32:
      return 1;
    case DType::UInt8:
      return 2;
    case DType::Int8:
      return 3;
    case DType::UInt16:
      return 4;
    case DType::Int16:
      return 5;
    case DType::Int32:
      return 6;
    case DType::Int64:
      return 7;
    case DType::Bool:
      return 9;
    case DType::Float16:
      return 10;
    case DType::Float64:
      return 11;
    case DType::UInt32:
      return 12;
    case DType::UInt64:
      return 13;
    case DType::Complex64:
      return 14;
    case DType::Complex128:
      return 15;
    case DType::BFloat16:
      return 16;
    default:
      return 0;  // float8 and int4 have numbers since IR version 9
  }
}

}  // namespace assay::topology
