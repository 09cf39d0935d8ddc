// SPDX-License-Identifier: Apache-2.0
#include "formats/safetensors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "formats/test_support.hpp"

namespace assay::formats {
namespace {

using testing::HasSubstr;

std::string file_with(std::string_view json, size_t data_bytes) {
  std::string file;
  append(file, uint64_t{json.size()});
  file += json;
  file.append(data_bytes, '\1');
  return file;
}

Error error_of(std::string_view json, size_t data_bytes) {
  const std::string file = file_with(json, data_bytes);
  const auto result = read_safetensors(as_bytes(file));
  EXPECT_FALSE(result) << json;
  return result ? Error{} : result.error();
}

TEST(ReadSafetensors, ReadsWhatTheReferenceWrites) {
  const std::string file = golden_file("safetensors/mixed.safetensors");
  const auto result = read_safetensors(as_bytes(file));
  ASSERT_TRUE(result) << result.error().describe();
  EXPECT_EQ(result->entries.size(), 6u);
  const auto values = [&](std::string_view name) { return values_of(result->find(name)->view); };
  EXPECT_EQ(values("a.weight"), (std::vector<double>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(values("b"), (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(values("empty"), std::vector<double>{});
  EXPECT_EQ(values("scalar"), std::vector<double>{7});
  EXPECT_EQ(values("f8"), (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(values("flag"), (std::vector<double>{1, 0}));
  EXPECT_EQ(result->find("a.weight")->view.shape, (Dims{2, 3}));
  EXPECT_EQ(result->find("f8")->view.dtype, DType::Float8E5M2);
  EXPECT_EQ(result->find("missing"), nullptr);
  const SafetensorsEntry* weight = result->find("a.weight");
  EXPECT_EQ(as_bytes(file).data() + weight->file_offset, weight->view.storage.data());
  ASSERT_EQ(result->metadata.size(), 2u);
  for (const auto& [key, value] : result->metadata)
    EXPECT_EQ(value, key == "format" ? "pt" : "quote \" here");
}

TEST(ReadSafetensorsFile, KeepsTheMappingAlive) {
  const std::string path = std::string(ASSAY_TEST_DATA) + "/safetensors/mixed.safetensors";
  const auto result = [&] {
    return read_safetensors_file(MappedFile::open(path).value()).value();
  }();
  EXPECT_EQ(values_of(result.find("b")->view), (std::vector<double>{1, 2, 3}));
}

TEST(ReadSafetensors, AllowsSpacesBehindTheHeader) {
  EXPECT_TRUE(read_safetensors(
      as_bytes(file_with(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}        )", 3))));
  EXPECT_TRUE(read_safetensors(as_bytes(file_with("{}", 0))));
}

TEST(ReadSafetensors, RefusesHolesAndOverlaps) {
  EXPECT_THAT(error_of(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[1,4]}})", 4).message,
              HasSubstr("hole"));
  EXPECT_THAT(error_of(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})", 4).message,
              HasSubstr("behind"));
  EXPECT_THAT(error_of(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                       R"("b":{"dtype":"U8","shape":[3],"data_offsets":[2,5]}})",
                       5)
                  .message,
              HasSubstr("overlaps"));
}

TEST(ReadSafetensors, RefusesSizesThatContradictTheShape) {
  EXPECT_EQ(error_of(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,3]}})", 3).code,
            Errc::Invalid);
  EXPECT_EQ(
      error_of(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0)
          .code,
      Errc::Invalid);
  EXPECT_EQ(error_of(R"({"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}})", 3).code,
            Errc::Truncated);
  EXPECT_EQ(error_of(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[3,0]}})", 3).code,
            Errc::Invalid);
}

TEST(ReadSafetensors, RefusesMalformedHeaders) {
  for (
      const char* json : {
          R"({"a":1})",
          R"({"a":{"dtype":"U8","shape":[1]}})",
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":"x"}})",
          R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})",
          R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})",
          R"({"a":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}})",
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,1]}})",
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
          R"({"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})",
          R"({"__metadata__":{"a":1}})",
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}} x)",
          R"({"a":)",
      }) {
    EXPECT_EQ(error_of(json, 1).code, Errc::Invalid) << json;
  }
  EXPECT_EQ(error_of(R"({"a":{"dtype":"F6_E2M3","shape":[1],"data_offsets":[0,1]}})", 1).code,
            Errc::Unsupported);
}

TEST(ReadSafetensors, KnowsAFileThatWasNeverFinished) {
  EXPECT_EQ(read_safetensors(as_bytes(std::string(4096, '\0'))).error().code, Errc::BadMagic);
  EXPECT_EQ(read_safetensors(as_bytes(std::string(8, '\xff'))).error().code, Errc::TooLarge);
  EXPECT_EQ(read_safetensors(as_bytes(std::string("\x10\0\0\0\0\0\0\0{}", 10))).error().code,
            Errc::Truncated);
}

TEST(SafetensorsHeader, FillsExactlyTheReservedRegion) {
  const auto header = safetensors_header({{"w", DType::BFloat16, Dims{2, 2}, 0, 8}},
                                         {{"tool", "assay \"x\""}}, 4096);
  ASSERT_TRUE(header);
  EXPECT_EQ(header->size(), 4096u);
  EXPECT_EQ(load<uint64_t>(header->data()), 4088u);
  EXPECT_EQ(header->substr(8, 10), "{\"__metada");
  const auto result = read_safetensors(as_bytes(*header + std::string(8, '\0')));
  ASSERT_TRUE(result) << result.error().describe();
  EXPECT_EQ(result->metadata[0].second, "assay \"x\"");
  EXPECT_EQ(result->find("w")->file_offset, 4096u);
}

TEST(SafetensorsHeader, SaysWhenTheRegionIsTooSmall) {
  EXPECT_EQ(safetensors_header({{"w", DType::Float32, Dims{2}, 0, 8}}, {}, 16).error().code,
            Errc::TooLarge);
  EXPECT_EQ(safetensors_header({}, {}, 8).error().code, Errc::Usage);
  EXPECT_EQ(safetensors_header({{"w", DType::Complex128, Dims{1}, 0, 16}}, {}).error().code,
            Errc::Unsupported);
  EXPECT_EQ(safetensors_header({}, {})->size(), 64u);
}

RC_GTEST_PROP(WriteSafetensors, ThenReadSafetensorsIsTheIdentity, ()) {
  const auto supported = [](DType dtype) { return !info(dtype).safetensors.empty(); };
  const auto first = random_tensor(supported);
  const auto second = random_tensor(supported);
  const std::string file =
      write_safetensors({{"first", first->view}, {"second", second->view}}, {{"k", "v"}}).value();
  const auto read = read_safetensors(as_bytes(file)).value();
  for (const auto& [name, tensor] :
       {std::pair("first", first.get()), std::pair("second", second.get())}) {
    const SafetensorsEntry* entry = read.find(name);
    RC_ASSERT(entry != nullptr);
    RC_ASSERT(entry->view.dtype == tensor->view.dtype);
    RC_ASSERT(entry->view.shape == tensor->view.shape);
    RC_ASSERT(as_text(entry->view.contiguous_bytes()) == as_text(tensor->view.contiguous_bytes()));
  }
}

}  // namespace
}  // namespace assay::formats
