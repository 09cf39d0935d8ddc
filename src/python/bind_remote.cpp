// SPDX-License-Identifier: Apache-2.0
// Paths that lie elsewhere: through a helper process like the command's, and "memory://", whose
// files only this process has, through the same code in this process.

#include <memory>
#include <string>
#include <vector>

#include "base/python_program.hpp"
#include "python/module.hpp"
#include "remote/remote_files.hpp"

namespace py = assay::binding;

namespace assay::python {
namespace {

class InProcessCarrier : public remote::Carrier {
 public:
  Status carry(uint64_t, const std::string& request, const OnLine& on_line) override {
    std::vector<std::string> lines;
    {
      const py::GilHeld acquired;
      try {
        const py::Object answers = py::import_module("assay._remote").attr("answer_lines")(request);
        py::for_each(answers,
                     [&](py::Handle line) { lines.push_back(py::cast<std::string>(line)); });
      } catch (const py::PythonError& error) {
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
  const py::Object executable = py::import_module("sys").attr("executable");
  if (py::is_instance<py::Str>(executable)) use_python_program(py::cast<std::string>(executable));
  remote::register_remote_files();
  register_file_source("memory://",
                       remote::make_remote_files(std::make_shared<InProcessCarrier>()));
}

}  // namespace assay::python
