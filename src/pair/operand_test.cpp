// SPDX-License-Identifier: Apache-2.0
#include "pair/operand.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <numeric>

#include "compare/resident.hpp"
#include "pair/tensor_builder.hpp"
#include "pair/test_files.hpp"

namespace assay::pair {
namespace {

using test::Files;
using test::values_of;

std::vector<float> counting(int64_t count, float first = 0) {
  std::vector<float> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), first);
  return values;
}

using Values = std::vector<double>;

TEST(LoadOperand, JoinsShardsAlongAnAxis) {
  // Rank 0 holds columns 0-1, rank 1 column 2 of a matrix of 2 rows.
  Files files;
  files.add<float>(DType::Float32, {2, 2}, {0, 1, 10, 11});
  files.add<float>(DType::Float32, {2, 1}, {2, 12});
  const auto tensor =
      load_operand(files.run, {.records = {0, 1}, .merge = Merge::Concat, .axis = 1});
  ASSERT_TRUE(tensor);
  EXPECT_EQ(tensor->view.shape, (Dims{2, 3}));
  EXPECT_EQ(values_of(*tensor), (Values{0, 1, 2, 10, 11, 12}));
}

TEST(LoadOperand, InterleavesTheHalvesOfAFusedProjection) {
  // gate = 0 1 2 3, up = 10 11 12 13; rank 0 has the first half of each, rank 1 the second.
  Files files;
  files.add<float>(DType::Float32, {1, 4}, {0, 1, 10, 11});
  files.add<float>(DType::Float32, {1, 4}, {2, 3, 12, 13});
  const auto tensor = load_operand(
      files.run, {.records = {0, 1}, .merge = Merge::Interleave, .axis = -1, .blocks = 2});
  ASSERT_TRUE(tensor);
  EXPECT_EQ(values_of(*tensor), (Values{0, 1, 2, 3, 10, 11, 12, 13}));
}

TEST(LoadOperand, KeepsTheElementTypeOfShardsBitForBit) {
  // bf16 1.0 and -2.0 are 0x3F80 and 0xC000, a signalling NaN 0x7F81.
  Files files;
  files.add<uint16_t>(DType::BFloat16, {1}, {0x3F80});
  files.add<uint16_t>(DType::BFloat16, {2}, {0xC000, 0x7F81});
  const auto tensor = load_operand(files.run, {.records = {0, 1}, .merge = Merge::Concat});
  ASSERT_TRUE(tensor);
  EXPECT_EQ(tensor->view.dtype, DType::BFloat16);
  const ByteSpan bytes = tensor->view.contiguous_bytes();
  ASSERT_EQ(bytes.size(), 6u);
  EXPECT_EQ(load<uint16_t>(bytes.data() + 2), 0xC000);
  EXPECT_EQ(load<uint16_t>(bytes.data() + 4), 0x7F81);
}

TEST(LoadOperand, JoinsPackedValuesAtWholeBytesOnly) {
  // Low nibble first: bytes 0x21, 0x43 are 1 2 3 4.
  Files files;
  files.add<uint8_t>(DType::Int4, {1, 4}, {0x21, 0x43});
  files.add<uint8_t>(DType::Int4, {1, 2}, {0x65});
  files.add<uint8_t>(DType::Int4, {1, 3}, {0x21, 0x03});
  const auto even = load_operand(files.run, {.records = {0, 1}, .merge = Merge::Concat, .axis = 1});
  ASSERT_TRUE(even);
  EXPECT_EQ(values_of(*even), (Values{1, 2, 3, 4, 5, 6}));
  const auto odd = load_operand(files.run, {.records = {2, 1}, .merge = Merge::Concat, .axis = 1});
  ASSERT_FALSE(odd);
  EXPECT_EQ(odd.error().code, Errc::Unsupported);
}

TEST(LoadOperand, AddsPartialSumsInDoublePrecision) {
  // In float32 one after the other 1e8 + 1 - 1e8 would be 0.
  Files files;
  files.add<float>(DType::Float32, {2}, {1e8F, 1});
  files.add<float>(DType::Float32, {2}, {1, 2});
  files.add<float>(DType::Float32, {2}, {-1e8F, 3});
  const auto tensor = load_operand(files.run, {.records = {0, 1, 2}, .merge = Merge::Sum});
  ASSERT_TRUE(tensor);
  EXPECT_EQ(tensor->view.dtype, DType::Float32);
  EXPECT_EQ(values_of(*tensor), (Values{1, 6}));
}

