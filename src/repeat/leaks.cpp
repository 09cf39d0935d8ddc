// SPDX-License-Identifier: Apache-2.0
// Operators whose inputs are equal for the row are judged by their outputs for it. Where an
// operator or module chooses by content, or mixes rows, all that is inside is judged as one.
#include "repeat/leaks.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "locate/program/owner.hpp"
#include "repeat/spread.hpp"
#include "run/load.hpp"
#include "tensor/equal_bytes.hpp"

namespace assay::repeat {
namespace {

using locate::kNone;
using locate::ModuleCall;
using locate::Operator;
using locate::Use;

/// The row in one tensor of both runs.
enum class Row : uint8_t {
  Equal,    // bit for bit
  Differs,  // and it is the row that does
  Mixed,    // something differs, and nobody can say whose
};

struct RowUse {
  Row row = Row::Equal;
  Spread spread;  // of Differs
};

/// One call of a module in one step.
using CallKey = std::tuple<int, int64_t, std::string, uint32_t>;

CallKey key_of(const Operator& one) { return {one.rank, one.step, one.module, one.module_call}; }

bool is_data_dependent(std::string_view name) {
  constexpr std::string_view kNames[] = {"aten.nonzero.",  "aten.masked_select.",
                                         "aten.unique",    "aten._unique",
                                         "aten.bincount.", "aten.where.default"};
  return std::ranges::any_of(kNames,
                             [&](std::string_view begin) { return name.starts_with(begin); });
}

/// Reads or writes where whole numbers among its inputs say.
bool is_indexed(std::string_view name) {
  constexpr std::string_view kNames[] = {"aten.index.",     "aten.index_", "aten.gather.",
                                         "aten.scatter",    "aten._index", "aten.take",
                                         "aten._grouped_mm"};
  return std::ranges::any_of(kNames,
                             [&](std::string_view begin) { return name.starts_with(begin); });
}

class RowComparer {
 public:
  RowComparer(const RowPlace& first, const RowPlace& other, const Splits& splits)
      : first_(first), other_(other), splits_(splits) {}

  [[nodiscard]] Result<RowComparison> run();

 private:
  [[nodiscard]] const run::TensorRecord& record(const RowPlace& side, const Use& use) const {
    return side.run->run().records[use.record];
  }
  [[nodiscard]] Result<TensorView> row_in(const RowPlace& side, const Split& split,
                                          const Tensor& tensor) const;
  [[nodiscard]] Result<RowUse> compare(const Use& a, const Use& b, const Split& split) const;
  void find_content_dependent();
  [[nodiscard]] bool depends_on_content(size_t op, size_t other_op) const;
  [[nodiscard]] bool can_judge_as_a_whole(const ModuleCall& call) const;
  [[nodiscard]] bool is_inside_dependent(const Operator& one) const;
  /// What an operator reads of the row.
  enum class Reads : uint8_t { Equal, Rounded, Other };
  [[nodiscard]] Result<Reads> reads_of(const Operator& a, const Operator& b,
                                       std::vector<std::string>* mixed) const;
  /// A difference of the row may be in it, by what it was made of.
  [[nodiscard]] bool carries(const Use& use) const {
    return use.producer != kNone && carries_.contains({use.producer, use.producer_output});
  }
  [[nodiscard]] bool is_real_float(const Use& use) const {
    const std::optional<DType> dtype = record(first_, use).dtype;
    return dtype && is_float(*dtype);
  }
  [[nodiscard]] Status judge(size_t op);
  [[nodiscard]] Status judge_call(const ModuleCall& call);
  [[nodiscard]] size_t first_operator_in(const ModuleCall& call) const;
  [[nodiscard]] bool has_same_shapes() const { return !first_.is_alone && !other_.is_alone; }
  [[nodiscard]] InternedDims batch_shape(const Use& a, const Use& b) const {
    return record(first_.is_alone ? other_ : first_, first_.is_alone ? b : a).shape;
  }

