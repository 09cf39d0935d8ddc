// SPDX-License-Identifier: Apache-2.0
// assay.reference: norms, rotary embeddings, softmax of unpadded scores.
#include "python/reference/operators.hpp"
#include "reference/norms/block_softmax.hpp"
#include "reference/norms/layer_norm.hpp"
#include "reference/norms/rms_norm.hpp"
#include "reference/norms/rope.hpp"

namespace assay::python {
namespace {

using namespace reference;
using OptionalView = std::optional<TensorView>;

Result<Wide> rms_norm_of(const TensorView& x, const OptionalView& gamma, double eps,
                         const OptionalView& residual, const OptionalView& bias, bool unit_offset,
                         bool round_to_float16) {
  std::vector<Term> terms = {{x}};
  if (bias) terms.push_back({*bias});
  if (residual) terms.push_back({*residual});
  return rms_norm(terms, gamma,
                  {.eps = eps, .unit_offset = unit_offset, .round_to_float16 = round_to_float16});
}

Result<Wide> layer_norm_of(const TensorView& x, const OptionalView& gamma, const OptionalView& beta,
                           double eps, size_t dims, const OptionalView& residual,
                           double residual_scale) {
  std::vector<Term> terms = {{x}};
  if (residual) terms.push_back({*residual, residual_scale});
  return layer_norm(terms, gamma, beta, {.eps = eps, .dims = dims});
}

}  // namespace

void add_norms(Operators& operators) {
  operators.add("rms_norm", rms_norm_of);
  operators.add("reciprocal_rms", reciprocal_rms);
  operators.add("rms_norm_backward", rms_norm_gradient,
                kFields<&RmsNormGradient::dx, &RmsNormGradient::dgamma>);
  operators.add("layer_norm", layer_norm_of);
  operators.add("rope", with_options<&RopeOptions::groups, &RopeOptions::interleaved>(rope));
  operators.add("rope_gradient", rope_gradient);
  operators.add("rope_concat", rope_concat);
  operators.add("rotary_tables", rotary_tables, kFields<&RotaryTables::cos, &RotaryTables::sin>);
  operators.add("block_softmax", block_softmax);
  operators.add("block_softmax_backward", block_softmax_gradient);
}

}  // namespace assay::python