TEST(LoadOperand, AddsHalfTypesDoublesAndIntegersIntoTheRightType) {
  Files files;
  files.add<uint16_t>(DType::Float16, {1}, {0x3C00});  // 1
  files.add<uint16_t>(DType::Float16, {1}, {0x1000});  // 2^-11: lost in float16
  files.add<double>(DType::Float64, {1}, {1});
  files.add<double>(DType::Float64, {1}, {0x1p-50});                // lost in float32
  files.add<int64_t>(DType::Int64, {1}, {(int64_t{1} << 60) + 1});  // lost in double
  files.add<int64_t>(DType::Int64, {1}, {-1});
  const auto sum_of = [&](size_t a, size_t b) {
    return load_operand(files.run, {.records = {a, b}, .merge = Merge::Sum});
  };
  EXPECT_EQ(values_of(*sum_of(0, 1)), (Values{1 + 0x1p-11}));
  const auto wide = sum_of(2, 3);
  EXPECT_EQ(wide->view.dtype, DType::Float64);
  EXPECT_EQ(values_of(*wide), (Values{1 + 0x1p-50}));
  const auto integers = sum_of(4, 5);
  EXPECT_EQ(integers->view.dtype, DType::Int64);
  EXPECT_EQ(load<int64_t>(integers->view.contiguous_bytes().data()), int64_t{1} << 60);
}

TEST(LoadOperand, RefusesSumsThatHaveNoMeaning) {
  Files files;
  files.add<uint8_t>(DType::Bool, {1}, {1});
  files.add<int64_t>(DType::Int64, {1}, {INT64_MAX});
  files.add<float>(DType::Float32, {1}, {1});
  files.add<float>(DType::Float32, {2}, {1, 2});
  const auto code_of = [&](size_t a, size_t b) {
    const auto tensor = load_operand(files.run, {.records = {a, b}, .merge = Merge::Sum});
    return tensor ? Errc::Internal : tensor.error().code;
  };
  EXPECT_EQ(code_of(0, 0), Errc::Unsupported);
  EXPECT_EQ(code_of(1, 1), Errc::Unsupported);  // overflow
  EXPECT_EQ(code_of(1, 2), Errc::Invalid);
  EXPECT_EQ(code_of(2, 3), Errc::Invalid);
}

TEST(LoadOperand, SaysWhichShardsDoNotFit) {
  Files files;
  files.add<float>(DType::Float32, {2, 2}, counting(4));
  files.add<float>(DType::Float32, {3, 2}, counting(6));
  files.add<double>(DType::Float64, {2, 2}, {1, 2, 3, 4});
  const auto error_of = [&](const Recipe& recipe) {
    const auto tensor = load_operand(files.run, recipe);
    return tensor ? Error{} : tensor.error();
  };
  const Error shapes = error_of({.records = {0, 1}, .merge = Merge::Concat, .axis = 1});
  EXPECT_EQ(shapes.code, Errc::Invalid);
  EXPECT_EQ(shapes.message, "shard 0 has shape [2, 2], shard 1 has [3, 2]");
  EXPECT_EQ(error_of({.records = {0, 2}, .merge = Merge::Concat}).message,
            "shard 0 is float32, shard 1 is float64");
  EXPECT_EQ(error_of({.records = {0, 0}, .merge = Merge::Concat, .axis = 2}).code, Errc::Invalid);
  EXPECT_EQ(
      error_of({.records = {1, 1}, .merge = Merge::Interleave, .axis = 0, .blocks = 2}).message,
      "axis 0 of size 3 cannot be cut into 2 equal pieces");
  EXPECT_EQ(error_of({}).code, Errc::Invalid);
  EXPECT_EQ(error_of({.records = {9}}).code, Errc::Invalid);
}

TEST(LoadOperand, JoinsEmptyShardsOfAbsurdShapes) {
  // A hostile file can claim 2^60 rows of no columns.
  Files files;
  const Dims shape{int64_t{1} << 60, int64_t{1} << 60, 0};
  files.add<float>(DType::Float32, shape, {});
  files.add<float>(DType::Float32, shape, {});
  const auto tensor =
      load_operand(files.run, {.records = {0, 1}, .merge = Merge::Concat, .axis = 2});
  ASSERT_TRUE(tensor);
  EXPECT_EQ(tensor->view.shape, shape);
}

