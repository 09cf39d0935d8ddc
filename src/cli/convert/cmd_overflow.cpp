// SPDX-License-Identifier: Apache-2.0
// Lines of the summary: Ascend/msprobe: python/msprobe/msaccucmp/overflow/overflow_analyse.py
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <memory>
#include <optional>

#include "base/atomic_file.hpp"
#include "base/mapped_file.hpp"
#include "base/numbers.hpp"
#include "base/text.hpp"
#include "base/thread_pool.hpp"
#include "cli/commands.hpp"
#include "cli/convert/byte_budget.hpp"
#include "cli/convert/dump_converter.hpp"
#include "cli/convert/dump_file_name.hpp"
#include "cli/interrupt.hpp"
#include "cli/output.hpp"
#include "cli/tensor_files.hpp"
#include "cli/tensor_text.hpp"
#include "cli/visit_files.hpp"
#include "formats/cann_dump.hpp"
#include "formats/overflow_report.hpp"
#include "report/files.hpp"
#include "run/folder.hpp"
#include "run/ge_names.hpp"
#include "stats/tensor_stats.hpp"

namespace assay::cli {
namespace {

using formats::OverflowEntry;

constexpr unsigned kFileMode = 0600;
constexpr unsigned kFolderMode = 0750;
constexpr uint64_t kMemoryBytes = uint64_t{1} << 30;
constexpr double kLargestHalf = 65504;
constexpr uint64_t kNoThread = 65535;  // what the hardware reports for tasks without threads

struct DumpFile {
  std::string path;
  std::string folder;
  run::GeFileName name;
};

struct DumpFolder {
  std::vector<DumpFile> debug_files;
  std::vector<DumpFile> dumps;
};

DumpFolder collect(const std::string& folder) {
  DumpFolder out;
  const auto add = [&out](const run::FolderEntry& entry, const std::string&) {
    const auto name = run::parse_ge_file_name(entry.name);
    if (!may_be_dump(entry.name) || !name || !name->task) return;
    const bool is_report = name->kind == run::GeFileKind::Overflow;
    const std::string place = entry.path.substr(0, entry.path.rfind('/'));
    (is_report ? out.debug_files : out.dumps).push_back({entry.path, place, *name});
  };
  visit_files(folder, {add, [](const std::string& sentence) { say("warning", sentence); }, {}});
  return out;
}

void sort_by_time(std::vector<DumpFile>* files) {
  std::sort(files->begin(), files->end(), [](const DumpFile& a, const DumpFile& b) {
    return a.name.time != b.name.time ? a.name.time < b.name.time : a.path < b.path;
  });
}

// ---- one overflow -------------------------------------------------------------------------------

std::string_view core_name(formats::OverflowCore core, bool is_old) {
  using formats::OverflowCore;
  switch (core) {
    case OverflowCore::AiCore:
      return is_old ? "AI Core" : "AIC";
    case OverflowCore::AiVector:
      return "AIV";
    case OverflowCore::AiCpu:
      return "AICPU";
    case OverflowCore::Sdma:
      return "SDMA";
    case OverflowCore::DhaAtomicAdd:
      return "DHA Atomic Add";
    case OverflowCore::L2AtomicAdd:
      return "L2 Atomic Add";
  }
  return "";
}

bool has_status(const OverflowEntry& entry) {
  return std::any_of(entry.status.begin(), entry.status.end(),
                     [](uint64_t word) { return word != 0; });
}

/// One number, or all four words where the report has them.
std::string status_text(const OverflowEntry& entry) {
  if (entry.status[1] == 0 && entry.status[2] == 0 && entry.status[3] == 0)
    return std::to_string(entry.status[0]);
  std::string text = "[";
  for (size_t i = 0; i < entry.status.size(); ++i)
    text += (i > 0 ? ", " : "") + std::to_string(entry.status[i]);
  return text + "]";
}

/// "[Shape: (2, 3)] [Dtype: float32] [Max: 3] [Min: 1] [Mean: 2]": extremes and mean of all values,
/// as NumPy gives them.
std::string summary_of(const formats::CannTensor& tensor) {
  const Result<Tensor> values = formats::cann_tensor(tensor);
  if (!values) return "[" + values.error().message + "]";
  const stats::TensorStats finite = statistics_until_interrupted(values->view);
  const stats::TensorStats all = finite.with_non_finite();
  std::string text = "[Shape: " + tuple_text(values->view.shape.span()) +
                     "] [Dtype: " + std::string(name(values->view.dtype)) +
                     "] [Max: " + short_number(all.max) + "] [Min: " + short_number(all.min) +
                     "] [Mean: " + short_number(all.mean) + "]";
  if (finite.has_non_finite()) {
    text += " [NaN: " + std::to_string(finite.nan_count) +
            "] [Inf: " + std::to_string(finite.positive_inf_count + finite.negative_inf_count) +
            "]";
  }
  return text;
}

std::string heading(size_t number) {
  const std::string rule(49, '=');
  return rule + "[" + std::to_string(number) + "]" + rule + "=\n";
}

std::string operator_text(const DumpFile& dump) {
  return "[" + dump.name.op_type + "] " + dump.name.op_name + "\n";
}

/// The operator's tensors and what they hold.
std::string operands_text(const DumpFile& dump) {
  const Result<OpenDump> read = open_dump(dump.path);
  if (!read) return " " + read.error().describe() + "\n";
  std::string text;
  for (const bool is_input : {true, false}) {
    const auto& tensors = is_input ? read->dump.inputs : read->dump.outputs;
    for (size_t i = 0; i < tensors.size(); ++i) {
      text += " " +
              operand_file_stem(run::base_name(dump.path), is_input,
                                formats::cann_operand_index(read->dump, tensors[i], i)) +
              ".npy\n -[Format: " + formats::cann_format_name(tensors[i].format) + "] " +
              summary_of(tensors[i]) + "\n";
    }
  }
  return text;
}

bool is_dump_of(const OverflowEntry& entry, const DumpFile& dump) {
  if (dump.name.task != entry.task_id) return false;
  if (dump.name.stream && *dump.name.stream != entry.stream_id) return false;
  const auto fits = [](uint64_t reported, const std::optional<uint64_t>& named) {
    return reported == 0 || reported == kNoThread || !named || *named == reported;
  };
  return fits(entry.context_id, dump.name.context) && fits(entry.thread_id, dump.name.thread);
}

/// The earliest dump of the operator beside its debug file, else anywhere. `dumps` are in the order
/// of their times.
const DumpFile* find_dump(const OverflowEntry& entry, const std::string& folder,
                          const std::vector<DumpFile>& dumps) {
  const DumpFile* elsewhere = nullptr;
  for (const DumpFile& dump : dumps) {
    if (!is_dump_of(entry, dump)) continue;
    if (dump.folder == folder) return &dump;
    if (elsewhere == nullptr) elsewhere = &dump;
  }
  return elsewhere;
}

/// What hardware or backend reported, by its debug files.
class ReportedOverflows {
 public:
  ReportedOverflows(const DumpFolder& folder, const DumpConverter& converter, std::string out)
      : folder_(folder), converter_(converter), out_(std::move(out)) {}

