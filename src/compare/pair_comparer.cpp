// SPDX-License-Identifier: Apache-2.0
// Describes both sides, takes equal digests as they are, else reads the tensors and measures them,
// brings columns of two engines into one order, and judges the row.
#include "compare/pair_comparer.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>

#include "base/file_source.hpp"
#include "base/text.hpp"
#include "base/thread_pool.hpp"
#include "compare/comparability.hpp"
#include "compare/contradiction.hpp"
#include "compare/resident.hpp"
#include "compare/resident_files.hpp"
#include "pair/operand.hpp"
#include "pair/permutation.hpp"
#include "pair/tree.hpp"
#include "run/payload_check.hpp"
#include "stats/whole_tensor.hpp"
#include "tensor/convert.hpp"

namespace assay::compare {
namespace {

using run::Run;
using run::TensorRecord;

// Relative L2 distance from which on another order of columns is looked for, and up to which size.
constexpr double kOtherOrder = 0.05;
constexpr int64_t kMaxReorderedElements = int64_t{1} << 28;

// ---- what a row says about its sides ----

std::string record_label(const Run& run, const TensorRecord& record) {
  if (run.has(run::Trait::OneFile) && !record.slot.empty())
    return record.slot;  // a key of the file
  std::string text = pair::shared_node_name(run, record.node);
  if (text.empty()) text = "(model)";
  text += " " + std::string(role_name(record.role));
  if (!record.slot.empty()) text += " " + record.slot;
  if (record.call > 0) text += " call " + std::to_string(record.call);
  return text;
}

/// One tensor after the other has the type and shape of the one before, and a new text of theirs
/// takes a lock that all threads want.
InternedText text_of(DType dtype) {
  thread_local std::optional<DType> last;
  thread_local InternedText text;
  if (last != dtype) {
    text = torch_name(dtype);
    last = dtype;
  }
  return text;
}
InternedText text_of(const Dims& shape) {
  thread_local std::optional<Dims> last;
  thread_local InternedText text;
  if (!last || !(*last == shape)) {
    text = list_text(shape.span());
    last = shape;
  }
  return text;
}

SideSummary describe_record(const TensorRecord& record) {
  SideSummary side;
  side.path = RecordPath(record);
  side.op_type = record.op_type;
  if (record.dtype) side.dtype = text_of(*record.dtype);
  if (record.shape) side.shape = text_of(*record.shape);
  return side;
}

void describe_view(const TensorView& view, SideSummary* side) {
  side->dtype = text_of(view.dtype);
  side->shape = text_of(view.shape);
}

void fill_statistics(const stats::TensorStats& values, SideSummary* side) {
  const stats::TensorStats all = values.with_non_finite();
  side->max = all.max;
  side->min = all.min;
  side->mean = all.mean;
  side->l2_norm = all.l2_norm;
}

template <typename Text>
void add_sentence(std::string_view sentence, Text* text) {
  if (!text->empty()) *text += " ";
  *text += sentence;
}
template <typename Text>
void add_note(std::string_view note, Text* text) {
  if (!text->empty()) *text += "; ";
  *text += note;
}

measure::SummaryValues values_of(const SideSummary& side) {
  return {side.max, side.min, side.mean, side.l2_norm};
}

// ---- judging ----

// Elements with |m - g| > atol + rtol * |g|; positions that are not finite on both sides are the
// business of the pattern counts.
int64_t count_outside(const TensorView& golden, const TensorView& mine, double atol, double rtol,
                      int jobs) {
  constexpr int64_t kBlockElements = 1 << 16;
  const int golden_values = values_per_element(golden.dtype);
  const int mine_values = values_per_element(mine.dtype);
  if (golden_values != mine_values) return -1;
  const int64_t elements = golden.element_count();
  const auto blocks = static_cast<size_t>((elements + kBlockElements - 1) / kBlockElements);
  std::atomic<int64_t> outside{0};
  parallel_for(blocks, resolve_job_count(jobs), [&](size_t block) {
    const int64_t first = static_cast<int64_t>(block) * kBlockElements;
    const int64_t count = std::min(kBlockElements, elements - first);
    std::vector<double> g(static_cast<size_t>(count * golden_values));
    std::vector<double> m(g.size());
    read_values(golden, first, count, g);
    read_values(mine, first, count, m);
    int64_t found = 0;
    for (size_t i = 0; i < g.size(); ++i) {
      if (std::isfinite(g[i]) && std::isfinite(m[i]) &&
          std::abs(m[i] - g[i]) > atol + rtol * std::abs(g[i])) {
        ++found;
      }
    }
    outside += found;
  });
  return outside;
}

std::string exceeds(std::string_view what, double value, std::string_view relation, double limit) {
  return std::string(what) + " " + python_repr(value) + " " + std::string(relation) + " " +
         python_repr(limit);
}

void fail_row(std::string why, Row* row) {
  row->outcome = Outcome::Fail;
  add_note(why, &row->exceeded);
}

void judge_metrics(const measure::PairNumbers& metrics, const Limit& limit, Row* row) {
  if (row->has_pattern_mismatch()) fail_row("NaN or infinities at other places", row);
  if (row->shape_relation == ShapeRelation::Reshaped) fail_row("other shape", row);
  if (metrics.state != measure::PairState::Compared) return;
  if (limit.cos && !(metrics.cosine_similarity >= *limit.cos)) {
    fail_row(exceeds("cos", metrics.cosine_similarity, "<", *limit.cos), row);
  }
  if (limit.rel_l2 && !(metrics.relative_euclidean_distance <= *limit.rel_l2)) {
    fail_row(exceeds("rel_l2", metrics.relative_euclidean_distance, ">", *limit.rel_l2), row);
  }
  if (row->outside_tolerance > 0) {
    fail_row(std::to_string(row->outside_tolerance) + " elements beyond atol + rtol * |golden|",
             row);
  }
}

void judge_summary(const measure::SummaryErrors& errors, const SideSummary& golden,
                   const Limit& limit, Row* row) {
  const double values[] = {golden.max, golden.min, golden.mean, golden.l2_norm};
  for (size_t i = 0; (limit.atol || limit.rtol) && i < std::size(values); ++i) {
    const auto& [name, field] = measure::kSummaryFields[i];
    const double error = (errors.*field).absolute;
    const double allowed = limit.atol.value_or(0) + limit.rtol.value_or(0) * std::abs(values[i]);
    if (error > allowed) fail_row(exceeds(name, error, ">", allowed), row);
  }
  if (limit.rel_l2 && errors.l2_norm.relative > *limit.rel_l2) {
    // |‖m‖ - ‖g‖| is at most ‖m - g‖, so this much of the limit can be tested without the tensors.
    fail_row(exceeds("l2norm relative", errors.l2_norm.relative, ">", *limit.rel_l2), row);
  }
}

// ---- one pair of tensors ----

bool is_int8(DType dtype) { return dtype == DType::Int8 || dtype == DType::QInt8; }

// int8 values are codes; without scale and offset they say nothing about floats.
bool needs_scale(DType golden, DType mine) {
  return (is_int8(golden) && is_float(mine)) || (is_float(golden) && is_int8(mine));
}

void add_notes(const TensorView& golden, const TensorView& mine, Row* row) {
  if (golden.dtype != mine.dtype) add_note("dtype differs", &row->note);
  switch (*row->shape_relation) {
    case ShapeRelation::Same:
      break;
    case ShapeRelation::Squeezed:
      add_note("shape differs by axes of size 1", &row->note);
      break;
    case ShapeRelation::Merged:
      add_note("shape differs by joined axes", &row->note);
      break;
    case ShapeRelation::Reshaped:
      add_note("reshaped", &row->note);
      break;
    case ShapeRelation::Different:
      break;
  }
  if (row->metrics && row->metrics->state == measure::PairState::Empty)
    add_note("empty", &row->note);
}

// The user's own metrics and those of the conventions, for pairs that have the built-in ones.
void run_algorithms(const TensorView& golden, const TensorView& mine, const CompareOptions& options,
                    Row* row) {
  if (row->metrics->state != measure::PairState::Compared) return;
  std::vector<AlgorithmValue> values;
  for (const std::shared_ptr<Algorithm>& algorithm : options.algorithms)
    values.push_back(algorithm->compute(golden, mine));
  if (options.conventions.more_values != nullptr)
    std::ranges::move(options.conventions.more_values(golden, mine), std::back_inserter(values));
  row->custom = std::move(values);
  for (const AlgorithmValue& value : row->custom) {
    if (!value.message.empty()) add_sentence(value.message, &row->fail_reason);
  }
}

// The row of two records with the same content, from the statistics the capture took.
bool fill_from_digests(const TensorRecord& golden, const TensorRecord& mine, Row* row) {
  if (!golden.digest || golden.digest != mine.digest) return false;
  if (!golden.dtype || golden.dtype != mine.dtype || !golden.shape || !mine.shape) return false;
  if (!(*golden.shape == *mine.shape) || !golden.stats || golden.stats->has_non_finite())
    return false;
  measure::PairNumbers metrics;
  metrics.value_count = metrics.compared_count = golden.stats->count;
  metrics.masked_count = -1;  // known only from the values
  if (metrics.value_count > 0) {
    metrics.state = measure::PairState::Compared;
    metrics.cosine_similarity = 1;
    metrics.max_relative_error = metrics.mean_relative_error = 0;
    metrics.max_absolute_error = metrics.mean_absolute_error = 0;
    metrics.kl_divergence = metrics.kl_row_mean = metrics.kl_row_max = 0;
    metrics.relative_euclidean_distance = 0;
  }
  fill_statistics(*golden.stats, &row->golden);
  fill_statistics(*golden.stats, &row->mine);
  row->metrics = metrics;
  row->golden_norm = golden.stats->l2_norm;
  row->shape_relation = ShapeRelation::Same;
  row->identical = row->comparable = true;
  add_note("equal digests", &row->note);
  if (metrics.state == measure::PairState::Empty) add_note("empty", &row->note);
  return true;
}

// What the reader will probably touch; exact only for records that know their size.
uint64_t bytes_of_record(const TensorRecord& record) {
  if (record.dtype && record.shape) {
    const std::optional<int64_t> count = element_count(*record.shape);
    if (count) return storage_bytes(*record.dtype, static_cast<uint64_t>(*count)).value_or(0);
  }
  if (!record.bytes) return 0;
  if (record.bytes->size_bytes > 0) return record.bytes->size_bytes;
  const Result<FileFacts> facts = file_facts(record.bytes->file);
  return facts ? facts->size_bytes : 0;
}

}  // namespace

void judge(const Limit& limit, Row* row) {
  if (limit.empty()) return;
  row->outcome = Outcome::Pass;
  if (!row->comparable) {
    fail_row("not comparable", row);
  } else if (row->metrics) {
    judge_metrics(*row->metrics, limit, row);
  } else if (row->summary) {
    judge_summary(*row->summary, row->golden, limit, row);
  }
}

double severity(const Row& row) {
  if (!row.comparable) return HUGE_VAL;
  if (row.identical) return 0;
  // Ids and positions: that they differ counts, the distance of one id from another says nothing.
  if (holds_indices(row)) return std::numeric_limits<double>::denorm_min();
  if (row.metrics) {
    if (row.has_pattern_mismatch()) return std::numeric_limits<double>::max();
    const double distance = row.metrics->relative_euclidean_distance;
    return std::isnan(distance) ? 0 : std::max(distance, std::numeric_limits<double>::denorm_min());
  }
  if (row.summary) {
    double worst = 0;
    for (const measure::SummaryError& error :
         {row.summary->l2_norm, row.summary->max, row.summary->min}) {
      if (error.relative > worst) worst = error.relative;
    }
    return worst;
  }
  return 0;
}

SideStats compare_views(const TensorView& golden, const TensorView& mine,
                        const CompareOptions& options, int jobs, const Limit& limit, Row* row,
                        measure::PooledErrors* pooled) {
  const Conventions& conventions = options.conventions;
  describe_view(golden, &row->golden);
  describe_view(mine, &row->mine);
  row->shape_relation = shape_relation(golden.shape, mine.shape);
  const measure::PairMetrics metrics = measure::compare_tensors(
      golden, mine, {.rules = conventions.rules, .jobs = jobs, .pooled = pooled});
  SideStats sides{metrics.golden, metrics.mine};
  row->metrics = metrics;
  row->patterns.reset();
  if (metrics != measure::Patterns()) row->patterns = static_cast<measure::Patterns>(metrics);
  row->golden_norm = metrics.golden.l2_norm;
  fill_statistics(metrics.golden, &row->golden);
  fill_statistics(metrics.mine, &row->mine);
  row->fail_reason = measure::fail_reason(metrics);
  row->comparable = metrics.state != measure::PairState::CountMismatch;
  if (!conventions.trusting && needs_scale(golden.dtype, mine.dtype)) {
    row->metrics.reset();
    row->patterns.reset();
    row->comparable = false;
    row->fail_reason = "int8 against a float type needs scale and offset.";
  }
  add_notes(golden, mine, row);
  if (!row->comparable) return sides;
  run_algorithms(golden, mine, options, row);
  row->identical = metrics.is_identical();
  if ((limit.atol || limit.rtol) && metrics.state == measure::PairState::Compared &&
      !(metrics.max_absolute_error <= limit.atol.value_or(0))) {
    row->outside_tolerance =
        count_outside(golden, mine, limit.atol.value_or(0), limit.rtol.value_or(0), jobs);
  }
  return sides;
}

const TensorRecord& golden_record(const Run& golden, const Run& mine,
                                  const pair::RecordPair& pair) {
  return (pair.golden_in_mine ? mine : golden).records[pair.golden];
}

class PairComparer::Comparer {
 public:
  Comparer(const Run& golden, const Run& mine, const CompareOptions& options,
           PictureKeeper* pictures)
      : golden_(golden),
        mine_(mine),
        options_(options),
        pictures_(pictures),
        files_(options.max_memory / 2),
        resident_(options.max_memory / 2) {
    files_.add(golden);
    files_.add(mine);
  }

