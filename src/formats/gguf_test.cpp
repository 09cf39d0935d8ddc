// SPDX-License-Identifier: Apache-2.0
// Files by hand; tests/python/test_gguf.py reads those of the gguf package.
#include "formats/gguf.hpp"

#include "formats/test_support.hpp"

namespace assay::formats {
namespace {

/// Builds a file piece by piece, in one of the byte orders.
class Builder {
 public:
  explicit Builder(bool big_endian = false) : big_endian_(big_endian) {}
  template <typename T>
  Builder& number(T value) {
    std::string raw;
    append(raw, value);
    if (big_endian_) std::reverse(raw.begin(), raw.end());
    bytes += raw;
    return *this;
  }
  Builder& text(std::string_view value) {
    number(static_cast<uint64_t>(value.size()));
    bytes += value;
    return *this;
  }
  Builder& head(uint64_t tensors, uint64_t keys, uint32_t version = 3) {
    bytes += "GGUF";
    return number(version).number(tensors).number(keys);
  }
  Builder& key(std::string_view name, GgufType type) {
    return text(name).number(static_cast<uint32_t>(type));
  }
  Builder& tensor(std::string_view name, std::vector<uint64_t> ne, uint32_t type, uint64_t offset) {
    text(name).number(static_cast<uint32_t>(ne.size()));
    for (const uint64_t size : ne) number(size);
    return number(type).number(offset);
  }
  Builder& align(size_t alignment = 32) {
    bytes.resize(align_up(bytes.size(), alignment), '\0');
    return *this;
  }
  std::string bytes;

