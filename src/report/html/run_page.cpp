// SPDX-License-Identifier: Apache-2.0
// One table: a row for each record, with its statistics where the capture has them.
#include "report/html/run_page.hpp"

#include "base/text.hpp"
#include "compare/compare.hpp"
#include "report/column.hpp"
#include "report/html/place.hpp"
#include "report/html/sides.hpp"
#include "report/html/table_data.hpp"

namespace assay::report::html {
namespace {

using run::TensorRecord;
using stats::TensorStats;

struct Shown {
  const run::Run& run;
  const TensorRecord& record;
};

const TensorRecord* record_of(const Shown& row) { return &row.record; }
/// The cell of one of the statistics; empty where there are none.
auto of_stats(double TensorStats::* number) {
  return [number](const Shown& row) {
    const auto stats = row.record.stats.without_sketch();
    return stats ? Cell::of((*stats).*number) : Cell{};
  };
}
std::string recorded_dtype(const TensorRecord& record) {
  return record.dtype ? std::string(name(*record.dtype)) : "";
}
std::string recorded_shape(const TensorRecord& record) {
  return record.shape ? list_text(record.shape->span()) : "";
}
auto size_of(const TensorRecord& record) {
  return Cell::of(record.bytes ? static_cast<int64_t>(record.bytes->size_bytes) : int64_t{0});
}

Columns<Shown> run_columns() {
  using R = TensorRecord;
  using S = TensorStats;
  return {{"token_id", of(record_of, &R::step)},
          {"node", of(record_of, &R::node)},
          {"op_type", of(record_of, &R::op_type)},
          {"dtype", of(record_of, recorded_dtype)},
          {"shape", of(record_of, recorded_shape)},
          {"min", of_stats(&S::min)},
          {"max", of_stats(&S::max)},
          {"mean", of_stats(&S::mean)},
          {"l2norm", of_stats(&S::l2_norm)},
          {"bytes", of(record_of, size_of)},
          {"value", of(record_of, &R::value)},
          {"problem", of(record_of, &R::problem)},
          {"rank", of(record_of, &R::rank)},
          {"data_path", of(record_of, compare::record_path)},
          {"module", [](const Shown& row) { return Cell::of(module_of(row.run, row.record)); }},
          {"operator", of(record_of, operator_of)},
          {"role", of(record_of, [](const R& one) { return role_name(one.role); })},
          {"slot", of(record_of, &R::slot)},
          {"call", of(record_of, &R::call)}};
}

std::string sentence_of(const run::Run& run) {
  const std::string what =
      std::string(run::layout_title(run.layout)) + " with " + counted(run.records.size(), "record");
  if (const std::string damage = run.first_damage(); !damage.empty())
    return what + "; damaged: " + damage;
  return what + (run.coverage.complete ? "" : "; the capture did not finish");
}

}  // namespace

Page run_page(const run::Run& run, std::span<const size_t> records) {
  const bool whole = run.coverage.complete && run.first_damage().empty();
  Page page = begin_page("run", "assay: " + run.path, sentence_of(run), whole ? "good" : "open");
  Json& json = page.content;
  json["notes"] = texts_json(run.findings);
  json["warnings"] = texts_json(run.warnings);
  json["order_known"] = run.order_known;
  json["sides"] = {side_json(run, "run")};
  json["table"] =
      add_table(records.size(),
                page_columns(run_columns(),
                             [&](size_t row) { return Shown{run, run.records[records[row]]}; }),
                "c", &page.blobs);
  return page;
}

}  // namespace assay::report::html
