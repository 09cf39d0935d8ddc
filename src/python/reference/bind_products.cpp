// SPDX-License-Identifier: Apache-2.0
// assay.reference: matrix products and sums over ranks.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <vector>

#include "python/reference/bind.hpp"
#include "reference/products/all_reduce.hpp"
#include "reference/products/grouped_matmul.hpp"
#include "reference/products/linear.hpp"
#include "reference/products/strided_batch_matmul.hpp"

namespace nb = nanobind;

namespace assay::python {
namespace {

/// Runs without the interpreter's lock; `compute` must not touch Python.
template <typename F>
nb::object unlocked(F compute) {
  auto result = [&] {
    nb::gil_scoped_release released;
    return compute();
  }();
  return array_or_raise(std::move(result));
}

const TensorView* view_or_null(const std::optional<Tensor>& tensor) {
  return tensor ? &tensor->view : nullptr;
}

struct Ranks {
  std::vector<Tensor> tensors;
  std::vector<TensorView> views;
};
Ranks ranks_of(const nb::list& raw) {
  Ranks ranks;
  for (const nb::handle each : raw) {
    ranks.tensors.push_back(borrowed_tensor(each));
    ranks.views.push_back(ranks.tensors.back().view);
  }
  return ranks;
}

nb::object all_reduce(const nb::list& raw, const std::string& operation) {
  const Ranks ranks = ranks_of(raw);
  const auto reduction = reference::rank_reduction_from_name(operation);
  if (!reduction)
    raise(Error{Errc::Usage, {}, std::nullopt, "\"" + operation + "\" is no reduction"});
  auto result = [&] {
    nb::gil_scoped_release released;
    return reference::all_reduce(ranks.views, *reduction);
  }();
  return owned_array(value_or_raise(std::move(result)));
}

void bind_linear(nb::module_& m) {
  m.def("matmul", [](nb::handle x, nb::handle w, bool transpose_x, bool transpose_w, int jobs) {
    const Tensor left = borrowed_tensor(x);
    const Tensor right = borrowed_tensor(w);
    return unlocked([&] {
      return reference::matmul(
          left.view, right.view,
          {.transpose_x = transpose_x, .transpose_w = transpose_w, .jobs = jobs});
    });
  });
  m.def(
      "linear",
      [](nb::handle x, nb::handle w, nb::handle bias, bool transpose_x, bool transpose_w,
         bool per_batch, int jobs) {
        const Tensor left = borrowed_tensor(x);
        const Tensor right = borrowed_tensor(w);
        const std::optional<Tensor> added = optional_tensor(bias);
        const auto compute = per_batch ? reference::linear_per_batch : reference::linear;
        return unlocked([&] {
          return compute(left.view, right.view, view_or_null(added),
                         {.transpose_x = transpose_x, .transpose_w = transpose_w, .jobs = jobs});
        });
      },
      nb::arg("x"), nb::arg("w"), nb::arg("bias").none(), nb::arg("transpose_x"),
      nb::arg("transpose_w"), nb::arg("per_batch"), nb::arg("jobs"));
  m.def(
      "quantized_linear",
      [](nb::handle x, nb::handle w, nb::handle scale, nb::handle bias, nb::handle row_scale,
         bool transpose_w, int jobs) {
        const Tensor left = borrowed_tensor(x);
        const Tensor right = borrowed_tensor(w);
        const Tensor scales = borrowed_tensor(scale);
        const std::optional<Tensor> added = optional_tensor(bias);
        const std::optional<Tensor> rows = optional_tensor(row_scale);
        return unlocked([&] {
          return reference::quantised_linear(left.view, right.view, view_or_null(added),
                                             scales.view, view_or_null(rows),
                                             {.transpose_w = transpose_w, .jobs = jobs});
        });
      },
      nb::arg("x"), nb::arg("w"), nb::arg("scale"), nb::arg("bias").none(),
      nb::arg("row_scale").none(), nb::arg("transpose_w"), nb::arg("jobs"));
  m.def(
      "weight_quantized_linear",
      [](nb::handle x, nb::handle w, nb::handle scale, nb::handle offset, int64_t group_size,
         bool transpose_w, int jobs) {
        const Tensor left = borrowed_tensor(x);
        const Tensor right = borrowed_tensor(w);
        const Tensor scales = borrowed_tensor(scale);
        const std::optional<Tensor> offsets = optional_tensor(offset);
        return unlocked([&] {
          return reference::weight_quantised_linear(left.view, right.view, view_or_null(offsets),
                                                    scales.view, group_size,
                                                    {.transpose_w = transpose_w, .jobs = jobs});
        });
      },
      nb::arg("x"), nb::arg("w"), nb::arg("scale"), nb::arg("offset").none(), nb::arg("group_size"),
      nb::arg("transpose_w"), nb::arg("jobs"));
  m.def(
      "dynamic_quantized_linear",
      [](nb::handle x, nb::handle w, nb::handle scale, nb::handle bias, bool float32_scales,
         bool transpose_w, int jobs) {
        const Tensor left = borrowed_tensor(x);
        const Tensor right = borrowed_tensor(w);
        const Tensor scales = borrowed_tensor(scale);
        const std::optional<Tensor> added = optional_tensor(bias);
        return unlocked([&] {
          return reference::dynamic_quantised_linear(
              left.view, right.view, scales.view, view_or_null(added),
              float32_scales ? reference::RowScale::Float32 : reference::RowScale::Exact,
              {.transpose_w = transpose_w, .jobs = jobs});
        });
      },
      nb::arg("x"), nb::arg("w"), nb::arg("scale"), nb::arg("bias").none(),
      nb::arg("float32_scales"), nb::arg("transpose_w"), nb::arg("jobs"));
}

void bind_batches(nb::module_& m) {
  using Sizes = std::vector<int64_t>;
  m.def("strided_batch_matmul",
        [](nb::handle a, nb::handle b, int64_t c_count, int64_t heads, Sizes m_sizes, Sizes n_sizes,
           Sizes k_sizes, Sizes lda, Sizes ldb, Sizes ldc, Sizes stride_a, Sizes stride_b,
           Sizes stride_c, bool transpose_a, bool transpose_b) {
          const Tensor left = borrowed_tensor(a);
          const Tensor right = borrowed_tensor(b);
          const reference::StridedBatches batches{
              .transpose_a = transpose_a,
              .transpose_b = transpose_b,
              .heads = heads,
              .m = std::move(m_sizes),
              .n = std::move(n_sizes),
              .k = std::move(k_sizes),
              .lda = std::move(lda),
              .ldb = std::move(ldb),
              .ldc = std::move(ldc),
              .stride_a = std::move(stride_a),
              .stride_b = std::move(stride_b),
              .stride_c = std::move(stride_c),
          };
          return unlocked([&] {
            return reference::strided_batch_matmul(left.view, right.view, batches, c_count);
          });
        });
  m.def(
      "grouped_matmul_with_routing",
      [](nb::handle x, nb::handle w, nb::handle group_ends, nb::handle tokens,
         nb::handle column_scale, nb::handle row_scale, bool down, int64_t token_count,
         bool transpose_w, int jobs) {
        const Tensor left = borrowed_tensor(x);
        const Tensor right = borrowed_tensor(w);
        const Tensor ends = borrowed_tensor(group_ends);
        const Tensor rows = borrowed_tensor(tokens);
        const std::optional<Tensor> columns = optional_tensor(column_scale);
        const std::optional<Tensor> scales = optional_tensor(row_scale);
        return unlocked([&] {
          return reference::grouped_matmul_with_routing(left.view, right.view,
                                                        {.group_ends = &ends.view,
                                                         .tokens = &rows.view,
                                                         .down = down,
                                                         .transpose_w = transpose_w,
                                                         .token_count = token_count,
                                                         .jobs = jobs},
                                                        view_or_null(columns),
                                                        view_or_null(scales));
        });
      },
      nb::arg("x"), nb::arg("w"), nb::arg("group_ends"), nb::arg("tokens"),
      nb::arg("column_scale").none(), nb::arg("row_scale").none(), nb::arg("down"),
      nb::arg("token_count"), nb::arg("transpose_w"), nb::arg("jobs"));
  m.def("grouped_matmul_add", [](nb::handle x, nb::handle w, nb::handle group_ends,
                                 nb::handle accum, bool transpose_x, int jobs) {
    const Tensor left = borrowed_tensor(x);
    const Tensor right = borrowed_tensor(w);
    const Tensor ends = borrowed_tensor(group_ends);
    const Tensor start = borrowed_tensor(accum);
    return unlocked([&] {
      return reference::grouped_matmul_add(left.view, right.view, ends.view, start.view,
                                           transpose_x, jobs);
    });
  });
}

void bind_ranks(nb::module_& m) {
  m.def("all_reduce", all_reduce);
  m.def("quantized_all_reduce", [](const nb::list& raw, nb::handle scale, nb::handle offset) {
    const Ranks ranks = ranks_of(raw);
    const Tensor scales = borrowed_tensor(scale);
    const Tensor offsets = borrowed_tensor(offset);
    return unlocked(
        [&] { return reference::quantised_all_reduce(ranks.views, scales.view, offsets.view); });
  });
}

}  // namespace

void bind_products(nb::module_& m) {
  bind_linear(m);
  bind_batches(m);
  bind_ranks(m);
}

}  // namespace assay::python
