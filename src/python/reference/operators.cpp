// SPDX-License-Identifier: Apache-2.0
// What all reference operators share on their way to Python and back.
#include "python/reference/operators.hpp"

namespace py = assay::binding;

namespace assay::python {
namespace {

// Never released: they live as long as the interpreter. Functions are of assay._run.
PyObject* g_ndarray = nullptr;  // the class of NumPy
PyObject* g_as_raw = nullptr;
PyObject* g_ml_dtype = nullptr;

Result<Tensor> copy_of_view(const Tensor& tensor) {
  ASSAY_TRY(const reference::NewTensor copied, reference::copy_of(tensor));
  return copied.tensor();
}

/// NumPy's own arrays of types and strides that need no help of Python, which takes longer than a
/// small operator.
std::optional<Tensor> plain_tensor(py::Handle array) {
  ReadOnlyArray view;
  if (reinterpret_cast<PyObject*>(Py_TYPE(array.ptr())) != g_ndarray ||
      !py::load_numpy_array(array, &view))
    return std::nullopt;
  const auto& [code, bits, lanes] = view.type;
  const std::optional<DType> dtype = dtype_from_dlpack(code, bits, lanes);
  if (!dtype) return std::nullopt;
  return Tensor{value_or_raise(view_of(view, *dtype)), nullptr};
}

}  // namespace

void prepare_operands() {
  g_ndarray = py::import_module("numpy").attr("ndarray").release();
  const py::Object run = py::import_module("assay._run");
  g_as_raw = run.attr("_as_raw").release();
  g_ml_dtype = run.attr("_ml_dtype").release();
}

Operand::Operand(py::Handle array) {
  if (std::optional<Tensor> plain = plain_tensor(array)) {
    raw = py::Object::borrow(array);
    tensor = *std::move(plain);
    return;
  }
  raw = py::Handle(g_as_raw)(array);
  tensor = borrowed_tensor(raw);
}

DType Parameter<DType>::keep(const std::string& name) {
  const std::optional<DType> dtype = dtype_from_name(name);
  if (!dtype) raise(Error{Errc::Usage, {}, std::nullopt, "no element type is called " + name});
  return *dtype;
}

reference::RankReduction Parameter<reference::RankReduction>::keep(const std::string& name) {
  const auto reduction = reference::rank_reduction_from_name(name);
  if (!reduction) raise(Error{Errc::Usage, {}, std::nullopt, "\"" + name + "\" is no reduction"});
  return *reduction;
}

Result<Tensor> settled(Result<Tensor> result) {
  if (!result || (result->owner != nullptr && result->view.is_contiguous())) return result;
  return copy_of_view(*result);
}

Result<std::vector<Tensor>> settled(Result<std::vector<Tensor>> result) {
  if (!result) return result;
  for (Tensor& tensor : *result) {
    ASSAY_TRY(tensor, settled(Result<Tensor>(tensor)));
  }
  return result;
}

py::Object to_python(Tensor tensor) {
  const DType dtype = tensor.view.dtype;
  py::Object array = owned_array(std::move(tensor));
  if (!numpy_lacks(dtype)) return array;
  const std::string_view name = assay::name(dtype);
  const py::Object special = py::Handle(g_ml_dtype)(py::Str(name));
  return special.is_none() ? array : py::Object(array.attr("view")(special));
}

}  // namespace assay::python
