// SPDX-License-Identifier: Apache-2.0
// assay.reference: operators of PyTorch and ggml by name.
#include <nanobind/stl/string.h>

#include "python/reference/operators.hpp"
#include "reference/aten/call.hpp"
#include "reference/aten/registry.hpp"
#include "reference/ggml/operators.hpp"
#include "reference/movement/bytes.hpp"

namespace nb = nanobind;

namespace assay::python {
namespace {

using reference::aten::Argument;
using reference::aten::ArgumentList;

/// What python/assay/reference/_aten.py makes of an argument: numbers, text and None as they are;
/// lists; and tuples ("tensor", array, name of the element type), ("dtype", name).
Argument argument_of(nb::handle value) {
  if (value.is_none()) return {};
  if (nb::isinstance<nb::bool_>(value)) return {nb::cast<bool>(value)};
  if (nb::isinstance<nb::int_>(value)) return {nb::cast<int64_t>(value)};
  if (nb::isinstance<nb::float_>(value)) return {nb::cast<double>(value)};
  if (nb::isinstance<nb::str>(value)) return {nb::cast<std::string>(value)};
  if (nb::isinstance<nb::list>(value)) {
    ArgumentList list;
    for (const nb::handle item : nb::cast<nb::list>(value)) list.push_back(argument_of(item));
    return {std::move(list)};
  }
  const auto marked = nb::cast<nb::tuple>(value);
  if (nb::cast<std::string>(marked[0]) == "dtype") {
    const auto name = nb::cast<std::string>(marked[1]);
    return {reference::aten::DTypeArgument{dtype_from_name(name), name}};
  }
  return {borrowed_tensor(nb::make_tuple(marked[1], marked[2]))};
}

/// A copy: the result must not depend on whether the caller changes an operand.
Result<Tensor> copied(const Tensor& tensor) {
  ASSAY_TRY(const reference::NewTensor copy, reference::copy_of(tensor));
  return copy.tensor();
}

nb::list evaluate(const std::string& name, const nb::dict& arguments, int jobs) {
  reference::aten::Call call;
  call.name = name;
  for (const auto [key, value] : arguments)
    call.arguments.emplace(nb::cast<std::string>(key), argument_of(value));
  Result<std::vector<Tensor>> results = [&]() -> Result<std::vector<Tensor>> {
    const nb::gil_scoped_release unlocked;
    ASSAY_TRY(std::vector<Tensor> made, reference::aten::evaluate(call, {.jobs = jobs}));
    for (Tensor& tensor : made) {
      if (!reference::aten::is_predictable(tensor)) continue;
      ASSAY_TRY(tensor, copied(tensor));
    }
    return made;
  }();
  nb::list arrays;
  for (Tensor& tensor : value_or_raise(std::move(results))) {
    const bool known = reference::aten::is_predictable(tensor);
    arrays.append(known ? to_python(std::move(tensor)) : nb::none());
  }
  return arrays;
}

nb::list overloads() {
  nb::list rows;
  for (const std::string_view name : reference::aten::known_overloads())
    rows.append(nb::make_tuple(std::string(name),
                               std::string(class_name(reference::aten::class_of(name))),
                               reference::aten::is_view(name)));
  return rows;
}

/// Of each variant its name, the row that it spells otherwise and the argument that it writes into.
nb::list variants() {
  nb::list rows;
  for (const reference::aten::Variant& variant : reference::aten::variants())
    rows.append(nb::make_tuple(variant.name, std::string(variant.of->name),
                               std::string(variant.written), variant.view));
  return rows;
}

nb::list ggml_operators() {
  nb::list names;
  for (const std::string_view name : reference::ggml::known_operators())
    names.append(nb::str(name.data(), name.size()));
  return names;
}

/// Errors that a kernel may make in one call: sizes of terms, largest errors allowed, mean squares.
nb::tuple ggml_rounding(const std::string& name, const nb::dict& arguments, int jobs) {
  reference::aten::Call call;
  call.name = name;
  for (const auto [key, value] : arguments)
    call.arguments.emplace(nb::cast<std::string>(key), argument_of(value));
  Result<reference::aten::Magnitudes> rounding = [&] {
    const nb::gil_scoped_release unlocked;
    return reference::ggml::rounding(call, jobs);
  }();
  reference::aten::Magnitudes made = value_or_raise(std::move(rounding));
  return nb::make_tuple(to_python(std::move(made.allowed)), to_python(std::move(made.variance)));
}

}  // namespace

void bind_aten(nb::module_& m) {
  m.def("aten", &evaluate);
  m.def("aten_overloads", &overloads);
  m.def("aten_variants", &variants);
  m.def("ggml_operators", &ggml_operators);
  m.def("ggml_rounding", &ggml_rounding);
}

}  // namespace assay::python
