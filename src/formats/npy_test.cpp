// SPDX-License-Identifier: Apache-2.0
#include "formats/npy.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "formats/test_support.hpp"

namespace assay::formats {
namespace {

using testing::HasSubstr;

const std::vector<double> kOneToSix = {1, 2, 3, 4, 5, 6};

// A version 1.0 file with this header text and data.
std::string npy_with(std::string_view header, std::string_view data) {
  std::string file("\x93NUMPY\x01\x00", 8);
  append(file, static_cast<uint16_t>(header.size()));
  file += header;
  file += data;
  return file;
}

TEST(ReadNpy, ReadsWhatNumPyWrites) {
  struct Case {
    const char* file;
    DType dtype;
    Dims shape;
    std::vector<double> values;
  };
  const std::vector<Case> cases = {
      {"float64", DType::Float64, {2, 3}, kOneToSix},
      {"float32", DType::Float32, {2, 3}, kOneToSix},
      {"float16", DType::Float16, {2, 3}, kOneToSix},
      {"bfloat16", DType::BFloat16, {2, 3}, kOneToSix},
      {"int64", DType::Int64, {2, 3}, kOneToSix},
      {"int8", DType::Int8, {2, 3}, kOneToSix},
      {"uint16", DType::UInt16, {2, 3}, kOneToSix},
      {"bool", DType::Bool, {2, 3}, {1, 1, 1, 1, 1, 1}},
      {"big_endian", DType::Int32, {2, 3}, kOneToSix},
      {"fortran", DType::Float32, {2, 3}, kOneToSix},
      {"version2", DType::Float32, {2, 3}, kOneToSix},
      {"version3", DType::Float32, {2, 3}, kOneToSix},
      {"scalar", DType::Float32, {}, {7}},
      {"no_elements", DType::Float32, {0, 3}, {}},
      {"complex64", DType::Complex64, {2, 3}, {1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0}},
  };
  for (const Case& expected : cases) {
    SCOPED_TRACE(expected.file);
    const std::string file = golden_file(std::string("npy/") + expected.file + ".npy");
    const auto tensor = read_npy(as_bytes(file));
    ASSERT_TRUE(tensor) << tensor.error().describe();
    EXPECT_EQ(tensor->view.dtype, expected.dtype);
    EXPECT_EQ(tensor->view.shape, expected.shape);
    EXPECT_EQ(values_of(tensor->view), expected.values);
    EXPECT_EQ(tensor->owner != nullptr, std::string(expected.file) == "big_endian");
  }
}

TEST(ReadNpy, RefusesObjectsAndStructures) {
  const std::string objects = golden_file("npy/objects.npy");
  EXPECT_EQ(read_npy(as_bytes(objects)).error().code, Errc::Unsupported);
  EXPECT_THAT(read_npy(as_bytes(objects)).error().message, HasSubstr("pickle"));
  const std::string structured = golden_file("npy/structured.npy");
  EXPECT_EQ(read_npy(as_bytes(structured)).error().code, Errc::Unsupported);
}

TEST(ReadNpy, RejectsHeaderLongerThanFile) {
  std::string file("\x93NUMPY\x02\x00", 8);
  append(file, uint32_t{4096});
  EXPECT_EQ(read_npy(as_bytes(file)).error().code, Errc::Truncated);
  EXPECT_EQ(read_npy(as_bytes(file)).error().offset, 12u);
  file.resize(8);
  append(file, uint32_t{0xFFFFFFFF});
  EXPECT_EQ(read_npy(as_bytes(file)).error().code, Errc::TooLarge);
}

TEST(ReadNpy, RejectsMalformedHeaders) {
  for (const char* header : {
           "",
           "{",
           "{'descr': '<f4'}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), } x",
           "{'descr': '<f4', 'fortran_order': Maybe, 'shape': (1,), }",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }",
           "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,), }",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'more': 1}",
       }) {
    const auto tensor = read_npy(as_bytes(npy_with(header, "1234")));
    ASSERT_FALSE(tensor) << header;
    EXPECT_EQ(tensor.error().code, Errc::Invalid) << header;
  }
}

