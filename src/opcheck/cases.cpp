// SPDX-License-Identifier: Apache-2.0
// Records are grouped by rank, step and node, and get the parameters of their folder, of the
// topology or of a list. Kernels take over what is known of their operation; filters and, for
// operations over ranks, the peers come last.
#include "opcheck/cases.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "base/ascii.hpp"
#include "base/mapped_file.hpp"
#include "base/numbers.hpp"
#include "base/text.hpp"
#include "formats/op_csv.hpp"
#include "opcheck/registry.hpp"
#include "run/atb_names.hpp"
#include "run/atb_part.hpp"
#include "run/natural_sort.hpp"
#include "run/open.hpp"

namespace assay::opcheck {
namespace {

constexpr size_t kMaxTensors = 4096;  // of one operation; a larger number is a damaged name

bool is_multi_card(std::string_view op_type) {
  static const std::set<std::string_view> kTypes = {
      "AllGatherOperation",     "AllGatherVOperation",     "AllReduceOperation",
      "AllToAllOperation",      "AllToAllVOperation",      "AllToAllVV2Operation",
      "BroadcastOperation",     "LinearParallelOperation", "ReduceScatterOperation",
      "ReduceScatterVOperation"};
  return kTypes.contains(op_type);
}

uint64_t bytes_of(const run::TensorRecord& record) {
  return record.bytes ? record.bytes->size_bytes : 0;
}

// ---- parameters from the topology, which has them flattened ------------------------------------

/// A value as JSON: numbers, truth values and lists stay, everything else becomes a text.
std::string json_value(const std::string& text) {
  if (Parameters::parse("{\"v\":" + text + "}")) return text;
  return json_quote(text);
}

std::string json_of(const std::map<std::string, std::string>& flattened) {
  // "a.b" and "a.c" stand next to each other, because the map is ordered.
  std::string json = "{";
  std::vector<std::string> open;
  bool first = true;
  for (const auto& [path, text] : flattened) {
    const std::vector<std::string_view> parts = split(path, '.');
    size_t common = 0;
    while (common < open.size() && common + 1 < parts.size() && open[common] == parts[common])
      ++common;
    for (; open.size() > common; open.pop_back()) {
      json += '}';
      first = false;
    }
    for (size_t i = common; i + 1 < parts.size(); ++i) {
      if (!first) json += ',';
      json += json_quote(parts[i]) + ":{";
      open.emplace_back(parts[i]);
      first = true;
    }
    if (!first) json += ',';
    json += json_quote(parts.back()) + ":" + json_value(text);
    first = false;
  }
  json.append(open.size() + 1, '}');
  return json;
}

void collect_topology(const run::TopologyNode& node,
                      std::map<std::string, std::string>* json_by_node) {
  if (!node.parameters.empty()) json_by_node->emplace(node.name, json_of(node.parameters));
  for (const run::TopologyNode& child : node.children) collect_topology(child, json_by_node);
}

// ---- the list of operations --------------------------------------------------------------------

struct CsvCase {
  std::string op_type;
  std::string ids;
  std::string parameters;
};

struct CsvCases {
  std::vector<CsvCase> cases;
  size_t unnamed = 0;  // rows whose name has no ids
};

Result<CsvCases> read_csv_cases(const std::string& path) {
  ASSAY_TRY(const MappedFile file, MappedFile::open(path));
  std::string_view text = as_text(file.bytes());
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  std::string_view header = text.substr(0, text.find('\n'));
  if (header.ends_with('\r')) header.remove_suffix(1);
  const std::vector<std::string_view> columns = split(header, '|');
  const auto column = [&](std::string_view name) -> size_t {
    return static_cast<size_t>(std::find(columns.begin(), columns.end(), name) - columns.begin());
  };
  const size_t name_column = column("OpName");
  const size_t type_column = column("OutDType");
  const size_t parameter_column = column("OpParam");
  if (name_column == columns.size() || type_column == columns.size())
    return fail(
        Error{Errc::Invalid, path, std::nullopt, "Cannot find enough info in csv file: " + path});
  CsvCases result;
  const auto add = [&](std::string_view name, std::string_view parameters) {
    const size_t underscore = name.find('_');
    if (underscore == std::string_view::npos) {
      ++result.unnamed;
      return;
    }
    result.cases.push_back({std::string(name.substr(0, underscore)),
                            std::string(name.substr(underscore + 1)), std::string(parameters)});
  };
  if (header == formats::op_csv_header()) {
    for (const formats::OpCsvRow& row : formats::read_op_csv(text).rows) {
      if (!row.op_name.empty() && !row.outputs.empty()) add(row.op_name, row.op_param);
    }
    return result;
  }
  bool first = true;
  for (std::string_view line : split(text, '\n')) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (first || line.empty()) {
      first = false;
      continue;
    }
    const std::vector<std::string_view> cells = split(line, '|');
    const auto cell = [&](size_t at) { return at < cells.size() ? cells[at] : std::string_view(); };
    if (!cell(name_column).empty() && !cell(type_column).empty())
      add(cell(name_column), cell(parameter_column));
  }
  return result;
}

}  // namespace