  /// The row before its tensors are looked at.
  [[nodiscard]] Row describe(const pair::RecordPair& pair) const {
    const TensorRecord& golden = golden_record(golden_, mine_, pair);
    const TensorRecord& mine = mine_.records[pair.mine];
    Row row;
    row.token_id = pair.token == pair::kStepOfMine ? mine.step : pair.token;
    row.rank = mine.rank;
    row.order = mine.order;
    row.label = record_label(mine_, mine);
    row.matched_by = pair.rule;
    row.confidence = pair.confidence;
    row.golden = describe_record(golden);
    row.mine = describe_record(mine);
    if (!pair.golden_label.empty()) row.golden.path = pair.golden_label;
    if (!pair.mine_label.empty()) row.mine.path = pair.mine_label;
    return row;
  }

  Row compare(const pair::Matching& matching, const pair::RecordPair& pair, size_t number,
              int jobs) {
    const TensorRecord& golden = golden_record(golden_, mine_, pair);
    const TensorRecord& mine = mine_.records[pair.mine];
    Row row = describe(pair);
    const std::string node = pair::shared_node_name(mine_, mine.node);
    const pair::Recipe* golden_recipe = recipe_of(matching, pair.golden_recipe, &row);
    const pair::Recipe* mine_recipe = recipe_of(matching, pair.mine_recipe, &row);
    const bool is_plain = golden_recipe == nullptr && mine_recipe == nullptr;
    const bool may_skip = is_plain && options_.algorithms.empty() &&
                          options_.conventions.rules == measure::MetricRules::Corrected;
    if (options_.statistics) {
      compare_statistics({golden_, golden, golden_recipe}, {mine_, mine, mine_recipe}, &row);
    } else if (!may_skip || !fill_from_digests(golden, mine, &row)) {
      compare_bytes({golden_, golden, golden_recipe}, {mine_, mine, mine_recipe}, node, number,
                    jobs, &row);
    }
    judge(limit_of(row, node), &row);
    if (!options_.conventions.trusting) doubt(&row);
    if (pair.speculative && row.differs_in_count()) row.filtered = true;
    return row;
  }

