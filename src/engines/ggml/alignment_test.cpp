// SPDX-License-Identifier: Apache-2.0
#include "engines/ggml/alignment.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "engines/engines.hpp"
#include "pair/match.hpp"
#include "tensor/convert.hpp"

namespace assay::engines::ggml {
namespace {

Result<pair::Matching> matching_of(const run::Run& golden, const run::Run& mine,
                                   const pair::UserRules& user = {}) {
  ASSAY_TRY(const pair::Correspondence pairs, pair::correspond(golden, mine, user, for_pairing()));
  return pair::match_runs(golden, mine, pairs, {});
}

using run::Run;
using run::TensorRecord;
using Integers = std::vector<int64_t>;
using Values = std::vector<double>;

/// Values that are at hand without a file.
class Given final : public run::MadeTensor {
 public:
  Given(Dims shape, Values values) : shape_(std::move(shape)), values_(std::move(values)) {}
  [[nodiscard]] Result<Tensor> make() const override {
    ASSAY_TRY(const TensorView view,
              make_view(DType::Float64, shape_, std::as_bytes(std::span<const double>(values_))));
    return Tensor{view, std::shared_ptr<const void>(std::shared_ptr<void>(), values_.data())};
  }

 private:
  Dims shape_;
  Values values_;
};

TensorRecord tensor(std::string node, Role role, int64_t step, const Dims& shape, Values values,
                    DType dtype = DType::Float32) {
  TensorRecord record;
  record.node = std::move(node);
  record.role = role;
  record.step = step;
  record.dtype = dtype;
  record.shape = shape;
  record.bytes.emplace();
  record.set_made(std::make_shared<Given>(shape, std::move(values)));
  return record;
}

Values counting(int64_t count, double first = 0) {
  Values values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), first);
  return values;
}

class Runs {
 public:
  Runs() { ggml.properties["host.kind"] = "ggml"; }

  /// A step of Hugging Face that computes these tokens; without ids only their number is known.
  void hf_step(int64_t step, const Integers& tokens, bool ids = true) {
    const auto count = static_cast<int64_t>(tokens.size());
    if (ids)
      hf.records.push_back(tensor("model.embed_tokens", Role::Input, step, {1, count},
                                  Values(tokens.begin(), tokens.end()), DType::Int64));
    if (ids) hf.records.back().slot = "0";
    hf_output("model.embed_tokens", step, {1, count, 2});
  }
  void hf_output(const std::string& module, int64_t step, const Dims& shape) {
    hf.records.push_back(
        tensor(module, Role::Output, step, shape, counting(element_count(shape).value())));
    hf.records.back().order = hf.records.size();
  }

  /// A graph of ggml over tokens from this position on.
  void graph(int64_t step, const Integers& tokens, int64_t position) {
    const auto count = static_cast<int64_t>(tokens.size());
    leaf(step, "inp_tokens", Values(tokens.begin(), tokens.end()));
    leaf(step, "inp_pos", counting(count, static_cast<double>(position)));
    node(step, "embd::ggml.get_rows.0", {count, 2});
  }
  void leaf(int64_t step, const std::string& name, Values values) {
    const auto count = static_cast<int64_t>(values.size());
    ggml.records.push_back(
        tensor("x::ggml.view.0", Role::Input, step, {count}, std::move(values), DType::Int32));
    ggml.records.back().leaf = name;
  }
  void node(int64_t step, const std::string& name, const Dims& shape, double first = 0) {
    ggml.records.push_back(
        tensor(name, Role::Output, step, shape, counting(element_count(shape).value(), first)));
    ggml.records.back().order = ggml.records.size();
  }
  void rope(int64_t mode) {
    run::OperationRecord operation;
    operation.op_type = "ggml.rope";
    operation.parameters = R"({"mode": )" + std::to_string(mode) + "}";
    ggml.operations.push_back(operation);
  }

  [[nodiscard]] Alignment align() const {
    auto alignment = engines::ggml::align(hf, ggml);
    EXPECT_TRUE(alignment) << alignment.error().message;
    return alignment ? *alignment : Alignment{};
  }
  [[nodiscard]] Values ggml_values(const TensorPair& pair) const {
    return values_of(load_operand(ggml, pair.ggml_recipe(hf, ggml)));
  }
  [[nodiscard]] Values hf_values(const TensorPair& pair) const {
    return values_of(load_operand(hf, pair.hf_recipe(hf)));
  }

