// SPDX-License-Identifier: Apache-2.0
// C++ functions as functions of Python. Their parameter and result types say how arguments and
// results convert, what a wrong argument is told, and the annotations of the stub
// (tools/write_stub.py).
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "python/binding/convert.hpp"

namespace assay::binding {

/// A parameter's name, and perhaps its default: "jobs"_a = 0.
struct Arg {
  const char* name;
  Object value = {};  // the default

  template <typename T>
  Arg operator=(T&& given) && {  // NOLINT: `"jobs"_a = 0` reads as the parameter does in Python
    return {name, cast(std::forward<T>(given))};
  }
};
namespace literals {
inline Arg operator""_a(const char* name, size_t) { return {name}; }
}  // namespace literals

/// Parameters after it are passed by name only.
struct KeywordOnly {};
/// Annotation of the result where its C++ type says less: Returns{"str | None"}.
struct Returns {
  const char* annotation;
};

/// A C++ function as Python calls it. Lives as long as the process: Python keeps pointers to it.
struct Function {
  std::string name;
  std::string text;  // signature and document, as Python's inspect module takes both apart
  std::string document;
  std::vector<Arg> parameters;  // without self
  std::vector<Object> names;    // of the parameters, as callers spell them: interned
  std::vector<std::string> annotations;
  std::string result;
  size_t positional = 0;  // parameters that may be passed by position
  bool named = true;      // false: none has a name
  bool has_self = false;
  PyMethodDef definition{};
  /// values[0] is self, if the function has one.
  std::function<Object(const Handle* values)> call;

  /// "(self, index: int) -> Record"
  [[nodiscard]] std::string signature() const;
};

/// Calls with a tuple of arguments and perhaps a dict of named ones. Nothing: an error is set.
PyObject* call_function(const Function& function, PyObject* self, PyObject* args,
                        PyObject* keywords) noexcept;
/// Sets the error of Python for the C++ exception that is being handled.
void set_python_error() noexcept;
/// `translate` rethrows the exception that is being handled, and sets the error for those that it
/// knows.
void use_exception_translator(void (*translate)());

/// Completes a function and gives it an entry of its own that Python can call.
Function& register_function(std::unique_ptr<Function> function);
/// ("def", name, signature, document), as the stub has them.
Tuple describe(const Function& function, const std::string& name);

[[noreturn]] void refuse_argument(const Function& function, size_t index, Handle value, Fit fit,
                                  const std::string& expected);

/// The plain function type of anything callable; of members, with the object as first parameter.
template <typename F>
struct SignatureOf : SignatureOf<decltype(&F::operator())> {
  template <typename>
  struct WithoutFirst;
  template <typename R, typename C, typename... A>
  struct WithoutFirst<R(C, A...)> {
    using Type = R(A...);
  };
  using Type = typename WithoutFirst<typename SignatureOf<decltype(&F::operator())>::Type>::Type;
};
template <typename R, typename... A>
struct SignatureOf<R (*)(A...)> {
  using Type = R(A...);
};
template <typename R, typename... A>
struct SignatureOf<std::function<R(A...)>> {
  using Type = R(A...);
};
template <typename R, typename C, typename... A>
struct SignatureOf<R (C::*)(A...)> {
  using Type = R(C&, A...);
};
template <typename R, typename C, typename... A>
struct SignatureOf<R (C::*)(A...) const> {
  using Type = R(const C&, A...);
};
template <typename V, typename C>
  requires(!std::is_function_v<V>)
struct SignatureOf<V C::*> {
  using Type = V(const C&);
};

template <typename T>
using ConverterOf = Converter<std::decay_t<T>>;

template <typename T>
void load_argument(const Function& function, size_t index, Handle value,
                   typename ConverterOf<T>::Stored* stored) {
  const Fit fit = ConverterOf<T>::load(value, stored);
  if (fit != Fit::Yes) [[unlikely]]
    refuse_argument(function, index, value, fit, ConverterOf<T>::expected());
}

template <typename R, typename... A, typename F, size_t... I>
Object invoke_converted(const Function& function, const F& callable,
                        [[maybe_unused]] const Handle* values, std::index_sequence<I...>) {
  [[maybe_unused]] std::tuple<typename ConverterOf<A>::Stored...> stored{};
  (load_argument<A>(function, I, values[I], &std::get<I>(stored)), ...);
  if constexpr (std::is_void_v<R>) {
    std::invoke(callable, ConverterOf<A>::pass(std::get<I>(stored))...);
    return none();
  } else {
    return ConverterOf<R>::give(
        std::invoke(callable, ConverterOf<A>::pass(std::get<I>(stored))...));
  }
}

inline void add_extra(Function& function, Arg argument) {
  function.parameters.push_back(std::move(argument));
}
inline void add_extra(Function& function, KeywordOnly) {
  function.positional = function.parameters.size();
}
inline void add_extra(Function& function, Returns returns) { function.result = returns.annotation; }
inline void add_extra(Function& function, const char* document) { function.document = document; }

template <typename>
struct MadeFunction;
template <typename R, typename... A>
struct MadeFunction<R(A...)> {
  template <typename F, typename... Extra>
  static std::unique_ptr<Function> make(const char* name, bool has_self, F callable,
                                        Extra&&... extra) {
    auto made = std::make_unique<Function>();
    Function& function = *made;
    function.name = name;
    function.has_self = has_self;
    function.annotations = {ConverterOf<A>::parameter()...};
    if (has_self) function.annotations.erase(function.annotations.begin());
    if constexpr (std::is_void_v<R>)
      function.result = "None";
    else
      function.result = ConverterOf<R>::result();
    function.positional = sizeof...(A);  // until KeywordOnly says less
    (add_extra(function, std::forward<Extra>(extra)), ...);
    function.call = [&function, callable = std::move(callable)](const Handle* values) {
      return invoke_converted<R, A...>(function, callable, values, std::index_sequence_for<A...>());
    };
    return made;
  }
};

/// extra  Arg, KeywordOnly, Returns, a document
template <typename F, typename... Extra>
Function& make_function(const char* name, bool has_self, F callable, Extra&&... extra) {
  return register_function(MadeFunction<typename SignatureOf<F>::Type>::make(
      name, has_self, std::move(callable), std::forward<Extra>(extra)...));
}

/// A module while it is filled.
class Module {
 public:
  Module(Object module, std::string name) : module_(std::move(module)), name_(std::move(name)) {}

  [[nodiscard]] const std::string& name() const { return name_; }
  template <typename T>
  void set(const char* name, T&& value) {
    check(PyObject_SetAttrString(module_.ptr(), name, cast(std::forward<T>(value)).ptr()));
  }
  /// Adds to what the stub is written from.
  void describe(const Tuple& entry) { description_.append(Object(entry)); }
  [[nodiscard]] const List& description() const { return description_; }
  template <typename F, typename... Extra>
  Module& def(const char* name, F callable, Extra&&... extra) {
    add(make_function(name, false, std::move(callable), std::forward<Extra>(extra)...));
    return *this;
  }

 private:
  void add(Function& function);

  Object module_;
  std::string name_;
  List description_;
};

/// What PyInit_<name>() does.
PyObject* make_module(const char* name, const char* document,
                      void (*fill)(Module& module)) noexcept;

}  // namespace assay::binding
