// SPDX-License-Identifier: Apache-2.0
// From records to a program: who made which value, and in which call of which module.
#include "locate/program/program.hpp"

#include <algorithm>
#include <set>
#include <tuple>
#include <unordered_map>

#include "base/numbers.hpp"
#include "locate/program/collectives.hpp"
#include "locate/program/engine.hpp"
#include "locate/program/program_arguments.hpp"
#include "locate/program/program_level.hpp"
#include "run/common_names.hpp"
#include "run/load.hpp"
#include "run/strided_payload.hpp"
#include "tensor/equal_bytes.hpp"

namespace assay::locate {
namespace {

using run::TensorRecord;

/// Ids of a file are below this; ours have the number of the rank above.
constexpr int64_t kFileIds = int64_t{1} << 44;
constexpr size_t kMaxRanks = size_t{1} << 18;
constexpr size_t kMaxListLength = size_t{1} << 16;

bool is_value(const TensorRecord& record) {
  return record.value.empty() && record.kind == run::RecordKind::Operand;
}

/// One execution of one node, as an operator or as a module call.
using ExecutionKey = std::tuple<int, int64_t, uint32_t, std::string_view>;  // rank step call node
ExecutionKey key_of(const TensorRecord& record) {
  return {record.rank, record.step, record.call, record.node};
}

class Builder {
 public:
  Builder(const run::Run& run, const Engine* engine) : run_(run) {
    program_.run = &run;
    program_.engine = engine;
  }

  Program build(Arguments arguments) {
    number_ranks();
    add_operators();
    add_records();
    connect();
    if (program_.engine != nullptr) program_.model_weights = program_.engine->model_weights(run_);
    if (run_.topology && run_.has_modules()) add_leaf_types(*run_.topology);
    std::ranges::stable_sort(program_.calls, [](const ModuleCall& a, const ModuleCall& b) {
      return std::tuple(a.rank, a.end) < std::tuple(b.rank, b.end);
    });
    mark_leaf_modules();
    if (arguments == Arguments::Read) {
      read_all_arguments();
      join_collectives(&program_);
    }
    program_.coded = std::make_shared<pair::CodedLeaves>(run_, program_.leaves);
    if (lost_ > 0)
      program_.problems.push_back(std::to_string(lost_) +
                                  " tensors of operators have no operator and were left out");
    classify(&program_);
    return std::move(program_);
  }

 private:
  void number_ranks() {
    for (const TensorRecord& record : run_.records) ranks_.emplace(record.rank, ranks_.size());
  }

  [[nodiscard]] ValueId value_of(const TensorRecord& record) const {
    const size_t rank = ranks_.at(record.rank);
    if (record.value_id < 0 || record.value_id >= kFileIds || rank >= kMaxRanks) return kNoValue;
    return static_cast<int64_t>(rank) * kFileIds + record.value_id;
  }

  /// Operators of a native run. Operations of other layouts have no place among the records.
  void add_operators() {
    for (const run::OperationRecord* record : operations_in_order(run_)) {
      const run::OperationRecord& operation = *record;
      Operator one;
      one.node = operation.node;
      one.name = operation.op_type;
      one.module = operation.module;
      one.module_call = operation.module_call;
      one.rank = operation.rank;
      one.step = operation.step;
      one.time = operation.order;
      one.writes = operation.writes;
      program_.operators.push_back(std::move(one));
      arguments_.push_back(&operation.parameters.str());
    }
  }

  void add_records() {
    std::map<ExecutionKey, size_t> running;  // the latest operator of that name
    std::map<ExecutionKey, size_t> calls;
    size_t next = 0;
    if (!program_.operators.empty()) {
      producer_of_record_.assign(run_.records.size(), kNone);
      output_of_record_.assign(run_.records.size(), 0);
    }
    for (size_t i = 0; i < run_.records.size(); ++i) {
      const TensorRecord& record = run_.records[i];
      for (; next < program_.operators.size() && starts_before(program_.operators[next], record);
           ++next) {
        const Operator& one = program_.operators[next];
        running.insert_or_assign({one.rank, one.step, one.module_call, one.node}, next);
      }
      if (!is_value(record)) continue;
      if (record.role == Role::Weight || record.role == Role::Buffer) {
        add_weight(i);
      } else if (run_.has(run::Trait::AtenOperators) && record.is_of_operator()) {
        const auto found = running.find(key_of(record));
        if (found == running.end()) {
          ++lost_;
        } else {
          add_operand(i, found->second);
        }
      } else if (run_.has_modules()) {
        add_to_call(i, &calls);
      }
      if (record.role == Role::Input && !record.leaf.empty() && record.producer < 0 &&
          is_weight(record))
        leaf_inputs_.push_back(i);
    }
    for (const size_t i : leaf_inputs_) consider_leaf(run_.records[i].leaf, i);
  }

