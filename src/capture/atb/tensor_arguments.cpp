// SPDX-License-Identifier: Apache-2.0
// The library hands over shape and type as texts. What cannot be read gives nothing, never a guess.
#include "capture/atb/tensor_arguments.hpp"

#include "base/numbers.hpp"
#include "base/text.hpp"
#include "formats/atb_types.hpp"

namespace assay::capture::atb {

std::optional<Dims> shape_of(const TensorArguments& tensor) {
  Dims shape;
  if (tensor.dims.empty()) return shape;
  for (const std::string_view part : split(tensor.dims, ',')) {
    const std::optional<int64_t> size = parse_number<int64_t>(part);
    if (!size) return std::nullopt;
    shape.push_back(*size);
  }
  return shape;
}

std::optional<DType> dtype_of(const TensorArguments& tensor) {
  const std::optional<int64_t> number = parse_number<int64_t>(tensor.dtype);
  return number ? formats::dtype_from_atb(*number) : std::nullopt;
}

std::optional<uint64_t> described_bytes(const TensorArguments& tensor) {
  const std::optional<DType> dtype = dtype_of(tensor);
  const std::optional<Dims> shape = shape_of(tensor);
  if (!dtype || !shape) return std::nullopt;
  const std::optional<int64_t> count = element_count(*shape);
  return count ? storage_bytes(*dtype, static_cast<uint64_t>(*count)) : std::nullopt;
}

}  // namespace assay::capture::atb