  Run hf;
  Run ggml;

 private:
  static Values values_of(const Result<Tensor>& tensor) {
    EXPECT_TRUE(tensor) << tensor.error().message;
    if (!tensor) return {};
    Values values(static_cast<size_t>(tensor->view.element_count()));
    read_values(tensor->view, 0, tensor->view.element_count(), values);
    return values;
  }
};

const TensorPair* find(const Alignment& alignment, const std::string& node) {
  for (const TensorPair& pair : alignment.pairs) {
    if (pair.node == node) return &pair;
  }
  return nullptr;
}

TEST(AlignGgml, TakesAPromptInPiecesForOneStepAndLeavesOutTheWarmUp) {
  Runs runs;
  runs.hf_step(0, {1, 50, 60, 70, 300});
  runs.hf_step(1, {7});
  runs.graph(0, {1, 2}, 0);  // the engine's own
  runs.graph(1, {1, 50, 60}, 0);
  runs.graph(2, {70, 300}, 3);
  runs.graph(3, {7}, 5);
  const Alignment alignment = runs.align();
  ASSERT_EQ(alignment.spans.size(), 2U);
  EXPECT_EQ(alignment.spans[0].ggml_steps, (Integers{1, 2}));
  EXPECT_EQ(alignment.spans[1].ggml_steps, (Integers{3}));
  ASSERT_EQ(alignment.pairs.size(), 2U);
  // Rows of two channels: three of the first graph, then two of the second, which count from 0
  // again.
  EXPECT_EQ(runs.ggml_values(alignment.pairs[0]), (Values{0, 1, 2, 3, 4, 5, 0, 1, 2, 3}));
  EXPECT_EQ(alignment.notes.size(), 3U);
}

TEST(AlignGgml, StopsWhereTheRunsGoOnWithOtherTokens) {
  Runs runs;
  runs.hf_step(0, {1, 50});
  runs.hf_step(1, {7});
  runs.graph(0, {1, 50}, 0);
  runs.graph(1, {8}, 2);
  const Alignment alignment = runs.align();
  ASSERT_EQ(alignment.spans.size(), 1U);
  EXPECT_NE(alignment.notes.back().find("from Hugging Face's step 1 on"), std::string::npos);
}

TEST(AlignGgml, TakesWhatAPromptFindsInACacheWhereAnEarlierRequestComputedIt) {
  Runs runs;
  runs.hf_step(0, {1, 50, 60, 70});
  runs.hf_step(1, {7});
  runs.graph(0, {1, 50, 60, 9}, 0);  // another request, and its answer
  runs.graph(1, {3}, 4);
  runs.graph(2, {70}, 3);
  runs.graph(3, {7}, 4);
  const Alignment alignment = runs.align();
  ASSERT_EQ(alignment.spans.size(), 2U);
  EXPECT_EQ(alignment.spans[0].ggml_steps, (Integers{0, 2}));
  EXPECT_EQ(alignment.spans[0].token_of, (Integers{0, 1, 2, -1, 3}));
  EXPECT_EQ(alignment.spans[1].ggml_steps, (Integers{3}));
  EXPECT_EQ(alignment.missing, "");
  ASSERT_EQ(alignment.pairs.size(), 2U);
  // Three rows of two channels of the first graph, and the one of the second's.
  EXPECT_EQ(runs.ggml_values(alignment.pairs[0]), (Values{0, 1, 2, 3, 4, 5, 0, 1}));
  EXPECT_EQ(alignment.notes[0],
            "the first 3 tokens of 4 of Hugging Face's step 0 were taken from a cache: they are "
            "compared where an earlier request computed them");
  // What the other request had alone.
  EXPECT_EQ(alignment.notes.back(),
            "1 graph of ggml computed other tokens (a warm-up, say) and is not compared");
}

TEST(AlignGgml, SaysWhichPromptIsNotJudgedAsItsBeginningCameFromACache) {
  Runs runs;
  runs.hf_step(0, {1, 50, 60, 70});
  runs.hf_step(1, {7});
  runs.graph(0, {60, 70}, 2);  // captured behind the request that filled the cache
  runs.graph(1, {7}, 4);
  const Alignment alignment = runs.align();
  ASSERT_EQ(alignment.spans.size(), 1U);
  EXPECT_EQ(alignment.spans[0].hf_step, 1);
  EXPECT_EQ(alignment.missing,
            "the first 2 tokens of 4 of Hugging Face's step 0 were taken from a cache, which no "
            "graph of the run filled: that step is not compared");
  for (const std::string& note : alignment.notes)
    EXPECT_EQ(note.find("went on with other tokens"), std::string::npos) << note;
}

