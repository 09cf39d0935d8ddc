// SPDX-License-Identifier: Apache-2.0
// For every tensor of golden's modules the steps of mine are searched for rows of the same tokens.
// What is found becomes a new record: these rows put together and brought into golden's order.
#include "locate/verdict/step_modules.hpp"

#include <algorithm>
#include <set>

#include "locate/noise/record_distance.hpp"
#include "locate/program/owner.hpp"
#include "locate/verdict/made_rows.hpp"
#include "locate/verdict/unjudged_steps.hpp"
#include "pair/slices.hpp"
#include "run/common_names.hpp"

namespace assay::locate {
namespace {

using pair::RowSelection;
using pair::StepRows;
using run::Run;
using run::TensorRecord;

bool is_of_module(const TensorRecord& record) {
  return pair::is_operand(record) && record.step >= 0 &&
         (record.role == Role::Input || record.role == Role::Output) && !record.is_of_operator();
}

/// Where a record's rows stand among those of several records one after the other.
std::vector<int64_t> in_order(const std::vector<std::pair<int64_t, int64_t>>& rows) {
  std::vector<int64_t> order;
  order.reserve(rows.size());
  for (const auto& [golden, mine] : rows) order.push_back(mine);
  return order;
}

}  // namespace

StepModules::RecordKey StepModules::key_of(const Run& run, const TensorRecord& record,
                                           int64_t step) {
  return {step, run::module_path(run, record.node), record.role, record.call, record.slot};
}

StepModules::StepModules(const Run& golden, const Run& mine, const pair::Correspondence& pairs)
    : run_(std::make_unique<Run>(mine)), notes_(pairs.steps.notes), partial_(pairs.steps.partial) {
  const int rank = pairs.ranks.first_golden();
  for (size_t i = 0; i < mine.records.size(); ++i) {
    TensorRecord& record = run_->records[i];
    order_ = std::max(order_, record.order + 1);
    if (!is_of_module(record)) continue;
    if (record.rank == rank) records_.emplace(key_of(mine, record, record.step), i);
    record.kind = run::RecordKind::WatchedAgain;  // no boundary of a call in golden's steps
  }
  std::map<int64_t, std::vector<const StepRows*>> steps;
  std::set<int64_t> unpaired;
  for (const auto& [key, record] : records_) unpaired.insert(std::get<0>(key));
  for (const StepRows& rows : pairs.steps.rows) {
    steps[rows.golden_step].push_back(&rows);
    unpaired.erase(rows.mine_step);
  }
  unpaired_.assign(unpaired.begin(), unpaired.end());
  for (size_t i = 0; i < golden.records.size(); ++i) {
    const TensorRecord& record = golden.records[i];
    if (record.rank != rank || !is_of_module(record)) continue;
    const auto found = steps.find(record.step);
    if (found == steps.end())
      missing_steps_.insert(record.step);
    else if (pairs.steps.is_by_tokens(run::module_path(golden, record.node)))
      add(golden, i, found->second);
  }
}

std::string StepModules::missing() const {
  if (!partial_) return {};
  const std::vector<int64_t> steps(missing_steps_.begin(), missing_steps_.end());
  return "golden has tokens that mine did not compute" +
         (steps.empty() ? "" : ", in " + steps_text(steps));
}

std::optional<StepModules::Rows> StepModules::rows_of(
    const Run& golden, const TensorRecord& record, const Dims& shape,
    const std::vector<const StepRows*>& steps) const {
  Rows out;
  // of golden's tensor; the other run's, one after the other
  std::vector<std::pair<int64_t, int64_t>> rows;
  for (const StepRows* step : steps) {
    const auto found = records_.find(key_of(golden, record, step->mine_step));
    if (found == records_.end()) continue;
    const TensorRecord& mine = run_->records[found->second];
    const std::optional<Dims> mine_shape = pair::shape_of_record(mine);
    if (!mine.bytes || !mine_shape) continue;
    const RowSelection chosen = pair::select_rows(*step, shape, *mine_shape);
    if (!chosen.known || chosen.keys) return std::nullopt;
    if (chosen.none) continue;
    if (chosen.whole) {
      out.recipe.records = {found->second};
      return out;
    }
    out.axis = chosen.axis;
    for (size_t i = 0; i < chosen.golden.size(); ++i)
      rows.emplace_back(chosen.golden[i], out.first + chosen.mine[i]);
    out.first += (*mine_shape)[chosen.axis];
    out.recipe.records.push_back(found->second);
  }
  if (rows.empty()) return std::nullopt;
  std::ranges::sort(rows);
  for (const auto& [row, in_mine] : rows) out.golden.push_back(row);
  const auto axis = static_cast<int>(out.axis);
  if (out.recipe.records.size() > 1) {
    out.recipe.merge = pair::Merge::Concat;
    out.recipe.axis = axis;
  }
  out.recipe.steps.push_back(
      {.kind = pair::RecipeStep::Kind::Permute, .axis = axis, .order = in_order(rows)});
  return out;
}

void StepModules::add(const Run& golden, size_t index, const std::vector<const StepRows*>& steps) {
  const TensorRecord& record = golden.records[index];
  const std::optional<Dims> shape = pair::shape_of_record(record);
  if (!shape) return;
  std::optional<Rows> rows = rows_of(golden, record, *shape, steps);
  if (!rows) return;
  Place place{rows->recipe.records, {}};
  const bool some =
      !rows->golden.empty() && static_cast<int64_t>(rows->golden.size()) < (*shape)[rows->axis];
  if (some && (!record.bytes || rows->axis + 2 != shape->size())) return;
  const TensorRecord first = run_->records[place.records.front()];
  auto made = std::make_shared<MadeRows>(*run_, std::move(rows->recipe));
  if (some) {
    partial_ = true;
    missing_steps_.insert(record.step);
    place.rows = rows->golden;
    made->fill_from(record, std::move(rows->golden), (*shape)[rows->axis]);
  }
  TensorRecord put = first;
  put.kind = run::RecordKind::Operand;
  put.step = record.step;
  put.step_name = record.step_name;
  put.node = first.node;
  put.order = order_ + index;  // golden's order of modules, in which they enclose each other
  put.shape = *shape;
  put.strides = contiguous_strides(*shape);
  put.bytes->raw = false;
  put.set_made(std::move(made));
  put.stats.reset();
  put.digest.reset();
  put.value_id = put.storage_id = -1;
  put.producer = -1;
  places_.emplace(run_->records.size(), std::move(place));
  run_->records.push_back(std::move(put));
}

void StepModules::describe(Program* mine) const {
  mine->regrouped = true;
  for (const auto& [record, place] : places_) {
    if (!place.rows.empty()) mine->computed_rows.emplace(record, place.rows);
  }
}

void StepModules::complete(Finding* finding) const {
  auto found = places_.find(finding->mine_record);
  if (finding->kind == FindingKind::Weight && finding->mine_operator == kNone) {
    const auto is_of_module = [&](const auto& place) {
      return is_inside(run::module_path(*run_, run_->records[place.first].node), finding->module);
    };
    found = std::ranges::find_if(places_, is_of_module);  // its first, as records are in order
  }
  if (found == places_.end()) return;
  const TensorRecord& first = run_->records[found->second.records.front()];
  const TensorRecord& last = run_->records[found->second.records.back()];
  finding->step = first.step;
  finding->time = first.order;
  if (first.step == last.step || finding->kind == FindingKind::Weight) return;
  finding->detail += (finding->detail.empty() ? "" : "; ") + std::string("in one of its steps ") +
                     std::to_string(first.step) + " to " + std::to_string(last.step);
}

void StepModules::put_back(Verdict* verdict) const {
  const auto captured = [this](size_t record) {
    const auto found = places_.find(record);
    return found == places_.end() ? record : found->second.records.front();
  };
  for (std::vector<Finding>* list : {&verdict->candidates, &verdict->suspicions}) {
    for (Finding& finding : *list) finding.mine_record = captured(finding.mine_record);
  }
  std::map<size_t, Verdict::RecordJudgement> records;
  for (auto& [record, judgement] : verdict->records) {
    const auto [found, is_new] = records.try_emplace(captured(record), judgement);
    // Of several of golden's steps the one that is wrong.
    if (!is_new && judgement.verdict != RowJudgement::Noise) found->second = std::move(judgement);
  }
  verdict->records = std::move(records);
}

}  // namespace assay::locate
