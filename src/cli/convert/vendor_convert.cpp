// SPDX-License-Identifier: Apache-2.0
// Behaviour: Ascend/msprobe: python/msprobe/msaccucmp/{msaccucmp.py,dump_data_conversion.py}
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <mutex>

#include "base/atomic_file.hpp"
#include "base/numbers.hpp"
#include "base/text.hpp"
#include "base/thread_pool.hpp"
#include "cli/commands.hpp"
#include "cli/convert/dump_converter.hpp"
#include "cli/convert/dump_file_name.hpp"
#include "cli/convert/dump_writer.hpp"
#include "cli/interrupt.hpp"
#include "cli/list_text.hpp"
#include "cli/output.hpp"
#include "cli/tensor_files.hpp"
#include "cli/visit_files.hpp"
#include "run/folder.hpp"
#include "run/ge_names.hpp"
#include "run/load.hpp"
#include "run/record.hpp"

namespace assay::cli {
namespace {

constexpr unsigned kFileMode = 0600;
constexpr unsigned kFolderMode = 0750;
constexpr uint64_t kMemoryBytes = uint64_t{1} << 30;
constexpr std::string_view kFailedList = "convert_failed_file_list.txt";

int status(ConvertCode code) { return static_cast<int>(code); }

void warn(const std::string& sentence) { say("warning", sentence); }

int refuse(ConvertCode code, const std::string& sentence, std::string_view hint = {}) {
  report_error(sentence, hint);
  return status(code);
}

// ---- the files ----------------------------------------------------------------------------------

/// A file to convert, and the folder below OUT that its results go to.
struct Source {
  std::string path;
  std::string folder;  // "" or "sub/folder"
};

/// The files below a folder that can be dumps.
void collect(const std::string& folder, std::vector<Source>* out) {
  const auto add = [out](const run::FolderEntry& entry, const std::string& inside) {
    if (may_be_dump(entry.name)) out->push_back({entry.path, inside});
  };
  visit_files(folder, {add, warn, warn});
}

/// Converts files in parallel, each with `convert_one`, and notes those that failed.
class Batch {
 public:
  Batch(std::vector<Source> sources, std::string out, bool lists_failures)
      : sources_(std::move(sources)), out_(std::move(out)), lists_failures_(lists_failures) {}

  template <typename ConvertOne>
  int run(ConvertOne convert_one) {
    const InterruptGuard guard;
    const std::string failed_list = run::join_path(out_, kFailedList);
    if (lists_failures_) ::unlink(failed_list.c_str());  // of an earlier conversion
    std::vector<DumpOutcome> outcomes(sources_.size());
    parallel_for(sources_.size(), resolve_job_count(0), [&](size_t i) {
      if (interrupted()) return;
      outcomes[i] = one(sources_[i], convert_one);
    });
    if (interrupted()) {
      report_error("interrupted; files under their names are complete");
      return kInterrupted;
    }
    return report(outcomes, failed_list);
  }

 private:
  template <typename ConvertOne>
  DumpOutcome one(const Source& source, ConvertOne& convert_one) {
    const std::string folder = source.folder.empty() ? out_ : run::join_path(out_, source.folder);
    if (const Status made = make_directories(folder, kFolderMode); !made) {
      DumpOutcome outcome;
      outcome.problems.push_back({"", made.error(), ConvertCode::InvalidPath});
      return outcome;
    }
    DumpOutcome outcome = convert_one(source.path, folder);
    const std::lock_guard lock(printing_);
    for (const std::string& warning : outcome.warnings) warn(source.path + ": " + warning);
    for (const DumpProblem& problem : outcome.problems) warn(problem.error.describe());
    return outcome;
  }

  int report(const std::vector<DumpOutcome>& outcomes, const std::string& failed_list) {
    size_t written = 0;
    size_t failed = 0;
    ConvertCode code = ConvertCode::None;
    std::string lines;
    for (size_t i = 0; i < outcomes.size(); ++i) {
      written += outcomes[i].files.size();
      if (outcomes[i].problems.empty()) continue;
      ++failed;
      code = outcomes[i].code();
      lines += sources_[i].path;
      for (const DumpProblem& problem : outcomes[i].problems) {
        if (!problem.operand.empty()) lines += "," + problem.operand;
      }
      lines += '\n';
    }
    std::fprintf(stderr, "%zu files written to %s\n", written, printable(out_).c_str());
    if (failed == 0) return status(code);
    std::string hint;
    if (lists_failures_) {
      if (const Status listed = write_file_atomically(failed_list, as_bytes(lines), kFileMode);
          !listed)
        warn(listed.error().describe());
      hint = "they are listed in " + failed_list;
    }
    report_error(std::to_string(failed) + " of " + std::to_string(outcomes.size()) +
                     " files could not be converted completely",
                 hint);
    return status(code);
  }

