// SPDX-License-Identifier: Apache-2.0
// The operations of the model under their true names, with the true keys in their parameter JSON and the true order of
// tensors, so that each can be recomputed from what a probe stores of it.
#pragma once
#include <memory>

#include "kernels.h"
#include "library.h"
#include "peers.h"

namespace atb_host {

/// table [rows, width], indices int64 [T] -> [T, width]
std::unique_ptr<KernelOperation> make_gather(Fault fault);

/// x [T, width], gamma [width] -> [T, width]
std::unique_ptr<KernelOperation> make_rms_norm(float epsilon, Fault fault);

/// x [T, K], weight [N, K], with a bias [N] -> [T, N]. The bias is a second kernel: the product is rounded before it.
std::unique_ptr<KernelOperation> make_linear(bool has_bias, Fault fault);

/// x [T, K], int8 weight [N, K], with a bias [N], float scales [N] -> [T, N]. As make_linear(), of quantised numbers.
std::unique_ptr<KernelOperation> make_linear_quant(bool has_bias, Fault fault);

/// x [T, sum of widths] -> columns [T, width] each
std::unique_ptr<KernelOperation> make_split(std::vector<int64_t> widths, Fault fault);

/// x -> the sum of the x of all ranks
std::unique_ptr<KernelOperation> make_all_reduce(int64_t rank, int64_t ranks, Peers* peers,
                                                 Fault fault);

/// q [T, H*D], k [T, G*D], cos [T, D], sin [T, D], seqLen int32 [B] -> q, k
std::unique_ptr<KernelOperation> make_rope(Fault fault);

/// key [T, G, D], value [T, G, D], key cache, value cache [blocks, block size, G, D], slots int32 [T] -> the caches
std::unique_ptr<KernelOperation> make_reshape_and_cache(Fault fault);

/// Prompt: q [T, H*D], k [T, G*D], v [T, G*D], mask [T, T], seqLen int32 [B] -> [T, H*D]
std::unique_ptr<KernelOperation> make_self_attention(const AttentionShape& shape, Fault fault);

/// Decoding: q [B, H, D], key cache, value cache, block tables int32 [B, n], context lengths int32 [B] -> [B, H, D]
std::unique_ptr<KernelOperation> make_paged_attention(const AttentionShape& shape, Fault fault);

enum class Elewise : int { kAdd = 8, kMul = 9 };  // the library's numbers
/// a, b of the same dims -> the same
std::unique_ptr<KernelOperation> make_elewise(Elewise type, Fault fault);

/// x -> x * sigmoid(x)
std::unique_ptr<KernelOperation> make_swish(Fault fault);

/// x [T, width] -> the last row, [1, width]
std::unique_ptr<KernelOperation> make_last_row_slice(int64_t width);

/// x [1, width] -> a copy
std::unique_ptr<KernelOperation> make_row_copy(int64_t width);

/// x [rows, width] -> largest value [rows, 1], its position int32 [rows, 1]
std::unique_ptr<KernelOperation> make_top_one();

/// The application's own operation: logits [rows, V] -> int64 [rows]. It runs a SortOperation of the library inside.
std::unique_ptr<PluginOperation> make_greedy_search();

}  // namespace atb_host
