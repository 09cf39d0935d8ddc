// SPDX-License-Identifier: Apache-2.0
// `assay convert IN OUT`: any tensor that can be read, as a file that another program reads.

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "base/ascii.hpp"
#include "base/atomic_file.hpp"
#include "base/mapped_file.hpp"
#include "base/numbers.hpp"
#include "base/paths.hpp"
#include "base/thread_pool.hpp"
#include "cli/commands.hpp"
#include "cli/convert/atb_tree_files.hpp"
#include "cli/convert/byte_budget.hpp"
#include "cli/convert/dump_converter.hpp"
#include "cli/convert/dump_file_name.hpp"
#include "cli/convert/dump_writer.hpp"
#include "cli/convert/ge_tree_run.hpp"
#include "cli/convert/graph_conversion.hpp"
#include "cli/convert/msprobe_run.hpp"
#include "cli/convert/numpy_tensor.hpp"
#include "cli/convert/statistics_table.hpp"
#include "cli/convert/text_tensor.hpp"
#include "cli/interrupt.hpp"
#include "cli/output.hpp"
#include "cli/record_selection.hpp"
#include "cli/tensor_files.hpp"
#include "formats/detect.hpp"
#include "formats/npy.hpp"
#include "run/folder.hpp"
#include "run/ge_names.hpp"
#include "run/load.hpp"
#include "run/open.hpp"
#include "run/run.hpp"