TEST(LoadOperand, SelectsWithoutCopying) {
  Files files;
  files.add<float>(DType::Float32, {2, 3, 2}, counting(12));
  Recipe recipe{.records = {0}};
  recipe.steps = {{.kind = RecipeStep::Kind::Range, .axis = 1, .first = 1, .last = 3},
                  {.kind = RecipeStep::Kind::Select, .axis = 0, .first = 1},
                  {.kind = RecipeStep::Kind::Permute, .axis = -1, .order = {1, 0}}};
  const auto tensor = load_operand(files.run, recipe);
  ASSERT_TRUE(tensor);
  // Element [1, j, k] is 6 + 2 j + k; rows j = 1, 2 with their columns turned round.
  EXPECT_EQ(tensor->view.shape, (Dims{2, 2}));
  EXPECT_EQ(values_of(*tensor), (Values{9, 8, 11, 10}));
  EXPECT_EQ(tensor->view.storage.size(), 12 * sizeof(float));  // still the file
}

TEST(LoadOperand, ReshapesAndPermutesByBuilding) {
  Files files;
  files.add<float>(DType::Float32, {2, 6}, counting(12));
  Recipe recipe{.records = {0}};
  recipe.steps = {{.kind = RecipeStep::Kind::Range, .axis = 1, .first = 2, .last = 6},
                  {.kind = RecipeStep::Kind::Reshape, .shape = {2, 2, 2}},
                  {.kind = RecipeStep::Kind::Permute, .axis = 0, .order = {1, 0}},
                  {.kind = RecipeStep::Kind::Reshape, .shape = {8}},
                  {.kind = RecipeStep::Kind::Permute, .axis = 0, .order = {3, 0, 1, 7}}};
  const auto tensor = load_operand(files.run, recipe);
  ASSERT_TRUE(tensor);
  // The range leaves 2 3 4 5 | 8 9 10 11; turned round 8 9 10 11 2 3 4 5; of these the 4th, 1st, 2nd, 8th.
  EXPECT_EQ(values_of(*tensor), (Values{11, 8, 9, 5}));
}

TEST(LoadOperand, PutsListsTogetherWhateverTheirShapes) {
  Files files;
  files.add<float>(DType::Float32, {2, 3}, counting(6));
  files.add<float>(DType::Float32, {3}, {6, 7, 8});
  Recipe recipe{.records = {0, 1}, .merge = Merge::Concat, .flat = true};
  recipe.steps = {{.kind = RecipeStep::Kind::Reshape, .shape = {3, 3}},
                  {.kind = RecipeStep::Kind::Transpose, .order = {1, 0}}};
  const auto tensor = load_operand(files.run, recipe);
  ASSERT_TRUE(tensor);
  EXPECT_EQ(tensor->view.shape, (Dims{3, 3}));
  EXPECT_EQ(values_of(*tensor), (Values{0, 3, 6, 1, 4, 7, 2, 5, 8}));
}

TEST(LoadOperand, RejectsStepsOutOfRange) {
  Files files;
  files.add<float>(DType::Float32, {2, 3}, counting(6));
  const auto code_of = [&](const RecipeStep& step) {
    const auto tensor = load_operand(files.run, {.records = {0}, .steps = {step}});
    return tensor ? Errc::Internal : tensor.error().code;
  };
  EXPECT_EQ(code_of({.kind = RecipeStep::Kind::Select, .axis = 2}), Errc::Invalid);
  EXPECT_EQ(code_of({.kind = RecipeStep::Kind::Select, .axis = 1, .first = 3}), Errc::Invalid);
  EXPECT_EQ(code_of({.kind = RecipeStep::Kind::Range, .axis = 1, .first = 2, .last = 1}),
            Errc::Invalid);
  EXPECT_EQ(code_of({.kind = RecipeStep::Kind::Range, .axis = 1, .first = 0, .last = 4}),
            Errc::Invalid);
  EXPECT_EQ(code_of({.kind = RecipeStep::Kind::Permute, .axis = 1, .order = {0, 3}}),
            Errc::Invalid);
  EXPECT_EQ(code_of({.kind = RecipeStep::Kind::Transpose, .order = {0}}), Errc::Invalid);
  EXPECT_EQ(code_of({.kind = RecipeStep::Kind::Transpose, .order = {0, 0}}), Errc::Invalid);
  EXPECT_EQ(code_of({.kind = RecipeStep::Kind::Transpose, .order = {1, 2}}), Errc::Invalid);
  EXPECT_EQ(code_of({.kind = RecipeStep::Kind::Reshape, .shape = {7}}), Errc::Invalid);
  EXPECT_EQ(code_of({.kind = RecipeStep::Kind::Reshape, .shape = {-1, -6}}), Errc::Invalid);
}

