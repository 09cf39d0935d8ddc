// SPDX-License-Identifier: Apache-2.0
// Tensors as NumPy arrays, statistics and digests of arrays.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cmath>

#include "python/module.hpp"
#include "python/tensor_array.hpp"
#include "stats/digest.hpp"
#include "stats/tensor_stats.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace assay::python {
namespace {

template <typename T>
nb::tuple to_tuple(const T& numbers) {
  nb::list list;
  for (const int64_t number : numbers) list.append(number);
  return nb::tuple(list);
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
    const nb::gil_scoped_release released;
    return function(view);
  }();
  value_or_raise(check_unchanged(view.storage));
  return result;
}

void bind_tensor(nb::module_& m) {
  nb::class_<MappedTensor>(m, "Tensor",
                           "A tensor in a mapped file. It and its arrays keep the file mapped.")
      .def_prop_ro(
          "dtype",
          [](const MappedTensor& self) { return std::string(name(self.tensor.view.dtype)); },
          "Name of the element type, for example 'bfloat16'.")
      .def_prop_ro("shape",
                   [](const MappedTensor& self) { return to_tuple(self.tensor.view.shape); })
      .def_prop_ro(
          "strides", [](const MappedTensor& self) { return to_tuple(self.tensor.view.strides); },
          "In elements.")
      .def_prop_ro(
          "conjugate", [](const MappedTensor& self) { return self.tensor.view.conjugate; },
          "True when torch saved the tensor with its lazy conjugate bit set.")
      .def_prop_ro(
          "negative", [](const MappedTensor& self) { return self.tensor.view.negative; },
          "True when torch saved the tensor with its lazy negative bit set.")
      .def(
          "raw",
          [](nb::handle self) {
            const Tensor& tensor = nb::cast<const MappedTensor&>(self).tensor;
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

void bind_stats(nb::module_& m) {
  using stats::TensorStats;
  nb::class_<TensorStats>(
      m, "TensorStats",
      "Statistics of the values of one tensor. Non-finite values are counted and left out of min, "
      "max, mean and l2_norm.")
      .def_ro("count", &TensorStats::count, "All values, NaN and infinities included.")
      .def_ro("nan_count", &TensorStats::nan_count)
      .def_ro("positive_inf_count", &TensorStats::positive_inf_count)
      .def_ro("negative_inf_count", &TensorStats::negative_inf_count)
      .def_ro("min", &TensorStats::min, "NaN when there is no finite value.")
      .def_ro("max", &TensorStats::max)
      .def_ro("mean", &TensorStats::mean)
      .def_ro("l2_norm", &TensorStats::l2_norm)
      .def_prop_ro("finite_count", &TensorStats::finite_count)
      .def_prop_ro("has_non_finite", &TensorStats::has_non_finite)
      .def("with_non_finite", &TensorStats::with_non_finite,
           "The numbers that IEEE arithmetic over all values gives, as torch and NumPy do.")
      .def("__eq__", &same_stats)
      .def("__repr__", [](const TensorStats& self) {
        nb::str format(
            "TensorStats(count={}, min={}, max={}, mean={}, l2_norm={}, nan={}, +inf={}, -inf={})");
        return format.format(self.count, self.min, self.max, self.mean, self.l2_norm,
                             self.nan_count, self.positive_inf_count, self.negative_inf_count);
      });
}

}  // namespace

void bind_formats(nb::module_& m) {
  bind_stats(m);
  bind_tensor(m);
  m.def(
      "stats_of_array",
      [](const ReadOnlyArray& array, const std::string& dtype) {
        const TensorView view = value_or_raise(view_of(array, dtype));
        const nb::gil_scoped_release released;
        return stats::compute_stats(view);
      },
      "array"_a, "dtype"_a, "Statistics of an array whose elements are of the named type.");
  m.def(
      "digest_of_array",
      [](const ReadOnlyArray& array, const std::string& dtype) {
        const TensorView view = value_or_raise(view_of(array, dtype));
        const nb::gil_scoped_release released;
        return stats::digest_text(stats::digest(view));
      },
      "array"_a, "dtype"_a, "XXH3-128 of the elements in C order, 32 hex digits.");
}

}  // namespace assay::python
