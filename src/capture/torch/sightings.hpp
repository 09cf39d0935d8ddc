// SPDX-License-Identifier: Apache-2.0
// The witness of torch that bytes are those of before: the Python object first seen there is still
// alive (so its storage was never freed in between), and it and the asking one have the version
// counter of then (so nobody wrote in place). Writes that bump no version (x.data, numpy(), custom
// kernels) are not seen: capture(verify=True) reads every time.
#pragma once
#include "capture/intake/identity.hpp"
#include "capture/torch/python_compat.hpp"
#include "capture/torch/tensor_access.hpp"

namespace assay::capture {

/// What is known of tensors that were seen. Needs the GIL.
/// Known   has the `version` of then, which is not -1, or a `digest`
template <typename Known>
class Sightings {
 public:
  enum class Same : uint8_t {
    Values,  // in any shape, where the tensors have no gaps
    Layout,  // the sizes and strides, too
  };

  explicit Sightings(TensorAccess& access) : access_(access) {}

  struct Sighting {
    SeenLayout layout;
    Known known;
    bool is_parameter = false;
    Ref object;  // a weak reference to the tensor first seen; none: by content
  };

  /// Of the unchanged bytes of `tensor`, or nullptr; holds until the next call. version   not -1
  [[nodiscard]] const Sighting* find(PyObject* tensor, const TensorLook& look, int64_t version,
                                     bool look_dense, Same same = Same::Values) {
    return table_.find(key_of(look.data), [&](const Sighting& seen) {
      if (!seen.object || seen.known.version != version ||
          !seen.layout.has_values_of(look, look_dense) ||
          (same == Same::Layout && !seen.layout.has_dims(look)))
        return false;
      const Ref first(weakref_get(seen.object.get()));
      return first && (first.get() == tensor || access_.version(first.get()) == version);
    });
  }
  /// Remembers `tensor`, in place of what lay there in the same way and version, or is gone.
  /// Tensors that cannot be referenced weakly are not remembered.
  void insert(PyObject* tensor, SeenLayout layout, Known known) {
    Ref object(PyWeakref_NewRef(tensor, nullptr));
    if (!object) return PyErr_Clear();
    const uint64_t key = key_of(layout.data);
    Sighting* stale = table_.find(key, [&](const Sighting& seen) {
      return seen.object && ((seen.known.version == known.version && seen.layout.is_like(layout)) ||
                             !Ref(weakref_get(seen.object.get())));
    });
    Sighting fresh{std::move(layout), std::move(known), access_.is_parameter(tensor),
                   std::move(object)};
    if (stale != nullptr)
      *stale = std::move(fresh);
    else
      table_.insert(key, std::move(fresh));
  }

  /// Of a tensor without a witness: by the digest of its content.
  [[nodiscard]] const Known* find_content(const stats::Digest& digest, const TensorLook& look) {
    const Sighting* found = table_.find(digest.low, [&](const Sighting& seen) {
      return !seen.object && seen.known.digest == digest && seen.layout.dtype == look.dtype &&
             std::ranges::equal(seen.layout.shape.span(), look.sizes());
    });
    return found != nullptr ? &found->known : nullptr;
  }
  void insert_content(const TensorLook& look, Known known) {
    const uint64_t key = known.digest->low;
    table_.insert(key, {SeenLayout(look), std::move(known), false, Ref()});
  }

  template <typename Change>
  void each(Change change) {
    table_.each([&](Sighting& seen) { change(seen.known); });
  }
  /// At the end of a step: parameters stay what they are.
  void keep_parameters() {
    table_.forget_unless([](const Sighting& seen) { return seen.is_parameter; });
  }
  void keep_contents() {
    table_.forget_unless([](const Sighting& seen) { return !seen.object; });
  }
  void clear() { table_.clear(); }

 private:
  static uint64_t key_of(const void* data) { return reinterpret_cast<uintptr_t>(data); }

  TensorAccess& access_;
  IdentityTable<Sighting> table_;
};

}  // namespace assay::capture
