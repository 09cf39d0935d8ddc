// SPDX-License-Identifier: Apache-2.0
// logitscmp: files of logits with equal names in two folders.   docs/commands/logitscmp.md
// Source: Ascend/msit: msit/components/llm/msit_llm/logits_compare/logits_cmp.py
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>

#include "base/numbers.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/ranges.hpp"
#include "cli/tools/tool_support.hpp"
#include "formats/csv.hpp"
#include "run/folder.hpp"
#include "run/load.hpp"
#include "run/record.hpp"
#include "vendor/msit/logits.hpp"

namespace assay::cli {
namespace {

const std::array<std::string, 10> kColumns = {
    "file_name",    "key", "token_id", "cosine_similarity", "kl_divergence", "l1_norm",
    "ulp_max_diff", "ulp", "passed",   "cmp_fail_reason"};

// ---- options ----

std::optional<double> python_float(std::string_view text) {
  if (text.starts_with('+') && text.size() > 1 && text[1] != '-') text.remove_prefix(1);
  return parse_number<double>(text);
}

/// In the original's words; it takes NaN, with which no file passes.
Check old_limit(std::string name, double smallest, double largest) {
  return [=](std::string_view value) -> std::string {
    const std::optional<double> number = python_float(value);
    if (!number) return name + " is invalid. Please check.";
    if (*number < smallest || *number > largest)
      return name + ": " + std::string(value) + " is an invalid float value";
    return {};
  };
}

struct Limits {
  double cosine_similarity = 0.999;
  double kl_divergence = 0.0001;
  double l1_norm = 0.01;
  double spacing = 0x1p-10;  // of numbers in [1, 2)
};

struct LogitsRequest {
  std::string golden;
  std::string mine;
  Limits limits;
  std::string output = "./output";
  std::string log_level = "info";
};

bool passes(const vendor::msit::LogitsMetrics& metrics, const Limits& limits) {
  const bool near = metrics.cosine_similarity > limits.cosine_similarity &&
                    metrics.kl_divergence < limits.kl_divergence &&
                    metrics.l1_norm < limits.l1_norm;
  return near || metrics.ulp_max_diff <= metrics.ulp;
}

// ---- rows ----

struct LogitsRow {
  std::string file;
  std::optional<vendor::msit::LogitsName> name = {};
  std::optional<vendor::msit::LogitsMetrics> metrics = {};
  bool passed = false;
  std::string reason = {};  // why there are no metrics
};

/// Files whose key is a number, then those of a language, then the rest; in the order of key and
/// token.
bool comes_before(const LogitsRow& a, const LogitsRow& b) {
  const auto group = [](const LogitsRow& row) {
    return !row.name ? 2 : row.name->language.empty() ? 0 : 1;
  };
  if (group(a) != group(b)) return group(a) < group(b);
  if (!a.name) return false;  // as they were found
  return std::tie(a.name->language, a.name->key, a.name->token) <
         std::tie(b.name->language, b.name->key, b.name->token);
}

std::array<std::string, 10> cells_of(const LogitsRow& row) {
  std::array<std::string, 10> cells;
  cells.fill("NA");
  cells[0] = row.file;
  cells[9] = row.reason;
  if (row.name) {
    cells[1] = row.name->key_text();
    cells[2] = std::to_string(row.name->token);
  }
  if (row.metrics) {
    const vendor::msit::LogitsMetrics& metrics = *row.metrics;
    cells[3] = python_repr(metrics.cosine_similarity);
    cells[4] = python_repr(metrics.kl_divergence);
    // The original returned whole numbers for golden logits that are all zero.
    cells[5] = metrics.l1_is_defined ? python_repr(metrics.l1_norm)
                                     : std::to_string(static_cast<int>(metrics.l1_norm));
    cells[6] = python_repr(metrics.ulp_max_diff);
    cells[7] = python_repr(metrics.ulp);
    cells[8] = row.passed ? "True" : "False";
  }
  return cells;
}

std::string csv_of(const std::vector<LogitsRow>& rows) {
  std::string text;
  const formats::CsvOptions options{.defuse_formulas = true};
  formats::append_csv_row(kColumns, options, &text);
  for (const LogitsRow& row : rows) formats::append_csv_row(cells_of(row), options, &text);
  return text;
}

// ---- comparing ----

/// The .pth files of a folder by name, each with what makes it unusable.
Result<std::map<std::string, std::string>> logits_files(const std::string& folder) {
  ASSAY_TRY(const run::FolderEntries entries, run::list_folder(folder, run::real_path(folder)));
  std::map<std::string, std::string> files;
  for (const run::FolderEntry& entry : entries) {
    if (entry.name.ends_with(".pth") && entry.kind != run::FolderEntry::Kind::Folder)
      files[entry.name] = entry.problem;
  }
  return files;
}

Result<Tensor> load_logits(const std::string& folder, const std::string& file) {
  run::TensorRecord record;
  run::ByteLocation location;
  location.file = run::join_path(folder, file);
  record.bytes = std::move(location);
  return run::load_tensor(record);
}

class Comparison {
 public:
  Comparison(const ToolCall& call, const LogitsRequest& request)
      : call_(call), golden_(request.golden), mine_(request.mine), limits_(request.limits) {}

