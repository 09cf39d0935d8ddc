// SPDX-License-Identifier: Apache-2.0
#include "locate/conversion_noise.hpp"

#include <cmath>

#include "reference/aten/call.hpp"
#include "reference/ggml/operators.hpp"
#include "reference/wide.hpp"

namespace assay::locate {
namespace {

/// A number of variance 1, uniform, that depends on its place only.
double spread(uint64_t place) {
  uint64_t bits = place + 0x9E3779B97F4A7C15U;  // splitmix64
  bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9U;
  bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBU;
  bits ^= bits >> 31;
  const double unit = static_cast<double>(bits >> 11) * 0x1p-53;
  return std::sqrt(12.0) * (unit - 0.5);
}

}  // namespace

Status add_conversion_noise(const std::string& type, const Tensor& weight, const Tensor& x,
                            Tensor* result) {
  if (type == "f32" || weight.view.shape.size() != 2 || x.view.shape.empty()) return {};
  const int64_t in = weight.view.shape[1];
  if (in == 0 || x.view.shape[x.view.shape.size() - 1] != in) return {};
  reference::aten::Call call{"ggml.mul_mat", {}};
  call.arguments["src0"].value = weight;
  ASSAY_TRY(call.arguments["src1"].value,
            reference::reshaped(x, Dims{x.view.element_count() / in, in}));
  call.arguments["src0_type"].value = type;
  ASSAY_TRY(const reference::aten::Magnitudes error, reference::ggml::rounding(call));
  ASSAY_TRY(reference::Wide values, reference::widen(result->view));
  if (error.variance.size() != values.size()) return {};
  for (size_t i = 0; i < values.values.size(); ++i)
    values.values[i] += std::sqrt(error.variance.values[i]) * spread(i);
  *result = reference::to_tensor(std::move(values));
  return {};
}

}  // namespace assay::locate