namespace assay::cli {
namespace {

struct ConvertOptions {
  std::string in;
  std::string out;
  std::string format;
  RecordFilter filter;
  std::string member;
  std::optional<DType> dtype;
  std::string op_name;
  std::string op_type;
  std::vector<std::string> inputs;
  bool force = false;
};

constexpr uint64_t kMemoryBytes = uint64_t{1} << 30;  // of all threads together

Error usage(std::string message) { return {Errc::Usage, {}, std::nullopt, std::move(message)}; }

/// The list of a dump file that a record is from, and its place there.
struct DumpOperand {
  std::string_view list;  // "inputs", "outputs", "buffers", "workspaces"
  size_t index = 0;
};

std::optional<DumpOperand> dump_operand(const run::TensorRecord& record) {
  if (!record.bytes) return std::nullopt;
  const std::string_view member = record.bytes->member;
  const size_t dot = std::min(member.find('.'), member.size());
  if (!parse_number<size_t>(member.substr(std::min(dot + 1, member.size())))) return std::nullopt;
  // The slot counts the operator's operands, the member those in the file.
  const std::string_view slot = record.slot;
  const auto index = parse_number<size_t>(slot.substr(slot.rfind('.') + 1));
  if (!index) return std::nullopt;
  for (const std::string_view list : {"inputs", "outputs", "buffers", "workspaces"}) {
    if (member.substr(0, dot) == list) return DumpOperand{list, *index};
  }
  return std::nullopt;
}

/// One component of a path we create: separators and what leads upwards become '_'.
std::string safe_component(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    const bool harmless =
        static_cast<unsigned char>(c) >= 0x20 && c != '/' && c != '\\' && c != 0x7F;
    safe += harmless ? c : '_';
  }
  if (safe.empty() || safe == "." || safe == "..") safe = "_";
  // with suffix and temporary ending below the usual 255
  constexpr size_t kMaxComponentBytes = 200;
  if (safe.size() > kMaxComponentBytes) safe.resize(kMaxComponentBytes);
  return safe;
}

/// Below OUT as the dump file lies below IN:
/// "0/graph_1/1/0/Add.Add_1.12.3.1735786845123456.input.0.npy".
std::string mirrored_path(const std::string& in, const run::TensorRecord& record,
                          const DumpOperand& operand, std::string_view suffix) {
  const std::string& file = record.bytes->file;
  std::string path = run::base_name(file);
  const std::string below = in + (in.ends_with('/') ? "" : "/");
  if (file.starts_with(below)) path = file.substr(below.size());
  const std::string number = std::to_string(operand.index);
  if (operand.list == "inputs" || operand.list == "outputs") {
    if (suffix != ".bin" || !record.shape || !record.dtype)
      return operand_file_stem(path, operand.list == "inputs", operand.index) + std::string(suffix);
    const std::string format =
        record.memory_format.empty() ? "ND" : upper_case(record.memory_format);
    return operand_file_stem(path, operand.list == "inputs", operand.index) +
           raw_file_ending(*record.shape, *record.dtype, format);
  }
  return path + (operand.list == "buffers" ? ".l1buffer." : ".space.") + number +
         std::string(suffix);
}

/// The key of a record in its file; of a file that holds one tensor the file's name.
std::string name_in_file(const run::TensorRecord& record) {
  const bool has_key = record.bytes && !record.bytes->member.empty();
  return has_key ? record.bytes->member.str() : record.node.str();
}

/// Where a record goes below OUT: "a/b.npy" for a flat folder, "rank0/0/model.norm/output_0.npy"
/// for a run.
std::string relative_path(const run::Run& run, const run::TensorRecord& record,
                          std::string_view suffix) {
  std::string path;
  const auto add = [&](std::string_view component) {
    if (!path.empty()) path += '/';
    path += safe_component(component);
  };
  if (run.has(run::Trait::OneFile)) {
    add(name_in_file(record));
    return path + std::string(suffix);
  }
  if (run.has(run::Trait::Files)) {
    for (size_t start = 0; start <= record.node.size();) {
      const size_t end = std::min(record.node.find('/', start), record.node.size());
      add(std::string_view(record.node).substr(start, end - start));
      start = end + 1;
    }
    if (record.role != Role::Output) {
      path += "." + record_name(record).substr(record.node.size() + 1);
    } else if (!record.slot.empty()) {
      add(record.slot);
    }
    return path + std::string(suffix);
  }
  add("rank" + std::to_string(record.rank));
  add(record.step_name);
  add(record.node.empty() ? "model" : record.node);
  const bool is_weight = record.role == Role::Weight || record.role == Role::Buffer;
  std::string file(is_weight ? std::string_view(record.slot) : role_name(record.role));
  if (!is_weight && !record.slot.empty()) file += "_" + record.slot;
  if (record.call > 0) file += "_call" + std::to_string(record.call);
  add(file);
  return path + std::string(suffix);
}

Result<Tensor> load_as(const run::TensorRecord& record, const std::optional<DType>& dtype) {
  if (!record.problem.empty() && !record.bytes) {
    return fail(Errc::NotFound, record.problem);
  }
  ASSAY_TRY(Tensor tensor, run::load_tensor(record));
  if (!dtype || tensor.view.dtype == *dtype) return tensor;
  return in_file(record.bytes->file, convert_dtype(tensor.view, *dtype));
}

std::string format_problem(std::string_view name) {
  constexpr std::string_view kOthers[] = {"cann", "statistics", "msprobe", "atb-tree", "ge-tree"};
  if (tensor_file_format(name) || std::ranges::find(kOthers, name) != std::end(kOthers)) return {};
  return assay::quoted(name) +
         " is none of npy, pth, safetensors, txt, csv, bin, cann, statistics, msprobe, atb-tree, "
         "ge-tree";
}

Result<DType> parse_dtype(const std::string& name) {
  if (const auto dtype = dtype_from_name(name)) return *dtype;
  return fail(Errc::Usage, "unknown type " + assay::quoted(name));
}

/// What OUT becomes: tensors in a format of TensorFileFormat, a dump file, a table, a run of
/// msprobe, or the files that a dump of ATB or of graph mode leaves.
enum class Target : uint8_t { Tensors, Dump, Statistics, Msprobe, AtbTree, GeTree };

class Converter {
 public:
  explicit Converter(const ConvertOptions& options) : options_(options) {}

  int run() {
    const InterruptGuard guard;
    const int status = convert();
    if (!interrupted()) return status;
    report_error("interrupted; files under their names are complete");
    return kInterrupted;
  }

 private:
  int convert() {
    if (options_.format.empty() && is_graph_conversion(options_.in, options_.out)) {
      const Status written = write_graph();
      return written ? kSame : report_error(written.error(), hint_);
    }
    if (const Status chosen = choose_target(); !chosen) return report_error(chosen.error(), hint_);
    if (target_ == Target::Statistics) return write_statistics();
    if (target_ == Target::AtbTree) return write_atb();
    if (const Status read = prepare(); !read) return report_error(read.error(), hint_);
    const Status written = target_ == Target::Dump      ? write_dump()
                           : target_ == Target::Msprobe ? write_run(write_msprobe_run)
                           : target_ == Target::GeTree  ? write_run(write_ge_tree_run)
                           : to_folder_                 ? write_folder()
                                                        : write_single();
    if (!written) return report_error(written.error(), hint_);
    if (failed_ > 0) {
      return report_error(std::to_string(failed_) + " of " + std::to_string(chosen_.size()) +
                              " tensors could not be converted",
                          "the others are in " + options_.out);
    }
    return kSame;
  }

