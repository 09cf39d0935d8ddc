// SPDX-License-Identifier: Apache-2.0
// assay.reference: reductions, sorting, sampling.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "python/reference/bind.hpp"
#include "reference/selection/experts.hpp"
#include "reference/selection/glibc_random.hpp"
#include "reference/selection/indexing.hpp"
#include "reference/selection/reduce.hpp"
#include "reference/selection/sampling.hpp"

namespace nb = nanobind;

namespace assay::python {
namespace {

using reference::Whole;
using reference::Wide;

/// Runs without the interpreter's lock; `compute` must not touch Python.
template <typename F>
auto unlocked(F compute) {
  auto result = [&] {
    nb::gil_scoped_release released;
    return compute();
  }();
  return value_or_raise(std::move(result));
}

template <typename T>
nb::object as_array(reference::Array<T> values) {
  return owned_array(reference::to_tensor(std::move(values)));
}

std::vector<double> values_of(nb::handle raw) {
  const Tensor tensor = borrowed_tensor(raw);
  const Wide wide = value_or_raise(reference::widen(tensor.view));
  return {wide.values.begin(), wide.values.end()};
}

void bind_reductions(nb::module_& m) {
  m.def("cumsum", [](nb::handle x, int64_t axis, bool exclusive, bool reverse) {
    const Tensor tensor = borrowed_tensor(x);
    return owned_array(
        unlocked([&] { return reference::cumsum(tensor.view, axis, exclusive, reverse); }));
  });
  m.def("reduce", [](const std::string& how, nb::handle x, const std::vector<int64_t>& axes) {
    const Tensor tensor = borrowed_tensor(x);
    const auto reduction = how == "max"   ? reference::Reduction::Max
                           : how == "min" ? reference::Reduction::Min
                                          : reference::Reduction::Sum;
    return owned_array(unlocked([&] { return reference::reduce(tensor.view, reduction, axes); }));
  });
  m.def("softmax", [](nb::handle x, const std::vector<int64_t>& axes) {
    const Tensor tensor = borrowed_tensor(x);
    return as_array(unlocked([&] { return reference::softmax(tensor.view, axes); }));
  });
}

void bind_indexing(nb::module_& m) {
  m.def("top_k", [](nb::handle x, int64_t k) {
    const Tensor tensor = borrowed_tensor(x);
    reference::TopK top = unlocked([&] { return reference::top_k(tensor.view, k); });
    return nb::make_tuple(as_array(std::move(top.values)), as_array(std::move(top.indices)));
  });
  m.def("nonzero", [](nb::handle x) {
    const Tensor tensor = borrowed_tensor(x);
    reference::Nonzero found = unlocked([&] { return reference::nonzero(tensor.view); });
    return nb::make_tuple(as_array(std::move(found.indices)), found.count);
  });
  m.def("one_hot", [](nb::handle x, int64_t depth, int64_t one, int64_t zero, int64_t axis) {
    const Tensor tensor = borrowed_tensor(x);
    return as_array(
        unlocked([&] { return reference::one_hot(tensor.view, depth, one, zero, axis); }));
  });
  m.def("index_add", [](nb::handle var, int64_t axis, nb::handle indices, nb::handle updates,
                        double alpha, int64_t count) {
    const Tensor tensor = borrowed_tensor(var);
    const Tensor places = borrowed_tensor(indices);
    const Tensor values = borrowed_tensor(updates);
    return as_array(unlocked([&] {
      return reference::index_add(tensor.view, axis, places.view, values.view, alpha, count);
    }));
  });
  m.def("gating", [](nb::handle experts, nb::handle indices, int64_t topk_expert_num,
                     int64_t expert_count, const std::vector<int64_t>& device_experts) {
    const Tensor expert = borrowed_tensor(experts);
    const Tensor number = borrowed_tensor(indices);
    const reference::GatingParameters parameters{topk_expert_num, expert_count, device_experts};
    reference::Gating done =
        unlocked([&] { return reference::gating(expert.view, number.view, parameters); });
    return nb::make_tuple(as_array(std::move(done.token_index)),
                          as_array(std::move(done.cumulative)),
                          as_array(std::move(done.original_index)), done.valid);
  });
}

void bind_sampling(nb::module_& m) {
  m.def("glibc_fractions", [](uint32_t seed, size_t count) {
    reference::GlibcRandom random(seed);
    Wide values(Dims{static_cast<int64_t>(count)});
    for (double& value : values.values) value = random.next_fraction();
    return as_array(std::move(values));
  });
  m.def("multinomial", [](nb::handle probs, nb::handle fractions) {
    const Tensor tensor = borrowed_tensor(probs);
    const std::vector<double> numbers = values_of(fractions);
    const auto choices =
        unlocked([&] { return reference::multinomial(tensor.view, numbers, tensor.view.dtype); });
    const int64_t rows = tensor.view.shape[0];
    Whole places(Dims{rows, static_cast<int64_t>(numbers.size())});
    for (size_t i = 0; i < choices.size(); ++i) places.values[i] = choices[i].place;
    return as_array(std::move(places));
  });
  // top_k: places; empty: everything counts. fractions: without noise. noise: without fractions.
  m.def(
      "sample_nucleus",
      [](nb::handle probs, int64_t kept, const std::vector<int64_t>& top_k, nb::handle top_p,
         nb::handle fractions, nb::handle noise, bool inclusive) {
        const Tensor tensor = borrowed_tensor(probs);
        reference::NucleusInput input;
        input.top_k = top_k;
        input.top_p = values_of(top_p);
        const std::optional<Tensor> exponential = optional_tensor(noise);
        const std::vector<double> numbers =
            exponential ? std::vector<double>() : values_of(fractions);
        const auto sample = unlocked([&]() -> Result<reference::NucleusSample> {
          const Dims& shape = tensor.view.shape;
          const int64_t all = shape.empty() ? 0 : shape[shape.size() - 1];
          ASSAY_TRY(input.sorted, reference::top_k(tensor.view, kept < 0 ? all : kept));
          if (exponential) return reference::sample_nucleus_exponential(input, exponential->view);
          return reference::sample_nucleus(input, numbers, inclusive);
        });
        const int64_t width = input.sorted.values.shape[1];
        const auto rows = static_cast<int64_t>(sample.choices.size());
        Whole indices(Dims{rows});
        Wide values(Dims{rows});
        Whole last(Dims{rows});
        for (size_t row = 0; row < sample.choices.size(); ++row) {
          const auto at =
              row * static_cast<size_t>(width) + static_cast<size_t>(sample.choices[row].place);
          indices.values[row] = input.sorted.indices.values[at];
          values.values[row] = input.sorted.values.values[at];
          last.values[row] = sample.last[row].place;
        }
        return nb::make_tuple(as_array(std::move(indices)), as_array(std::move(values)),
                              as_array(std::move(last)));
      },
      nb::arg("probs"), nb::arg("kept"), nb::arg("top_k"), nb::arg("top_p"),
      nb::arg("fractions").none(), nb::arg("noise").none(), nb::arg("inclusive"));
}

void bind_experts(nb::module_& m) {
  m.def("group_top_k", [](nb::handle x, int64_t groups, int64_t keep, int64_t largest) {
    const Tensor tensor = borrowed_tensor(x);
    return as_array(unlocked([&]() -> Result<Wide> {
      ASSAY_TRY(const Tensor y, reference::group_top_k(tensor, groups, keep, largest));
      return reference::widen(y.view);
    }));
  });
  m.def("route_to_experts", [](nb::handle x, nb::handle bias, int64_t groups, int64_t group_top_k,
                               int64_t largest, int64_t top_k, bool normalise, double scale) {
    const Tensor tensor = borrowed_tensor(x);
    const Tensor added = borrowed_tensor(bias);
    const reference::RoutingParameters parameters{groups, group_top_k, largest,
                                                  top_k,  normalise,   scale};
    reference::Routing routing =
        unlocked([&] { return reference::route_to_experts(tensor.view, added.view, parameters); });
    return nb::make_tuple(as_array(std::move(routing.weights)),
                          as_array(std::move(routing.experts)));
  });
}

}  // namespace

void bind_selection(nb::module_& m) {
  bind_reductions(m);
  bind_indexing(m);
  bind_sampling(m);
  bind_experts(m);
}

}  // namespace assay::python
