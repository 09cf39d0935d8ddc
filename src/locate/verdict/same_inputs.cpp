// SPDX-License-Identifier: Apache-2.0
// Inputs of the root module are compared slot by slot. Where those of mine were not captured, the
// module that looks tokens up tells: by its own input, or by which rows of the table it returned.
#include "locate/verdict/same_inputs.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "locate/program/padding.hpp"
#include "reference/wide.hpp"
#include "run/load.hpp"
#include "tensor/convert.hpp"

namespace assay::locate {
namespace {

using run::TensorRecord;

/// "kwargs.input_ids" is called "input_ids".
std::string name_of(std::string_view slot) {
  constexpr std::string_view kKeyword = "kwargs.";
  if (slot.starts_with(kKeyword)) return std::string(slot.substr(kKeyword.size()));
  return "input " + (slot.empty() ? std::string("0") : std::string(slot));
}

/// Of integers, the first place where they differ.
std::optional<std::string> first_difference(const TensorView& golden, const TensorView& mine) {
  const auto theirs = reference::whole(golden);
  const auto ours = reference::whole(mine);
  if (!theirs || !ours) return std::nullopt;
  const auto [g, m] = std::ranges::mismatch(theirs->values, ours->values);
  if (m == ours->values.end()) return std::nullopt;
  return "differs first at " + place_text(m - ours->values.begin(), mine.shape) + ": " +
         std::to_string(*m) + " against golden's " + std::to_string(*g);
}

/// Of two integer tensors of one shape of which one has no bytes: their statistics tell that they
/// differ, never that they do not.
bool have_other_statistics(const TensorRecord& golden, const TensorRecord& mine) {
  constexpr double kSummedOtherwise = 1e-9;
  if (!golden.stats || !mine.stats) return false;
  const auto differ = [](double a, double b) {
    return std::abs(a - b) > kSummedOtherwise * std::max(std::abs(a), std::abs(b));
  };
  return differ(golden.stats->min, mine.stats->min) || differ(golden.stats->max, mine.stats->max) ||
         differ(golden.stats->mean, mine.stats->mean) ||
         differ(golden.stats->l2_norm, mine.stats->l2_norm);
}

/// Whether a mask is all ones, or hides only what nobody may see: of `tokens` so far those behind
/// the one that asks, and the empty cells of a static cache behind these.
bool hides_nothing(const TensorRecord& record, int64_t tokens) {
  const Result<Tensor> tensor = run::load_tensor(record);
  if (!tensor || is_float(tensor->view.dtype)) return true;
  const auto values = reference::whole(tensor->view);
  if (!values) return true;
  const Dims& shape = tensor->view.shape;
  const int64_t keys = shape.empty() ? 1 : shape[shape.size() - 1];
  // [batch, keys] is of all queries, [batch, heads, queries, keys] of each.
  const int64_t queries = shape.size() < 3 ? 1 : shape[shape.size() - 2];
  bool all_ones = true, causal = true;
  for (int64_t i = 0; i < values->size(); ++i) {
    const bool shown = values->data()[i] == 1;
    all_ones = all_ones && shown;
    causal = causal && shown == (i % keys <= tokens - queries + i / keys % queries);
  }
  return all_ones || causal;
}

/// A row of a result that is another row of the table than golden's.
struct OtherRow {
  int64_t place = 0;  // of the token
  int64_t golden = 0;
  int64_t mine = 0;
};

using Row = std::vector<double>;

/// One row of a tensor seen as [rows, width]: the whole of it may be a table of gigabytes.
void read_row(const TensorView& view, int64_t row, Row* out) {
  const auto width = static_cast<int64_t>(out->size());
  read_values(view, row * width, width, *out);
}

/// Equal but for rounding to a 16-bit type, which a scaled row may have gone through twice.
bool is_same_row(const Row& mine, const Row& row, double factor) {
  constexpr double kRoundings = 4.0 / 256;
  double error = 0, energy = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    const double right = factor * row[i];
    error += (mine[i] - right) * (mine[i] - right);
    energy += right * right;
  }
  return error <= kRoundings * kRoundings * energy;
}

/// By what the table's row was multiplied to make golden's: models scale rows.
double factor_of(const Row& golden, const Row& row) {
  double product = 0, energy = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    product += golden[i] * row[i];
    energy += row[i] * row[i];
  }
  return energy > 0 ? product / energy : 0;
}