TEST(AlignGgml, AnotherHistoryBehindACachedPrefixIsNoneOfTheStep) {
  Runs runs;
  runs.hf_step(0, {1, 50, 60, 70});
  runs.hf_step(1, {7});
  runs.graph(0, {1, 51, 60}, 0);  // differs at the second token
  runs.graph(1, {60, 70}, 2);
  runs.graph(2, {7}, 4);
  const Alignment alignment = runs.align();
  ASSERT_EQ(alignment.spans.size(), 1U);
  EXPECT_NE(alignment.missing.find("which no graph of the run filled"), std::string::npos);
}

TEST(AlignGgml, RefusesRunsWithoutATokenInCommon) {
  Runs runs;
  runs.hf_step(0, {1, 50});
  runs.graph(0, {1, 51}, 0);
  const auto alignment = align(runs.hf, runs.ggml);
  ASSERT_FALSE(alignment);
  EXPECT_EQ(alignment.error().code, Errc::Usage);
  // The user knows better.
  const auto told = align(runs.hf, runs.ggml, {{0, 0}});
  ASSERT_TRUE(told);
  EXPECT_EQ(told->pairs.size(), 1U);
}

TEST(AlignGgml, CountsTokensWhereTheirIdsWereNotCaptured) {
  Runs runs;
  runs.hf_step(0, {1, 50, 60}, /*ids=*/false);
  runs.graph(0, {1, 2}, 0);
  runs.graph(1, {9, 9, 9}, 0);
  const Alignment alignment = runs.align();
  ASSERT_EQ(alignment.spans.size(), 1U);
  EXPECT_EQ(alignment.spans[0].ggml_steps, (Integers{1}));
}

TEST(AlignGgml, PairsTheRowsThatBothHave) {
  Runs runs;
  runs.hf_step(0, {1, 50, 60});
  runs.hf_output("model.norm", 0, {1, 3, 2});
  runs.hf_output("lm_head", 0, {1, 1, 4});  // of the last position only
  runs.graph(0, {1, 50, 60}, 0);
  runs.leaf(0, "inp_out_ids", {0, 2});
  runs.node(0, "result_norm::ggml.mul.0", {2, 2});
  runs.node(0, "result_output::ggml.mul_mat.0", {2, 4});
  const Alignment alignment = runs.align();
  const TensorPair* norm = find(alignment, "result_norm mul");
  ASSERT_NE(norm, nullptr);
  EXPECT_EQ(norm->hf_rows, (Integers{0, 2}));
  EXPECT_EQ(runs.hf_values(*norm), (Values{0, 1, 4, 5}));
  EXPECT_EQ(runs.ggml_values(*norm), (Values{0, 1, 2, 3}));
  const TensorPair* head = find(alignment, "result_output mul_mat");
  ASSERT_NE(head, nullptr);
  EXPECT_EQ(runs.hf_values(*head), (Values{0, 1, 2, 3}));
  EXPECT_EQ(runs.ggml_values(*head), (Values{4, 5, 6, 7}));
}

TEST(AlignGgml, BringsHeadsBackFromRopesOrder) {
  for (const int64_t mode : {0, 2}) {
    Runs runs;
    runs.hf_step(0, {1, 50});
    runs.hf_output("model.layers.3.self_attn.q_proj", 0, {1, 2, 8});
    runs.hf_output("model.layers.3.self_attn::aten.add.Tensor.0", 0, {1, 2, 2, 4});
    runs.hf_output("model.layers.3.self_attn::aten.add.Tensor.1", 0, {1, 1, 2, 4});
    runs.graph(0, {1, 50}, 0);
    runs.rope(mode);
    runs.node(0, "Qcur-3::ggml.mul_mat.0", {2, 8});
    runs.node(0, "Qcur-3::ggml.rope.0", {2, 2, 4}, 100);  // [token, head, channel]
    runs.node(0, "Kcur-3::ggml.rope.0", {2, 1, 4});
    const Alignment alignment = runs.align();
    const TensorPair* projected = find(alignment, "Qcur-3 mul_mat");
    const TensorPair* rotated = find(alignment, "Qcur-3 rope");
    ASSERT_NE(projected, nullptr);
    ASSERT_NE(rotated, nullptr);
    ASSERT_NE(find(alignment, "Kcur-3 rope"), nullptr);
    if (mode == 0) {  // channels 0 1 2 3 of a head of Hugging Face stand at 0 2 1 3
      EXPECT_EQ(runs.ggml_values(*projected),
                (Values{0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15}));
      EXPECT_EQ(runs.ggml_values(*rotated), (Values{100, 102, 101, 103, 108, 110, 109, 111,  //
                                                    104, 106, 105, 107, 112, 114, 113, 115}));
    } else {
      EXPECT_EQ(runs.ggml_values(*projected), counting(16));
      EXPECT_EQ(runs.ggml_values(*rotated), (Values{100, 101, 102, 103, 108, 109, 110, 111,  //
                                                    104, 105, 106, 107, 112, 113, 114, 115}));
    }
  }
}

