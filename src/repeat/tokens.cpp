// SPDX-License-Identifier: Apache-2.0
// Pairs operators of both sides by module call and name, cuts their tensors down to the positions
// that both have, and judges outputs whose inputs agree there.
#include "repeat/tokens.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "locate/program/owner.hpp"
#include "repeat/spread.hpp"
#include "run/layers.hpp"
#include "run/load.hpp"
#include "tensor/equal_bytes.hpp"

namespace assay::repeat {
namespace {

using locate::kNone;
using locate::Operator;
using locate::Use;

/// The same positions in one tensor of both sides.
struct Part {
  enum class State : uint8_t {
    Equal,
    Differs,
    Unknown,  // nobody can tell which elements correspond
  };
  State state = State::Equal;
  bool is_window = false;  // the sides have other positions, too
  Spread spread = {};      // of Differs
};

/// What an operator reads.
enum class Reads : uint8_t { Equal, Rounded, Other, Unknown };

/// The operators of one call of one side, by module call and name.
using Kind = std::tuple<int, std::string, uint32_t, std::string>;

Kind kind_of(const Operator& one) { return {one.rank, one.module, one.module_call, one.name}; }

std::map<Kind, std::vector<size_t>> operators_of(const Execution& side, int64_t step) {
  std::map<Kind, std::vector<size_t>> by_kind;
  const std::vector<Operator>& operators = side.program().operators;
  for (size_t op = 0; op < operators.size(); ++op) {
    if (operators[op].step == step) by_kind[kind_of(operators[op])].push_back(op);
  }
  return by_kind;
}

TensorView narrowed(TensorView view, size_t axis, int64_t begin, int64_t count) {
  view.offset_elements += begin * view.strides[axis];
  view.shape[axis] = count;
  return view;
}

class TokenComparer {
 public:
  TokenComparer(const Execution& first, const RowPlace& other, const Splits* splits)
      : first_(first), other_(other), splits_(splits) {
    for (const Execution* side : {&first_, other_.run}) {
      for (const Operator& one : side->program().operators) {
        if (reads_content(one.name) && run::layer_of_node(one.module)) unjudged_.insert(one.module);
      }
    }
  }

  [[nodiscard]] Result<RowComparison> run(const std::vector<CallPair>& calls);

 private:
  [[nodiscard]] const Operator& in_first(size_t op) const { return first_.program().operators[op]; }
  [[nodiscard]] const Operator& in_other(size_t op) const {
    return other_.run->program().operators[op];
  }
  [[nodiscard]] Result<Part> compare(const Use& a, const Use& b, const Split& split) const;
  [[nodiscard]] std::optional<TensorView> row_in(const Tensor& tensor, const Split& split) const;
  [[nodiscard]] bool cut(TensorView* a, TensorView* b, bool* is_window) const;
  [[nodiscard]] Split split_of(size_t op, bool is_output, size_t number) const;
  [[nodiscard]] Result<Reads> reads_of(size_t op, size_t other_op, RowFinding* found,
                                       bool* is_window) const;
  [[nodiscard]] Result<RowState> judge(size_t op, size_t other_op);
  [[nodiscard]] Status add_call(const CallPair& call);
  [[nodiscard]] bool is_inside_unjudged(const Operator& one) const {
    return std::ranges::any_of(unjudged_, [&](const std::string& module) {
      return locate::is_inside(one.module, module);
    });
  }

