// SPDX-License-Identifier: Apache-2.0
// Where the fields of a tensor lie in one engine, measured with the engine's own constructors.
// docs/design/ggml-probe.md
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/result.hpp"
#include "capture/ggml/engine_interface.hpp"

namespace assay::capture::ggml {

inline constexpr size_t kMaxSources = 16;
inline constexpr size_t kOpParamsBytes = 64;

/// Byte offsets from the address of a tensor.
struct TensorLayout {
  size_t type = 0;       // int32
  size_t buffer = 0;     // pointer
  size_t ne = 0;         // int64[4], the fastest dimension first
  size_t nb = 0;         // size_t[4], bytes
  size_t op = 0;         // int32
  size_t op_params = 0;  // 64 bytes
  size_t flags = 0;      // int32
  size_t sources = 0;    // pointers
  size_t source_count = 0;
  size_t view_source = 0;  // pointer
  size_t view_offset = 0;  // size_t, bytes
  size_t data = 0;         // pointer
  size_t name = 0;
  size_t name_bytes = 0;    // with the NUL
  size_t record_bytes = 0;  // distance of two tensors: an upper bound of the size

  /// Behind the last of these fields.
  [[nodiscard]] size_t used_bytes() const;
  friend bool operator==(const TensorLayout&, const TensorLayout&) = default;
};

/// Builds a dozen tensors without data in an arena of its own and looks for what it put into them:
/// 20 to 50 us.
///
/// engine   all required functions are there
/// errors   Unsupported: a field was not found, or in two places
[[nodiscard]] Result<TensorLayout> measure_layout(const EngineFunctions& engine);

using Four = std::array<int64_t, 4>;

/// A tensor of an engine, read through its layout. Borrows both.
class TensorFields {
 public:
  TensorFields(const EngineTensor* tensor, const TensorLayout& layout)
      : tensor_(tensor), layout_(&layout) {}

  [[nodiscard]] const EngineTensor* address() const { return tensor_; }
  [[nodiscard]] int type() const { return read<int32_t>(layout_->type); }
  [[nodiscard]] int op() const { return read<int32_t>(layout_->op); }
  [[nodiscard]] int flags() const { return read<int32_t>(layout_->flags); }
  [[nodiscard]] EngineBuffer* buffer() const { return read<EngineBuffer*>(layout_->buffer); }
  [[nodiscard]] const std::byte* data() const { return read<const std::byte*>(layout_->data); }
  [[nodiscard]] Four ne() const { return read<Four>(layout_->ne); }
  [[nodiscard]] Four nb() const { return read<Four>(layout_->nb); }
  [[nodiscard]] size_t source_count() const { return layout_->source_count; }
  [[nodiscard]] const EngineTensor* source(size_t i) const {
    return read<const EngineTensor*>(layout_->sources + i * sizeof(void*));
  }
  [[nodiscard]] const EngineTensor* view_source() const {
    return read<const EngineTensor*>(layout_->view_source);
  }
  [[nodiscard]] int64_t view_offset() const { return read<int64_t>(layout_->view_offset); }
  [[nodiscard]] int32_t int_parameter(size_t i) const {
    return read<int32_t>(layout_->op_params + 4 * i);
  }
  /// The first two words as one.
  [[nodiscard]] int64_t long_parameter() const { return read<int64_t>(layout_->op_params); }
  [[nodiscard]] float float_parameter(size_t i) const {
    return read<float>(layout_->op_params + 4 * i);
  }
  [[nodiscard]] std::string_view name() const {
    const char* text = reinterpret_cast<const char*>(tensor_) + layout_->name;
    return {text, ::strnlen(text, layout_->name_bytes)};
  }
  [[nodiscard]] TensorFields other(const EngineTensor* tensor) const { return {tensor, *layout_}; }
  /// The tensor whose memory this one looks into; itself when it has its own.
  [[nodiscard]] TensorFields root() const;

 private:
  template <typename T>
  [[nodiscard]] T read(size_t offset) const {
    T value;
    std::memcpy(&value, reinterpret_cast<const std::byte*>(tensor_) + offset, sizeof(T));
    return value;
  }
  const EngineTensor* tensor_;
  const TensorLayout* layout_;
};

}  // namespace assay::capture::ggml
