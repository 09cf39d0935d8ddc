// SPDX-License-Identifier: Apache-2.0
// Operations over the tensors of all ranks.   docs/opcheck/products.md
#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "opcheck/operations/products/evaluate.hpp"
#include "opcheck/operations/ranks.hpp"
#include "reference/movement/assemble.hpp"
#include "reference/products/all_reduce.hpp"
#include "tensor/sentence.hpp"

namespace assay::opcheck {
namespace {

using namespace products;
using reference::Wide;

constexpr int64_t kNotQuantised = -1, kPerTensor = 0, kPerGroup = 2, kPerToken = 3;
constexpr int64_t kAllReduce = 0, kReduceScatter = 1, kAllGather = 2, kPureLinear = 3;

/// What all ranks of a LinearParallel agree on.
struct Layer {
  bool transpose_w = true;
  int64_t type = kAllReduce;
  int64_t quantisation = kNotQuantised;
  int64_t group_size = 0;
  bool has_residual = false;
  bool keeps_gathered = false;
  int jobs = 1;
  std::string_view op_type = {};
};

/// Tensors of one rank, named by their part.
struct Shard {
  Tensor x, weight;
  std::optional<Tensor> bias = {}, scale = {}, residual = {}, row_scale = {};
};

Result<Layer> read_layer(const Case& one) {
  const Parameters& parameters = one.parameters;
  Layer layer;
  layer.jobs = one.jobs;
  layer.op_type = one.op_type;
  ASSAY_TRY(layer.transpose_w, parameters.boolean("transWeight|transposeB", true));
  ASSAY_TRY(layer.has_residual, parameters.boolean("hasResidual", false));
  ASSAY_TRY(const std::string backend, parameters.text("backend", "hccl"));
  if (backend != "lcoc" && backend != "mc2") return layer;  // other backends know nothing else
  ASSAY_TRY(layer.type, parameters.integer("type", kAllReduce));
  ASSAY_TRY(layer.quantisation, parameters.integer("quantType", kNotQuantised));
  ASSAY_TRY(layer.group_size, parameters.integer("quantGroupSize", 0));
  ASSAY_TRY(layer.keeps_gathered, parameters.boolean("keepIntermediate", false));
  if (layer.quantisation < kNotQuantised || layer.quantisation > kPerToken)
    return fail(unknown_value("quantType", layer.quantisation,
                              "-1 (none), 0 (tensor), 1 (channel), 2 (group), 3 (token)"));
  if (layer.type == 4)
    return fail(not_supported(
        "type 4 (ALL_GATHER_LINEAR_REDUCE_SCATTER): which ranks form a group is not in the "
        "parameter file"));
  if (layer.type == 5 || layer.type == 6)
    return fail(not_supported("type " + std::to_string(layer.type) +
                              " (mixture of experts): how many tokens each expert takes and their "
                              "order is not in the dump"));
  if (layer.type < -1 || layer.type > 6) return fail(unknown_value("type", layer.type, "0 to 6"));
  if (layer.type == -1) layer.type = kAllReduce;
  if (layer.quantisation == kPerGroup && layer.group_size <= 0)
    return fail(Errc::Invalid, "quantGroupSize is ", layer.group_size, " with quantType 2");
  return layer;
}

Result<Shard> read_shard(const Operands& operands, const Layer& layer) {
  std::vector<std::string_view> names = {"x", "weight"};
  const bool quantised = layer.quantisation != kNotQuantised;
  if (quantised) {
    names.emplace_back("bias");
    names.emplace_back("scale");
  }
  if (layer.has_residual) names.emplace_back("residual");
  if (layer.quantisation == kPerToken) names.emplace_back("perTokenScale");
  ASSAY_TRY(const std::vector<Tensor> inputs, read_inputs(operands, layer.op_type, names));
  Shard shard{.x = inputs[0], .weight = inputs[1]};
  if (operands.is_nz_input(0)) return fail(not_supported("x is FRACTAL_NZ"));
  size_t next = 2;
  if (quantised) {
    if (inputs[next].view.element_count() != 0) shard.bias = inputs[next];
    shard.scale = inputs[next + 1];
    next += 2;
  }
  if (layer.has_residual) shard.residual = inputs[next++];
  if (layer.quantisation == kPerToken) shard.row_scale = inputs[next];
  const Dims& shape = shard.x.view.shape;
  const int64_t k = shape.empty() ? 0 : shape[shape.size() - 1];
  ASSAY_TRY(shard.weight, matrices_of_weight(operands, shard.weight, layer.transpose_w, k,
                                             output_columns(operands)));
  return shard;
}

/// The product of one rank, before anything is exchanged; x may be the gathered one.
Result<Wide> linear_of(const Layer& layer, const Shard& shard, const TensorView& x) {
  const reference::LinearOptions options{.transpose_w = layer.transpose_w, .jobs = layer.jobs};
  const TensorView* bias = shard.bias ? &shard.bias->view : nullptr;
  if (layer.quantisation == kNotQuantised)
    return reference::linear(x, shard.weight.view, nullptr, options);
  const TensorView* row_scale = shard.row_scale ? &shard.row_scale->view : nullptr;
  if (is_int8(shard.x) && is_int8(shard.weight)) {
    if (layer.quantisation == kPerGroup) return fail(not_supported("groups of an int8 activation"));
    return reference::quantised_linear(x, shard.weight.view, bias, shard.scale->view, row_scale,
                                       options);
  }
  if (row_scale != nullptr) return fail(not_supported("scales of tokens beside a float x"));
  return reference::weight_quantised_linear(x, shard.weight.view, bias, shard.scale->view,
                                            layer.quantisation == kPerGroup ? layer.group_size : 0,
                                            options);
}

Result<Dims> linear_shape(const Layer& layer, const Shard& shard, const TensorView& x) {
  return reference::matmul_shape(x, shard.weight.view, {.transpose_w = layer.transpose_w});
}

Status add_residual(Wide& sum, const std::optional<Tensor>& residual) {
  if (!residual) return {};
  ASSAY_TRY(const Wide values, reference::widen(residual->view));
  if (values.size() != sum.size())
    return fail(Errc::Invalid, "residual has shape ", values.shape, ", the result ", sum.shape);
  std::transform(sum.values.begin(), sum.values.end(), values.values.begin(), sum.values.begin(),
                 std::plus<>());
  return {};
}

/// Rows [rank * size, (rank + 1) * size) of dimension `axis`.
Wide chunk_of(const Wide& sum, size_t axis, int64_t rank, int64_t size) {
  // The whole is float64 already: widening its part cannot fail.
  return reference::widen(reference::section(view_of(sum), axis, rank * size, size)).value();
}

struct Scatter {
  size_t axis = 0;
  int64_t size = 0;
};
/// [1, s, n] is split along s, everything else along dimension 0.
Result<Scatter> scatter_of(const Dims& shape, int64_t ranks) {
  Scatter scatter;
  scatter.axis = shape.size() == 3 && shape[0] == 1 ? 1 : 0;
  if (shape.empty() || shape[scatter.axis] % ranks != 0)
    return fail(Errc::Invalid, "the sum has shape ", shape, ", which ", ranks,
                " ranks cannot share");
  scatter.size = shape[scatter.axis] / ranks;
  return scatter;
}

/// Type 0 and 1: the products of all ranks are summed; type 1 keeps a part of the sum.
Result<Evaluation> summed(const Case& one, const Layer& layer) {
  ASSAY_TRY(const Ranks ranks, ranks_of(one));
  auto shards = std::make_shared<std::vector<Shard>>();
  Dims shape;
  for (size_t rank = 0; rank < ranks.peers.size(); ++rank) {
    ASSAY_TRY(Shard shard, read_shard(*ranks.peers[rank].operands, layer));
    ASSAY_TRY(const Dims own, linear_shape(layer, shard, shard.x.view));
    if (rank == 0) {
      shape = own;
    } else if (own != shape) {
      return fail(Errc::Invalid, "the product of rank ", rank, " has shape ", own, ", of rank 0 ",
                  shape);
    }
    shards->push_back(std::move(shard));
  }
  std::optional<Scatter> scatter;
  Dims result = shape;
  if (layer.type == kReduceScatter) {
    ASSAY_TRY(scatter, scatter_of(shape, ranks.size()));
    result[scatter->axis] = scatter->size;
  }
  ASSAY_TRY_STATUS(check_output(*one.operands, 0, result));

  const int64_t k = shards->front().x.view.shape[shards->front().x.view.shape.size() - 1];
  return evaluation(
      scatter ? "reduce scatter" : "all reduce",
      expectation(
          0, {Precision::Float, k}, [shards, layer, scatter, own = ranks.own]() -> Result<Wide> {
            ASSAY_TRY(Wide sum, linear_of(layer, shards->front(), shards->front().x.view));
            for (size_t rank = 1; rank < shards->size(); ++rank) {
              const Shard& shard = (*shards)[rank];
              ASSAY_TRY(const Wide product, linear_of(layer, shard, shard.x.view));
              std::transform(sum.values.begin(), sum.values.end(), product.values.begin(),
                             sum.values.begin(), std::plus<>());
            }
            if (scatter) sum = chunk_of(sum, scatter->axis, own, scatter->size);
            ASSAY_TRY_STATUS(add_residual(sum, (*shards)[static_cast<size_t>(own)].residual));
            return sum;
          }));
}

/// Type 2: x of all ranks, times the weight of this one.
Result<Evaluation> of_gathered(const Case& one, const Layer& layer) {
  ASSAY_TRY(const Ranks ranks, ranks_of(one));
  ASSAY_TRY(Shard shard, read_shard(*one.operands, layer));
  std::vector<Tensor> parts;
  std::vector<Tensor> scales;
  for (const Case::Peer& peer : ranks.peers) {
    ASSAY_TRY(Shard other, read_shard(*peer.operands, layer));
    parts.push_back(std::move(other.x));
    if (other.row_scale) scales.push_back(std::move(*other.row_scale));
  }
  ASSAY_TRY(const Tensor x, reference::concat(parts, 0));
  ASSAY_TRY(const Dims shape, linear_shape(layer, shard, x.view));
  ASSAY_TRY_STATUS(check_output(*one.operands, 0, shape));
  // Scales of tokens come for this rank's rows or for all.
  const int64_t n = shape[shape.size() - 1];
  const int64_t rows = n == 0 ? 0 : element_count(shape).value_or(0) / n;
  if (shard.row_scale && shard.row_scale->view.element_count() != rows) {
    ASSAY_TRY(shard.row_scale, reference::concat(scales, 0));
  }
  const int64_t k = x.view.shape[x.view.shape.size() - 1];
  Evaluation evaluation;
  evaluation.variant = "all gather";
  evaluation.outputs.push_back(
      expectation(0, {Precision::Float, k}, [layer, shard, x]() -> Result<Wide> {
        ASSAY_TRY(Wide product, linear_of(layer, shard, x.view));
        ASSAY_TRY_STATUS(add_residual(product, shard.residual));
        return product;
      }));
  if (layer.keeps_gathered) {
    evaluation.variant += ", gathered x kept";
    Expectation kept;
    kept.index = 1;
    kept.accuracy = {Precision::Move};
    kept.candidates.push_back({"", [x]() -> Result<Tensor> { return x; }});
    evaluation.outputs.push_back(std::move(kept));
  }
  return evaluation;
}

Result<Evaluation> alone(const Case& one, const Layer& layer) {
  ASSAY_TRY(const Shard shard, read_shard(*one.operands, layer));
  ASSAY_TRY(const Dims shape, linear_shape(layer, shard, shard.x.view));
  ASSAY_TRY_STATUS(check_output(*one.operands, 0, shape));

  const int64_t k = shard.x.view.shape[shard.x.view.shape.size() - 1];
  return evaluation("pure linear",
                    expectation(0, {Precision::Float, k}, [layer, shard]() -> Result<Wide> {
                      ASSAY_TRY(Wide product, linear_of(layer, shard, shard.x.view));
                      ASSAY_TRY_STATUS(add_residual(product, shard.residual));
                      return product;
                    }));
}

Result<reference::RankReduction> reduction_of(const Parameters& parameters) {
  ASSAY_TRY(const std::string type, parameters.text("allReduceType", "sum"));
  if (const auto reduction = reference::rank_reduction_from_name(type)) return *reduction;
  return fail(not_supported("allReduceType \"" + type + "\" is none of sum, max, min, prod"));
}

}  // namespace

Result<Evaluation> evaluate_linear_parallel(const Case& one) {
  ASSAY_TRY(const Layer layer, read_layer(one));
  Result<Evaluation> evaluation = layer.type == kAllGather    ? of_gathered(one, layer)
                                  : layer.type == kPureLinear ? alone(one, layer)
                                                              : summed(one, layer);
  if (evaluation) {
    constexpr std::array<std::string_view, 4> kScales = {"tensor", "channel", "group", "token"};
    if (layer.quantisation >= kPerTensor)
      evaluation->variant +=
          ", scales per " + std::string(kScales[static_cast<size_t>(layer.quantisation)]);
    if (layer.has_residual) evaluation->variant += ", residual";
  }
  return evaluation;
}

Result<Evaluation> evaluate_all_reduce(const Case& one) {
  ASSAY_TRY(const reference::RankReduction reduction, reduction_of(one.parameters));
  ASSAY_TRY(const int64_t quantisation, one.parameters.integer("quantType", 0));
  if (quantisation < 0 || quantisation > 2)
    return fail(
        unknown_value("quantType", quantisation, "0 (none), 1 (per tensor), 2 (per channel)"));
  if (quantisation != 0 && reduction != reference::RankReduction::Sum)
    return fail(not_supported("only sums are quantised"));
  std::vector<std::string_view> names = {"x"};
  if (quantisation != 0) names = {"x", "scale", "offset"};
  ASSAY_TRY(const std::vector<Tensor> inputs, read_inputs(one, names));
  ASSAY_TRY(const Ranks ranks, ranks_of(one));
  auto tensors = std::make_shared<std::vector<Tensor>>();
  for (const Case::Peer& peer : ranks.peers) {
    ASSAY_TRY(Tensor tensor, peer.operands->input(0));
    tensors->push_back(std::move(tensor));
  }
  ASSAY_TRY_STATUS(check_output(*one.operands, 0, inputs[0].view.shape));
  const auto views = [tensors] {
    std::vector<TensorView> result;
    for (const Tensor& tensor : *tensors) result.push_back(tensor.view);
    return result;
  };
  Evaluation evaluation;
  if (quantisation != 0) {
    evaluation.variant =
        quantisation == 1 ? "sum, quantised per tensor" : "sum, quantised per channel";
    evaluation.outputs.push_back(expectation(
        0, {Precision::Quant, ranks.size()}, [views, scale = inputs[1], offset = inputs[2]] {
          return reference::quantised_all_reduce(views(), scale.view, offset.view);
        }));
    return evaluation;
  }
  ASSAY_TRY(evaluation.variant, one.parameters.text("allReduceType", "sum"));
  Expectation expected;
  const bool floats = is_float(inputs[0].view.dtype);
  expected.accuracy = {floats ? Precision::Float : Precision::Integer, ranks.size()};
  expected.candidates.push_back(
      {"", [views, reduction] { return reference::all_reduce(views(), reduction); }});
  evaluation.outputs.push_back(std::move(expected));
  return evaluation;
}

}  // namespace assay::opcheck
