// SPDX-License-Identifier: Apache-2.0
// One list of enumerations, as the library's header declares them; a value is found by its distance
// from the first one's number.
#include "topology/atb_enums.hpp"

#include <vector>

namespace assay::topology {
namespace {

struct Enumeration {
  std::string_view op_type;
  std::string_view parameter;
  int64_t first;                        // the number of the first name
  std::vector<std::string_view> names;  // "" for numbers without one
};

// hicann/ascend-transformer-boost: include/atb/infer_op_params.h
const std::vector<Enumeration>& enumerations() {
  // Leaked, so that nothing of it is destroyed while a host ends.
  static const auto* const kAll = new std::vector<Enumeration>{
      {"ActivationOperation",
       "activationType",
       1,
       {"RELU", "GELU", "FAST_GELU", "SWISH", "LOG", "SWIGLU_FORWARD", "SWIGLU_BACKWARD", "SIGMOID",
        "FASTER_GELU_FORWARD"}},
      {"ElewiseOperation",
       "elewiseType",
       1,
       {"CAST",
        "MULS",
        "COS",
        "SIN",
        "NEG",
        "QUANT",
        "LOGICAL_NOT",
        "ADD",
        "MUL",
        "REALDIV",
        "LOGICAL_AND",
        "LOGICAL_OR",
        "LESS",
        "GREATER",
        "SUB",
        "EQUAL",
        "QUANT_PER_CHANNEL",
        "DEQUANT_PER_CHANNEL",
        "DYNAMIC_QUANT",
        "TANH"}},
      {"RmsNormOperation", "layerType", 1, {"NORM", "PRENORM", "POSTNORM"}},
      {"LayerNormOperation", "layerType", 1, {"NORM", "PRENORM", "POSTNORM"}},
      {"RmsNormOperation", "precisionMode", 0, {"HIGH_PRECISION", "HIGH_PERFORMANCE"}},
      {"RmsNormOperation", "modelType", 0, {"LLAMA", "GEMMA"}},
      {"RmsNormOperation", "dynamicQuantType", 0, {"OFF", "SYMMETRIC", "ASYMMETRIC"}},
      {"LayerNormOperation", "dynamicQuantType", 0, {"OFF", "SYMMETRIC", "ASYMMETRIC"}},
      {"LinearOperation", "matmulType", 0, {"NORMAL", "EIN_SUM"}},
      {"LinearOperation", "quantMode", 0, {"UNDEFINED", "PER_CHANNEL", "PER_TOKEN"}},
      {"LinearParallelOperation",
       "type",
       0,
       {"LINEAR_ALL_REDUCE", "LINEAR_REDUCE_SCATTER", "ALL_GATHER_LINEAR", "PURE_LINEAR",
        "ALL_GATHER_LINEAR_REDUCE_SCATTER", "ALLTOALLVC_ALL_GATHER_GMM",
        "GMM_REDUCE_SCATTER_ALLTOALLVC"}},
      {"ReduceOperation", "reduceType", 1, {"MAX", "MIN", "SUM"}},
      {"IndexAddOperation", "indexType", 1, {"INDEX_ADD", "INDEX_ADD_VALID"}},
      {"TransdataOperation", "transdataType", 1, {"NZ_TO_ND", "ND_TO_NZ"}},
      {"ReshapeAndCacheOperation",
       "kvCacheCfg",
       0,
       {"K_CACHE_V_CACHE", "K_CACHE_V_BYPASS", "K_CACHE_V_CACHE_NZ"}},
      {"SelfAttentionOperation",
       "calcType",
       0,
       {"UNDEFINED", "ENCODER", "DECODER", "PA_ENCODER", "PREFIX_ENCODER"}},
      {"SelfAttentionOperation",
       "maskType",
       0,
       {"NONE", "NORM", "ALIBI", "NORM_COMPRESS", "ALIBI_COMPRESS", "ALIBI_COMPRESS_SQRT",
        "ALIBI_COMPRESS_LEFT_ALIGN", "SLIDING_WINDOW_NORM", "SLIDING_WINDOW_COMPRESS",
        "CAUSAL_MASK"}},
      {"SelfAttentionOperation", "kernelType", 0, {"DEFAULT", "HIGH_PRECISION", "EXP_M8V2"}},
      {"SelfAttentionOperation", "inputLayout", 0, {"BSND", "BNSD"}},
      {"PagedAttentionOperation",
       "maskType",
       0,
       {"NONE", "NORM", "ALIBI", "SPEC", "MASK_FREE", "NORM_COMPRESS"}},
  };
  return *kAll;
}

}  // namespace

std::string_view enum_name(std::string_view op_type, std::string_view parameter, int64_t value) {
  const std::string_view last = parameter.substr(parameter.rfind('.') + 1);
  for (const Enumeration& known : enumerations()) {
    if (known.op_type != op_type || known.parameter != last || value < known.first) continue;
    const auto index = static_cast<size_t>(value - known.first);
    if (index < known.names.size()) return known.names[index];
  }
  return {};
}

std::string parameter_text(const Node& node, const Parameter& parameter) {
  const auto* number = std::get_if<int64_t>(&parameter.value);
  const std::string_view name =
      number ? enum_name(node.type, parameter.name, *number) : std::string_view();
  if (name.empty()) return parameter.text;
  return parameter.text + " (" + std::string(name) + ")";
}

}  // namespace assay::topology
