// SPDX-License-Identifier: Apache-2.0
#include "operations.h"

#include <cmath>

namespace atb_host {
namespace {

using Names = std::vector<std::string>;
using Descs = std::vector<TensorDesc>;

constexpr int kUndefinedDtype = -1;

// An operation as data: what is asked of it are values and two functions.
struct Recipe {
  std::string type;
  Names in;
  Names out;
  Json param;
  std::function<Descs(const Descs&)> infer;
  std::function<std::vector<Kernel>(const VariantPack&)> kernels;
};

class RecipeOperation final : public KernelOperation {
 public:
  explicit RecipeOperation(Recipe recipe)
      : KernelOperation(recipe.type, recipe.in.size(), recipe.out.size()),
        recipe_(std::move(recipe)) {}
  Descs infer(const Descs& in) const override { return recipe_.infer(in); }
  Json param() const override { return recipe_.param; }
  std::vector<Kernel> kernels(const VariantPack& pack) const override {
    return recipe_.kernels(pack);
  }
  Names in_names() const override { return recipe_.in; }
  Names out_names() const override { return recipe_.out; }

 private:
  Recipe recipe_;
};

std::unique_ptr<KernelOperation> make(Recipe recipe) {
  return std::make_unique<RecipeOperation>(std::move(recipe));
}

Descs same_as_first(const Descs& in) { return {in[0]}; }

// "AddF16Kernel", "AddBF16Kernel".
std::string kernel_name(const std::string& stem, const Tensor& tensor) {
  return stem + (tensor.desc.dtype == DType::kBfloat16 ? "BF16Kernel" : "F16Kernel");
}

int32_t elements(const Tensor& tensor) {
  return static_cast<int32_t>(element_count(tensor.desc.dims));
}

int32_t dim(const Tensor& tensor, size_t index) {
  return static_cast<int32_t>(tensor.desc.dims.at(index));
}

}  // namespace

std::unique_ptr<KernelOperation> make_gather(Fault fault) {
  return make({.type = "GatherOperation",
               .in = {"x", "indices"},
               .out = {"output"},
               .param = Json::Object{{"axis", 0}, {"batchDims", 0}},
               .infer = [](const Descs& in) -> Descs {
                 return {{in[0].dtype, {in[1].dims[0], in[0].dims[1]}}};
               },
               .kernels = [=](const VariantPack& pack) -> std::vector<Kernel> {
                 return {{.name = "Gather16I64Kernel",
                          .operation = "GatherOperation",
                          .param = R"({"axis":[0],"batchDims":0})",
                          .tiling = {dim(pack.in[0], 0), dim(pack.in[0], 1), dim(pack.in[1], 0)},
                          .in = pack.in,
                          .out = pack.out,
                          .in_views = {},
                          .run = [=] { gather_rows(pack.in[0], pack.in[1], pack.out[0], fault); }}};
               }});
}

std::unique_ptr<KernelOperation> make_rms_norm(float epsilon, Fault fault) {
  const Json::Object unused{{"quantType", 0}, {"epsilon", 1e-5F}, {"hasBias", false}};
  const Json::Object used{{"quantType", 0},       {"epsilon", epsilon}, {"layerNormEps", 1e-5F},
                          {"rstd", false},        {"precisionMode", 0}, {"modelType", 0},
                          {"dynamicQuantType", 0}};
  return make(
      {.type = "RmsNormOperation",
       .in = {"x1", "x2"},
       .out = {"output"},
       .param = Json::Object{{"layerType", 1},
                             {"normParam", used},
                             {"preNormParam", unused},
                             {"postNormParam", unused}},
       .infer = same_as_first,
       .kernels = [=](const VariantPack& pack) -> std::vector<Kernel> {
         return {{.name = "RmsNormKernel",
                  .operation = "NormOperation",
                  .param = R"({"normType":2,"epsilon":)" + Json(epsilon).dump() + "}",
                  .tiling = {dim(pack.in[0], 0), dim(pack.in[0], 1)},
                  .in = pack.in,
                  .out = pack.out,
                  .in_views = {},
                  .run = [=] { rms_norm(pack.in[0], pack.in[1], epsilon, pack.out[0], fault); }}};
       }});
}

std::unique_ptr<KernelOperation> make_linear(bool has_bias, Fault fault) {
  const auto kernels = [=](const VariantPack& pack) -> std::vector<Kernel> {
    const Tensor product = has_bias ? make_tensor(pack.out[0].desc) : pack.out[0];
    const bool bf16 = product.desc.dtype == DType::kBfloat16;
    std::vector<Kernel> result;
    result.push_back({.name = bf16 ? "PpMatMulBf16Kernel" : "MatMulNdF16Kernel",
                      .operation = "MatMulOperation",
                      .param = R"({"transposeA":false,"transposeB":true})",
                      .tiling = {dim(pack.in[0], 0), dim(pack.in[1], 0), dim(pack.in[1], 1)},
                      .in = {pack.in[0], pack.in[1]},
                      .out = {product},
                      .in_views = {},
                      .run = [=] { matmul_transposed(pack.in[0], pack.in[1], product, fault); }});
    if (has_bias) {
      result.push_back(
          {.name = kernel_name("Add", product),
           .operation = "ElewiseOperation",
           .param = R"({"elewiseType":8})",
           .tiling = {elements(product), dim(pack.in[2], 0)},
           .in = {product, pack.in[2]},
           .out = {pack.out[0]},
           // The kernel works on two-dimensional tensors; the bias is viewed as one row.
           .in_views = {product.desc.dims, {1, pack.in[2].desc.dims[0]}},
           .run = [=] { add(product, pack.in[2], pack.out[0], fault); }});
    }
    return result;
  };
  return make({.type = "LinearOperation",
               .in = has_bias ? Names{"x", "weight", "bias"} : Names{"x", "weight"},
               .out = {"output"},
               .param = Json::Object{{"transposeA", false},
                                     {"transposeB", true},
                                     {"hasBias", has_bias},
                                     {"outDataType", kUndefinedDtype},
                                     {"enAccum", false},
                                     {"matmulType", 0},
                                     {"quantMode", 0}},
               .infer = [](const Descs& in) -> Descs {
                 return {{in[0].dtype, {in[0].dims[0], in[1].dims[0]}}};
               },
               .kernels = kernels});
}

std::unique_ptr<KernelOperation> make_linear_quant(bool has_bias, Fault fault) {
  const auto kernels = [=](const VariantPack& pack) -> std::vector<Kernel> {
    const Tensor& scales = pack.in.back();
    const Tensor product = has_bias ? make_tensor(pack.out[0].desc) : pack.out[0];
    std::vector<Kernel> result;
    result.push_back(
        {.name = "PpMatMulI8Kernel",
         .operation = "MatMulOperation",
         .param = R"({"transposeA":false,"transposeB":true,"enDequant":true})",
         .tiling = {dim(pack.in[0], 0), dim(pack.in[1], 0), dim(pack.in[1], 1)},
         .in = {pack.in[0], pack.in[1], scales},
         .out = {product},
         .in_views = {},
         .run = [=] { matmul_quantised(pack.in[0], pack.in[1], pack.in.back(), product, fault); }});
    if (has_bias) {
      result.push_back({.name = kernel_name("Add", product),
                        .operation = "ElewiseOperation",
                        .param = R"({"elewiseType":8})",
                        .tiling = {elements(product), dim(pack.in[2], 0)},
                        .in = {product, pack.in[2]},
                        .out = {pack.out[0]},
                        .in_views = {product.desc.dims, {1, pack.in[2].desc.dims[0]}},
                        .run = [=] { add(product, pack.in[2], pack.out[0], Fault::kNone); }});
    }
    return result;
  };
  return make(
      {.type = "LinearQuantOperation",
       .in = has_bias ? Names{"x", "weight", "bias", "deqScale"} : Names{"x", "weight", "deqScale"},
       .out = {"output"},
       .param = Json::Object{{"transposeA", false},
                             {"transposeB", true},
                             {"hasBias", has_bias},
                             {"outDataType", kUndefinedDtype}},
       .infer = [](const Descs& in) -> Descs {
         return {{in[0].dtype, {in[0].dims[0], in[1].dims[0]}}};
       },
       .kernels = kernels});
}

std::unique_ptr<KernelOperation> make_split(std::vector<int64_t> widths, Fault fault) {
  const auto kernels = [=](const VariantPack& pack) -> std::vector<Kernel> {
    return {{.name = "SplitF16Output" + std::to_string(pack.out.size()) + "Kernel",
             .operation = "SplitOperation",
             .param = R"({"splitDim":1})",
             .tiling = {dim(pack.in[0], 0), dim(pack.in[0], 1)},
             .in = pack.in,
             .out = pack.out,
             .in_views = {},
             .run = [=] { split_columns(pack.in[0], pack.out, fault); }}};
  };
  Names outs;
  for (size_t i = 0; i < widths.size(); ++i) outs.push_back("output" + std::to_string(i + 1));
  Json::Object param{
      {"splitDim", 1}, {"splitNum", widths.size()}, {"splitSizes", json_array(widths)}};
  return make({.type = "SplitOperation",
               .in = {"x"},
               .out = std::move(outs),
               .param = std::move(param),
               .infer = [widths = std::move(widths)](const Descs& in) -> Descs {
                 Descs descs;
                 for (const int64_t width : widths) {
                   descs.push_back({in[0].dtype, {in[0].dims[0], width}});
                 }
                 return descs;
               },
               .kernels = kernels});
}

std::unique_ptr<KernelOperation> make_all_reduce(int64_t rank, int64_t ranks, Peers* peers,
                                                 Fault fault) {
  const auto kernels = [=](const VariantPack& pack) -> std::vector<Kernel> {
    const auto run = [=] {
      std::vector<float> values = load(pack.in[0]);
      peers->all_reduce(rank, values, fault == Fault::kRankMissing ? ranks - 1 : ranks);
      store(pack.out[0], values);
    };
    return {{.name = "AllReduceKernel",
             .operation = "AllReduceOperation",
             .param = R"({"allReduceType":"sum"})",
             .tiling = {},
             .in = pack.in,
             .out = pack.out,
             .in_views = {},
             .run = run}};
  };
  return make({.type = "AllReduceOperation",
               .in = {"x"},
               .out = {"output"},
               .param = Json::Object{{"rank", rank},
                                     {"rankSize", ranks},
                                     {"rankRoot", 0},
                                     {"backend", "lccl"},
                                     {"allReduceType", "sum"},
                                     {"commMode", 0},
                                     {"quantType", 0},
                                     {"outDataType", kUndefinedDtype}},
               .infer = same_as_first,
               .kernels = kernels});
}

std::unique_ptr<KernelOperation> make_rope(Fault fault) {
  return make({.type = "RopeOperation",
               .in = {"x1", "x2", "x3", "x4", "x5"},
               .out = {"output1", "output2"},
               .param = Json::Object{{"rotaryCoeff", 2}, {"cosFormat", 0}},
               .infer = [](const Descs& in) -> Descs { return {in[0], in[1]}; },
               .kernels = [=](const VariantPack& pack) -> std::vector<Kernel> {
                 const auto run = [=] {
                   for (size_t i : {0U, 1U}) {
                     rotate(pack.in[i], pack.in[2], pack.in[3], pack.out[i], fault);
                   }
                 };
                 return {{.name = "RopeKernel",
                          .operation = "RopeOperation",
                          // What the library says of a parameter type that has no printer.
                          .param = "N6AsdOps7OpParam4RopeE can not be printed",
                          .tiling = {dim(pack.in[0], 0), dim(pack.in[0], 1), dim(pack.in[1], 1), 2},
                          .in = pack.in,
                          .out = pack.out,
                          .in_views = {},
                          .run = run}};
               }});
}

std::unique_ptr<KernelOperation> make_reshape_and_cache(Fault fault) {
  return make({.type = "ReshapeAndCacheOperation",
               .in = {"key", "value", "keyCache", "valueCache", "slots"},
               .out = {"outKeyCache", "outValueCache"},
               .param = Json::Object{{"compressType", 0}, {"kvCacheCfg", 0}},
               .infer = [](const Descs& in) -> Descs { return {in[2], in[3]}; },
               .kernels = [=](const VariantPack& pack) -> std::vector<Kernel> {
                 const auto run = [=] {
                   const size_t values = fault == Fault::kValueFromKey ? 0 : 1;
                   write_cache(pack.in[0], pack.in[4], pack.out[0], fault);
                   write_cache(pack.in[values], pack.in[4], pack.out[1], fault);
                 };
                 return {{.name = "ReshapeAndCacheNdKernel",
                          .operation = "ReshapeAndCacheOperation",
                          .param = R"({"type":0})",
                          .tiling = {dim(pack.in[4], 0), dim(pack.in[0], 1), dim(pack.in[0], 2)},
                          .in = pack.in,
                          .out = pack.out,
                          .in_views = {},
                          .run = run}};
               }});
}

std::unique_ptr<KernelOperation> make_self_attention(const AttentionShape& shape, Fault fault) {
  const auto kernels = [=](const VariantPack& pack) -> std::vector<Kernel> {
    const bool bf16 = pack.in[0].desc.dtype == DType::kBfloat16;
    const auto run = [=] {
      attend_prompt(shape, pack.in[0], pack.in[1], pack.in[2], pack.in[3], pack.out[0], fault);
    };
    return {{.name = bf16 ? "UnpadFlashAttentionBF16NdKernel" : "UnpadFlashAttentionNdKernel",
             .operation = "UnpadFlashAttentionOperation",
             .param = R"({"headSize":)" + std::to_string(shape.heads) + R"(,"tor":)" +
                      Json(shape.scale).dump() + "}",
             .tiling = {dim(pack.in[0], 0), static_cast<int32_t>(shape.heads),
                        static_cast<int32_t>(shape.kv_heads)},
             .in = pack.in,
             .out = pack.out,
             .in_views = {},
             .run = run}};
  };
  return make({.type = "SelfAttentionOperation",
               .in = {"query", "key", "value", "mask", "seqLen"},
               .out = {"attnOut"},
               .param = Json::Object{{"headNum", shape.heads},
                                     {"isTriuMask", 0},
                                     {"qScale", 1.0F},
                                     {"qkScale", shape.scale},
                                     {"batchRunStatusEnable", false},
                                     {"kvHeadNum", shape.kv_heads},
                                     {"calcType", 3},  // PA_ENCODER
                                     {"maskType", 1},  // NORM
                                     {"kernelType", 0},
                                     {"clampType", 0},
                                     {"clampMin", 0.0F},
                                     {"clampMax", 0.0F},
                                     {"kvcacheCfg", 0},
                                     {"inputLayout", 0},
                                     {"scaleType", 0},
                                     {"quantType", 0},
                                     {"outDataType", kUndefinedDtype},
                                     {"mlaVHeadSize", 0},
                                     {"windowSize", 0},
                                     {"cacheType", 0}},
               .infer = same_as_first,
               .kernels = kernels});
}

std::unique_ptr<KernelOperation> make_paged_attention(const AttentionShape& shape, Fault fault) {
  const auto kernels = [=](const VariantPack& pack) -> std::vector<Kernel> {
    const auto run = [=] {
      attend_cache(shape, pack.in[0], pack.in[1], pack.in[2], pack.in[3], pack.in[4], pack.out[0],
                   fault);
    };
    return {{.name = "PagedAttentionMaskNdKernel",
             .operation = "PagedAttentionOperation",
             .param = R"({"headSize":)" + std::to_string(shape.heads) + R"(,"tor":)" +
                      Json(shape.scale).dump() + "}",
             .tiling = {dim(pack.in[0], 0), static_cast<int32_t>(shape.heads),
                        static_cast<int32_t>(shape.kv_heads), dim(pack.in[1], 1)},
             .in = pack.in,
             .out = pack.out,
             .in_views = {},
             .run = run}};
  };
  return make({.type = "PagedAttentionOperation",
               .in = {"query", "keyCache", "valueCache", "blockTables", "contextLens"},
               .out = {"attnOut"},
               .param = Json::Object{{"headNum", shape.heads},
                                     {"qkScale", shape.scale},
                                     {"kvHeadNum", shape.kv_heads},
                                     {"maskType", 0},
                                     {"batchRunStatusEnable", false},
                                     {"quantType", 0},
                                     {"hasQuantOffset", false},
                                     {"compressType", 0},
                                     {"calcType", 0},
                                     {"mlaVHeadSize", 0}},
               .infer = same_as_first,
               .kernels = kernels});
}

std::unique_ptr<KernelOperation> make_elewise(Elewise type, Fault fault) {
  const int number = static_cast<int>(type);
  return make({.type = "ElewiseOperation",
               .in = {"x", "y"},
               .out = {"output"},
               .param = Json::Object{{"elewiseType", number},
                                     {"quantParam", Json::Object{{"inputScale", 1.0F},
                                                                 {"inputOffset", 0},
                                                                 {"asymmetric", false}}},
                                     {"mulsParam", Json::Object{{"varAttr", 0.0F}}},
                                     {"outTensorType", kUndefinedDtype}},
               .infer = same_as_first,
               .kernels = [=](const VariantPack& pack) -> std::vector<Kernel> {
                 const auto run = [=] {
                   if (type == Elewise::kAdd) {
                     add(pack.in[0], pack.in[1], pack.out[0], fault);
                   } else {
                     multiply(pack.in[0], pack.in[1], pack.out[0], fault);
                   }
                 };
                 return {{.name = kernel_name(type == Elewise::kAdd ? "Add" : "Mul", pack.in[0]),
                          .operation = "ElewiseOperation",
                          .param = R"({"elewiseType":)" + std::to_string(number) + "}",
                          .tiling = {elements(pack.in[0])},
                          .in = pack.in,
                          .out = pack.out,
                          .in_views = {},
                          .run = run}};
               }});
}

std::unique_ptr<KernelOperation> make_swish(Fault fault) {
  return make({.type = "ActivationOperation",
               .in = {"x"},
               .out = {"y"},
               .param = Json::Object{{"activationType", 4}, {"scale", 1.0F}, {"dim", -1}},
               .infer = same_as_first,
               .kernels = [=](const VariantPack& pack) -> std::vector<Kernel> {
                 return {{.name = kernel_name("Swish", pack.in[0]),
                          .operation = "ActivationOperation",
                          .param = R"({"activationType":4,"scale":1})",
                          .tiling = {elements(pack.in[0])},
                          .in = pack.in,
                          .out = pack.out,
                          .in_views = {},
                          .run = [=] { swish(pack.in[0], pack.out[0], fault); }}};
               }});
}

std::unique_ptr<KernelOperation> make_last_row_slice(int64_t width) {
  return make(
      {.type = "SliceOperation",
       .in = {"x"},
       .out = {"output"},
       .param = Json::Object{{"offsets", Json::Array{-1, 0}}, {"size", Json::Array{1, width}}},
       .infer = [=](const Descs& in) -> Descs { return {{in[0].dtype, {1, width}}}; },
       .kernels = [](const VariantPack& pack) -> std::vector<Kernel> {
         return {{.name = "SliceF16Int64Kernel",  // by element size, for both half types
                  .operation = "SliceOperation",
                  .param = R"({"offsets":[-1,0]})",
                  .tiling = {dim(pack.in[0], 0), dim(pack.in[0], 1)},
                  .in = pack.in,
                  .out = pack.out,
                  .in_views = {},
                  .run = [pack] { last_row(pack.in[0], pack.out[0]); }}};
       }});
}

std::unique_ptr<KernelOperation> make_row_copy(int64_t width) {
  return make({.type = "AsStridedOperation",
               .in = {"x"},
               .out = {"output"},
               .param = Json::Object{{"size", Json::Array{1, width}},
                                     {"stride", Json::Array{width, 1}},
                                     {"offset", Json::Array{0}}},
               .infer = [=](const Descs& in) -> Descs { return {{in[0].dtype, {1, width}}}; },
               .kernels = [](const VariantPack& pack) -> std::vector<Kernel> {
                 return {{.name = "AsStridedF16Int64Kernel",
                          .operation = "AsStridedOperation",
                          .param = R"({"offset":[0]})",
                          .tiling = {},  // this kernel needs none
                          .in = pack.in,
                          .out = pack.out,
                          .in_views = {},
                          .run = [pack] { last_row(pack.in[0], pack.out[0]); }}};
               }});
}

std::unique_ptr<KernelOperation> make_top_one() {
  return make({.type = "SortOperation",
               .in = {"x"},
               .out = {"output1", "output2"},
               .param = Json::Object{{"num", Json::Array{1}}},
               .infer = [](const Descs& in) -> Descs {
                 const Dims dims{in[0].dims[0], 1};
                 return {{in[0].dtype, dims}, {DType::kInt32, dims}};
               },
               .kernels = [](const VariantPack& pack) -> std::vector<Kernel> {
                 return {{.name = "SortF16Kernel",
                          .operation = "SortOperation",
                          .param = R"({"num":[1]})",
                          .tiling = {dim(pack.in[0], 0), dim(pack.in[0], 1), 1},
                          .in = pack.in,
                          .out = pack.out,
                          .in_views = {},
                          .run = [pack] { top_one(pack.in[0], pack.out[0], pack.out[1]); }}};
               }});
}

namespace {

class GreedySearch final : public PluginOperation {
 public:
  GreedySearch() : PluginOperation("GreedySearch", 1, 1), sort_(make_top_one()) {}

  Descs infer(const Descs& in) const override { return {{DType::kInt64, {in[0].dims[0]}}}; }

  // The operation inside is set up on its own, so it gets an id of its own and is reported as top-level.
  Status setup_plugin(const VariantPack& pack, Context& context) override {
    sorted_.clear();
    for (TensorDesc& desc : sort_->infer({pack.in[0].desc})) {
      sorted_.push_back(make_tensor(std::move(desc)));
    }
    tokens_ = pack.out[0];
    return sort_->setup({pack.in, sorted_}, context);
  }

  Status execute_plugin(Context& context) override {
    const Status status = sort_->execute(context);
    const auto* positions = sorted_[1].data<const int32_t>();
    const int64_t count = element_count(tokens_.desc.dims);
    for (int64_t i = 0; i < count; ++i) tokens_.data<int64_t>()[i] = positions[i];
    return status;
  }

 private:
  std::unique_ptr<KernelOperation> sort_;
  std::vector<Tensor> sorted_;
  Tensor tokens_;
};

}  // namespace

std::unique_ptr<PluginOperation> make_greedy_search() { return std::make_unique<GreedySearch>(); }

}  // namespace atb_host
