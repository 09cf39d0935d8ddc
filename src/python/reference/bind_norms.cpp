// SPDX-License-Identifier: Apache-2.0
// assay.reference: norms, rotary embeddings, softmax of unpadded scores.
#include <nanobind/stl/vector.h>

#include <vector>

#include "python/reference/bind.hpp"
#include "reference/norms/block_softmax.hpp"
#include "reference/norms/layer_norm.hpp"
#include "reference/norms/rms_norm.hpp"
#include "reference/norms/rope.hpp"

namespace nb = nanobind;

namespace assay::python {
namespace {

using reference::Term;
using reference::Wide;

/// Runs without the interpreter's lock; `compute` must not touch Python.
template <typename Compute>
auto unlocked(Compute compute) {
  nb::gil_scoped_release released;
  return compute();
}

std::optional<TensorView> view_or_none(const std::optional<Tensor>& tensor) {
  if (!tensor) return std::nullopt;
  return tensor->view;
}

nb::object pair_of(Wide first, Wide second) {
  return nb::make_tuple(owned_array(reference::to_tensor(std::move(first))),
                        owned_array(reference::to_tensor(std::move(second))));
}

void bind_rms_norm(nb::module_& m) {
  m.def(
      "rms_norm",
      [](nb::handle x, nb::handle gamma, double eps, nb::handle residual, nb::handle bias,
         bool unit_offset, bool round_to_float16) {
        const Tensor first = borrowed_tensor(x);
        const std::optional<Tensor> weight = optional_tensor(gamma);
        std::vector<Term> terms = {{first.view}};
        const std::optional<Tensor> addends[] = {optional_tensor(bias), optional_tensor(residual)};
        for (const std::optional<Tensor>& addend : addends) {
          if (addend) terms.push_back({addend->view});
        }
        const reference::RmsNormOptions options{
            .eps = eps, .unit_offset = unit_offset, .round_to_float16 = round_to_float16};
        return array_or_raise(
            unlocked([&] { return reference::rms_norm(terms, view_or_none(weight), options); }));
      },
      nb::arg("x"), nb::arg("gamma").none(), nb::arg("eps"), nb::arg("residual").none(),
      nb::arg("bias").none(), nb::arg("unit_offset"), nb::arg("round_to_float16"));
  m.def("reciprocal_rms", [](nb::handle x, size_t dims, double eps) {
    const Tensor tensor = borrowed_tensor(x);
    return array_or_raise(
        unlocked([&] { return reference::reciprocal_rms(tensor.view, dims, eps); }));
  });
  m.def("rms_norm_backward", [](nb::handle dy, nb::handle x, nb::handle rstd, nb::handle gamma) {
    const Tensor tensors[] = {borrowed_tensor(dy), borrowed_tensor(x), borrowed_tensor(rstd),
                              borrowed_tensor(gamma)};
    reference::RmsNormGradient gradient = value_or_raise(unlocked([&] {
      return reference::rms_norm_gradient(tensors[0].view, tensors[1].view, tensors[2].view,
                                          tensors[3].view);
    }));
    return pair_of(std::move(gradient.dx), std::move(gradient.dgamma));
  });
}

void bind_rope(nb::module_& m) {
  m.def("rope", [](nb::handle x, nb::handle cos, nb::handle sin, int64_t groups, bool interleaved) {
    const Tensor tensors[] = {borrowed_tensor(x), borrowed_tensor(cos), borrowed_tensor(sin)};
    return array_or_raise(unlocked([&] {
      return reference::rope(tensors[0].view, tensors[1].view, tensors[2].view,
                             {.groups = groups, .interleaved = interleaved});
    }));
  });
  m.def("rope_gradient", [](nb::handle gradient, nb::handle cos, nb::handle sin,
                            const std::vector<int64_t>& seq_lens) {
    const Tensor tensors[] = {borrowed_tensor(gradient), borrowed_tensor(cos),
                              borrowed_tensor(sin)};
    return array_or_raise(unlocked([&] {
      return reference::rope_gradient(tensors[0].view, tensors[1].view, tensors[2].view, seq_lens);
    }));
  });
  m.def("rope_concat", [](nb::handle q, nb::handle cos, nb::handle sin, nb::handle other) {
    const Tensor tensors[] = {borrowed_tensor(q), borrowed_tensor(cos), borrowed_tensor(sin),
                              borrowed_tensor(other)};
    return array_or_raise(unlocked([&] {
      return reference::rope_concat(tensors[0].view, tensors[1].view, tensors[2].view,
                                    tensors[3].view);
    }));
  });
  m.def("rotary_tables", [](nb::handle positions, nb::handle inv_freq, nb::handle seq_lens) {
    const Tensor tensors[] = {borrowed_tensor(positions), borrowed_tensor(inv_freq),
                              borrowed_tensor(seq_lens)};
    reference::RotaryTables tables = value_or_raise(unlocked([&] {
      return reference::rotary_tables(tensors[0].view, tensors[1].view, tensors[2].view);
    }));
    return pair_of(std::move(tables.cos), std::move(tables.sin));
  });
}

}  // namespace

void bind_norms(nb::module_& m) {
  bind_rms_norm(m);
  m.def(
      "layer_norm",
      [](nb::handle x, nb::handle gamma, nb::handle beta, double eps, size_t dims,
         nb::handle residual, double residual_scale) {
        const Tensor first = borrowed_tensor(x);
        const std::optional<Tensor> weight = optional_tensor(gamma);
        const std::optional<Tensor> shift = optional_tensor(beta);
        const std::optional<Tensor> addend = optional_tensor(residual);
        std::vector<Term> terms = {{first.view}};
        if (addend) terms.push_back({addend->view, residual_scale});
        return array_or_raise(unlocked([&] {
          return reference::layer_norm(terms, view_or_none(weight), view_or_none(shift),
                                       {.eps = eps, .dims = dims});
        }));
      },
      nb::arg("x"), nb::arg("gamma").none(), nb::arg("beta").none(), nb::arg("eps"),
      nb::arg("dims"), nb::arg("residual").none(), nb::arg("residual_scale"));
  bind_rope(m);
  m.def("block_softmax", [](nb::handle x, int64_t heads, const std::vector<int64_t>& seq_lens) {
    const Tensor tensor = borrowed_tensor(x);
    return array_or_raise(
        unlocked([&] { return reference::block_softmax(tensor.view, heads, seq_lens); }));
  });
  m.def("block_softmax_backward", [](nb::handle y, nb::handle dy, int64_t heads,
                                     const std::vector<int64_t>& seq_lens) {
    const Tensor tensors[] = {borrowed_tensor(y), borrowed_tensor(dy)};
    return array_or_raise(unlocked([&] {
      return reference::block_softmax_gradient(tensors[0].view, tensors[1].view, heads, seq_lens);
    }));
  });
}

}  // namespace assay::python
