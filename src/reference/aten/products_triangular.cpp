// SPDX-License-Identifier: Apache-2.0
// Systems of equations with a triangular matrix, solved row by row.
#include "reference/aten/products.hpp"
#include "reference/aten/values.hpp"
#include "reference/elementwise/broadcast.hpp"

namespace assay::reference::aten {
namespace {

struct Triangle {
  bool upper = false;
  bool unit = false;  // ones on the diagonal, whatever is stored there
  int64_t n = 0;
};

/// What one right-hand side becomes. A is turned by its strides for X A = B, whose columns are rows
/// of X.
struct Strides {
  int64_t row = 0, column = 0;  // of A
  int64_t next = 0;             // of the unknowns of one right-hand side
};

void substitute(const Triangle& triangle, const double* a, const Strides& strides, double* x) {
  for (int64_t i = 0; i < triangle.n; ++i) {
    const int64_t row = triangle.upper ? triangle.n - 1 - i : i;
    double sum = x[row * strides.next];
    for (int64_t j = 0; j < i; ++j) {
      const int64_t column = triangle.upper ? triangle.n - 1 - j : j;
      sum -= a[row * strides.row + column * strides.column] * x[column * strides.next];
    }
    x[row * strides.next] = triangle.unit ? sum : sum / a[row * strides.row + row * strides.column];
  }
}

/// The leading axes of both, spread to each other, and the two of the matrix itself.
Result<Dims> batched(const Arguments& arguments, const Dims& a, const Dims& b, const Dims& own) {
  Dims shape;
  const size_t axes = std::max(a.size(), b.size()) - 2;
  for (size_t i = 0; i < axes; ++i) {
    const int64_t left = i + a.size() < axes + 2 ? 1 : a[i + a.size() - axes - 2];
    const int64_t right = i + b.size() < axes + 2 ? 1 : b[i + b.size() - axes - 2];
    if (left != right && left != 1 && right != 1)
      return fail(arguments.invalid("batches of shapes ", a, " and ", b, " do not fit"));
    shape.push_back(left == 1 ? right : left);
  }
  shape.push_back(own[own.size() - 2]);
  shape.push_back(own[own.size() - 1]);
  return shape;
}

Result<Wide> spread(const TensorView& view, const Dims& shape) {
  ASSAY_TRY(const BroadcastValues values, BroadcastValues::make(view, shape));
  Wide out(shape);
  for (int64_t first = 0; first < out.size(); first += kBlock)
    values.read(first, std::min(kBlock, out.size() - first), out.data() + first);
  return out;
}

}  // namespace

/// torch.linalg.solve_triangular: X of A X = B, or of X A = B.
Result<std::vector<Tensor>> evaluate_solve_triangular(const Arguments& arguments,
                                                      const EvaluateOptions& /*options*/) {
  ASSAY_TRY(const Tensor a, arguments.tensor("self"));
  ASSAY_TRY(const Tensor b, arguments.tensor("B"));
  ASSAY_TRY(const bool upper, arguments.truth("upper"));
  ASSAY_TRY(const bool left, arguments.truth("left", true));
  ASSAY_TRY(const bool unit, arguments.truth("unitriangular", false));
  const Dims& square = a.view.shape;
  const Dims& sides = b.view.shape;
  const int64_t n = square.empty() ? 0 : square[square.size() - 1];
  if (square.size() < 2 || sides.size() < 2 || square[square.size() - 2] != n ||
      sides[sides.size() - (left ? 2 : 1)] != n)
    return fail(arguments.invalid("operands of shapes ", square, " and ", sides, " do not fit"));
  ASSAY_TRY(const Dims a_shape, batched(arguments, square, sides, square));
  ASSAY_TRY(const Dims x_shape, batched(arguments, square, sides, sides));
  ASSAY_TRY(const Wide matrix, spread(a.view, a_shape));
  ASSAY_TRY(Wide x, spread(b.view, x_shape));
  const int64_t columns = x_shape[x_shape.size() - 1];
  const int64_t rows = x_shape[x_shape.size() - 2];
  const int64_t batches = rows * columns == 0 ? 0 : x.size() / (rows * columns);
  // X A = B is A' X' = B': the other triangle.
  const Triangle triangle{upper == left, unit, n};
  const Strides strides{left ? n : 1, left ? 1 : n, left ? columns : 1};
  for (int64_t batch = 0; batch < batches; ++batch) {
    double* solved = x.data() + batch * rows * columns;
    for (int64_t side = 0; side < (left ? columns : rows); ++side)
      substitute(triangle, matrix.data() + batch * n * n, strides,
                 solved + side * (left ? 1 : columns));
  }
  return std::vector<Tensor>{to_tensor(std::move(x))};
}

}  // namespace assay::reference::aten