  const Execution& first_;
  RowPlace other_;
  const Splits* splits_;
  std::set<std::string> unjudged_;  // modules
  CallPair call_;
  RowComparison result_;
};

std::optional<TensorView> TokenComparer::row_in(const Tensor& tensor, const Split& split) const {
  if (other_.is_alone || split.state == Split::State::Shared) return tensor.view;
  if (!split.has_rows()) return std::nullopt;
  return row_of(tensor.view, split, other_.row, splits_->rows());
}

/// Leaves the positions that both have. False: the shapes differ in something else.
bool TokenComparer::cut(TensorView* a, TensorView* b, bool* is_window) const {
  if (a->dtype != b->dtype || a->shape.size() != b->shape.size()) return false;
  for (size_t axis = 0; axis < a->shape.size(); ++axis) {
    const int64_t first = a->shape[axis];
    const int64_t other = b->shape[axis];
    if (first == other) continue;
    const auto is_of = [&](const Window& window) {
      return first == window.first_size && other == window.other_size;
    };
    const Window* window = is_of(call_.tokens) ? &call_.tokens
                           : is_of(call_.keys) ? &call_.keys
                                               : nullptr;
    if (window == nullptr) return false;
    *a = narrowed(*a, axis, window->first_begin, window->count);
    *b = narrowed(*b, axis, window->other_begin, window->count);
    *is_window = true;
  }
  return true;
}

Result<Part> TokenComparer::compare(const Use& a, const Use& b, const Split& split) const {
  const run::TensorRecord& one = first_.run().records[a.record];
  const run::TensorRecord& two = other_.run->run().records[b.record];
  if (one.value != two.value) return Part{.state = Part::State::Unknown};
  if (one.digest && one.digest == two.digest && one.shape == two.shape) return Part{};
  if (!has_values(one) || !has_values(two)) {
    const bool is_same_weight = !a.leaf.empty() && a.leaf == b.leaf;
    return Part{.state = is_same_weight ? Part::State::Equal : Part::State::Unknown};
  }
  ASSAY_TRY(const Tensor left, run::load_tensor(one));
  ASSAY_TRY(const Tensor right, run::load_tensor(two));
  const std::optional<TensorView> row = row_in(right, split);
  Part part;
  TensorView mine = left.view;
  TensorView theirs = row.value_or(right.view);
  if (!row || !cut(&mine, &theirs, &part.is_window)) return Part{.state = Part::State::Unknown};
  if (has_equal_bytes(mine, theirs)) return part;
  part.spread = spread_of(mine, theirs);
  if (part.spread.different > 0) part.state = Part::State::Differs;  // not zeros of either sign
  return part;
}

Split TokenComparer::split_of(size_t op, bool is_output, size_t number) const {
  if (splits_ == nullptr) return {};
  const Operator& one = in_other(op);
  const Use& use = is_output ? one.outputs[number] : one.inputs[number];
  return splits_->of_use(one, is_output, number, other_.run->run().records[use.record].shape);
}

// Inputs by their names: a mask that only one of the calls needs is none of the other's.
Result<Reads> TokenComparer::reads_of(size_t op, size_t other_op, RowFinding* found,
                                      bool* is_window) const {
  const std::vector<Use>& inputs = in_first(op).inputs;
  Reads reads = Reads::Equal;
  for (size_t i = 0; i < in_other(other_op).inputs.size(); ++i) {
    const Use& use = in_other(other_op).inputs[i];
    const auto partner = std::ranges::find(inputs, use.slot, &Use::slot);
    if (partner == inputs.end()) {
      found->mixed.push_back(use.slot);
      continue;
    }
    const std::optional<DType> dtype = other_.run->run().records[use.record].dtype;
    const bool is_number = dtype && is_float(*dtype);
    if (!is_number) continue;
    ASSAY_TRY(const Part part, compare(*partner, use, split_of(other_op, false, i)));
    *is_window |= part.is_window;
    if (part.state == Part::State::Equal) continue;
    const bool is_rounded =
        part.state == Part::State::Differs && part.spread.relative_error() <= kRounding;
    reads = std::max(reads, is_rounded                           ? Reads::Rounded
                            : part.state == Part::State::Differs ? Reads::Other
                                                                 : Reads::Unknown);
  }
  return reads;
}

Result<RowState> TokenComparer::judge(size_t op, size_t other_op) {
  const Operator& a = in_first(op);
  const Operator& b = in_other(other_op);
  if (a.outputs.size() != b.outputs.size() || is_without_values(b)) return RowState::NotJudged;
  RowFinding found;
  found.place = other_.run->place_of(other_op);
  bool reads_window = false;
  ASSAY_TRY(const Reads reads, reads_of(op, other_op, &found, &reads_window));
  RowState state = RowState::NotJudged;
  for (size_t i = 0; i < b.outputs.size(); ++i) {
    const run::TensorRecord& record = other_.run->run().records[b.outputs[i].record];
    const std::optional<FloatGrid> grid =
        record.dtype ? float_grid(*record.dtype) : std::optional<FloatGrid>();
    if (!grid) continue;
    ASSAY_TRY(const Part part, compare(a.outputs[i], b.outputs[i], split_of(other_op, true, i)));
    // What sums up positions has another meaning where these are others.
    const bool is_of_positions = part.is_window || (!reads_window && !b.inputs.empty());
    if (part.state == Part::State::Equal && state == RowState::NotJudged) state = RowState::Same;
    if (part.state != Part::State::Differs || !is_of_positions || state == RowState::Differs)
      continue;
    const double error = part.spread.relative_error();
    const bool is_accused = reads == Reads::Equal || (reads == Reads::Rounded && error > kFarOff);
    if (!is_accused) {
      state = reads == Reads::Unknown ? RowState::NotJudged : RowState::Inherited;
      continue;
    }
    state = RowState::Differs;
    found.slot = b.outputs[i].slot;
    found.shape = record.shape.value_or(Dims());
    found.different = part.spread.different;
    found.largest_ulp = part.spread.largest_ulp;
    found.relative_error = error;
    found.is_exact = reads == Reads::Equal;
    found.is_beyond_rounding = error > kRoundoffs * grid->roundoff();
  }
  if (state == RowState::Differs) result_.findings.push_back(std::move(found));
  return state;
}

Status TokenComparer::add_call(const CallPair& call) {
  call_ = call;
  const std::map<Kind, std::vector<size_t>> first = operators_of(first_, call.first_step);
  for (const auto& [kind, operators] : operators_of(*other_.run, call.other_step)) {
    const auto partner = first.find(kind);
    if (partner == first.end() || partner->second.size() != operators.size()) continue;
    const Operator& one = in_other(operators.front());
    if (reads_content(one.name) || is_inside_unjudged(one)) continue;
    for (size_t i = 0; i < operators.size(); ++i) {
      ASSAY_TRY(const RowState state, judge(partner->second[i], operators[i]));
      result_.states[operators[i]] = state;
    }
  }
  return {};
}

Result<RowComparison> TokenComparer::run(const std::vector<CallPair>& calls) {
  result_.states.assign(other_.run->program().operators.size(), RowState::NotJudged);
  for (const CallPair& call : calls) ASSAY_TRY_STATUS(add_call(call));
  std::ranges::stable_sort(result_.findings, {},
                           [](const RowFinding& one) { return one.place.index; });
  for (const RowState state : result_.states) {
    ++(state == RowState::Inherited   ? result_.inherited
       : state == RowState::NotJudged ? result_.unsplit
                                      : result_.judged);
  }
  return std::move(result_);
}

}  // namespace

Result<RowComparison> compare_tokens(const Execution& first, const RowPlace& other,
                                     const std::vector<CallPair>& calls, const Splits* splits) {
  return TokenComparer(first, other, splits).run(calls);
}

}  // namespace assay::repeat
