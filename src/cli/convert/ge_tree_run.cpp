// SPDX-License-Identifier: Apache-2.0
// Records of one operator become one dump file, or one table where the run has statistics only. The
// place of an operator in its file's name is read from the texts of its graph.
#include "cli/convert/ge_tree_run.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "base/atomic_file.hpp"
#include "base/mapped_file.hpp"
#include "base/numbers.hpp"
#include "base/text.hpp"
#include "cli/convert/dump_writer.hpp"
#include "cli/interrupt.hpp"
#include "cli/tensor_files.hpp"
#include "formats/cann_dump.hpp"
#include "formats/cann_statistics.hpp"
#include "formats/ge_file_name.hpp"
#include "formats/graph_text.hpp"
#include "run/folder.hpp"
#include "run/load.hpp"

namespace assay::cli {
namespace {

using run::TensorRecord;

constexpr int32_t kUndefinedRuntimeType = 28;

/// One operator of a graph as it was executed.
struct Operator {
  int64_t task = 0;  // its place, from 1
  size_t input_count = 0;
  size_t output_count = 0;
  formats::GraphOp text;
};
using Operators = std::map<std::string, Operator, std::less<>>;

/// The operands of one operator in one run of its graph: inputs, then outputs.
using Operands = std::span<const TensorRecord* const>;

std::string property(const run::Run& run, const char* name) {
  const auto found = run.properties.find(name);
  return found == run.properties.end() ? std::string() : found->second;
}

Result<Operators> read_operators(const std::string& path) {
  ASSAY_TRY(const MappedFile file, MappedFile::open(path));
  ASSAY_TRY(const std::vector<formats::GraphText> texts,
            in_file(path, formats::read_graph_text(as_text(file.bytes()))));
  Operators operators;
  int64_t task = 0;
  for (const formats::GraphText& text : texts) {
    for (const formats::GraphOp& op : text.ops) {
      Operator& known = operators[op.name];
      known.task = ++task;
      known.input_count =
          static_cast<size_t>(std::ranges::count_if(op.inputs, [](const std::string& edge) {
            return !edge.ends_with(":-1");  // of control
          }));
      known.output_count = op.output_desc.size();
      known.text = op;
    }
  }
  return operators;
}

/// ["Add", "Mul_1"] as Python's json writes it.
std::string python_list(const std::vector<std::string>& names) {
  std::string text = "[";
  for (const std::string& name : names) text += (text.size() > 1 ? ", " : "") + json_quote(name);
  return text + "]";
}

class GeTreeRun {
 public:
  GeTreeRun(const run::Run& run, const std::string& out) : run_(run), out_(out) {}

  Result<std::vector<std::string>> write(const std::vector<size_t>& chosen) {
    ASSAY_TRY_STATUS(read_texts());
    ASSAY_TRY_STATUS(read_choice());
    std::vector<const TensorRecord*> records;
    for (const size_t i : chosen) records.push_back(&run_.records[i]);
    const auto key = [](const TensorRecord& r) {
      return std::tuple(r.rank, r.step, r.graph, r.call, r.node.str());
    };
    for (size_t begin = 0, end = 0; begin < records.size(); begin = end) {
      if (interrupted()) return fail(Errc::Interrupted, "interrupted");
      while (end < records.size() && key(*records[end]) == key(*records[begin])) ++end;
      const Status written = write_operator(Operands(records).subspan(begin, end - begin));
      if (written) continue;
      if (written.error().code == Errc::NoSpace) return fail(written.error());
      problems_.push_back(written.error().describe());
    }
    for (const auto& [folder, rows] : mappings_)
      ASSAY_TRY_STATUS(write_file_atomically(folder + "/mapping.csv", as_bytes(rows)));
    ASSAY_TRY_STATUS(copy_texts(records));
    return std::move(problems_);
  }

 private:
  Status read_texts() {
    for (const run::Run::GraphFile& file : run_.graph_files) {
      if (!run::base_name(file.path).starts_with("dynamo_optimized_graph_")) continue;
      ASSAY_TRY(operators_[std::pair(file.rank, file.graph)], read_operators(file.path));
    }
    if (!operators_.empty()) return {};
    return fail(Error{Errc::Usage, run_.path, std::nullopt,
                      "has no texts of its graphs, which tell the places of operators"});
  }

  Status read_choice() {
    const std::string names = property(run_, "config.statistics");
    for (const std::string_view name : split(names, ',')) {
      if (name.empty()) continue;
      const auto known = formats::cann_statistic(name);
      if (!known) return fail(Errc::Invalid, "unknown statistic " + std::string(name));
      chosen_statistics_.push_back(*known);
    }
    return {};
  }

