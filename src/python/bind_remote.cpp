// SPDX-License-Identifier: Apache-2.0
// Paths that lie elsewhere: through a helper process like the command's, and "memory://", whose
// files only this process has, through the same code in this process.
#include <nanobind/stl/string.h>

#include <memory>
#include <string>
#include <vector>

#include "base/python_program.hpp"
#include "python/module.hpp"
#include "remote/remote_files.hpp"

namespace nb = nanobind;

namespace assay::python {
namespace {

class InProcessCarrier : public remote::Carrier {
 public:
  Status carry(uint64_t, const std::string& request, const OnLine& on_line) override {
    std::vector<std::string> lines;
    {
      const nb::gil_scoped_acquire acquired;
      try {
        const nb::object answers =
            nb::module_::import_("assay._remote").attr("answer_lines")(request);
        for (const nb::handle line : answers) lines.push_back(nb::cast<std::string>(line));
      } catch (const nb::python_error& error) {
        return fail(Errc::Io, error.what());
      }
    }
    for (const std::string& line : lines) {
      ASSAY_TRY(const bool goes_on, on_line(line));
      if (!goes_on) return {};
    }
    return fail(Errc::Internal, "a transfer ended without saying how");
  }
};

}  // namespace

void bind_remote() {
  // In a virtual environment the program file of this process is that of another Python.
  const nb::object executable = nb::module_::import_("sys").attr("executable");
  if (nb::isinstance<nb::str>(executable)) use_python_program(nb::cast<std::string>(executable));
  remote::register_remote_files();
  register_file_source("memory://",
                       remote::make_remote_files(std::make_shared<InProcessCarrier>()));
}

}  // namespace assay::python
