// SPDX-License-Identifier: Apache-2.0
// assay.reference: activations, arithmetic, quantisation.
#include <nanobind/stl/string.h>

#include <array>
#include <string>
#include <utility>

#include "python/reference/bind.hpp"
#include "reference/elementwise/activation.hpp"
#include "reference/elementwise/arithmetic.hpp"
#include "reference/elementwise/quantise.hpp"

namespace nb = nanobind;

namespace assay::python {
namespace {

using reference::Array;

nb::object as_array(Result<Tensor> result) {
  return owned_array(value_or_raise(std::move(result)));
}
template <typename T>
nb::object as_array(Result<Array<T>> result) {
  return array_or_raise(std::move(result));
}

/// Runs without the interpreter's lock; `compute` must not touch Python.
template <typename F>
nb::object unlocked(F compute) {
  auto result = [&] {
    nb::gil_scoped_release released;
    return compute();
  }();
  return as_array(std::move(result));
}

/// A function of one array.
template <typename F>
void def_unary(nb::module_& m, const char* name, F function) {
  m.def(name, [function](nb::handle x) {
    const Tensor tensor = borrowed_tensor(x);
    return unlocked([&] { return function(tensor.view); });
  });
}

DType dtype_or_raise(const std::string& text) {
  const std::optional<DType> dtype = dtype_from_name(text);
  if (!dtype) raise(Error{Errc::Usage, {}, std::nullopt, "no element type is called " + text});
  return *dtype;
}

/// The choice of that name.
template <typename Choice, size_t N>
Choice choose(const std::string& name,
              const std::array<std::pair<const char*, Choice>, N>& choices) {
  for (const auto& [text, choice] : choices) {
    if (name == text) return choice;
  }
  raise(Error{Errc::Usage, {}, std::nullopt, "\"" + name + "\" is no such operation"});
}

constexpr std::array<std::pair<const char*, reference::Arithmetic>, 4> kArithmetic = {{
    {"add", reference::Arithmetic::Add},
    {"subtract", reference::Arithmetic::Subtract},
    {"multiply", reference::Arithmetic::Multiply},
    {"divide", reference::Arithmetic::Divide},
}};
constexpr std::array<std::pair<const char*, reference::Comparison>, 3> kComparisons = {{
    {"less", reference::Comparison::Less},
    {"greater", reference::Comparison::Greater},
    {"equal", reference::Comparison::Equal},
}};
constexpr std::array<std::pair<const char*, reference::Logic>, 2> kLogic = {{
    {"and", reference::Logic::And},
    {"or", reference::Logic::Or},
}};

void bind_activations(nb::module_& m) {
  def_unary(m, "relu", [](const TensorView& x) { return reference::relu(x); });
  def_unary(m, "fast_gelu", [](const TensorView& x) { return reference::fast_gelu(x); });
  def_unary(m, "log", [](const TensorView& x) { return reference::log(x); });
  def_unary(m, "sigmoid", [](const TensorView& x) { return reference::sigmoid(x); });
  m.def("gelu", [](nb::handle x, bool tanh_form) {
    const Tensor tensor = borrowed_tensor(x);
    const auto form = tanh_form ? reference::GeluForm::Tanh : reference::GeluForm::Erf;
    return unlocked([&] { return reference::gelu(tensor.view, form); });
  });
  m.def("swish", [](nb::handle x, double scale) {
    const Tensor tensor = borrowed_tensor(x);
    return unlocked([&] { return reference::swish(tensor.view, scale); });
  });
  m.def("swiglu", [](nb::handle x, int64_t axis) {
    const Tensor tensor = borrowed_tensor(x);
    return unlocked([&] { return reference::swiglu(tensor.view, axis); });
  });
  m.def("swiglu_backward", [](nb::handle dy, nb::handle x, int64_t axis) {
    const Tensor gradient = borrowed_tensor(dy);
    const Tensor tensor = borrowed_tensor(x);
    return unlocked([&] { return reference::swiglu_backward(gradient.view, tensor.view, axis); });
  });
}

void bind_arithmetic(nb::module_& m) {
  def_unary(m, "cos", [](const TensorView& x) { return reference::cosine(x); });
  def_unary(m, "sin", [](const TensorView& x) { return reference::sine(x); });
  def_unary(m, "tanh", [](const TensorView& x) { return reference::hyperbolic_tangent(x); });
  def_unary(m, "negative", [](const TensorView& x) { return reference::negated(x); });
  def_unary(m, "logical_not", [](const TensorView& x) { return reference::logical_not(x); });
  m.def("scaled", [](nb::handle x, double factor) {
    const Tensor tensor = borrowed_tensor(x);
    return unlocked([&] { return reference::scaled(tensor.view, factor); });
  });
  m.def("arithmetic", [](const std::string& name, nb::handle a, nb::handle b) {
    const auto operation = choose(name, kArithmetic);
    const Tensor left = borrowed_tensor(a);
    const Tensor right = borrowed_tensor(b);
    return unlocked([&] { return reference::arithmetic(operation, left.view, right.view); });
  });
  m.def("compare", [](const std::string& name, nb::handle a, nb::handle b) {
    const auto comparison = choose(name, kComparisons);
    const Tensor left = borrowed_tensor(a);
    const Tensor right = borrowed_tensor(b);
    return unlocked([&] { return reference::compare(comparison, left.view, right.view); });
  });
  m.def("logical", [](const std::string& name, nb::handle a, nb::handle b) {
    const auto logic = choose(name, kLogic);
    const Tensor left = borrowed_tensor(a);
    const Tensor right = borrowed_tensor(b);
    return unlocked([&] { return reference::logical(logic, left.view, right.view); });
  });
  m.def("cast", [](nb::handle x, const std::string& dtype) {
    const DType target = dtype_or_raise(dtype);
    const Tensor tensor = borrowed_tensor(x);
    return unlocked([&]() -> Result<Tensor> {
      ASSAY_TRY(Tensor result, reference::cast(tensor.view, target));
      // Types that NumPy lacks come as float64.
      if (!is_float(target) || info(target).element_bits >= 32 || target == DType::Float16)
        return result;
      ASSAY_TRY(reference::Wide wide, reference::widen(result.view));
      return reference::to_tensor(std::move(wide));
    });
  });
}

void bind_quantisation(nb::module_& m) {
  m.def(
      "quantise_per_channel",
      [](nb::handle x, nb::handle scale, nb::handle offset) {
        const Tensor tensor = borrowed_tensor(x);
        const Tensor scales = borrowed_tensor(scale);
        const std::optional<Tensor> offsets = optional_tensor(offset);
        return unlocked([&]() -> Result<reference::Wide> {
          ASSAY_TRY(reference::Wide values, reference::widen(tensor.view));
          return reference::quantise_per_channel(std::move(values), scales.view,
                                                 offsets ? &offsets->view : nullptr);
        });
      },
      nb::arg("x"), nb::arg("scale"), nb::arg("offset").none());
  m.def(
      "dequantise_per_channel",
      [](nb::handle y, nb::handle scale, nb::handle offset) {
        const Tensor tensor = borrowed_tensor(y);
        const Tensor scales = borrowed_tensor(scale);
        const std::optional<Tensor> offsets = optional_tensor(offset);
        return unlocked([&]() -> Result<reference::Wide> {
          ASSAY_TRY(reference::Wide values, reference::widen(tensor.view));
          return reference::dequantise_per_channel(std::move(values), scales.view,
                                                   offsets ? &offsets->view : nullptr);
        });
      },
      nb::arg("y"), nb::arg("scale"), nb::arg("offset").none());
  m.def("dynamic_quantise", [](nb::handle x, bool asymmetric, const std::string& target) {
    const DType dtype = dtype_or_raise(target);
    const Tensor tensor = borrowed_tensor(x);
    auto result = [&]() -> Result<reference::DynamicQuantised> {
      nb::gil_scoped_release released;
      ASSAY_TRY(reference::Wide values, reference::widen(tensor.view));
      return reference::dynamic_quantise(std::move(values), asymmetric, dtype);
    }();
    reference::DynamicQuantised done = value_or_raise(std::move(result));
    return nb::make_tuple(owned_array(reference::to_tensor(std::move(done.values))),
                          owned_array(reference::to_tensor(std::move(done.scales))),
                          owned_array(reference::to_tensor(std::move(done.offsets))));
  });
  m.def("rounded_to_int8", [](nb::handle x) {
    const Tensor tensor = borrowed_tensor(x);
    return unlocked([&]() -> Result<reference::Wide> {
      ASSAY_TRY(reference::Wide values, reference::widen(tensor.view));
      return reference::rounded_to_int8(std::move(values));
    });
  });
  m.def("rounded_to_float8", [](nb::handle x, const std::string& target) {
    const DType dtype = dtype_or_raise(target);
    const Tensor tensor = borrowed_tensor(x);
    return unlocked([&]() -> Result<reference::Wide> {
      ASSAY_TRY(reference::Wide values, reference::widen(tensor.view));
      return reference::rounded_to_float8(std::move(values), dtype);
    });
  });
}

}  // namespace

void bind_elementwise(nb::module_& m) {
  bind_activations(m);
  bind_arithmetic(m);
  bind_quantisation(m);
}

}  // namespace assay::python
