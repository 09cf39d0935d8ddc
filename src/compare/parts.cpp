// SPDX-License-Identifier: Apache-2.0
// What travels to a node and back is packed by one transfer() for each type, which writes and
// reads. Pairs with a tensor that no file holds as it is are compared here.
#include "compare/parts.hpp"

#include <algorithm>

#include "compare/pair_loop.hpp"
#include "run/do_parts.hpp"
#include "run/part_archive.hpp"

namespace assay {
namespace {

using run::check_range;

constexpr std::string_view kAnswerMark = "assay rows 1";

}  // namespace

namespace measure {
template <typename Archive, typename Metrics>
  requires std::same_as<std::remove_const_t<Metrics>, PairNumbers>
void transfer(Archive& archive, Metrics& metrics) {
  archive(metrics.state);
  check_range(archive, metrics.state <= PairState::NonFinite);
  for (const MetricField& field : kMetricFields) archive(metrics.*field.value);
  for (const CountField& field : kCountFields) archive(metrics.*field.value);
  archive(metrics.kl_row_mean, metrics.kl_row_max);
}
template <typename Archive, typename Any>
  requires std::same_as<std::remove_const_t<Any>, Patterns>
void transfer(Archive& archive, Any& patterns) {
  for (const PatternField& field : kPatternFields) archive(patterns.*field.value);
}
template <typename Archive, typename Error>
  requires std::same_as<std::remove_const_t<Error>, SummaryError>
void transfer(Archive& archive, Error& error) {
  archive(error.absolute, error.relative);
}
template <typename Archive, typename Errors>
  requires std::same_as<std::remove_const_t<Errors>, SummaryErrors>
void transfer(Archive& archive, Errors& errors) {
  archive(errors.max, errors.min, errors.mean, errors.l2_norm);
}
}  // namespace measure

namespace pair {
template <typename Archive, typename Step>
  requires std::same_as<std::remove_const_t<Step>, RecipeStep>
void transfer(Archive& archive, Step& step) {
  archive(step.kind, step.axis, step.first, step.last, step.order, step.shape);
  check_range(archive, step.kind <= RecipeStep::Kind::Transpose);
}
template <typename Archive, typename Any>
  requires std::same_as<std::remove_const_t<Any>, Recipe>
void transfer(Archive& archive, Any& recipe) {
  archive(recipe.records, recipe.merge, recipe.axis, recipe.blocks, recipe.steps, recipe.note,
          recipe.flat);
  check_range(archive, recipe.merge <= Merge::Pick);
}
template <typename Archive, typename Pair>
  requires std::same_as<std::remove_const_t<Pair>, RecordPair>
void transfer(Archive& archive, Pair& pair) {
  archive(pair.golden, pair.mine, pair.rule, pair.speculative, pair.confidence, pair.golden_recipe,
          pair.mine_recipe, pair.data_id, pair.token, pair.golden_label, pair.mine_label,
          pair.golden_in_mine);
  check_range(archive, pair.rule <= Rule::Place);
}
}  // namespace pair

namespace compare {

template <typename Archive, typename Any>
  requires std::same_as<std::remove_const_t<Any>, Limit>
void transfer(Archive& archive, Any& limit) {
  archive(limit.atol, limit.rtol, limit.cos, limit.rel_l2);
}
template <typename Archive, typename Rule>
  requires std::same_as<std::remove_const_t<Rule>, LimitRule>
void transfer(Archive& archive, Rule& rule) {
  archive(rule.match, rule.dtype, rule.op_type, rule.limit);
}
template <typename Archive, typename Path>
  requires std::same_as<std::remove_const_t<Path>, RecordPath>
void transfer(Archive& archive, Path& path) {
  path.transfer_parts([&](auto&... parts) { archive(parts...); });
  check_range(archive, path.is_valid());
}
template <typename Archive, typename Side>
  requires std::same_as<std::remove_const_t<Side>, SideSummary>
void transfer(Archive& archive, Side& side) {
  archive(side.path, side.op_type, side.dtype, side.shape, side.max, side.min, side.mean,
          side.l2_norm);
}

void transfer(ByteWriter& archive, const AlgorithmValue& value) {
  archive(value.message);
  run::write_value(archive, value.value);
}
void transfer(ArchiveReader& archive, AlgorithmValue& value) {
  archive(value.message);
  run::read_value(archive, &value.value);
}

template <typename Archive, typename Any>
  requires std::same_as<std::remove_const_t<Any>, Row>
void transfer(Archive& archive, Any& row) {
  archive(row.token_id, row.rank, row.order, row.label, row.matched_by, row.confidence, row.golden,
          row.mine, row.metrics, row.patterns, row.golden_norm, row.summary, row.shape_relation,
          row.identical, row.comparable, row.fail_reason, row.note, row.outcome, row.exceeded,
          row.outside_tolerance, row.sqnr_db, row.quantisation, row.custom, row.filtered);
  check_range(archive,
              row.matched_by <= pair::Rule::Place && row.outcome <= Outcome::Fail &&
                  row.shape_relation.value_or(ShapeRelation::Same) <= ShapeRelation::Different);
}

namespace {

bool names_what_is_there(const pair::Matching& matching, const run::Run& golden,
                         const run::Run& mine) {
  const auto knows = [&](int32_t recipe, const run::Run& run) {
    if (recipe < 0) return true;
    if (static_cast<size_t>(recipe) >= matching.recipes.size()) return false;
    const pair::Recipe& one = matching.recipes[static_cast<size_t>(recipe)];
    return !one.records.empty() && std::ranges::all_of(one.records, [&](size_t record) {
      return record < run.records.size();
    });
  };
  return std::ranges::all_of(matching.pairs, [&](const pair::RecordPair& pair) {
    return pair.mine < mine.records.size() &&
           pair.golden < (pair.golden_in_mine ? mine : golden).records.size() &&
           knows(pair.golden_recipe, golden) && knows(pair.mine_recipe, mine);
  });
}

}  // namespace

void PairsElsewhere::add(size_t sheet, const pair::Matching& matching, const pair::RecordPair& pair,
                         Row* row) {
  tasks_.push_back({sheet, &matching, &pair, row});
}

bool PairsElsewhere::can_be_sent(const Task& task) const {
  const auto is_plain = [](const run::TensorRecord& record) { return record.made() == nullptr; };
  const auto are_plain = [&](int32_t recipe, const run::Run& run) {
    return recipe < 0 || std::ranges::all_of(
                             task.matching->recipes[static_cast<size_t>(recipe)].records,
                             [&](size_t record) { return is_plain(run.records[record]); });
  };
  return is_plain(golden_record(golden_, mine_, *task.pair)) &&
         is_plain(mine_.records[task.pair->mine]) && are_plain(task.pair->golden_recipe, golden_) &&
         are_plain(task.pair->mine_recipe, mine_);
}

run::TaskPlace PairsElsewhere::place_of(const Task& task) const {
  const run::TensorRecord& mine = mine_.records[task.pair->mine];
  const auto has_several = [&](int32_t recipe) {
    return recipe >= 0 && task.matching->recipes[static_cast<size_t>(recipe)].records.size() > 1;
  };
  return {.group = task.sheet,
          .rank = mine.rank,
          .step = mine.step,
          .bytes = comparer_.payload_bytes(*task.pair),
          .crosses_ranks =
              has_several(task.pair->golden_recipe) || has_several(task.pair->mine_recipe)};
}

std::string PairsElsewhere::pack(const run::Part& part) const {
  run::SomeRecords of_golden(golden_);
  run::SomeRecords of_mine(mine_);
  std::vector<pair::RecordPair> pairs;
  std::vector<pair::Recipe> recipes;
  for (const size_t number : part.tasks) {
    const Task& task = tasks_[number];
    const auto add_recipe = [&](int32_t recipe, run::SomeRecords* side) -> int32_t {
      if (recipe < 0) return -1;
      pair::Recipe copy = task.matching->recipes[static_cast<size_t>(recipe)];
      for (size_t& record : copy.records) record = side->place_of(record);
      recipes.push_back(std::move(copy));
      return static_cast<int32_t>(recipes.size() - 1);
    };
    pair::RecordPair pair = *task.pair;
    pair.golden = (pair.golden_in_mine ? of_mine : of_golden).place_of(pair.golden);
    pair.mine = of_mine.place_of(pair.mine);
    pair.golden_recipe = add_recipe(pair.golden_recipe, &of_golden);
    pair.mine_recipe = add_recipe(pair.mine_recipe, &of_mine);
    pairs.push_back(std::move(pair));
  }
  ByteWriter out;
  out(std::string(kPairsMark), options_.statistics, options_.limits.rules,
      options_.limits.fallback);
  of_golden.write(out);
  of_mine.write(out);
  out(pairs, recipes);
  return out.take();
}

std::vector<std::string> PairsElsewhere::files_of(const run::Part& part) const {
  run::PartFiles files;
  for (const size_t number : part.tasks) {
    const Task& task = tasks_[number];
    const auto add_recipe = [&](int32_t recipe, const run::Run& run) {
      if (recipe < 0) return;
      for (const size_t record : task.matching->recipes[static_cast<size_t>(recipe)].records)
        files.add(run.records[record]);
    };
    files.add(golden_record(golden_, mine_, *task.pair));
    files.add(mine_.records[task.pair->mine]);
    add_recipe(task.pair->golden_recipe, golden_);
    add_recipe(task.pair->mine_recipe, mine_);
  }
  return files.list();
}

void PairsElsewhere::refuse(const run::Part& part, const Error& why) {
  if (why.code == Errc::Interrupted) unfinished_ += part.tasks.size();
  for (const size_t number : part.tasks)
    *tasks_[number].row =
        comparer_.refuse(*tasks_[number].pair, "not compared: " + why.describe() + ".");
}

void PairsElsewhere::take(const run::Part& part, run::PartRunner::Outcome outcome) {
  if (!outcome) return refuse(part, outcome.error());
  Result<PartRows> rows = unpack_rows(as_bytes(*outcome));
  if (rows && rows->rows.size() != part.tasks.size())
    rows = fail(Errc::Invalid, "the answer has other rows than the part");
  if (!rows) return refuse(part, rows.error());
  for (size_t i = 0; i < part.tasks.size(); ++i)
    *tasks_[part.tasks[i]].row = std::move(rows->rows[i]);
  compared_bytes_ += rows->compared_bytes;
  for (run::Damage& damage : rows->golden_damage) golden_.found_damage->add(std::move(damage));
  for (run::Damage& damage : rows->my_damage) mine_.found_damage->add(std::move(damage));
}

Result<std::vector<size_t>> PairsElsewhere::compare() {
  return run::do_parts(
      *options_.parts,
      {.count = tasks_.size(),
       .can_be_sent = [&](size_t i) { return can_be_sent(tasks_[i]); },
       .place_of = [&](size_t i) { return place_of(tasks_[i]); },
       .files_of = [&](const run::Part& part) { return files_of(part); },
       .pack = [&](const run::Part& part) { return pack(part); },
       .take = [&](const run::Part& part,
                   run::PartRunner::Outcome outcome) { take(part, std::move(outcome)); },
       .progress = options_.progress});
}

Result<std::string> run_part(ByteSpan request, CompareOptions options) {
  ArchiveReader archive(request);
  std::string mark;
  archive(mark);
  if (mark != kPairsMark) return fail(Errc::Invalid, "the part is of another version of assay");
  run::Run golden;
  run::Run mine;
  pair::Matching matching;
  archive(options.statistics, options.limits.rules, options.limits.fallback);
  run::read_run(archive, &golden);
  run::read_run(archive, &mine);
  archive(matching.pairs, matching.recipes);
  ASSAY_TRY_STATUS(archive.status());
  if (!archive.is_at_end() || !names_what_is_there(matching, golden, mine))
    return fail(Errc::Invalid, "the part names records that it does not have");
  std::vector<Row> rows(matching.pairs.size());
  PairComparer comparer(golden, mine, options);
  ASSAY_TRY_STATUS(for_each_pair(
      rows.size(), options, [&](size_t i) { return comparer.payload_bytes(matching.pairs[i]); },
      [&](size_t i, int threads) {
        rows[i] = comparer.compare(matching, matching.pairs[i], i, threads);
      }));
  ByteWriter out;
  out(std::string(kAnswerMark), rows, comparer.compared_bytes(), golden.found_damage->list(),
      mine.found_damage->list());
  return out.take();
}

Result<PartRows> unpack_rows(ByteSpan answer) {
  ArchiveReader archive(answer);
  std::string mark;
  archive(mark);
  if (mark != kAnswerMark) return fail(Errc::Invalid, "the answer is of another version of assay");
  PartRows rows;
  archive(rows.rows, rows.compared_bytes, rows.golden_damage, rows.my_damage);
  ASSAY_TRY_STATUS(archive.status());
  return rows;
}

}  // namespace compare
}  // namespace assay