  [[nodiscard]] bool is_weight(const TensorRecord& record) const {
    return program_.engine == nullptr || program_.engine->is_weight(record);
  }

  static bool starts_before(const Operator& one, const TensorRecord& record) {
    return std::tuple(one.rank, one.time) <= std::tuple(record.rank, record.order);
  }

  /// What no operator made the host may fill anew behind the capture's counters (NumPy, inference
  /// mode): other bytes are another value.
  ValueId value_of_leaf(size_t index) {
    const ValueId value = value_of(run_.records[index]);
    if (value == kNoValue) return value;
    const auto [latest, is_new] = fillings_.try_emplace(value, Filling{value, index});
    Filling& filling = latest->second;
    if (!is_new && has_other_bytes(run_.records[filling.record], run_.records[index])) {
      const auto rank = static_cast<int64_t>(ranks_.at(run_.records[index].rank));
      filling = {(rank + 1) * kFileIds - ++refilled_, index};
    }
    return filling.value;
  }

  /// False where it cannot be told.
  static bool has_other_bytes(const TensorRecord& a, const TensorRecord& b) {
    if (a.digest && b.digest) return !(*a.digest == *b.digest);
    if (!a.bytes || !b.bytes || run::has_same_payload(a, b)) return false;
    if (!a.dtype || info(*a.dtype).element_bits < 8) return false;
    const Result<Tensor> first = run::load_tensor(a);
    const Result<Tensor> second = run::load_tensor(b);
    return first && second && !has_equal_bytes(first->view, second->view);
  }

  [[nodiscard]] Use use_of(size_t index) {
    const TensorRecord& record = run_.records[index];
    Use use;
    use.slot = record.slot;
    use.record = index;
    const bool is_leaf = record.role == Role::Input && record.producer < 0;
    use.value = is_leaf ? value_of_leaf(index) : value_of(record);
    use.time = record.order;
    if (record.role == Role::Input) use.leaf = record.leaf;
    return use;
  }

  void add_operand(size_t index, size_t op) {
    Operator& one = program_.operators[op];
    if (run_.records[index].role == Role::Input) {
      one.inputs.push_back(use_of(index));
    } else {
      producer_of_record_[index] = op;
      output_of_record_[index] = one.outputs.size();
      one.outputs.push_back(use_of(index));
    }
  }

  void add_to_call(size_t index, std::map<ExecutionKey, size_t>* calls) {
    const TensorRecord& record = run_.records[index];
    const auto [found, is_new] = calls->try_emplace(key_of(record), program_.calls.size());
    if (is_new) {
      ModuleCall call;
      call.module = run::module_path(run_, record.node);
      call.type = record.op_type;
      call.call = record.call;
      call.rank = record.rank;
      call.step = record.step;
      call.begin = record.order;
      program_.calls.push_back(std::move(call));
    }
    ModuleCall& call = program_.calls[found->second];
    call.end = record.order;
    (record.role == Role::Input ? call.inputs : call.outputs).push_back(use_of(index));
  }

  void add_weight(size_t index) {
    const TensorRecord& record = run_.records[index];
    const std::string module = run::module_path(run_, record.node);
    consider_leaf(
        module.empty() || record.slot.empty() ? module + record.slot : module + '.' + record.slot,
        index);
    if (!record.leaf.empty()) consider_leaf(record.leaf, index);
  }

  /// A parameter that was dumped is whole; what operators saw of one may be a part, so the largest
  /// counts.
  void consider_leaf(const std::string& name, size_t index) {
    const TensorRecord& record = run_.records[index];
    if (!record.bytes && !record.stats && !record.digest) return;
    const auto [found, is_new] = program_.leaves.try_emplace(name, index);
    if (is_new) return;
    const auto rank_of = [&](size_t i) {
      const TensorRecord& one = run_.records[i];
      const int64_t size = one.shape ? element_count(*one.shape).value_or(0) : 0;
      return std::tuple(one.bytes.has_value(), one.role != Role::Input, size);
    };
    if (rank_of(index) > rank_of(found->second)) found->second = index;
  }

