// SPDX-License-Identifier: Apache-2.0
// What the families of ggml's operators read calls with: a parameter is looked for by its name,
// then in its word of "op_params", then the fallback counts. Sources get leading axes up to four,
// which results lose again.   docs/reference-ggml.md
#include "reference/ggml/dialect.hpp"

#include <bit>
#include <cmath>
#include <utility>

#include "base/ascii.hpp"
#include "reference/aten/shapes.hpp"
#include "reference/norms/rows.hpp"

namespace assay::reference::ggml {
namespace {

/// Word `word` of "op_params", if the call has them.
Result<std::optional<int32_t>> word_of(const Arguments& arguments, size_t word) {
  if (!arguments.has("op_params")) return std::nullopt;
  ASSAY_TRY(const std::vector<int64_t> words, arguments.integers("op_params"));
  if (word >= words.size()) return std::nullopt;
  return std::optional(static_cast<int32_t>(words[word]));
}

}  // namespace

Result<Source> source(const Arguments& arguments, std::string_view name) {
  Source source;
  ASSAY_TRY(source.tensor, arguments.tensor(name));
  TensorView& view = source.tensor.view;
  if (view.shape.size() > 4)
    return fail(arguments.unsupported("a source of more than four dimensions"));
  while (view.shape.size() < 4) aten::insert_axis(view, 0);
  for (size_t i = 0; i < 4; ++i) source.ne[i] = view.shape[3 - i];
  return source;
}

Result<std::optional<Source>> optional_source(const Arguments& arguments, std::string_view name) {
  if (!arguments.has(name)) return std::nullopt;
  ASSAY_TRY(Source found, source(arguments, name));
  return std::optional(std::move(found));
}

Result<Wide> values_of(const Arguments& arguments, std::string_view name) {
  ASSAY_TRY(const Source found, source(arguments, name));
  ASSAY_TRY(Wide values, widen(found.view()));
  return values;
}

std::string text_of(const Sizes& ne) { return list_text(std::span<const int64_t>(ne)); }

Dims shape_of(const Dims& dims) { return dims.empty() ? Dims{1} : without_leading_ones(dims); }

Values result_of(Tensor tensor) {
  TensorView& view = tensor.view;
  const size_t rank = view.shape.size();
  view.shape = shape_of(view.shape);
  view.strides = rank == 0 ? Dims{1} : Dims(view.strides.span().last(view.shape.size()));
  return aten::single(std::move(tensor));
}

Magnitudes no_rounding(const Dims& dims) {
  const Wide zeros(shape_of(dims), 0.0);
  return {zeros, zeros, {}, 1, zeros};
}

Magnitudes scaled_rounding(Wide c, double factor, double terms) {
  Magnitudes rounding = no_rounding(c.shape);
  for (size_t i = 0; i < c.values.size(); ++i) {
    const double w = factor * std::sqrt(terms) * std::fabs(c.values[i]);
    rounding.allowed.values[i] = w;
    rounding.variance.values[i] = w * w / 12;
  }
  rounding.c.values = std::move(c.values);
  rounding.terms = terms;
  return rounding;
}

void set_list(Call* call, std::string_view name, std::span<const int64_t> values) {
  aten::ArgumentList list;
  for (const int64_t value : values) list.emplace_back().value = value;
  set(call, name, std::move(list));
}

Status set_self(const Arguments& arguments, Call* call) {
  ASSAY_TRY(const Source self, source(arguments, "src0"));
  set(call, "self", self.tensor);
  return {};
}

Result<int64_t> integer(const Arguments& arguments, std::string_view name, size_t word,
                        std::optional<int64_t> fallback) {
  if (arguments.has(name)) return arguments.integer(name);
  ASSAY_TRY(const std::optional<int32_t> raw, word_of(arguments, word));
  if (raw) return static_cast<int64_t>(*raw);
  return arguments.integer(name, fallback);
}

Result<double> real(const Arguments& arguments, std::string_view name, size_t word,
                    std::optional<double> fallback) {
  ASSAY_TRY(const std::optional<int32_t> raw, word_of(arguments, word));
  if (raw && !arguments.has(name)) return static_cast<double>(std::bit_cast<float>(*raw));
  ASSAY_TRY(const double given, arguments.real(name, fallback));
  return static_cast<double>(static_cast<float>(given));
}

Result<int64_t> listed(const Arguments& arguments, std::string_view name, size_t index, size_t word,
                       std::optional<int64_t> fallback) {
  if (!arguments.has(name)) return integer(arguments, name, word, fallback);
  ASSAY_TRY(const std::vector<int64_t> list, arguments.integers(name));
  if (index >= list.size()) return fail(arguments.invalid(name, " has ", list.size(), " numbers"));
  return list[index];
}

Result<bool> truth(const Arguments& arguments, std::string_view name, size_t word,
                   std::optional<bool> fallback) {
  if (arguments.is_truth(name)) return arguments.truth(name);
  std::optional<int64_t> number;
  if (fallback) number = *fallback ? 1 : 0;
  ASSAY_TRY(const int64_t given, integer(arguments, name, word, number));
  return given != 0;
}

Result<std::optional<Sizes>> wanted_sizes(const Arguments& arguments) {
  if (!arguments.has("ne")) return std::nullopt;
  ASSAY_TRY(const std::vector<int64_t> list, arguments.integers("ne"));
  if (list.size() != 4) return fail(arguments.invalid("ne has not four sizes"));
  const Sizes ne{list[0], list[1], list[2], list[3]};
  ASSAY_TRY_STATUS(checked_count(dims_of(ne)));
  return std::optional(ne);
}

Result<Sizes> needed_sizes(const Arguments& arguments) {
  ASSAY_TRY(const std::optional<Sizes> ne, wanted_sizes(arguments));
  if (!ne) return fail(arguments.invalid("no sizes"));
  return *ne;
}

Result<std::string> stored_type(const Arguments& arguments, std::string_view name) {
  ASSAY_TRY(const std::string given, arguments.text(std::string(name) + "_type", ""));
  if (!given.empty()) return lower_case(given);
  ASSAY_TRY(const Tensor tensor, arguments.tensor(name));
  return std::string(assay::name(tensor.view.dtype));
}

}  // namespace assay::reference::ggml
