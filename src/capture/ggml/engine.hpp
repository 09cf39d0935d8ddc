// SPDX-License-Identifier: Apache-2.0
// One ggml library in the process: its functions, the layout of its tensors, the texts of its
// numbers. A process may hold several with different layouts.
#pragma once
#include <array>
#include <atomic>
#include <optional>
#include <string>

#include "capture/ggml/tensor_layout.hpp"
#include "tensor/dtype.hpp"

namespace assay::capture::ggml {

/// How values of one type lie in memory.
struct TypeInfo {
  std::string name;            // as records name it: "float32", "q8_0"
  std::optional<DType> dtype;  // nothing: blocks, kept as raw rows
  int64_t block_values = 1;
  int64_t block_bytes = 0;
};

/// Never destroyed: threads of the host may be inside. Any thread.
class Engine {
 public:
  /// The engine whose library holds `function`; measured at the first call for that file,
  /// remembered, also when refused.
  /// returns  nullptr when it was refused, which is told once
  [[nodiscard]] static const Engine* of(const void* function);
  /// From functions that are already there; for tests. errors  of measure_layout()
  [[nodiscard]] static Result<const Engine*> make(const EngineFunctions& functions,
                                                  std::string file);

  [[nodiscard]] const EngineFunctions& functions() const { return functions_; }
  [[nodiscard]] const TensorLayout& layout() const { return layout_; }
  [[nodiscard]] TensorFields fields(const EngineTensor* tensor) const { return {tensor, layout_}; }
  /// "mul_mat"; of a number that a tensor carries. "none" for a leaf.
  [[nodiscard]] const std::string& op_name(int op) const;
  /// Of a number that a tensor carries.
  [[nodiscard]] const TypeInfo& type_info(int type) const;

  [[nodiscard]] const std::string& file() const { return file_; }
  [[nodiscard]] const std::string& build_id() const { return build_id_; }
  [[nodiscard]] std::string version() const;
  [[nodiscard]] std::string commit() const;

 private:
  Engine() = default;
  [[nodiscard]] static const Engine* find(const void* function);

  static constexpr size_t kNumbers = 512;
  EngineFunctions functions_;
  TensorLayout layout_;
  std::string file_;
  std::string build_id_;
  mutable std::array<std::atomic<const std::string*>, kNumbers> op_names_{};
  mutable std::array<std::atomic<const TypeInfo*>, kNumbers> types_{};
};

}  // namespace assay::capture::ggml
