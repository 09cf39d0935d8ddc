// SPDX-License-Identifier: Apache-2.0
// Tensors go to the helper through files that both processes see, requests and answers as lines of
// JSON. A helper that ends or is silent for too long costs its row, and the next row starts
// another.
#include "compare/python_algorithms.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/file_descriptor.hpp"
#include "base/numbers.hpp"
#include "base/python_process.hpp"
#include "base/temporary_files.hpp"
#include "tensor/convert.hpp"

namespace assay::compare {
namespace {

using nlohmann::json;
constexpr int kDefaultTimeoutSeconds = 600;
constexpr int kMaxFailures = 3;              // in a row; then no further process is started
constexpr size_t kMaxAnswerBytes = 1 << 20;  // an answer is one number and one sentence
constexpr int64_t kBlockValues = 65536;      // converted and written at a time

int timeout_seconds() {
  const char* named = std::getenv("ASSAY_ALGORITHM_TIMEOUT");
  const auto seconds = parse_number<int>(named == nullptr ? "" : named);
  return seconds && *seconds > 0 ? *seconds : kDefaultTimeoutSeconds;
}

// A file that both processes can see. Memory when no folder for temporary files can be written.
Result<int> open_shared_file() {
  if (const Result<int> file = open_unlinked_file()) return *file;
  const int memory = ::memfd_create("assay-pair", MFD_CLOEXEC);
  if (memory < 0) return fail(errno_error(errno, "create", "shared memory"));
  return memory;
}

Status write_floats(int fd, const TensorView& view) {
  const int64_t per_element = values_per_element(view.dtype);
  const int64_t elements = view.element_count();
  const int64_t step = std::max<int64_t>(1, kBlockValues / std::max<int64_t>(1, per_element));
  std::vector<double> values;
  std::vector<float> floats;
  off_t offset = 0;
  for (int64_t first = 0; first < elements; first += step) {
    values.resize(static_cast<size_t>(std::min(step, elements - first) * per_element));
    read_values(view, first, std::min(step, elements - first), values);
    floats.assign(values.begin(), values.end());
    ByteSpan left = std::as_bytes(std::span<const float>(floats));
    while (!left.empty()) {
      const ssize_t written = ::pwrite(fd, left.data(), left.size(), offset);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return fail(errno_error(errno, "write", "a temporary file"));
      left = left.subspan(static_cast<size_t>(written));
      offset += written;
    }
  }
  return {};
}

int64_t value_count(const TensorView& view) {
  return view.element_count() * values_per_element(view.dtype);
}

}  // namespace

// ---- the process ----

class PythonHost {
 public:
  /// Loads a function, now and into every later process. Returns its index.
  Result<size_t> load(json request) {
    const std::lock_guard lock(mutex_);
    ASSAY_TRY_STATUS(ensure_running());
    ASSAY_TRY_STATUS(load_into_process(request));
    functions_.push_back(std::move(request));
    return functions_.size() - 1;
  }

  AlgorithmValue call(size_t index, const TensorView& golden, const TensorView& mine) {
    const std::lock_guard lock(mutex_);
    const std::string name = functions_[index].at("function").get<std::string>();
    if (failures_ >= kMaxFailures) {
      return {{},
              name + ": switched off after " + std::to_string(kMaxFailures) +
                  " failures of its Python process in a row."};
    }
    const Result<json> answer = call_process(index, golden, mine);
    if (!answer) return {{}, name + ": " + answer.error().message + "."};
    failures_ = 0;
    return value_of(*answer);
  }

 private:
  static AlgorithmValue value_of(const json& answer) {
    AlgorithmValue out;
    if (const auto error = answer.find("error"); error != answer.end()) {
      out.message = error->get<std::string>();
      return out;
    }
    const std::string type = answer.value("type", "");
    const std::string text = answer.value("value", "");
    out.message = answer.value("message", "");
    if (type == "float") {
      out.value = std::strtod(text.c_str(), nullptr);
    } else if (const auto integer = parse_number<int64_t>(text); type == "int" && integer) {
      out.value = *integer;
    } else {
      out.value = text;
    }
    return out;
  }