  /// The row of a pair that was not compared.
  [[nodiscard]] Row refuse(const pair::RecordPair& pair, const std::string& why) const {
    Row row = describe(pair);
    add_sentence(why, &row.fail_reason);
    judge(limit_of(row, pair::shared_node_name(mine_, mine_.records[pair.mine].node)), &row);
    return row;
  }

  [[nodiscard]] uint64_t compared_bytes() const { return compared_bytes_; }
  [[nodiscard]] uint64_t payload_bytes(const pair::RecordPair& pair) const {
    return bytes_of_record(golden_record(golden_, mine_, pair)) +
           bytes_of_record(mine_.records[pair.mine]);
  }

 private:
  // A rule that what it pairs contradicts is not as sure as it was, and values that differ did not
  // make the pair.
  static void doubt(Row* row) {
    if (row->metrics && row->metrics->state == measure::PairState::CountMismatch) {
      doubt(row, "shapes contradict the pair");
    } else if (row->metrics &&
               contradicts_pair(*row->metrics, values_of(row->golden), values_of(row->mine))) {
      doubt(row,
            "values contradict the pair: golden explains less than half of what varies in mine");
    }
  }

  static void doubt(Row* row, std::string_view why) {
    add_note(why, &row->note);
    row->confidence = std::min(row->confidence, kContradictedConfidence);
    if (row->matched_by == pair::Rule::Values) row->matched_by = pair::Rule::Pattern;
  }

