// SPDX-License-Identifier: Apache-2.0
// Tensors as NumPy arrays, statistics and digests of arrays.
#include <cmath>

#include "python/binding/class.hpp"
#include "python/module.hpp"
#include "python/tensor_array.hpp"
#include "stats/digest.hpp"
#include "stats/tensor_stats.hpp"

namespace py = assay::binding;
using namespace py::literals;

namespace assay::python {
namespace {

template <typename T>
py::Tuple to_tuple(const T& numbers) {
  py::List list;
  for (const int64_t number : numbers) list.append(number);
  return py::Tuple(py::checked(PyList_AsTuple(list.ptr())));
}

/// Equal field by field, NaN equal to NaN: the statistics of two empty tensors are the same.
bool same_stats(const stats::TensorStats& a, const stats::TensorStats& b) {
  const auto same = [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); };
  return a.count == b.count && a.nan_count == b.nan_count &&
         a.positive_inf_count == b.positive_inf_count &&
         a.negative_inf_count == b.negative_inf_count && same(a.min, b.min) && same(a.max, b.max) &&
         same(a.mean, b.mean) && same(a.l2_norm, b.l2_norm);
}

/// A function of all values of a mapped tensor; raises when the file lost some of them.
template <typename Function>
auto of_mapped(const MappedTensor& self, Function&& function) {
  const TensorView& view = self.tensor.view;
  auto result = [&] {
    const py::GilReleased released;
    return function(view);
  }();
  value_or_raise(check_unchanged(view.storage));
  return result;
}

void bind_tensor(py::Module& m) {
  py::Class<MappedTensor>(m, "Tensor",
                          "A tensor in a mapped file. It and its arrays keep the file mapped.")
      .property(
          "dtype",
          [](const MappedTensor& self) { return std::string(name(self.tensor.view.dtype)); },
          "Name of the element type, for example 'bfloat16'.")
      .property("shape", [](const MappedTensor& self) { return to_tuple(self.tensor.view.shape); })
      .property(
          "strides", [](const MappedTensor& self) { return to_tuple(self.tensor.view.strides); },
          "In elements.")
      .property(
          "conjugate", [](const MappedTensor& self) { return self.tensor.view.conjugate; },
          "True when torch saved the tensor with its lazy conjugate bit set.")
      .property(
          "negative", [](const MappedTensor& self) { return self.tensor.view.negative; },
          "True when torch saved the tensor with its lazy negative bit set.")
      .def(
          "raw",
          [](py::Handle self) {
            const Tensor& tensor = py::object_of<MappedTensor>(self).tensor;
            value_or_raise(check_unchanged(tensor.view.storage));
            return to_numpy(tensor, self);
          },
          "Read-only array over the file's bytes; types that NumPy lacks as unsigned integers.")
      .def("stats",
           [](const MappedTensor& self) {
             return of_mapped(self,
                              [](const TensorView& view) { return stats::compute_stats(view); });
           })
      .def("digest", [](const MappedTensor& self) {
        return of_mapped(
            self, [](const TensorView& view) { return stats::digest_text(stats::digest(view)); });
      });
}

void bind_stats(py::Module& m) {
  using stats::TensorStats;
  py::Class<TensorStats>(
      m, "TensorStats",
      "Statistics of the values of one tensor. Non-finite values are counted and left out of min, "
      "max, mean and l2_norm.")
      .property("count", &TensorStats::count, "All values, NaN and infinities included.")
      .property("nan_count", &TensorStats::nan_count)
      .property("positive_inf_count", &TensorStats::positive_inf_count)
      .property("negative_inf_count", &TensorStats::negative_inf_count)
      .property("min", &TensorStats::min, "NaN when there is no finite value.")
      .property("max", &TensorStats::max)
      .property("mean", &TensorStats::mean)
      .property("l2_norm", &TensorStats::l2_norm)
      .property("finite_count", &TensorStats::finite_count)
      .property("has_non_finite", &TensorStats::has_non_finite)
      .def("with_non_finite", &TensorStats::with_non_finite,
           "The numbers that IEEE arithmetic over all values gives, as torch and NumPy do.")
      .def(
          "__eq__",
          [](const TensorStats& self, py::Handle other) {
            if (!py::is_instance<TensorStats>(other)) return py::Object::borrow(Py_NotImplemented);
            return py::cast(same_stats(self, py::object_of<TensorStats>(other)));
          },
          "other"_a, py::Returns{"bool"})
      .def("__repr__", [](const TensorStats& self) {
        const py::Str format(
            "TensorStats(count={}, min={}, max={}, mean={}, l2_norm={}, nan={}, +inf={}, -inf={})");
        return py::Str(format.attr("format")(self.count, self.min, self.max, self.mean,
                                             self.l2_norm, self.nan_count, self.positive_inf_count,
                                             self.negative_inf_count));
      });
}

}  // namespace

void bind_formats(py::Module& m) {
  bind_stats(m);
  bind_tensor(m);
  m.def(
      "stats_of_array",
      [](const ReadOnlyArray& array, const std::string& dtype) {
        const TensorView view = value_or_raise(view_of(array, dtype));
        const py::GilReleased released;
        return stats::compute_stats(view);
      },
      "array"_a, "dtype"_a, "Statistics of an array whose elements are of the named type.");
  m.def(
      "digest_of_array",
      [](const ReadOnlyArray& array, const std::string& dtype) {
        const TensorView view = value_or_raise(view_of(array, dtype));
        const py::GilReleased released;
        return stats::digest_text(stats::digest(view));
      },
      "array"_a, "dtype"_a, "XXH3-128 of the elements in C order, 32 hex digits.");
}

}  // namespace assay::python