  Result<json> call_process(size_t index, const TensorView& golden, const TensorView& mine) {
    ASSAY_TRY_STATUS(ensure_running());
    ASSAY_TRY_STATUS(write_floats(golden_file_->get(), golden));
    ASSAY_TRY_STATUS(write_floats(mine_file_->get(), mine));
    return exchange(
        {{"call", index}, {"golden", value_count(golden)}, {"mine", value_count(mine)}});
  }

  Status load_into_process(const json& request) {
    ASSAY_TRY(const json answer, exchange(request));
    if (const auto error = answer.find("error"); error != answer.end()) {
      return fail(Errc::Invalid, error->get<std::string>());
    }
    return {};
  }

  /// Starts a process when none runs, with everything loaded that was.
  Status ensure_running() {
    if (process_.is_running()) return {};
    ASSAY_TRY_STATUS(start());
    for (const json& request : functions_) ASSAY_TRY_STATUS(load_into_process(request));
    return {};
  }

  Status start() {
    if (!golden_file_) {
      ASSAY_TRY(const int golden, open_shared_file());
      golden_file_.emplace(golden);
      ASSAY_TRY(const int mine, open_shared_file());
      mine_file_.emplace(mine);
    }
    const int files[] = {golden_file_->get(), mine_file_->get()};
    if (Status started = process_.start(kAlgorithmHost, files); !started) {
      Error error = started.error();
      error.message += "; custom algorithms need a Python, name one in ASSAY_PYTHON";
      return fail(std::move(error));
    }
    return {};
  }

  /// One request and its answer. A process that does not answer is ended.
  Result<json> exchange(const json& request) {
    const Result<std::string> line = exchange_lines(request.dump() + "\n");
    if (!line) {
      ++failures_;
      return fail(line.error());
    }
    json answer = json::parse(*line, nullptr, /*allow_exceptions=*/false);
    if (answer.is_object()) return answer;
    ++failures_;
    process_.kill();
    return fail(Errc::Invalid, "the Python process gave an answer that is none");
  }

  Result<std::string> exchange_lines(std::string_view request) {
    ASSAY_TRY_STATUS(process_.send(request));
    const int seconds = timeout_seconds();
    ASSAY_TRY(std::optional<std::string> line,
              process_.receive(std::chrono::seconds(seconds), kMaxAnswerBytes));
    if (line) return *std::move(line);
    process_.kill();
    return fail(Errc::Io, "gave no answer within " + std::to_string(seconds) +
                              " s, its Python process was ended");
  }

  std::mutex mutex_;
  std::vector<json> functions_;  // the requests that load them
  // Never shrunk: a function may have kept an array, and reading behind the end of a file is fatal.
  std::optional<FileDescriptor> golden_file_;
  std::optional<FileDescriptor> mine_file_;
  PythonProcess process_;
  int failures_ = 0;
};

namespace {

class PythonAlgorithm : public Algorithm {
 public:
  PythonAlgorithm(std::shared_ptr<PythonHost> host, size_t index, std::string name)
      : host_(std::move(host)), index_(index), name_(std::move(name)) {}
  const std::string& name() const override { return name_; }
  AlgorithmValue compute(const TensorView& golden, const TensorView& mine) override {
    return host_->call(index_, golden, mine);
  }

 private:
  std::shared_ptr<PythonHost> host_;
  size_t index_;
  std::string name_;
};

}  // namespace

std::shared_ptr<PythonHost> make_python_host() { return std::make_shared<PythonHost>(); }

Result<std::shared_ptr<Algorithm>> load_python_algorithm(const std::shared_ptr<PythonHost>& host,
                                                         const std::string& path,
                                                         const std::string& directory,
                                                         const std::string& function,
                                                         const std::string& spec) {
  ASSAY_TRY(
      const size_t index,
      host->load(
          {{"load", path}, {"directory", directory}, {"function", function}, {"spec", spec}}));
  return std::make_shared<PythonAlgorithm>(host, index, function);
}

}  // namespace assay::compare
