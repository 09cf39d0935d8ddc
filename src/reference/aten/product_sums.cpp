// SPDX-License-Identifier: Apache-2.0
// The columns of w are summed once, with their factors; x times these sums gives the sums over the
// rows of x . w at a small part of the product's cost. alpha and the bias come last.
//   docs/localisation.md, "Golden by sums and in parts"
#include "reference/aten/product_sums.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "reference/aten/products.hpp"
#include "reference/aten/values.hpp"
#include "reference/elementwise/broadcast.hpp"
#include "reference/products/matmul.hpp"
#include "tensor/convert.hpp"

namespace assay::reference::aten {
namespace {

/// beta bias, added to the sums of its rows.
Status add_bias(const Product& product, ProductSums* result) {
  if (!product.bias) return {};
  ASSAY_TRY(const BroadcastValues bias, BroadcastValues::make(product.bias->view, product.shape));
  const int64_t n = result->columns;
  const int64_t blocks = column_blocks(n);
  double values[kColumnBlock];
  for (int64_t row = 0; row < result->sizes.shape[0]; ++row) {
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t first = block * kColumnBlock;
      const int64_t count = std::min(kColumnBlock, n - first);
      bias.read(row * n + first, count, values);
      for (int64_t j = 0; j < count; ++j) {
        const double value = product.beta * values[j];
        for (int draw = 0; draw < kColumnDraws; ++draw)
          result->sums.data()[(row * kColumnDraws + draw) * blocks + block] +=
              column_factor(draw, first + j) * value;
        result->sizes.data()[row * blocks + block] += std::fabs(value);
      }
    }
  }
  return {};
}

Result<ProductSums> sums_of(const Product& product, int jobs) {
  const int64_t k = product_terms(product);
  const int64_t n = product.w.view.shape[1];
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < product.x.view.shape.size(); ++i) rows *= product.x.view.shape[i];
  ASSAY_TRY(const Tensor x, reshaped(product.x, {rows, k}));
  const int64_t blocks = column_blocks(n);
  ProductSums result;
  result.columns = n;
  result.terms = static_cast<double>(k);
  result.sums = Wide(Dims{rows, kColumnDraws, blocks});
  result.sizes = Wide(Dims{rows, blocks});
  const ColumnSums columns = column_sums(product.w.view, jobs);
  multiply_into(x.view, transposed(view_of(columns.weighted)), result.sums.data(),
                kColumnDraws * blocks, jobs);
  multiply_into(x.view, transposed(view_of(columns.sizes)), result.sizes.data(), blocks, jobs,
                true);
  if (product.alpha != 1) {
    for (double& value : result.sums.values) value *= product.alpha;
    for (double& value : result.sizes.values) value *= std::fabs(product.alpha);
  }
  ASSAY_TRY_STATUS(add_bias(product, &result));
  return result;
}

}  // namespace

Result<ProductSums> product_sums(const Call& call, int jobs) {
  constexpr std::array<std::string_view, 4> kNames = {"mm", "addmm", "linear", "matmul"};
  const Arguments arguments(call);
  if (!call.name.starts_with("aten.") ||
      std::ranges::find(kNames, operation_of(call.name)) == kNames.end())
    return fail(arguments.unsupported("no sums of its columns"));
  ASSAY_TRY(const std::optional<Product> product, product_of(arguments));
  if (!product || product->w.view.shape.size() != 2 || !product->rows_are_those_of_x ||
      !product->order.empty() || !product->scales.empty() || !is_float(product->x.view.dtype) ||
      !is_float(product->w.view.dtype))
    return fail(arguments.unsupported("no sums of its columns"));
  ASSAY_TRY(ProductSums sums, sums_of(*product, jobs));
  return sums;
}

}  // namespace assay::reference::aten
