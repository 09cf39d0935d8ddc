// SPDX-License-Identifier: Apache-2.0
// The operations of this folder, and what their files share.   docs/opcheck/attention.md
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "opcheck/operations/expectations.hpp"
#include "reference/attention/attention.hpp"

namespace assay::opcheck {

Result<Evaluation> evaluate_self_attention(const Case& one);
Result<Evaluation> evaluate_paged_attention(const Case& one);
Result<Evaluation> evaluate_laser_attention(const Case& one);
Result<Evaluation> evaluate_laser_attention_grad(const Case& one);
Result<Evaluation> evaluate_fa_update(const Case& one);

namespace attention {

/// The inputs in their order; which ones are there depends on the parameters.
class InputList {
 public:
  explicit InputList(const Operands& operands) : operands_(operands) {}
  struct Input {
    Tensor tensor;
    bool is_nz = false;
  };
  /// errors  of Operands::input(), with the name in front; Invalid when the dump has no more inputs
  [[nodiscard]] Result<Input> next(std::string_view name);
  [[nodiscard]] size_t left() const { return operands_.input_count() - next_; }
  /// errors  Invalid "the dump has 9 inputs, query, key, ... are 8" when some are left
  [[nodiscard]] Status finish() const;

 private:
  const Operands& operands_;
  size_t next_ = 0;
  std::string names_;
};

/// Values of an integer tensor that count something.
/// errors  Invalid (negative, beyond 2^31) | of whole()
[[nodiscard]] Result<std::vector<int64_t>> lengths_of(const Tensor& tensor, std::string_view name);
/// Real values; those of 64-bit integers are the bits of float32 numbers.
/// errors  Invalid (another count) | of widen()
[[nodiscard]] Result<std::vector<double>> scales_of(const Tensor& tensor, std::string_view name,
                                                    int64_t count);

struct Heads {
  int64_t query = 0;
  int64_t kv = 0;  // 0 in the parameters: as many as query heads
};
/// headNum and kvHeadNum.
/// errors  Invalid "kvHeadNum 3 does not divide headNum 8"
[[nodiscard]] Result<Heads> read_heads(const Parameters& parameters);
/// A parameter of 0 to `last`.
/// errors  Unsupported "maskType 9 is not known"
[[nodiscard]] Result<int64_t> read_choice(const Parameters& parameters, std::string_view key,
                                          int64_t last);

/// [T, heads * size], [T, heads, size], [B, S, heads * size] or [B, S, heads, size] as [tokens,
/// heads, size].
/// errors  Invalid "query has shape [4, 3], which is not [tokens, 2 heads, size]"
[[nodiscard]] Result<Tensor> tokens_of(const Tensor& tensor, int64_t heads, std::string_view name);

/// A mask as [sequences, heads, rows, columns]; sizes of 1 that stand for all have stride 0.
struct Mask {
  Tensor tensor;  // of that shape
  double coefficient = 1;
  /// The rows of one sequence from `first_row` on: [heads, rows, columns].
  [[nodiscard]] TensorView of_sequence(int64_t sequence, int64_t first_row) const;
  [[nodiscard]] int64_t rows() const { return tensor.view.shape[2]; }
  [[nodiscard]] int64_t columns() const { return tensor.view.shape[3]; }
};
/// [s, s], [1, s, s], [B, s, s], [H, s, s], [B, H, s, s], or the FRACTAL_NZ form of these. Of two
/// readings of three dimensions the one by heads is taken first when `by_heads`.
/// errors  Invalid (other shapes)
[[nodiscard]] Result<Mask> read_mask(const InputList::Input& input, int64_t batch, int64_t heads,
                                     bool by_heads);
/// Masks of bf16 and fp32 models may hold 1 at forbidden places, for a factor of -3e38 in the
/// kernel.
inline constexpr double kZeroOneMaskFactor = -3e38;
[[nodiscard]] double mask_coefficient(const TensorView& mask, DType query_type);

/// Keys or values in blocks: [blocks, block_size, kv_heads, size], or NZ [blocks, kv_heads * size /
/// 16, block_size, 16].
struct BlockCache {
  Tensor tensor;
  bool is_nz = false;
  int64_t kv_heads = 0;
  int64_t size = 0;
  int64_t blocks = 0;
  int64_t block_size = 0;
  /// Rows [0, count) of a block: [count, kv_heads, size] or [count, kv_heads, size / c0, c0].
  [[nodiscard]] TensorView rows(int64_t block, int64_t count) const;
};
/// errors  Invalid (shape) | Unsupported (NZ with heads that are no multiple of c0 wide)
[[nodiscard]] Result<BlockCache> read_block_cache(const InputList::Input& input, int64_t kv_heads,
                                                  std::string_view name);
/// The first `count` rows that a row of the block table lists.
/// errors  Invalid "block 9 of sequence 1 is not in the cache of 8 blocks", context longer than the
///         table
[[nodiscard]] Result<std::vector<TensorView>> gather_blocks(const BlockCache& cache,
                                                            const reference::Whole& table,
                                                            int64_t sequence, int64_t count);

/// An attention that is ready to be computed, and what is uncertain about it.
struct Prepared {
  reference::Attention attention;
  std::string variant;
  std::string note;
  /// Elements [first, first + count) of the output that nothing determines: rows of padding.
  std::vector<std::pair<int64_t, int64_t>> unjudged;
  /// Labels and settings beside the first; the first's label stands alone when it is not empty.
  std::string label;
  std::vector<std::pair<std::string, reference::Attention>> alternatives;
  bool try_all = false;
  int64_t longest = 0;  // keys of the longest sequence
};

/// The expectation of output 0: goldens of all candidates, and the model of the kernel.
[[nodiscard]] Evaluation evaluation_of(Prepared prepared, const Case& one);

/// Adds the ways in which int8 weights may be rounded, where public sources disagree.
/// online    quantType 3; otherwise 2
void add_roundings(Prepared* prepared, bool online);

}  // namespace attention
}  // namespace assay::opcheck
