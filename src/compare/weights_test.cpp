// SPDX-License-Identifier: Apache-2.0
// Every layout with numbers that a reader can follow; tests/cli/test_compare_weights.py holds whole
// checkpoints against torch.
#include "compare/weights.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "compare/dequantise.hpp"
#include "formats/safetensors.hpp"
#include "pair/scratch_tensor.hpp"
#include "run/checkpoint.hpp"
#include "run/test_folder.hpp"
#include "tensor/convert.hpp"
#include "vendor/msit/comparison.hpp"

namespace assay::compare {
namespace {

using run::test::TestFolder;
using testing::ElementsAre;
using testing::HasSubstr;

/// A tensor with its bytes, which copies share.
struct Stored {
  std::shared_ptr<std::string> bytes = std::make_shared<std::string>();
  TensorView view;
};
template <typename T>
Stored stored(DType dtype, const Dims& shape, const std::vector<T>& values) {
  Stored out;
  out.bytes->assign(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  out.view = make_view(dtype, shape, as_bytes(*out.bytes)).value();
  return out;
}
Stored floats(const Dims& shape, const std::vector<float>& values) {
  return stored<float>(DType::Float32, shape, values);
}
Stored int8s(const Dims& shape, const std::vector<int8_t>& values) {
  return stored<int8_t>(DType::Int8, shape, values);
}
Stored words(const Dims& shape, const std::vector<uint32_t>& values) {
  return stored<uint32_t>(DType::Int32, shape, values);
}

std::vector<double> values_of(const Tensor& tensor) {
  std::vector<double> out(static_cast<size_t>(tensor.view.element_count()));
  read_values(tensor.view, 0, tensor.view.element_count(), out);
  return out;
}

Result<Dequantised> unpack(const Stored& codes, const Stored& scale, const Dims& wanted,
                           const Stored* zero = nullptr, pair::Coding coding = pair::Coding::Codes,
                           bool like_torch = false) {
  QuantisedParts parts;
  parts.coding = coding;
  parts.codes = codes.view;
  parts.scale = scale.view;
  if (zero != nullptr) parts.zero = zero->view;
  return dequantise(parts, wanted, like_torch, 1);
}

// ---- unpacking ----

TEST(Dequantise, SubtractsTheOffsetAndScales) {
  const Stored offset = floats({1}, {2});
  const auto out = unpack(int8s({2}, {10, -3}), floats({1}, {0.5}), {2}, &offset);
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_THAT(values_of(out->tensor), ElementsAre(4.0, -2.5));
  EXPECT_EQ(out->scheme, "int8 per tensor, asymmetric");
  EXPECT_EQ(out->dtype, "torch.float32");
}

TEST(Dequantise, TakesOneScaleAnOutputChannel) {
  const Stored codes = int8s({2, 2}, {1, 2, 3, 4});
  // [out] and [out, 1] mean the same; a square matrix must not scale its columns.
  for (const Stored& scale : {floats({2}, {1, 10}), floats({2, 1}, {1, 10})}) {
    const auto out = unpack(codes, scale, {2, 2});
    ASSERT_TRUE(out) << out.error().message;
    EXPECT_THAT(values_of(out->tensor), ElementsAre(1, 2, 30, 40));
    EXPECT_EQ(out->scheme, "int8 per channel");
  }
}

TEST(Dequantise, TakesOneScaleAGroupOfColumns) {
  const Stored codes = int8s({2, 4}, {1, 1, 1, 1, 1, 1, 1, 1});
  const auto out = unpack(codes, floats({2, 2}, {1, 2, 3, 4}), {2, 4});
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_THAT(values_of(out->tensor), ElementsAre(1, 1, 2, 2, 3, 3, 4, 4));
  EXPECT_EQ(out->scheme, "int8 per group of 2");
}

TEST(Dequantise, ReadsTwoInt4FromAByteWhereAnAxisIsHalved) {
  // 0x2F: low nibble 15 = -1, high nibble 2
  const Stored scale = floats({1}, {1});
  const auto columns = unpack(int8s({1, 1}, {0x2F}), scale, {1, 2});
  ASSERT_TRUE(columns) << columns.error().message;
  EXPECT_THAT(values_of(columns->tensor), ElementsAre(-1, 2));
  EXPECT_EQ(columns->scheme, "int4 per tensor");
  const auto rows = unpack(int8s({1, 2}, {0x2F, 0x43}), scale, {2, 2});
  ASSERT_TRUE(rows) << rows.error().message;
  EXPECT_THAT(values_of(rows->tensor), ElementsAre(-1, 3, 2, 4));
}

TEST(Dequantise, ScalesFloat8InBlocksOf128) {
  // e4m3: 0x38 is 1.0. 130 rows and 2 columns make 2 x 1 blocks.
  const Stored codes =
      stored<uint8_t>(DType::Float8E4M3FN, {130, 2}, std::vector<uint8_t>(260, 0x38));
  const auto out = unpack(codes, floats({2, 1}, {3, 5}), {130, 2});
  ASSERT_TRUE(out) << out.error().message;
  const std::vector<double> values = values_of(out->tensor);
  EXPECT_EQ(values[127 * 2], 3);
  EXPECT_EQ(values[128 * 2], 5);
  EXPECT_EQ(out->scheme, "float8_e4m3fn per block of 128 x 2");
}

TEST(Dequantise, ReadsWordsOfCompressedTensors) {
  // Row of codes -8 -7 ... -1 as offset-binary nibbles 0 1 ... 7, the first one lowest.
  const Stored zero = words({1, 1}, {0x00000009});  // row 0: 9 - 8 = 1
  const auto out = unpack(words({1, 1}, {0x76543210}), floats({1, 1}, {2}), {1, 8}, &zero,
                          pair::Coding::CompressedTensors);
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_THAT(values_of(out->tensor), ElementsAre(-18, -16, -14, -12, -10, -8, -6, -4));
}

TEST(Dequantise, ReadsGptqColumnsWithOrder) {
  // [in 8 / 8, out 8]: output channel o holds the nibbles o, o + 1 ... of 8 inputs.
  std::vector<uint32_t> codes;
  for (uint32_t o = 0; o < 8; ++o) codes.push_back(0x76543210u + o * 0x11111111u);
  const Stored zero = words({2, 1}, {0x77777777, 0x77777777});  // stored less one: 8
  const Stored scale = floats({2, 8}, {1, 1, 1, 1, 1, 1, 1, 1, 10, 10, 10, 10, 10, 10, 10, 10});
  const Stored group =
      stored<int32_t>(DType::Int32, {8}, std::vector<int32_t>{0, 1, 0, 1, 0, 1, 0, 1});
  QuantisedParts parts;
  const Stored qweight = words({1, 8}, codes);
  parts.coding = pair::Coding::QWeight;
  parts.codes = qweight.view;
  parts.scale = scale.view;
  parts.zero = zero.view;
  parts.group_index = group.view;
  const auto out = dequantise(parts, {8, 8}, false, 1);
  ASSERT_TRUE(out) << out.error().message;
  const std::vector<double> values = values_of(out->tensor);
  EXPECT_THAT(std::vector<double>(values.begin(), values.begin() + 4),
              ElementsAre(-8, -70, -6, -50));
  EXPECT_EQ(values[8], -7);  // output channel 1, input 0
  EXPECT_EQ(out->scheme, "GPTQ int4 per group of 4");
}

TEST(Dequantise, ReadsAwqRowsInItsOrder) {
  // [in 1, out 8 / 8]: nibble p of 0x76543210 is p; output channels read places 0 4 1 5 2 6 3 7.
  const Stored zero = words({1, 1}, {0});
  const auto out = unpack(words({1, 1}, {0x76543210}), floats({1, 8}, std::vector<float>(8, 1)),
                          {8, 1}, &zero, pair::Coding::QWeight);
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_THAT(values_of(out->tensor), ElementsAre(0, 4, 1, 5, 2, 6, 3, 7));
}

TEST(Dequantise, RefusesScalesThatFitNothing) {
  const auto out =
      unpack(int8s({2, 4}, std::vector<int8_t>(8, 1)), floats({3, 1}, {1, 2, 3}), {2, 4});
  ASSERT_FALSE(out);
  EXPECT_EQ(out.error().message,
            "the scale has shape [3, 1], which does not fit a weight of shape [2, 4]");
  const Stored index = stored<int32_t>(DType::Int32, {8}, std::vector<int32_t>(8, 7));
  QuantisedParts parts;
  const Stored codes = words({1, 1}, {0});
  const Stored scale = floats({1, 1}, {1});
  parts.coding = pair::Coding::CompressedTensors;
  parts.codes = codes.view;
  parts.scale = scale.view;
  parts.group_index = index.view;
  const auto group = dequantise(parts, {1, 8}, false, 1);
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().message, "g_idx names group 7.0 of 1");
}

TEST(Dequantise, RoundsLikeTorchWhenAsked) {
  // bf16 has 8 digits: (100 - 0) * 1.0078125 = 100.78125 rounds to 101.
  const Stored scale = stored<uint16_t>(DType::BFloat16, {1}, std::vector<uint16_t>{0x3F81});
  const Stored offset = stored<uint16_t>(DType::BFloat16, {1}, std::vector<uint16_t>{0});
  const auto like_torch = unpack(int8s({1}, {100}), scale, {1}, &offset, pair::Coding::Codes, true);
  ASSERT_TRUE(like_torch);
  EXPECT_THAT(values_of(like_torch->tensor), ElementsAre(101));
  EXPECT_EQ(like_torch->dtype, "torch.bfloat16");
  const auto exact = unpack(int8s({1}, {100}), scale, {1}, &offset);
  ASSERT_TRUE(exact);
  EXPECT_THAT(values_of(exact->tensor), ElementsAre(100.78125));
}

TEST(Dequantise, DoesNotDependOnThreads) {
  std::vector<int8_t> codes(300 * 700);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<int8_t>(i * 37);
  std::vector<float> scales(300 * 7);
  for (size_t i = 0; i < scales.size(); ++i) scales[i] = 1.0f / static_cast<float>(i + 1);
  const Stored weight = int8s({300, 700}, codes);
  const Stored scale = floats({300, 7}, scales);
  QuantisedParts parts;
  parts.codes = weight.view;
  parts.scale = scale.view;
  const auto one = dequantise(parts, {300, 700}, false, 1);
  const auto four = dequantise(parts, {300, 700}, false, 4);
  ASSERT_TRUE(one && four);
  const std::vector<double> values = values_of(one->tensor);
  EXPECT_EQ(values, values_of(four->tensor));
  for (size_t i = 0; i < values.size(); ++i) {
    const double expected = static_cast<float>(
        static_cast<double>(codes[i]) * static_cast<double>(scales[i / 700 * 7 + i % 700 / 100]));
    ASSERT_EQ(values[i], expected) << i;
  }
}

/// A tensor of any of these types with sizes from 0 to 17, not always of a fitting number of axes.
Stored any_tensor(std::initializer_list<DType> dtypes) {
  const auto below = [](int limit) {
    return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(0, limit));
  };
  const DType dtype = std::data(dtypes)[below(static_cast<int>(dtypes.size()))];
  Dims shape;
  const int rank = below(8) == 0 ? below(4) : 2;
  for (int i = 0; i < rank; ++i) shape.push_back(below(8) == 0 ? below(18) : 1 << below(5));
  const auto count = static_cast<uint64_t>(element_count(shape).value());
  Stored out;
  *out.bytes = *rc::gen::container<std::string>(storage_bytes(dtype, count).value(),
                                                rc::gen::arbitrary<char>());
  out.view = make_view(dtype, shape, as_bytes(*out.bytes)).value();
  return out;
}

// Fits are rare but happen; under ASan a read beyond any of the tensors ends the test.
RC_GTEST_PROP(Dequantise, AnswersWhateverTheShapesAre, ()) {
  using enum DType;
  QuantisedParts parts;
  const auto below = [](int limit) {
    return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(0, limit));
  };
  parts.coding = static_cast<pair::Coding>(1 + below(3));
  const Stored codes = parts.coding == pair::Coding::Codes
                           ? any_tensor({Int8, UInt8, Float8E4M3FN, Float8E5M2})
                           : any_tensor({Int32});
  const Stored scale = any_tensor({Float32, Float16, BFloat16, Float8E8M0FNU, Int8, Complex64});
  const Stored zero = any_tensor({Float32, Int8, Int32});
  const Stored index = any_tensor({Int32, Int64});
  const Stored wanted = any_tensor({Int8});
  parts.codes = codes.view;
  parts.scale = scale.view;
  if (below(2) == 0) parts.zero = zero.view;
  if (below(4) == 0) parts.group_index = index.view;
  const Dims shape = below(2) == 0 ? codes.view.shape : wanted.view.shape;
  const auto out = dequantise(parts, shape, below(2) == 0, 1);
  RC_CLASSIFY(out.has_value(), "unpacked");
  if (out) RC_ASSERT(out->tensor.view.storage.size() == 4 * values_of(out->tensor).size());
}

