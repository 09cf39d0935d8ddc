// SPDX-License-Identifier: Apache-2.0
// A temporary folder for tests, and short ways to put files into it.
#pragma once
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "formats/npy.hpp"
#include "formats/pth.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::run::test {

class TestFolder {
 public:
  TestFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "assay_run_XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  [[nodiscard]] const std::string& path() const { return path_; }

  /// Writes a file and its parents.
  void put(const std::string& name, std::string_view content) const {
    const std::filesystem::path file = path_ + "/" + name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << content;
  }
  void put_folder(const std::string& name) const {
    std::filesystem::create_directories(path_ + "/" + name);
  }
  void put_link(const std::string& name, const std::string& target) const {
    std::filesystem::create_directories(std::filesystem::path(path_ + "/" + name).parent_path());
    std::filesystem::create_symlink(target, path_ + "/" + name);
  }
  void put_fifo(const std::string& name) const { ::mkfifo((path_ + "/" + name).c_str(), 0600); }

  void put_pth(const std::string& name, const std::vector<float>& values) const {
    put(name, formats::write_pth(view_of(values)).value());
  }
  void put_npy(const std::string& name, const std::vector<float>& values) const {
    put(name, formats::write_npy(view_of(values)).value());
  }

 private:
  static TensorView view_of(const std::vector<float>& values) {
    return make_view(DType::Float32, Dims{static_cast<int64_t>(values.size())},
                     std::as_bytes(std::span(values)))
        .value();
  }
  std::string path_;
};

/// The values of a float32 tensor in C order of a contiguous view.
inline std::vector<float> floats_of(const Tensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.view.element_count()));
  const ByteSpan bytes = tensor.view.contiguous_bytes();
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace assay::run::test
