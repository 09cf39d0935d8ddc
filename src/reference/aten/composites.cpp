// SPDX-License-Identifier: Apache-2.0
// Operators with a whole module in them: attention with its projections, a layer of an encoder, a
// layer of an LSTM. Each is written as the calls that it stands for, which EvaluateOptions::inner
// may evaluate in another way: with the rounding between them.
#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/aten/values.hpp"

namespace assay::reference::aten {
namespace {

using Named = std::initializer_list<std::pair<std::string_view, Argument>>;

Argument of(Tensor tensor) { return {std::move(tensor)}; }
Argument of(double number) { return {number}; }
Argument of(int64_t number) { return {number}; }
Argument of(const std::vector<int64_t>& sizes) {
  ArgumentList list;
  for (const int64_t size : sizes) list.push_back(of(size));
  return {std::move(list)};
}

/// Evaluates calls one after the other. After the first error results are empty and status() tells.
class Steps {
 public:
  explicit Steps(const EvaluateOptions& options) : options_(options) {}

  Tensor operator()(std::string_view name, Named arguments) {
    if (!status_) return {};
    Call call{"aten." + std::string(name), {}};
    for (const auto& [argument, value] : arguments) call.arguments.emplace(argument, value);
    Result<Values> results = options_.inner ? options_.inner(call) : evaluate(call, options_);
    if (!results) {
      status_ = fail(std::move(results).error());
      return {};
    }
    return std::move(results->front());
  }
  [[nodiscard]] const Status& status() const { return status_; }

  Tensor linear(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias) {
    if (!bias) return (*this)("linear.default", {{"input", of(x)}, {"weight", of(weight)}});
    return (*this)("linear.default",
                   {{"input", of(x)}, {"weight", of(weight)}, {"bias", of(*bias)}});
  }
  Tensor part(const Tensor& x, int64_t dim, int64_t first, int64_t count) {
    return (*this)(
        "narrow.default",
        {{"self", of(x)}, {"dim", of(dim)}, {"start", of(first)}, {"length", of(count)}});
  }
  Tensor shaped(const Tensor& x, const std::vector<int64_t>& shape) {
    return (*this)("reshape.default", {{"self", of(x)}, {"shape", of(shape)}});
  }
  Tensor turned(const Tensor& x, int64_t first, int64_t second) {
    return (*this)("transpose.int", {{"self", of(x)}, {"dim0", of(first)}, {"dim1", of(second)}});
  }
  Tensor apply(std::string_view name, const Tensor& x) { return (*this)(name, {{"self", of(x)}}); }
  Tensor apply(std::string_view name, const Tensor& x, const Tensor& other) {
    return (*this)(name, {{"self", of(x)}, {"other", of(other)}});
  }