TEST(ScratchTensor, HoldsTheSameInMemoryAndInAFile) {
  for (const uint64_t max_memory : {uint64_t{1} << 20, uint64_t{0}}) {
    auto scratch = pair::ScratchTensor::create({2, 3}, max_memory);
    ASSERT_TRUE(scratch) << scratch.error().message;
    ASSERT_TRUE(scratch->write(3, std::vector<float>{4, 5, 6}));
    ASSERT_TRUE(scratch->write(0, std::vector<float>{1, 2, 3}));
    const auto tensor = std::move(*scratch).finish();
    ASSERT_TRUE(tensor) << tensor.error().message;
    EXPECT_THAT(values_of(*tensor), ElementsAre(1, 2, 3, 4, 5, 6));
  }
}

// ---- folders ----

using Named = std::vector<std::pair<std::string, Stored>>;

void put_shard(const TestFolder& folder, const std::string& name, const Named& tensors) {
  std::vector<std::pair<std::string, TensorView>> views;
  for (const auto& [key, tensor] : tensors) views.emplace_back(key, tensor.view);
  folder.put(name, formats::write_safetensors(views).value());
}

Comparison compared(const TestFolder& golden, const TestFolder& mine,
                    const CompareOptions& options = {}) {
  auto out = compare_weights(golden.path(), mine.path(), options);
  if (!out) {
    ADD_FAILURE() << out.error().describe();
    return {};
  }
  return *std::move(out);
}

