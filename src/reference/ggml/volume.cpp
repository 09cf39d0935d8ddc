// SPDX-License-Identifier: Apache-2.0
#include "reference/ggml/volume.hpp"

#include <bit>
#include <cmath>
#include <utility>

namespace assay::reference::ggml {
namespace {

/// Word `word` of "op_params", if the call has them.
Result<std::optional<int32_t>> word_of(const Arguments& arguments, size_t word) {
  if (!arguments.has("op_params")) return std::nullopt;
  ASSAY_TRY(const std::vector<int64_t> words, arguments.integers("op_params"));
  if (word >= words.size()) return std::nullopt;
  return std::optional(static_cast<int32_t>(words[word]));
}

template <typename T>
Tensor picked_values(const Array<T>& from, const Whole& places, const Sizes& ne) {
  Array<T> result(shape_of(ne));
  for (size_t i = 0; i < result.values.size(); ++i) {
    const int64_t place = places.values[i];
    result.values[i] = place < 0 ? T{0} : from.values[static_cast<size_t>(place)];
  }
  return to_tensor(std::move(result));
}

}  // namespace

Volume::Volume(const Sizes& sizes) : ne(sizes), values(shape_of(sizes)) {}

Dims shape_of(const Sizes& ne) {
  size_t rank = 4;
  while (rank > 1 && ne[rank - 1] == 1) --rank;
  Dims shape;
  for (size_t i = rank; i-- > 0;) shape.push_back(ne[i]);
  return shape;
}

Result<Sizes> sizes_of(const Arguments& arguments, const TensorView& view) {
  const size_t rank = view.shape.size();
  if (rank > 4) return fail(arguments.unsupported("a source of more than four dimensions"));
  Sizes ne{1, 1, 1, 1};
  for (size_t i = 0; i < rank; ++i) ne[i] = view.shape[rank - 1 - i];
  return ne;
}

std::string text_of(const Sizes& ne) { return list_text(std::span<const int64_t>(ne)); }

Result<Volume> source(const Arguments& arguments, std::string_view name) {
  ASSAY_TRY(const Tensor tensor, arguments.tensor(name));
  Volume volume;
  ASSAY_TRY(volume.ne, sizes_of(arguments, tensor.view));
  Result<Wide> values = widen(tensor.view);
  if (!values) return fail(aten::named(arguments, std::move(values).error()));
  volume.values = *std::move(values);
  volume.values.shape = shape_of(volume.ne);
  return volume;
}

Result<std::optional<Volume>> optional_source(const Arguments& arguments, std::string_view name) {
  if (!arguments.has(name)) return std::nullopt;
  ASSAY_TRY(Volume volume, source(arguments, name));
  return std::optional(std::move(volume));
}

Result<Whole> integers_of(const Arguments& arguments, std::string_view name, Sizes* ne) {
  ASSAY_TRY(const Tensor tensor, arguments.tensor(name));
  ASSAY_TRY(*ne, sizes_of(arguments, tensor.view));
  Result<Whole> values = whole(tensor.view);
  if (!values) return fail(aten::named(arguments, std::move(values).error()));
  return values;
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
  if (index >= list.size())
    return fail(
        arguments.invalid(std::string(name) + " has " + std::to_string(list.size()) + " numbers"));
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
  Sizes ne{};
  Dims checked;
  for (size_t i = 0; i < 4; ++i) checked.push_back(ne[i] = list[i]);
  ASSAY_TRY_STATUS(checked_count(checked));
  return std::optional(ne);
}

Values single(Volume volume) {
  volume.values.shape = shape_of(volume.ne);
  return aten::single(to_tensor(std::move(volume.values)));
}

Magnitudes scaled_rounding(Wide c, double w_factor, double terms) {
  const double factor = w_factor * std::sqrt(terms);
  Magnitudes rounding;
  rounding.allowed = Wide(c.shape);
  rounding.variance = Wide(c.shape);
  for (size_t i = 0; i < c.values.size(); ++i) {
    const double w = factor * std::fabs(c.values[i]);
    rounding.allowed.values[i] = w;
    rounding.variance.values[i] = w * w / 12;
  }
  rounding.c = std::move(c);
  rounding.terms = terms;
  return rounding;
}

Result<Values> picked(const Arguments& arguments, const Tensor& tensor, const Whole& places,
                      const Sizes& ne) {
  if (is_integer(tensor.view.dtype)) {
    Result<Whole> from = whole(tensor.view);
    if (!from) return fail(aten::named(arguments, std::move(from).error()));
    return aten::single(picked_values(*from, places, ne));
  }
  Result<Wide> from = widen(tensor.view);
  if (!from) return fail(aten::named(arguments, std::move(from).error()));
  return aten::single(picked_values(*from, places, ne));
}

}  // namespace assay::reference::ggml