/// The first token whose row in mine is that of another one; nothing where the results are no rows
/// of the table.
///
/// table    [tokens of the vocabulary, width]
/// golden   [..., width], and mine of as many values: a row for each of `tokens`
std::optional<OtherRow> first_other_row(const TensorView& table, const TensorView& tokens,
                                        const TensorView& golden, const TensorView& mine) {
  const auto ids = reference::whole(tokens);
  if (!ids || table.shape.size() != 2 || !is_float(table.dtype) || !is_float(golden.dtype) ||
      !is_float(mine.dtype))
    return std::nullopt;
  const int64_t width = table.shape[1];
  if (golden.element_count() != ids->size() * width ||
      mine.element_count() != golden.element_count())
    return std::nullopt;
  Row row(static_cast<size_t>(width)), theirs(row), ours(row);
  for (int64_t at = 0; at < ids->size(); ++at) {
    const int64_t id = ids->data()[at];
    if (id < 0 || id >= table.shape[0]) return std::nullopt;
    read_row(table, id, &row);
    read_row(golden, at, &theirs);
    const double factor = factor_of(theirs, row);
    if (!is_same_row(theirs, row, factor)) return std::nullopt;
    read_row(mine, at, &ours);
    if (is_same_row(ours, row, factor)) continue;
    for (int64_t other = 0; other < table.shape[0]; ++other) {
      read_row(table, other, &row);
      if (is_same_row(ours, row, factor)) return OtherRow{at, id, other};
    }
    return std::nullopt;
  }
  return std::nullopt;
}

class InputTest {
 public:
  InputTest(const Program& golden, const Program& mine, const Pairing& pairing)
      : golden_(golden), mine_(mine), pairing_(pairing) {
    find_lookups();
  }

  [[nodiscard]] std::optional<InputDifference> find() const {
    std::optional<int64_t> first;
    for (size_t i = 0; i < mine_.calls.size(); ++i) {
      const ModuleCall& call = mine_.calls[i];
      const size_t partner = pairing_.golden_call_of[i];
      if (!call.module.empty() || partner == kNone) continue;
      if (!first || call.step < *first) first = call.step;
    }
    std::optional<InputDifference> found;
    std::set<int64_t> compared_steps;
    for (size_t i = 0; i < mine_.calls.size(); ++i) {
      const ModuleCall& call = mine_.calls[i];
      const size_t partner = pairing_.golden_call_of[i];
      if (!call.module.empty() || partner == kNone || (found && found->step <= call.step)) continue;
      if (!call.inputs.empty()) compared_steps.insert(call.step);
      std::optional<InputDifference> one =
          compare(golden_.calls[partner], call, call.step == *first);
      if (one) found = std::move(one);
    }
    for (const ModuleCall& call : mine_.calls) {
      if ((found && found->step <= call.step) || compared_steps.contains(call.step)) continue;
      std::optional<std::string> text = other_count_of_tokens(call);
      const bool shape_differs = text.has_value();
      if (!text) text = other_tokens(call);
      if (text)
        found = InputDifference{call.step, call.step == first_step_of_mine(), shape_differs,
                                *std::move(text)};
    }
    return found;
  }