const Row* find_row(const Comparison& comparison, const std::string& name) {
  for (const Row& row : comparison.sheets.at(0).rows) {
    if (row.label == name) return &row;
  }
  ADD_FAILURE() << "no row " << name;
  static const Row kNone;
  return &kNone;
}

TEST(CompareWeights, ReadsEveryShardAndUnpacksMine) {
  const TestFolder golden;
  const TestFolder mine;
  put_shard(golden, "model-00001-of-00002.safetensors", {{"a.weight", floats({2}, {4, -2})}});
  put_shard(golden, "model-00002-of-00002.safetensors", {{"b.weight", floats({2}, {1, 3})}});
  put_shard(mine, "q-1.safetensors", {{"b.weight", floats({2}, {1, 3})}});
  put_shard(mine, "q-2.safetensors",
            {{"a.weight", int8s({2}, {10, -3})},
             {"a.weight_offset", floats({1}, {2})},
             {"a.weight_scale", floats({1}, {0.5})}});
  const Comparison comparison = compared(golden, mine);
  ASSERT_EQ(comparison.sheets[0].rows.size(), 2u);
  EXPECT_TRUE(comparison.sheets[0].matching.unmatched.empty());
  const Row* row = find_row(comparison, "a.weight");
  EXPECT_EQ(row->mine.dtype, "torch.float32");
  EXPECT_EQ(row->mine.min, -2.5);
  EXPECT_EQ(row->quantisation, "int8 per tensor, asymmetric");
  EXPECT_EQ(row->metrics->max_absolute_error, 0.5);
  // 10 log10((16 + 4) / 0.25)
  EXPECT_NEAR(row->sqnr_db, 10 * std::log10(80), 1e-12);
  EXPECT_TRUE(find_row(comparison, "b.weight")->identical);
}