  void add_leaf_types(const run::TopologyNode& node) {
    const std::string module = run::module_path(run_, node.name);
    for (const auto& [name, type] : node.parameter_types) {
      if (const std::optional<DType> dtype = dtype_from_name(type))
        program_.leaf_types.emplace(module.empty() ? name : module + '.' + name, *dtype);
    }
    for (const run::TopologyNode& child : node.children) add_leaf_types(child);
  }

  /// From the producers of records to operators.
  void connect() {
    if (program_.operators.empty()) return;
    std::unordered_map<uint64_t, size_t> by_order;
    for (size_t i = 0; i < run_.records.size(); ++i) by_order.emplace(run_.records[i].order, i);
    const auto resolve = [&](std::vector<Use>* uses) {
      for (Use& use : *uses) {
        const int64_t producer = run_.records[use.record].producer;
        if (producer < 0) continue;
        const auto found = by_order.find(static_cast<uint64_t>(producer));
        if (found == by_order.end()) continue;
        use.producer = producer_of_record_[found->second];
        use.producer_output = output_of_record_[found->second];
      }
    };
    for (Operator& one : program_.operators) resolve(&one.inputs);
    for (ModuleCall& call : program_.calls) resolve(&call.inputs);
  }

  /// A module is a leaf when no other captured module lies inside it.
  void mark_leaf_modules() {
    std::set<std::string_view> inner;
    for (const ModuleCall& call : program_.calls) {
      const std::string_view path = call.module;
      if (!path.empty()) inner.insert("");
      for (size_t i = path.find_last_of("./"); i != std::string_view::npos && i > 0;
           i = path.find_last_of("./", i - 1)) {
        inner.insert(path.substr(0, i));
      }
    }
    for (ModuleCall& call : program_.calls) call.leaf = !inner.contains(call.module);
  }

  /// Slots that the arguments name must be there; what the arguments do not say of lists the slots
  /// do.
  void read_all_arguments() {
    for (size_t i = 0; i < program_.operators.size(); ++i) {
      Operator& one = program_.operators[i];
      const std::vector<std::string> named = read_arguments(*arguments_[i], &one);
      std::set<std::string_view> captured;
      for (const Use& use : one.inputs) {
        captured.insert(use.slot);
        add_to_list(use.slot, &one);
      }
      for (const std::string& slot : named) {
        if (!one.problem.empty() || captured.contains(slot)) continue;
        one.problem = "the input '" + slot + "' was not captured";
        one.input_missing = true;
      }
    }
  }

  static void add_to_list(std::string_view slot, Operator* one) {
    const size_t dot = slot.rfind('.');
    if (dot == std::string_view::npos) return;
    const std::optional<size_t> index = parse_number<size_t>(slot.substr(dot + 1));
    if (!index || *index >= kMaxListLength) {
      one->problem = "the input '" + std::string(slot) + "' has no place in a list";
      return;
    }
    size_t& size = one->list_sizes[std::string(slot.substr(0, dot))];
    size = std::max(size, *index + 1);
  }

  /// The value that a tensor of the host holds now, and its first record.
  struct Filling {
    ValueId value = kNoValue;
    size_t record = kNone;
  };

  const run::Run& run_;
  Program program_;
  std::unordered_map<ValueId, Filling> fillings_;  // by the value of the file
  int64_t refilled_ = 0;
  std::map<int, size_t> ranks_;
  std::vector<const std::string*> arguments_;  // text, by operator
  std::vector<size_t> producer_of_record_;     // of outputs of operators
  std::vector<size_t> output_of_record_;
  std::vector<size_t> leaf_inputs_;
  size_t lost_ = 0;
};

}  // namespace

std::vector<const run::OperationRecord*> operations_in_order(const run::Run& run) {
  std::vector<const run::OperationRecord*> operations;
  if (!run.has(run::Trait::AtenOperators)) return operations;
  for (const run::OperationRecord& operation : run.operations) operations.push_back(&operation);
  std::ranges::stable_sort(operations, {}, [](const run::OperationRecord* one) {
    return std::tuple(one->rank, one->order);
  });
  return operations;
}

Program make_program(const run::Run& run, std::span<const Engine* const> engines,
                     Arguments arguments) {
  const auto maker =
      std::ranges::find_if(engines, [&](const Engine* engine) { return engine->made(run); });
  return Builder(run, maker == engines.end() ? nullptr : *maker).build(arguments);
}

}  // namespace assay::locate
