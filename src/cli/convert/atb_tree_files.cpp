// SPDX-License-Identifier: Apache-2.0
// Finds the folders of processes in a native dump, copies all other files, then writes a file for
// each record of a process, in parallel.
#include "cli/convert/atb_tree_files.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <variant>

#include "base/atomic_file.hpp"
#include "base/file_source.hpp"
#include "base/interruption.hpp"
#include "base/text.hpp"
#include "base/thread_pool.hpp"
#include "cli/interrupt.hpp"
#include "formats/atb_paths.hpp"
#include "formats/atb_statistics.hpp"
#include "formats/atb_types.hpp"
#include "formats/native/schema.hpp"
#include "run/folder.hpp"
#include "run/load.hpp"
#include "run/native_records.hpp"
#include "run/open.hpp"
#include "run/records_index.hpp"
#include "run/run.hpp"

namespace assay::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kParameters = "op_param.json";

bool is_native_process(const fs::path& folder) {
  return formats::parse_atb_process_folder(folder.filename().string()) &&
         run::is_file((folder / native::kRecordsFile).string());
}

bool is_native_file(const std::string& name) {
  return name == native::kManifestFile || name == native::kRecordsFile ||
         name.starts_with(run::kIndexFile) || name.ends_with(native::kStepFileSuffix);
}

std::string format_text(const run::TensorRecord& record) {
  const auto number = formats::atb_format_from_text(record.memory_format);
  return std::to_string(number.value_or(formats::kAtbFormatNd));
}

/// The files of one process.
class ProcessFiles {
 public:
  ProcessFiles(std::string folder, std::string out)
      : folder_(std::move(folder)), out_(std::move(out)) {}

  Status write(AtbTreeFiles* result) {
    (void)run::read_records(folder_, 0, run::real_path(folder_), &run_);
    for (const run::OperationRecord& operation : run_.operations) {
      const std::string folder = operation.step_name + "/" + operation.node;
      files_[folder + "/" + std::string(kParameters)] = &operation;
    }
    // A tensor that was recorded twice is the later one.
    for (const run::TensorRecord& record : run_.records) files_[path_of(record)] = &record;
    std::vector<const Files::value_type*> files;
    files.reserve(files_.size());
    std::string folder;
    for (const auto& file : files_) {
      files.push_back(&file);
      const std::string parent = file.first.substr(0, file.first.rfind('/'));
      if (parent == folder) continue;
      folder = parent;
      ASSAY_TRY_STATUS(make_directories(out_ + "/" + folder, formats::kAtbFolderMode));
    }
    return until_interrupted([&]() -> Status {
      parallel_for(files.size(), resolve_job_count(0), [&](size_t i) {
        throw_if_interrupted();
        const std::string path = out_ + "/" + files[i]->first;
        const auto* operation = std::get_if<const run::OperationRecord*>(&files[i]->second);
        const Status written =
            operation != nullptr
                ? write(path, (*operation)->parameters + "\n")
                : write_tensor(path, *std::get<const run::TensorRecord*>(files[i]->second));
        const std::lock_guard lock(mutex_);
        if (!written) {
          result->problems.push_back(written.error().describe());
        } else {
          result->tensors += operation == nullptr;
        }
      });
      return {};
    });
  }

 private:
  using Files =
      std::map<std::string, std::variant<const run::OperationRecord*, const run::TensorRecord*>>;

  static std::string path_of(const run::TensorRecord& record) {
    return record.step_name.str() + "/" + record.node.str() +
           (record.moment == run::Moment::Before ? "/before/" : "/after/") +
           (record.role == Role::Input ? "intensor" : "outtensor") + record.slot.str() + ".bin";
  }

  static Status write(const std::string& path, const std::string& content) {
    return write_file_atomically(path, as_bytes(content), formats::kAtbFileMode);
  }

  static Status write_tensor(const std::string& path, const run::TensorRecord& record) {
    if (!record.problem.empty())
      return fail(Error{Errc::Invalid, path, std::nullopt, record.problem});
    const std::optional<int64_t> dtype =
        record.dtype ? formats::atb_from_dtype(*record.dtype) : std::nullopt;
    if (!dtype) return fail(Error{Errc::Invalid, path, std::nullopt, "has no type of ATB"});
    std::optional<Tensor> tensor;
    if (record.bytes) {
      ASSAY_TRY(tensor, run::load_tensor(record));
    }
    const std::optional<ByteSpan> payload =
        tensor ? std::optional(tensor->view.contiguous_bytes()) : std::nullopt;
    std::optional<formats::AtbStatisticsTexts> statistics;
    if (record.stats) {
      // A double does not hold all integers.
      statistics =
          payload ? formats::atb_statistics(*dtype, *payload, formats::AtbStatisticsForm::Exact)
                  : formats::atb_statistics(*dtype, *record.stats);
    }
    const std::string format = format_text(record);
    const std::string number = std::to_string(*dtype);
    const std::string dims =
        record.shape ? formats::atb_dims_text(record.shape->span()) : std::string();
    std::string content = formats::atb_record_header(
        {format, number, dims}, statistics,
        payload ? std::optional<uint64_t>(payload->size()) : std::nullopt);
    if (payload) content += as_text(*payload);
    return write(path, content);
  }

  std::string folder_;
  std::string out_;
  run::Run run_;
  Files files_;  // by the file's path
  std::mutex mutex_;
};

}  // namespace

Result<AtbTreeFiles> write_atb_tree(const std::string& in, const std::string& out) {
  ASSAY_TRY(const run::Run run, run::open_run(in));
  if (!run.has(run::Trait::AtbOperations) || is_elsewhere(in) || run::is_file(in))
    return fail(Error{Errc::Usage, in, std::nullopt,
                      "--format atb-tree takes a dump of the ATB acceleration library"});
  if (const std::string damage = run.first_damage(); !damage.empty())
    return fail(Error{Errc::Invalid, in, std::nullopt, "the run is damaged: " + damage});
  const fs::path root = fs::path(in);
  std::vector<fs::path> processes;
  std::vector<fs::path> others;
  std::error_code error;
  for (fs::recursive_directory_iterator next(root, error), end; !error && next != end;
       next.increment(error)) {
    if (next->is_directory(error)) {
      if (is_native_process(next->path())) processes.push_back(next->path());
    } else if (!is_native_process(next->path().parent_path()) ||
               !is_native_file(next->path().filename().string())) {
      others.push_back(next->path());
    }
  }
  if (error) return fail(Error{Errc::Io, in, std::nullopt, error.message()});
  if (is_native_process(root)) processes.push_back(root);
  if (processes.empty())
    return fail(Error{Errc::Usage, in, std::nullopt, "is a tree of files already"});
  const auto target_of = [&](const fs::path& path) {
    return (fs::path(out) / path.lexically_relative(root)).lexically_normal();
  };
  for (const fs::path& path : others) {
    const fs::path target = target_of(path);
    ASSAY_TRY_STATUS(make_directories(target.parent_path().string(), formats::kAtbFolderMode));
    fs::copy(path, target, fs::copy_options::copy_symlinks | fs::copy_options::overwrite_existing,
             error);
    if (error) return fail(Error{Errc::Io, target.string(), std::nullopt, error.message()});
    if (interrupted()) return fail(Errc::Interrupted, "interrupted");
  }
  AtbTreeFiles result;
  for (const fs::path& process : processes)
    ASSAY_TRY_STATUS(ProcessFiles(process.string(), target_of(process).string()).write(&result));
  std::ranges::sort(result.problems);
  return result;
}

}  // namespace assay::cli