bool is_wanted_id(const std::string& id, const std::vector<std::string>& ids) {
  return ids.empty() || std::any_of(ids.begin(), ids.end(), [&](const std::string& wanted) {
           return id == wanted || id.starts_with(wanted + "_");
         });
}

/// Groups the records of a run into executions and gives them their parameters and types.
class CaseBuilder {
 public:
  explicit CaseBuilder(const CaseOptions& options) : options_(options) {}

  Result<CaseList> build(const std::string& path) {
    CaseList list;
    list.path = path;
    Result<run::AtbPart> opened = run::open_atb_part(path);
    if (!opened) {
      if (opened.error().code == Errc::Unsupported) return fail(not_a_dump(path));
      return fail(std::move(opened).error());
    }
    if (!opened->run.has(run::Trait::AtbOperations)) return fail(not_a_dump(path));
    const auto part = std::make_shared<const run::AtbPart>(*std::move(opened));
    list.run_ = std::shared_ptr<const run::Run>(part, &part->run);
    list.warnings = list.run_->warnings;
    ASSAY_TRY_STATUS(read_csv());
    list.entries_ = entries_of(*list.run_, part.get(), &list);
    apply_csv(&list);
    apply_filters(&list);
    find_peers(part->dump_folder, &list);
    return list;
  }

 private:
  static Error not_a_dump(const std::string& path) {
    return {Errc::WrongKind,
            {},
            std::nullopt,
            "Input path is not in msit_dump tensors directory: " + path};
  }

  Status read_csv() {
    if (options_.csv_path.empty()) return {};
    ASSAY_TRY(csv_, in_file(options_.csv_path, read_csv_cases(options_.csv_path)));
    return {};
  }