  const Limit& limit_of(const Row& row, const std::string& node) const {
    if (options_.limits.rules.empty()) return options_.limits.fallback;
    const std::string golden_path = row.golden.path.str();
    const std::string mine_path = row.mine.path.str();
    return limit_for(options_.limits,
                     {golden_path, mine_path, node, row.mine.op_type, row.mine.dtype});
  }

  /// What one side of a pair is read from.
  struct Source {
    const Run& run;
    const TensorRecord& record;
    const pair::Recipe* recipe = nullptr;  // nullptr: the record as it stands
  };

  static const pair::Recipe* recipe_of(const pair::Matching& matching, int32_t index, Row* row) {
    if (index < 0) return nullptr;
    const pair::Recipe* recipe = &matching.recipes[static_cast<size_t>(index)];
    if (!recipe->note.empty()) add_note(recipe->note, &row->note);
    return recipe;
  }

  /// Why a record has nothing to read; empty when it has.
  static std::string without_data(const TensorRecord& record, std::string_view side) {
    if (record.bytes) return {};
    if (!record.problem.empty()) return std::string(side) + ": " + record.problem;
    return std::string(side) +
           (record.stats ? " holds statistics only; compare with --stats" : " has no data");
  }

  /// Why a record could not be read.
  static std::string why_unread(const TensorRecord& record, std::string_view side,
                                const Error& error) {
    const Result<FileFacts> facts = file_facts(record.bytes->file);
    if (facts && facts->kind == FileFacts::Kind::File) return error.describe();
    return std::string(side) + "_data_path: " + record.bytes->file + " is not a file.";
  }

