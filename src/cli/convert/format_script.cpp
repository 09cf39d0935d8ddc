// SPDX-License-Identifier: Apache-2.0
// Runs the script in a Python of its own, one at a time: the tensor goes out and comes back as .npy
// files in a scratch folder, so that the script cannot harm this process.
#include "cli/convert/format_script.hpp"

#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

#include "base/mapped_file.hpp"
#include "base/python_program.hpp"
#include "cli/convert/numpy_tensor.hpp"
#include "cli/dump/child_process.hpp"
#include "cli/interrupt.hpp"
#include "cli/tensor_files.hpp"
#include "formats/npy.hpp"
#include "run/folder.hpp"

namespace assay::cli {
namespace {

/// Arguments: script, input file, output file, shapes "1,2,3", number of groups.
constexpr const char* kDriver = R"PY(
import importlib.util, sys
import numpy as np
script, source, target, shape_from, shape_to, groups = sys.argv[1:]
sizes = lambda text: [int(size) for size in text.split(",") if size]
sys.path.insert(0, script.rsplit("/", 2)[0])
spec = importlib.util.spec_from_file_location("format_conversion", script)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
arguments = [sizes(shape_from), sizes(shape_to), np.load(source)]
if int(groups) > 1:
    arguments.append(int(groups))
result = module.convert(*arguments)
if not isinstance(result, np.ndarray) or result.dtype.hasobject:
    sys.exit("convert() returned " + type(result).__name__ + ", not an array of numbers")
np.save(target, np.ascontiguousarray(result).reshape(result.shape))
)PY";

std::string comma_text(const Dims& shape) {
  std::string text;
  for (const int64_t size : shape) text += (text.empty() ? "" : ",") + std::to_string(size);
  return text;
}

/// A folder for the files of one call, removed with them.
class ScratchFolder {
 public:
  [[nodiscard]] static Result<std::unique_ptr<ScratchFolder>> make() {
    const char* temporary = std::getenv("TMPDIR");
    std::string path =
        std::string(temporary != nullptr && *temporary != '\0' ? temporary : "/tmp") +
        "/assay_format_XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) return fail(errno_error(errno, "create", path));
    return std::unique_ptr<ScratchFolder>(new ScratchFolder(std::move(path)));
  }
  ~ScratchFolder() {
    ::unlink(input().c_str());
    ::unlink(output().c_str());
    ::rmdir(path_.c_str());
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  [[nodiscard]] std::string input() const { return path_ + "/in.npy"; }
  [[nodiscard]] std::string output() const { return path_ + "/out.npy"; }

 private:
  explicit ScratchFolder(std::string path) : path_(std::move(path)) {}
  const std::string path_;
};

}  // namespace

std::optional<std::string> format_script(const std::string& folder, int32_t from, int32_t to) {
  if (folder.empty()) return std::nullopt;
  std::string path = folder + "/format_convert/convert_" + formats::cann_format_name(from) +
                     "_to_" + formats::cann_format_name(to) + ".py";
  if (!run::is_file(path)) return std::nullopt;
  return path;
}

Result<Tensor> run_format_script(const std::string& script, const formats::CannTensor& tensor,
                                 const Layout& layout) {
  ASSAY_TRY(const TensorView stored, formats::cann_stored_view(tensor));
  ASSAY_TRY(Tensor plain, numpy_tensor(Tensor{stored, nullptr}));
  plain.view.shape = Dims{plain.view.element_count()};
  plain.view.strides = Dims{1};
  ASSAY_TRY(const std::unique_ptr<ScratchFolder> scratch, ScratchFolder::make());
  ASSAY_TRY_STATUS(write_tensor_file(scratch->input(), TensorFileFormat::Npy, plain.view, 0600));
  const Dims shape_to =
      !layout.shape.empty() ? layout.shape : tensor.original_shape.value_or(Dims{});
  const std::vector<std::string> command = {python_program(),
                                            "-c",
                                            kDriver,
                                            script,
                                            scratch->input(),
                                            scratch->output(),
                                            comma_text(tensor.shape),
                                            comma_text(shape_to),
                                            std::to_string(tensor.sub_format)};
  // run_program() handles signals of the whole process: one child at a time.
  static std::mutex one_child;
  const std::lock_guard lock(one_child);
  ASSAY_TRY(const ChildEnd end, run_program(command, {}));
  if (end.signal == SIGINT) interrupted() = true;
  if (end.exit_status != 0)
    return fail(Error{Errc::Invalid, script, std::nullopt,
                      "the conversion ended with status " + std::to_string(end.exit_status)});
  ASSAY_TRY(const MappedFile file, MappedFile::open(scratch->output()));
  return formats::read_npy_file(file);
}

}  // namespace assay::cli
