// SPDX-License-Identifier: Apache-2.0
// The work of compute_stats() and digest() in blocks, with a look at the flag in front of each.
#include "stats/whole_tensor.hpp"

#include <algorithm>

#include "base/interruption.hpp"
#include "tensor/dtype.hpp"

namespace assay::stats {
namespace {

void run_until_interrupted(void (*body)(void* data, size_t index), void* data, size_t count) {
  for (size_t i = 0; i < count && !is_interrupted(); ++i) body(data, i);
  throw_if_interrupted();
}

/// Whether its bytes lie in the file as the digest wants them.
bool is_plain(const TensorView& view) {
  return !view.conjugate && !view.negative && info(view.dtype).element_bits >= 8 &&
         view.is_contiguous();
}

}  // namespace

TensorStats statistics_of(const TensorView& view) {
  return compute_stats(view, run_until_interrupted);
}

Digest digest_of(const TensorView& view) {
  constexpr size_t kBlockBytes = 64 << 20;
  if (view.element_count() == 0 || !is_plain(view)) return digest(view);
  const ByteSpan bytes = view.contiguous_bytes();
  if (bytes.size() <= kBlockBytes) return digest(view);
  DigestStream stream;
  for (size_t at = 0; at < bytes.size() && !is_interrupted(); at += kBlockBytes)
    stream.update(bytes.subspan(at, std::min(kBlockBytes, bytes.size() - at)));
  throw_if_interrupted();
  return stream.finish();
}

}  // namespace assay::stats