TEST(CompareWeights, ComparesEqualCodesAsTheyAre) {
  const TestFolder golden;
  const TestFolder mine;
  const Named content = {{"a.weight", int8s({2}, {10, -3})},
                         {"a.weight_scale", floats({1}, {0.5})}};
  Named other = content;
  other[0].second = int8s({2}, {10, -4});
  put_shard(golden, "m.safetensors", content);
  put_shard(mine, "m.safetensors", other);
  const Comparison comparison = compared(golden, mine);
  EXPECT_EQ(comparison.sheets[0].rows.size(), 2u);
  EXPECT_EQ(find_row(comparison, "a.weight")->mine.dtype, "torch.int8");
  EXPECT_EQ(find_row(comparison, "a.weight")->metrics->max_absolute_error, 1);
  EXPECT_TRUE(find_row(comparison, "a.weight_scale")->identical);
}

TEST(CompareWeights, SaysWhichScaleIsMissing) {
  const TestFolder golden;
  const TestFolder mine;
  put_shard(golden, "m.safetensors", {{"a.weight", floats({2}, {4, -2})}});
  put_shard(mine, "m.safetensors", {{"a.weight", int8s({2}, {10, -3})}});
  const Comparison comparison = compared(golden, mine);
  const Row* row = find_row(comparison, "a.weight");
  EXPECT_FALSE(row->comparable);
  EXPECT_EQ(row->fail_reason, "my weight is torch.int8 and 'a.weight_scale' is missing.");
}