  Status write_graph() {
    ASSAY_TRY_STATUS(check_target(options_.out));
    ASSAY_TRY(const std::string content, converted_graph(options_.in, options_.out));
    return write_file_atomically(options_.out, as_bytes(content));
  }

  Status choose_target() {
    const std::string suffix =
        options_.out.substr(std::min(options_.out.rfind('.'), options_.out.size()));
    const bool has_suffix = suffix.size() > 1 && suffix.find('/') == std::string::npos;
    const bool is_statistics = run::base_name(options_.out) == "statistic.csv";
    if (options_.format == "statistics" || (options_.format.empty() && is_statistics)) {
      target_ = Target::Statistics;
      return {};
    }
    if (options_.format == "cann") {
      target_ = Target::Dump;
      return {};
    }
    if (options_.format == "msprobe") {
      target_ = Target::Msprobe;
      return {};
    }
    if (options_.format == "atb-tree") {
      target_ = Target::AtbTree;
      return {};
    }
    if (options_.format == "ge-tree") {
      target_ = Target::GeTree;
      return {};
    }
    if (!options_.inputs.empty() || !options_.op_name.empty() || !options_.op_type.empty())
      return fail(usage("--input, --op-name and --op-type take effect only with --format cann"));
    std::optional<TensorFileFormat> format;
    if (!options_.format.empty()) {
      format = tensor_file_format(options_.format);
    } else if (has_suffix) {
      format = tensor_file_format(std::string_view(suffix).substr(1));
    }
    names_folder_ = options_.out.ends_with('/') || run::is_folder(options_.out);
    names_file_ =
        has_suffix && tensor_file_format(std::string_view(suffix).substr(1)) && !names_folder_;
    if (!format) {
      hint_ = "end OUT in .npy, .pth, .safetensors, .txt, .csv or .bin, or add --format npy";
      return fail(usage("'" + options_.out + "' does not say which format to write"));
    }
    format_ = *format;
    return {};
  }

  Status prepare() {
    ASSAY_TRY_STATUS(open_input());
    size_t without_bytes = 0;
    for (const size_t i : select_records(run_, options_.filter)) {
      const run::TensorRecord& record = run_.records[i];
      if (!options_.member.empty() && record.slot != options_.member &&
          name_in_file(record) != options_.member)
        continue;
      if (target_ == Target::Msprobe || target_ == Target::GeTree) {
        chosen_.push_back(i);
        continue;
      }
      if (!record.value.empty()) continue;  // Values have no bytes to convert.
      if (!record.bytes && record.stats && record.problem.empty()) {
        ++without_bytes;
      } else {
        chosen_.push_back(i);
      }
    }
    if (without_bytes > 0) {
      std::fprintf(stderr,
                   "warning: %zu of the records hold statistics only and were left out; --format "
                   "statistics puts them into one table\n",
                   without_bytes);
    }
    if (chosen_.empty()) {
      hint_ = "assay show " + options_.in + " --list names what there is";
      return fail(Error{Errc::NotFound, options_.in, std::nullopt, "no tensor fits the request"});
    }
    to_folder_ = names_folder_ || (!names_file_ && chosen_.size() > 1);
    const bool one_a_file = target_ == Target::Tensors && format_ != TensorFileFormat::Safetensors;
    if (!to_folder_ && chosen_.size() > 1 && one_a_file) {
      hint_ =
          "choose one with --name, --member, --step, or write all into a folder: OUT/ --format " +
          std::string(suffix_of(format_).substr(1));
      if (is_dump_tree_ && format_ == TensorFileFormat::Csv)
        hint_ = "--format statistics puts the statistics of all operators into one table";
      return fail(
          Error{Errc::Usage, options_.in, std::nullopt,
                "holds " + std::to_string(chosen_.size()) + " tensors, one file takes one"});
    }
    return {};
  }

