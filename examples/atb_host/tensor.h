// SPDX-License-Identifier: Apache-2.0
// Tensors as the acceleration library describes them: an element type, a memory format and dimensions by number, and
// memory that several tensors may share. Plus the two half types, which the host computes with by widening to float.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace atb_host {

/// The numbers of aclDataType that this program uses.
enum class DType : int {
  kFloat = 0,
  kFloat16 = 1,
  kInt8 = 2,
  kInt32 = 3,
  kInt64 = 9,
  kBfloat16 = 27
};

/// aclFormat "ND": row-major, nothing rearranged. The only one here.
constexpr int kFormatNd = 2;

using Dims = std::vector<int64_t>;

struct TensorDesc {
  DType dtype = DType::kFloat16;
  Dims dims;
};

/// Memory is shared by copies: a view with other dims, or a cache that an operation changes in place, is a copy.
struct Tensor {
  TensorDesc desc;
  std::shared_ptr<std::vector<std::byte>> memory;

  template <typename T>
  T* data() const {
    return reinterpret_cast<T*>(memory->data());
  }
};

/// Rounding of a float to a half type: to the nearest, ties to even, or (a planted fault) towards zero.
enum class Rounding { kNearestEven, kTowardsZero };

int64_t element_count(const Dims& dims);  // 1 for rank 0
size_t element_bytes(DType dtype);
size_t size_bytes(const TensorDesc& desc);

/// Text in the operation lists: "float16", "bf16", ...
const char* dtype_word(DType dtype);

/// "1,4096", "" for rank 0.
std::string dims_text(const Dims& dims);

/// Zero-filled memory of its own.
Tensor make_tensor(TensorDesc desc);
Tensor make_int64(const std::vector<int64_t>& values);  // [n]
Tensor make_int32(const std::vector<int32_t>& values);  // [n]

/// The same memory under other dims; the element count stays.
Tensor with_dims(Tensor tensor, Dims dims);

float widen(DType dtype, uint16_t half);
uint16_t narrow(DType dtype, float value, Rounding rounding = Rounding::kNearestEven);

/// All elements of a float, float16 or bf16 tensor, widened; exact.
std::vector<float> load(const Tensor& tensor);

/// One rounding an element.
void store(const Tensor& tensor, const std::vector<float>& values,
           Rounding rounding = Rounding::kNearestEven);

}  // namespace atb_host