  /// The first `limit` reports.
  std::string text(size_t limit) {
    std::string text;
    for (const DumpFile& file : folder_.debug_files) {
      if (count_ == limit || interrupted()) break;
      const Result<formats::OverflowReport> report = read(file);
      if (!report) {
        warn(report.error().describe());
        continue;
      }
      text += one(file, *report);
    }
    return text;
  }
  [[nodiscard]] size_t count() const { return count_; }
  [[nodiscard]] size_t failed() const { return failed_; }

 private:
  void warn(const std::string& sentence) {
    ++failed_;
    say("warning", sentence);
  }

  static Result<formats::OverflowReport> read(const DumpFile& debug_file) {
    ASSAY_TRY(const OpenDump read, open_dump(debug_file.path));
    if (read.dump.outputs.empty())
      return fail(
          Error{Errc::Invalid, debug_file.path, std::nullopt, "a debug file without an output"});
    return in_file(debug_file.path, formats::read_overflow_report(read.dump.outputs[0].data));
  }

  std::string one(const DumpFile& debug_file, const formats::OverflowReport& report) {
    std::string lines;
    const DumpFile* dump = nullptr;
    for (const OverflowEntry& entry : report.entries) {
      if (!has_status(entry)) continue;
      lines += " [" + std::string(core_name(entry.core, report.is_old)) +
               "][TaskId:" + std::to_string(entry.task_id) +
               "][StreamId:" + std::to_string(entry.stream_id) + "][Status:" + status_text(entry) +
               "]\n";
      for (const std::string& cause : formats::overflow_causes(entry)) lines += "  " + cause + "\n";
      if (dump == nullptr) dump = find_dump(entry, debug_file.folder, folder_.dumps);
    }
    if (lines.empty()) {
      warn(debug_file.path + ": reports no overflow: every status is 0");
      return {};
    }
    ++count_;
    convert(debug_file.path);
    lines += " [timestamp:" + debug_file.name.time + "]\n";
    if (dump == nullptr) {
      say("warning", debug_file.path + ": there is no dump of its task");
      return heading(count_) + lines;
    }
    convert(dump->path);
    return heading(count_) + operator_text(*dump) + lines + operands_text(*dump);
  }

