// SPDX-License-Identifier: Apache-2.0
// Complex numbers as far as rotary positions need them: made of pairs or of angles, multiplied,
// taken apart.
#include <cmath>
#include <complex>
#include <string>

#include "reference/aten/elementwise_map.hpp"
#include "reference/movement/bytes.hpp"
#include "tensor/convert.hpp"

namespace assay::reference::aten {
namespace {

using Complex = std::complex<double>;

Tensor complex_tensor(Array<Complex> values) {
  auto held = std::make_shared<Array<Complex>>(std::move(values));
  TensorView view;
  view.dtype = DType::Complex128;
  view.shape = held->shape;
  view.strides = contiguous_strides(held->shape);
  view.storage = ByteSpan(reinterpret_cast<const std::byte*>(held->data()),
                          held->values.size() * sizeof(Complex));
  return {view, std::move(held)};
}

/// Any numbers under a larger shape, in C order; real ones with an imaginary part of 0.
Result<Array<Complex>> complex_values(const Tensor& tensor, const Dims& shape) {
  ASSAY_TRY(const Tensor spread, broadcast_to(tensor, shape));
  ASSAY_TRY_STATUS(checked_count(shape));
  Array<Complex> values(shape);
  if (!is_complex(tensor.view.dtype)) {
    ASSAY_TRY(const Wide reals, widen(spread.view));
    std::copy(reals.values.begin(), reals.values.end(), values.values.begin());
    return values;
  }
  // std::complex is two doubles in a row, the real part first.
  read_values(spread.view, 0, values.size(),
              std::span(reinterpret_cast<double*>(values.data()), 2 * values.values.size()));
  return values;
}

/// abs (cos angle + i sin angle)
Result<Values> polar(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Operand magnitude, operand(arguments, "abs"));
  ASSAY_TRY(const Operand angle, operand(arguments, "angle"));
  const std::array<Operand, 2> operands{magnitude, angle};
  ASSAY_TRY(const Wide real,
            zip_reals(operands, [](double r, double phi) { return r * std::cos(phi); }));
  ASSAY_TRY(const Wide imaginary,
            zip_reals(operands, [](double r, double phi) { return r * std::sin(phi); }));
  Array<Complex> values(real.shape);
  for (size_t i = 0; i < values.values.size(); ++i)
    values.values[i] = {real.values[i], imaginary.values[i]};
  return single(complex_tensor(std::move(values)));
}

struct ComplexType {
  DType real;
  DType complex;
};
constexpr ComplexType kComplexTypes[] = {{DType::Float64, DType::Complex128},
                                         {DType::Float32, DType::Complex64},
                                         {DType::Float16, DType::Complex32}};

/// Pairs along the last axis as one number each.
Result<Values> view_as_complex(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Tensor self, arguments.tensor("self"));
  const size_t rank = self.view.shape.size();
  if (rank == 0 || self.view.shape[rank - 1] != 2)
    return fail(arguments.invalid("the last axis holds no pairs"));
  for (const ComplexType& type : kComplexTypes) {
    if (self.view.dtype != type.real) continue;
    // The pairs must lie side by side, and every second place be the first of one.
    bool in_pairs = self.view.strides[rank - 1] == 1 && self.view.offset_elements % 2 == 0;
    for (size_t i = 0; i + 1 < rank; ++i) in_pairs &= self.view.strides[i] % 2 == 0;
    if (!in_pairs) {
      ASSAY_TRY(self, contiguous(self));
      if (self.view.offset_elements % 2 != 0) {
        ASSAY_TRY(const NewTensor copy, copy_of(self));
        self = copy.tensor();
      }
      self.view.strides = contiguous_strides(self.view.shape);
    }
    Dims strides;
    for (size_t i = 0; i + 1 < rank; ++i) strides.push_back(self.view.strides[i] / 2);
    self.view.shape.resize(rank - 1);
    self.view.strides = strides;
    self.view.offset_elements /= 2;
    self.view.dtype = type.complex;
    return single(std::move(self));
  }
  return fail(arguments.unsupported("pairs of ", self.view.dtype));
}

/// The other way: [..., 2].
Result<Values> view_as_real(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Tensor self, arguments.tensor("self"));
  for (const ComplexType& type : kComplexTypes) {
    if (self.view.dtype != type.complex) continue;
    for (int64_t& stride : std::span(self.view.strides.data(), self.view.strides.size()))
      stride *= 2;
    self.view.shape.push_back(2);
    self.view.strides.push_back(1);
    self.view.offset_elements *= 2;
    self.view.dtype = type.real;
    return single(std::move(self));
  }
  return fail(arguments.invalid("an operand that is not complex"));
}

constexpr Overloads kComplex[] = {
    {"polar.default", OperatorClass::Trigonometric, polar},
    {"view_as_complex.default", OperatorClass::Move, view_as_complex, true},
    {"view_as_real.default", OperatorClass::Move, view_as_real, true},
};

}  // namespace

Result<Tensor> complex_product(const Tensor& a, const Tensor& b) {
  ASSAY_TRY(const Dims shape, reference::broadcast_shape(a.view.shape, b.view.shape));
  ASSAY_TRY(Array<Complex> left, complex_values(a, shape));
  ASSAY_TRY(const Array<Complex> right, complex_values(b, shape));
  for (size_t i = 0; i < left.values.size(); ++i) {
    const Complex x = left.values[i];
    const Complex y = right.values[i];
    left.values[i] = {x.real() * y.real() - x.imag() * y.imag(),
                      x.real() * y.imag() + x.imag() * y.real()};
  }
  return complex_tensor(std::move(left));
}

std::span<const Overloads> complex_overloads() { return kComplex; }

}  // namespace assay::reference::aten
