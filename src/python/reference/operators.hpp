// SPDX-License-Identifier: Apache-2.0
// Binds reference operators: a row is a name and a C++ function, whose parameter and result types
// say how Python's arguments become its own and how its result goes back. Nobody converts by hand.
// A new operator is a row in the file of its family, and its signature and document, which users
// see, in python/assay/reference.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "python/binding/class.hpp"
#include "python/module.hpp"
#include "python/tensor_array.hpp"
#include "reference/movement/bytes.hpp"
#include "reference/movement/collectives.hpp"
#include "reference/wide.hpp"

namespace assay::python {

/// An array of Python's for the time of a call: NumPy's, torch's, nested lists ... Raises for one
/// without numbers.
struct Operand {
  explicit Operand(binding::Handle array);
  binding::Object raw;  // owns the bytes
  Tensor tensor;
};

/// Parameter T of an operator. `Raw` is what the binding takes from the caller; keep() holds it
/// during the call and may raise; pass() gives it to the operator and touches no Python. Here:
/// numbers, text, lists of numbers.
template <typename T>
struct Parameter {
  using Raw = T;
  static T keep(T raw) { return raw; }
  static const T& pass(const T& kept) { return kept; }
};
template <>
struct Parameter<Tensor> {
  using Raw = binding::Handle;
  static Operand keep(Raw array) { return Operand(array); }
  static const Tensor& pass(const Operand& kept) { return kept.tensor; }
};
template <>
struct Parameter<TensorView> : Parameter<Tensor> {
  static const TensorView& pass(const Operand& kept) { return kept.tensor.view; }
};
/// An array that may be None.
template <>
struct Parameter<const TensorView*> {
  using Raw = binding::Handle;
  static std::optional<Operand> keep(Raw array) {
    return array.is_none() ? std::nullopt : std::optional<Operand>(array);
  }
  static const TensorView* pass(const std::optional<Operand>& kept) {
    return kept ? &kept->tensor.view : nullptr;
  }
};
template <>
struct Parameter<std::optional<TensorView>> : Parameter<const TensorView*> {
  static std::optional<TensorView> pass(const std::optional<Operand>& kept) {
    return kept ? std::optional(kept->tensor.view) : std::nullopt;
  }
};
template <>
struct Parameter<std::optional<Tensor>> : Parameter<const TensorView*> {
  static std::optional<Tensor> pass(const std::optional<Operand>& kept) {
    return kept ? std::optional(kept->tensor) : std::nullopt;
  }
};
/// Several arrays, one a rank or a part.
template <>
struct Parameter<std::span<const Tensor>> {
  using Raw = binding::Handle;
  struct Kept {
    std::vector<Operand> operands;
    std::vector<Tensor> tensors;
    std::vector<TensorView> views;
  };
  static Kept keep(Raw arrays) {
    Kept kept;
    binding::for_each(arrays, [&](binding::Handle array) {
      kept.operands.emplace_back(array);
      kept.tensors.push_back(kept.operands.back().tensor);
      kept.views.push_back(kept.tensors.back().view);
    });
    return kept;
  }
  static std::span<const Tensor> pass(const Kept& kept) { return kept.tensors; }
};
template <>
struct Parameter<std::span<const TensorView>> : Parameter<std::span<const Tensor>> {
  static std::span<const TensorView> pass(const Kept& kept) { return kept.views; }
};
template <>
struct Parameter<std::span<const int64_t>> : Parameter<std::vector<int64_t>> {};
template <>
struct Parameter<Dims> : Parameter<std::vector<int64_t>> {
  static Dims pass(const std::vector<int64_t>& kept) {
    return Dims(std::span<const int64_t>(kept));
  }
};
/// By its name.
template <>
struct Parameter<DType> {
  using Raw = std::string;
  static DType keep(const Raw& name);
  static DType pass(DType kept) { return kept; }
};
template <>
struct Parameter<reference::RankReduction> {
  using Raw = std::string;
  static reference::RankReduction keep(const Raw& name);
  static reference::RankReduction pass(reference::RankReduction kept) { return kept; }
};

/// What an operator computed, independent of the caller's arrays: views of them are copied.
template <typename T>
Result<T> settled(T value) {
  return value;
}
template <typename T>
Result<T> settled(Result<T> result) {
  return result;
}
[[nodiscard]] Result<Tensor> settled(Result<Tensor> result);
[[nodiscard]] Result<std::vector<Tensor>> settled(Result<std::vector<Tensor>> result);

/// Results as Python has them: new NumPy arrays, of ml_dtypes' types where NumPy has none of its
/// own, numbers, lists and tuples.
[[nodiscard]] binding::Object to_python(Tensor tensor);
template <typename T>
binding::Object to_python(reference::Array<T> array) {
  return owned_array(reference::to_tensor(std::move(array)));
}
inline binding::Object to_python(int64_t number) { return binding::cast(number); }
inline binding::Object to_python(double number) { return binding::cast(number); }
template <typename T>
binding::Object to_python(std::vector<T> values) {
  binding::List list;
  for (T& value : values) list.append(to_python(std::move(value)));
  return list;
}
template <typename... T>
binding::Object to_python(std::tuple<T...> values) {
  return std::apply([](T&... each) { return binding::tuple_of(to_python(std::move(each))...); },
                    values);
}

/// The members of a result that Python gets, as a tuple.
template <auto... Members>
inline constexpr auto kFields =
    [](auto result) { return std::tuple(std::move(result.*Members)...); };

template <typename>
struct MemberOf;
template <typename Structure, typename Value>
struct MemberOf<Value Structure::*> {
  using Type = Value;
};

template <auto... Members, typename R, typename... A, size_t... I>
auto spread_options(R (*function)(A...), std::index_sequence<I...>) {
  using All = std::tuple<A...>;
  using Options = std::remove_cvref_t<std::tuple_element_t<sizeof...(I), All>>;
  return [function](std::tuple_element_t<I, All>... operands,
                    typename MemberOf<decltype(Members)>::Type... values) {
    Options options;
    ((options.*Members = std::move(values)), ...);
    return function(operands..., options);
  };
}
/// A function whose last parameter is a structure of options, with these members as parameters
/// instead.
template <auto... Members, typename R, typename... A>
auto with_options(R (*function)(A...)) {
  return spread_options<Members...>(function, std::make_index_sequence<sizeof...(A) - 1>());
}

/// The operators of one module.
class Operators {
 public:
  explicit Operators(binding::Module& module) : module_(module) {}

