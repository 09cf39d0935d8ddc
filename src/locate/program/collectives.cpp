// SPDX-License-Identifier: Apache-2.0
// Which operators of several ranks are one collective, in which order all of them ran, and which
// call of aten each is.
#include "locate/program/collectives.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <tuple>
#include <unordered_map>

namespace assay::locate {
namespace {

using reference::aten::Argument;
using reference::aten::ArgumentList;
using reference::aten::Call;

constexpr std::string_view kParts = "parts";
constexpr std::string_view kPlace = "place";      // of this rank in its group
constexpr std::string_view kReduces = "reduces";  // "sum"
constexpr std::string_view kRoot = "root";        // place of the rank that gives

enum class Meaning : uint8_t { Reduce, Gather, GatherApart, ReduceAndScatter, Broadcast };

struct Row {
  std::string_view name;
  Meaning meaning;
  std::string_view sent;  // slot of what a rank gives
};
constexpr std::array kRows = {
    Row{"c10d.allreduce_.default", Meaning::Reduce, "tensors.0"},
    Row{"c10d.broadcast_.default", Meaning::Broadcast, "tensors.0"},
    Row{"c10d._allgather_base_.default", Meaning::Gather, "input_tensor"},
    Row{"c10d.allgather_.default", Meaning::GatherApart, "input_tensors.0"},
    Row{"c10d._reduce_scatter_base_.default", Meaning::ReduceAndScatter, "input_tensor"},
    Row{"_c10d_functional.all_reduce.default", Meaning::Reduce, "input"},
    Row{"_c10d_functional.all_reduce_.default", Meaning::Reduce, "input"},
    Row{"_c10d_functional.broadcast.default", Meaning::Broadcast, "input"},
    Row{"_c10d_functional.all_gather_into_tensor.default", Meaning::Gather, "input"},
    Row{"_c10d_functional.all_gather_into_tensor_out.default", Meaning::Gather, "input"},
    Row{"_c10d_functional.reduce_scatter_tensor.default", Meaning::ReduceAndScatter, "input"},
    Row{"_c10d_functional.reduce_scatter_tensor_out.default", Meaning::ReduceAndScatter, "input"},
};

constexpr std::string_view kCopyIn = "fsdp.all_gather_copy_in.default";

/// What stands before and behind collectives, as calls of aten with the arguments of these names.
struct Beside {
  std::string_view name, overload;
  std::array<std::array<std::string_view, 2>, 3> arguments;  // torch's name, that of aten
};
constexpr std::array kBeside = {
    Beside{"_c10d_functional.wait_tensor.default", "aten.alias.default", {{{"tensor", "self"}}}},
    Beside{"_c10d_functional._wrap_tensor_autograd.default",
           "aten.alias.default",
           {{{"input", "self"}}}},
    Beside{kCopyIn, "aten.cat.default", {{{"all_gather_inputs", "tensors"}}}},
    Beside{"fsdp.split_with_sizes_copy.default",
           "aten.split_with_sizes.default",
           {{{"all_gather_output", "self"},
             {"all_gather_input_split_sizes", "split_sizes"},
             {"dim", "dim"}}}},
};

const Beside* beside_of(std::string_view name) {
  const auto* row = std::ranges::find(kBeside, name, &Beside::name);
  return row == kBeside.end() ? nullptr : row;
}

const Row* row_of(std::string_view name) {
  const auto* row = std::ranges::find(kRows, name, &Row::name);
  return row == kRows.end() ? nullptr : row;
}

using ArgumentMap = std::map<std::string, Argument, std::less<>>;

/// Ranks of its group; empty: not known.
std::vector<int> group_of(const Operator& one) {
  std::vector<int> ranks;
  const auto* list = argument_of<ArgumentList>(one.attributes, "ranks");
  for (const Argument& item : list != nullptr ? *list : ArgumentList()) {
    const auto* rank = std::get_if<int64_t>(&item.value);
    if (rank == nullptr) return {};
    ranks.push_back(static_cast<int>(*rank));
  }
  return ranks;
}

/// What a rank gives; nullptr: several tensors at once.
const Use* sent_by(const Operator& one) {
  const auto at = [&](std::string_view slot) {
    return std::ranges::find_if(one.inputs, [&](const Use& use) { return use.slot == slot; });
  };
  const auto sent = at(row_of(one.name)->sent);
  return sent == one.inputs.end() || at("tensors.1") != one.inputs.end() ? nullptr : &*sent;
}

class Joiner {
 public:
  explicit Joiner(Program* program) : program_(*program), operators_(program->operators) {}

  void join() {
    find_meetings();
    if (meetings_.empty() || !find_clocks()) return;
    for (const auto& [key, meeting] : meetings_) {
      std::vector<Use> parts;
      for (const size_t op : meeting) {
        parts.push_back(*sent_by(operators_[op]));
        parts.back().slot = std::string(kParts) + '.' + std::to_string(parts.size() - 1);
      }
      for (size_t place = 0; place < meeting.size(); ++place)
        give(parts, place, &operators_[meeting[place]]);
    }
    read_what_was_seen_later();
    put_in_order();
  }