 private:
  [[nodiscard]] std::optional<InputDifference> compare(const ModuleCall& golden,
                                                       const ModuleCall& mine,
                                                       bool first_step) const {
    const auto difference = [&](std::string text, bool shape) {
      return InputDifference{mine.step, first_step, shape, std::move(text)};
    };
    for (const Use& use : mine.inputs) {
      const auto partner = std::ranges::find(golden.inputs, use.slot, &Use::slot);
      const TensorRecord& ours = mine_.run->records[use.record];
      if (partner == golden.inputs.end()) {
        if (is_mask(use.slot) && !hides_nothing(ours, tokens_so_far(mine_, mine)))
          return difference(name_of(use.slot) + " was not given to golden", false);
        continue;
      }
      const TensorRecord& theirs = golden_.run->records[partner->record];
      if (!theirs.dtype || !ours.dtype || !theirs.shape || !ours.shape) continue;
      const bool real = is_float(*ours.dtype);
      if (real != is_float(*theirs.dtype) || (real && !first_step)) continue;
      if (!(*theirs.shape == *ours.shape))
        return difference(name_of(use.slot) + " has shape " + list_text(ours.shape->span()) +
                              " against golden's " + list_text(theirs.shape->span()),
                          true);
      if (theirs.digest && ours.digest && theirs.dtype == ours.dtype &&
          *theirs.digest == *ours.digest)
        continue;
      const Result<Tensor> g = run::load_tensor(theirs);
      const Result<Tensor> m = run::load_tensor(ours);
      if (!g || !m) {
        if (!real && have_other_statistics(theirs, ours))
          return difference(
              name_of(use.slot) + " has other values than golden's, by its statistics", false);
        continue;
      }
      if (real ? is_other_real(g->view, m->view) : false)
        return difference(name_of(use.slot) + " differs by more than one rounding", false);
      if (real) continue;
      if (std::optional<std::string> place = first_difference(g->view, m->view))
        return difference(name_of(use.slot) + " " + *place, false);
    }
    // Of a run without inputs nothing is known.
    for (const Use& use : golden.inputs) {
      if (mine.inputs.empty() || !is_mask(use.slot) ||
          std::ranges::find(mine.inputs, use.slot, &Use::slot) != mine.inputs.end())
        continue;
      if (!hides_nothing(golden_.run->records[use.record], tokens_so_far(golden_, golden)))
        return difference("golden was given " + name_of(use.slot) + ", mine was not", false);
    }
    return std::nullopt;
  }

  /// How many tokens a sequence has when a call of the model ends: the second axis of its inputs of
  /// tokens, added up over the steps.
  static int64_t tokens_so_far(const Program& program, const ModuleCall& last) {
    int64_t count = 0;
    for (const ModuleCall& call : program.calls) {
      if (!call.module.empty() || call.rank != last.rank || call.step > last.step) continue;
      for (const Use& use : call.inputs) {
        const TensorRecord& record = program.run->records[use.record];
        if (!is_tokens(use.slot) || !record.shape || record.shape->size() < 2) continue;
        count += (*record.shape)[1];
        break;
      }
    }
    return count;
  }

  [[nodiscard]] int64_t first_step_of_mine() const {
    const auto first = std::ranges::min_element(mine_.calls, {}, &ModuleCall::step);
    return first == mine_.calls.end() ? 0 : first->step;
  }

  /// The test of other_tokens(), of how many tokens there are.
  [[nodiscard]] std::optional<std::string> other_count_of_tokens(const ModuleCall& mine) const {
    const size_t partner = pairing_.golden_call_of[static_cast<size_t>(&mine - mine_.calls.data())];
    if (partner == kNone || mine.module.empty() || !lookups_.contains(partner)) return std::nullopt;
    const ModuleCall& golden = golden_.calls[partner];
    for (const auto& [ours, theirs, what] :
         {std::tuple(&mine.inputs, &golden.inputs, "the input of "),
          std::tuple(&mine.outputs, &golden.outputs, "the output of ")}) {
      if (ours->size() != 1 || theirs->size() != 1) continue;
      const InternedDims shape = mine_.run->records[ours->front().record].shape;
      const InternedDims golden_shape = golden_.run->records[theirs->front().record].shape;
      if (shape && golden_shape && !(*shape == *golden_shape))
        return what + mine.module + " has shape " + list_text(shape->span()) +
               " against golden's " + list_text(golden_shape->span()) +
               (mine.inputs.empty() ? "; whether it was given the same tokens in other steps only "
                                      "its input would tell, which was not captured"
                                    : "");
    }
    return std::nullopt;
  }

