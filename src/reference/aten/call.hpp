// SPDX-License-Identifier: Apache-2.0
// Operators of PyTorch (aten) in fp64: one captured call in, its results out.
//   docs/localisation.md
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "reference/wide.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::reference::aten {

/// A dtype argument; nothing for one that we have no type for.
struct DTypeArgument {
  std::optional<DType> dtype;
  std::string name;  // torch's, without prefix
};
/// A device, layout, memory format or generator: nothing that changes values, except that a
/// generator says that they are random.
struct HostArgument {
  std::string kind;  // "device" "layout" "memory_format" "generator" ...
  std::string text;
};
struct Argument;
using ArgumentList = std::vector<Argument>;

/// One argument of a call, as the schema names it. std::monostate is None.
struct Argument {
  std::variant<std::monostate, bool, int64_t, double, std::string, DTypeArgument, HostArgument,
               Tensor, ArgumentList>
      value;
};

/// One call of an overload. Arguments that are absent have their default.
struct Call {
  std::string name;  // "aten.mm.default"; the overload decides what the arguments are called
  std::map<std::string, Argument, std::less<>> arguments;  // by schema name: "self", "mat2", "dim"
};

struct EvaluateOptions {
  int jobs = 1;  // threads of large products; never changes a bit
  /// Evaluates the calls that an operator of several is made of; empty: evaluate().
  std::function<Result<std::vector<Tensor>>(const Call&)> inner = {};
};

/// The results of a call computed in fp64 from its operands, whatever types these have: reals are
/// widened, integers and truth values stay exact, and every dtype argument that names a float type
/// counts as fp64.
///
/// Results that only move values (views, cat, gather, where, clone ...) keep the element type of
/// their operands, often as strided views of the same bytes; every other real result is Float64, an
/// integer one Int64, a truth value Bool. Operators that write into an argument (`add_`, `copy_`,
/// `index_put_`, `out=`) return the argument's new value and leave the operand alone: what they
/// return is what torch returns.
///
/// returns  one tensor an output of the schema, in its order; TensorList outputs are spread. An
///          output that nobody can predict (the seed of a fused attention, its debug mask, its
///          sizes) is Tensor{}: is_predictable() is false
/// errors   Unsupported ("no reference for aten.foo.bar", "random: ...", a dtype) | Invalid
///          (operands that do not fit: "aten.mm.default: 3 columns against 4 rows") | TooLarge
[[nodiscard]] Result<std::vector<Tensor>> evaluate(const Call& call,
                                                   const EvaluateOptions& options = {});

/// False for Tensor{}, which stands for an output without a reference: a 0-d tensor without bytes,
/// as no real one is.
[[nodiscard]] inline bool is_predictable(const Tensor& output) {
  return output.owner != nullptr || !output.view.shape.empty() || !output.view.storage.empty();
}

/// What kind of arithmetic an overload is; decides how large the rounding error of a correct kernel
/// may be.
///   docs/localisation.md, "Own error"
enum class OperatorClass : uint8_t {
  Unknown,     // no reference
  Move,        // views, moves, gather, cat, where, neg, abs, relu, max, min, casts to wider: exact
  Integer,     // results are integers or truth values: equal or wrong
  Cast,        // to a narrower type
  Arithmetic,  // add, sub, mul, div of tensors, or of a tensor and a scalar
  Product,     // mm, bmm, addmm, linear, matmul, convolution
  Reduction,   // mean, sum, cumsum
  Function,    // exp rsqrt sqrt sigmoid reciprocal log erf
  Trigonometric,  // sin cos
  Softmax,        // tanh, pow, softmax, log_softmax, logsumexp
  Activation,     // gelu silu and their kind
  Norm,           // layer_norm, rms_norm, group_norm, batch_norm
  Attention,      // fused scaled dot-product attention
  Fused,          // known function, unknown inside: the simulated floor
  Random,         // values nobody can predict
  Allocation,     // empty and its kind: values are undefined
};
[[nodiscard]] std::string_view class_name(OperatorClass kind);

/// The class of an overload by its name; Unknown when there is no reference.
[[nodiscard]] OperatorClass class_of(std::string_view name);

/// True for an operator that is evaluated as several calls, through EvaluateOptions::inner.
[[nodiscard]] bool is_composite(std::string_view name);

/// True for a result that shares the bytes of an operand by the schema (view, transpose, slice
/// ...).
[[nodiscard]] bool is_view(std::string_view name);

/// Everything that has a reference, by name, sorted: "aten.add.Tensor" ... For documents and `assay
/// locate --operators`.
[[nodiscard]] std::vector<std::string_view> known_overloads();

}  // namespace assay::reference::aten
