// SPDX-License-Identifier: Apache-2.0
#include "formats/cann_dump.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "formats/test_support.hpp"

namespace assay::formats {
namespace {

std::string floats(std::initializer_list<float> list) {
  std::string out;
  for (const float value : list) append(out, value);
  return out;
}

CannTensor float_tensor(const Dims& shape, const std::string& data) {
  CannTensor tensor;
  tensor.data_type = 1;
  tensor.format = kCannFormatNd;
  tensor.shape = shape;
  tensor.original_shape = shape;
  tensor.size_bytes = data.size();
  tensor.data = as_bytes(data);
  return tensor;
}

/// Header and payload as they stand in a file.
std::string file_of(const CannDump& dump) {
  const auto header = cann_dump_header(dump);
  EXPECT_TRUE(header.has_value()) << header.error().describe();
  if (!header) return {};
  std::string file(as_text(*header));
  for (const auto* list : {&dump.inputs, &dump.outputs}) {
    for (const CannTensor& tensor : *list) file += as_text(tensor.data);
  }
  const bool is_exception = !dump.message.empty();
  for (const auto* list : {is_exception ? &dump.workspaces : &dump.buffers,
                           is_exception ? &dump.buffers : &dump.workspaces}) {
    for (const CannBuffer& buffer : *list) file += as_text(buffer.data);
  }
  return file;
}

TEST(CannDumpHeader, GivesTheWorkedExampleByteForByte) {
  // docs/formats/cann-dump.md explains these 110 bytes.
  constexpr std::string_view kHex =
      "5200000000000000"
      "0a03322e3010c0c4bff6de969003"
      "1a1908011002"
      "1a030a0102"
      "22070a03616464200230083a030a0102"
      "2210080110021a030a0102280832030a0102"
      "220a080110021a0028043200"
      "32096d6f64656c2f616464"
      "0000803f000000c00000003f0000c03f0000c0bf";
  const std::string x = floats({1, -2});
  const std::string y = floats({0.5});
  const std::string sum = floats({1.5, -1.5});
  CannDump dump;
  dump.dump_time_us = 1760000000123456;
  dump.op_name = "model/add";
  dump.inputs = {float_tensor({2}, x), float_tensor({}, y)};
  dump.outputs = {float_tensor({2}, sum)};
  dump.outputs[0].origin = CannOrigin{"add", 0, 0, 2};

  const std::string file = file_of(dump);

  std::string hex;
  for (const char c : file) {
    hex += "0123456789abcdef"[static_cast<uint8_t>(c) >> 4];
    hex += "0123456789abcdef"[static_cast<uint8_t>(c) & 15];
  }
  EXPECT_EQ(hex, kHex);
}

TEST(CannDumpHeader, WritesEveryField) {
  const std::string data = floats({1});
  CannDump dump;
  dump.op_name = "op";
  dump.message = "why";
  dump.attributes = {{"key", "value"}};
  dump.inputs = {float_tensor({1}, data)};
  dump.inputs[0].input_type = 3;
  dump.outputs = {float_tensor({1}, data)};
  CannTensor& output = dump.outputs[0];
  output.sub_format = -2;
  output.address = ~uint64_t{0};
  output.offset = uint64_t{1} << 40;
  output.arg_index = 7;
  output.dim_range = {{0, 5}, {2, 0}};
  output.origin = CannOrigin{"mm", -1, 28, 29};
  dump.buffers = {{0, 2, 0, as_bytes("BB"), ""}};
  dump.workspaces = {{4, 3, 9, as_bytes("WWW"), ""}};

  const std::string file = file_of(dump);
  const CannDump back = read_cann_dump(as_bytes(file)).value();

  EXPECT_EQ(back.message, "why");
  EXPECT_EQ(back.attributes.at(0).name + "=" + back.attributes[0].value, "key=value");
  EXPECT_EQ(back.inputs.at(0).input_type, 3u);
  const CannTensor& got = back.outputs.at(0);
  EXPECT_EQ(got.sub_format, -2);
  EXPECT_EQ(got.address, ~uint64_t{0});
  EXPECT_EQ(got.offset, uint64_t{1} << 40);
  EXPECT_EQ(got.arg_index, 7u);
  EXPECT_EQ(got.dim_range, output.dim_range);
  EXPECT_EQ(got.origin, output.origin);
  EXPECT_EQ(as_text(back.buffers.at(0).data), "BB");
  EXPECT_EQ(as_text(back.workspaces.at(0).data), "WWW");
  EXPECT_EQ(back.workspaces[0].type, 4);
  EXPECT_EQ(back.workspaces[0].arg_index, 9u);
  EXPECT_TRUE(back.warnings.empty());
}

TEST(CannDumpHeader, KeepsIndicesOfOperandsWhenOthersAreLeftOut) {
  const std::string data = floats({1});
  CannDump dump;
  dump.inputs = {float_tensor({1}, data), float_tensor({1}, data)};
  dump.inputs[0].arg_index = 0;
  dump.inputs[1].arg_index = 3;
  dump.has_operand_indices = true;

  const std::string file = file_of(dump);
  const CannDump back = read_cann_dump(as_bytes(file)).value();

  EXPECT_TRUE(back.has_operand_indices);
  EXPECT_TRUE(back.attributes.empty());  // the mark is no attribute of the operator
  EXPECT_EQ(cann_operand_index(back, back.inputs.at(0), 0), 0u);
  EXPECT_EQ(cann_operand_index(back, back.inputs.at(1), 1), 3u);
}

TEST(CannDumpHeader, TakesNoArgumentOfAKernelForAnOperandsIndex) {
  const std::string data = floats({1});
  CannDump dump;
  dump.outputs = {float_tensor({1}, data)};
  dump.outputs[0].arg_index = 5;  // as after an exception
  const std::string file = file_of(dump);
  const CannDump back = read_cann_dump(as_bytes(file)).value();
  EXPECT_EQ(cann_operand_index(back, back.outputs.at(0), 0), 0u);
}

TEST(CannDumpHeader, RefusesWhatAReaderCouldNotFindAgain) {
  const std::string data = floats({1});
  CannDump dump;
  dump.inputs = {float_tensor({1}, data)};
  dump.inputs[0].size_bytes = 8;
  EXPECT_EQ(cann_dump_header(dump).error().code, Errc::Invalid);
  EXPECT_NE(cann_dump_header(dump).error().message.find("input 0"), std::string::npos);
  dump.inputs = {float_tensor({-1}, data)};
  EXPECT_EQ(cann_dump_header(dump).error().code, Errc::Invalid);
}

RC_GTEST_PROP(CannDumpHeader, ReadsBackAnyTensor, ()) {
  const auto tensor = random_tensor([](DType dtype) { return cann_from_dtype(dtype).has_value(); });
  CannDump dump;
  dump.dump_time_us = *rc::gen::arbitrary<uint64_t>();
  dump.op_name = *rc::gen::arbitrary<std::string>();
  CannTensor operand;
  operand.data_type = cann_from_dtype(tensor->view.dtype).value();
  operand.format = *rc::gen::inRange(0, 50);
  operand.shape = cann_shape(tensor->view.dtype, tensor->view.shape);
  operand.original_shape = operand.shape;
  operand.size_bytes = tensor->bytes.size();
  operand.data = as_bytes(tensor->bytes);
  dump.outputs = {operand, operand};

  const std::string file = file_of(dump);
  // Without an operand's bytes nothing tells where the next one starts; an empty header is no dump
  // either.
  RC_PRE(file.size() > 8);
  const auto back = read_cann_dump(as_bytes(file));

  RC_ASSERT(back.has_value());
  RC_ASSERT(back->dump_time_us == dump.dump_time_us);
  RC_ASSERT(back->op_name == dump.op_name);
  RC_ASSERT(back->warnings.empty());
  for (const CannTensor& output : back->outputs) {
    RC_ASSERT(output.data_type == operand.data_type);
    RC_ASSERT(output.format == operand.format);
    RC_ASSERT(output.shape == operand.shape);
    RC_ASSERT(output.original_shape == operand.shape);
    RC_ASSERT(as_text(output.data) == tensor->bytes);
  }
}

TEST(CannTypes, NumberTypesInBothWays) {
  EXPECT_EQ(cann_from_dtype(DType::Float32), 1);
  EXPECT_EQ(cann_runtime_from_dtype(DType::Float32), 0);
  EXPECT_EQ(cann_from_dtype(DType::Int32), 7);
  EXPECT_EQ(cann_runtime_from_dtype(DType::Int32), 3);
  EXPECT_EQ(cann_from_dtype(DType::Int8), 3);
  EXPECT_EQ(cann_runtime_from_dtype(DType::Int8), 2);
  EXPECT_EQ(cann_from_dtype(DType::Float8E4M3FN), 35);
  EXPECT_EQ(cann_runtime_from_dtype(DType::Float8E4M3FN), 36);
  EXPECT_EQ(cann_from_dtype(DType::Bits8), std::nullopt);
  EXPECT_EQ(cann_runtime_from_dtype(DType::Bits8), std::nullopt);
  EXPECT_EQ(cann_from_runtime(0), 1);
  EXPECT_EQ(cann_from_runtime(28), 0);
  EXPECT_EQ(cann_from_runtime(5), -1);
  EXPECT_EQ(cann_from_runtime(99), -1);
}

TEST(CannTypes, CountValuesOfPairedFloat4) {
  EXPECT_EQ(cann_from_dtype(DType::Float4E2M1FNx2), 39);
  EXPECT_EQ(cann_shape(DType::Float4E2M1FNx2, {3, 4}), (Dims{3, 8}));
  EXPECT_EQ(cann_shape(DType::Float4E2M1FNx2, {}), Dims{2});
  EXPECT_EQ(cann_shape(DType::Float32, {3, 4}), (Dims{3, 4}));
}

TEST(CannTypes, NameTypes) {
  EXPECT_EQ(cann_dtype_name(1), "DT_FLOAT");
  EXPECT_EQ(cann_dtype_name(27), "DT_BF16");
  EXPECT_EQ(cann_dtype_name(40), "DT_FLOAT4_E1M2");
  EXPECT_EQ(cann_dtype_name(-1), "DT_UNDEFINED");
  EXPECT_EQ(cann_dtype_name(43), "DT_UNDEFINED");
  EXPECT_EQ(cann_dtype_from_name("DT_BF16"), 27);
  EXPECT_EQ(cann_dtype_from_name("bf16"), std::nullopt);
}

}  // namespace
}  // namespace assay::formats
