// SPDX-License-Identifier: Apache-2.0
// Places of values in order.
#include "reference/ggml/dialect.hpp"

namespace assay::reference::ggml {
namespace {

Status last_axis(const Arguments& arguments, Call* same) {
  set(same, "dim", int64_t{-1});
  return set_self(arguments, same);
}

Result<Values> ordered(const Arguments& arguments, const EvaluateOptions& options) {
  // Read for their errors, too.
  ASSAY_TRY_STATUS(source(arguments, "src0"));
  const std::optional<Selection> same = selection_of(arguments.call());
  if (!same) return fail(arguments.invalid("no order, or no number of values"));
  ASSAY_TRY(const Values results, aten::evaluate(same->call, options));
  return result_of(results[same->places]);
}

}  // namespace

bool has_open_order(std::string_view name) {
  return name == "ggml.argsort" || name == "ggml.top_k";
}

std::optional<Selection> selection_of(const Call& call) {
  if (!has_open_order(call.name)) return std::nullopt;
  const Arguments arguments(call);
  const Result<Tensor> x = arguments.tensor("src0");
  if (!x) return std::nullopt;
  Selection selection;
  set(&selection.call, "self", *x);
  set(&selection.call, "dim", int64_t{-1});
  if (call.name == "ggml.argsort") {
    const Result<int64_t> order = integer(arguments, "order", 0);
    if (!order) return std::nullopt;
    selection.call.name = "aten.argsort.default";
    set(&selection.call, "descending", *order == 1);
    return selection;
  }
  const Result<std::optional<Sizes>> ne = wanted_sizes(arguments);
  if (!ne || !*ne) return std::nullopt;
  selection.call.name = "aten.topk.default";
  set(&selection.call, "k", (**ne)[0]);
  set(&selection.call, "sorted", false);
  selection.places = 1;
  return selection;
}

std::span<const DialectRow> selection_operators() {
  static constexpr auto kInteger = OperatorClass::Integer;
  static constexpr DialectRow kTable[] = {
      {"ggml.argmax", kInteger, "aten.argmax.default", last_axis},
      own("ggml.argsort", kInteger, ordered),
      own("ggml.top_k", kInteger, ordered),
  };
  return kTable;
}

}  // namespace assay::reference::ggml
