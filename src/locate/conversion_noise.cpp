// SPDX-License-Identifier: Apache-2.0
#include "locate/conversion_noise.hpp"

#include <cmath>

#include "locate/sim_rounding.hpp"
#include "reference/aten/call.hpp"
#include "reference/ggml/operators.hpp"
#include "reference/wide.hpp"

namespace assay::locate {
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
    values.values[i] += std::sqrt(12 * error.variance.values[i]) * jitter(0, i);
  *result = reference::to_tensor(std::move(values));
  return {};
}

}  // namespace assay::locate
