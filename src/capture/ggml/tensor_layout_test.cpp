// SPDX-License-Identifier: Apache-2.0
// Against engines of our own whose tensors look like those of no version; real ones:
// tests/cli/test_dump_ggml.py
#include "capture/ggml/tensor_layout.hpp"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "capture/ggml/graph_plan.hpp"
#include "capture/ggml/settings.hpp"

namespace assay::capture::ggml {
namespace {

EngineFunctions functions_of(const char* path) {
  void* library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << ::dlerror();
  EngineFunctions functions;
#define ASSAY_GGML_LOAD(result, name, arguments) \
  functions.name = reinterpret_cast<decltype(functions.name)>(::dlsym(library, #name));
  ASSAY_GGML_REQUIRED_SYMBOLS(ASSAY_GGML_LOAD)
#undef ASSAY_GGML_LOAD
  return functions;
}

TEST(MeasureLayout, FindsEveryFieldOfAShuffledTensor) {
  const EngineFunctions engine = functions_of(ASSAY_FAKE_ENGINE_0);
  const Result<TensorLayout> layout = measure_layout(engine);
  ASSERT_TRUE(layout) << layout.error().message;
  // By hand from the order in fake_engine.cpp: name 48, ne 32, flags, op, buffer 8, op_params 64,
  // src 6 x 8 ...
  EXPECT_EQ(layout->name, 0u);
  EXPECT_EQ(layout->name_bytes, 48u);
  EXPECT_EQ(layout->ne, 48u);
  EXPECT_EQ(layout->flags, 80u);
  EXPECT_EQ(layout->op, 84u);
  EXPECT_EQ(layout->buffer, 88u);
  EXPECT_EQ(layout->op_params, 96u);
  EXPECT_EQ(layout->sources, 160u);
  EXPECT_EQ(layout->source_count, 6u);
  EXPECT_EQ(layout->view_source, 208u);
  EXPECT_EQ(layout->type, 216u);
  EXPECT_EQ(layout->nb, 224u);
  EXPECT_EQ(layout->data, 256u);
  EXPECT_EQ(layout->view_offset, 264u);
  EXPECT_EQ(layout->used_bytes(), 272u);
}

TEST(MeasureLayout, RefusesATensorWhoseSourcesCannotBeCounted) {
  const EngineFunctions engine = functions_of(ASSAY_FAKE_ENGINE_1);
  const Result<TensorLayout> layout = measure_layout(engine);
  ASSERT_FALSE(layout);
  EXPECT_EQ(layout.error().code, Errc::Unsupported);
  EXPECT_THAT(layout.error().message, testing::HasSubstr("number of src"));
}

TEST(MeasureLayout, RefusesAnEngineThatNamesNoOperatorRmsNorm) {
  EngineFunctions engine = functions_of(ASSAY_FAKE_ENGINE_0);
  engine.ggml_op_name = [](int) -> const char* { return "OTHER"; };
  const Result<TensorLayout> layout = measure_layout(engine);
  ASSERT_FALSE(layout);
  EXPECT_THAT(layout.error().message, testing::HasSubstr("'op'"));
}

TEST(TensorFields, ReadsAViewAndItsRoot) {
  const EngineFunctions engine = functions_of(ASSAY_FAKE_ENGINE_0);
  const Result<TensorLayout> layout = measure_layout(engine);
  ASSERT_TRUE(layout);
  alignas(64) static std::byte arena[64 << 10];
  EngineContext* context = engine.ggml_init({sizeof(arena), arena, true});
  EngineTensor* matrix = engine.ggml_new_tensor_4d(context, 0, 8, 8, 1, 1);
  EngineTensor* view = engine.ggml_view_1d(context, matrix, 4, 12);
  engine.ggml_set_name(view, "Kcur-0 (view)");

  const TensorFields fields(view, *layout);
  EXPECT_EQ(fields.name(), "Kcur-0 (view)");
  EXPECT_EQ(fields.ne(), (Four{4, 1, 1, 1}));
  EXPECT_EQ(fields.view_offset(), 12);
  EXPECT_EQ(fields.long_parameter(), 12);
  EXPECT_EQ(fields.source(0), matrix);
  EXPECT_EQ(fields.source(1), nullptr);
  EXPECT_EQ(fields.root().address(), matrix);
}

TEST(Names, OfCopiesAndOfNodesWithoutOne) {
  EXPECT_EQ(origin_name("CPU#inp_tokens#0"), "inp_tokens");
  EXPECT_EQ(origin_name("CUDA0#l_out-3#12"), "l_out-3");
  EXPECT_EQ(origin_name("a#b"), "a#b");
  EXPECT_TRUE(is_unnamed("node_21"));
  EXPECT_TRUE(is_unnamed("leaf_0"));
  EXPECT_TRUE(is_unnamed(""));
  EXPECT_FALSE(is_unnamed("node_x"));
  EXPECT_FALSE(is_unnamed("norm-0"));
}

TEST(Settings, ChooseStepsAndNodes) {
  const Result<Settings> settings = settings_from_json(
      R"({"output":"/o","steps":"0,0,2,3","names":["ffn_*","l_out-1"],"exclude":["ffn_up-*"],"types":["mul"]})");
  ASSERT_TRUE(settings);
  EXPECT_TRUE(settings->wants_step(0));
  EXPECT_FALSE(settings->wants_step(1));
  EXPECT_TRUE(settings->wants_step(3));
  EXPECT_TRUE(settings->wants_node("ffn_gate-7", "mul_mat"));
  EXPECT_FALSE(settings->wants_node("ffn_up-7", "mul_mat"));
  EXPECT_FALSE(settings->wants_node("ffn_swiglu-7", "glu"));
  EXPECT_FALSE(settings->wants_node("Qcur-1", "mul_mat"));
}

TEST(Settings, WithoutAnOutputAreRefused) {
  EXPECT_FALSE(settings_from_json(R"({"steps":"all"})"));
  EXPECT_FALSE(settings_from_json("no json"));
  EXPECT_FALSE(settings_from_json(R"({"output":"/o","full":"yes"})"));
}

}  // namespace
}  // namespace assay::capture::ggml
