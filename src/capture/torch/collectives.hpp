// SPDX-License-Identifier: Apache-2.0
// What the program started and has not waited for: collectives of torch.distributed.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "capture/intake/look.hpp"
#include "capture/torch/python_compat.hpp"

namespace assay::capture {

class Session;

/// A collective that was started for plain tensors (`async_op=True`, `irecv`, a ProcessGroup's own
/// methods).
struct Work {
  Ref object;  // torch's Work
  /// The memory that it writes: first byte, and the one behind the last.
  std::vector<std::pair<const std::byte*, const std::byte*>> ranges;
  bool is_in_memory = true;  // and not on a device
  bool was_waited_for = false;

  /// Whether its tensors have what it writes: the program has waited for it, or torch says so. It is
  /// asked and not waited for.
  [[nodiscard]] bool has_ended() const;
};

/// From now on works are seen. Sessions of either kind that do not watch any more must say so.
void watch_works(const void* session);
void unwatch_works(const void* session) noexcept;
/// How many began and were waited for: each may have changed any tensor behind torch's counters.
[[nodiscard]] uint64_t works_seen();
/// The one that may still write a tensor's memory; null: none does.
[[nodiscard]] std::shared_ptr<Work> work_writing(const TensorLook& look);

/// What an operator that starts a collective does not say of itself: members of a JSON object,
/// "ranks":[0,1],"reduces":"sum". Empty: nothing is known.
[[nodiscard]] std::string collective_members(PyObject* arguments);

/// From now on the session is told when the program waits for a collective, until it has no
/// promises any more.
void watch_waits(Session* session);
void unwatch_waits(Session* session) noexcept;

}  // namespace assay::capture