  /// A run, or a text that holds a tensor.
  Status open_input() {
    if (run::is_file(options_.in)) {
      ASSAY_TRY(const MappedFile file, MappedFile::open(options_.in));
      if (has_text_header(file.bytes())) {
        ASSAY_TRY(text_tensor_, in_file(options_.in, read_text_tensor(file.bytes())));
        run_.layout = run::Layout::File;
        run::TensorRecord record;
        const std::string name = run::base_name(options_.in);
        record.node = name.substr(0, name.rfind('.'));
        record.bytes.emplace().file = options_.in;
        run_.records.push_back(std::move(record));
        return {};
      }
      is_dump_file_ =
          formats::detect_file(file.bytes(), options_.in) == formats::FileKind::CannDump;
    }
    ASSAY_TRY(run_, run::open_run(options_.in));
    is_dump_tree_ = run_.has(run::Trait::GeOperators);
    return {};
  }

  Result<Tensor> load(const run::TensorRecord& record) const {
    if (!text_tensor_) return load_as(record, options_.dtype);
    if (!options_.dtype || *options_.dtype == text_tensor_->view.dtype) return *text_tensor_;
    return in_file(options_.in, convert_dtype(text_tensor_->view, *options_.dtype));
  }

  /// Types that NumPy's format has no name for become ones it has: int4 int8, complex32 complex64.
  Result<Tensor> writable(const run::TensorRecord& record) const {
    ASSAY_TRY(Tensor tensor, load(record));
    if (format_ != TensorFileFormat::Npy || formats::npy_supports(tensor.view.dtype)) return tensor;
    return numpy_tensor(tensor);
  }

  Status check_target(const std::string& path) {
    if (options_.force || !is_taken(path)) return {};
    hint_ = "--force overwrites it";
    return fail(Error{Errc::Usage, path, std::nullopt, "exists already"});
  }

  Status write_single() {
    ASSAY_TRY_STATUS(check_target(options_.out));
    if (format_ != TensorFileFormat::Safetensors) {
      ASSAY_TRY(const Tensor tensor, writable(run_.records[chosen_[0]]));
      return write_tensor_file(options_.out, format_, tensor.view);
    }
    std::vector<Tensor> tensors;  // keeps the files mapped
    std::vector<std::pair<std::string, TensorView>> named;
    std::map<std::string, int> used;
    for (const size_t i : chosen_) {
      ASSAY_TRY(Tensor tensor, load(run_.records[i]));
      std::string tensor_name = name_in_container(run_.records[i]);
      const int occurrence = ++used[tensor_name];
      if (occurrence > 1) tensor_name += "#" + std::to_string(occurrence);
      named.emplace_back(std::move(tensor_name), tensor.view);
      tensors.push_back(std::move(tensor));
    }
    return write_safetensors_file(options_.out, named);
  }

  [[nodiscard]] std::string name_in_container(const run::TensorRecord& record) const {
    if (run_.has(run::Trait::OneFile)) return name_in_file(record);
    if (run_.has(run::Trait::Files) && record.role != Role::Output) return record_name(record);
    if (run_.has(run::Trait::Files))
      return record.node + (record.slot.empty() ? "" : "/" + record.slot);
    if (record.role == Role::Weight || record.role == Role::Buffer) return record_name(record);
    return record.step_name + "/" + record_name(record);
  }

  // ---- into a folder ----

  struct Job {
    size_t record = 0;
    std::string path;
    bool is_overflow = false;  // a debug file's payload, written as JSON
  };

  [[nodiscard]] std::string path_below_out(const run::TensorRecord& record,
                                           std::string_view suffix) const {
    const auto operand = dump_operand(record);
    if ((is_dump_tree_ || is_dump_file_) && operand)
      return mirrored_path(options_.in, record, *operand, suffix);
    return relative_path(run_, record, suffix);
  }

  [[nodiscard]] bool is_overflow_report(const run::TensorRecord& record) const {
    const auto operand = dump_operand(record);
    if (!(is_dump_tree_ || is_dump_file_) || !operand || operand->list != "outputs") return false;
    const auto name = run::parse_ge_file_name(run::base_name(record.bytes->file));
    return name && name->kind == run::GeFileKind::Overflow;
  }

  /// Names first, one after the other, so that they do not depend on which thread is faster.
  Result<std::vector<Job>> plan_folder() {
    std::vector<Job> jobs;
    std::set<std::string> used;
    const std::string out = options_.out + (options_.out.ends_with('/') ? "" : "/");
    for (const size_t i : chosen_) {
      const run::TensorRecord& record = run_.records[i];
      Job job;
      job.record = i;
      job.is_overflow = is_overflow_report(record);
      const std::string suffix(job.is_overflow ? ".json" : suffix_of(format_));
      std::string relative = path_below_out(record, suffix);
      for (int n = 2; !used.insert(relative).second; ++n)
        relative = path_below_out(record, "_" + std::to_string(n) + suffix);
      const size_t slash = relative.rfind('/') + 1;  // 0 without a folder
      const std::string folder = out + relative.substr(0, slash);
      ASSAY_TRY_STATUS(make_directories(folder));
      ASSAY_TRY(const std::string name,
                long_names_.fit(folder, relative.substr(slash),
                                relative.substr(std::min(relative.rfind('.'), relative.size()))));
      job.path = folder + name;
      ASSAY_TRY_STATUS(check_target(job.path));
      jobs.push_back(std::move(job));
    }
    return jobs;
  }