 private:
  const EvaluateOptions& options_;
  Status status_;
};

/// Which tokens a mask is about.
enum MaskType : int64_t { kOfPairs = 0, kOfKeys = 1 };

struct Projections {
  Tensor qkv, proj;  // [3 E, E], [E, E]
  std::optional<Tensor> qkv_bias, proj_bias;
  int64_t heads = 1;
};

Result<Projections> projections_of(const Arguments& arguments, std::string_view heads) {
  Projections found;
  ASSAY_TRY(found.qkv, arguments.tensor("qkv_weight"));
  ASSAY_TRY(found.qkv_bias, arguments.optional_tensor("qkv_bias"));
  ASSAY_TRY(found.proj, arguments.tensor("proj_weight"));
  ASSAY_TRY(found.proj_bias, arguments.optional_tensor("proj_bias"));
  ASSAY_TRY(found.heads, arguments.integer(heads));
  const Dims& shape = found.proj.view.shape;
  if (shape.size() != 2 || found.heads <= 0 || shape[0] % found.heads != 0)
    return fail(arguments.invalid(found.heads, " heads of a projection ", shape));
  return found;
}

struct Attended {
  Tensor output;         // [batch, queries, E]
  Tensor probabilities;  // [batch, heads, queries, keys]
};

/// query, key, value   [batch, tokens, E]
Result<Attended> attend(const Arguments& arguments, const Projections& with, const Tensor& query,
                        const Tensor& key, const Tensor& value, Steps& steps) {
  for (const Tensor* x : {&query, &key, &value})
    if (x->view.shape.size() != 3) return fail(arguments.invalid(x->view.shape, " are no tokens"));
  const int64_t width = with.proj.view.shape[0], size = width / with.heads;
  const int64_t batch = query.view.shape[0];
  const auto projected = [&](const Tensor& x, int64_t which) {
    std::optional<Tensor> bias;
    if (with.qkv_bias) bias = steps.part(*with.qkv_bias, 0, which * width, width);
    const Tensor y = steps.linear(x, steps.part(with.qkv, 0, which * width, width), bias);
    return steps.turned(steps.shaped(y, {batch, x.view.shape[1], with.heads, size}), 1, 2);
  };
  const Tensor q = steps("mul.Tensor", {{"self", of(projected(query, 0))},
                                        {"other", of(1 / std::sqrt(static_cast<double>(size)))}});
  Tensor scores = steps.apply("matmul.default", q, steps.turned(projected(key, 1), 2, 3));
  ASSAY_TRY(std::optional<Tensor> mask, arguments.optional_tensor("mask"));
  if (mask) {
    ASSAY_TRY(const int64_t type, arguments.integer("mask_type", kOfPairs));
    if (type == kOfKeys) mask = steps.shaped(*mask, {batch, 1, 1, key.view.shape[1]});
    scores =
        mask->view.dtype == DType::Bool
            ? steps("masked_fill.Scalar", {{"self", of(scores)},
                                           {"mask", of(*mask)},
                                           {"value", of(-std::numeric_limits<double>::infinity())}})
            : steps.apply("add.Tensor", scores, *mask);
  }
  Attended found;
  found.probabilities = steps("softmax.int", {{"self", of(scores)}, {"dim", of(int64_t{-1})}});
  const Tensor heads =
      steps.turned(steps.apply("matmul.default", found.probabilities, projected(value, 2)), 1, 2);
  found.output = steps.linear(steps.shaped(heads, {batch, query.view.shape[1], width}), with.proj,
                              with.proj_bias);
  ASSAY_TRY_STATUS(steps.status());
  return found;
}

Result<Values> multi_head_attention(const Arguments& arguments, const EvaluateOptions& options) {
  Steps steps(options);
  ASSAY_TRY(const Projections with, projections_of(arguments, "num_head"));
  ASSAY_TRY(const Tensor query, arguments.tensor("query"));
  ASSAY_TRY(const Tensor key, arguments.tensor("key"));
  ASSAY_TRY(const Tensor value, arguments.tensor("value"));
  ASSAY_TRY(Attended found, attend(arguments, with, query, key, value, steps));
  ASSAY_TRY(const bool need_weights, arguments.truth("need_weights", true));
  ASSAY_TRY(const bool average, arguments.truth("average_attn_weights", true));
  Values results = single(std::move(found.output));
  if (!need_weights)
    results.emplace_back();
  else
    results.push_back(average ? steps("mean.dim", {{"self", of(found.probabilities)},
                                                   {"dim", of(std::vector<int64_t>{1})}})
                              : found.probabilities);
  ASSAY_TRY_STATUS(steps.status());
  return results;
}

Result<Values> encoder_layer(const Arguments& arguments, const EvaluateOptions& options) {
  Steps steps(options);
  ASSAY_TRY(const Projections with, projections_of(arguments, "num_heads"));
  ASSAY_TRY(const Tensor source, arguments.tensor("src"));
  ASSAY_TRY(const bool norm_first, arguments.truth("norm_first"));
  ASSAY_TRY(const bool gelu, arguments.truth("use_gelu"));
  ASSAY_TRY(const double eps, arguments.real("eps"));
  Tensor norms[4], products[4];
  for (size_t i = 0; i < 4; ++i) {
    const std::string number = std::string(i % 2 == 0 ? "weight_" : "bias_") + (i < 2 ? "1" : "2");
    ASSAY_TRY(norms[i], arguments.tensor("norm_" + number));
    ASSAY_TRY(products[i], arguments.tensor("ffn_" + number));
  }
  if (source.view.shape.empty()) return fail(arguments.invalid("no tokens"));
  const std::vector<int64_t> width{source.view.shape[source.view.shape.size() - 1]};
  const auto normed = [&](const Tensor& x, size_t which) {
    return steps("layer_norm.default", {{"input", of(x)},
                                        {"normalized_shape", of(width)},
                                        {"weight", of(norms[2 * which])},
                                        {"bias", of(norms[2 * which + 1])},
                                        {"eps", of(eps)}});
  };
  const Tensor first = norm_first ? normed(source, 0) : source;
  ASSAY_TRY_STATUS(steps.status());
  ASSAY_TRY(const Attended attended, attend(arguments, with, first, first, first, steps));
  Tensor middle = steps.apply("add.Tensor", attended.output, source);
  if (!norm_first) middle = normed(middle, 0);
  const Tensor wide =
      steps.linear(norm_first ? normed(middle, 1) : middle, products[0], products[1]);
  Tensor last = steps.linear(steps.apply(gelu ? "gelu.default" : "relu.default", wide), products[2],
                             products[3]);
  last = steps.apply("add.Tensor", last, middle);
  if (!norm_first) last = normed(last, 1);
  ASSAY_TRY_STATUS(steps.status());
  return single(std::move(last));
}

constexpr int64_t kLstm = 2;  // of mkldnn's modes

/// One layer in one direction. input [tokens, batch, in], hx and cx [batch, hidden] with any axes of 1
/// in front; weights in the order input, forget, cell, output.
Result<Values> lstm_layer(const Arguments& arguments, const EvaluateOptions& options) {
  Steps steps(options);
  ASSAY_TRY(const int64_t mode, arguments.integer("mode"));
  if (mode != kLstm) return fail(arguments.unsupported("no reference for mode ", mode));
  ASSAY_TRY(const Tensor input, arguments.tensor("input"));
  ASSAY_TRY(const Tensor of_input, arguments.tensor("weight0"));
  ASSAY_TRY(const Tensor of_hidden, arguments.tensor("weight1"));
  ASSAY_TRY(const bool has_biases, arguments.truth("has_biases"));
  std::optional<Tensor> input_bias, hidden_bias;
  if (has_biases) {
    ASSAY_TRY(input_bias, arguments.optional_tensor("weight2"));
    ASSAY_TRY(hidden_bias, arguments.optional_tensor("weight3"));
  }
  ASSAY_TRY(const Tensor hx, arguments.tensor("hx_"));
  ASSAY_TRY(const Tensor cx, arguments.tensor("cx_"));
  ASSAY_TRY(const bool reverse, arguments.truth("reverse"));
  ASSAY_TRY(const int64_t hidden, arguments.integer("hidden_size"));
  const Dims& shape = input.view.shape;
  if (shape.size() != 3 || hidden <= 0) return fail(arguments.invalid("an input ", shape));
  const std::vector<int64_t> state{shape[1], hidden};
  Tensor h = steps.shaped(hx, state), c = steps.shaped(cx, state);
  const Tensor projected = steps.linear(input, of_input, input_bias);
  std::vector<Tensor> outputs(static_cast<size_t>(shape[0]));
  for (int64_t i = 0; i < shape[0] && steps.status(); ++i) {
    const int64_t token = reverse ? shape[0] - 1 - i : i;
    const Tensor gates =
        steps.apply("add.Tensor",
                    steps("select.int",
                          {{"self", of(projected)}, {"dim", of(int64_t{0})}, {"index", of(token)}}),
                    steps.linear(h, of_hidden, hidden_bias));
    const auto gate = [&](int64_t which, std::string_view function) {
      return steps.apply(function, steps.part(gates, 1, which * hidden, hidden));
    };
    const Tensor kept = steps.apply("mul.Tensor", gate(1, "sigmoid.default"), c);
    c = steps.apply("add.Tensor", kept,
                    steps.apply("mul.Tensor", gate(0, "sigmoid.default"), gate(2, "tanh.default")));
    h = steps.apply("mul.Tensor", gate(3, "sigmoid.default"), steps.apply("tanh.default", c));
    outputs[static_cast<size_t>(token)] = h;
  }
  ArgumentList list;
  for (Tensor& output : outputs) list.push_back(of(std::move(output)));
  Values results = single(steps("stack.default", {{"tensors", {std::move(list)}}}));
  const auto as = [&](const Tensor& x, const Dims& sizes) {
    return steps.shaped(x, {sizes.begin(), sizes.end()});
  };
  results.push_back(as(h, hx.view.shape));
  results.push_back(as(c, cx.view.shape));
  results.emplace_back();  // what a kernel keeps for a backward pass
  ASSAY_TRY_STATUS(steps.status());
  return results;
}

}  // namespace

bool is_composite(std::string_view name) {
  return std::ranges::any_of(composite_overloads(), [&](const Overloads& row) {
    return name.starts_with("aten.") && name.substr(5) == row.names;
  });
}

std::span<const Overloads> composite_overloads() {
  static constexpr Overloads kTable[] = {
      {"_native_multi_head_attention.default", OperatorClass::Fused, multi_head_attention},
      {"_transformer_encoder_layer_fwd.default", OperatorClass::Fused, encoder_layer},
      {"mkldnn_rnn_layer.default", OperatorClass::Fused, lstm_layer},
  };
  return kTable;
}

}  // namespace assay::reference::aten