  std::string rank_folder(int rank) const {
    const std::string world = property(run_, "host.world_size");
    return out_ + "/worldsize" + (world.empty() ? "1" : world) + "_global_rank" +
           std::to_string(rank) + "/" + property(run_, "started");
  }

  std::string step_folder(const TensorRecord& record) const {
    const std::string device = property(run_, "host.device");
    const size_t colon = device.find(':');
    const std::string number = std::to_string(record.graph + 1);
    return rank_folder(record.rank) + "/" +
           (colon == std::string::npos ? "0" : device.substr(colon + 1)) + "/graph_" + number +
           "/" + number + "/" + record.step_name.str();
  }

  Status write_operator(Operands operands) {
    const TensorRecord& first = *operands.front();
    const auto graph = operators_.find(std::pair(first.rank, first.graph));
    const Operator* op = nullptr;
    if (graph != operators_.end()) {
      const auto found = graph->second.find(first.node.str());
      if (found != graph->second.end()) op = &found->second;
    }
    if (op == nullptr)
      return fail(Errc::NotFound, "no text of its graph has an operator " + first.node.str());
    // Files of one operator differ in nothing but the time.
    const uint64_t time_us = next_time_us_++;
    const std::string name =
        formats::ge_file_name(first.op_type.str(), first.node.str(), op->task, 0, time_us);
    const bool has_tensors = property(run_, "config.data") == "full";
    return has_tensors ? write_dump(operands, *op, name, time_us) : write_table(operands, name);
  }

  Status write_table(Operands operands, const std::string& name) {
    std::vector<formats::CannStatisticsRow> rows;
    for (const TensorRecord* record : operands) {
      if (!record->problem.empty() || !record->dtype || !record->shape) continue;
      ASSAY_TRY(const auto index, index_of(*record));
      rows.push_back(formats::cann_statistics_row(
          record->role == Role::Input, index, *record->dtype, *record->shape,
          record->stats ? *record->stats : stats::TensorStats()));
    }
    const std::string text = formats::write_cann_statistics(rows, chosen_statistics_);
    return write_file(step_folder(*operands.front()), name + ".csv", {as_bytes(text)});
  }

  Status write_file(const std::string& folder, const std::string& name,
                    const std::vector<ByteSpan>& pieces) {
    ASSAY_TRY_STATUS(make_directories(folder));
    const std::string stored = formats::ge_stored_name(name);
    if (stored != name) {
      std::string& rows = mappings_[folder];
      formats::append_ge_mapping(stored, name, rows.empty(), &rows);
    }
    return write_pieces_file(run::join_path(folder, stored), pieces);
  }

  static Result<uint32_t> index_of(const TensorRecord& record) {
    const auto index = parse_number<uint32_t>(record.slot.str());
    if (!index) return fail(Errc::Invalid, "operand " + record.slot.str() + " has no number");
    return *index;
  }

  /// Operands are missing from the list that the capture was to store.
  bool has_left_out(Operands operands, const Operator& op) const {
    const TensorRecord& first = *operands.front();
    const std::string mode =
        first.op_type.str() == "Data" ? "output" : property(run_, "config.mode");
    const auto is_usable = [](Role role) {
      return [role](const TensorRecord* record) {
        return record->role == role && record->problem.empty();
      };
    };
    const auto inputs =
        static_cast<size_t>(std::ranges::count_if(operands, is_usable(Role::Input)));
    const auto outputs =
        static_cast<size_t>(std::ranges::count_if(operands, is_usable(Role::Output)));
    return (mode != "output" && inputs < op.input_count) ||
           (mode != "input" && outputs < op.output_count);
  }

