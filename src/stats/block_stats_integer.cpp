// SPDX-License-Identifier: Apache-2.0
// Kernels of the integer types and of Bool. A file of its own: every kernel is compiled for three
// instruction sets, and this is half of them.
#include "stats/block_kernels.hpp"

namespace assay::stats {
namespace {

using namespace kernels;

#define ASSAY_INTEGER_KERNEL(function, ...)                                                    \
  ASSAY_CLONES BlockStats function(const std::byte* elements, int64_t count, uint64_t group) { \
    return double_block<__VA_ARGS__, false>(elements, count, group, 1.0);                      \
  }
ASSAY_INTEGER_KERNEL(int64_block, LoadWide<int64_t, i64x8>)
ASSAY_INTEGER_KERNEL(uint64_block, LoadWide<uint64_t, u64x8>)
ASSAY_INTEGER_KERNEL(int32_block, LoadWide<int32_t, i32x8>)
ASSAY_INTEGER_KERNEL(uint32_block, LoadWide<uint32_t, u32x8>)
ASSAY_INTEGER_KERNEL(int16_block, LoadWide<int16_t, i16x8>)
ASSAY_INTEGER_KERNEL(uint16_block, LoadWide<uint16_t, u16x8>)
ASSAY_INTEGER_KERNEL(int8_block, LoadWide<int8_t, i8x8>)
ASSAY_INTEGER_KERNEL(uint8_block, LoadWide<uint8_t, u8x8>)
ASSAY_INTEGER_KERNEL(bool_block, LoadBool)
#undef ASSAY_INTEGER_KERNEL

}  // namespace

BlockKernel integer_kernel(DType dtype) {
  switch (dtype) {
    case DType::Int8:
    case DType::QInt8:
      return int8_block;
    case DType::UInt8:
    case DType::QUInt8:
      return uint8_block;
    case DType::Bool:
      return bool_block;
    case DType::Int64:
      return int64_block;
    case DType::UInt64:
      return uint64_block;
    case DType::Int32:
    case DType::QInt32:
      return int32_block;
    case DType::UInt32:
      return uint32_block;
    case DType::Int16:
      return int16_block;
    case DType::UInt16:
      return uint16_block;
    default:
      return nullptr;
  }
}

}  // namespace assay::stats
