// SPDX-License-Identifier: Apache-2.0
// The sentences are those of Ascend/msit: msit/components/utils/cmp_algorithm.py, its spelling
// included.
#include "compare/algorithms.hpp"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <mutex>
#include <span>

#include "compare/python_algorithms.hpp"
#include "pair/scratch_tensor.hpp"
#include "tensor/convert.hpp"

namespace assay::compare {
namespace {

constexpr int64_t kBlockValues = 65536;
constexpr size_t kMaxMessage = 1024;

// ---- shared libraries ----

/// 0: *value is set; anything else: it failed. msg is text of at most cap bytes with its final
/// zero.
using NativeFunction = int (*)(const float* golden, const float* my, size_t n, double* value,
                               char* msg, size_t cap);

/// The values of a view as floats in a row: its own bytes where they are that already.
Result<Tensor> as_floats(const TensorView& view) {
  const bool as_it_is = view.dtype == DType::Float32 && view.is_contiguous() && !view.negative;
  if (as_it_is) {
    const ByteSpan bytes = view.contiguous_bytes();
    if (reinterpret_cast<uintptr_t>(bytes.data()) % alignof(float) == 0) return Tensor{view, {}};
  }
  const int64_t per_element = values_per_element(view.dtype);
  const int64_t elements = view.element_count();
  ASSAY_TRY(pair::ScratchTensor out, pair::ScratchTensor::create({elements * per_element}));
  std::vector<double> values;
  std::vector<float> floats;
  const int64_t step = std::max<int64_t>(1, kBlockValues / std::max<int64_t>(1, per_element));
  for (int64_t first = 0; first < elements; first += step) {
    const int64_t count = std::min(step, elements - first);
    values.resize(static_cast<size_t>(count * per_element));
    read_values(view, first, count, values);
    floats.assign(values.begin(), values.end());
    ASSAY_TRY_STATUS(out.write(first * per_element, floats));
  }
  return std::move(out).finish();
}

class NativeAlgorithm : public Algorithm {
 public:
  NativeAlgorithm(NativeFunction function, std::string name)
      : function_(function), name_(std::move(name)) {}
  const std::string& name() const override { return name_; }

  AlgorithmValue compute(const TensorView& golden, const TensorView& mine) override {
    const Result<Tensor> golden_floats = as_floats(golden);
    const Result<Tensor> mine_floats = as_floats(mine);
    for (const Result<Tensor>* side : {&golden_floats, &mine_floats}) {
      if (!*side) return {{}, name_ + ": " + side->error().message + "."};
    }
    const int64_t count = golden_floats->view.element_count();
    if (count != mine_floats->view.element_count()) {
      return {{}, name_ + ": the two tensors have different numbers of values."};
    }
    return call(floats_of(*golden_floats), floats_of(*mine_floats), static_cast<size_t>(count));
  }

 private:
  static const float* floats_of(const Tensor& tensor) {
    return reinterpret_cast<const float*>(tensor.view.contiguous_bytes().data());
  }

  AlgorithmValue call(const float* golden, const float* mine, size_t count) {
    double value = 0;
    std::vector<char> message(kMaxMessage, '\0');
    int status = 0;
    {
      // Whether the user's code can run in two threads at a time is not known.
      const std::lock_guard lock(mutex_);
      status = function_(golden, mine, count, &value, message.data(), message.size());
    }
    message.back() = '\0';
    AlgorithmValue out;
    out.message = message.data();
    if (status == 0) {
      out.value = value;
    } else if (out.message.empty()) {
      out.message = name_ + ": failed with status " + std::to_string(status) + ".";
    }
    return out;
  }

  NativeFunction function_;
  std::string name_;
  std::mutex mutex_;
};

Result<std::shared_ptr<Algorithm>> load_native(const std::string& path,
                                               const std::string& directory,
                                               const std::string& name, const std::string& spec) {
  const std::string file = path.substr(path.rfind('/') + 1);
  // The library stays loaded: its code may be in use until the very end.
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = ::dlerror();
    return fail(Errc::Invalid, "import " + file + " from " + directory +
                                   " failed: " + (reason == nullptr ? "unknown reason" : reason));
  }
  void* const symbol = ::dlsym(library, name.c_str());
  if (symbol == nullptr)
    return fail(Errc::Invalid, "getting " + name + " from " + spec + " failed");
  return std::make_shared<NativeAlgorithm>(reinterpret_cast<NativeFunction>(symbol), name);
}

// ---- FILE:FUNC ----

struct Spec {
  std::string text;
  std::string path;       // absolute
  std::string directory;  // as it was written, for messages
  std::string function;
};

std::string absolute_path(const std::string& path) {
  char resolved[PATH_MAX];
  return ::realpath(path.c_str(), resolved) == nullptr ? std::string() : std::string(resolved);
}

Result<Spec> parse_spec(const std::string& text) {
  if (std::count(text.begin(), text.end(), ':') != 1) {
    return fail(Errc::Usage,
                "custom_compare_algorithm should be in format "
                "'{python_file_path}:{function_name}'");
  }
  const std::string file = text.substr(0, text.find(':'));
  Spec spec;
  spec.text = text;
  spec.function = text.substr(text.find(':') + 1);
  const size_t slash = file.rfind('/');
  spec.directory = slash == std::string::npos ? "" : file.substr(0, slash);
  const auto refuse = [&](const char* why) {
    return fail(Errc::Usage, "custom_compare_algorithm specified " + file + why);
  };
  spec.path = absolute_path(file);
  if (spec.path.empty()) return refuse(" not exists");
  if (!file.ends_with(".py") && !file.ends_with(".so")) return refuse(" is not a py file");
  struct stat info{};
  const bool is_file = ::stat(spec.path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
  if (!is_file || ::access(spec.path.c_str(), R_OK) != 0)
    return refuse(" permission stat is illegal");
  // Through a link the file may have another ending than its name.
  if (!spec.path.ends_with(file.substr(file.size() - 3))) return refuse(" is not a py file");
  return spec;
}

}  // namespace

Result<std::vector<std::shared_ptr<Algorithm>>> load_algorithms(
    const std::vector<std::string>& specs) {
  std::vector<std::shared_ptr<Algorithm>> out;
  std::shared_ptr<PythonHost> host;
  for (const std::string& text : specs) {
    ASSAY_TRY(const Spec spec, parse_spec(text));
    std::shared_ptr<Algorithm> algorithm;
    if (spec.path.ends_with(".so")) {
      ASSAY_TRY(algorithm, load_native(spec.path, spec.directory, spec.function, spec.text));
    } else {
      if (!host) host = make_python_host();
      ASSAY_TRY(algorithm,
                load_python_algorithm(host, spec.path, spec.directory, spec.function, spec.text));
    }
    // The original kept one function a name, the last one in the place of the first.
    const auto known = std::find_if(out.begin(), out.end(), [&](const auto& other) {
      return other->name() == algorithm->name();
    });
    if (known == out.end()) {
      out.push_back(std::move(algorithm));
    } else {
      *known = std::move(algorithm);
    }
  }
  return out;
}

}  // namespace assay::compare