  RowPlace first_;
  RowPlace other_;
  const Splits& splits_;
  /// Calls of modules that depend on the content. True: what they have done shows it, in everything
  /// inside them, too; false: they have an operator that can.
  std::map<CallKey, bool> dependent_;
  /// Outputs of operators of the first run that carry, or may carry, a difference of the row.
  std::set<std::pair<size_t, size_t>> carries_;
  RowComparison result_;
};

Result<TensorView> RowComparer::row_in(const RowPlace& side, const Split& split,
                                       const Tensor& tensor) const {
  if (!split.has_rows()) return tensor.view;
  const int64_t size = tensor.view.shape[split.axis];
  if (side.is_alone) {
    if (size == split.per_row) return tensor.view;
  } else if (size == split.per_row * splits_.rows()) {
    return row_of(tensor.view, split, side.row, splits_.rows());
  }
  return fail(Errc::Invalid, "a tensor has another size than the batch");
}

Result<RowUse> RowComparer::compare(const Use& a, const Use& b, const Split& split) const {
  const run::TensorRecord& one = record(first_, a);
  const run::TensorRecord& two = record(other_, b);
  if (one.value != two.value) return RowUse{Row::Mixed, {}};
  const bool is_whole_equal = one.digest && one.digest == two.digest && one.shape == two.shape;
  const bool is_same_place = first_.row == other_.row && has_same_shapes();
  if (is_whole_equal && (is_same_place || !split.has_rows())) return RowUse{};
  if (!has_values(one) || !has_values(two))
    return RowUse{!a.leaf.empty() && a.leaf == b.leaf ? Row::Equal : Row::Mixed, {}};
  if (split.state == Split::State::Unknown) return RowUse{Row::Mixed, {}};
  if (split.state == Split::State::Shared) return RowUse{Row::Mixed, {}};
  ASSAY_TRY(const Tensor left, run::load_tensor(one));
  ASSAY_TRY(const Tensor right, run::load_tensor(two));
  const Result<TensorView> mine = row_in(first_, split, left);
  const Result<TensorView> theirs = row_in(other_, split, right);
  if (!mine || !theirs || !(mine->shape == theirs->shape) || mine->dtype != theirs->dtype)
    return RowUse{Row::Mixed, {}};
  if (has_equal_bytes(*mine, *theirs)) return RowUse{};
  RowUse use{Row::Differs, spread_of(*mine, *theirs)};
  if (use.spread.different == 0) use.row = Row::Equal;  // zeros of either sign, NaN
  return use;
}

// Between runs of one shape: other shapes, other arguments or other places to read from are of the
// content.
bool RowComparer::depends_on_content(size_t op, size_t other_op) const {
  const Operator& a = first_.run->program().operators[op];
  const Operator& b = other_.run->program().operators[other_op];
  if (first_.run->arguments_of(op) != other_.run->arguments_of(other_op)) return true;
  if (a.inputs.size() != b.inputs.size() || a.outputs.size() != b.outputs.size()) return true;
  for (size_t i = 0; i < a.outputs.size(); ++i) {
    if (record(first_, a.outputs[i]).shape != record(other_, b.outputs[i]).shape) return true;
  }
  if (!is_indexed(a.name)) return false;
  for (size_t i = 0; i < a.inputs.size(); ++i) {
    const run::TensorRecord& index = record(first_, a.inputs[i]);
    const bool is_index = index.dtype && is_integer(*index.dtype);
    if (is_index && index.digest != record(other_, b.inputs[i]).digest) return true;
  }
  return false;
}

void RowComparer::find_content_dependent() {
  const std::vector<Operator>& operators = first_.run->program().operators;
  for (size_t op = 0; op < operators.size(); ++op) {
    const Operator& one = operators[op];
    const size_t partner = other_.run->find(one);
    const bool shows = partner == kNone || (has_same_shapes() && depends_on_content(op, partner));
    if (shows || is_data_dependent(one.name)) dependent_[key_of(one)] |= shows;
  }
  for (const Operator& one : other_.run->program().operators) {
    if (first_.run->find(one) == kNone) dependent_[key_of(one)] = true;
  }
  std::set<std::string> modules;
  for (const auto& [key, shows] : dependent_) modules.insert(std::get<2>(key));
  result_.content_dependent.assign(modules.begin(), modules.end());
}

bool RowComparer::is_inside_dependent(const Operator& one) const {
  return std::ranges::any_of(dependent_, [&](const auto& dependent) {
    const auto& [rank, step, module, call] = dependent.first;
    if (rank != one.rank || step != one.step) return false;
    const bool reaches_inside = dependent.second && !module.empty();
    return reaches_inside ? locate::is_inside(one.module, module) : one.module == module;
  });
}

/// Rounding inside a module adds up with each one in it whose sums depend on the batch.
bool RowComparer::can_judge_as_a_whole(const ModuleCall& call) const {
  if (call.module.empty() || !has_same_shapes()) return false;
  if (!dependent_.contains({call.rank, call.step, call.module, call.call})) return false;
  return std::ranges::count_if(dependent_, [&](const auto& dependent) {
           const auto& [rank, step, module, number] = dependent.first;
           return rank == call.rank && step == call.step && module != call.module &&
                  locate::is_inside(module, call.module);
         }) <= 1;
}

Result<RowComparer::Reads> RowComparer::reads_of(const Operator& a, const Operator& b,
                                                 std::vector<std::string>* mixed) const {
  Reads reads = Reads::Equal;
  for (size_t i = 0; i < a.inputs.size(); ++i) {
    const Split split = splits_.of_use(a, false, i, batch_shape(a.inputs[i], b.inputs[i]));
    ASSAY_TRY(const RowUse use, compare(a.inputs[i], b.inputs[i], split));
    if (use.row == Row::Mixed) mixed->push_back(a.inputs[i].slot);
    const bool is_rounded = use.row == Row::Differs && !dependent_.empty() &&
                            is_real_float(a.inputs[i]) && use.spread.relative_error() <= kRounding;
    if (is_rounded) {
      reads = std::max(reads, Reads::Rounded);
    } else if (use.row == Row::Differs || (use.row == Row::Mixed && carries(a.inputs[i]))) {
      reads = Reads::Other;
    }
  }
  return reads;
}

Status RowComparer::judge(size_t op) {
  const Operator& a = first_.run->program().operators[op];
  const size_t partner = other_.run->find(a);
  if (partner == kNone || is_inside_dependent(a)) {
    if (std::ranges::any_of(a.inputs, [&](const Use& use) { return carries(use); })) {
      for (size_t i = 0; i < a.outputs.size(); ++i) carries_.emplace(op, i);
    }
    return {};
  }
  const Operator& b = other_.run->program().operators[partner];
  if (a.inputs.size() != b.inputs.size() || a.outputs.size() != b.outputs.size()) return {};
  RowFinding found;
  found.place = first_.run->place_of(op);
  ASSAY_TRY(const Reads reads, reads_of(a, b, &found.mixed));
  bool is_judged = false;
  bool differs = false;
  for (size_t i = 0; i < a.outputs.size(); ++i) {
    const InternedDims shape = batch_shape(a.outputs[i], b.outputs[i]);
    ASSAY_TRY(const RowUse use,
              compare(a.outputs[i], b.outputs[i], splits_.of_use(a, true, i, shape)));
    is_judged |= use.row != Row::Mixed;
    if (use.row == Row::Differs || (use.row == Row::Mixed && reads != Reads::Equal))
      carries_.emplace(op, i);
    if (use.row != Row::Differs || differs) continue;
    differs = true;
    found.slot = a.outputs[i].slot;
    found.shape = shape.value_or(Dims());
    found.count =
        splits_.rows() > 0 && shape ? element_count(*shape).value_or(0) / splits_.rows() : 0;
    found.different = use.spread.different;
    found.largest_ulp = use.spread.largest_ulp;
    found.relative_error = use.spread.relative_error();
    const std::optional<FloatGrid> grid =
        float_grid(record(first_, a.outputs[i]).dtype.value_or(DType::Int64));
    found.is_beyond_rounding = grid && found.relative_error > kRoundoffs * grid->roundoff();
  }
  ++(reads != Reads::Equal ? result_.inherited : is_judged ? result_.judged : result_.unsplit);
  RowState& state = result_.states[op];
  state = reads != Reads::Equal ? RowState::Inherited
          : is_judged           ? RowState::Same
                                : RowState::NotJudged;
  found.is_exact = reads == Reads::Equal;
  const bool is_accused =
      found.is_exact || (reads == Reads::Rounded && found.relative_error > kFarOff);
  if (!differs || !is_accused || is_without_values(a)) return {};
  state = RowState::Differs;
  result_.findings.push_back(std::move(found));
  return {};
}

size_t RowComparer::first_operator_in(const ModuleCall& call) const {
  const std::vector<Operator>& operators = first_.run->program().operators;
  const auto found = std::ranges::find_if(operators, [&](const Operator& one) {
    return one.rank == call.rank && one.time > call.begin;
  });
  return static_cast<size_t>(found - operators.begin());
}

// All that is inside at once: its inputs are equal bit for bit, and its outputs are other ones by
// more than sums in another order explain.
Status RowComparer::judge_call(const ModuleCall& call) {
  const size_t partner = other_.run->find(call);
  if (partner == kNone) return {};
  const ModuleCall& there = other_.run->program().calls[partner];
  if (call.inputs.size() != there.inputs.size() || call.outputs.size() != there.outputs.size())
    return {};
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const Split split =
        splits_.of_boundary(call, false, i, batch_shape(call.inputs[i], there.inputs[i]));
    ASSAY_TRY(const RowUse use, compare(call.inputs[i], there.inputs[i], split));
    if (use.row != Row::Equal) return {};
  }
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const InternedDims shape = batch_shape(call.outputs[i], there.outputs[i]);
    ASSAY_TRY(const RowUse use, compare(call.outputs[i], there.outputs[i],
                                        splits_.of_boundary(call, true, i, shape)));
    if (use.row != Row::Differs) continue;
    const std::optional<FloatGrid> grid =
        float_grid(record(first_, call.outputs[i]).dtype.value_or(DType::Int64));
    if (!grid || use.spread.relative_error() <= kRoundoffs * grid->roundoff()) continue;
    RowFinding found;
    found.place.rank = call.rank;
    found.place.step = call.step;
    found.place.call = call.call;
    found.place.node = found.place.module = call.module;
    found.place.index = first_operator_in(call);
    found.place.operation = call.type;
    found.slot = call.outputs[i].slot;
    found.shape = shape.value_or(Dims());
    found.different = use.spread.different;
    found.largest_ulp = use.spread.largest_ulp;
    found.relative_error = use.spread.relative_error();
    found.is_beyond_rounding = true;
    result_.findings.push_back(std::move(found));
    return {};
  }
  return {};
}

