// SPDX-License-Identifier: Apache-2.0
// assay.opcheck(): the check of a dump's operations.
#include "engines/engines.hpp"
#include "opcheck/check.hpp"

#include <optional>

#include "locate/judge/operator_check.hpp"
#include "opcheck/registry.hpp"
#include "python/binding/class.hpp"
#include "python/module.hpp"
#include "python/table_rows.hpp"
#include "report/opcheck_files.hpp"
#include "report/opcheck_table.hpp"
#include "report/opcheck_terminal.hpp"

namespace py = assay::binding;
using namespace py::literals;

namespace assay::python {
namespace {

struct OpcheckOptions {
  opcheck::CaseOptions cases;
  opcheck::CheckOptions check;
};

Result<OpcheckOptions> options_of(const std::string& standard, const std::string& mode) {
  OpcheckOptions options;
  const std::optional<measure::Standard> named = measure::standard_from_name(standard);
  if (!named) return fail(Errc::Usage, "unknown standard '" + standard + "'");
  options.check.standard = *named;
  if (mode == "force_fp16") {
    options.check.precision_mode = opcheck::PrecisionMode::ForceFp16;
  } else if (mode == "force_fp32") {
    options.check.precision_mode = opcheck::PrecisionMode::ForceFp32;
  } else if (mode != "keep_origin_dtype") {
    return fail(Errc::Usage, "unknown precision mode '" + mode + "'");
  }
  return options;
}

report::OpcheckTableOptions table_of(const opcheck::Report& report) {
  report::OpcheckTableOptions table;
  table.by_rounding = report.by_rounding;
  return table;
}

py::List rows_of(const opcheck::Report& report) {
  const report::OpcheckTable table(table_of(report));
  const std::vector<std::string> columns = table.columns();
  py::List rows;
  for (const opcheck::CaseResult& result : report.cases) {
    for (const auto& cells : table.rows(result)) rows.append(row_dict(columns, cells));
  }
  return rows;
}

std::vector<std::string> write_files(const opcheck::Report& report, const std::string& folder,
                                     const std::vector<std::string>& formats) {
  report::OpcheckWriter writer = value_or_raise(report::OpcheckWriter::open(
      {folder, report::opcheck_timestamp(), formats}, table_of(report)));
  for (const opcheck::CaseResult& result : report.cases) value_or_raise(writer.add(result));
  return value_or_raise(writer.finish(report));
}

}  // namespace

void bind_opcheck(py::Module& m) {
  py::Class<opcheck::Report>(m, "_Report")
      .def("rows", &rows_of)
      .def("counts",
           [](const opcheck::Report& self) {
             const opcheck::Report::Counts counts = self.counts();
             py::Dict result;
             result["passed"] = counts.passed;
             result["failed"] = counts.failed;
             result["not_supported"] = counts.not_supported;
             result["errors"] = counts.errors;
             result["outputs"] = counts.outputs;
             return result;
           })
      .property("warnings",
                [](const opcheck::Report& self) {
                  py::List list;
                  for (const std::string& warning : self.warnings) list.append(to_message(warning));
                  if (!self.nothing_matched.empty())
                    list.append(to_message("nothing was checked: " + self.nothing_matched));
                  return list;
                })
      .def("text",
           [](const opcheck::Report& self, int width) {
             report::OpcheckTerminalOptions options;
             options.width = width;
             return to_message(report::opcheck_terminal_report(self, options));
           })
      .def("write", &write_files, "folder"_a, "formats"_a);
  m.def(
      "check_run",
      [](const std::string& path, const std::vector<std::string>& ids,
         const std::vector<std::string>& names, const std::string& csv, bool kernels,
         const std::string& standard, const std::string& precision_mode, bool kl_divergence,
         int jobs, uint64_t max_memory) {
        OpcheckOptions options = value_or_raise(options_of(standard, precision_mode));
        options.cases = {ids, names, csv, kernels};
        options.check.kl_divergence = kl_divergence;
        options.check.jobs = jobs;
        if (max_memory != 0) options.check.max_memory = max_memory;
        return read_without_gil([&]() -> Result<opcheck::Report> {
          ASSAY_TRY(const locate::CheckSubject subject,
                    locate::find_check_subject(path, options.cases, options.check, engines::all()));
          return locate::check_subject(subject, names, options.check, engines::all());
        });
      },
      "path"_a, "ids"_a, "names"_a, "csv"_a, "kernels"_a, "standard"_a, "precision_mode"_a,
      "kl_divergence"_a, "jobs"_a, "max_memory"_a);
  m.def("operators", [] {
    py::List list;
    for (const opcheck::OperationRow& op : opcheck::all_operators()) {
      py::Dict entry;
      entry["name"] = to_str(op.name);
      entry["variants"] = to_str(op.variants);
      entry["parameters"] = to_str(op.parameters);
      entry["outputs"] = to_str(op.outputs);
      entry["precision"] = to_str(op.precision);
      list.append(entry);
    }
    return list;
  });
}

}  // namespace assay::python