  std::vector<CaseEntry> entries_of(const run::Run& run, const run::AtbPart* part, CaseList* list) {
    using Key = std::tuple<int, std::string, std::string>;  // rank, step, node
    std::map<Key, CaseEntry> by_node;
    std::map<Key, size_t> kernels;  // how many an operation has
    std::set<Key> graphs;
    for (const run::TensorRecord& record : run.records) {
      if (part != nullptr && !part->holds(record)) continue;
      const Key key(record.rank, record.step_name, record.node);
      auto [found, is_new] = by_node.try_emplace(key);
      if (is_new) describe(record, &found->second);
      add_tensor(run, record, &found->second);
    }
    for (const auto& [key, entry] : by_node) {
      const auto& [rank, step, node] = key;
      std::string_view around = run::atb_parent(node);
      if (entry.is_kernel) ++kernels[Key(rank, step, around)];
      for (; !entry.is_kernel && !around.empty(); around = run::atb_parent(around))
        graphs.emplace(rank, step, around);
    }
    attach_parameters(run, &by_node, list);
    std::map<std::string, size_t> unlisted;
    std::vector<CaseEntry> entries;
    for (auto& [key, entry] : by_node) {
      if (entry.is_kernel) {
        const auto& [rank, step, node] = key;
        const Key parent(rank, step, run::atb_parent(node));
        const auto operation = by_node.find(parent);
        describe_kernel(operation == by_node.end() ? nullptr : &operation->second, kernels[parent],
                        &entry);
      }
    }
    for (auto& [key, entry] : by_node) {
      if (entry.is_kernel && !options_.kernels) continue;
      if (!entry.is_kernel && entry.op == nullptr && graphs.contains(key)) {
        ++unlisted["graphs of operations"];
        continue;
      }
      entries.push_back(std::move(entry));
    }
    list->unlisted.assign(unlisted.begin(), unlisted.end());
    std::stable_sort(entries.begin(), entries.end(), [](const CaseEntry& a, const CaseEntry& b) {
      const CaseDescription& x = a.description;
      const CaseDescription& y = b.description;
      if (x.rank != y.rank) return x.rank < y.rank;
      if (x.step != y.step) return run::natural_less(x.step, y.step);
      if (x.id != y.id) return run::natural_less(x.id, y.id);
      return run::natural_less(x.node, y.node);
    });
    return entries;
  }

  static void describe(const run::TensorRecord& record, CaseEntry* entry) {
    CaseDescription& about = entry->description;
    about.id = run::atb_ids_of_node(record.node);
    about.op_type = run::atb_operation_type(record);
    about.node = record.node;
    about.rank = record.rank;
    about.step = record.step_name;
    about.parameters = "{}";
    entry->evaluated_as = about.op_type;
    entry->op = find_operator(about.op_type);
    about.in_table = entry->op != nullptr;
    entry->is_kernel = entry->op == nullptr && run::is_atb_kernel(about.op_type);
  }

  /// A kernel that is its whole operation is checked like it; of several only those whose part is
  /// known.
  static void describe_kernel(const CaseEntry* operation, size_t kernel_count, CaseEntry* kernel) {
    const std::string& name = kernel->description.op_type;
    if (operation == nullptr || operation->op == nullptr) {
      kernel->unsupported = "kernel of an operation that was not captured or is not in the table";
      return;
    }
    kernel->description.in_table = true;
    kernel->description.parameters = operation->description.parameters;
    kernel->description.parameter_error = operation->description.parameter_error;
    if (kernel_count == 1) {
      kernel->op = operation->op;
      kernel->evaluated_as = operation->evaluated_as;
      kernel->parameters = operation->parameters;
    } else if (name.find("MatMul") != std::string::npos) {
      kernel->op = operation->op;
      kernel->evaluated_as = operation->evaluated_as;
      kernel->parameters = operation->parameters.with("hasBias", false);
    } else if (name.starts_with("AddF") || name.starts_with("AddBF")) {
      kernel->op = find_operator("ElewiseOperation");
      kernel->evaluated_as = "ElewiseOperation";
      kernel->parameters = *Parameters::parse(R"({"elewiseType":8})");
    } else {
      kernel->unsupported = "one of " + std::to_string(kernel_count) + " kernels of " +
                            operation->description.op_type + ", whose part in it is not known";
    }
  }

  static void add_tensor(const run::Run& run, const run::TensorRecord& record, CaseEntry* entry) {
    const std::optional<size_t> number = run::atb_operand_number(record.slot);
    if (!number || *number >= kMaxTensors) return;
    entry->bytes += bytes_of(record);
    if (record.bytes) entry->description.folder = run.node_folder(record);
    CaseTensors& tensors = entry->tensors;
    if (record.role == Role::Input) {
      if (tensors.inputs.size() <= *number) tensors.inputs.resize(*number + 1);
      CaseTensors::Slot& slot = tensors.inputs[*number];
      (record.moment == run::Moment::Before ? slot.before : slot.after) = &record;
    } else if (record.role == Role::Output && record.moment != run::Moment::Before) {
      if (tensors.outputs.size() <= *number) tensors.outputs.resize(*number + 1);
      tensors.outputs[*number] = &record;
    }
  }