  // other   shape of the tensor on the other side, where it is known
  [[nodiscard]] static std::optional<Tensor> load(const Source& source, const Dims* other,
                                                  std::string_view side, Row* row) {
    std::vector<const TensorRecord*> read = {&source.record};
    if (source.recipe != nullptr) {
      for (const size_t i : source.recipe->records) {
        if (&source.run.records[i] != &source.record) read.push_back(&source.run.records[i]);
      }
    }
    for (const TensorRecord* record : read) {
      if (const std::string why = without_data(*record, side); !why.empty()) {
        add_sentence(why, &row->fail_reason);
        return std::nullopt;
      }
    }
    // Its values are held against the record with the sums that the comparison makes:
    // hold_against_record().
    Result<pair::PlainTensor> plain =
        source.recipe != nullptr
            ? pair::load_operand(source.run, *source.recipe).map([](Tensor tensor) {
                return pair::PlainTensor{std::move(tensor), {}};
              })
            : pair::load_plain_unchecked(source.record, other);
    if (!plain) {
      std::string why = plain.error().describe();
      for (const TensorRecord* record : read) {
        const std::string of_file = why_unread(*record, side, plain.error());
        if (of_file == why) continue;
        why = of_file;
        break;
      }
      add_sentence(why, &row->fail_reason);
      return std::nullopt;
    }
    if (!plain->note.empty()) add_note(plain->note, &row->note);
    return std::move(plain->tensor);
  }

