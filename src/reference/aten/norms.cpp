// SPDX-License-Identifier: Apache-2.0
// Every norm is brought to rows that share mean and rstd: the last dimensions (layer, rms), the
// channels of a group (group, instance), or a channel in all batches (batch). One loop normalises
// them all.
#include "reference/aten/norms.hpp"

#include <algorithm>
#include <cmath>

namespace assay::reference::aten {
namespace {

bool contains(const Arguments& arguments, std::string_view part) {
  return arguments.call().name.find(part) != std::string::npos;
}

Result<std::vector<double>> per_weight(const Arguments& arguments, std::string_view name,
                                       int64_t count) {
  ASSAY_TRY(const std::optional<Tensor> tensor, arguments.optional_tensor(name));
  if (!tensor) return std::vector<double>();
  ASSAY_TRY(Wide values, widen(tensor->view));
  if (values.size() != count)
    return fail(arguments.invalid(name, " ", tensor->view.shape, " has not ", count, " values"));
  return std::vector<double>(values.values.begin(), values.values.end());
}

Status read_weights(const Arguments& arguments, Norm& norm, int64_t count) {
  ASSAY_TRY(norm.weight, per_weight(arguments, "weight", count));
  ASSAY_TRY(norm.bias, per_weight(arguments, "bias", count));
  return {};
}

Result<Tensor> input_of(const Arguments& arguments) {
  ASSAY_TRY(const Tensor input, arguments.tensor("input"));
  if (!is_real(input.view.dtype) || values_per_element(input.view.dtype) != 1)
    return fail(arguments.unsupported(input.view.dtype, " values"));
  ASSAY_TRY_STATUS(checked_count(input.view.shape));
  return input;
}

/// Layer and rms norms: the last dimensions.
Result<Norm> of_last_dimensions(const Arguments& arguments) {
  ASSAY_TRY(const Tensor input, input_of(arguments));
  ASSAY_TRY(const std::vector<int64_t> normalised, arguments.integers("normalized_shape"));
  const Dims& shape = input.view.shape;
  const size_t dims = normalised.size();
  if (dims == 0 || dims > shape.size() ||
      !std::equal(normalised.begin(), normalised.end(), shape.end() - dims))
    return fail(arguments.invalid("input ", shape, " does not end with ", normalised));
  Norm norm;
  norm.rows = input.view;
  norm.shape = norm.statistics_shape = shape;
  norm.strides = contiguous_strides(shape);
  const size_t outer = shape.size() - dims;
  ASSAY_TRY(norm.count, checked_count(Dims(shape.span().first(outer))));
  ASSAY_TRY(norm.length, checked_count(Dims(shape.span().subspan(outer))));
  for (size_t i = outer; i < shape.size(); ++i) norm.statistics_shape[i] = 1;
  norm.centred = !contains(arguments, "rms_norm");
  double eps = 1e-5;
  if (!norm.centred)  // torch 2.13: that of the type it computes in
    eps = input.view.dtype == DType::Float64 ? std::numeric_limits<double>::epsilon()
                                             : std::numeric_limits<float>::epsilon();
  ASSAY_TRY(norm.eps, arguments.real("eps", eps));
  ASSAY_TRY_STATUS(read_weights(arguments, norm, norm.length));
  return norm;
}

Result<Norm> of_groups(const Arguments& arguments) {
  ASSAY_TRY(const Tensor input, input_of(arguments));
  const Dims& shape = input.view.shape;
  const bool native = contains(arguments, "native_group_norm");
  const bool instance = contains(arguments, "instance_norm");
  if (shape.size() < 2) return fail(arguments.invalid("of an input without channels"));
  int64_t groups = shape[1];
  if (!instance) {
    ASSAY_TRY(groups, arguments.integer(native ? "group" : "num_groups"));
  }
  if (groups <= 0 || shape[1] % groups != 0)
    return fail(arguments.invalid(shape[1], " channels in ", groups, " groups"));
  Norm norm;
  norm.rows = input.view;
  norm.shape = shape;
  norm.strides = contiguous_strides(shape);
  norm.statistics_shape = {shape[0], groups};
  ASSAY_TRY(norm.count, checked_count(norm.statistics_shape));
  ASSAY_TRY(norm.span, checked_count(Dims(shape.span().subspan(2))));
  ASSAY_TRY(norm.length, checked_count(Dims{shape[1] / groups, norm.span}));
  norm.row_period = groups;
  ASSAY_TRY(norm.eps, arguments.real("eps", 1e-5));
  ASSAY_TRY_STATUS(read_weights(arguments, norm, shape[1]));
  return norm;
}

bool is_training(const Arguments& arguments, bool flag) {
  if (contains(arguments, "_no_training") || contains(arguments, "_no_update")) return false;
  return contains(arguments, "_with_update") || flag;
}

Result<Norm> of_channels(const Arguments& arguments) {
  ASSAY_TRY(const Tensor input, input_of(arguments));
  const TensorView& view = input.view;
  const size_t rank = view.shape.size();
  if (rank < 2) return fail(arguments.invalid("of an input without channels"));
  const int64_t channels = view.shape[1];
  Norm norm;
  norm.rows = view;
  norm.shape = view.shape;
  std::swap(norm.rows.shape[0], norm.rows.shape[1]);
  std::swap(norm.rows.strides[0], norm.rows.strides[1]);
  norm.strides = contiguous_strides(norm.rows.shape);
  std::swap(norm.strides[0], norm.strides[1]);
  norm.statistics_shape = {channels};
  norm.count = channels;
  ASSAY_TRY(norm.length, checked_count(Dims(norm.rows.shape.span().subspan(1))));
  norm.row_period = std::max<int64_t>(channels, 1);
  norm.span = norm.length;
  ASSAY_TRY(norm.eps, arguments.real(arguments.has("epsilon") ? "epsilon" : "eps", 1e-5));
  ASSAY_TRY_STATUS(read_weights(arguments, norm, channels));
  const bool instance = contains(arguments, "instance_norm");
  ASSAY_TRY(const bool flag, arguments.truth(instance ? "use_input_stats" : "training", false));
  if (is_training(arguments, flag)) return norm;
  ASSAY_TRY(norm.mean, per_weight(arguments, "running_mean", channels));
  ASSAY_TRY(norm.rstd, per_weight(arguments, "running_var", channels));
  if (norm.mean.empty() != (channels == 0) || norm.rstd.empty() != (channels == 0))
    return fail(arguments.invalid("running statistics are missing"));
  for (double& value : norm.rstd) value = 1.0 / std::sqrt(value + norm.eps);
  return norm;
}

double weight_at(const std::vector<double>& weights, int64_t at, double absent) {
  return weights.empty() ? absent : weights[static_cast<size_t>(at)];
}

struct Normalised {
  Norm norm;
  Tensor y, mean, rstd;
};

Result<Normalised> normalise(const Arguments& arguments) {
  ASSAY_TRY(Norm norm, norm_of(arguments));
  Wide y(norm.rows.shape);
  Wide mean(norm.statistics_shape);
  Wide rstd(norm.statistics_shape);
  ASSAY_TRY_STATUS(for_each_norm_row(norm, [&](int64_t row, std::span<double> values) {
    const RowStatistics statistics = row_statistics(norm, row, values);
    mean.data()[row] = statistics.mean;
    rstd.data()[row] = statistics.rstd;
    double* out = y.data() + row * norm.length;
    std::copy(values.begin(), values.end(), out);
    const int64_t first = norm.first_weight(row);
    if (norm.span == 1) {
      normalise_row(out, norm.length, statistics.mean, statistics.rstd,
                    norm.weight.empty() ? nullptr : norm.weight.data() + first,
                    norm.bias.empty() ? nullptr : norm.bias.data() + first);
      return;
    }
    for (int64_t i = 0; i < norm.length; ++i) {
      const int64_t at = first + i / norm.span;
      out[i] = (out[i] - statistics.mean) * statistics.rstd * weight_at(norm.weight, at, 1.0) +
               weight_at(norm.bias, at, 0.0);
    }
  }));
  Tensor result = norm_result(norm, std::move(y));
  return Normalised{std::move(norm), std::move(result), to_tensor(std::move(mean)),
                    to_tensor(std::move(rstd))};
}

Result<Values> evaluate_norm(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Normalised normalised, normalise(arguments));
  return single(std::move(normalised.y));
}

Result<Values> evaluate_with_statistics(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Normalised normalised, normalise(arguments));
  return Values{std::move(normalised.y), std::move(normalised.mean), std::move(normalised.rstd)};
}