  template <typename ByNode>
  static void attach_parameters(const run::Run& run, ByNode* by_node, CaseList* list) {
    std::map<std::string, std::string> from_topology;
    if (run.topology) collect_topology(*run.topology, &from_topology);
    const auto give = [](const std::string& json, CaseEntry* entry) {
      if (json.empty()) return;
      Result<Parameters> parsed = Parameters::parse(json);
      if (parsed) {
        entry->parameters = *std::move(parsed);
        entry->description.parameters = entry->parameters.python_text();
        entry->description.parameter_error.clear();
      } else {
        entry->description.parameters = json;
        entry->description.parameter_error = parsed.error().describe();
      }
    };
    size_t without_tensors = 0;
    std::set<const CaseEntry*> told;
    for (const run::OperationRecord& operation : run.operations) {
      const auto found =
          by_node->find(std::tuple(operation.rank, operation.step_name, operation.node));
      if (found == by_node->end()) {
        without_tensors += find_operator(operation.op_type) != nullptr;
        continue;
      }
      give(operation.parameters, &found->second);
      told.insert(&found->second);
    }
    for (auto& [key, entry] : *by_node) {
      if (told.contains(&entry)) continue;
      const auto found = from_topology.find(std::get<2>(key));
      if (found != from_topology.end()) give(found->second, &entry);
    }
    if (without_tensors > 0)
      list->warnings.push_back(std::to_string(without_tensors) +
                               " operations are listed with parameters, but their tensors were not "
                               "captured");
  }

  /// Keeps the entries of the list's rows, with the list's parameters where a folder has none.
  void apply_csv(CaseList* list) {
    if (options_.csv_path.empty()) return;
    std::map<std::pair<std::string, std::string>, const CsvCase*> rows;
    for (const CsvCase& row : csv_.cases) rows.emplace(std::pair(row.ids, row.op_type), &row);
    std::set<const CsvCase*> used;
    std::vector<CaseEntry> kept;
    for (CaseEntry& entry : list->entries_) {
      const auto row = rows.find({entry.description.id, entry.description.op_type});
      if (row == rows.end()) continue;
      used.insert(row->second);
      if (entry.description.parameters == "{}" && !row->second->parameters.empty()) {
        Result<Parameters> parsed = Parameters::parse(row->second->parameters);
        entry.description.parameters = parsed ? parsed->python_text() : row->second->parameters;
        if (parsed) {
          entry.parameters = *std::move(parsed);
        } else {
          entry.description.parameter_error = parsed.error().describe();
        }
      }
      kept.push_back(std::move(entry));
    }
    list->entries_ = std::move(kept);
    if (used.size() < rows.size())
      list->warnings.push_back(std::to_string(rows.size() - used.size()) + " of " +
                               std::to_string(rows.size()) +
                               " operations of the csv have no tensors in the dump");
    if (csv_.unnamed > 0)
      list->warnings.push_back(std::to_string(csv_.unnamed) +
                               " rows of the csv have names without ids and were left out");
  }

  void apply_filters(CaseList* list) const {
    const auto is_wanted_name = [&](const std::string& op_type) {
      const std::string lower = lower_case(op_type);
      return options_.names.empty() ||
             std::any_of(options_.names.begin(), options_.names.end(),
                         [&](const std::string& name) {
                           return lower.find(lower_case(name)) != std::string::npos;
                         });
    };
    KnownOperations known;
    for (const CaseEntry& entry : list->entries_)
      known.add(entry.description.op_type, entry.description.id);
    std::erase_if(list->entries_, [&](const CaseEntry& entry) {
      return !is_wanted_id(entry.description.id, options_.ids) ||
             !is_wanted_name(entry.description.op_type);
    });
    const bool chose = !options_.ids.empty() || !options_.names.empty();
    if (chose && list->entries_.empty())
      list->nothing_matched =
          no_operation_text(comma_list(options_.ids), comma_list(options_.names), known);
  }