  void compare_bytes(const Source& golden, const Source& mine, const std::string& node,
                     size_t number, int jobs, Row* row) {
    const Dims* mine_shape = mine.record.shape ? &*mine.record.shape : nullptr;
    const std::optional<Tensor> golden_tensor = load(golden, mine_shape, "golden", row);
    const Dims* golden_shape = golden_tensor ? &golden_tensor->view.shape : nullptr;
    const std::optional<Tensor> mine_tensor = load(mine, golden_shape, "my", row);
    if (golden_tensor) describe_view(golden_tensor->view, &row->golden);
    if (mine_tensor) describe_view(mine_tensor->view, &row->mine);
    if (!golden_tensor || !mine_tensor) return;
    const auto golden_watch = resident_.watch(golden_tensor->view.storage);
    const auto mine_watch = resident_.watch(mine_tensor->view.storage);
    measure::PooledErrors errors;
    measure::PooledErrors* pooled = pictures_ != nullptr ? &errors : nullptr;
    const SideStats sides = compare_views(golden_tensor->view, mine_tensor->view, options_, jobs,
                                          limit_of(*row, node), row, pooled);
    if (!options_.conventions.trusting) {
      const bool is_compared = row->metrics && row->metrics->state == measure::PairState::Compared;
      hold_against_record(golden, *golden_tensor, is_compared ? &sides.golden : nullptr, "golden",
                          row);
      hold_against_record(mine, *mine_tensor, is_compared ? &sides.mine : nullptr, "my", row);
    }
    const std::optional<Tensor> reordered =
        in_golden_order(*golden_tensor, mine, *mine_tensor, *row);
    if (reordered) {
      row->note.clear();
      row->exceeded = {};
      row->custom.clear();
      compare_views(golden_tensor->view, reordered->view, options_, jobs, limit_of(*row, node), row,
                    pooled);
      add_note("columns stand in another order; compared in golden's", &row->note);
    }
    if (pictures_ != nullptr)
      keep_picture(*golden_tensor, reordered ? *reordered : *mine_tensor, std::move(errors), number,
                   *row);
    compared_bytes_ += bytes_of(golden_tensor->view) + bytes_of(mine_tensor->view);
  }

  void keep_picture(const Tensor& golden, const Tensor& mine, measure::PooledErrors errors,
                    size_t number, const Row& row) {
    const double worse = severity(row);
    if (!row.comparable || worse == 0 || !pictures_->wants(number, worse)) return;
    const uint64_t bytes =
        bytes_of(golden.view) + bytes_of(mine.view) + 2 * sizeof(double) * errors.largest.size();
    pictures_->keep(number, worse, bytes,
                    [golden, mine, errors = std::move(errors),
                     rules = options_.conventions.rules]() -> PictureKeeper::Picture {
                      auto picture = measure::picture_of(golden.view, mine.view, rules, errors);
                      if (!picture) return nullptr;
                      return std::make_shared<const measure::PairPicture>(*std::move(picture));
                    });
  }

  // What its record does not tell of is no value of the run, and is not compared.
  //
  // sums   statistics of it; null: not known
  static void hold_against_record(const Source& source, const Tensor& tensor,
                                  const stats::TensorStats* sums, std::string_view side, Row* row) {
    const TensorRecord& record = source.record;
    if (source.recipe != nullptr || record.made() != nullptr || !record.check) return;
    const std::string problem = sums != nullptr ? record.check.problem(record, *sums)
                                                : record.check.problem(record, tensor.view);
    if (problem.empty()) return;
    add_sentence(std::string(side) + ": damaged: " + problem, &row->fail_reason);
    row->metrics.reset();
    row->patterns.reset();
    row->custom.clear();
    row->comparable = row->identical = false;
  }

  // Two engines may hold the units of a layer (heads, rows of an MLP) in another order. Between
  // runs of one engine such a difference is a fault, and stays one.
  std::optional<Tensor> in_golden_order(const Tensor& golden, const Source& mine,
                                        const Tensor& mine_tensor, const Row& row) const {
    if (options_.conventions.trusting || golden_.is_laid_out_like(mine_) || !row.comparable ||
        !row.metrics || row.metrics->state != measure::PairState::Compared || row.identical ||
        row.shape_relation == ShapeRelation::Reshaped ||
        !(row.metrics->relative_euclidean_distance > kOtherOrder) ||
        golden.view.element_count() > kMaxReorderedElements || golden.view.shape.empty() ||
        !mine_tensor.view.is_contiguous())
      return std::nullopt;
    TensorView as_golden = mine_tensor.view;
    as_golden.shape = golden.view.shape;
    as_golden.strides = contiguous_strides(golden.view.shape);
    std::optional<std::vector<int64_t>> order = pair::find_permutation(golden.view, as_golden);
    if (!order) return std::nullopt;
    pair::Recipe recipe;
    if (mine.recipe != nullptr) {
      recipe = *mine.recipe;
    } else {
      recipe.records = {static_cast<size_t>(&mine.record - mine.run.records.data())};
    }
    const int axis = static_cast<int>(mine_tensor.view.shape.size()) - 1;
    recipe.steps.push_back(
        {.kind = pair::RecipeStep::Kind::Permute, .axis = axis, .order = *std::move(order)});
    Result<Tensor> tensor = pair::load_operand(mine.run, recipe);
    return tensor ? std::optional<Tensor>(*std::move(tensor)) : std::nullopt;
  }