Result<RowComparison> RowComparer::run() {
  find_content_dependent();
  result_.states.assign(first_.run->program().operators.size(), RowState::NotJudged);
  for (size_t op = 0; op < first_.run->program().operators.size(); ++op)
    ASSAY_TRY_STATUS(judge(op));
  for (const ModuleCall& call : first_.run->program().calls) {
    if (can_judge_as_a_whole(call)) ASSAY_TRY_STATUS(judge_call(call));
  }
  return std::move(result_);
}

}  // namespace

std::string_view state_name(RowState state) {
  switch (state) {
    case RowState::Same:
      return "same";
    case RowState::Differs:
      return "differs";
    case RowState::Inherited:
      return "inherited";
    case RowState::NotJudged:
      break;
  }
  return "not judged";
}

bool reads_content(std::string_view name) { return is_data_dependent(name) || is_indexed(name); }

bool has_values(const run::TensorRecord& record) {
  return record.bytes.has_value() || record.made() != nullptr;
}

bool is_without_values(const locate::Operator& one) {
  return reference::aten::class_of(one.name) == reference::aten::OperatorClass::Allocation;
}

Result<RowComparison> compare_rows(const RowPlace& first, const RowPlace& other,
                                   const Splits& splits) {
  return RowComparer(first, other, splits).run();
}

}  // namespace assay::repeat
