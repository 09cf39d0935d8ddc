// SPDX-License-Identifier: Apache-2.0
// raise() throws an Error through C++; the translator turns it into the exception that
// assay.errors.make_error chooses.

#include "python/binding/class.hpp"
#include "python/module.hpp"

namespace py = assay::binding;

namespace assay::python {
namespace {
/// Carries an Error from the place where it is raised to the translator below.
struct Raised {
  Error error;
};
}  // namespace

void raise(const Error& error) { throw Raised{error}; }

void bind_errors() {
  py::use_exception_translator([] {
    try {
      throw;
    } catch (const Raised& raised) {
      const Error& error = raised.error;
      const py::Object path = error.path.empty() ? py::none() : to_str(error.path);
      const py::Object exception =
          py::import_module("assay.errors")
              .attr("make_error")(errc_name(error.code), to_message(error.message), path,
                                  error.offset);
      PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
    }
  });
}

}  // namespace assay::python