 private:
  /// By the group, in each step by how many it had before.
  using Key = std::tuple<int64_t, std::vector<int>, size_t>;
  using Meeting = std::vector<size_t>;  // operators, in the order of the group's ranks

  void find_meetings() {
    std::map<std::tuple<int, int64_t, std::vector<int>>, size_t> counts;
    for (size_t op = 0; op < operators_.size(); ++op) {
      const Operator& one = operators_[op];
      // What not all ranks of the group do, as one that sends to another, is not counted.
      const std::vector<int> ranks =
          row_of(one.name) == nullptr ? std::vector<int>() : group_of(one);
      const auto place = static_cast<size_t>(std::ranges::find(ranks, one.rank) - ranks.begin());
      if (ranks.size() < 2 || place == ranks.size()) continue;
      Meeting& meeting = meetings_[{one.step, ranks, counts[{one.rank, one.step, ranks}]++}];
      meeting.resize(ranks.size(), kNone);
      meeting[place] = op;
    }
    std::erase_if(meetings_, [this](const auto& one) { return !is_one_collective(one.second); });
  }

  [[nodiscard]] bool is_one_collective(const Meeting& meeting) const {
    return std::ranges::all_of(meeting, [&](size_t op) {
      return op != kNone && meeting.front() != kNone &&
             operators_[op].name == operators_[meeting.front()].name &&
             sent_by(operators_[op]) != nullptr;
    });
  }

  /// A collective's number is one more than that of the last one before it in any of its ranks.
  ///
  /// returns  false where ranks wait for each other in a circle
  bool find_clocks() {
    std::vector<const Meeting*> meeting_of(operators_.size(), nullptr);
    for (const auto& [key, meeting] : meetings_) {
      for (const size_t op : meeting) meeting_of[op] = &meeting;
    }
    clocks_.assign(operators_.size(), 0);
    for (size_t round = 0; round < meetings_.size() + 2; ++round) {
      bool moved = false;
      for (size_t op = 0; op < operators_.size(); ++op) {
        const bool is_first = op == 0 || operators_[op - 1].rank != operators_[op].rank;
        size_t clock = is_first ? 0 : clocks_[op - 1];
        if (meeting_of[op] != nullptr) {
          ++clock;
          for (const size_t other : *meeting_of[op]) clock = std::max(clock, clocks_[other]);
        }
        moved = moved || clock != clocks_[op];
        clocks_[op] = clock;
      }
      if (!moved) return true;
    }
    return false;
  }

  static void give(const std::vector<Use>& parts, size_t place, Operator* one) {
    using Names = std::array<std::string_view, 2>;
    ArgumentMap attributes;
    attributes.emplace(kPlace, Argument{static_cast<int64_t>(place)});
    for (const auto& [name, as] : {Names{kReduces, kReduces}, Names{"reduce_op", kReduces},
                                   Names{"root_rank", kRoot}, Names{"src", kRoot}}) {
      const auto said = one->attributes.find(name);
      if (said != one->attributes.end()) attributes.emplace(as, said->second);
    }
    one->attributes = std::move(attributes);
    one->inputs = parts;
    one->list_sizes = {{std::string(kParts), parts.size()}};
    for (size_t i = 0; i < one->outputs.size(); ++i)
      one->outputs[i].slot = one->outputs.size() == 1 ? std::string() : std::to_string(i);
    one->problem.clear();
    one->input_missing = false;
  }

  template <typename Body>
  void each_use(const Body& body) {
    for (Operator& one : operators_) {
      std::ranges::for_each(one.inputs, body);
      std::ranges::for_each(one.outputs, body);
    }
    for (ModuleCall& call : program_.calls) {
      std::ranges::for_each(call.inputs, body);
      std::ranges::for_each(call.outputs, body);
    }
  }

  /// A collective returns before its result is there: its bytes are those of the first that was seen
  /// of the same value.
  void read_what_was_seen_later() {
    const auto has_bytes = [&](const Use& use) {
      return program_.run->records[use.record].bytes.has_value();
    };
    std::unordered_map<ValueId, size_t> seen;
    each_use([&](const Use& use) {
      if (use.value != kNoValue && has_bytes(use)) seen.try_emplace(use.value, use.record);
    });
    const auto read = [&](Use& use) {
      const auto found = seen.find(use.value);
      if (!has_bytes(use) && found != seen.end()) use.record = found->second;
    };
    for (Operator& one : operators_) {
      if (!is_collective(one)) continue;
      // Of two results the other one is the buffer of all ranks, which has nothing of theirs yet.
      if (one.name == kCopyIn && !one.outputs.empty()) one.outputs.resize(1);
      std::ranges::for_each(one.inputs, read);
      std::ranges::for_each(one.outputs, read);
    }
  }