  /// Where an operation works over ranks, all processes of the dump are looked at.
  void find_peers(const std::string& dump_folder, CaseList* list) {
    if (std::none_of(list->entries_.begin(), list->entries_.end(),
                     [](const CaseEntry& entry) { return is_multi_card(entry.evaluated_as); }))
      return;
    list->peer_run_ = list->run_;
    if (!dump_folder.empty()) {
      Result<run::Run> whole_dump = run::open_run(dump_folder);
      if (whole_dump)
        list->peer_run_ = std::make_shared<const run::Run>(*std::move(whole_dump));
      else
        list->warnings.push_back(whole_dump.error().describe());
    }
    CaseList ignored;
    std::vector<CaseEntry> peers = entries_of(*list->peer_run_, nullptr, &ignored);
    std::erase_if(peers, [](const CaseEntry& entry) { return !is_multi_card(entry.evaluated_as); });
    list->set_peers(std::move(peers));
  }

  const CaseOptions& options_;
  CsvCases csv_;
};

Result<std::vector<const CaseEntry*>> CaseList::peers_of(const CaseEntry& entry,
                                                         int64_t rank_count) const {
  constexpr int64_t kMaxRanks = 65536;
  if (rank_count < 1 || rank_count > kMaxRanks)
    return fail(Errc::Invalid, "parameter rankSize is " + std::to_string(rank_count));
  std::vector<const CaseEntry*> ranks(static_cast<size_t>(rank_count), nullptr);
  for (const CaseEntry* peer : peers_like(entry)) {
    ASSAY_TRY(const int64_t rank, peer->parameters.integer("rank", 0));
    if (rank < 0 || rank >= rank_count) continue;
    const CaseEntry*& place = ranks[static_cast<size_t>(rank)];
    // Several runs in one folder: the process that the case itself is of counts.
    if (place == nullptr || peer->description.folder == entry.description.folder) place = peer;
  }
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank] == nullptr)
      return fail(Errc::NotFound, "Cannot find data on rank " + std::to_string(rank) +
                                      "! All ranks must be dumped into one folder");
  }
  return ranks;
}

std::vector<const CaseEntry*> CaseList::peers_like(const CaseEntry& entry) const {
  std::vector<const CaseEntry*> found;
  const auto numbers = peers_by_execution_.find(execution_of(entry));
  if (!is_multi_card(entry.evaluated_as) || numbers == peers_by_execution_.end()) return found;
  for (const size_t number : numbers->second) found.push_back(&peers_[number]);
  return found;
}

CaseList::Execution CaseList::execution_of(const CaseEntry& entry) {
  return {entry.description.step, entry.description.id, entry.description.op_type};
}

void CaseList::set_peers(std::vector<CaseEntry> peers) {
  peers_ = std::move(peers);
  for (size_t i = 0; i < peers_.size(); ++i)
    peers_by_execution_[execution_of(peers_[i])].push_back(i);
}

CaseList CaseList::of(std::shared_ptr<const run::Run> run, std::vector<CaseEntry> entries,
                      std::shared_ptr<const run::Run> peer_run, std::vector<CaseEntry> peers) {
  CaseList list;
  list.path = run->path;
  list.run_ = std::move(run);
  list.peer_run_ = std::move(peer_run);
  list.entries_ = std::move(entries);
  list.set_peers(std::move(peers));
  return list;
}

Result<CaseList> list_cases(const std::string& path, const CaseOptions& options) {
  return CaseBuilder(options).build(path);
}

}  // namespace assay::opcheck