  Status write_job(const Job& job) {
    const run::TensorRecord& record = run_.records[job.record];
    const auto held =
        record.dtype && record.shape
            ? storage_bytes(*record.dtype,
                            static_cast<uint64_t>(element_count(*record.shape).value_or(0)))
            : std::nullopt;
    const ByteBudget::Share share(budget_, held.value_or(0));
    if (job.is_overflow) {
      ASSAY_TRY(const Tensor payload, load_as(record, std::nullopt));
      ASSAY_TRY(const std::string text,
                in_file(record.bytes->file, overflow_json(payload.view.contiguous_bytes())));
      return write_pieces_file(job.path, {as_bytes(text)});
    }
    ASSAY_TRY(const Tensor tensor, writable(record));
    return write_tensor_file(job.path, format_, tensor.view);
  }

  /// A tensor that cannot be converted is named, and the rest goes on; a full disk ends it.
  Status write_folder() {
    ASSAY_TRY_STATUS(make_directories(options_.out));
    ASSAY_TRY(const std::vector<Job> jobs, plan_folder());
    std::vector<Status> results(jobs.size());
    std::atomic<bool> disk_full{false};
    parallel_for(jobs.size(), resolve_job_count(0), [&](size_t i) {
      if (interrupted() || disk_full) return;
      results[i] = write_job(jobs[i]);
      if (!results[i] && results[i].error().code == Errc::NoSpace) disk_full = true;
    });
    if (interrupted()) return {};
    for (const Status& result : results) {
      if (result) continue;
      if (result.error().code == Errc::NoSpace) return result;
      ++failed_;
      say("warning", result.error().describe());
    }
    return {};
  }

  // ---- into a dump file ----

  /// Members and files that this program and the original's converter call inputs: "inputs.0",
  /// "a.input.0.npy".
  [[nodiscard]] static bool is_named_input(const run::TensorRecord& record) {
    if (record.role == Role::Input) return true;
    const std::string_view name = record.slot.empty() ? record.node : record.slot;
    const size_t dot = name.rfind('.');
    if (dot == std::string_view::npos || !parse_number<size_t>(name.substr(dot + 1))) return false;
    const std::string_view stem = name.substr(0, dot);
    return stem == "inputs" || stem == "input" || stem.ends_with(".input");
  }

  Status write_dump() {
    std::vector<Tensor> tensors;  // keeps the files mapped
    DumpContent content;
    for (const std::string& file : options_.inputs) {
      run::TensorRecord record;
      record.bytes.emplace().file = file;
      ASSAY_TRY(Tensor tensor, load_as(record, options_.dtype));
      content.inputs.push_back(tensor.view);
      tensors.push_back(std::move(tensor));
    }
    for (const size_t i : chosen_) {
      const run::TensorRecord& record = run_.records[i];
      ASSAY_TRY(Tensor tensor, load(record));
      (is_named_input(record) ? content.inputs : content.outputs).push_back(tensor.view);
      tensors.push_back(std::move(tensor));
    }
    content.op_name = options_.op_name;
    if (content.op_name.empty())
      content.op_name =
          run_.records[chosen_[0]].node.empty() ? "tensor" : run_.records[chosen_[0]].node;
    content.time_us = now_us();
    std::string path = options_.out;
    if (path.ends_with('/') || run::is_folder(path)) {
      ASSAY_TRY_STATUS(make_directories(path));
      path = run::join_path(path,
                            dump_file_name(options_.op_type.empty() ? "Tensor" : options_.op_type,
                                           content.op_name, content.time_us));
    }
    ASSAY_TRY_STATUS(check_target(path));
    return write_dump_file(path, content);
  }

  // ---- into a run of another layout ----