  Result<std::vector<LogitsRow>> compare() const {
    if (!run::is_folder(golden_) || !run::is_folder(mine_)) {
      return fail(Errc::NotFound, "Please ensure that both --my-path and --golden-path are dir");
    }
    ASSAY_TRY(const auto golden, logits_files(golden_));
    ASSAY_TRY(const auto mine, logits_files(mine_));
    std::vector<LogitsRow> rows;
    for (const auto& [file, problem] : golden) {
      if (const auto other = mine.find(file); other != mine.end())
        rows.push_back(compare_file(file, problem.empty() ? other->second : problem));
    }
    if (rows.empty()) {
      return fail(Errc::NotFound,
                  "Please ensure that both --my-path and --golden-path have same name files.");
    }
    for (const auto& [file, problem] : golden) {
      if (!mine.contains(file)) rows.push_back({.file = file, .reason = "only_in_golden_path"});
    }
    for (const auto& [file, problem] : mine) {
      if (!golden.contains(file)) rows.push_back({.file = file, .reason = "only_in_my_path"});
    }
    call_.voice.old_info(
        "Compare with the baseline, cosine_similarity: " + python_repr(limits_.cosine_similarity) +
        ",kl_divergence: " + python_repr(limits_.kl_divergence) +
        ", l1_norm: " + python_repr(limits_.l1_norm));
    std::stable_sort(rows.begin(), rows.end(), comes_before);
    return rows;
  }

 private:
  LogitsRow compare_file(const std::string& file, const std::string& problem) const {
    LogitsRow row{.file = file};
    call_.voice.old_info("Start processing file: " + quoted(file));
    Result<vendor::msit::LogitsName> name = vendor::msit::parse_logits_name(file);
    if (!name) {
      call_.voice.warning("There is a invalid file, parse_error: " + name.error().message);
      row.reason = "parse_error:" + name.error().message;
      return row;
    }
    row.name = *std::move(name);
    call_.voice.old_info("Load file: " + quoted(file) +
                         " , calculate cosine_similarity kl_divergence l1_norm ulp");
    row.reason = problem;
    if (problem.empty()) add_metrics(&row);
    return row;
  }

  void add_metrics(LogitsRow* row) const {
    const Result<Tensor> golden = load_logits(golden_, row->file);
    const Result<Tensor> mine = golden ? load_logits(mine_, row->file) : golden;
    if (!mine) {
      row->reason = mine.error().describe();
      return;
    }
    const Result<vendor::msit::LogitsMetrics> metrics =
        vendor::msit::compare_logits(golden->view, mine->view, limits_.spacing);
    if (!metrics) {
      row->reason = metrics.error().message;
      return;
    }
    row->metrics = *metrics;
    row->passed = passes(*metrics, limits_);
  }

  const ToolCall& call_;
  const std::string& golden_;
  const std::string& mine_;
  const Limits& limits_;
};

int run_logitscmp(const ToolCall& call, const LogitsRequest& request) {
  call.voice.old_info("Compare the logits of 'golden' and 'my', and calculate the result");
  const Comparison comparison(call, request);
  const Result<std::vector<LogitsRow>> rows = comparison.compare();
  if (!rows) return tool_failure(call, rows.error());
  const Result<std::string> report = write_stamped_csv(
      request.output, "logits_cmp_res", report_stamp(call, std::time(nullptr)), csv_of(*rows));
  if (!report) return tool_failure(call, report.error());
  call.voice.info("Save compare result to " + quoted(*report));
  call.voice.old_info("Success compare logits of 'golden data' and 'my data'");
  const auto passed =
      std::count_if(rows->begin(), rows->end(), [](const LogitsRow& row) { return row.passed; });
  if (call.name != DumpName::Assay) return kSame;
  call.voice.info(std::to_string(passed) + " of " + std::to_string(rows->size()) + " files passed");
  return static_cast<size_t>(passed) == rows->size() ? kSame : kDiffers;
}

}  // namespace

Command logitscmp_command(const Caller& caller) {
  Command command(caller, "Compare the logits files of two folders, name by name.");
  const auto request = std::make_shared<LogitsRequest>();
  Limits& limits = request->limits;
  const auto checked = [&caller](const char* name, double first, double last) {
    return caller.is_ours() ? number(first, last) : old_limit(name, first, last);
  };
  command.require("--golden-path, -gp GOLDEN_PATH", "Folder with the golden logits, *.pth.",
                  request->golden);
  command.require("--my-path, -mp MY_PATH", "Folder with the logits under test.", request->mine);
  command.add("--cosine-similarity, -cs COSINE_SIMILARITY",
              "A file passes above this cosine similarity, default 0.999.",
              limits.cosine_similarity, checked("Cosine similarity", -1, 1));
  command.add("--kl-divergence, -kl KL_DIVERGENCE",
              "... and below this KL divergence, default 0.0001.", limits.kl_divergence,
              checked("KL_divergence", 0, HUGE_VAL));
  command.add("--l1-norm, -l1 L1_NORM", "... and below this relative L1 norm, default 0.01.",
              limits.l1_norm, checked("L1_Norm", -1, HUGE_VAL));
  command.add("--dtype, -d {fp16,bf16,fp32}",
              "Type whose spacing counts when only the maxima are compared, default fp16.",
              chosen(limits.spacing, {{"fp16", 0x1p-10}, {"bf16", 0x1p-7}, {"fp32", 0x1p-23}}));
  command.add("--output-dir, -o OUTPUT_DIR", "Folder of the report, default ./output.",
              request->output);
  add_log_level(command, request->log_level);
  command.example = caller.program + " -gp gpu/logits -mp npu/logits -o result";
  command.run = [caller, request](const ParsedArguments&) {
    return run_logitscmp({caller, request->log_level}, *request);
  };
  return command;
}

}  // namespace assay::cli
