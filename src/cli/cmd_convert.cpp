// SPDX-License-Identifier: Apache-2.0
// `assay convert IN OUT`: any tensor that can be read, as a file that another program reads.
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <set>

#include "base/atomic_file.hpp"
#include "cli/command.hpp"
#include "cli/output.hpp"
#include "cli/record_selection.hpp"
#include "cli/tensor_files.hpp"
#include "run/run.hpp"

namespace assay::cli {
namespace {

struct ConvertOptions {
  std::string in;
  std::string out;
  std::string format;
  std::string name;
  std::string member;
  std::string steps;
  std::string ranks;
  std::string dtype;
  bool force = false;
};

Error usage(std::string message) { return {Errc::Usage, {}, std::nullopt, std::move(message)}; }

bool exists(const std::string& path) {
  struct stat info{};
  return ::lstat(path.c_str(), &info) == 0;
}
bool is_folder(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
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
  constexpr size_t kMaxComponentBytes =
      200;  // with suffix and temporary ending below the usual 255
  if (safe.size() > kMaxComponentBytes) safe.resize(kMaxComponentBytes);
  return safe;
}

/// Where a record goes below OUT: "a/b.npy" for a flat folder, "rank0/0/model.norm/output_0.npy" for a run.
std::string relative_path(const run::Run& run, const run::TensorRecord& record,
                          std::string_view suffix) {
  std::string path;
  const auto add = [&](std::string_view component) {
    if (!path.empty()) path += '/';
    path += safe_component(component);
  };
  if (run.layout == "flat") {
    for (size_t start = 0; start <= record.node.size();) {
      const size_t end = std::min(record.node.find('/', start), record.node.size());
      add(std::string_view(record.node).substr(start, end - start));
      start = end + 1;
    }
    if (!record.slot.empty()) add(record.slot);
    return path + std::string(suffix);
  }
  if (run.layout == "file") {
    add(record.slot.empty() ? record.node : record.slot);
    return path + std::string(suffix);
  }
  add("rank" + std::to_string(record.rank));
  add(record.step_name);
  add(record.node.empty() ? "model" : record.node);
  const bool is_weight = record.role == run::Role::Weight || record.role == run::Role::Buffer;
  std::string file(is_weight ? std::string_view(record.slot) : run::role_name(record.role));
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

class Converter {
 public:
  explicit Converter(const ConvertOptions& options) : options_(options) {}

  int run() {
    if (const Status read = prepare(); !read) return report_error(read.error(), hint_);
    const Status written = to_folder_ ? write_folder() : write_single();
    if (!written) return report_error(written.error(), hint_);
    if (failed_ > 0) {
      return report_error(std::to_string(failed_) + " of " + std::to_string(chosen_.size()) +
                              " tensors could not be converted",
                          "the others are in " + options_.out);
    }
    return kSame;
  }

 private:
  Status prepare() {
    ASSAY_TRY(run_, run::open_run(options_.in));
    RecordFilter filter;
    filter.name = options_.name;
    ASSAY_TRY(filter.steps, parse_number_set(options_.steps));
    ASSAY_TRY(filter.ranks, parse_number_set(options_.ranks));
    for (const size_t i : select_records(run_, filter)) {
      const run::TensorRecord& record = run_.records[i];
      if (!options_.member.empty() && record.slot != options_.member) continue;
      if (!record.value.empty()) continue;  // Values have no bytes to convert.
      chosen_.push_back(i);
    }
    if (chosen_.empty()) {
      hint_ = "assay show " + options_.in + " --list names what there is";
      return fail(Error{Errc::NotFound, options_.in, std::nullopt, "no tensor fits the request"});
    }
    if (!options_.dtype.empty()) {
      dtype_ = dtype_from_name(options_.dtype);
      if (!dtype_) return fail(usage("--dtype: unknown type '" + options_.dtype + "'"));
    }
    return choose_target();
  }

  Status choose_target() {
    const std::string suffix =
        options_.out.substr(std::min(options_.out.rfind('.'), options_.out.size()));
    const bool has_suffix = suffix.size() > 1 && suffix.find('/') == std::string::npos;
    std::optional<TensorFileFormat> format;
    if (!options_.format.empty()) {
      format = tensor_file_format(options_.format);
      if (!format)
        return fail(usage("--format: '" + options_.format +
                          "' is none of npy, pth, safetensors, txt, csv"));
    } else if (has_suffix) {
      format = tensor_file_format(std::string_view(suffix).substr(1));
    }
    const bool names_folder = options_.out.ends_with('/') || is_folder(options_.out);
    const bool names_file =
        has_suffix && tensor_file_format(std::string_view(suffix).substr(1)) && !names_folder;
    to_folder_ = names_folder || (!names_file && chosen_.size() > 1);
    if (!format) {
      hint_ = "end OUT in .npy, .pth, .safetensors, .txt or .csv, or add --format npy";
      return fail(usage("'" + options_.out + "' does not say which format to write"));
    }
    format_ = *format;
    if (!to_folder_ && chosen_.size() > 1 && format_ != TensorFileFormat::Safetensors) {
      hint_ =
          "choose one with --name, --member, --step, or write all into a folder: OUT/ --format " +
          std::string(suffix_of(format_).substr(1));
      return fail(
          Error{Errc::Usage, options_.in, std::nullopt,
                "holds " + std::to_string(chosen_.size()) + " tensors, one file takes one"});
    }
    return {};
  }

  Status check_target(const std::string& path) {
    if (options_.force || !exists(path)) return {};
    hint_ = "--force overwrites it";
    return fail(Error{Errc::Usage, path, std::nullopt, "exists already"});
  }

  Status write_single() {
    ASSAY_TRY_STATUS(check_target(options_.out));
    if (format_ != TensorFileFormat::Safetensors) {
      ASSAY_TRY(const Tensor tensor, load_as(run_.records[chosen_[0]], dtype_));
      return write_tensor_file(options_.out, format_, tensor.view);
    }
    std::vector<Tensor> tensors;  // keeps the files mapped
    std::vector<std::pair<std::string, TensorView>> named;
    std::map<std::string, int> used;
    for (const size_t i : chosen_) {
      ASSAY_TRY(Tensor tensor, load_as(run_.records[i], dtype_));
      std::string tensor_name = name_in_container(run_.records[i]);
      const int occurrence = ++used[tensor_name];
      if (occurrence > 1) tensor_name += "#" + std::to_string(occurrence);
      named.emplace_back(std::move(tensor_name), tensor.view);
      tensors.push_back(std::move(tensor));
    }
    return write_safetensors_file(options_.out, named);
  }

  [[nodiscard]] std::string name_in_container(const run::TensorRecord& record) const {
    if (run_.layout == "file") return record.slot.empty() ? record.node : record.slot;
    if (run_.layout == "flat") return record.node + (record.slot.empty() ? "" : "/" + record.slot);
    if (record.role == run::Role::Weight || record.role == run::Role::Buffer)
      return record_name(record);
    return record.step_name + "/" + record_name(record);
  }

  /// A tensor that cannot be converted is named, and the rest goes on.
  Status write_folder() {
    ASSAY_TRY_STATUS(make_directories(options_.out));
    std::set<std::string> used;
    for (const size_t i : chosen_) {
      const run::TensorRecord& record = run_.records[i];
      std::string relative = relative_path(run_, record, suffix_of(format_));
      for (int n = 2; !used.insert(relative).second; ++n) {
        relative =
            relative_path(run_, record, "_" + std::to_string(n) + std::string(suffix_of(format_)));
      }
      const std::string path = options_.out + (options_.out.ends_with('/') ? "" : "/") + relative;
      ASSAY_TRY_STATUS(check_target(path));
      ASSAY_TRY_STATUS(make_directories(path.substr(0, path.rfind('/'))));
      const Result<Tensor> tensor = load_as(record, dtype_);
      const Status written =
          tensor ? write_tensor_file(path, format_, tensor->view) : Status(fail(tensor.error()));
      if (written) continue;
      if (written.error().code == Errc::NoSpace) return written;
      ++failed_;
      std::fprintf(stderr, "warning: %s\n", printable(written.error().describe()).c_str());
    }
    return {};
  }

  const ConvertOptions& options_;
  run::Run run_;
  std::vector<size_t> chosen_;
  std::optional<DType> dtype_;
  TensorFileFormat format_ = TensorFileFormat::Npy;
  bool to_folder_ = false;
  size_t failed_ = 0;
  std::string hint_;
};

}  // namespace

void add_convert_command(CLI::App& app, int& exit_status) {
  const auto options = std::make_shared<ConvertOptions>();
  CLI::App* command =
      app.add_subcommand("convert", "Writes tensors as npy, pth, safetensors, txt or csv");
  command->add_option("IN", options->in, "Tensor file, folder of tensor files, or run")->required();
  command
      ->add_option("OUT", options->out,
                   "File whose suffix names the format, or a folder with --format")
      ->required();
  command->add_option("--format", options->format, "npy, pth, safetensors, txt or csv");
  command->add_option("--name", options->name,
                      "Node or tensor of a run, or a pattern, as for assay show");
  command->add_option("--member", options->member,
                      "Member of a container file: a key, or a path such as 1.0");
  command->add_option("--step", options->steps, "Only these steps: 0,2-4");
  command->add_option("--rank", options->ranks, "Only these ranks");
  command->add_option(
      "--dtype", options->dtype,
      "Convert the values: float32, float64, float16, bfloat16, int64 ... int8, uint8");
  command->add_flag("--force", options->force, "Overwrite");
  command->footer(
      "Examples:\n  assay convert output.pth output.npy\n  assay convert golden norm.npy --name "
      "model.norm.output --step 0\n"
      "  assay convert golden npy/ --format npy --dtype float32");
  command->callback([options, &exit_status] { exit_status = Converter(*options).run(); });
}

}  // namespace assay::cli
