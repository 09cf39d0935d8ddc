// SPDX-License-Identifier: Apache-2.0
// assay.reference: operators of PyTorch and ggml by name.

#include "python/reference/operators.hpp"
#include "reference/aten/call.hpp"
#include "reference/aten/registry.hpp"
#include "reference/ggml/operators.hpp"
#include "reference/movement/bytes.hpp"

namespace py = assay::binding;

namespace assay::python {
namespace {

using reference::aten::Argument;
using reference::aten::ArgumentList;

/// What python/assay/reference/_aten.py makes of an argument: numbers, text and None as they are;
/// lists; and tuples ("tensor", array, name of the element type), ("dtype", name).
Argument argument_of(py::Handle value) {
  if (value.is_none()) return {};
  if (py::is_instance<bool>(value)) return {py::cast<bool>(value)};
  if (py::is_instance<int64_t>(value)) return {py::cast<int64_t>(value)};
  if (py::is_instance<double>(value)) return {py::cast<double>(value)};
  if (py::is_instance<py::Str>(value)) return {py::cast<std::string>(value)};
  if (py::is_instance<py::List>(value)) {
    ArgumentList list;
    py::for_each(value, [&](py::Handle item) { list.push_back(argument_of(item)); });
    return {std::move(list)};
  }
  const auto marked = py::cast<py::Tuple>(value);
  if (py::cast<std::string>(marked[0]) == "dtype") {
    const auto name = py::cast<std::string>(marked[1]);
    return {reference::aten::DTypeArgument{dtype_from_name(name), name}};
  }
  return {borrowed_tensor(py::tuple_of(marked[1], marked[2]))};
}

/// A copy: the result must not depend on whether the caller changes an operand.
Result<Tensor> copied(const Tensor& tensor) {
  ASSAY_TRY(const reference::NewTensor copy, reference::copy_of(tensor));
  return copy.tensor();
}

py::List evaluate(const std::string& name, const py::Dict& arguments, int jobs) {
  reference::aten::Call call;
  call.name = name;
  arguments.for_each([&](py::Handle key, py::Handle value) {
    call.arguments.emplace(py::cast<std::string>(key), argument_of(value));
  });
  Result<std::vector<Tensor>> results = [&]() -> Result<std::vector<Tensor>> {
    const py::GilReleased unlocked;
    ASSAY_TRY(std::vector<Tensor> made, reference::aten::evaluate(call, {.jobs = jobs}));
    for (Tensor& tensor : made) {
      if (!reference::aten::is_predictable(tensor)) continue;
      ASSAY_TRY(tensor, copied(tensor));
    }
    return made;
  }();
  py::List arrays;
  for (Tensor& tensor : value_or_raise(std::move(results))) {
    const bool known = reference::aten::is_predictable(tensor);
    arrays.append(known ? to_python(std::move(tensor)) : py::none());
  }
  return arrays;
}

py::List overloads() {
  py::List rows;
  for (const std::string_view name : reference::aten::known_overloads())
    rows.append(py::tuple_of(std::string(name),
                             std::string(class_name(reference::aten::class_of(name))),
                             reference::aten::is_view(name)));
  return rows;
}

/// Of each variant its name, the row that it spells otherwise and the argument that it writes into.
py::List variants() {
  py::List rows;
  for (const reference::aten::Variant& variant : reference::aten::variants())
    rows.append(py::tuple_of(variant.name, std::string(variant.of->name),
                             std::string(variant.written), variant.view));
  return rows;
}

py::List ggml_operators() {
  py::List names;
  for (const std::string_view name : reference::ggml::known_operators())
    names.append(py::Str(name));
  return names;
}

/// Errors that a kernel may make in one call: sizes of terms, largest errors allowed, mean squares.
py::Tuple ggml_rounding(const std::string& name, const py::Dict& arguments, int jobs) {
  reference::aten::Call call;
  call.name = name;
  arguments.for_each([&](py::Handle key, py::Handle value) {
    call.arguments.emplace(py::cast<std::string>(key), argument_of(value));
  });
  Result<reference::aten::Magnitudes> rounding = [&] {
    const py::GilReleased unlocked;
    return reference::ggml::rounding(call, jobs);
  }();
  reference::aten::Magnitudes made = value_or_raise(std::move(rounding));
  return py::tuple_of(to_python(std::move(made.allowed)), to_python(std::move(made.variance)));
}

}  // namespace

void bind_aten(py::Module& m) {
  m.def("aten", &evaluate);
  m.def("aten_overloads", &overloads);
  m.def("aten_variants", &variants);
  m.def("ggml_operators", &ggml_operators);
  m.def("ggml_rounding", &ggml_rounding);
}

}  // namespace assay::python
