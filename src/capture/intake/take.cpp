// SPDX-License-Identifier: Apache-2.0
// The one place where a capture reads the elements of a tensor.
#include "capture/intake/take.hpp"

#include <cstring>
#include <vector>

#include "capture/common/host_guard.hpp"
#include "capture/intake/host_threads.hpp"
#include "tensor/convert.hpp"

namespace assay::capture {
namespace {

uint64_t element_bytes(const TensorView& view) {
  return storage_bytes(view.dtype, static_cast<uint64_t>(view.element_count())).value_or(0);
}

}  // namespace

stats::TensorStats statistics_of(const TensorView& view) {
  const FloatingPointState floating_point;
  const BlockRunner runner = host_runner(element_bytes(view));
  return runner != nullptr ? stats::compute_stats(view, runner) : stats::compute_stats(view);
}

void copy_elements(const TensorView& view, std::span<std::byte> out) {
  if (out.empty()) return;
  const bool is_lazy = view.conjugate || view.negative;
  if (!is_lazy && view.is_contiguous()) {
    std::memcpy(out.data(), view.contiguous_bytes().data(), out.size());
    return;
  }
  gather_bytes(view, 0, view.element_count(), out);
  if (is_lazy) apply_lazy_bits(view, out);
}

void append_elements(writer::NativeRun& run, const TensorView& view, native::Record& record) {
  if (view.conjugate || view.negative) {
    std::vector<std::byte> resolved(element_bytes(view));
    copy_elements(view, resolved);
    const auto plain = make_view(view.dtype, view.shape, resolved);
    if (plain) record.payload = run.append_payload(*plain, record, nullptr);
  } else {
    record.payload = run.append_payload(view, record, host_runner(element_bytes(view)));
  }
  record.first_copy = record.payload.has_value();
}

}  // namespace assay::capture