  Status write_dump(Operands operands, const Operator& op, const std::string& name,
                    uint64_t time_us) {
    formats::CannDump dump;
    dump.dump_time_us = time_us;
    dump.op_name = operands.front()->node.str();
    dump.has_operand_indices = has_left_out(operands, op);
    const auto members = op.text.attributes.find("_datadump_original_op_names");
    if (members != op.text.attributes.end() && !members->second.texts.empty())
      dump.attributes.push_back({members->first, python_list(members->second.texts)});
    std::vector<Tensor> tensors;  // keeps the files mapped
    for (const TensorRecord* record : operands) {
      if (!record->problem.empty()) continue;
      ASSAY_TRY(Tensor tensor, run::load_tensor(*record));
      ASSAY_TRY(const uint32_t index, index_of(*record));
      const bool is_input = record->role == Role::Input;
      formats::CannTensor operand = operand_of(tensor.view);
      if (dump.has_operand_indices) operand.arg_index = index;
      if (!is_input) operand.origin = origin_of(op, index, tensor.view.dtype);
      if (!formats::cann_from_dtype(tensor.view.dtype))
        dump.attributes.push_back({std::string("assay_dtype.") + (is_input ? "input." : "output.") +
                                       std::to_string(index),
                                   std::string(assay::name(tensor.view.dtype))});
      (is_input ? dump.inputs : dump.outputs).push_back(std::move(operand));
      tensors.push_back(std::move(tensor));
    }
    if (tensors.empty()) return {};
    ASSAY_TRY(const std::vector<std::byte> header, formats::cann_dump_header(dump));
    std::vector<ByteSpan> pieces{header};
    for (const auto* list : {&dump.inputs, &dump.outputs}) {
      for (const formats::CannTensor& operand : *list) {
        if (!operand.data.empty()) pieces.push_back(operand.data);
      }
    }
    return write_file(step_folder(*operands.front()), name, pieces);
  }

  static formats::CannTensor operand_of(const TensorView& view) {
    formats::CannTensor operand;
    operand.data_type = formats::cann_from_dtype(view.dtype).value_or(0);
    operand.format = formats::kCannFormatNd;
    operand.shape = formats::cann_shape(view.dtype, view.shape);
    operand.original_shape = operand.shape;
    operand.data = view.contiguous_bytes();
    operand.size_bytes = operand.data.size();
    return operand;
  }

  /// Of an output of a group: whose value it is.
  static std::optional<formats::CannOrigin> origin_of(const Operator& op, size_t index,
                                                      DType dtype) {
    if (!op.text.attributes.contains("_datadump_original_op_names") ||
        index >= op.text.output_desc.size())
      return std::nullopt;
    const formats::GraphAttributes& attributes = op.text.output_desc[index].attributes;
    const auto name = attributes.find("_datadump_origin_name");
    const auto output = attributes.find("_datadump_origin_output_index");
    if (name == attributes.end() || output == attributes.end()) return std::nullopt;
    return formats::CannOrigin{
        .name = name->second.text.value_or(""),
        .output_index = output->second.number.value_or(-1),
        .data_type = formats::cann_runtime_from_dtype(dtype).value_or(kUndefinedRuntimeType),
        .format = formats::kCannFormatNd};
  }

  /// What lies beside the records of each rank.
  Status copy_texts(const std::vector<const TensorRecord*>& records) {
    std::map<std::string, int> folders;
    for (const run::Run::GraphFile& file : run_.graph_files)
      folders.emplace(file.path.substr(0, file.path.rfind('/')), file.rank);
    std::set<int> ranks;
    for (const TensorRecord* record : records) ranks.insert(record->rank);
    for (const auto& [folder, rank] : folders) {
      if (!ranks.contains(rank)) continue;
      ASSAY_TRY(const run::FolderEntries entries, run::list_folder(folder, run::real_path(folder)));
      for (const run::FolderEntry& entry : entries) {
        const bool is_text = entry.name.starts_with("dynamo_") || entry.name == "graphs.json";
        if (!is_text || entry.kind != run::FolderEntry::Kind::File) continue;
        ASSAY_TRY(const MappedFile file, MappedFile::open(entry.path));
        ASSAY_TRY_STATUS(make_directories(rank_folder(rank)));
        ASSAY_TRY_STATUS(write_file_atomically(rank_folder(rank) + "/" + entry.name, file.bytes()));
      }
    }
    return {};
  }

  const run::Run& run_;
  const std::string out_;
  std::map<std::pair<int, uint32_t>, Operators> operators_;  // by rank and graph
  std::vector<formats::CannStatistic> chosen_statistics_;
  std::map<std::string, std::string> mappings_;  // of names that no file system takes, by folder
  uint64_t next_time_us_ = now_us();
  std::vector<std::string> problems_;
};

}  // namespace

Result<std::vector<std::string>> write_ge_tree_run(const run::Run& run,
                                                   const std::vector<size_t>& chosen,
                                                   const std::string& out) {
  if (property(run, "config.level") != "graph")
    return fail(Error{Errc::Usage, run.path, std::nullopt, "is no native run of compiled graphs"});
  return GeTreeRun(run, out).write(chosen);
}

}  // namespace assay::cli