  void convert(const std::string& path) {
    const DumpOutcome outcome = converter_.convert(path, out_);
    for (const DumpProblem& problem : outcome.problems) warn(problem.error.describe());
  }

  const DumpFolder& folder_;
  const DumpConverter& converter_;
  const std::string out_;
  size_t count_ = 0;
  size_t failed_ = 0;
};

// ---- without reports ----------------------------------------------------------------------------

struct RangeFinding {
  std::vector<std::string> operands;  // one sentence each
  std::string problem;                // the file cannot be read
};

/// NaN and infinities, and float16 values at the end of their range.
std::string range_problem(const Tensor& tensor) {
  const stats::TensorStats stats = statistics_until_interrupted(tensor.view);
  std::string text;
  const auto add = [&text](int64_t count, std::string_view what) {
    if (count > 0)
      text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + std::string(what);
  };
  add(stats.nan_count, "NaN");
  add(stats.positive_inf_count, "inf");
  add(stats.negative_inf_count, "-inf");
  if (tensor.view.dtype == DType::Float16 &&
      (stats.max >= kLargestHalf || stats.min <= -kLargestHalf))
    text += std::string(text.empty() ? "" : ", ") + "values at the largest float16, 65504";
  return text;
}

RangeFinding check_ranges(const DumpFile& dump, ByteBudget* budget) {
  RangeFinding finding;
  const Result<OpenDump> read = open_dump(dump.path);
  if (!read) {
    finding.problem = read.error().describe();
    return finding;
  }
  for (const bool is_input : {true, false}) {
    const auto& tensors = is_input ? read->dump.inputs : read->dump.outputs;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const ByteBudget::Share share(*budget, tensors[i].data.size());
      const Result<Tensor> tensor = formats::cann_tensor(tensors[i]);
      if (!tensor || !has_non_finite(tensor->view.dtype)) continue;
      const std::string problem = range_problem(*tensor);
      if (!problem.empty())
        finding.operands.push_back((is_input ? "input " : "output ") + std::to_string(i) + ": " +
                                   problem);
    }
  }
  return finding;
}

/// Dumps in which values left the range of their type. Where no input of an operator has, it is the
/// one that caused it.
std::string range_text(const std::vector<DumpFile>& dumps, size_t limit, size_t* count,
                       size_t* failed) {
  std::vector<RangeFinding> findings(dumps.size());
  ByteBudget budget(kMemoryBytes);
  parallel_for(dumps.size(), resolve_job_count(0), [&](size_t i) {
    if (!interrupted()) findings[i] = check_ranges(dumps[i], &budget);
  });
  std::string text;
  for (size_t i = 0; i < dumps.size(); ++i) {
    if (!findings[i].problem.empty()) {
      ++*failed;
      say("warning", findings[i].problem);
    }
    if (findings[i].operands.empty()) continue;
    if (++*count > limit) continue;
    text += heading(*count) + operator_text(dumps[i]);
    for (const std::string& operand : findings[i].operands) text += " [" + operand + "]\n";
    const bool from_inputs = findings[i].operands.front().starts_with("input");
    text += from_inputs ? " [its inputs were so already]\n" : " [its inputs were in range]\n";
    text += " [timestamp:" + dumps[i].name.time + "]\n" + operands_text(dumps[i]);
  }
  return text;
}

// ---- the command --------------------------------------------------------------------------------

int analyse(const std::string& in, const std::string& out, size_t limit) {
  if (!run::is_folder(in))
    return report_error(Error{Errc::NotFound, in, std::nullopt, "is no folder"});
  if (const Status made = make_directories(out, kFolderMode); !made)
    return report_error(made.error());
  DumpFolder folder = collect(in);
  if (folder.debug_files.empty() && folder.dumps.empty())
    return report_error(in + ": holds no dump files",
                        "they are named {type}.{name}.{task}.{stream}.{time}");
  sort_by_time(&folder.debug_files);
  sort_by_time(&folder.dumps);

  std::string text;
  size_t found = 0;
  size_t failed = 0;
  if (!folder.debug_files.empty()) {
    LongNames names(kFileMode);
    ByteBudget budget(kMemoryBytes);
    const DumpConverter converter({}, &names, &budget);
    ReportedOverflows overflows(folder, converter, out);
    text = overflows.text(limit);
    found = overflows.count();
    failed = overflows.failed();
    std::fprintf(stderr, "%zu overflow reports, %zu described\n", folder.debug_files.size(), found);
  } else {
    text = range_text(folder.dumps, limit, &found, &failed);
    std::fprintf(stderr,
                 "no overflow reports; %zu of %zu dumps hold values outside their type's range\n",
                 found, folder.dumps.size());
  }
  if (interrupted()) return kInterrupted;
  if (found > 0) {
    const std::string path =
        run::join_path(out, "overflow_summary_" + report::utc_timestamp() + ".txt");
    if (const Status written = write_file_atomically(path, as_bytes(text), kFileMode); !written)
      return report_error(written.error());
    Output output;
    output.add(text);
    if (const Status shown = output.finish(); !shown) return report_error(shown.error());
    std::fprintf(stderr, "written to %s\n", printable(path).c_str());
  }
  if (failed > 0) return report_error(std::to_string(failed) + " files could not be used");
  return found > 0 ? kDiffers : kSame;
}

struct OverflowRequest {
  std::string dump;
  std::string output;
  size_t limit = 1;
};

}  // namespace

Command overflow_command(const Caller& caller) {
  Command command(caller,
                  "Names the operators of an overflow dump that overflowed, the earliest first.");
  const auto request = std::make_shared<OverflowRequest>();
  command.require("--dump-path, -d DUMPS", "folder with the dump, searched with all folders in it",
                  request->dump);
  command.require("--output, -out FOLDER", "where summary, reports (.json) and tensors (.npy) go",
                  request->output);
  command.add("--top-n, -n {1,2,3,4,5}", "how many operators are described (1)", request->limit);
  command.example = caller.program + " -d dump/20250102030405 -out overflow -n 3";
  command.run = [request](const ParsedArguments&) {
    const InterruptGuard guard;
    return analyse(request->dump, request->output, request->limit);
  };
  return command;
}

}  // namespace assay::cli