 private:
  bool big_endian_;
};

/// One float32 tensor of ne 2, 3 with the values 1 to 6, and a name.
std::string small_file(bool big_endian = false, uint32_t version = 3) {
  Builder file(big_endian);
  file.head(1, 1, version).key("general.architecture", GgufType::String).text("llama");
  file.tensor("blk.0.attn_q.weight", {2, 3}, 0, 0).align();
  for (int i = 1; i <= 6; ++i) file.number(static_cast<float>(i));
  return file.bytes;
}

Error error_of(const std::string& file) {
  const auto result = read_gguf(as_bytes(file));
  EXPECT_FALSE(result.has_value());
  return result ? Error{} : result.error();
}

TEST(ReadGguf, GivesShapesRowMajorAndValuesInPlace) {
  for (const uint32_t version : {2U, 3U}) {
    const std::string bytes = small_file(false, version);
    const auto file = read_gguf(as_bytes(bytes));
    ASSERT_TRUE(file.has_value()) << file.error().describe();
    EXPECT_EQ(file->version, version);
    EXPECT_EQ(file->architecture(), "llama");
    const GgufTensor* tensor = file->find_tensor("blk.0.attn_q.weight");
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(tensor->shape, (Dims{3, 2}));
    const auto values = gguf_tensor(*file, *tensor);
    ASSERT_TRUE(values.has_value());
    EXPECT_EQ(values_of(values->view), (std::vector<double>{1, 2, 3, 4, 5, 6}));
    // 24 bytes of head, 8 + 20 + 4 + 8 + 5 of the key, 8 + 19 + 4 + 16 + 4 + 8 of the tensor: 128.
    EXPECT_EQ(file->data_offset, 128U);
    EXPECT_EQ(tensor->file_offset, 128U);
  }
}

TEST(ReadGguf, TurnsABigEndianFileRound) {
  const std::string bytes = small_file(true);
  const auto file = read_gguf(as_bytes(bytes));
  ASSERT_TRUE(file.has_value()) << file.error().describe();
  EXPECT_TRUE(file->big_endian);
  const auto values = gguf_tensor(*file, file->tensors[0]);
  ASSERT_TRUE(values.has_value());
  EXPECT_EQ(values_of(values->view), (std::vector<double>{1, 2, 3, 4, 5, 6}));
}

TEST(ReadGguf, ReadsEveryTypeOfMetadata) {
  for (const bool big_endian : {false, true}) {
    Builder b(big_endian);
    b.head(0, 15);
    b.key("u8", GgufType::UInt8).number(uint8_t{200});
    b.key("i8", GgufType::Int8).number(int8_t{-3});
    b.key("u16", GgufType::UInt16).number(uint16_t{60000});
    b.key("i16", GgufType::Int16).number(int16_t{-300});
    b.key("u32", GgufType::UInt32).number(uint32_t{4000000000});
    b.key("i32", GgufType::Int32).number(int32_t{-70000});
    b.key("f32", GgufType::Float32).number(1e-5F);
    b.key("bool", GgufType::Bool).number(uint8_t{1});
    b.key("text", GgufType::String).text("a\"b");
    b.key("u64", GgufType::UInt64).number(~uint64_t{0});
    b.key("i64", GgufType::Int64).number(int64_t{-1} << 40);
    b.key("f64", GgufType::Float64).number(0.25);
    b.key("numbers", GgufType::Array).number(uint32_t{5}).number(uint64_t{3});
    for (const int32_t n : {7, 8, 9}) b.number(n);
    b.key("texts", GgufType::Array).number(uint32_t{8}).number(uint64_t{2}).text("x").text("");
    b.key("nested", GgufType::Array).number(uint32_t{9}).number(uint64_t{2});
    b.number(uint32_t{0}).number(uint64_t{2}).number(uint8_t{1}).number(uint8_t{2});
    b.number(uint32_t{8}).number(uint64_t{1}).text("y");

    const auto file = read_gguf(as_bytes(b.bytes));
    ASSERT_TRUE(file.has_value()) << file.error().describe();
    const auto text = [&](std::string_view key) { return gguf_value_text(*file->find(key)); };
    EXPECT_EQ(text("u8"), "200");
    EXPECT_EQ(text("i8"), "-3");
    EXPECT_EQ(text("u16"), "60000");
    EXPECT_EQ(text("i16"), "-300");
    EXPECT_EQ(text("u32"), "4000000000");
    EXPECT_EQ(text("i32"), "-70000");
    EXPECT_EQ(file->find("f32")->number(), 1e-5F);
    EXPECT_EQ(text("bool"), "true");
    EXPECT_EQ(text("text"), "a\"b");
    EXPECT_EQ(text("u64"), "18446744073709551615");
    EXPECT_EQ(file->find("u64")->integer(), std::nullopt);
    EXPECT_EQ(text("i64"), "-1099511627776");
    EXPECT_EQ(text("f64"), "0.25");
    EXPECT_EQ(text("numbers"), "[7, 8, 9]");
    EXPECT_EQ(file->find("numbers")->integer_at(2), 9);
    EXPECT_EQ(file->find("numbers")->integer_at(3), std::nullopt);
    EXPECT_EQ(gguf_value_text(*file->find("numbers"), 2), "[7, 8, ...] (3)");
    EXPECT_EQ(text("texts"), "[\"x\", \"\"]");
    EXPECT_EQ(text("nested"), "[[1, 2], [\"y\"]]");
  }
}

TEST(ReadGguf, DecodesBlocks) {
  Builder b;
  b.head(1, 0).tensor("w", {32}, 8, 0).align();
  b.number(uint16_t{0x3800});  // 0.5
  for (int i = 0; i < 32; ++i) b.number(static_cast<int8_t>(i - 16));
  const auto file = read_gguf(as_bytes(b.bytes));
  ASSERT_TRUE(file.has_value()) << file.error().describe();
  EXPECT_EQ(gguf_type_text(file->tensors[0]), "q8_0");
  const auto values = gguf_tensor(*file, file->tensors[0]);
  ASSERT_TRUE(values.has_value());
  EXPECT_EQ(values_of(values->view)[0], -8);
  EXPECT_EQ(values_of(values->view)[31], 7.5);
}

TEST(ReadGguf, HonoursTheAlignmentOfTheFile) {
  Builder b;
  b.head(2, 1).key("general.alignment", GgufType::UInt32).number(uint32_t{128});
  b.tensor("a", {1}, 24, 0).tensor("b", {1}, 24, 128).align(128);
  b.bytes += '\x05';
  b.align(128).bytes += '\x06';
  const auto file = read_gguf(as_bytes(b.bytes));
  ASSERT_TRUE(file.has_value()) << file.error().describe();
  EXPECT_EQ(file->tensors[1].file_offset % 128, 0U);
  EXPECT_EQ(file->tensors[1].bytes[0], std::byte{6});
}

TEST(ReadGguf, ListsATensorOfAnUnknownType) {
  Builder b;
  b.head(1, 0).tensor("w", {32}, 31, 0).align();
  const auto file = read_gguf(as_bytes(b.bytes));
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(file->tensors[0].problem, "element type 31 is not known");
  EXPECT_EQ(gguf_tensor(*file, file->tensors[0]).error().code, Errc::Unsupported);
}

TEST(ReadGguf, RefusesWhatItCannotBe) {
  EXPECT_EQ(error_of("GGUG").code, Errc::BadMagic);
  EXPECT_EQ(error_of("GG").code, Errc::BadMagic);
  EXPECT_EQ(error_of("GGUF\x03").code, Errc::Truncated);
  Builder old;
  EXPECT_EQ(error_of(old.head(0, 0, 1).bytes).code, Errc::Unsupported);
}

TEST(ReadGguf, EveryPrefixOfAFileIsRefusedWithAnOffset) {
  const std::string whole = small_file();
  for (size_t size = 8; size < whole.size(); ++size) {
    const Error error = error_of(whole.substr(0, size));
    EXPECT_EQ(error.code, Errc::Truncated) << size;
    ASSERT_TRUE(error.offset.has_value()) << size;
    EXPECT_LE(*error.offset, size);
  }
}

TEST(ReadGguf, RefusesCountsBeyondTheFile) {
  Builder tensors;
  const Error many_tensors = error_of(tensors.head(uint64_t{1} << 60, 0).bytes);
  EXPECT_EQ(many_tensors.code, Errc::Truncated);
  EXPECT_EQ(many_tensors.offset, 8U);
  Builder keys;
  EXPECT_EQ(error_of(keys.head(0, ~uint64_t{0}).bytes).offset, 16U);
  Builder length;
  length.head(0, 1).number(~uint64_t{0}).number(uint64_t{0});
  EXPECT_EQ(error_of(length.bytes).code, Errc::Truncated);
  for (const uint32_t type : {10U, 8U, 9U}) {  // uint64, string, array
    Builder array;
    array.head(0, 1).key("a", GgufType::Array).number(type).number(uint64_t{1} << 62);
    const Error error = error_of(array.bytes);
    EXPECT_TRUE(error.code == Errc::Truncated || error.code == Errc::TooLarge) << type;
    EXPECT_EQ(error.offset, array.bytes.size());
  }
}

TEST(ReadGguf, RefusesArraysNestedWithoutEnd) {
  Builder b;
  b.head(0, 1).key("a", GgufType::Array);
  for (int i = 0; i < 1000; ++i) b.number(uint32_t{9}).number(uint64_t{1});
  EXPECT_EQ(error_of(b.bytes).code, Errc::TooLarge);
}

TEST(ReadGguf, RefusesUnknownTypesOfValuesAndDoubleNames) {
  Builder type;
  type.head(0, 1).text("a").number(uint32_t{13}).number(uint64_t{0});
  EXPECT_EQ(error_of(type.bytes).message, "unknown type 13 of a value");
  Builder key;
  key.head(0, 2).key("a", GgufType::UInt8).number(uint8_t{1});
  key.key("a", GgufType::UInt8).number(uint8_t{1});
  EXPECT_EQ(error_of(key.bytes).message, "the key 'a' stands twice");
  Builder tensor;
  tensor.head(2, 0).tensor("w", {4}, 0, 0).tensor("w", {4}, 0, 32).align();
  EXPECT_EQ(error_of(tensor.bytes).message, "the tensor 'w' stands twice");
}

TEST(ReadGguf, RefusesTensorsThatCannotBeThere) {
  const auto with_tensor = [](std::vector<uint64_t> ne, uint32_t type, uint64_t offset) {
    Builder b;
    b.head(1, 0).tensor("w", std::move(ne), type, offset).align();
    b.bytes.append(128, '\0');
    return error_of(b.bytes);
  };
  EXPECT_EQ(with_tensor({4}, 0, 3).code, Errc::Invalid);                    // not aligned
  EXPECT_EQ(with_tensor({4}, 0, 1024).code, Errc::Truncated);               // behind the end
  EXPECT_EQ(with_tensor({4}, 0, ~uint64_t{0} - 31).code, Errc::Truncated);  // wraps round
  EXPECT_EQ(with_tensor({1000}, 0, 0).code, Errc::Truncated);               // longer than the file
  EXPECT_EQ(with_tensor({1ULL << 62, 1ULL << 62}, 0, 0).code, Errc::Invalid);
  EXPECT_EQ(with_tensor({~0ULL}, 0, 0).code, Errc::Invalid);
  EXPECT_EQ(with_tensor({33}, 8, 0).code, Errc::Invalid);  // no whole blocks
  EXPECT_EQ(with_tensor({1, 1, 1, 1, 1}, 0, 0).code, Errc::Invalid);
  Builder overlap;
  overlap.head(2, 0).tensor("a", {16}, 0, 0).tensor("b", {4}, 0, 32).align();
  overlap.bytes.append(128, '\0');
  EXPECT_EQ(error_of(overlap.bytes).message, "tensor 'b' overlaps 'a'");
}

TEST(ReadGguf, RefusesAlignmentsThatAreNoPowerOfTwo) {
  for (const uint32_t alignment : {0U, 24U, 0x80000000U}) {
    Builder b;
    b.head(0, 1).key("general.alignment", GgufType::UInt32).number(alignment);
    EXPECT_EQ(error_of(b.bytes).code, Errc::Invalid) << alignment;
  }
}

}  // namespace
}  // namespace assay::formats
