// SPDX-License-Identifier: Apache-2.0
#include "formats/cann_dump.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>

#include "base/mapped_file.hpp"
#include "formats/detect.hpp"
#include "formats/test_support.hpp"

namespace assay::formats {
namespace {

// ---- a protobuf encoder of its own, so that reader and test share no code -----------------------

std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(0x80 | (value & 0x7F)));
  out.push_back(static_cast<char>(value));
  return out;
}
std::string number(uint32_t field, uint64_t value) { return varint(field << 3) + varint(value); }
std::string bytes(uint32_t field, const std::string& content) {
  return varint(field << 3 | 2) + varint(content.size()) + content;
}
std::string shape_message(const std::vector<uint64_t>& sizes) {
  std::string packed;
  for (const uint64_t size : sizes) packed += varint(size);
  return sizes.empty() ? "" : bytes(1, packed);
}
std::string file_of(const std::string& header, const std::string& payload) {
  std::string file;
  append(file, static_cast<uint64_t>(header.size()));
  return file + header + payload;
}

struct Operand {
  uint64_t type = 1;  // float32
  uint64_t format = 2;
  std::vector<uint64_t> shape;
  std::vector<uint64_t> original;
  uint64_t size = 0;
  uint64_t address = 0x1000;
};
std::string input_field(const Operand& o) {
  return bytes(4, number(1, o.type) + number(2, o.format) + bytes(3, shape_message(o.shape)) +
                      number(5, o.size) + bytes(6, shape_message(o.original)) +
                      (o.address == 0 ? "" : number(8, o.address)));
}
std::string output_field(const Operand& o) {
  return bytes(3, number(1, o.type) + number(2, o.format) + bytes(3, shape_message(o.shape)) +
                      number(6, o.size) + bytes(7, shape_message(o.original)) +
                      (o.address == 0 ? "" : number(9, o.address)));
}
const std::string kVersion2 = bytes(1, "2.0");

/// A dump together with the bytes that its tensors borrow.
struct OpenDump : CannDump {
  std::shared_ptr<const std::string> file;
};
OpenDump read(std::string file) {
  OpenDump open;
  open.file = std::make_shared<const std::string>(std::move(file));
  auto dump = read_cann_dump(as_bytes(*open.file));
  EXPECT_TRUE(dump.has_value()) << dump.error().describe();
  if (dump) static_cast<CannDump&>(open) = *std::move(dump);
  return open;
}
Errc error_of(const std::string& file) {
  const auto dump = read_cann_dump(as_bytes(file));
  EXPECT_FALSE(dump.has_value());
  return dump ? Errc::Internal : dump.error().code;
}

std::vector<double> values(const CannTensor& tensor) {
  const auto loaded = cann_tensor(tensor);
  EXPECT_TRUE(loaded.has_value()) << loaded.error().describe();
  return loaded ? values_of(loaded->view) : std::vector<double>{};
}

std::string floats(std::initializer_list<float> list) {
  std::string out;
  for (const float value : list) append(out, value);
  return out;
}
/// 0, 1, 2, ... as int16.
std::string counting(size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) append(out, static_cast<int16_t>(i));
  return out;
}
constexpr uint64_t kInt16 = 5;

// ---- the current layout -------------------------------------------------------------------------