TEST(CompareWeights, ListsNamesThatOnlyOneSideHas) {
  const TestFolder golden;
  const TestFolder mine;
  put_shard(golden, "m.safetensors", {{"a", floats({1}, {1})}, {"b", floats({1}, {1})}});
  put_shard(mine, "m.safetensors", {{"a", floats({1}, {1})}, {"c", floats({1}, {1})}});
  const Comparison comparison = compared(golden, mine);
  const pair::Matching& matching = comparison.sheets[0].matching;
  ASSERT_EQ(matching.unmatched.size(), 2u);
  EXPECT_EQ(matching.unmatched[0].reason, "weight exists only in golden");
  EXPECT_EQ(matching.unmatched[1].reason, "weight exists only in mine");
  EXPECT_EQ(matching.coverage_percent(), 50);
}

TEST(CompareWeights, FindsAPrefixThatAllNamesOfASideHave) {
  const TestFolder golden;
  const TestFolder mine;
  put_shard(golden, "m.safetensors",
            {{"layers.0.weight", floats({1}, {1})},
             {"layers.1.weight", floats({1}, {2})},
             {"lm_head.weight", floats({1}, {3})}});
  put_shard(mine, "m.safetensors",
            {{"model.layers.0.weight", floats({1}, {1})},
             {"model.layers.1.weight", floats({1}, {2})},
             {"lm_head.weight", floats({1}, {3})}});
  const Comparison comparison = compared(golden, mine);
  EXPECT_EQ(comparison.sheets[0].rows.size(), 3u);
  const Row* row = find_row(comparison, "layers.1.weight");
  EXPECT_TRUE(row->identical);
  EXPECT_EQ(row->matched_by, pair::Rule::PrefixedNames);
  EXPECT_EQ(row->note, "my name: model.layers.1.weight");
}

TEST(CompareWeights, DoesNotGuessBetweenTwoPrefixes) {
  const TestFolder golden;
  const TestFolder mine;
  put_shard(golden, "m.safetensors", {{"w", floats({1}, {1})}});
  put_shard(mine, "m.safetensors", {{"a.w", floats({1}, {1})}, {"b.w", floats({1}, {1})}});
  EXPECT_TRUE(compared(golden, mine).sheets[0].rows.empty());
}

TEST(CompareWeights, TakesAMissingHeadForTied) {
  const TestFolder golden;
  const TestFolder mine;
  put_shard(
      golden, "m.safetensors",
      {{"model.embed_tokens.weight", floats({1}, {1})}, {"lm_head.weight", floats({1}, {1})}});
  put_shard(mine, "m.safetensors", {{"model.embed_tokens.weight", floats({1}, {1})}});
  EXPECT_EQ(find_row(compared(golden, mine), "lm_head.weight")->matched_by,
            pair::Rule::TiedEmbedding);
  EXPECT_EQ(find_row(compared(mine, golden), "lm_head.weight")->matched_by,
            pair::Rule::TiedEmbedding);
  mine.put("config.json", R"({"tie_word_embeddings": false})");
  EXPECT_EQ(compared(golden, mine).sheets[0].matching.unmatched.size(), 1u);
}

