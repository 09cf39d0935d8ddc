// SPDX-License-Identifier: Apache-2.0
// Runs put together by hand, with bytes, the way a native capture at operator level has them.
#pragma once
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "locate/program/program.hpp"
#include "reference/wide.hpp"
#include "run/run.hpp"

namespace assay::locate::test {

/// A value of the run: an id, bytes, and who made it.
struct Value {
  int64_t id = -1;
  int64_t producer = -1;  // order of the output record
  std::string leaf;
  DType dtype = DType::Float32;
  Dims shape;
  uint64_t offset = 0;  // of its bytes
  uint64_t size_bytes = 0;
};

/// Values are given as doubles and rounded to the type. run() may be opened as soon as everything
/// is added.
class TestRun {
 public:
  TestRun() {
    std::string pattern = (std::filesystem::temp_directory_path() / "assay_locate_XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    run_.layout = run::Layout::Native;
    run_.path = folder_;
  }
  ~TestRun() { std::filesystem::remove_all(folder_); }
  TestRun(const TestRun&) = delete;
  TestRun& operator=(const TestRun&) = delete;

  int rank = 0;
  int64_t step = 0;
  uint32_t call = 0;  // of the module

  Value value(DType dtype, const Dims& shape, const std::vector<double>& values) {
    Value made;
    made.id = next_id_++;
    made.dtype = dtype;
    made.shape = shape;
    reference::Wide wide(shape);
    EXPECT_EQ(static_cast<size_t>(wide.size()), values.size());
    std::copy(values.begin(), values.end(), wide.values.begin());
    const Tensor narrow =
        reference::narrow(reference::to_tensor(std::move(wide)).view, dtype).value();
    made.offset = bytes_.size();
    const ByteSpan bytes = narrow.view.contiguous_bytes();
    made.size_bytes = bytes.size();
    bytes_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return made;
  }
  Value leaf(const std::string& name, DType dtype, const Dims& shape,
             const std::vector<double>& values) {
    Value made = value(dtype, shape, values);
    made.leaf = name;
    return made;
  }

  using Inputs = std::vector<std::pair<std::string, Value>>;

  /// Runs an operator with one output, whose values are given. Returns the output.
  Value op(const std::string& module, const std::string& name, const Inputs& inputs,
           const std::string& arguments, Value output) {
    begin_op(module, name, inputs, arguments);
    return add_output("", std::move(output));
  }
  void begin_op(const std::string& module, const std::string& name, const Inputs& inputs,
                const std::string& arguments) {
    run::OperationRecord operation;
    operation.rank = rank;
    operation.step = step;
    operation.module = module;
    operation.module_call = call;
    operation.op_type = name;
    operation.parameters = arguments;
    operation.order = run_.records.size();
    int number = 0;
    for (const run::OperationRecord& other : run_.operations) {
      number += other.rank == rank && other.step == step && other.module == module &&
                other.module_call == call && other.op_type == name;
    }
    operation.node = module + "::" + name + "." + std::to_string(number);
    node_ = operation.node;
    type_ = name;
    run_.operations.push_back(operation);
    for (const auto& [slot, input] : inputs) add(node_, type_, Role::Input, slot, input);
  }
  Value add_output(const std::string& slot, Value output) {
    output.producer = add(node_, type_, Role::Output, slot, output);
    output.leaf.clear();
    return output;
  }
  void module_input(const std::string& module, const std::string& slot, const Value& input) {
    add(module, "Module", Role::Input, slot, input);
  }
  void module_output(const std::string& module, const Value& output) {
    add(module, "Module", Role::Output, "", output);
  }
  /// Of step -1, as weights=True records them.
  void weight(const std::string& module, const std::string& slot, const Value& weight) {
    const int64_t running = std::exchange(step, -1);
    add(module, "Module", Role::Weight, slot, weight);
    step = running;
  }

  [[nodiscard]] run::Run& run() {
    std::ofstream(folder_ + "/bytes", std::ios::binary) << bytes_;
    return run_;
  }
  [[nodiscard]] Program program() { return make_program(run()); }

 private:
  int64_t add(const std::string& node, const std::string& type, Role role, const std::string& slot,
              const Value& value) {
    run::TensorRecord record;
    record.rank = rank;
    record.step = step;
    record.step_name = std::to_string(step);
    record.node = node;
    record.op_type = type;
    record.role = role;
    record.slot = slot;
    record.call = call;
    record.order = run_.records.size();
    record.dtype = value.dtype;
    record.shape = value.shape;
    record.strides = contiguous_strides(value.shape);
    record.bytes = run::ByteLocation{folder_ + "/bytes", "", value.offset, value.size_bytes, true};
    record.value_id = value.id;
    if (role == Role::Input) record.producer = value.producer;
    record.leaf = value.leaf;
    run_.records.push_back(record);
    return static_cast<int64_t>(record.order);
  }

  run::Run run_;
  std::string folder_;
  std::string bytes_;
  std::string node_;  // of the running operator
  std::string type_;
  int64_t next_id_ = 0;
};

}  // namespace assay::locate::test