TEST(AlignGgml, CutsProjectionsThatOneEngineHasInOnePiece) {
  Runs runs;
  runs.hf_step(0, {1});
  runs.hf_output("model.layers.0.self_attn.q_proj", 0, {1, 1, 4});
  runs.hf_output("model.layers.0.self_attn.k_proj", 0, {1, 1, 2});
  runs.hf_output("model.layers.0.self_attn.v_proj", 0, {1, 1, 2});
  runs.hf_output("model.layers.1.self_attn.qkv_proj", 0, {1, 1, 8});
  runs.graph(0, {1}, 0);
  runs.node(0, "wqkv-0::ggml.mul_mat.0", {8});
  runs.node(0, "Qcur-1::ggml.mul_mat.0", {4}, 10);
  runs.node(0, "Kcur-1::ggml.mul_mat.0", {2}, 20);
  runs.node(0, "Vcur-1::ggml.mul_mat.0", {2}, 30);
  const Alignment alignment = runs.align();
  std::vector<Values> mine;
  std::vector<Values> golden;
  for (const TensorPair& pair : alignment.pairs) {
    if (pair.node == "embd get_rows") continue;
    mine.push_back(runs.ggml_values(pair));
    golden.push_back(runs.hf_values(pair));
  }
  EXPECT_EQ(mine, (std::vector<Values>{{0, 1, 2, 3},
                                       {4, 5},
                                       {6, 7},  //
                                       {10, 11, 12, 13},
                                       {20, 21},
                                       {30, 31}}));
  EXPECT_EQ(golden, (std::vector<Values>{{0, 1, 2, 3},
                                         {0, 1},
                                         {0, 1},  //
                                         {0, 1, 2, 3},
                                         {4, 5},
                                         {6, 7}}));
}

TEST(AlignGgml, TakesWhatIsMultipliedWhereAttentionIsRotated) {
  Runs runs;
  runs.hf_step(0, {1});
  runs.hf_output("model.layers.0.self_attn.o_proj", 0, {1, 1, 2});
  runs.hf.records.back().role = Role::Input;
  runs.hf.records.back().slot = "0";
  runs.graph(0, {1}, 0);
  runs.leaf(0, "attn_inp_v_rot", {1, 2});
  runs.node(0, "kqv_out-0::ggml.reshape.0", {2}, 50);
  runs.node(0, "attn_out-0::ggml.mul_mat.0", {2}, 70);
  runs.node(0, "attn_out-0::ggml.mul_mat.0", {2}, 60);
  runs.ggml.records.back().role = Role::Input;
  runs.ggml.records.back().slot = "src1";
  const Alignment alignment = runs.align();
  const TensorPair* input = find(alignment, "attn_out-0 mul_mat");
  ASSERT_NE(input, nullptr);
  EXPECT_EQ(runs.ggml_values(*input), (Values{60, 61}));
}