  const std::vector<Source> sources_;
  const std::string out_;
  const bool lists_failures_;
  std::mutex printing_;
};

/// The files that -d names: one, several with commas between, or a folder.
Result<std::vector<Source>> sources_of(const std::string& argument, bool* is_single) {
  std::vector<Source> sources;
  *is_single = false;
  std::vector<std::string> paths;
  if (run::is_file(argument) || run::is_folder(argument)) {
    paths.push_back(argument);
  } else {
    for (const std::string_view path : split(argument, ',')) {
      if (!path.empty()) paths.emplace_back(path);
    }
  }
  for (const std::string& path : paths) {
    if (run::is_folder(path)) {
      collect(path, &sources);
    } else if (run::is_file(path)) {
      sources.push_back({path, ""});
      *is_single = paths.size() == 1;
    } else {
      return fail(Error{Errc::NotFound, path, std::nullopt, "there is no such file or folder"});
    }
  }
  return sources;
}

// ---- convert -d ---------------------------------------------------------------------------------

/// The options, as they are given.
struct DumpsRequest {
  std::string dump;
  std::string output = ".";
  DumpTarget target = DumpTarget::Npy;
  std::string version;
  std::optional<std::string> format;
  // Without a format they mean nothing: what is wrong with them has the original's status, not that
  // of wrong usage.
  std::optional<std::string> shape;
  std::optional<std::string> output_index;
  std::optional<std::string> input_index;
  std::optional<std::string> script_folder;
};

Result<Dims> parse_shape(const std::string& text) {
  Dims shape;
  const std::string list = with_ascii_commas(text);
  for (const std::string_view part : split(list, ',')) {
    const auto size = parse_number<int64_t>(part);
    if (!size || *size <= 0)
      return fail(Errc::Usage, "-s: '" + text + "' is no shape such as 1,3,224,224");
    shape.push_back(*size);
  }
  return shape;
}

Result<DumpConversion::Operand> parse_operand(const std::string& text, bool is_input) {
  if (const auto index = parse_number<size_t>(text))
    return DumpConversion::Operand{is_input, *index};
  return fail(Errc::Usage, std::string(is_input ? "-i" : "-o") + " takes a number from 0 on");
}

/// What the options say about layout, for one file or several.
Result<DumpConversion> conversion_of(const DumpsRequest& request, bool is_single) {
  DumpConversion conversion;
  conversion.target = request.target;
  const std::pair<const std::optional<std::string>&, std::string_view> beside_format[] = {
      {request.output_index, "-o"},
      {request.input_index, "-i"},
      {request.shape, "-s"},
      {request.script_folder, "-c"}};
  for (const auto& [value, option] : beside_format) {
    if (value && !request.format)
      return fail(Errc::Usage, std::string(option) + " takes effect only together with -f");
  }
  if (!request.format) return conversion;
  Layout layout;
  const auto number = cann_format_from_name(*request.format);
  if (!number) return fail(Errc::Usage, "-f: '" + *request.format + "' is no memory format");
  layout.format = *number;
  if (request.script_folder) {
    conversion.script_folder = run::real_path(*request.script_folder);
    if (!run::is_folder(conversion.script_folder))
      return fail(Error{Errc::NotFound, *request.script_folder, std::nullopt, "is no folder"});
    if (!run::is_folder(conversion.script_folder + "/format_convert"))
      warn(conversion.script_folder + ": there is no folder format_convert in it");
  }
  const auto& index = request.input_index ? request.input_index : request.output_index;
  if (is_single) {
    if (request.shape) {
      ASSAY_TRY(layout.shape, parse_shape(*request.shape));
    }
    if (index) {
      ASSAY_TRY(conversion.operand, parse_operand(*index, request.input_index.has_value()));
    }
  } else if (request.shape || index) {
    warn("-s, -o and -i are meant for one file and are ignored");
  }
  conversion.layout = std::move(layout);
  return conversion;
}

int convert_dumps(const DumpsRequest& request) {
  bool is_single = false;
  Result<std::vector<Source>> sources = sources_of(request.dump, &is_single);
  if (!sources) return refuse(ConvertCode::InvalidPath, sources.error().describe());
  const Result<DumpConversion> conversion = conversion_of(request, is_single);
  if (!conversion) {
    const bool is_path = conversion.error().code == Errc::NotFound;
    return refuse(is_path ? ConvertCode::InvalidPath : ConvertCode::InvalidParameter,
                  conversion.error().describe());
  }
  if (sources->empty()) {
    const bool is_empty = run::is_folder(request.dump) &&
                          run::list_folder(request.dump, "").value_or(run::FolderEntries()).empty();
    return refuse(is_empty ? ConvertCode::InvalidParameter : ConvertCode::NoDumpFile,
                  request.dump + ": holds no dump files");
  }
  const std::string out = request.output.empty() ? "." : request.output;
  if (const Status made = make_directories(out, kFolderMode); !made)
    return refuse(ConvertCode::InvalidPath, made.error().describe());

  LongNames names(kFileMode);
  ByteBudget budget(kMemoryBytes);
  const DumpConverter converter(*conversion, &names, &budget);
  return Batch(*std::move(sources), out, !is_single)
      .run([&](const std::string& path, const std::string& folder) {
        return converter.convert(path, folder);
      });
}

// ---- convert -target ----------------------------------------------------------------------------

struct OlderRequest {
  bool to_numpy = false;
  std::string type;
  std::string in;
  std::string out;
};

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

/// How a file is named after conversion: {name}.{output}.{time}.npy and {name}.{output}.{time}.pb
/// for caffe and tf (.quant for quant), {type}.{name}.{task}.{time}.{output}.npy and
/// {type}.{name}.{task}.{time} for offline.
Result<std::string> older_stem(const std::string& file, bool to_numpy, const std::string& type) {
  std::vector<std::string_view> parts = split(file, '.');
  const auto joined = [&](size_t count) {
    std::string text;
    for (size_t i = 0; i < count; ++i) text += (i > 0 ? "." : "") + std::string(parts[i]);
    return text;
  };
  const size_t count = parts.size();
  if (type == "offline") {
    if (to_numpy) {
      if (const auto name = run::parse_ge_file_name(file)) return name->op_name;
      return fail(Errc::Usage, "is not named {type}.{name}.{task}.{time}");
    }
    const bool fits = count == 6 && parts[5] == "npy" && is_number(parts[2]) &&
                      is_number(parts[3]) && is_number(parts[4]);
    if (fits) return joined(4);
    return fail(Errc::Usage, "is not named {type}.{name}.{task}.{time}.{output}.npy");
  }
  const std::string_view ending = to_numpy ? (type == "quant" ? "quant" : "pb") : "npy";
  const bool fits = count >= 4 && parts[count - 1] == ending && is_number(parts[count - 2]) &&
                    is_number(parts[count - 3]);
  if (!fits) return fail(Errc::Usage, "is not named {name}.{output}.{time}." + std::string(ending));
  return to_numpy ? joined(count - 2) : joined(count - 1) + (type == "quant" ? ".quant" : ".pb");
}

DumpOutcome numpy_to_dump(const std::string& path, const std::string& folder,
                          const std::string& name) {
  DumpOutcome outcome;
  run::TensorRecord record;
  record.bytes.emplace().file = path;
  const Result<Tensor> tensor = run::load_tensor(record);
  if (!tensor) {
    outcome.problems.push_back({"", tensor.error(), ConvertCode::InvalidDumpData});
    return outcome;
  }
  DumpContent content;
  content.op_name = name;
  content.outputs.push_back(tensor->view);
  const std::string target = run::join_path(folder, name);
  if (const Status written = write_dump_file(target, content, kFileMode); !written) {
    outcome.problems.push_back({"", written.error(), ConvertCode::WriteFile});
  } else {
    outcome.files.push_back(target);
  }
  return outcome;
}

/// Dumps to arrays: the names have the operator's name in place of the file's.
DumpOutcome dump_to_numpy(const DumpConverter& converter, const std::string& path,
                          const std::string& folder, const std::string& stem, bool offline) {
  DumpOutcome outcome = converter.convert(path, folder);
  const std::string file = run::base_name(path);
  for (std::string& written : outcome.files) {
    const std::string old = run::base_name(written);
    if (!old.starts_with(file)) continue;  // a long name
    const std::string rest = offline ? old.substr(file.size()) : old.substr(old.rfind('.'));
    const std::string renamed = run::join_path(folder, stem + rest);
    if (::rename(written.c_str(), renamed.c_str()) != 0) {
      outcome.problems.push_back(
          {"", errno_error(errno, "rename", written), ConvertCode::WriteFile});
    } else {
      written = renamed;
    }
  }
  return outcome;
}

int convert_older(const OlderRequest& request) {
  const auto& [to_numpy, type, in, out] = request;
  std::vector<Source> sources;
  const bool is_single = run::is_file(in);
  if (is_single) {
    sources.push_back({in, ""});
  } else {
    const auto entries = run::list_folder(in, run::real_path(in));
    if (!entries) return refuse(ConvertCode::InvalidPath, entries.error().describe());
    for (const run::FolderEntry& entry : *entries) {
      if (entry.kind == run::FolderEntry::Kind::File && entry.name != "mapping.csv" &&
          entry.name != kFailedList)
        sources.push_back({entry.path, ""});
    }
  }
  if (sources.empty()) return refuse(ConvertCode::NoDumpFile, in + ": holds no files");
  if (const Status made = make_directories(out, kFolderMode); !made)
    return refuse(ConvertCode::InvalidPath, made.error().describe());

  LongNames names(kFileMode);
  ByteBudget budget(kMemoryBytes);
  const DumpConverter converter({}, &names, &budget);
  return Batch(std::move(sources), out, !is_single)
      .run([&](const std::string& path, const std::string& folder) {
        const Result<std::string> stem =
            in_file(path, older_stem(run::base_name(path), to_numpy, type));
        if (!stem) {
          DumpOutcome outcome;
          outcome.problems.push_back({"", stem.error(), ConvertCode::DumpFile});
          return outcome;
        }
        return to_numpy ? dump_to_numpy(converter, path, folder, *stem, type == "offline")
                        : numpy_to_dump(path, folder, *stem);
      });
}

bool is_option(const std::string& word, std::string_view option) {
  return word == option || (word.starts_with(option) && word[option.size()] == '=');
}

bool has_option(const Words& words, std::string_view option) {
  return std::any_of(words.begin(), words.end(),
                     [option](const std::string& word) { return is_option(word, option); });
}

}  // namespace

bool is_dump_convert(const Words& words) {
  return has_option(words, "-d") || has_option(words, "--dump_file") ||
         has_option(words, "--dump-file");
}

Command dump_convert_command(const Caller& caller) {
  Command command(caller,
                  "Converts dump files of CANN's graph engine, with the options of the original's "
                  "converter.");
  const auto request = std::make_shared<DumpsRequest>();
  command.require("--dump-file, -d DUMP", "a dump file, several with commas between, or a folder",
                  request->dump);
  command.add("--output, -out FOLDER", "where the results go (the current folder)",
              request->output);
  command.add("--type, -t {npy,bin,msnpy,pt}", "kind of the results (npy)",
              chosen(request->target, {{"npy", DumpTarget::Npy},
                                       {"bin", DumpTarget::Bin},
                                       {"msnpy", DumpTarget::Msnpy},
                                       {"pt", DumpTarget::Pt}}));
  command.add("--version, -v {0,1,2}", "ignored: the file's bytes tell its version",
              request->version);
  command.add("--format, -f FORMAT", "memory format of the results: NCHW, NHWC, ND ...",
              request->format);
  command.add("--shape, -s SHAPE", "shape in that format: 1,3,224,224; one file, with -f",
              request->shape);
  command.add("--output-tensor, -o INDEX", "only this output; one file, with -f",
              request->output_index);
  command.add("--input-tensor, -i INDEX", "only this input; one file, with -f",
              request->input_index);
  command.add("--custom-script-path, -c FOLDER",
              "folder with format_convert/convert_{FROM}_to_{TO}.py; with -f",
              request->script_folder);
  command.example = caller.program + " -d dump/20250102030405/0/graph_1/1/0 -out npy -t npy";
  command.check = [request](const ParsedArguments&) -> Status {
    if (!request->output_index || !request->input_index) return {};
    return fail(Errc::Usage,
                "argument --input-tensor/-i: not allowed with argument --output-tensor/-o");
  };
  command.run = [request](const ParsedArguments&) { return convert_dumps(*request); };
  return command;
}

bool is_older_convert(const Words& words) { return has_option(words, "-target"); }

Command older_convert_command(const Caller& caller) {
  Command command(caller,
                  "Converts between dump files and numpy files, with the options of the original's "
                  "first converter.");
  const auto request = std::make_shared<OlderRequest>();
  command.require("-target {numpy,dump}", "what is made",
                  chosen(request->to_numpy, {{"numpy", true}, {"dump", false}}));
  command.require("-type {caffe,tf,quant,offline}", "how the files are named", request->type);
  command.require("-i IN", "a file or a folder", request->in);
  command.require("-o FOLDER", "where the results go", request->out);
  command.example =
      caller.program + " -target dump -type offline -i Add.Add_1.3.1760000000123456.0.npy -o dumps";
  command.run = [request](const ParsedArguments&) { return convert_older(*request); };
  return command;
}

}  // namespace assay::cli