// docs/formats/cann-dump.md explains these 110 bytes.
const std::string kAdd = [] {
  const std::string_view hex =
      "5200000000000000"
      "0a03322e3010c0c4bff6de969003"
      "1a1908011002"
      "1a030a0102"
      "22070a03616464200230083a030a0102"
      "2210080110021a030a010228083203"
      "0a0102"
      "220a080110021a0028043200"
      "32096d6f64656c2f616464"
      "0000803f000000c00000003f0000c03f0000c0bf";
  std::string out;
  for (size_t i = 0; i < hex.size(); i += 2)
    out.push_back(static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  return out;
}();

TEST(ReadCannDump, ReadsTheWorkedExample) {
  ASSERT_EQ(kAdd.size(), 110u);
  const OpenDump dump = read(kAdd);
  EXPECT_EQ(dump.version, "2.0");
  EXPECT_EQ(dump.dump_time_us, 1760000000123456u);
  EXPECT_EQ(dump.op_name, "model/add");
  ASSERT_EQ(dump.inputs.size(), 2u);
  ASSERT_EQ(dump.outputs.size(), 1u);
  EXPECT_EQ(values(dump.inputs[0]), (std::vector<double>{1, -2}));
  EXPECT_EQ(dump.inputs[1].shape, Dims{});
  EXPECT_EQ(values(dump.inputs[1]), std::vector<double>{0.5});
  EXPECT_EQ(values(dump.outputs[0]), (std::vector<double>{1.5, -1.5}));
  EXPECT_EQ(dump.outputs[0].original_shape, Dims{2});
  EXPECT_EQ(dump.outputs[0].origin, (CannOrigin{"add", 0, 0, 2}));
  EXPECT_TRUE(dump.warnings.empty());
}

TEST(ReadCannDump, BorrowsThePayload) {
  const OpenDump dump = read(kAdd);
  const Tensor output = cann_tensor(dump.outputs[0]).value();
  EXPECT_EQ(output.owner, nullptr);
  EXPECT_EQ(output.view.storage.data(), as_bytes(*dump.file).data() + 102);
}

TEST(ReadCannDump, GivesEveryFieldOfTheHeader) {
  const std::string header =
      kVersion2 +
      bytes(3, number(1, 1) + number(2, 29) + bytes(3, shape_message({1})) +
                   bytes(4, bytes(1, "mm") + number(2, 0xFFFFFFFF)) + number(6, 4) + number(8, 3) +
                   number(9, 77) + bytes(10, number(1, 2) + number(2, 5)) + number(11, 88) +
                   number(12, 6)) +
      bytes(5, number(1, 0) + number(3, 2)) + bytes(7, bytes(1, "key") + bytes(2, "value")) +
      bytes(8, number(1, 0) + number(3, 3) + number(4, 9)) + bytes(9, "why");
  const OpenDump dump = read(file_of(header, floats({1}) + "WWWBB"));
  EXPECT_EQ(dump.message, "why");
  ASSERT_EQ(dump.attributes.size(), 1u);
  EXPECT_EQ(dump.attributes[0].name + "=" + dump.attributes[0].value, "key=value");
  const CannTensor& output = dump.outputs.at(0);
  EXPECT_EQ(output.origin->output_index, -1);
  EXPECT_EQ(output.sub_format, 3);
  EXPECT_EQ(output.address, 77u);
  EXPECT_EQ(output.offset, 88u);
  EXPECT_EQ(output.arg_index, 6u);
  EXPECT_EQ(output.dim_range, (std::vector<std::pair<uint64_t, uint64_t>>{{2, 5}}));
  EXPECT_EQ(as_text(dump.buffers.at(0).data), "BB");
  EXPECT_EQ(as_text(dump.workspaces.at(0).data), "WWW");
  EXPECT_EQ(dump.workspaces[0].arg_index, 9u);
}

TEST(ReadCannDump, SkipsFieldsItDoesNotKnow) {
  // An unknown number, a known number of another wire type, a fixed64.
  const std::string header = kVersion2 + number(90, 1) + number(6, 5) + varint(91 << 3 | 1) +
                             std::string(8, 'x') + bytes(6, "op");
  EXPECT_EQ(read(file_of(header, "")).op_name, "op");
}

TEST(ReadCannDump, UsesTheFirstBytesOfAPaddedTensor) {
  const std::string header = kVersion2 + input_field({.shape = {1}, .original = {1}, .size = 8}) +
                             input_field({.shape = {1}, .original = {1}, .size = 4});
  const OpenDump dump = read(file_of(header, floats({1, 99, 2})));
  EXPECT_EQ(values(dump.inputs[0]), std::vector<double>{1});
  EXPECT_EQ(values(dump.inputs[1]), std::vector<double>{2});
}

TEST(ReadCannDump, FindsTheOthersWhenOneTensorHadNoAddress) {
  const std::string header = kVersion2 +
                             input_field({.shape = {2}, .original = {2}, .size = 8, .address = 0}) +
                             input_field({.shape = {1}, .original = {1}, .size = 4});
  const OpenDump dump = read(file_of(header, floats({7})));
  EXPECT_FALSE(cann_tensor(dump.inputs[0]).has_value());
  EXPECT_NE(dump.inputs[0].problem.find("no address"), std::string::npos);
  EXPECT_EQ(values(dump.inputs[1]), std::vector<double>{7});
  EXPECT_EQ(dump.warnings.size(), 1u);
}

TEST(ReadCannDump, KeepsWhatLiesBeforeTheEndOfACutFile) {
  const std::string header = kVersion2 + input_field({.shape = {1}, .original = {1}, .size = 4}) +
                             output_field({.shape = {2}, .original = {2}, .size = 8});
  const OpenDump dump = read(file_of(header, floats({3, 4})));  // 4 bytes of the output are missing
  EXPECT_EQ(values(dump.inputs[0]), std::vector<double>{3});
  EXPECT_EQ(cann_tensor(dump.outputs[0]).error().code, Errc::Truncated);
  EXPECT_EQ(dump.warnings.size(), 1u);
}

TEST(ReadCannDump, FindsTheOthersWhenSeveralTensorsHadNoAddress) {
  const std::string header =
      kVersion2 + input_field({.shape = {2}, .original = {2}, .size = 8, .address = 0}) +
      input_field({.shape = {1}, .original = {1}, .size = 4}) +
      output_field({.shape = {3}, .original = {3}, .size = 12, .address = 0});
  const OpenDump dump = read(file_of(header, floats({7})));
  EXPECT_NE(dump.inputs[0].problem.find("no address"), std::string::npos);
  EXPECT_EQ(values(dump.inputs[1]), std::vector<double>{7});
  EXPECT_NE(dump.outputs[0].problem.find("no address"), std::string::npos);
}

TEST(ReadCannDump, SaysThatAFileIsCutWhenItsWriterGaveNoAddresses) {
  const std::string header = kVersion2 +
                             input_field({.shape = {1}, .original = {1}, .size = 4, .address = 0}) +
                             output_field({.shape = {2}, .original = {2}, .size = 8, .address = 0});
  const OpenDump dump = read(file_of(header, floats({3, 4})));
  EXPECT_EQ(values(dump.inputs[0]), std::vector<double>{3});
  EXPECT_NE(dump.outputs[0].problem.find("the file ends"), std::string::npos);
}

TEST(ReadCannDump, ReadsBuffersBeforeWorkspacesUnlessThereWasAnException) {
  const std::string operands = bytes(5, number(3, 2)) + bytes(8, number(3, 3));
  const OpenDump normal = read(file_of(kVersion2 + operands, "BBWWW"));
  EXPECT_EQ(as_text(normal.buffers.at(0).data), "BB");
  EXPECT_EQ(as_text(normal.workspaces.at(0).data), "WWW");
  const OpenDump exception = read(file_of(kVersion2 + operands + bytes(9, "why"), "WWWBB"));
  EXPECT_EQ(as_text(exception.buffers.at(0).data), "BB");
  EXPECT_EQ(as_text(exception.workspaces.at(0).data), "WWW");
}

TEST(ReadCannDump, FindsTensorsBeyondFourGigabytes) {
  // 5 GiB of holes: the file takes two blocks on the disk.
  const uint64_t size = uint64_t{5} << 30;
  const std::string header =
      kVersion2 + input_field({.type = 4, .shape = {size}, .original = {size}, .size = size}) +
      output_field({.shape = {1}, .original = {1}, .size = 4});
  const std::string start = file_of(header, "");
  const std::string path = testing::TempDir() + "cann_dump_5_gib";
  {
    std::ofstream file(path, std::ios::binary);
    file << start;
    file.seekp(static_cast<std::streamoff>(start.size() + size - 1));
    file << 'x' << floats({42});
  }
  const auto mapped = MappedFile::open(path);
  ASSERT_TRUE(mapped.has_value()) << mapped.error().describe();
  const CannDump dump = read_cann_dump(mapped->bytes()).value();
  EXPECT_TRUE(dump.warnings.empty());
  EXPECT_EQ(values(dump.outputs.at(0)), std::vector<double>{42});
  const Tensor input = cann_tensor(dump.inputs.at(0)).value();
  EXPECT_EQ(input.view.element_count(), int64_t{5} << 30);
  double last = 0;
  read_values(input.view, input.view.element_count() - 1, 1, std::span(&last, 1));
  EXPECT_EQ(last, 'x');
  std::remove(path.c_str());
}

TEST(ReadCannDump, RefusesWhatIsNoDump) {
  EXPECT_EQ(error_of(""), Errc::Truncated);
  EXPECT_EQ(error_of("12345678"), Errc::Truncated);
  EXPECT_EQ(error_of(std::string(100, '\0')), Errc::Invalid);
  EXPECT_EQ(error_of(std::string(100, '\x7f')), Errc::Truncated);  // a header of 2^62 bytes
  EXPECT_EQ(error_of(file_of("\xff\xff\xff\xff", "")), Errc::Invalid);
}

TEST(ReadCannDump, SurvivesHostileSizes) {
  const uint64_t most = ~uint64_t{0};
  for (const std::vector<uint64_t>& shape :
       std::vector<std::vector<uint64_t>>{{most}, {1ULL << 62, 4}, std::vector<uint64_t>(65, 1)}) {
    const std::string header =
        kVersion2 + input_field({.shape = shape, .original = {4}, .size = 4});
    const OpenDump dump = read(file_of(header, "abcd"));
    EXPECT_FALSE(cann_tensor(dump.inputs[0]).has_value());
  }
  const std::string header = kVersion2 +
                             input_field({.shape = {1}, .original = {1}, .size = most}) +
                             input_field({.shape = {1}, .original = {1}, .size = most});
  const OpenDump dump = read(file_of(header, "abcd"));
  EXPECT_FALSE(cann_tensor(dump.inputs[0]).has_value());
  EXPECT_FALSE(cann_tensor(dump.inputs[1]).has_value());
}

TEST(ReadCannDump, RefusesMoreOperandsThanAnyOperatorHas) {
  std::string header = kVersion2;
  for (size_t i = 0; i <= kMaxCannOperands; ++i) header += bytes(4, "");
  EXPECT_EQ(error_of(file_of(header, "")), Errc::TooLarge);
}

// ---- other layouts ------------------------------------------------------------------------------

TEST(ReadCannDump, ReadsOldFilesWithTheirDataInsideTheHeader) {
  const std::string file =
      bytes(1, "1.0") + bytes(4, number(1, 1) + number(2, 2) + bytes(3, shape_message({2})) +
                                     bytes(4, floats({5, 6})));
  const OpenDump dump = read(file);
  EXPECT_EQ(dump.variant, CannVariant::Inline);
  EXPECT_EQ(values(dump.inputs.at(0)), (std::vector<double>{5, 6}));
}

template <typename T>
std::string raw(T value) {
  std::string out;
  append(out, value);
  return out;
}

TEST(ReadCannDump, ReadsNanoFiles) {
  const auto tlv = [](uint32_t tag, const std::string& value) {
    return raw(tag) + raw(static_cast<uint32_t>(value.size())) + value;
  };
  const std::string dims = tlv(0, raw(uint64_t{2})) + tlv(1, raw(uint64_t{2}));
  // Run-time numbering: 1 is float16.
  const std::string input = raw(int32_t{1}) + raw(int32_t{2}) + raw(int32_t{0}) +
                            raw(uint64_t{64}) + raw(uint64_t{0}) + raw(uint64_t{4}) +
                            raw(static_cast<uint32_t>(dims.size())) + dims;
  const std::string named = dims + tlv(2, "add");
  const std::string output = raw(int32_t{0}) + raw(int32_t{2}) + raw(int32_t{0}) + raw(int32_t{3}) +
                             raw(int32_t{0}) + raw(int32_t{2}) + raw(uint64_t{64}) +
                             raw(uint64_t{0}) + raw(uint64_t{8}) +
                             raw(static_cast<uint32_t>(named.size())) + named;
  const std::string head = raw(uint32_t{0x5A5A5A5A}) + raw(uint32_t{1}) +
                           tlv(4, raw(uint32_t{1}) + input) + tlv(5, raw(uint32_t{1}) + output);
  // 0x3c00 is 1.0 in float16, 0xc000 is -2.0.
  const OpenDump dump =
      read(file_of(head, raw(uint16_t{0x3c00}) + raw(uint16_t{0xc000}) + floats({8, 9})));
  EXPECT_EQ(dump.variant, CannVariant::Nano);
  EXPECT_EQ(values(dump.inputs.at(0)), (std::vector<double>{1, -2}));
  EXPECT_EQ(values(dump.outputs.at(0)), (std::vector<double>{8, 9}));
  EXPECT_EQ(dump.outputs[0].origin->name, "add");
  EXPECT_EQ(dump.outputs[0].origin->output_index, 3);
}

TEST(LooksLikeCannDump, TellsDumpsFromOtherFiles) {
  EXPECT_TRUE(looks_like_cann_dump(as_bytes(kAdd)));
  EXPECT_FALSE(looks_like_cann_dump(as_bytes("$Version=1.0\n$End=1\n and more bytes")));
  EXPECT_EQ(detect_file(as_bytes(kAdd), "1234567890"), FileKind::CannDump);  // a hashed name
}

// ---- element types ------------------------------------------------------------------------------

CannTensor stored(int32_t type, int32_t format, Dims shape, Dims original,
                  const std::string& data) {
  CannTensor tensor;
  tensor.data_type = type;
  tensor.format = format;
  tensor.shape = shape;
  tensor.original_shape = original;
  tensor.size_bytes = data.size();
  tensor.data = as_bytes(data);
  return tensor;
}

TEST(CannTensor, ReadsBfloat16WithoutWidening) {
  const std::string data("\x80\x3f\x00\xc0", 4);  // 1.0, -2.0
  const Tensor tensor = cann_tensor(stored(27, 2, {2}, {2}, data)).value();
  EXPECT_EQ(tensor.view.dtype, DType::BFloat16);
  EXPECT_EQ(values_of(tensor.view), (std::vector<double>{1, -2}));
}

TEST(CannTensor, ReadsUndefinedTypesAsTheBytesThatAreThere) {
  const std::string data("\x01\xff\x03", 3);
  EXPECT_EQ(values(stored(0, 2, {1, 1}, {1, 1}, data)), (std::vector<double>{1, -1, 3}));
}

TEST(CannTensor, LeavesUndefinedTypesInTheirTiles) {
  // 2 bytes where the shape, taken for elements, would have 256.
  const std::string data("ab");
  const Tensor tensor = cann_tensor(stored(0, 29, {1, 1, 16, 16}, {16, 16}, data)).value();
  EXPECT_EQ(tensor.view.shape, Dims{2});
}

TEST(CannTensor, UnpacksBitsUpToTheShape) {
  // 0b10100000 0b01000000: numpy.unpackbits gives 1 0 1 0 0 0 0 0 0 1 ...
  const std::string data("\xa0\x40", 2);
  EXPECT_EQ(values(stored(29, 2, {10}, {10}, data)),
            (std::vector<double>{1, 0, 1, 0, 0, 0, 0, 0, 0, 1}));
  EXPECT_EQ(cann_tensor(stored(29, 2, {17}, {17}, data)).error().code, Errc::Truncated);
}

TEST(CannTensor, UnpacksTypesOfLessThanAByte) {
  const auto unpacked = [](int32_t type, int64_t count, const std::string& data) {
    const CannTensor tensor = stored(type, 2, {count}, {count}, data);
    const std::vector<double> got = values(tensor);
    const CannHeader header = cann_header(tensor).value();
    const Tensor loaded = cann_tensor(tensor).value();
    EXPECT_EQ(header.dtype, loaded.view.dtype);
    EXPECT_EQ(header.shape, loaded.view.shape);
    return got;
  };
  using Values = std::vector<double>;
  // 0b11100100: 0 1 2 3 from the lowest bits on.
  EXPECT_EQ(unpacked(30, 4, "\xe4"), (Values{0, 1, -2, -1}));
  EXPECT_EQ(unpacked(31, 4, "\xe4"), (Values{0, 1, 2, 3}));
  // Nibbles 0x7 and 0xf, the largest magnitudes, then 0x1.
  EXPECT_EQ(unpacked(39, 3, "\xf7\x01"), (Values{6, -6, 0.5}));
  EXPECT_EQ(unpacked(40, 3, "\xf7\x01"), (Values{1.75, -1.75, 0.25}));
  // Four values of six bits, 0x1f 0x3f 0x01 0x0c, as one number: 0x0c<<18 | 0x01<<12 | 0x3f<<6 | 0x1f.
  const std::string six = {'\xdf', '\x1f', '\x30'};
  EXPECT_EQ(unpacked(37, 4, six), (Values{28, -28, 0.0625, 1}));
  EXPECT_EQ(unpacked(38, 4, six), (Values{7.5, -7.5, 0.125, 1.5}));
  EXPECT_EQ(unpacked(28, 3, "\xf7\x01"), (Values{7, -1, 1}));
}

TEST(CannTensor, RefusesPackedTypesThatAreCut) {
  EXPECT_EQ(cann_tensor(stored(37, 2, {5}, {5}, "abc")).error().code, Errc::Truncated);
  EXPECT_EQ(cann_header(stored(37, 2, {5}, {5}, "abc")).error().code, Errc::Truncated);
  const int64_t most = INT64_MAX;
  EXPECT_EQ(cann_tensor(stored(37, 2, {most}, {most}, "abc")).error().code, Errc::TooLarge);
}

TEST(CannTensor, UnpacksTiledInt4) {
  // 1 x 18 in tiles of 16 x 16: values of row 0 of both tiles, two a byte.
  std::string data(256, '\0');
  data[0] = '\x21';    // columns 0 and 1
  data[128] = '\xf3';  // columns 16 and 17
  const CannTensor tensor = stored(28, 29, {2, 1, 16, 16}, {1, 18}, data);
  const Tensor loaded = cann_tensor(tensor).value();
  EXPECT_EQ(loaded.view.dtype, DType::Int8);
  EXPECT_EQ(cann_header(tensor)->dtype, DType::Int8);
  ASSERT_EQ(loaded.view.shape, (Dims{1, 18}));
  std::vector<double> expected(18, 0.0);
  expected[0] = 1;
  expected[1] = 2;
  expected[16] = 3;
  expected[17] = -1;
  EXPECT_EQ(values_of(loaded.view), expected);
}

TEST(CannTensor, ReadsEightBitFloatsByTheirDefinitions) {
  const double inf = INFINITY;
  const auto first_is_nan = [](int32_t type, const std::string& data) {
    return std::isnan(values(stored(type, 2, {1}, {1}, data))[0]);
  };
  // e5m2: infinities of both signs, the smallest subnormal 2^-16.
  EXPECT_EQ(values(stored(34, 2, {3}, {3}, "\x7c\xfc\x01")),
            (std::vector<double>{inf, -inf, 0x1p-16}));
  EXPECT_TRUE(first_is_nan(34, "\x7d"));
  // e4m3fn: no infinity, 0x7e is 448, 0x7f and 0xff are NaN.
  EXPECT_EQ(values(stored(35, 2, {2}, {2}, "\x7e\x01")), (std::vector<double>{448, 0x1p-9}));
  EXPECT_TRUE(first_is_nan(35, "\x7f"));
  EXPECT_TRUE(first_is_nan(35, "\xff"));
  // e8m0: powers of two.
  EXPECT_EQ(values(stored(36, 2, {2}, {2}, "\x7f\x80")), (std::vector<double>{1, 2}));
  EXPECT_TRUE(first_is_nan(36, "\xff"));
  // hifloat8: infinities of both signs.
  EXPECT_EQ(values(stored(33, 2, {2}, {2}, "\x6f\xef")), (std::vector<double>{inf, -inf}));
}

TEST(CannTensor, RefusesTypesWithoutOneHere) {
  EXPECT_EQ(cann_tensor(stored(13, 2, {1}, {1}, "text")).error().code, Errc::Unsupported);
  EXPECT_EQ(cann_tensor(stored(13, 2, {1}, {1}, "text")).error().message,
            "element type 13 (DT_STRING) of a CANN dump cannot be read as numbers");
  EXPECT_EQ(cann_tensor(stored(-1, 2, {1}, {1}, "text")).error().code, Errc::Unsupported);
}

TEST(CannTensor, HoldsNothingForAShapeWithAZero) {
  const Tensor tensor = cann_tensor(stored(1, 2, {0, 3}, {0, 3}, "")).value();
  EXPECT_EQ(tensor.view.shape, (Dims{0, 3}));
}

// ---- memory formats -----------------------------------------------------------------------------

constexpr int32_t kInt16Type = static_cast<int32_t>(kInt16);

TEST(CannTensor, UndoesFractalNz) {
  // int16 2x20 in tiles of 16x16: [2, 1, 16, 16], of which 40 elements are real.
  const std::string data = counting(512);
  const Tensor tensor = cann_tensor(stored(kInt16Type, 29, {2, 1, 16, 16}, {2, 20}, data)).value();
  ASSERT_EQ(tensor.view.shape, (Dims{2, 20}));
  const std::vector<double> got = values_of(tensor.view);
  EXPECT_EQ(got[1 * 20 + 17], 273);  // ((1*1 + 0)*16 + 1)*16 + 1
  for (int n = 0; n < 2; ++n) {
    for (int c = 0; c < 20; ++c) {
      const int tile = (c / 16 * 1 + n / 16) * 256;
      EXPECT_EQ(got[static_cast<size_t>(n * 20 + c)], tile + n % 16 * 16 + c % 16);
    }
  }
}

TEST(CannTensor, UndoesFractalNzOfABatch) {
  // [2, 3 | 17, 5] with N0 = 16 and C0 = 4 is stored as [2, 3, 2, 2, 16, 4].
  const std::string data = counting(2 * 3 * 2 * 2 * 16 * 4);
  const std::vector<double> got =
      values(stored(kInt16Type, 29, {2, 3, 2, 2, 16, 4}, {2, 3, 17, 5}, data));
  size_t at = 0;
  for (int h = 0; h < 6; ++h) {
    for (int n = 0; n < 17; ++n) {
      for (int c = 0; c < 5; ++c)
        EXPECT_EQ(got.at(at++), (((h * 2 + c / 4) * 2 + n / 16) * 16 + n % 16) * 4 + c % 4);
    }
  }
  EXPECT_EQ(at, got.size());
}

TEST(CannTensor, UndoesNc1hwc0ToEitherOriginalOrder) {
  // 2 x 5 channels x 3 x 4 with C0 = 4: [2, 2, 3, 4, 4].
  const std::string data = counting(2 * 2 * 3 * 4 * 4);
  const auto at = [](int n, int c, int h, int w) {
    return (((n * 2 + c / 4) * 3 + h) * 4 + w) * 4 + c % 4;
  };
  const std::vector<double> nchw =
      values(stored(kInt16Type, 3, {2, 2, 3, 4, 4}, {2, 5, 3, 4}, data));
  const std::vector<double> nhwc =
      values(stored(kInt16Type, 3, {2, 2, 3, 4, 4}, {2, 3, 4, 5}, data));
  ASSERT_EQ(nchw.size(), 120u);
  ASSERT_EQ(nhwc.size(), 120u);
  for (int n = 0; n < 2; ++n) {
    for (int c = 0; c < 5; ++c) {
      for (int h = 0; h < 3; ++h) {
        for (int w = 0; w < 4; ++w) {
          EXPECT_EQ(nchw[static_cast<size_t>(((n * 5 + c) * 3 + h) * 4 + w)], at(n, c, h, w));
          EXPECT_EQ(nhwc[static_cast<size_t>(((n * 3 + h) * 4 + w) * 5 + c)], at(n, c, h, w));
        }
      }
    }
  }
}

TEST(CannTensor, UndoesFractalZ) {
  // Weights [3, 5, 2, 1] with N0 = 4, C0 = 4: C1 = 2, [2*2*1, 1, 4, 4].
  const std::string data = counting(4 * 1 * 4 * 4);
  const std::vector<double> got = values(stored(kInt16Type, 4, {4, 1, 4, 4}, {3, 5, 2, 1}, data));
  ASSERT_EQ(got.size(), 30u);
  for (int n = 0; n < 3; ++n) {
    for (int c = 0; c < 5; ++c) {
      for (int h = 0; h < 2; ++h)
        EXPECT_EQ(got[static_cast<size_t>((n * 5 + c) * 2 + h)],
                  ((c / 4 * 2 + h) * 4 + n) * 4 + c % 4);
    }
  }
}

TEST(CannTensor, UndoesNdc1hwc0) {
  // 1 x 3 channels x depth 2 x 2 x 1, C0 = 2: [1, 2, 2, 2, 1, 2].
  const std::string data = counting(16);
  const std::vector<double> got =
      values(stored(kInt16Type, 32, {1, 2, 2, 2, 1, 2}, {1, 3, 2, 2, 1}, data));
  ASSERT_EQ(got.size(), 12u);
  for (int c = 0; c < 3; ++c) {
    for (int d = 0; d < 2; ++d) {
      for (int h = 0; h < 2; ++h)
        EXPECT_EQ(got[static_cast<size_t>((c * 2 + d) * 2 + h)],
                  ((d * 2 + c / 2) * 2 + h) * 2 + c % 2);
    }
  }
}

TEST(CannTensor, KeepsTheStoredShapeWhereItCannotBeUndone) {
  const std::string data = counting(64);
  // 99 columns do not fit into 16; FRACTAL_Z_G is no format that is undone; ND needs nothing.
  for (const auto& [format, original] : std::vector<std::pair<int32_t, Dims>>{
           {29, {2, 99}}, {39, {2, 2, 4, 4}}, {2, {64}}, {29, {64}}}) {
    const Tensor tensor =
        cann_tensor(stored(kInt16Type, format, {1, 1, 4, 16}, original, data)).value();
    EXPECT_EQ(tensor.view.shape, (Dims{1, 1, 4, 16}));
    EXPECT_EQ(tensor.owner, nullptr);
  }
}

TEST(CannTensor, SurvivesHostileOriginalShapes) {
  const std::string data = counting(64);
  const int64_t most = INT64_MAX;
  for (const int32_t format : {1, 3, 4, 9, 16, 27, 28, 29, 31, 32, 33}) {
    for (const Dims& original : {Dims{most, most}, Dims{most, 0}, Dims{0, 0, 0, 0},
                                 Dims{1, most, most, 2}, Dims{1, 1, most, most, 3}}) {
      for (const Dims& shape : {Dims{1, 1, 4, 16}, Dims{1, 1, 1, 4, 16}, Dims{1, 1, 1, 1, 4, 16}})
        EXPECT_TRUE(cann_tensor(stored(kInt16Type, format, shape, original, data)).has_value());
    }
  }
}

}  // namespace
}  // namespace assay::formats