TEST(ReadNpy, RejectsShapesThatOverflowOrExceedTheFile) {
  const auto shape = [](const char* text) {
    return npy_with(
        "{'descr': '<f4', 'fortran_order': False, 'shape': " + std::string(text) + ", }",
        "12345678");
  };
  EXPECT_EQ(read_npy(as_bytes(shape("(4294967296, 4294967296)"))).error().code, Errc::TooLarge);
  EXPECT_EQ(read_npy(as_bytes(shape("(3,)"))).error().code, Errc::Truncated);
  EXPECT_TRUE(read_npy(as_bytes(shape("(2,)"))));
}

TEST(ReadNpz, ReadsStoredAndCompressedArrays) {
  const std::string two = golden_file("npy/two.npz");
  const auto arrays = read_npz(as_bytes(two));
  ASSERT_TRUE(arrays) << arrays.error().describe();
  ASSERT_EQ(arrays->size(), 2u);
  EXPECT_EQ((*arrays)[0].name, "inputs");
  EXPECT_EQ(values_of((*arrays)[0].tensor.view), kOneToSix);
  EXPECT_EQ((*arrays)[1].name, "outputs");
  EXPECT_EQ(values_of((*arrays)[1].tensor.view), std::vector<double>{5});

  const std::string compressed = golden_file("npy/compressed.npz");
  const auto zeros = read_npz(as_bytes(compressed));
  ASSERT_TRUE(zeros) << zeros.error().describe();
  EXPECT_EQ(values_of((*zeros)[0].tensor.view), std::vector<double>(1000, 0.0));
}

TEST(ReadNpyFile, KeepsTheMappingAlive) {
  // Given tensors whose MappedFile objects are gone, when they are read, then their pages are still
  // there.
  const std::string folder = std::string(ASSAY_TEST_DATA) + "/npy/";
  const auto one = [&] {
    return read_npy_file(MappedFile::open(folder + "float32.npy").value()).value();
  }();
  EXPECT_EQ(values_of(one.view), kOneToSix);
  const auto two = [&] {
    return read_npz_file(MappedFile::open(folder + "two.npz").value()).value();
  }();
  EXPECT_EQ(values_of(two[0].tensor.view), kOneToSix);
}

TEST(ReadNpyFile, NamesTheFileInErrors) {
  const auto file = MappedFile::open(std::string(ASSAY_TEST_DATA) + "/npy/objects.npy").value();
  EXPECT_THAT(read_npy_file(file).error().path, HasSubstr("npy/objects.npy"));
}

TEST(WriteNpy, GivesTheBytesOfNumPy) {
  for (const char* name : {"float64", "float32", "float16", "bfloat16", "int64", "int8", "uint16",
                           "bool", "complex64", "scalar", "no_elements"}) {
    const std::string file = golden_file(std::string("npy/") + name + ".npy");
    const auto tensor = read_npy(as_bytes(file));
    EXPECT_EQ(write_npy(tensor->view).value(), file) << name;
  }
}

TEST(WriteNpy, UsesVersionTwoForLongHeaders) {
  Dims shape;
  for (int i = 0; i < 30'000; ++i) shape.push_back(1);
  const std::string byte(1, '\5');
  const std::string file = write_npy(*make_view(DType::Int8, shape, as_bytes(byte))).value();
  EXPECT_EQ(file[6], 2);
  EXPECT_EQ((file.size() - 1) % 64, 0u);
  EXPECT_EQ(read_npy(as_bytes(file))->view.shape, shape);
}

RC_GTEST_PROP(WriteNpy, ThenReadNpyIsTheIdentity, ()) {
  const auto tensor = random_tensor(npy_supports);
  const std::string file = write_npy(tensor->view).value();
  const auto read = read_npy(as_bytes(file)).value();
  // One-byte floats are written as void, as ml_dtypes does, and come back as bits.
  const bool is_void = info(tensor->view.dtype).element_bits == 8 && is_float(tensor->view.dtype);
  RC_ASSERT(read.view.dtype == (is_void ? DType::Bits8 : tensor->view.dtype));
  RC_ASSERT(read.view.shape == tensor->view.shape);
  RC_ASSERT(as_text(read.view.contiguous_bytes()) == as_text(tensor->view.contiguous_bytes()));
}

}  // namespace
}  // namespace assay::formats