TEST(CompareWeights, MakesARowOfWhatCannotBeRead) {
  const TestFolder golden;
  const TestFolder mine;
  put_shard(golden, "m.safetensors", {{"a", floats({1}, {1})}, {"b", floats({1}, {1})}});
  put_shard(mine, "m-1.safetensors", {{"a", floats({1}, {1})}});
  mine.put("m-2.safetensors", "broken");
  mine.put("model.safetensors.index.json",
           R"({"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}})");
  const Comparison comparison = compared(golden, mine);
  EXPECT_TRUE(find_row(comparison, "a")->identical);
  const Row* row = find_row(comparison, "b");
  EXPECT_FALSE(row->comparable);
  EXPECT_THAT(row->fail_reason, HasSubstr("m-2.safetensors"));
}

TEST(CompareWeights, FailsRowsWithoutNumbersWhenLimitsAreGiven) {
  const TestFolder golden;
  const TestFolder mine;
  put_shard(golden, "m.safetensors", {{"a", floats({2}, {1, 2})}, {"b", floats({2}, {1, 2})}});
  put_shard(mine, "m.safetensors", {{"a", floats({3}, {1, 2, 3})}, {"b", floats({2}, {1, 2.5})}});
  CompareOptions options;
  options.limits.rules.push_back({"a", "", "", {.rel_l2 = 1}});
  options.limits.rules.push_back({"b", "", "", {.rel_l2 = 1}});
  const Comparison comparison = compared(golden, mine, options);
  EXPECT_EQ(find_row(comparison, "a")->outcome, Outcome::Fail);
  EXPECT_EQ(find_row(comparison, "a")->fail_reason, "data shape doesn't match.");
  EXPECT_EQ(find_row(comparison, "b")->outcome, Outcome::Pass);
}

TEST(CompareWeights, KeepsTheRowsOfTheOriginalInCompatMode) {
  const TestFolder golden;
  const TestFolder mine;
  put_shard(golden, "m.safetensors",
            {{"z.weight", floats({2}, {4, -2})},
             {"a.weight", floats({2}, {4, -2})},
             {"float.weight", floats({1}, {1})},
             {"a.bias", floats({1}, {1})},
             {"late.weight", floats({1}, {1})}});
  const auto quantised = [](const std::string& name) {
    return Named{{name, int8s({2}, {10, -3})},
                 {name + "_offset", floats({1}, {2})},
                 {name + "_scale", floats({1}, {0.5})}};
  };
  Named first = quantised("a.weight");
  const Named more = quantised("z.weight");
  first.insert(first.end(), more.begin(), more.end());
  first.emplace_back("float.weight", floats({1}, {1}));
  put_shard(mine, "1.safetensors", first);
  put_shard(mine, "2.safetensors", quantised("late.weight"));  // never read
  CompareOptions options;
  options.conventions = vendor::msit::conventions();
  const Comparison comparison = compared(golden, mine, options);
  const std::vector<Row>& rows = comparison.sheets[0].rows;
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].label, "z.weight");
  EXPECT_EQ(rows[1].label, "a.weight");
  EXPECT_EQ(rows[0].metrics->max_absolute_error, 0.5);
}

TEST(OpenCheckpoint, RefusesWhatIsNone) {
  const TestFolder folder;
  EXPECT_EQ(run::open_checkpoint(folder / "missing").error().code, Errc::NotFound);
  folder.put("notes.txt", "x");
  EXPECT_EQ(run::open_checkpoint(folder / "notes.txt").error().code, Errc::Usage);
  EXPECT_EQ(run::open_checkpoint(folder.path()).error().message,
            "No .safetensors files found in the directory.");
}

TEST(OpenCheckpoint, DoesNotFollowAnIndexOutOfTheFolder) {
  const TestFolder folder;
  put_shard(folder, "m.safetensors", {{"a", floats({1}, {1})}});
  folder.put("model.safetensors.index.json", R"({"weight_map": {"a": "../m.safetensors"}})");
  const auto run = run::open_checkpoint(folder.path());
  ASSERT_TRUE(run);
  EXPECT_EQ(run->records.size(), 1u);  // of the file itself
  ASSERT_EQ(run->warnings.size(), 1u);
  EXPECT_THAT(run->warnings[0], HasSubstr("is no name of a file"));
}

}  // namespace
}  // namespace assay::compare
