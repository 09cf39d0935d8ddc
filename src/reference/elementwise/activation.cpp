// SPDX-License-Identifier: Apache-2.0
// Most activations are x sigmoid(f(x)), the gelu with tanh among them, and share one loop over
// blocks that takes the exponentials of a block at once.
#include "reference/elementwise/activation.hpp"

#include <array>
#include <numbers>

#include "reference/attention/softmax_row.hpp"
#include "reference/elementwise/map.hpp"
#include "tensor/sentence.hpp"

namespace assay::reference {
namespace {

/// x cut along an axis: [outer, 2, half], the last two contiguous in C order.
struct Halves {
  int64_t outer = 1;
  int64_t half = 1;
  Dims shape;  // of one half
};

Result<Halves> halves(const TensorView& x, int64_t axis) {
  ASSAY_TRY_STATUS(check_real(x));
  ASSAY_TRY(const size_t at, axis_of(axis, x.shape.size()));
  if (x.shape[at] % 2 != 0)
    return fail(Errc::Invalid, "dimension ", at, " of ", x.shape, " has no halves");
  Halves result{.shape = x.shape};
  result.shape[at] /= 2;
  if (x.element_count() == 0) {
    result.outer = 0;
    return result;
  }
  for (size_t i = 0; i < at; ++i) result.outer *= x.shape[i];
  for (size_t i = at; i < x.shape.size(); ++i) result.half *= result.shape[i];
  return result;
}

/// sigmoid() of a block; x and out do not overlap. Instead of one library call a value, e^-|x| of
/// all values at once.
void sigmoids(const double* x, int64_t count, double* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = -std::fabs(x[i]);
  exponentials(out, count, 0);
  for (int64_t i = 0; i < count; ++i) {
    const double e = out[i];
    out[i] = (x[i] < 0 ? e : 1.0) / (1.0 + e);
  }
}

/// x sigmoid(inner(x)) of all values, the form that most activations have.
template <typename Inner>
Result<Wide> gated(const TensorView& x, Inner inner) {
  return map_blocks(x, [inner](double* values, int64_t count) {
    std::array<double, kBlock> arguments{};
    std::array<double, kBlock> gates{};
    for (int64_t i = 0; i < count; ++i) arguments[static_cast<size_t>(i)] = inner(values[i]);
    sigmoids(arguments.data(), count, gates.data());
    for (int64_t i = 0; i < count; ++i) values[i] *= gates[static_cast<size_t>(i)];
  });
}

}  // namespace

Result<Wide> relu(const TensorView& x) {
  return map_values(x, [](double v) { return v < 0 ? 0.0 : v; });
}

Result<Wide> gelu(const TensorView& x, GeluForm form) {
  // Where erf or tanh is close to -1 the sum 1 + erf or 1 + tanh loses its digits, so neither is
  // formed there. erfc() everywhere would take longer than erf().
  if (form == GeluForm::Erf)
    return map_values(x, [](double v) {
      constexpr double scale = 1 / std::numbers::sqrt2;
      return 0.5 * v * (v > -1 ? 1 + std::erf(v * scale) : std::erfc(-v * scale));
    });
  // (1 + tanh u) / 2 is sigmoid(2 u).
  const double factor = 2 * std::sqrt(2 * std::numbers::inv_pi);
  return gated(x, [factor](double v) { return factor * (v + 0.044715 * v * v * v); });
}

Result<Wide> fast_gelu(const TensorView& x) {
  return gated(x, [](double v) { return 1.702 * v; });
}

Result<Wide> swish(const TensorView& x, double scale) {
  return gated(x, [scale](double v) { return scale * v; });
}

Result<Wide> log(const TensorView& x) {
  return map_values(x, [](double v) { return std::log(v); });
}

Result<Wide> sigmoid(const TensorView& x) {
  return map_blocks(x, [](double* values, int64_t count) {
    std::array<double, kBlock> gates{};
    sigmoids(values, count, gates.data());
    std::copy_n(gates.data(), count, values);
  });
}

Result<Wide> swiglu(const TensorView& x, int64_t axis) {
  ASSAY_TRY(const Halves cut, halves(x, axis));
  Wide y(cut.shape);
  std::array<double, kBlock> b{};
  std::array<double, kBlock> gates{};
  for (int64_t row = 0; row < cut.outer; ++row) {
    for (int64_t first = 0; first < cut.half; first += kBlock) {
      const int64_t length = std::min(kBlock, cut.half - first);
      const auto size = static_cast<size_t>(length);
      double* a = y.data() + row * cut.half + first;
      read_values(x, 2 * row * cut.half + first, length, std::span(a, size));
      read_values(x, (2 * row + 1) * cut.half + first, length, std::span(b).first(size));
      sigmoids(a, length, gates.data());
      for (size_t i = 0; i < size; ++i) a[i] *= gates[i] * b[i];
    }
  }
  return y;
}

Result<Wide> swiglu_backward(const TensorView& dy, const TensorView& x, int64_t axis) {
  ASSAY_TRY(const Halves cut, halves(x, axis));
  if (dy.shape != cut.shape)
    return fail(Errc::Invalid, "the gradient has shape ", dy.shape, ", halves of x have ",
                cut.shape);
  ASSAY_TRY_STATUS(check_real(dy));
  Wide dx(x.shape);
  std::array<double, kBlock> gradient{};
  std::array<double, kBlock> gates{};
  for (int64_t row = 0; row < cut.outer; ++row) {
    for (int64_t first = 0; first < cut.half; first += kBlock) {
      const int64_t length = std::min(kBlock, cut.half - first);
      const auto size = static_cast<size_t>(length);
      // Both halves are computed where their gradients end up.
      double* a = dx.data() + 2 * row * cut.half + first;
      double* b = a + cut.half;
      read_values(x, 2 * row * cut.half + first, length, std::span(a, size));
      read_values(x, (2 * row + 1) * cut.half + first, length, std::span(b, size));
      read_values(dy, row * cut.half + first, length, std::span(gradient).first(size));
      sigmoids(a, length, gates.data());
      for (size_t i = 0; i < size; ++i) {
        const double s = gates[i];
        const double silu = a[i] * s;
        a[i] = gradient[i] * b[i] * (s + silu * (1 - s));
        b[i] = gradient[i] * silu;
      }
    }
  }
  return dx;
}

}  // namespace assay::reference
