// SPDX-License-Identifier: Apache-2.0
// The table, and what its rows have in common that say which operator of aten means the same.
#include <algorithm>

#include "reference/ggml/dialect.hpp"

namespace assay::reference::ggml {
namespace {

const std::vector<DialectRow>& table() {
  static const std::vector<DialectRow> joined = [] {
    std::vector<DialectRow> rows;
    for (const auto family : {arithmetic_operators(), activation_operators(), norm_operators(),
                              movement_operators(), selection_operators(), image_operators(),
                              product_operators(), rope_operators(), attention_operators()})
      rows.insert(rows.end(), family.begin(), family.end());
    std::ranges::sort(rows, {}, &DialectRow::name);
    return rows;
  }();
  return joined;
}

const DialectRow* lookup(std::string_view name) {
  const auto found = std::ranges::lower_bound(table(), name, {}, &DialectRow::name);
  return found == table().end() || found->name != name ? nullptr : &*found;
}

Result<Call> call_of(const DialectRow& one, const Arguments& arguments) {
  Call call;
  call.name = one.same_as;
  ASSAY_TRY_STATUS(one.translate(arguments, &call));
  return call;
}

/// Reals in double, integers in 64 bits.
Result<Tensor> in_largest_type(const Tensor& tensor) {
  if (is_integer(tensor.view.dtype))
    return whole(tensor.view).transform([](Whole values) { return to_tensor(std::move(values)); });
  return widen(tensor.view).transform([](Wide values) { return to_tensor(std::move(values)); });
}

Result<Values> evaluate_same(const Arguments& arguments, const EvaluateOptions& options) {
  const DialectRow& one = *lookup(arguments.call().name);
  ASSAY_TRY(const Call call, call_of(one, arguments));
  ASSAY_TRY(Values results, aten::evaluate(call, options));
  const bool keeps_bytes = one.view || one.kind == OperatorClass::Cast;
  if (keeps_bytes) return result_of(results[0]);
  ASSAY_TRY(Tensor result, in_largest_type(results[0]));
  return result_of(std::move(result));
}

Result<Magnitudes> rounding_of_same(const DialectRow& one, const Arguments& arguments, int jobs) {
  ASSAY_TRY(const Call call, call_of(one, arguments));
  const double factor = one.roundoff.factor * kFloat32Roundoff;
  const bool moves = aten::class_of(call.name) == OperatorClass::Move;
  if (one.roundoff.size == Size::Terms && !moves) {
    ASSAY_TRY(Magnitudes found, aten::magnitudes(call, 0, {.jobs = jobs}));
    return scaled_rounding(std::move(found.c), factor, found.terms);
  }
  ASSAY_TRY(const Values results, aten::evaluate(call, {.jobs = jobs}));
  ASSAY_TRY(Wide c, widen(results[0].view));
  if (one.roundoff.size != Size::Result) std::ranges::fill(c.values, moves ? 0.0 : 1.0);
  return scaled_rounding(std::move(c), factor);
}

}  // namespace

std::span<const aten::Overload> overloads() {
  static const std::vector<aten::Overload> rows = [] {
    std::vector<aten::Overload> made;
    for (const DialectRow& one : table())
      made.push_back({std::string(one.name), one.kind,
                      one.translate != nullptr ? evaluate_same : one.evaluate, one.view});
    return made;
  }();
  return rows;
}

std::vector<std::string_view> known_operators() {
  std::vector<std::string_view> names;
  for (const DialectRow& one : table()) names.push_back(one.name);
  return names;
}

bool has_rounding(std::string_view name) {
  const DialectRow* one = lookup(name);
  return one != nullptr && (one->rounding != nullptr || one->roundoff.size != Size::Nothing);
}

Result<Magnitudes> rounding(const Call& call, int jobs) {
  if (!has_rounding(call.name))
    return fail(in_operator(
        call.name,
        {Errc::Unsupported, {}, std::nullopt, "no rounding errors but that of the result"}));
  const DialectRow& one = *lookup(call.name);
  const Arguments arguments(call);
  return one.rounding != nullptr ? one.rounding(arguments, jobs)
                                 : rounding_of_same(one, arguments, jobs);
}

}  // namespace assay::reference::ggml