  /// What the model was called with was not captured of mine, but the module that looks its tokens
  /// up was: its input, or its result, which is made of rows of the table.
  [[nodiscard]] std::optional<std::string> other_tokens(const ModuleCall& mine) const {
    const auto index = static_cast<size_t>(&mine - mine_.calls.data());
    const size_t partner = pairing_.golden_call_of[index];
    if (partner == kNone || mine.module.empty()) return std::nullopt;
    const ModuleCall& golden = golden_.calls[partner];
    const auto lookup = lookups_.find(partner);
    if (lookup == lookups_.end()) return std::nullopt;
    const Operator& one = golden_.operators[lookup->second];
    for (const Use& use : mine.inputs) {
      const auto theirs = std::ranges::find(golden.inputs, use.slot, &Use::slot);
      if (theirs == golden.inputs.end()) continue;
      const Result<Tensor> g = run::load_tensor(golden_.run->records[theirs->record]);
      const Result<Tensor> m = run::load_tensor(mine_.run->records[use.record]);
      if (!g || !m || is_float(m->view.dtype) || !(g->view.shape == m->view.shape)) continue;
      if (std::optional<std::string> place = first_difference(g->view, m->view))
        return "the input of " + mine.module + " " + *place;
      return std::nullopt;
    }
    if (mine.outputs.size() != 1 || golden.outputs.size() != 1) return std::nullopt;
    return other_rows(one, golden, mine);
  }

  [[nodiscard]] std::optional<std::string> other_rows(const Operator& lookup,
                                                      const ModuleCall& golden,
                                                      const ModuleCall& mine) const {
    const auto operand = [&](std::string_view slot) -> Result<Tensor> {
      const auto use = std::ranges::find(lookup.inputs, InternedText(slot), &Use::slot);
      if (use == lookup.inputs.end()) return fail(Errc::NotFound, "no such operand");
      return load_use(golden_, *use);
    };
    const Result<Tensor> table = operand("weight");
    const Result<Tensor> tokens = operand("indices");
    const Result<Tensor> right = load_use(golden_, golden.outputs.front());
    const Result<Tensor> value = load_use(mine_, mine.outputs.front());
    if (!table || !tokens || !right || !value) return std::nullopt;
    const std::optional<OtherRow> other =
        first_other_row(table->view, tokens->view, right->view, value->view);
    if (!other) return std::nullopt;
    return "the output of " + mine.module + " holds token " + std::to_string(other->mine) + " at " +
           place_text(other->place, tokens->view.shape) + " where golden's has " +
           std::to_string(other->golden);
  }

  static bool is_other_real(const TensorView& golden, const TensorView& mine) {
    const Result<WeightDifference> difference = weight_difference(golden, mine);
    return difference && difference->half_ulp > kWeightLimit;
  }

  /// Modules that look up rows of a table by what golden's model was called with.
  void find_lookups() {
    std::set<std::pair<int64_t, ValueId>> inputs;  // by step
    std::map<std::tuple<std::string_view, int64_t, uint32_t>, size_t> calls;
    for (size_t i = 0; i < golden_.calls.size(); ++i) {
      const ModuleCall& call = golden_.calls[i];
      calls.emplace(std::tuple(std::string_view(call.module), call.step, call.call), i);
      if (!call.module.empty()) continue;
      for (const Use& use : call.inputs) inputs.emplace(call.step, use.value);
    }
    for (size_t i = 0; i < golden_.operators.size(); ++i) {
      const Operator& one = golden_.operators[i];
      // GPT-2 views its tokens before it looks them up.
      if (reference::aten::is_view(one.name) && !one.inputs.empty() && one.outputs.size() == 1 &&
          inputs.contains({one.step, one.inputs.front().value}))
        inputs.emplace(one.step, one.outputs.front().value);
      if (!one.name.starts_with("aten.embedding.")) continue;
      const auto tokens = std::ranges::find(one.inputs, "indices", &Use::slot);
      const auto call = calls.find({std::string_view(one.module), one.step, one.module_call});
      if (tokens == one.inputs.end() || call == calls.end()) continue;
      if (tokens->value != kNoValue && inputs.contains({one.step, tokens->value}))
        lookups_.emplace(call->second, i);
    }
  }

  const Program& golden_;
  const Program& mine_;
  const Pairing& pairing_;
  std::map<size_t, size_t> lookups_;  // golden's call -> golden's operator
};

}  // namespace

std::optional<InputDifference> find_input_difference(const Program& golden, const Program& mine,
                                                     const Pairing& pairing) {
  return InputTest(golden, mine, pairing).find();
}

}  // namespace assay::locate
