// SPDX-License-Identifier: Apache-2.0
// The table of overloads: each family of files adds its rows.
#pragma once
#include <span>

#include "reference/aten/call.hpp"

namespace assay::reference::aten {

/// Reads the arguments of one call by name. Every getter's error is Invalid and names call and argument.
class Arguments {
 public:
  explicit Arguments(const Call& call) : call_(call) {}
  [[nodiscard]] const Call& call() const { return call_; }
  [[nodiscard]] bool has(std::string_view name) const;  // present and not None
  [[nodiscard]] Result<Tensor> tensor(std::string_view name) const;
  [[nodiscard]] Result<std::optional<Tensor>> optional_tensor(std::string_view name) const;
  [[nodiscard]] Result<std::vector<Tensor>> tensors(std::string_view name) const;
  /// A list with None in it, as index.Tensor takes.
  [[nodiscard]] Result<std::vector<std::optional<Tensor>>> optional_tensors(
      std::string_view name) const;
  [[nodiscard]] Result<int64_t> integer(std::string_view name,
                                        std::optional<int64_t> fallback = {}) const;
  [[nodiscard]] Result<double> real(std::string_view name,
                                    std::optional<double> fallback = {}) const;
  [[nodiscard]] Result<bool> truth(std::string_view name, std::optional<bool> fallback = {}) const;
  [[nodiscard]] Result<std::string> text(std::string_view name, std::string_view fallback) const;
  /// A list of integers; one integer counts as a list of one.
  [[nodiscard]] Result<std::vector<int64_t>> integers(std::string_view name) const;
  [[nodiscard]] Result<std::optional<std::vector<int64_t>>> optional_integers(
      std::string_view name) const;
  /// The dtype argument, if one was given.
  [[nodiscard]] Result<std::optional<DType>> dtype(std::string_view name = "dtype") const;
  /// True when the argument is a floating scalar (not an integer or bool one).
  [[nodiscard]] bool is_real_scalar(std::string_view name) const;
  /// True when the argument is a scalar True or False.
  [[nodiscard]] bool is_truth(std::string_view name) const;
  [[nodiscard]] bool is_tensor(std::string_view name) const;
  /// Invalid: "aten.mm.default: <sentence>"
  [[nodiscard]] Error invalid(std::string_view sentence) const;
  [[nodiscard]] Error unsupported(std::string_view sentence) const;

 private:
  const Call& call_;
};

using Evaluator = Result<std::vector<Tensor>> (*)(const Arguments& arguments,
                                                  const EvaluateOptions& options);

struct Overload {
  std::string_view name;  // "aten.mm.default"
  OperatorClass kind;
  Evaluator evaluate;
  bool view = false;
};

/// Another spelling of an overload: `multiply`, or one that writes into an argument.
struct Variant {
  std::string name;    // "aten.add_.Tensor"
  const Overload* of;  // "aten.add.Tensor", a row of a family: same arguments
  /// The argument that takes the results, whose element types become its own as far as floats, integers and truth
  /// values differ: "self", "out"; "" for a mere synonym.
  std::string_view written;
  bool view = false;  // as Overload::view
};
/// All of them, by name, for the rows of all families.
[[nodiscard]] std::vector<Variant> variants_of(std::span<const Overload* const> overloads);
/// The same for the rows there are.
[[nodiscard]] const std::vector<Variant>& variants();

// One function a family; registry.cpp joins them.
[[nodiscard]] std::span<const Overload> view_overloads();
[[nodiscard]] std::span<const Overload> cast_overloads();
[[nodiscard]] std::span<const Overload> creation_overloads();
[[nodiscard]] std::span<const Overload> movement_overloads();
[[nodiscard]] std::span<const Overload> indexing_overloads();
[[nodiscard]] std::span<const Overload> elementwise_overloads();
[[nodiscard]] std::span<const Overload> function_overloads();
[[nodiscard]] std::span<const Overload> activation_overloads();
[[nodiscard]] std::span<const Overload> complex_overloads();
[[nodiscard]] std::span<const Overload> comparison_overloads();
[[nodiscard]] std::span<const Overload> reduction_overloads();
[[nodiscard]] std::span<const Overload> selection_overloads();
[[nodiscard]] std::span<const Overload> product_overloads();
[[nodiscard]] std::span<const Overload> softmax_overloads();
[[nodiscard]] std::span<const Overload> norm_overloads();
[[nodiscard]] std::span<const Overload> attention_overloads();

}  // namespace assay::reference::aten
