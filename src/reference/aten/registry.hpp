// SPDX-License-Identifier: Apache-2.0
// The table of overloads: each family of files adds its rows.
#pragma once
#include <span>

#include "reference/aten/call.hpp"
#include "tensor/sentence.hpp"

namespace assay::reference::aten {

/// Reads the arguments of one call by name. Every getter's error is Invalid and names call and
/// argument.
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
  /// `count` integers: one stands for all, none (an absent argument, or an empty list) for
  /// `fallback`.
  [[nodiscard]] Result<std::vector<int64_t>> integers_each(std::string_view name, size_t count,
                                                           int64_t fallback) const;
  [[nodiscard]] Result<std::optional<std::vector<int64_t>>> optional_integers(
      std::string_view name) const;
  /// The dtype argument, if one was given.
  [[nodiscard]] Result<std::optional<DType>> dtype(std::string_view name = "dtype") const;
  /// True when the argument is a floating scalar (not an integer or bool one).
  [[nodiscard]] bool is_real_scalar(std::string_view name) const;
  /// True when the argument is a scalar True or False.
  [[nodiscard]] bool is_truth(std::string_view name) const;
  [[nodiscard]] bool is_tensor(std::string_view name) const;
  /// Invalid: "aten.mm.default: <sentence>", the sentence out of its parts.
  template <typename... Parts>
  [[nodiscard]] Error invalid(const Parts&... parts) const {
    return {Errc::Invalid, {}, std::nullopt, sentence(call_.name, ": ", parts...), true};
  }
  template <typename... Parts>
  [[nodiscard]] Error unsupported(const Parts&... parts) const {
    return {Errc::Unsupported, {}, std::nullopt, sentence(call_.name, ": ", parts...), true};
  }

 private:
  const Call& call_;
};

using Evaluator = Result<std::vector<Tensor>> (*)(const Arguments& arguments,
                                                  const EvaluateOptions& options);

/// An evaluator that calls a function with fixed parameters behind the arguments.
template <auto kFunction, auto... kParameters>
Result<std::vector<Tensor>> fixed(const Arguments& arguments, const EvaluateOptions&) {
  return kFunction(arguments, kParameters...);
}

/// Overloads that one evaluator serves.
struct Overloads {
  std::string_view names;  // "add.Scalar add.Tensor"
  OperatorClass kind;
  Evaluator evaluate;
  bool view = false;
};
[[nodiscard]] std::vector<std::string_view> words_of(std::string_view text);

struct Overload {
  std::string name;  // "aten.mm.default"
  OperatorClass kind;
  Evaluator evaluate;
  bool view = false;
};

/// Another spelling of an overload: `multiply`, or one that writes into an argument.
struct Variant {
  std::string name;    // "aten.add_.Tensor"
  const Overload* of;  // "aten.add.Tensor", a row of a family: same arguments
  /// The argument that takes the results, whose element types become its own as far as floats,
  /// integers and truth values differ: "self", "out"; "" for a mere synonym.
  std::string_view written;
  bool view = false;  // as Overload::view
};
/// All of them, by name, for the rows of all families.
[[nodiscard]] std::vector<Variant> variants_of(std::span<const Overload> overloads);
/// The same for the rows there are.
[[nodiscard]] const std::vector<Variant>& variants();

// One function a family; registry.cpp joins them.
[[nodiscard]] std::span<const Overloads> view_overloads();
[[nodiscard]] std::span<const Overloads> cast_overloads();
[[nodiscard]] std::span<const Overloads> creation_overloads();
[[nodiscard]] std::span<const Overloads> movement_overloads();
[[nodiscard]] std::span<const Overloads> indexing_overloads();
[[nodiscard]] std::span<const Overloads> elementwise_overloads();
[[nodiscard]] std::span<const Overloads> function_overloads();
[[nodiscard]] std::span<const Overloads> activation_overloads();
[[nodiscard]] std::span<const Overloads> complex_overloads();
[[nodiscard]] std::span<const Overloads> comparison_overloads();
[[nodiscard]] std::span<const Overloads> reduction_overloads();
[[nodiscard]] std::span<const Overloads> selection_overloads();
[[nodiscard]] std::span<const Overloads> product_overloads();
[[nodiscard]] std::span<const Overloads> softmax_overloads();
[[nodiscard]] std::span<const Overloads> norm_overloads();
[[nodiscard]] std::span<const Overloads> attention_overloads();
[[nodiscard]] std::span<const Overloads> image_overloads();
[[nodiscard]] std::span<const Overloads> composite_overloads();

}  // namespace assay::reference::aten
