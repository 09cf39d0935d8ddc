// SPDX-License-Identifier: Apache-2.0
// Joins the rows of all families, their other spellings and ggml's operators in one table, sorted
// by name and made at the first call. evaluate() looks a call up in it, and gives results that are
// written into an argument the type of that argument.
#include "reference/aten/registry.hpp"

#include <algorithm>
#include <new>

#include "reference/aten/values.hpp"
#include "reference/ggml/operators.hpp"

namespace assay::reference::aten {
namespace {

/// What a name stands for.
struct Entry {
  std::string_view name;
  const Overload* overload;
  std::string_view written = {};  // as Variant::written
  bool view = false;
};

const std::vector<Overload>& overloads() {
  static const std::vector<Overload> rows = [] {
    std::vector<Overload> spread(ggml::overloads().begin(), ggml::overloads().end());
    for (const auto family :
         {view_overloads(), cast_overloads(), creation_overloads(), movement_overloads(),
          indexing_overloads(), elementwise_overloads(), function_overloads(),
          activation_overloads(), complex_overloads(), comparison_overloads(),
          reduction_overloads(), selection_overloads(), product_overloads(), softmax_overloads(),
          norm_overloads(), attention_overloads(), image_overloads(), composite_overloads()})
      for (const Overloads& row : family)
        for (const std::string_view name : words_of(row.names))
          spread.push_back({"aten." + std::string(name), row.kind, row.evaluate, row.view});
    return spread;
  }();
  return rows;
}

const std::vector<Entry>& entries() {
  static const std::vector<Entry> joined = [] {
    std::vector<Entry> rows;
    for (const Overload& one : overloads()) rows.push_back({one.name, &one, {}, one.view});
    for (const Variant& variant : variants())
      rows.push_back({variant.name, variant.of, variant.written, variant.view});
    std::sort(rows.begin(), rows.end(),
              [](const Entry& a, const Entry& b) { return a.name < b.name; });
    return rows;
  }();
  return joined;
}

const Entry* lookup(std::string_view name) {
  const std::vector<Entry>& rows = entries();
  const auto found = std::lower_bound(
      rows.begin(), rows.end(), name,
      [](const Entry& entry, std::string_view wanted) { return entry.name < wanted; });
  return found == rows.end() || found->name != name ? nullptr : &*found;
}

/// Gives the first result the element type of the argument that it is written into.
Status convert_to_written(const Arguments& arguments, std::string_view written,
                          std::vector<Tensor>& results) {
  // A list of outputs, or one that was not captured: nothing to convert to.
  if (!arguments.is_tensor(written) || results.empty()) return {};
  ASSAY_TRY(const Tensor target, arguments.tensor(written));
  ASSAY_TRY(results.front(), cast_to(results.front(), target.view.dtype));
  return {};
}

}  // namespace

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    words.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

const std::vector<Variant>& variants() {
  static const std::vector<Variant> all = variants_of(overloads());
  return all;
}

Result<std::vector<Tensor>> evaluate(const Call& call, const EvaluateOptions& options) {
  const Entry* entry = lookup(call.name);
  if (entry == nullptr)
    return fail(Error{Errc::Unsupported, {}, std::nullopt, "no reference for " + call.name, true});
  const Arguments arguments(call);
  try {
    Result<std::vector<Tensor>> results = entry->overload->evaluate(arguments, options);
    if (!results) return fail(in_operator(call.name, std::move(results).error()));
    if (!entry->written.empty())
      ASSAY_TRY_STATUS(convert_to_written(arguments, entry->written, *results));
    return results;
  } catch (const std::bad_alloc&) {
    return fail(in_operator(call.name, {Errc::TooLarge, {}, std::nullopt, "not enough memory"}));
  }
}

OperatorClass class_of(std::string_view name) {
  const Entry* entry = lookup(name);
  return entry == nullptr ? OperatorClass::Unknown : entry->overload->kind;
}

bool is_view(std::string_view name) {
  const Entry* entry = lookup(name);
  return entry != nullptr && entry->view;
}

std::vector<std::string_view> known_overloads() {
  std::vector<std::string_view> names;
  for (const Entry& entry : entries()) {
    if (!ggml::is_ggml(entry.name)) names.push_back(entry.name);
  }
  return names;
}

}  // namespace assay::reference::aten
