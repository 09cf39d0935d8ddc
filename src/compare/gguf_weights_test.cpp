// SPDX-License-Identifier: Apache-2.0
// Converted weights by hand; tests/cli/test_gguf_weights.py compares files of the gguf package.
#include "compare/gguf_weights.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "run/test_folder.hpp"
#include "tensor/convert.hpp"

namespace assay::compare {
namespace {

using run::test::TestFolder;

run::TensorRecord named(const std::string& name) {
  run::TensorRecord record;
  record.node = name;
  return record;
}

run::Run gguf_run(const std::string& architecture, const std::vector<std::string>& names) {
  run::Run run;
  run.properties["gguf:general.architecture"] = architecture;
  run.properties["gguf:" + architecture + ".attention.head_count"] = "2";
  run.properties["gguf:" + architecture + ".attention.head_count_kv"] = "[1, 2]";
  for (const std::string& name : names) run.records.push_back(named(name));
  return run;
}

std::vector<double> values_of(const Tensor& tensor) {
  std::vector<double> out(static_cast<size_t>(tensor.view.element_count()));
  read_values(tensor.view, 0, tensor.view.element_count(), out);
  return out;
}

Tensor column(const std::vector<float>& values) {
  const auto owned = std::make_shared<std::vector<float>>(values);
  return {make_view(DType::Float32, Dims{static_cast<int64_t>(values.size()), 1},
                    std::as_bytes(std::span<const float>(*owned)))
              .value(),
          owned};
}

TEST(AsCheckpoint, GivesTheCheckpointsNamesAndHeads) {
  const GgufSide side = as_checkpoint(
      gguf_run("llama", {"token_embd.weight", "blk.1.attn_q.weight", "blk.1.attn_k.weight",
                         "blk.0.attn_k.weight", "blk.0.attn_v.weight", "rope_freqs.weight"}),
      {});
  EXPECT_EQ(side.run.records[0].node, "model.embed_tokens.weight");
  EXPECT_EQ(side.run.records[1].node, "model.layers.1.self_attn.q_proj.weight");
  EXPECT_EQ(side.weights.at(1).rope_heads, 2);
  EXPECT_EQ(side.weights.at(2).rope_heads, 2);  // of layer 1
  EXPECT_EQ(side.weights.at(3).rope_heads, 1);  // of layer 0
  EXPECT_EQ(side.weights.at(4).rope_heads, 0);
  EXPECT_EQ(side.run.records[5].node, "rope_freqs.weight");
  EXPECT_FALSE(side.weights.contains(5));
}

TEST(AsCheckpoint, LeavesRowsOfOtherArchitecturesAsTheyAre) {
  const GgufSide side = as_checkpoint(gguf_run("qwen2", {"blk.0.attn_q.weight"}), {});
  EXPECT_EQ(side.weights.at(0).rope_heads, 0);
}

TEST(AsCheckpoint, TakesTheNormBeforeTheMlpOfGemma2ByTheCheckpointsNames) {
  run::Run checkpoint;
  checkpoint.records = {named("model.layers.0.pre_feedforward_layernorm.weight"),
                        named("model.layers.0.post_attention_layernorm.weight")};
  const GgufSide side = as_checkpoint(
      gguf_run("gemma2", {"blk.0.ffn_norm.weight", "blk.0.post_attention_norm.weight"}),
      checkpoint);
  EXPECT_EQ(side.run.records[0].node, "model.layers.0.pre_feedforward_layernorm.weight");
  EXPECT_EQ(side.run.records[1].node, "model.layers.0.post_attention_layernorm.weight");
  EXPECT_TRUE(side.weights.at(0).plus_one);
}

TEST(InCheckpointOrder, UndoesTheOrderOfNeighbours) {
  // Two heads of four rows: row i went to 2 i, row i + 2 to 2 i + 1.
  const Tensor stored = column({0, 2, 1, 3, 10, 12, 11, 13});
  const auto ordered = in_checkpoint_order(stored, {.name = "q", .rope_heads = 2});
  ASSERT_TRUE(ordered.has_value());
  EXPECT_THAT(values_of(*ordered), testing::ElementsAre(0, 1, 2, 3, 10, 11, 12, 13));
  const auto wrong = in_checkpoint_order(stored, {.name = "q", .rope_heads = 3});
  ASSERT_FALSE(wrong.has_value());
  EXPECT_EQ(wrong.error().code, Errc::Invalid);
}

TEST(InCheckpointOrder, PutsTheFusedHeadsTogether) {
  // Two heads of two rows: the file has Q of both, K of both, V of both.
  const Tensor stored = column({1, 2, 3, 4, 11, 12, 13, 14, 21, 22, 23, 24});
  const auto ordered = in_checkpoint_order(stored, {.name = "qkv", .fused_heads = 2});
  ASSERT_TRUE(ordered.has_value());
  EXPECT_THAT(values_of(*ordered),
              testing::ElementsAre(1, 2, 11, 12, 21, 22, 3, 4, 13, 14, 23, 24));
  EXPECT_FALSE(in_checkpoint_order(stored, {.name = "qkv", .fused_heads = 3}).has_value());
}

/// A record of bytes 1000 to 1000 + size_bytes of some file.
run::TensorRecord stored_at(const std::string& name, const Dims& shape, uint64_t size_bytes) {
  run::TensorRecord record = named(name);
  record.shape = shape;
  record.bytes = run::ByteLocation{
      .file = "f", .member = name, .offset = 1000, .size_bytes = size_bytes, .raw = true};
  return record;
}

TEST(TakeExpertsApart, GivesEachMatrixItsBytes) {
  run::Run gguf;
  gguf.records = {stored_at("blk.3.ffn_up_exps.weight", Dims{2, 4, 32}, 2 * 4 * 34)};  // q8_0
  run::Run checkpoint;
  checkpoint.records = {
      stored_at("model.layers.3.mlp.experts.gate_up_proj", Dims{2, 8, 32}, 2 * 8 * 64),
      stored_at("model.layers.3.mlp.experts.down_proj", Dims{2, 32, 4}, 2 * 32 * 8)};

  take_experts_apart(&gguf, &checkpoint);

  ASSERT_EQ(gguf.records.size(), 2U);
  EXPECT_EQ(gguf.records[1].node, "blk.3.ffn_up.1.weight");
  EXPECT_EQ(gguf.records[1].shape, (Dims{4, 32}));
  EXPECT_EQ(gguf.records[1].bytes->offset, 1000U + 4 * 34);
  EXPECT_EQ(gguf.records[1].bytes->size_bytes, 4U * 34);
  ASSERT_EQ(checkpoint.records.size(), 2U * 2 + 2);
  EXPECT_EQ(checkpoint.records[3].node, "model.layers.3.mlp.experts.1.up_proj.weight");
  EXPECT_EQ(checkpoint.records[3].bytes->offset, 1000U + 12 * 64);
  EXPECT_EQ(checkpoint.records[5].node, "model.layers.3.mlp.experts.1.down_proj.weight");
  EXPECT_EQ(checkpoint.records[5].shape, (Dims{32, 4}));
}

TEST(TakeExpertsApart, LeavesOtherOrdersOfAxesAsTheyAre) {
  run::Run gguf;
  gguf.records = {stored_at("blk.0.ffn_up_exps.weight", Dims{2, 4, 32}, 2 * 4 * 34)};
  run::Run checkpoint;  // gpt-oss: [experts, columns, rows]
  checkpoint.records = {
      stored_at("model.layers.0.mlp.experts.gate_up_proj", Dims{2, 32, 8}, 2 * 8 * 64)};

  take_experts_apart(&gguf, &checkpoint);

  EXPECT_EQ(checkpoint.records.size(), 1U);
}

TEST(OtherOrder, SaysWhatTheConverterDidWithTheRows) {
  const Tensor golden = column({1, -2, 3, -4, 5, 6, -7, 8});
  const GgufWeight reordered{.name = "q", .rope_heads = 1, .heads = 1};
  const GgufWeight as_it_is{.name = "q", .rope_heads = 0, .heads = 1};
  // Row i of 8 to 2 i, row i + 4 to 2 i + 1.
  const Tensor in_rope_order = column({1, 5, -2, 6, 3, -7, -4, 8});

  const auto forgotten = other_order(golden, reordered, golden.view);
  ASSERT_TRUE(forgotten.has_value() && forgotten->has_value());
  EXPECT_THAT(**forgotten, testing::HasSubstr("as they stand in the file"));
  const auto too_much = other_order(in_rope_order, as_it_is, golden.view);
  ASSERT_TRUE(too_much.has_value() && too_much->has_value());
  EXPECT_THAT(**too_much, testing::HasSubstr("does not have"));
  const auto neither = other_order(column({9, 1, -3, 2, 2, 0, 1, 5}), reordered, golden.view);
  EXPECT_TRUE(neither.has_value() && !neither->has_value());
}

TEST(InCheckpointOrder, TakesTheOneOffAgain) {
  const auto plain = in_checkpoint_order(column({1.5, 0}), {.name = "n", .plus_one = true});
  EXPECT_THAT(values_of(*plain), testing::ElementsAre(0.5, -1));
}

/// Two rows of one q8_0 block each: d = 0.5, codes as given for value 0, zeros behind it.
run::TensorRecord q8_0_record(const TestFolder& folder, int first, int second) {
  std::string bytes;
  for (const int code : {first, second}) {
    append(bytes, uint16_t{0x3800});
    append(bytes, static_cast<int8_t>(code));
    bytes.append(31, '\0');
  }
  folder.put("payload.raw", bytes);
  run::TensorRecord record = named("w");
  record.dtype = DType::Float32;
  record.memory_format = "q8_0";
  record.shape = Dims{2, 32};
  run::ByteLocation location;
  location.file = folder / "payload.raw";
  location.size_bytes = bytes.size();
  location.raw = true;
  record.bytes = location;
  return record;
}

Result<std::optional<RoundingCheck>> checked(const run::TensorRecord& record, float first,
                                             float second, int64_t heads = 0) {
  std::vector<float> golden(64);
  golden[0] = first;
  golden[32] = second;
  const TensorView view =
      make_view(DType::Float32, Dims{2, 32}, std::as_bytes(std::span<const float>(golden))).value();
  return check_rounding(record, {.name = "w", .rope_heads = heads}, view, 2);
}

TEST(CheckRounding, IsContentWithinHalfAStep) {
  const TestFolder folder;
  // Steps of 0.5: 5 and -2.5, from 5.2 and -2.3.
  const auto check = checked(q8_0_record(folder, 10, -5), 5.2F, -2.3F);
  ASSERT_TRUE(check.has_value() && check->has_value());
  EXPECT_EQ((*check)->text(), "q8_0, within half a step");
}

TEST(CheckRounding, NamesTheBlockThatRoundingDoesNotExplain) {
  const TestFolder folder;
  const auto check = checked(q8_0_record(folder, 10, -5), 5.0F, 1.5F);
  ASSERT_TRUE(check.has_value() && check->has_value());
  // 1.5 - -2.5 = 8 steps.
  EXPECT_EQ((*check)->text(),
            "q8_0, 1 of 64 values unexplained in 1 block; worst: block 1 (row 1), 8 steps");
}

TEST(CheckRounding, CallsNaNUnexplained) {
  const TestFolder folder;
  const auto check = checked(q8_0_record(folder, 10, -5), NAN, -2.5F);
  ASSERT_TRUE(check.has_value() && check->has_value());
  EXPECT_EQ((*check)->unexplained, 1);
  EXPECT_EQ((*check)->worst_block, 0);
}

TEST(CheckRounding, HasNothingToSayOfPlainTypes) {
  const TestFolder folder;
  run::TensorRecord record = q8_0_record(folder, 1, 1);
  record.memory_format.clear();
  const auto check = checked(record, 1, 1);
  ASSERT_TRUE(check.has_value());
  EXPECT_FALSE(check->has_value());
}

}  // namespace
}  // namespace assay::compare
