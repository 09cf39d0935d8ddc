// SPDX-License-Identifier: Apache-2.0
// Rows as JSON lines, until opcheck_files.cpp and opcheck_terminal.cpp are written: delete it with them.
#include <cstdio>
#include <nlohmann/json.hpp>
#include "report/opcheck_files.hpp"
#include "report/opcheck_terminal.hpp"
namespace assay::report {
std::string opcheck_timestamp() { return "20260101_000000"; }
struct OpcheckWriter::State {
  std::string path;
  std::FILE* f;
};
OpcheckWriter::OpcheckWriter() = default;
OpcheckWriter::OpcheckWriter(OpcheckWriter&&) noexcept = default;
OpcheckWriter& OpcheckWriter::operator=(OpcheckWriter&&) noexcept = default;
OpcheckWriter::~OpcheckWriter() = default;
Result<OpcheckWriter> OpcheckWriter::open(const OpcheckFileOptions& f, const OpcheckTableOptions&) {
  OpcheckWriter w;
  w.state_ = std::make_unique<State>();
  w.state_->path = f.folder + "/opcheck_result_" + f.timestamp + ".jsonl";
  w.state_->f = std::fopen(w.state_->path.c_str(), "w");
  return w;
}
Status OpcheckWriter::add(const opcheck::CaseResult& r) {
  for (auto& row : r.rows) {
    nlohmann::json j;
    j["op_id"] = r.description.id;
    j["op_name"] = r.description.op_type;
    j["result"] = std::string(opcheck::outcome_name(row.outcome));
    j["reason"] = row.reason;
    j["note"] = row.note;
    j["variant"] = r.variant;
    j["output"] = (row.in_place ? "intensor" : "outtensor") + std::to_string(row.index) +
                  (row.in_place ? " after" : "");
    j["max_abs"] = row.measures.max_abs_error;
    j["rank"] = r.description.rank;
    j["step"] = r.description.step;
    std::fprintf(state_->f, "%s\n", j.dump().c_str());
  }
  return {};
}
Result<std::vector<std::string>> OpcheckWriter::finish(const opcheck::Report&) {
  std::fclose(state_->f);
  return std::vector<std::string>{state_->path};
}
std::string opcheck_terminal_report(const opcheck::Report& r, const OpcheckTerminalOptions&) {
  auto c = r.counts();
  char b[200];
  std::snprintf(b, 200, "pass %zu failed %zu ns %zu err %zu in %.3f s\n", c.passed, c.failed,
                c.not_supported, c.errors, r.seconds);
  return b;
}
}  // namespace assay::report