  template <typename Write>
  Status write_run(Write write) {
    ASSAY_TRY_STATUS(check_target(options_.out));
    ASSAY_TRY(const std::vector<std::string> problems, write(run_, chosen_, options_.out));
    for (const std::string& problem : problems) say("warning", problem);
    failed_ = problems.size();
    return {};
  }

  int write_atb() {
    if (const Status free = check_target(options_.out); !free)
      return report_error(free.error(), hint_);
    const Result<AtbTreeFiles> files = write_atb_tree(options_.in, options_.out);
    if (!files) return report_error(files.error());
    for (const std::string& problem : files->problems) say("warning", problem);
    if (files->problems.empty()) return kSame;
    return report_error(std::to_string(files->problems.size()) + " tensors could not be converted",
                        "the other " + std::to_string(files->tensors) + " are in " + options_.out);
  }

  // ---- into a table ----

  int write_statistics() {
    if (const Status free = check_target(options_.out); !free)
      return report_error(free.error(), hint_);
    const Result<StatisticsTable> table = merge_statistics(options_.in);
    if (!table) return report_error(table.error());
    if (interrupted()) return kInterrupted;
    for (const std::string& problem : table->problems) say("warning", problem);
    if (const Status written = write_file_atomically(options_.out, as_bytes(table->csv)); !written)
      return report_error(written.error());
    if (table->problems.empty()) return kSame;
    return report_error(
        std::to_string(table->problems.size()) +
            " of the files, rows or operands have no statistics in the table",
        "the other " + std::to_string(table->row_count) + " rows are in " + options_.out);
  }

  const ConvertOptions& options_;
  run::Run run_;
  std::vector<size_t> chosen_;
  std::optional<Tensor> text_tensor_;  // when IN is a text; then the only record
  Target target_ = Target::Tensors;
  TensorFileFormat format_ = TensorFileFormat::Npy;
  bool names_folder_ = false;
  bool names_file_ = false;
  bool to_folder_ = false;
  bool is_dump_file_ = false;
  bool is_dump_tree_ = false;
  LongNames long_names_{0666};
  ByteBudget budget_{kMemoryBytes};
  size_t failed_ = 0;
  std::string hint_;
};

}  // namespace

Command convert_command(const Caller& caller) {
  Command command(caller, "Writes tensors as npy, pth, safetensors, txt, csv, bin or dump files");
  const auto options = std::make_shared<ConvertOptions>();
  command.require("IN", "Tensor file, dump file, folder of tensor files, or run", options->in);
  command.require("OUT", "File whose suffix names the format, or a folder with --format",
                  options->out);
  command.add(
      "--format, --to VALUE",
      "npy, pth, safetensors, txt, csv, bin; cann: a dump file; statistics: one table; "
      "msprobe: a run as its debugger writes it; atb-tree, ge-tree: a native run of ATB or of "
      "compiled graphs as the files of the original tools",
      options->format, format_problem);
  command.add("--name VALUE", "Node or tensor of a run, or a pattern, as for assay show",
              options->filter.name);
  command.add("--member VALUE", "Member of a container file: a key, or a path such as 1.0",
              options->member);
  command.add("--step VALUE", "Only these steps: 0,2-4",
              parsed_into(options->filter.steps, parse_number_set));
  command.add("--rank VALUE", "Only these ranks",
              parsed_into(options->filter.ranks, parse_number_set));
  command.add("--dtype VALUE",
              "Convert the values: float32, float64, float16, bfloat16, int64 ... int8, uint8",
              parsed_into(options->dtype, parse_dtype));
  command.add("--input VALUE", "With --format cann: a file that becomes an input",
              added_to(options->inputs));
  command.add("--op-name VALUE", "With --format cann: the operator's name", options->op_name);
  command.add("--op-type VALUE", "With --format cann: its type, for the file's name",
              options->op_type);
  command.add("--force", "Overwrite", options->force);
  command.example =
      "assay convert output.pth output.npy\n"
      "  assay convert golden norm.npy --name model.norm.output --step 0\n"
      "  assay convert golden npy/ --format npy --dtype float32\n"
      "  assay convert golden golden_msprobe --to msprobe\n"
      "  assay convert y.npy Add.Add_1.1.0.1760000000123456 --format cann --input x.npy";
  command.epilogue =
      "The grammar of the original's converter works, too: assay convert -d DUMP -out FOLDER -t "
      "npy; see assay convert -d x --help";
  command.run = [options](const ParsedArguments&) { return Converter(*options).run(); };
  return command;
}

}  // namespace assay::cli