  /// One row. `shown` picks what Python gets of the result.
  template <typename Function, typename Shown = std::identity>
  void add(const char* name, Function function, Shown shown = {}) {
    bind(name, std::function{std::move(function)}, shown);
  }

 private:
  template <typename R, typename... A, typename Shown>
  void bind(const char* name, std::function<R(A...)> function, Shown shown) {
    auto call = [function = std::move(function),
                 shown](typename Parameter<std::remove_cvref_t<A>>::Raw... raw) {
      const std::tuple kept{Parameter<std::remove_cvref_t<A>>::keep(std::move(raw))...};
      auto result = [&] {
        const binding::GilReleased unlocked;
        return std::apply(
            [&](const auto&... each) {
              return settled(function(Parameter<std::remove_cvref_t<A>>::pass(each)...));
            },
            kept);
      }();
      return to_python(shown(value_or_raise(std::move(result))));
    };
    module_.def(name, call);
  }

  binding::Module& module_;
};

void add_movement(Operators& operators);
void add_elementwise(Operators& operators);
void add_norms(Operators& operators);
void add_selection(Operators& operators);
void add_products(Operators& operators);
void add_attention(Operators& operators);
/// Operators that are called by name, with arguments of any kind.
void bind_aten(binding::Module& m);

/// Reads what arguments need of assay._run; before the first call.
void prepare_operands();

}  // namespace assay::python