Result<Values> evaluate_fused_rms_norm(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Normalised normalised, normalise(arguments));
  return Values{std::move(normalised.y), std::move(normalised.rstd)};
}

/// Statistics are saved in training only; nothing predicts what kernels reserve for a backward
/// pass.
Result<Values> evaluate_batch_norm(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Normalised normalised, normalise(arguments));
  Values results = single(std::move(normalised.y));
  const bool saved = normalised.norm.mean.empty() && normalised.norm.count != 0;
  results.push_back(saved ? std::move(normalised.mean) : to_tensor(Wide(Dims{0})));
  results.push_back(saved ? std::move(normalised.rstd) : to_tensor(Wide(Dims{0})));
  const bool reserves = contains(arguments, "cudnn") || contains(arguments, "_update");
  if (reserves) results.emplace_back();
  return results;
}

}  // namespace

Result<Norm> norm_of(const Arguments& arguments) {
  if (contains(arguments, "layer_norm") || contains(arguments, "rms_norm"))
    return of_last_dimensions(arguments);
  if (contains(arguments, "group_norm")) return of_groups(arguments);
  if (contains(arguments, "instance_norm")) {
    ASSAY_TRY(const bool own, arguments.truth("use_input_stats", true));
    return own ? of_groups(arguments) : of_channels(arguments);
  }
  return of_channels(arguments);
}

RowStatistics row_statistics(const Norm& norm, int64_t row, std::span<const double> values) {
  if (!norm.mean.empty())
    return {norm.mean[static_cast<size_t>(row)], norm.rstd[static_cast<size_t>(row)]};
  return reference::row_statistics(values.data(), norm.length, norm.centred, norm.eps);
}

Tensor norm_result(const Norm& norm, Wide rows) {
  Tensor result = to_tensor(std::move(rows));
  result.view.shape = norm.shape;
  result.view.strides = norm.strides;
  return result;
}

std::span<const Overloads> norm_overloads() {
  constexpr auto kNorm = OperatorClass::Norm;
  static constexpr Overloads kTable[] = {
      {"_batch_norm_no_update.default _batch_norm_with_update.default _batch_norm_with_update.out "
       "_native_batch_norm_legit.default _native_batch_norm_legit.out "
       "_native_batch_norm_legit.no_stats _native_batch_norm_legit_no_training.default "
       "cudnn_batch_norm.default miopen_batch_norm.default native_batch_norm.default",
       kNorm, evaluate_batch_norm},
      {"_fused_rms_norm.default", kNorm, evaluate_fused_rms_norm},
      {"batch_norm.default group_norm.default instance_norm.default layer_norm.default "
       "rms_norm.default",
       kNorm, evaluate_norm},
      {"native_group_norm.default native_layer_norm.default", kNorm, evaluate_with_statistics},
  };
  return kTable;
}

}  // namespace assay::reference::aten
