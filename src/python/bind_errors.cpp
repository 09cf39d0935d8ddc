// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>

#include "python/module.hpp"

namespace nb = nanobind;

namespace assay::python {
namespace {
/// Carries an Error from the place where it is raised to the translator below.
struct Raised {
  Error error;
};
}  // namespace

void raise(const Error& error) { throw Raised{error}; }

// What lives when the interpreter ends is the host's: objects that a daemon thread, IPython's among
// them, or an extension module still refers to. nanobind would call it a mistake of ours, in
// fifteen lines.
void be_quiet_at_exit() { nb::set_leak_warnings(false); }

void bind_errors(nb::module_&) {
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const Raised& raised) {
      const Error& error = raised.error;
      const std::string code(errc_name(error.code));
      nb::object path = error.path.empty() ? nb::none() : nb::object(to_str(error.path));
      nb::object offset = error.offset ? nb::object(nb::int_(*error.offset)) : nb::none();
      nb::object exception =
          nb::module_::import_("assay.errors")
              .attr("make_error")(nb::str(code.c_str()), to_message(error.message), path, offset);
      PyErr_SetObject(exception.type().ptr(), exception.ptr());
    }
  });
}

}  // namespace assay::python