  void put_in_order() {
    std::vector<size_t> order(operators_.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(
        order, {}, [&](size_t op) { return std::pair(clocks_[op], operators_[op].rank); });
    std::vector<size_t> place_of(order.size());
    std::vector<Operator> sorted;
    for (const size_t op : order) {
      place_of[op] = sorted.size();
      sorted.push_back(std::move(operators_[op]));
    }
    operators_ = std::move(sorted);
    each_use([&](Use& use) {
      if (use.producer != kNone) use.producer = place_of[use.producer];
    });
  }

  Program& program_;
  std::vector<Operator>& operators_;
  std::map<Key, Meeting> meetings_;
  std::vector<size_t> clocks_;  // by operator
};

Result<Tensor> stacked(Argument parts) {
  ASSAY_TRY(const std::vector<Tensor> results,
            reference::aten::evaluate({"aten.stack.default", {{"tensors", std::move(parts)}}}));
  return results.front();
}

Result<Call> reduced(const Call& call, Argument parts) {
  struct Reduction {
    std::string_view kind, overload;
  };
  constexpr std::array kReductions = {
      Reduction{"sum", "aten.sum.dim_IntList"}, Reduction{"avg", "aten.mean.dim"},
      Reduction{"max", "aten.amax.default"}, Reduction{"min", "aten.amin.default"}};
  const auto* kind = argument_of<std::string>(call.arguments, kReduces);
  const auto* row =
      kind == nullptr ? kReductions.end() : std::ranges::find(kReductions, *kind, &Reduction::kind);
  if (row == kReductions.end())
    return fail(Errc::Unsupported, "a reduction over ranks of unknown kind");
  const auto ranks = static_cast<int64_t>(std::get<ArgumentList>(parts.value).size());
  ASSAY_TRY(Tensor stack, stacked(std::move(parts)));
  return Call{std::string(row->overload),
              {{"self", Argument{std::move(stack)}},
               {"dim", Argument{ArgumentList{Argument{int64_t{0}}}}},
               {std::string(kRanksArgument), Argument{ranks}}}};
}

/// The rows of this rank.
Status scatter(ArgumentList& parts, const int64_t* place_in_group) {
  const auto count = static_cast<int64_t>(parts.size());
  const int64_t place = place_in_group == nullptr ? -1 : *place_in_group;
  if (place < 0 || place >= count) return fail(Errc::Invalid, "a rank outside of its group");
  for (Argument& part : parts) {
    auto* tensor = std::get_if<Tensor>(&part.value);
    if (tensor == nullptr) return fail(Errc::Invalid, "a rank gave no tensor");
    TensorView& view = tensor->view;
    if (view.shape.empty() || view.shape[0] % count != 0)
      return fail(Errc::Invalid, "rows that are no multiple of the ranks");
    view.shape[0] /= count;
    view.offset_elements += place * view.shape[0] * view.strides[0];
  }
  return {};
}

}  // namespace

void join_collectives(Program* program) { Joiner(program).join(); }

bool is_collective(const Operator& one) {
  return (row_of(one.name) != nullptr && one.list_sizes.contains(kParts)) ||
         beside_of(one.name) != nullptr;
}

Result<Call> collective_call(Call call) {
  if (const Beside* row = beside_of(call.name)) {
    Call other{std::string(row->overload), {}};
    for (const auto& [torch, aten] : row->arguments) {
      const auto argument = call.arguments.find(torch);
      if (argument != call.arguments.end())
        other.arguments.emplace(aten, std::move(argument->second));
    }
    return other;
  }
  const Row* row = row_of(call.name);
  const auto found = call.arguments.find(kParts);
  auto* list =
      found == call.arguments.end() ? nullptr : std::get_if<ArgumentList>(&found->second.value);
  if (row == nullptr || list == nullptr || list->empty())
    return fail(Errc::Unsupported, "what the other ranks gave is not known");
  Argument& parts = found->second;
  switch (row->meaning) {
    case Meaning::Reduce:
      return reduced(call, std::move(parts));
    case Meaning::ReduceAndScatter:
      ASSAY_TRY_STATUS(scatter(*list, argument_of<int64_t>(call.arguments, kPlace)));
      return reduced(call, std::move(parts));
    case Meaning::Gather:
      return Call{"aten.cat.default", {{"tensors", std::move(parts)}}};
    case Meaning::GatherApart: {
      ASSAY_TRY(Tensor stack, stacked(std::move(parts)));
      return Call{"aten.unbind.int", {{"self", Argument{std::move(stack)}}}};
    }
    case Meaning::Broadcast: {
      const auto* root = argument_of<int64_t>(call.arguments, kRoot);
      if (root == nullptr || *root < 0 || static_cast<size_t>(*root) >= list->size())
        return fail(Errc::Invalid, "a broadcast from an unknown rank");
      return Call{"aten.alias.default", {{"self", std::move((*list)[static_cast<size_t>(*root)])}}};
    }
  }
  return fail(Errc::Unsupported, "a collective of unknown meaning");
}

}  // namespace assay::locate