  static uint64_t bytes_of(const TensorView& view) {
    return storage_bytes(view.dtype, static_cast<uint64_t>(view.element_count())).value_or(0);
  }

  // Statistics the capture took, or those of the tensor when it took none; it takes none of several
  // ranks or of a part.
  std::optional<stats::TensorStats> statistics_of(const Source& source, std::string_view side,
                                                  SideSummary* summary, Row* row) {
    if (source.recipe == nullptr && source.record.stats) return source.record.stats;
    if (source.recipe != nullptr && !source.record.bytes) {
      row->fail_reason = "statistics of several ranks or of a part are not known";
      return std::nullopt;
    }
    const std::optional<Tensor> tensor = load(source, nullptr, side, row);
    if (!tensor) return std::nullopt;
    const auto watch = resident_.watch(tensor->view.storage);
    describe_view(tensor->view, summary);
    compared_bytes_ += bytes_of(tensor->view);
    return stats::statistics_of(tensor->view);
  }

  void compare_statistics(const Source& golden_source, const Source& mine_source, Row* row) {
    const auto golden_stats = statistics_of(golden_source, "golden", &row->golden, row);
    const auto mine_stats = statistics_of(mine_source, "my", &row->mine, row);
    if (golden_stats) fill_statistics(*golden_stats, &row->golden);
    if (mine_stats) fill_statistics(*mine_stats, &row->mine);
    if (!golden_stats || !mine_stats) return;
    // A table need not have the norm; an unknown one says nothing about the other side's.
    if (std::isnan(golden_stats->l2_norm) || std::isnan(mine_stats->l2_norm))
      row->golden.l2_norm = row->mine.l2_norm = NAN;
    row->summary = measure::compare_summaries(values_of(row->golden), values_of(row->mine));
    row->comparable = true;
    const auto same = [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); };
    const SideSummary& g = row->golden;
    const SideSummary& m = row->mine;
    const TensorRecord& golden = golden_source.record;
    const TensorRecord& mine = mine_source.record;
    const bool is_plain = golden_source.recipe == nullptr && mine_source.recipe == nullptr;
    const bool digests_tell =
        is_plain && golden.digest && mine.digest && golden.dtype == mine.dtype;
    row->identical = digests_tell ? golden.digest == mine.digest
                                  : same(g.max, m.max) && same(g.min, m.min) &&
                                        same(g.mean, m.mean) && same(g.l2_norm, m.l2_norm);
    if (digests_tell && !row->identical) add_note("digests differ", &row->note);
    if (options_.conventions.trusting || !is_plain || row->identical) return;
    if (golden_stats->count > 0 && mine_stats->count > 0 &&
        golden_stats->count != mine_stats->count) {
      doubt(row, "shapes contradict the pair");
    } else if (contradicts_pair(*golden_stats, *mine_stats)) {
      doubt(row, "statistics contradict the pair: extremes or sketches of unrelated tensors");
    }
  }

  const Run& golden_;
  const Run& mine_;
  const CompareOptions& options_;
  PictureKeeper* pictures_;
  ResidentFiles files_;     // containers of many tensors, none of which is large
  ResidentLimit resident_;  // large tensors of any file, while they are read
  std::atomic<uint64_t> compared_bytes_{0};
};

PairComparer::PairComparer(const Run& golden, const Run& mine, const CompareOptions& options,
                           PictureKeeper* pictures)
    : comparer_(std::make_unique<Comparer>(golden, mine, options, pictures)) {}
PairComparer::~PairComparer() = default;

Row PairComparer::compare(const pair::Matching& matching, const pair::RecordPair& pair,
                          size_t number, int jobs) {
  return comparer_->compare(matching, pair, number, jobs);
}
Row PairComparer::refuse(const pair::RecordPair& pair, const std::string& why) const {
  return comparer_->refuse(pair, why);
}
uint64_t PairComparer::payload_bytes(const pair::RecordPair& pair) const {
  return comparer_->payload_bytes(pair);
}
uint64_t PairComparer::compared_bytes() const { return comparer_->compared_bytes(); }

}  // namespace assay::compare