TEST(LoadOperand, PassesOnWhyAShardCannotBeRead) {
  Files files;
  files.add<float>(DType::Float32, {2}, {1, 2});
  files.add<float>(DType::Float32, {2}, {3, 4});
  std::filesystem::resize_file(files.run.records[1].bytes->file.str(), 4);
  const auto tensor = load_operand(files.run, {.records = {0, 1}, .merge = Merge::Concat});
  ASSERT_FALSE(tensor);
  EXPECT_EQ(tensor.error().code, Errc::Truncated);
  EXPECT_EQ(tensor.error().path, files.run.records[1].bytes->file);
}

// Splitting and joining again gives the tensor back, whatever the axis and the sizes.
RC_GTEST_PROP(LoadOperand, JoinsWhatWasSplit, ()) {
  Dims shape;
  for (int i = 0; i < 3; ++i) shape.push_back(*rc::gen::inRange<int64_t>(1, 5));
  const auto axis = *rc::gen::inRange<size_t>(0, 3);
  const auto shard_count = *rc::gen::inRange<size_t>(1, 4);
  Files files;
  std::vector<int64_t> sizes(shard_count);
  for (int64_t& size : sizes) size = *rc::gen::inRange<int64_t>(0, 4);
  shape[axis] = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  const std::vector<float> whole = counting(element_count(shape).value_or(0));
  const int64_t inner = axis == 2 ? 1 : axis == 1 ? shape[2] : shape[1] * shape[2];
  int64_t first = 0;
  Recipe recipe{.merge = Merge::Concat, .axis = static_cast<int>(axis)};
  for (const int64_t size : sizes) {
    std::vector<float> part;
    for (size_t i = 0; i < whole.size(); ++i) {
      const int64_t place = static_cast<int64_t>(i) / inner % shape[axis];
      if (place >= first && place < first + size) part.push_back(whole[i]);
    }
    Dims part_shape = shape;
    part_shape[axis] = size;
    recipe.records.push_back(files.add(DType::Float32, part_shape, part));
    first += size;
  }
  const auto tensor = load_operand(files.run, recipe);
  RC_ASSERT(tensor.has_value());
  RC_ASSERT(tensor->view.shape == shape);
  RC_ASSERT(values_of(*tensor) == std::vector<double>(whole.begin(), whole.end()));
}

TEST(TensorBuilder, PutsLargeTensorsIntoAFileThatPagesCanLeave) {
  // 6 MiB in memory and in a file: the same bytes, and only the file may be dropped from memory.
  const std::vector<float> values = counting(int64_t{6} << 18);
  const Dims shape{static_cast<int64_t>(values.size())};
  auto builder = TensorBuilder::create(DType::Float32, shape, 1000);
  ASSERT_TRUE(builder);
  ASSERT_TRUE(builder->append(std::as_bytes(std::span(values))));
  const auto tensor = builder->finish();
  ASSERT_TRUE(tensor);
  const ByteSpan bytes = tensor->view.contiguous_bytes();
  compare::ResidentLimit limit(1);
  const auto watch = limit.watch(bytes);
  EXPECT_TRUE(watch.is_active());
  EXPECT_EQ(std::memcmp(bytes.data(), values.data(), bytes.size()), 0);
}

TEST(TensorBuilder, ReportsAFolderWhereNothingCanBeWritten) {
  ASSERT_EQ(::setenv("TMPDIR", "/nowhere/at/all", 1), 0);
  const auto builder = TensorBuilder::create(DType::Float32, {1000}, 10);
  ::unsetenv("TMPDIR");
  ASSERT_FALSE(builder);
  EXPECT_EQ(builder.error().code, Errc::NotFound);
}

// The element rule of the format as a plain loop: nz[h, c / C0, n / N0, n % N0, c % C0] = nd[h, n,
// c].
std::vector<float> tiled(const std::vector<float>& plain, int64_t heads, int64_t rows,
                         int64_t columns, int64_t c0) {
  constexpr int64_t n0 = 16;
  const int64_t n1 = (rows + n0 - 1) / n0;
  const int64_t c1 = (columns + c0 - 1) / c0;
  std::vector<float> out(static_cast<size_t>(heads * c1 * n1 * n0 * c0), -1);
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t n = 0; n < rows; ++n)
      for (int64_t c = 0; c < columns; ++c) {
        const int64_t at = (((h * c1 + c / c0) * n1 + n / n0) * n0 + n % n0) * c0 + c % c0;
        out[static_cast<size_t>(at)] = plain[static_cast<size_t>((h * rows + n) * columns + c)];
      }
  return out;
}

Tensor tensor_of(const std::vector<float>& values, const Dims& shape) {
  return {*make_view(DType::Float32, shape, std::as_bytes(std::span(values))), nullptr};
}

