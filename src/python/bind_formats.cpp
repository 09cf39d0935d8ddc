// SPDX-License-Identifier: Apache-2.0
// Tensors as NumPy arrays, statistics and digests of arrays.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cmath>

#include "python/module.hpp"
#include "python/tensor_array.hpp"
#include "stats/digest.hpp"
#include "stats/tensor_stats.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace assay::python {
namespace {

nb::dlpack::dtype dlpack_type(nb::dlpack::dtype_code code, int bits) {
  return {static_cast<uint8_t>(code), static_cast<uint8_t>(bits), 1};
}

/// The element type that NumPy shows; for types it lacks the unsigned integer of the same size.
nb::dlpack::dtype numpy_type(DType dtype) {
  using Code = nb::dlpack::dtype_code;
  const int bits = std::max<int>(8, info(dtype).element_bits);
  switch (dtype) {
    case DType::Float64:
    case DType::Float32:
    case DType::Float16:
      return dlpack_type(Code::Float, bits);
    case DType::Complex128:
    case DType::Complex64:
      return dlpack_type(Code::Complex, bits);
    case DType::Int64:
    case DType::Int32:
    case DType::Int16:
    case DType::Int8:
    case DType::QInt8:
    case DType::QInt32:
      return dlpack_type(Code::Int, bits);
    case DType::Bool:
      return dlpack_type(Code::Bool, bits);
    default:
      return dlpack_type(Code::UInt, bits);
  }
}

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
            return to_numpy(nb::cast<const MappedTensor&>(self).tensor, self);
          },
          "Read-only array over the file's bytes; types that NumPy lacks as unsigned integers.")
      .def("stats",
           [](const MappedTensor& self) {
             const nb::gil_scoped_release released;
             return stats::compute_stats(self.tensor.view);
           })
      .def("digest", [](const MappedTensor& self) {
        const nb::gil_scoped_release released;
        return stats::digest_text(stats::digest(self.tensor.view));
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

nb::object to_numpy(const Tensor& tensor, nb::handle owner) {
  const TensorView& view = tensor.view;
  static const std::byte kNothing[16] = {};
  std::vector<size_t> shape;
  std::vector<int64_t> strides;
  const std::byte* data = view.storage.data();
  if (info(view.dtype).element_bits < 8) {
    // Shapes of packed types count values, which have no address of their own.
    shape = {view.storage.size()};
    strides = {1};
  } else {
    shape.assign(view.shape.begin(), view.shape.end());
    strides.assign(view.strides.begin(), view.strides.end());
    if (data != nullptr) data += view.offset_elements * (info(view.dtype).element_bits / 8);
  }
  // NumPy takes no null pointer even for arrays without elements.
  if (data == nullptr || view.element_count() == 0) data = kNothing;
  const nb::ndarray<nb::numpy, nb::ro> array(data, shape.size(), shape.data(), owner,
                                             strides.data(), numpy_type(view.dtype));
  return nb::cast(array);
}

Result<TensorView> view_of(const ReadOnlyArray& array, const std::string& dtype_name) {
  const std::optional<DType> dtype = dtype_from_name(dtype_name);
  if (!dtype) return fail(Errc::Usage, "unknown dtype '" + dtype_name + "'");
  const size_t item_bytes = array.itemsize();
  if (info(*dtype).element_bits != item_bytes * 8) {
    return fail(Errc::Usage,
                dtype_name + " does not have elements of " + std::to_string(item_bytes) + " bytes");
  }
  Dims shape;
  Dims strides;
  // The extent of the elements around the first one; the exporter vouches for it.
  int64_t lowest = 0;
  int64_t highest = 0;
  bool empty = false;
  for (size_t i = 0; i < array.ndim(); ++i) {
    const auto length = static_cast<int64_t>(array.shape(i));
    const int64_t stride = array.stride(i);
    shape.push_back(length);
    strides.push_back(stride);
    empty |= length == 0;
    const int64_t reach = length > 0 ? (length - 1) * stride : 0;
    (reach < 0 ? lowest : highest) += reach;
  }
  if (empty) return make_view(*dtype, shape, ByteSpan{});
  const auto* first =
      static_cast<const std::byte*>(array.data()) + lowest * static_cast<int64_t>(item_bytes);
  const ByteSpan storage(first, static_cast<size_t>(highest - lowest + 1) * item_bytes);
  return make_view(*dtype, shape, strides, storage, -lowest);
}

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