TEST(AlignGgml, CutsTheTokensSoFarOutOfTheCache) {
  Runs runs;
  for (int64_t step = 0; step < 2; ++step) {
    const int64_t tokens = step == 0 ? 2 : 1;
    runs.hf_step(step, step == 0 ? Integers{1, 50} : Integers{60});
    const std::string module = "model.layers.0.self_attn::aten.";
    runs.hf_output(module + "add.Tensor.0", step, {1, 4, tokens, 2});
    runs.hf_output(module + "cat.default.1", step, {1, 4, tokens, 2});  // halves of queries
    runs.hf_output(module + "add.Tensor.1", step, {1, 2, tokens, 2});
    runs.hf_output(module + "cat.default.2", step, {1, 2, 2 + step, 2});
    runs.hf_output(module + "cat.default.3", step, {1, 2, 2 + step, 2});
    runs.graph(step, step == 0 ? Integers{1, 50} : Integers{60}, step == 0 ? 0 : 2);
    runs.leaf(step, "attn_inp_k_idxs", step == 0 ? Values{1, 3} : Values{0});
    // [heads, cells, channels] and [heads, channels, cells]
    runs.node(step, "kq-0::ggml.mul_mat.0", {2, 4, 2});
    runs.ggml.records.back().role = Role::Input;
    runs.ggml.records.back().slot = "src0";
    runs.node(step, "kqv-0::ggml.mul_mat.0", {2, 2, 4}, 100);
    runs.ggml.records.back().role = Role::Input;
    runs.ggml.records.back().slot = "src0";
  }
  const Alignment alignment = runs.align();
  std::vector<Values> keys;
  std::vector<Values> values;
  for (const TensorPair& pair : alignment.pairs) {
    if (pair.node == "kq-0 mul_mat src0") keys.push_back(runs.ggml_values(pair));
    if (pair.node == "kqv-0 mul_mat src0") values.push_back(runs.ggml_values(pair));
  }
  // Cells 1 and 3 of the prompt, then cell 0 of the next token; heads are 8 values apart.
  EXPECT_EQ(keys, (std::vector<Values>{{2, 3, 6, 7, 10, 11, 14, 15},
                                       {2, 3, 6, 7, 0, 1, 10, 11, 14, 15, 8, 9}}));
  EXPECT_EQ(values, (std::vector<Values>{{101, 105, 103, 107, 109, 113, 111, 115},
                                         {101, 105, 103, 107, 100, 104,  //
                                          109, 113, 111, 115, 108, 112}}));
}

TEST(AlignGgml, SaysWhatHasNoNodeOrAnotherShape) {
  Runs runs;
  runs.hf_step(0, {1});
  runs.hf_output("model.layers.0.mlp.act_fn", 0, {1, 1, 4});
  runs.hf_output("model.layers.0.mlp.up_proj", 0, {1, 1, 4});
  runs.graph(0, {1}, 0);
  runs.node(0, "ffn_up-0::ggml.mul_mat.0", {7});
  const Alignment alignment = runs.align();
  ASSERT_EQ(alignment.hf_alone.size(), 2U);
  EXPECT_EQ(alignment.hf_alone[0].second, "ggml has no node of its own for it");
  EXPECT_EQ(alignment.hf_alone[1].second, "ffn_up-0 mul_mat has another shape");
}

TEST(MatchRuns, PairsHuggingFaceAndGgmlOnEitherSide) {
  Runs runs;
  runs.hf_step(0, {1, 50});
  runs.graph(4, {1, 50}, 0);
  const auto matching = matching_of(runs.hf, runs.ggml);
  const auto turned = matching_of(runs.ggml, runs.hf);
  ASSERT_TRUE(matching);
  ASSERT_TRUE(turned);
  ASSERT_EQ(matching->pairs.size(), 1U);
  ASSERT_EQ(turned->pairs.size(), 1U);
  EXPECT_EQ(matching->pairs[0].golden, turned->pairs[0].mine);
  EXPECT_EQ(matching->pairs[0].mine, turned->pairs[0].golden);
  EXPECT_EQ(matching->pairs[0].token, 0);
  EXPECT_EQ(matching->coverage_percent(), 100);
}

TEST(MatchRuns, TakesTheUsersPairsBeforeTheTableOfGgml) {
  Runs runs;
  runs.hf_step(0, {1});
  runs.hf_output("model.norm", 0, {1, 1, 2});
  runs.graph(0, {1}, 0);
  runs.node(0, "result_norm::ggml.mul.0", {2});
  runs.node(0, "mine::ggml.mul.0", {2});
  const auto matching =
      matching_of(runs.hf, runs.ggml,
                  {.explicit_pairs = {{.golden = "model.norm", .mine = "mine::ggml.mul.0"}}});
  ASSERT_TRUE(matching) << matching.error().message;
  ASSERT_EQ(matching->pairs.size(), 2U);
  EXPECT_EQ(matching->pairs[1].rule, pair::Rule::Explicit);
  EXPECT_EQ(runs.ggml.records[matching->pairs[1].mine].node, "mine::ggml.mul.0");
}

}  // namespace
}  // namespace assay::engines::ggml
