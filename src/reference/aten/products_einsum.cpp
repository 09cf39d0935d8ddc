// SPDX-License-Identifier: Apache-2.0
// Einstein's sums, pair by pair as batched products.
#include <algorithm>
#include <cctype>
#include <map>
#include <string>

#include "reference/aten/products.hpp"
#include "reference/aten/values.hpp"
#include "tensor/convert.hpp"

namespace assay::reference::aten {
namespace {

using Labels = std::vector<int>;  // one a dimension: a letter, or kEllipsis + place from the right
constexpr int kEllipsis = 1000;
using Sizes = std::map<int, int64_t>;

struct Labelled {
  Tensor tensor;
  Labels labels;  // each once
};

struct Einsum {
  std::vector<Labelled> operands;  // dimensions of size 1 are already as large as the others'
  Labels out;
  Sizes sizes;
};

bool has(const Labels& labels, int label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}

/// "b...d" of an operand with so many dimensions.
Result<Labels> parse_labels(const Arguments& arguments, std::string_view text, size_t rank) {
  const size_t dots = text.find("...");
  const size_t letters = text.size() - (dots == std::string_view::npos ? 0 : 3);
  if (letters > rank || (dots == std::string_view::npos && letters != rank))
    return fail(arguments.invalid("'", text, "' for ", rank, " dimensions"));
  Labels labels;
  for (size_t i = 0; i < text.size(); ++i) {
    if (i == dots) {
      for (size_t left = rank - letters; left-- > 0;)
        labels.push_back(kEllipsis + static_cast<int>(left));
      i += 2;
      continue;
    }
    if (std::isalpha(static_cast<unsigned char>(text[i])) == 0)
      return fail(arguments.invalid("'", text, "' is no list of labels"));
    labels.push_back(text[i]);
  }
  return labels;
}

/// Dimensions with the same label become their diagonal; all get the common size.
Result<Labelled> with_distinct_labels(const Arguments& arguments, const Tensor& tensor,
                                      const Labels& labels, const Sizes& sizes) {
  Labelled result{tensor, {}};
  TensorView& view = result.tensor.view;
  view.shape = {};
  view.strides = {};
  for (size_t i = 0; i < labels.size(); ++i) {
    const int64_t size = sizes.at(labels[i]);
    const int64_t own = tensor.view.shape[i];
    if (own != size && own != 1)
      return fail(arguments.invalid("one label has sizes ", own, " and ", size));
    const int64_t stride = own == 1 ? 0 : tensor.view.strides[i];
    const auto seen = std::find(result.labels.begin(), result.labels.end(), labels[i]);
    if (seen != result.labels.end()) {
      view.strides[static_cast<size_t>(seen - result.labels.begin())] += stride;
    } else {
      result.labels.push_back(labels[i]);
      view.shape.push_back(size);
      view.strides.push_back(stride);
    }
  }
  ASSAY_TRY_STATUS(checked_count(view.shape));
  return result;
}

Result<Einsum> parse(const Arguments& arguments) {
  ASSAY_TRY(std::string equation, arguments.text("equation", ""));
  ASSAY_TRY(const std::vector<Tensor> tensors, arguments.tensors("tensors"));
  std::erase(equation, ' ');
  const size_t arrow = equation.find("->");
  std::vector<Labels> all;
  std::string_view inputs = std::string_view(equation).substr(0, arrow);
  Einsum einsum;
  for (size_t i = 0;; ++i) {
    const size_t comma = inputs.find(',');
    if (i >= tensors.size() || (i + 1 == tensors.size()) != (comma == std::string_view::npos))
      return fail(arguments.invalid("equation '", equation, "' for ", tensors.size(), " tensors"));
    if (is_whole(tensors[i].view.dtype)) return fail(arguments.unsupported("of integers"));
    ASSAY_TRY(Labels labels,
              parse_labels(arguments, inputs.substr(0, comma), tensors[i].view.shape.size()));
    for (size_t at = 0; at < labels.size(); ++at) {
      int64_t& size = einsum.sizes.try_emplace(labels[at], 1).first->second;
      if (tensors[i].view.shape[at] != 1) size = tensors[i].view.shape[at];
    }
    all.push_back(std::move(labels));
    if (comma == std::string_view::npos) break;
    inputs.remove_prefix(comma + 1);
  }
  if (arrow != std::string::npos) {
    const std::string_view text = std::string_view(equation).substr(arrow + 2);
    size_t dots = 0;
    for (const auto& [label, size] : einsum.sizes) dots += label >= kEllipsis ? 1 : 0;
    const bool ellipsis = text.find("...") != std::string_view::npos;
    ASSAY_TRY(einsum.out,
              parse_labels(arguments, text, ellipsis ? text.size() - 3 + dots : text.size()));
  } else {  // ellipsis first, then the letters that stand once, in the order of the alphabet
    std::map<int, int> times;
    for (const Labels& labels : all)
      for (const int label : labels) ++times[label];
    for (auto entry = times.rbegin(); entry != times.rend(); ++entry)
      if (entry->first >= kEllipsis) einsum.out.push_back(entry->first);
    for (const auto& [label, count] : times)
      if (label < kEllipsis && count == 1) einsum.out.push_back(label);
  }
  for (size_t i = 0; i < einsum.out.size(); ++i) {
    if (!einsum.sizes.contains(einsum.out[i]) ||
        std::find(einsum.out.begin(), einsum.out.begin() + static_cast<std::ptrdiff_t>(i),
                  einsum.out[i]) != einsum.out.begin() + static_cast<std::ptrdiff_t>(i))
      return fail(arguments.invalid("equation '", equation, "'"));
  }
  for (size_t i = 0; i < all.size(); ++i) {
    ASSAY_TRY(Labelled operand, with_distinct_labels(arguments, tensors[i], all[i], einsum.sizes));
    einsum.operands.push_back(std::move(operand));
  }
  return einsum;
}

/// The same view with its dimensions in the order of `labels`, all of which it has.
TensorView arranged(const Labelled& operand, const Labels& labels) {
  TensorView view = operand.tensor.view;
  view.shape.resize(labels.size());
  view.strides.resize(labels.size());
  for (size_t i = 0; i < labels.size(); ++i) {
    const auto at =
        static_cast<size_t>(std::find(operand.labels.begin(), operand.labels.end(), labels[i]) -
                            operand.labels.begin());
    view.shape[i] = operand.tensor.view.shape[at];
    view.strides[i] = operand.tensor.view.strides[at];
  }
  return view;
}

/// Only `kept` stay, in that order; the others are summed over.
Result<Wide> summed_to(const Labelled& operand, const Labels& kept) {
  Labels order = kept;
  for (const int label : operand.labels)
    if (!has(kept, label)) order.push_back(label);
  ASSAY_TRY(const Wide values, widen(arranged(operand, order)));
  Wide sums(Dims(values.shape.span().first(kept.size())), 0.0);
  const int64_t length = sums.size() == 0 ? 0 : values.size() / sums.size();
  for (int64_t i = 0; i < sums.size(); ++i)
    for (int64_t j = 0; j < length; ++j) sums.data()[i] += values.data()[i * length + j];
  return sums;
}

/// Labels that are in `first` and for which `wanted` holds.
template <typename Wanted>
Labels those(const Labels& first, Wanted wanted) {
  Labels labels;
  std::copy_if(first.begin(), first.end(), std::back_inserter(labels), wanted);
  return labels;
}

/// [batches..., rows, columns] out of dimensions that follow each other in this order.
Result<Tensor> as_batches(const Labelled& operand, const Labels& batches, const Labels& rows,
                          const Labels& columns) {
  Labels order = batches;
  order.insert(order.end(), rows.begin(), rows.end());
  order.insert(order.end(), columns.begin(), columns.end());
  Tensor tensor{arranged(operand, order), operand.tensor.owner};
  const Dims shape = tensor.view.shape;
  Dims joined(shape.span().first(batches.size()));
  int64_t row_count = 1, column_count = 1;
  for (size_t i = 0; i < rows.size(); ++i) row_count *= shape[batches.size() + i];
  for (size_t i = 0; i < columns.size(); ++i)
    column_count *= shape[batches.size() + rows.size() + i];
  joined.push_back(row_count);
  joined.push_back(column_count);
  if (rows.size() > 1 || columns.size() > 1) return reshaped(tensor, joined);
  // One dimension each, or none, which gets size 1: nothing moves.
  Dims strides(tensor.view.strides.span().first(batches.size()));
  strides.push_back(rows.empty() ? 0 : tensor.view.strides[batches.size()]);
  strides.push_back(columns.empty() ? 0 : tensor.view.strides[batches.size() + rows.size()]);
  tensor.view.shape = joined;
  tensor.view.strides = strides;
  return tensor;
}

/// Both operands, of which `kept` stays.
Result<Product> pair_product(const Labelled& first, const Labelled& second, const Labels& kept,
                             const Sizes& sizes) {
  // A label that only one has and that does not stay is summed over beforehand.
  const auto reduced = [&](const Labelled& one, const Labelled& other) -> Result<Labelled> {
    const Labels stay =
        those(one.labels, [&](int label) { return has(other.labels, label) || has(kept, label); });
    if (stay.size() == one.labels.size()) return one;
    ASSAY_TRY(Wide sums, summed_to(one, stay));
    return Labelled{to_tensor(std::move(sums)), stay};
  };
  ASSAY_TRY(const Labelled x, reduced(first, second));
  ASSAY_TRY(const Labelled w, reduced(second, first));
  const Labels batches =
      those(x.labels, [&](int label) { return has(w.labels, label) && has(kept, label); });
  const Labels meeting =
      those(x.labels, [&](int label) { return has(w.labels, label) && !has(kept, label); });
  const Labels rows = those(x.labels, [&](int label) { return !has(w.labels, label); });
  const Labels columns = those(w.labels, [&](int label) { return !has(x.labels, label); });
  Product product;
  ASSAY_TRY(product.x, as_batches(x, batches, rows, meeting));
  ASSAY_TRY(product.w, as_batches(w, batches, meeting, columns));
  Labels natural = batches;
  natural.insert(natural.end(), rows.begin(), rows.end());
  natural.insert(natural.end(), columns.begin(), columns.end());
  for (const int label : natural) product.shape.push_back(sizes.at(label));
  for (const int label : kept)
    product.order.push_back(
        static_cast<size_t>(std::find(natural.begin(), natural.end(), label) - natural.begin()));
  product.rows_are_those_of_x = false;
  return product;
}

}  // namespace

Result<std::optional<Product>> einsum_product(const Arguments& arguments) {
  ASSAY_TRY(const Einsum einsum, parse(arguments));
  if (einsum.operands.size() != 2) return std::optional<Product>();
  ASSAY_TRY(Product product,
            pair_product(einsum.operands[0], einsum.operands[1], einsum.out, einsum.sizes));
  return std::optional(std::move(product));
}

Result<std::vector<Tensor>> evaluate_einsum(const Arguments& arguments,
                                            const EvaluateOptions& options) {
  ASSAY_TRY(Einsum einsum, parse(arguments));
  Labelled so_far = einsum.operands[0];
  for (size_t i = 1; i < einsum.operands.size(); ++i) {
    // What the result or a later operand needs.
    const auto needed = [&](int label) {
      if (has(einsum.out, label)) return true;
      return std::any_of(einsum.operands.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                         einsum.operands.end(),
                         [&](const Labelled& later) { return has(later.labels, label); });
    };
    Labels kept = those(so_far.labels, needed);
    for (const int label : einsum.operands[i].labels)
      if (needed(label) && !has(kept, label)) kept.push_back(label);
    if (i + 1 == einsum.operands.size()) kept = einsum.out;
    ASSAY_TRY(const Product product, pair_product(so_far, einsum.operands[i], kept, einsum.sizes));
    ASSAY_TRY(Wide values, multiply(product, options.jobs));
    so_far = {to_tensor(std::move(values)), kept};
  }
  if (einsum.operands.size() > 1) return single(so_far.tensor);
  return single(summed_to(so_far, einsum.out));
}

}  // namespace assay::reference::aten
