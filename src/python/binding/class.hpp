// SPDX-License-Identifier: Apache-2.0
// C++ classes as classes of Python: methods, read-only properties, perhaps a constructor. An
// instance holds its C++ object by value.
#pragma once
#include <cstddef>
#include <deque>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/binding/function.hpp"

namespace assay::binding {

/// Its parameters are those of a constructor: Init<const std::string&>().
template <typename... A>
struct Init {};

/// A read-only attribute that a function gives.
struct Property {
  std::string name;
  std::string document;
  std::string annotation;
  PyGetSetDef definition{};
  std::function<Object(PyObject* self)> get;
};

/// What is known of one class. Lives as long as the process.
struct ClassRecord {
  std::string name;
  std::string full_name;  // with the module's
  std::string document;
  PyTypeObject* type = nullptr;
  const Function* constructor = nullptr;
  std::deque<Property> properties;  // addresses stay
  List members = {};                // descriptions, in order

  /// Makes the type of Python and puts it into the module.
  void create(Module& module, const char* class_name, const char* text, PyType_Spec spec);
  void add_method(Function& function);
  void add_property(Property property);
};

template <typename T>
ClassRecord& class_record() {
  static auto* const record = new ClassRecord();  // never destroyed: instances outlive the module
  return *record;
}

template <typename T>
struct Instance {
  static_assert(alignof(T) <= alignof(std::max_align_t), "Python aligns objects no further");
  PyObject head;
  std::optional<T> value;  // none while the constructor runs

  static Instance* of(Handle handle) { return reinterpret_cast<Instance*>(handle.ptr()); }
  /// Without a value.
  static Object make(PyTypeObject* type) {
    Object made = checked(PyType_GenericAlloc(type, 0));
    new (&of(made)->value) std::optional<T>();
    return made;
  }
  static void destroy(PyObject* self) {
    PyTypeObject* const type = Py_TYPE(self);
    of(self)->value.~optional<T>();
    reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
    Py_DecRef(reinterpret_cast<PyObject*>(type));
  }
  /// __new__() of Python.
  static PyObject* construct(PyTypeObject* type, PyObject* args, PyObject* keywords) {
    try {
      const ClassRecord& record = class_record<T>();
      if (record.constructor == nullptr)
        throw PythonError(PyExc_TypeError, record.name + " has no constructor");
      const Object made = make(type);
      const Object done =
          Object::steal(call_function(*record.constructor, made.ptr(), args, keywords));
      return done ? Object(made).release() : nullptr;
    } catch (...) {
      set_python_error();
      return nullptr;
    }
  }
};

template <typename T>
class Class {
 public:
  Class(Module& module, const char* name, const char* document = "") : record_(class_record<T>()) {
    PyType_Slot slots[] = {
        {Py_tp_new, reinterpret_cast<void*>(&Instance<T>::construct)},
        {Py_tp_dealloc, reinterpret_cast<void*>(&Instance<T>::destroy)},
        {Py_tp_doc, const_cast<char*>(document)},
        {0, nullptr},
    };
    record_.create(module, name, document,
                   {nullptr, static_cast<int>(sizeof(Instance<T>)), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots});
  }

  /// extra  Arg, KeywordOnly, Returns, a document
  template <typename F, typename... Extra>
  Class& def(const char* name, F callable, Extra&&... extra) {
    record_.add_method(
        make_function(name, true, std::move(callable), std::forward<Extra>(extra)...));
    return *this;
  }
  template <typename... A, typename... Extra>
  Class& def(Init<A...>, Extra&&... extra) {
    const auto construct = [](Handle self, A... arguments) {
      Instance<T>::of(self)->value.emplace(std::forward<A>(arguments)...);
    };
    Function& made =
        make_function(record_.name.c_str(), true, construct, std::forward<Extra>(extra)...);
    record_.constructor = &made;
    record_.members.append(describe(made, "__init__"));
    return *this;
  }
  /// get    a function of the object, or a pointer to a member
  /// extra  Returns, a document
  template <typename F, typename... Extra>
  Class& property(const char* name, F get, Extra&&... extra) {
    using Signature = typename SignatureOf<F>::Type;
    add_property(name, std::move(get), static_cast<Signature*>(nullptr),
                 std::forward<Extra>(extra)...);
    return *this;
  }

 private:
  template <typename F, typename R, typename Self, typename... Extra>
  void add_property(const char* name, F get, R (*)(Self), Extra&&... extra) {
    Function described;  // only for what the extras say
    described.result = ConverterOf<R>::result();
    (add_extra(described, std::forward<Extra>(extra)), ...);
    // Python checks the type of self before it asks.
    record_.add_property(
        {name, described.document, described.result, {}, [get = std::move(get)](PyObject* self) {
           return ConverterOf<R>::give(std::invoke(get, *Instance<T>::of(self)->value));
         }});
  }

  ClassRecord& record_;
};

/// The C++ object of an instance.
template <typename T>
T& object_of(Handle instance) {
  return *Instance<T>::of(instance)->value;
}

template <typename T>
bool is_instance(Handle handle) {
  PyTypeObject* const type = Py_TYPE(handle.ptr());
  PyTypeObject* const wanted = class_record<T>().type;
  return type == wanted || PyType_IsSubtype(type, wanted) != 0;
}

template <typename T>
std::string Converter<T>::parameter() {
  return class_record<T>().name;
}

template <typename T>
Fit Converter<T>::load(Handle source, T** stored) {
  if (!is_instance<T>(source)) return Fit::OtherType;
  *stored = &object_of<T>(source);
  return Fit::Yes;
}

template <typename T>
Object Converter<T>::give(T value) {
  Object made = Instance<T>::make(class_record<T>().type);
  Instance<T>::of(made)->value.emplace(std::move(value));
  return made;
}

}  // namespace assay::binding
