// SPDX-License-Identifier: Apache-2.0
// From a captured operator to a call that can be evaluated.
#include "base/numbers.hpp"
#include "locate/program/ggml_operands.hpp"
#include "locate/program/program.hpp"
#include "reference/ggml/operators.hpp"

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

/// What ggml's records say beside the arguments: the sizes of the result, and the types in which blocks were stored.
Status add_ggml_facts(const Program& program, const Operator& one, Call* call) {
  const auto& records = program.run->records;
  for (const Use& use : one.inputs) {
    if (use.record >= records.size()) continue;
    const run::TensorRecord& record = records[use.record];
    if (!record.memory_format.empty())
      call->arguments[use.slot + "_type"].value = record.memory_format;
    // What is loaded has no gaps; offsets count in what the host had.
    if (one.name == "ggml.view" && record.shape && record.strides &&
        *record.strides != contiguous_strides(*record.shape))
      return fail(Errc::Unsupported, one.name + ": a view of a view with gaps");
  }
  if (one.outputs.empty() || one.outputs[0].record >= records.size()) return {};
  const run::TensorRecord& result = records[one.outputs[0].record];
  if (!result.memory_format.empty())
    return fail(Errc::Unsupported, one.name + ": no reference for results in blocks");
  if (!result.shape || result.shape->size() > 4) return {};
  ArgumentList ne(4);
  for (size_t i = 0; i < 4; ++i) {
    const size_t rank = result.shape->size();
    ne[i].value = i < rank ? (*result.shape)[rank - 1 - i] : int64_t{1};
  }
  call->arguments["ne"].value = std::move(ne);
  if (one.name != "ggml.view" || !result.strides) return {};
  ArgumentList strides;
  for (const int64_t stride : result.strides->span()) strides.emplace_back().value = stride;
  call->arguments["strides"].value = std::move(strides);
  return {};
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
  return call;
}

Result<Tensor> load_use(const Program& program, const Use& use) {
  if (use.record >= program.run->records.size())
    return fail(Errc::NotFound, "'" + use.slot + "' was not captured");
  const run::TensorRecord& record = program.run->records[use.record];
  const bool is_ggml = reference::ggml::is_ggml(record.op_type);
  return is_ggml && !record.bytes ? load_uncopied(program, use) : run::load_tensor(record);
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
  if (reference::ggml::is_ggml(one.name)) ASSAY_TRY_STATUS(add_ggml_facts(program, one, &call));
  return call;
}

}  // namespace assay::locate