TEST(ToNd, FindsTheElementOfTheWorkedExample) {
  // 2 x 20 with N0 = C0 = 16 is stored as [2, 1, 16, 16]; nd[1, 17] is nz[273].
  std::vector<float> stored(512, 0);
  stored[273] = 7;
  const auto plain = to_nd(tensor_of(stored, {2, 1, 16, 16}), {2, 20});
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->view.shape, (Dims{2, 20}));
  EXPECT_EQ(values_of(*plain)[20 + 17], 7);
}

TEST(ToNd, UndoesTilingForBothSpellingsOfTheStoredShape) {
  const std::vector<float> plain = counting(int64_t{3} * 17 * 40);
  const std::vector<float> memory = tiled(plain, 3, 17, 40, 16);
  const std::vector<double> expected(plain.begin(), plain.end());
  for (const Dims& shape : {Dims{3, 3, 2, 16, 16}, Dims{3, 3, 32, 16}}) {
    const auto tensor = to_nd(tensor_of(memory, shape), {3, 17, 40});
    ASSERT_TRUE(tensor) << list_text(shape.span());
    EXPECT_EQ(values_of(*tensor), expected);
  }
}

TEST(ToNd, TakesAShapeWithoutPaddingForThePlainOne) {
  // A float32 payload of [16, 16] has C0 = 32 / 4 = 8: two strips of 8 columns.
  const std::vector<float> plain = counting(256);
  const auto tensor = to_nd(tensor_of(tiled(plain, 1, 16, 16, 8), {16, 16}), {16, 16});
  ASSERT_TRUE(tensor);
  EXPECT_EQ(values_of(*tensor), std::vector<double>(plain.begin(), plain.end()));
}

TEST(ToNd, RejectsShapesThatCannotBeInside) {
  const std::vector<float> stored(512, 0);
  for (const Dims& logical : {Dims{20}, Dims{17, 20}, Dims{2, 33}, Dims{2, 2, 20}, Dims{0, 20},
                              Dims{int64_t{1} << 40, int64_t{1} << 40, 0, 20}}) {
    const auto plain = to_nd(tensor_of(stored, {2, 1, 16, 16}), logical);
    ASSERT_FALSE(plain) << list_text(logical.span());
    EXPECT_EQ(plain.error().code, Errc::Invalid);
  }
}

TEST(LoadPlain, TakesTheExtentsFromTheHeaderOrTheOtherSide) {
  // 2 x 20 float16 in two strips of 16 columns and 16 rows: 512 elements, 40 of them real.
  Files files;
  std::vector<uint16_t> memory(512, 0x3C00);
  memory[273] = 0x4000;  // nd[1, 17] = 2
  const std::string payload(as_text(std::as_bytes(std::span(memory))));
  const auto add = [&](const std::string& name, const std::string& dims, const Dims& stored) {
    const std::string header =
        "$Version=1.0\n$Object.Count=1\n$Object.Length=1024\nformat=29\n"
        "dtype=1\ndims=" +
        dims + "\n$Object.data=0,1024\n$End=1\n";
    files.folder.put(name, header + payload);
    run::TensorRecord record;
    record.dtype = DType::Float16;
    record.shape = stored;
    record.memory_format = "fractal_nz";
    record.bytes = run::ByteLocation{files.folder / name, "", header.size(), 1024, true};
    return record;
  };
  const auto known = load_plain(add("a.bin", "2,20", {2, 16, 16}), nullptr);
  ASSERT_TRUE(known);
  EXPECT_EQ(known->tensor.view.shape, (Dims{2, 20}));
  EXPECT_EQ(values_of(known->tensor)[37], 2);
  EXPECT_EQ(known->note, "FRACTAL_NZ");

  const run::TensorRecord tiled_only = add("b.bin", "2,1,16,16", {2, 1, 16, 16});
  const Dims other{1, 2, 20};
  const auto cropped = load_plain(tiled_only, &other);
  ASSERT_TRUE(cropped);
  EXPECT_EQ(cropped->tensor.view.shape, other);
  EXPECT_EQ(values_of(cropped->tensor)[37], 2);
  EXPECT_EQ(cropped->note, "FRACTAL_NZ, cut to the other side's shape");

  const auto alone = load_plain(tiled_only, nullptr);
  ASSERT_TRUE(alone);
  EXPECT_EQ(alone->tensor.view.shape, (Dims{2, 1, 16, 16}));
  EXPECT_EQ(alone->note, "FRACTAL_NZ, compared as stored");
}

}  // namespace
}  // namespace assay::pair
