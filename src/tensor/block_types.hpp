// SPDX-License-Identifier: Apache-2.0
// Block-quantised element types of ggml: how many values and bytes a block has, and what its values
// are. Bit layouts: docs/formats/gguf.md
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "tensor/dims.hpp"
#include "tensor/tensor_view.hpp"

namespace assay {

enum class BlockType : uint8_t {
  Q4_0,
  Q4_1,
  Q5_0,
  Q5_1,
  Q8_0,
  Q8_1,
  Q2_K,
  Q3_K,
  Q4_K,
  Q5_K,
  Q6_K,
  Q8_K,
  IQ2_XXS,
  IQ2_XS,
  IQ3_XXS,
  IQ1_S,
  IQ4_NL,
  IQ3_S,
  IQ2_S,
  IQ4_XS,
  IQ1_M,
  TQ1_0,
  TQ2_0,
  MXFP4,
  NVFP4,
  Q1_0,
};
inline constexpr int kBlockTypeCount = static_cast<int>(BlockType::Q1_0) + 1;

struct BlockTypeInfo {
  std::string_view name;  // as ggml_type_name() gives it: "q8_0", "q4_K"
  uint32_t ggml_type;     // number in GGUF files
  uint32_t block_values;  // along the last axis, whose size is a multiple of it
  uint32_t block_bytes;
};

[[nodiscard]] const BlockTypeInfo& info(BlockType type);
[[nodiscard]] inline std::string_view name(BlockType type) { return info(type).name; }
[[nodiscard]] std::optional<BlockType> block_type_from_name(std::string_view text);
[[nodiscard]] std::optional<BlockType> block_type_from_ggml(uint32_t ggml_type);

/// Bytes of a contiguous tensor whose shape counts values. nullopt: the last size is no multiple of
/// the block (a scalar has none), a size is negative, or the product does not fit.
[[nodiscard]] std::optional<uint64_t> blocked_bytes(BlockType type, const Dims& shape);

/// The values of whole blocks, in float32 arithmetic with one rounding an operation, as ggml's own
/// converters do it.
///
/// blocks    little-endian, a multiple of block_bytes
/// out       block_values for each block
/// errors    Usage (sizes that do not fit)
/// source    ggml-org/ggml: src/ggml-quants.c, src/ggml-common.h; held against the gguf package
[[nodiscard]] Status decode_blocks(BlockType type, ByteSpan blocks, std::span<float> out);

/// The same as a tensor of float32 with memory of its own. `shape` counts values.
/// errors    as decode_blocks() | Invalid (shape and size do not fit) | TooLarge (memory)
[[nodiscard]] Result<Tensor> decode_tensor(BlockType type, const Dims& shape, ByteSpan blocks);

/// How far the number that was rounded to a code may be from the value of the code.
struct CodeReach {
  float step = 0;       // distance to the next code; to the farther of two
  float half_step = 0;  // half of it, and what rounding the scale costs after the codes were chosen
  // The same where numbers beyond the last code were clipped to it; otherwise half_step. Infinite
  // in q1_0 and where whole points are chosen (iq1, iq2, iq3).
  float bound = 0;
};

/// One CodeReach for each value of decode_blocks(). Errors as there.
[[nodiscard]] Status code_reaches(BlockType type, ByteSpan blocks, std::span<CodeReach> out);

}  // namespace assay
