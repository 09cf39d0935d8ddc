// SPDX-License-Identifier: Apache-2.0
// Types of Python made of what is known of C++ classes.
#include "python/binding/class.hpp"

namespace assay::binding {
namespace {

PyObject* get_property(PyObject* self, void* closure) {
  try {
    return static_cast<const Property*>(closure)->get(self).release();
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

}  // namespace

void ClassRecord::create(Module& module, const char* class_name, const char* text,
                         PyType_Spec spec) {
  name = class_name;
  full_name = module.name() + "." + name;
  document = text;
  spec.name = full_name.c_str();  // Python 3.9 keeps the pointer
  const Object made = checked(PyType_FromSpec(&spec));
  type = reinterpret_cast<PyTypeObject*>(Object(made).release());
  module.set(class_name, made);
  module.describe(tuple_of("class", name, "", document, members));
}

// Set as an attribute, a method such as __len__ fills its slot of the type, too.
void ClassRecord::add_method(Function& function) {
  const Object made = checked(PyDescr_NewMethod(type, &function.definition));
  check(
      PyObject_SetAttrString(reinterpret_cast<PyObject*>(type), function.name.c_str(), made.ptr()));
  members.append(describe(function, function.name));
}

void ClassRecord::add_property(Property property) {
  properties.push_back(std::move(property));
  Property& kept = properties.back();
  kept.definition = {kept.name.c_str(), &get_property, nullptr,
                     kept.document.empty() ? nullptr : kept.document.c_str(), &kept};
  const Object made = checked(PyDescr_NewGetSet(type, &kept.definition));
  check(PyObject_SetAttrString(reinterpret_cast<PyObject*>(type), kept.name.c_str(), made.ptr()));
  members.append(tuple_of("property", kept.name, kept.annotation, kept.document));
}

}  // namespace assay::binding
