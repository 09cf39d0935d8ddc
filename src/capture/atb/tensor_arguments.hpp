// SPDX-License-Identifier: Apache-2.0
// What the library hands over with a tensor, and what can be read from it.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "tensor/dims.hpp"
#include "tensor/dtype.hpp"

namespace assay::capture::atb {

/// A tensor as the library describes it.
struct TensorArguments {
  std::string_view format;  // decimal numbers
  std::string_view dtype;
  std::string_view dims;  // "1,4096"
  const void* data = nullptr;
  uint64_t size_bytes = 0;
  std::string_view path;
};

/// The sizes in `dims`: "1,4096"; "" is a scalar. Nothing when one of them is no number.
[[nodiscard]] std::optional<Dims> shape_of(const TensorArguments& tensor);
/// Nothing for a number without a type here.
[[nodiscard]] std::optional<DType> dtype_of(const TensorArguments& tensor);
/// Bytes that dtype and dims ask for; nothing when one of them is unknown.
[[nodiscard]] std::optional<uint64_t> described_bytes(const TensorArguments& tensor);

}  // namespace assay::capture::atb
