// SPDX-License-Identifier: Apache-2.0
// From a captured operator to a call that can be evaluated.
#include "base/numbers.hpp"
#include "locate/program/collectives.hpp"
#include "locate/program/engine.hpp"
#include "locate/program/program.hpp"
#include "run/load.hpp"

namespace assay::locate {
namespace {

using reference::aten::Argument;
using reference::aten::ArgumentList;
using reference::aten::Call;

/// The lists of a call with None in every place.
void add_lists(const Operator& one, Call* call) {
  for (const auto& [name, size] : one.list_sizes)
    call->arguments.insert_or_assign(name, Argument{ArgumentList(size)});
}

/// The place of "tensors.0" in its list; of a plain slot the argument of that name.
Argument* argument_place_of(const Operator& one, const std::string& slot, Call* call) {
  const size_t dot = slot.rfind('.');
  if (dot == std::string::npos) return &call->arguments[slot];
  const auto list = call->arguments.find(slot.substr(0, dot));
  if (list == call->arguments.end() || !one.list_sizes.contains(list->first)) return nullptr;
  auto* items = std::get_if<ArgumentList>(&list->second.value);
  const std::optional<size_t> index = parse_number<size_t>(std::string_view(slot).substr(dot + 1));
  return items != nullptr && index && *index < items->size() ? &(*items)[*index] : nullptr;
}

Error error_of(const Operator& one, Errc code, const std::string& sentence) {
  return in_operator(one.name, {code, {}, std::nullopt, sentence});
}

}  // namespace

Result<Call> make_call(const Operator& one, const std::map<std::string, Tensor>& operands) {
  if (!one.problem.empty()) return fail(error_of(one, Errc::Invalid, one.problem));
  Call call{one.name, one.attributes};
  add_lists(one, &call);
  for (const Use& use : one.inputs) {
    const auto operand = operands.find(use.slot);
    Argument* place = argument_place_of(one, use.slot, &call);
    if (operand == operands.end() || place == nullptr)
      return fail(error_of(one, Errc::Invalid, "no value for the input '" + use.slot + "'"));
    place->value = operand->second;
  }
  if (is_collective(one)) return collective_call(std::move(call));
  return call;
}

Result<Tensor> load_use(const Program& program, const Use& use) {
  if (use.record >= program.run->records.size())
    return fail(Errc::NotFound, "'" + use.slot + "' was not captured");
  const auto joined = program.joined.find(use.record);
  if (joined != program.joined.end()) return pair::load_operand(*program.run, joined->second);
  const run::TensorRecord& record = program.run->records[use.record];
  if (program.engine != nullptr && !record.bytes)
    return program.engine->load_uncopied(program, use);
  return run::load_as_stored(record);
}

std::optional<DType> float_type(const Program& program, const Use& use) {
  if (use.record >= program.run->records.size()) return std::nullopt;
  const std::optional<DType>& type = program.run->records[use.record].dtype;
  return type && is_float(*type) ? type : std::nullopt;
}

int64_t elements_of(const run::TensorRecord& record) {
  return record.shape ? element_count(*record.shape).value_or(0) : 0;
}

std::set<std::pair<int, int64_t>> captured_steps(const Program& program) {
  std::set<std::pair<int, int64_t>> steps;
  for (const ModuleCall& call : program.calls) steps.emplace(call.rank, call.step);
  return steps;
}

Result<Call> load_call(const Program& program, const Operator& one) {
  if (!one.problem.empty()) return fail(error_of(one, Errc::Invalid, one.problem));
  std::map<std::string, Tensor> operands;
  for (const Use& use : one.inputs) {
    Result<Tensor> tensor = load_use(program, use);
    if (!tensor) {
      Error error = tensor.error();
      error.message = "input '" + use.slot + "': " + error.message;
      error.named = false;  // it may name the operator that made the input
      return fail(std::move(error));
    }
    operands.insert_or_assign(use.slot, *std::move(tensor));
  }
  ASSAY_TRY(Call call, make_call(one, operands));
  if (program.engine != nullptr) ASSAY_TRY_STATUS(program.engine->add_facts(program, one, &call));
  return call;
}

}  // namespace assay::locate
