// SPDX-License-Identifier: Apache-2.0
// Places of values in order.
#include <algorithm>
#include <numeric>

#include "reference/ggml/volume.hpp"

namespace assay::reference::ggml {
namespace {

/// Places of the first `count` values of every row, in order; equal values in the order of their places.
Result<Values> ordered(const Volume& x, bool descending, int64_t count) {
  const int64_t length = x.ne[0];
  Sizes ne = x.ne;
  ne[0] = count;
  Whole places(shape_of(ne));
  std::vector<int64_t> order(static_cast<size_t>(length));
  for (int64_t row = 0; row < x.rows(); ++row) {
    const double* values = x.values.data() + row * length;
    std::iota(order.begin(), order.end(), int64_t{0});
    std::ranges::stable_sort(order, [&](int64_t a, int64_t b) {
      return descending ? values[a] > values[b] : values[a] < values[b];
    });
    std::copy_n(order.begin(), count, places.data() + row * count);
  }
  return aten::single(to_tensor(std::move(places)));
}

Result<Values> argsort(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const int64_t order, integer(arguments, "order", 0));
  ASSAY_TRY(const Volume x, source(arguments, "src0"));
  return ordered(x, order == 1, x.ne[0]);
}

Result<Values> argmax(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Volume x, source(arguments, "src0"));
  if (x.ne[0] == 0) return fail(arguments.invalid("the largest of no values"));
  Whole places(shape_of({x.ne[1], x.ne[2], x.ne[3], 1}));
  for (int64_t row = 0; row < x.rows(); ++row) {
    const double* values = x.values.data() + row * x.ne[0];
    places.data()[row] = std::max_element(values, values + x.ne[0]) - values;
  }
  return aten::single(to_tensor(std::move(places)));
}

/// How many is the first size of the result. ggml leaves their order open.
Result<Values> top_k(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Volume x, source(arguments, "src0"));
  ASSAY_TRY(const std::optional<Sizes> ne, wanted_sizes(arguments));
  if (!ne || (*ne)[0] > x.ne[0]) return fail(arguments.invalid("no number of values"));
  return ordered(x, true, (*ne)[0]);
}

}  // namespace

bool has_open_order(std::string_view name) {
  return name == "ggml.argsort" || name == "ggml.top_k";
}

std::optional<Selection> selection_of(const aten::Call& call) {
  if (!has_open_order(call.name)) return std::nullopt;
  const Arguments arguments(call);
  const Result<Tensor> x = arguments.tensor("src0");
  if (!x) return std::nullopt;
  Selection selection;
  selection.call.arguments["self"].value = *x;
  selection.call.arguments["dim"].value = int64_t{-1};
  if (call.name == "ggml.argsort") {
    const Result<int64_t> order = integer(arguments, "order", 0);
    if (!order) return std::nullopt;
    selection.call.name = "aten.argsort.default";
    selection.call.arguments["descending"].value = *order == 1;
    return selection;
  }
  const Result<std::optional<Sizes>> ne = wanted_sizes(arguments);
  if (!ne || !*ne) return std::nullopt;
  selection.call.name = "aten.topk.default";
  selection.call.arguments["k"].value = (**ne)[0];
  selection.call.arguments["sorted"].value = false;
  selection.places = 1;
  return selection;
}

std::span<const Operator> selection_operators() {
  static constexpr Operator kTable[] = {
      {"ggml.argmax", OperatorClass::Integer, argmax},
      {"ggml.argsort", OperatorClass::Integer, argsort},
      {"ggml.top_k", OperatorClass::Integer, top_k},
  };
  return kTable;
}

}  // namespace assay::reference::ggml
