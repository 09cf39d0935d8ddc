// SPDX-License-Identifier: Apache-2.0
// Sums, products and roots of single elements; sums over rows.
#include <cmath>

#include "reference/elementwise/map.hpp"
#include "reference/ggml/dialect.hpp"
#include "reference/movement/assemble.hpp"
#include "reference/movement/gather.hpp"

namespace assay::reference::ggml {
namespace {

/// The second source is repeated to the sizes of the first.
Status pair(const Arguments& arguments, Call* same) {
  ASSAY_TRY(const Source a, source(arguments, "src0"));
  ASSAY_TRY(const Source b, source(arguments, "src1"));
  Dims times;
  bool broadcasts = true;
  for (size_t i = 4; i-- > 0;) {
    if (b.ne[i] == 0 ? a.ne[i] != 0 : a.ne[i] % b.ne[i] != 0)
      return fail(arguments.invalid(text_of(b.ne), " does not repeat to ", text_of(a.ne)));
    times.push_back(b.ne[i] == 0 ? 1 : a.ne[i] / b.ne[i]);
    broadcasts &= b.ne[i] == 1 || b.ne[i] == a.ne[i];
  }
  set(same, "self", a.tensor);
  set(same, "other", b.tensor);
  if (broadcasts) return {};
  ASSAY_TRY(Tensor repeated, tile(b.tensor, times.span()));
  set(same, "other", std::move(repeated));
  return {};
}

/// Row ids[i1, i2] of the second source is added to every row of the first.
Status chosen_rows(const Arguments& arguments, Call* same) {
  ASSAY_TRY(const Source a, source(arguments, "src0"));
  ASSAY_TRY(const Source b, source(arguments, "src1"));
  ASSAY_TRY(Source ids, source(arguments, "src2"));
  if (ids.ne[0] != a.ne[1] || ids.ne[1] != a.ne[2] || b.ne[0] != a.ne[0] || a.ne[3] != 1)
    return fail(arguments.invalid("ids ", text_of(ids.ne), " for ", text_of(a.ne)));
  ASSAY_TRY(const Tensor table, reshaped(b.tensor, {b.ne[1], b.ne[0]}));
  ASSAY_TRY(ids.tensor, reshaped(ids.tensor, {ids.ne[1], ids.ne[0]}));
  ASSAY_TRY(Tensor rows, gather(table, ids.tensor, 0, 0));
  set(same, "self", a.tensor);
  set(same, "other", std::move(rows));
  return {};
}

Status limits(const Arguments& arguments, Call* same) {
  ASSAY_TRY(const double min, real(arguments, "min", 0));
  ASSAY_TRY(const double max, real(arguments, "max", 1));
  set(same, "min", min);
  set(same, "max", max);
  return set_self(arguments, same);
}

Status slope(const Arguments& arguments, Call* same) {
  ASSAY_TRY(const double slope, real(arguments, "slope", 0));
  set(same, "negative_slope", slope);
  return set_self(arguments, same);
}

/// Every row by itself; its axis stays.
Status rows(const Arguments& arguments, Call* same) {
  set_list(same, "dim", {{-1}});
  set(same, "keepdim", true);
  return set_self(arguments, same);
}

/// x factor + bias, or of magnitudes: |x factor| + |bias|.
Result<Wide> scaled(const Arguments& arguments, bool absolute) {
  ASSAY_TRY(const double factor, real(arguments, "scale", 0));
  ASSAY_TRY(const double bias, real(arguments, "bias", 1, 0.0));
  ASSAY_TRY(const Source x, source(arguments, "src0"));
  return map_values(x.view(), [=](double value) {
    return absolute ? std::fabs(value * factor) + std::fabs(bias) : value * factor + bias;
  });
}
Result<Values> scale(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Wide y, scaled(arguments, false));
  return result_of(std::move(y));
}
Result<Magnitudes> rounding_of_scale(const Arguments& arguments, int) {
  ASSAY_TRY(Wide c, scaled(arguments, true));
  return scaled_rounding(std::move(c), 2 * kFloat32Roundoff);
}

}  // namespace

std::span<const DialectRow> arithmetic_operators() {
  using enum OperatorClass;
  // Functions of libm, and of vectors that stand for them; sines and cosines err relative to 1.
  constexpr Roundoff kFunction{Size::Result, 4};
  constexpr Roundoff kAngle{Size::One, 4};
  constexpr Roundoff kSum{Size::Terms, 2};
  static constexpr DialectRow kTable[] = {
      {"ggml.add", Arithmetic, "aten.add.Tensor", pair},
      {"ggml.add1", Arithmetic, "aten.add.Tensor", pair},
      {"ggml.add_id", Arithmetic, "aten.add.Tensor", chosen_rows},
      {"ggml.clamp", Move, "aten.clamp.default", limits},
      {"ggml.cos", Trigonometric, "aten.cos.default", set_self, kAngle},
      {"ggml.div", Arithmetic, "aten.div.Tensor", pair, kFunction},
      {"ggml.leaky_relu", Arithmetic, "aten.leaky_relu.default", slope},
      {"ggml.log", Function, "aten.log.default", set_self, kFunction},
      {"ggml.mean", Reduction, "aten.mean.dim", rows, kSum},
      {"ggml.mul", Arithmetic, "aten.mul.Tensor", pair},
      own("ggml.scale", Arithmetic, scale, rounding_of_scale),
      {"ggml.sin", Trigonometric, "aten.sin.default", set_self, kAngle},
      {"ggml.sqr", Arithmetic, "aten.square.default", set_self},
      {"ggml.sqrt", Function, "aten.sqrt.default", set_self, kFunction},
      {"ggml.sub", Arithmetic, "aten.sub.Tensor", pair},
      {"ggml.sum", Reduction, "aten.sum.default", set_self, kSum},
      {"ggml.sum_rows", Reduction, "aten.sum.dim_IntList", rows, kSum},
  };
  return kTable;
}

}  // namespace assay::reference::ggml
