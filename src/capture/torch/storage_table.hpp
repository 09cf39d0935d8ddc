// SPDX-License-Identifier: Apache-2.0
// Which value a tensor is: storages with write counters of our own, and the values in them.
//   docs/formats/native.md, "Operator level"
//
//   storage 7, version 2          version 3: somebody wrote, all values are new ones
//     value 31: [0, 64)  shape [8, 8]    made by record 120
//     value 32: [8, 16)  shape [8]       made by nobody we saw
//
// A storage is torch's own Python object for it: torch keeps one object for each storage, for as
// long as the storage lives, so a weak reference to it that is still alive is an identity that no
// address is. Nothing is kept alive, and an address that is handed out again never gets an old
// number. Views, and results that are their own argument again (reshape, contiguous, to), have the
// same object.
//
// Versions count the writes that schemas declare. torch's counter is not used for that: inside a
// dispatch mode it is not yet right for results of views and of writes. Where it is right, it tells
// of the writes that no operator declared to us: between steps, in compiled code, on other threads.
// For that one tensor of each storage is watched, because different tensors of one storage may have
// different counters (x and x.data).
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "capture/intake/identity.hpp"
#include "capture/torch/python_compat.hpp"
#include "capture/torch/record_ref.hpp"
#include "capture/torch/tensor_access.hpp"
#include "formats/native/record_lines.hpp"

namespace assay::capture {

/// What is known of bytes that were read once, or are on their way from a device.
struct TakenBytes {
  int64_t version = -1;  // torch's counter then; -1: it had none
  RecordRef record;      // the first to have them
  std::optional<native::PayloadLocation> payload;
  std::optional<stats::TensorStats> stats;
  std::optional<stats::Digest> digest;
  bool is_view = false;  // `payload` lies as the tensor did, in bytes that were stored of another
  /// stats::glance() of the memory then; 0: of a device, or not to be looked at again.
  uint64_t glance = 0;
  ByteSpan memory = {};  // while its storage lives and lies where it lay
};

/// One value in a storage at its present version.
struct StoredValue {
  int64_t id = 0;
  int64_t storage_offset = 0;    // elements
  SeenLayout layout;             // where it lies: a storage that is resized may move
  const void* object = nullptr;  // address of the tensor that was seen last
  RecordRef producer;            // of the output that made it; none: no operator did
  int64_t seen_in = -1;          // number of the step that saw it last
  /// Of its bytes once they were read; not used beyond the step unless the storage is a
  /// parameter's: no counter sees what the host writes through NumPy, or through `data`.
  std::unique_ptr<TakenBytes> bytes;
  int64_t bytes_epoch = -1;  // StorageTable::epoch_ when they were read
};

/// As many values in one storage make it look for those that can be forgotten.
inline constexpr size_t kManyValues = 64;

/// A storage that was alive when it was last seen.
struct Storage {
  int64_t number = 0;
  int64_t version = 0;
  Ref weakref;                   // to the storage's object
  int64_t first_size_bytes = 0;  // when it was first seen; storages can be resized
  int64_t seen_in = -1;
  bool written = false;  // by an operator that we saw: no longer the parameter or buffer it was
  struct Leaf {
    int64_t storage_offset;
    const std::string* name;
  };
  /// Parameters and buffers in it, in the order of named_parameters(), named_buffers().
  std::vector<Leaf> leaves;
  std::vector<StoredValue> values;
  size_t forget_at = kManyValues;  // then values that the last two steps did not see are forgotten
  /// A tensor of it, and torch's version counter of that tensor after the last write that we know
  /// of.
  Ref watched;                   // weak reference; none: nothing to watch
  int64_t watched_version = -1;  // -1: not known, to be taken at the next settled look
  bool unwatched = false;        // its tensors have no counters (inference mode)
};

/// Needs the GIL; leaves no exception set. References to storages and values hold until the next
/// call.
class StorageTable {
 public:
  explicit StorageTable(TensorAccess& access) : access_(access) {}

  /// Whether this torch keeps one Python object for each storage (2.1 and later): without it there
  /// are no identities.
  [[nodiscard]] static bool works(TensorAccess& access);

  void begin_step(int64_t step) { step_ = step; }
  /// Forgets the bytes of what may change between steps.
  void end_step() { ++epoch_; }
  /// Code has run that writes without telling (compiled code): values whose storage cannot be
  /// watched are new ones.
  void distrust();

  struct Sight {
    Storage* storage = nullptr;  // nullptr: the tensor has none
    bool is_new = false;         // not seen before
    /// torch's counter of the tensor, when it had to be read; -1: it has none.
    std::optional<int64_t> version;
  };
  /// The storage of a tensor. `settled`: torch's counters are final, as they are before an operator
  /// and around modules, but not in results of an operator that has not returned to autograd.
  [[nodiscard]] Sight see(PyObject* tensor, bool settled);
  /// Whether `tensor` was seen before as a value of this storage in the same place and shape, and
  /// its lazy neg bit is that of then. Sets look.negative if so.
  [[nodiscard]] bool knows_negative(const Storage& storage, PyObject* tensor,
                                    TensorLook& look) const;
  /// The value that `tensor` is now; a new one when it was not seen at this version.
  [[nodiscard]] StoredValue& value_of(Storage& storage, PyObject* tensor, const TensorLook& look);
  /// A value whose bytes are known and are those of `look`, perhaps in another shape.
  [[nodiscard]] const StoredValue* find_bytes(const Storage& storage, const StoredValue& value,
                                              const TensorLook& look, bool look_dense) const;
  /// The first value whose bytes are known and that accept(StoredValue) takes; or nullptr.
  template <typename Accept>
  [[nodiscard]] const StoredValue* find_known(const Storage& storage, Accept accept) const {
    for (const StoredValue& value : storage.values) {
      if (has_bytes(storage, value) && accept(value)) return &value;
    }
    return nullptr;
  }
  void remember_bytes(StoredValue& value, TakenBytes bytes);
  /// The operator that is about to return has written it.
  void wrote(Storage& storage) {
    storage.written = true;
    new_version(storage);
  }
  /// Whether the bytes of a known value still lie in its memory: no counter shows all writes.
  /// Precondition: they are known.
  [[nodiscard]] bool is_unchanged(const Storage& storage, const StoredValue& known) const;
  /// The parameter or buffer that an unwritten storage is.
  [[nodiscard]] const std::string* leaf_of(const Storage& storage, const StoredValue& value) const;
  void add_leaf(PyObject* tensor, const std::string* name);

  /// Calls visit(StoredValue&) for every value.
  template <typename Visit>
  void each_value(Visit visit) {
    for (Slot& slot : slots_) {
      if (slot.storage == nullptr) continue;
      for (StoredValue& value : slot.storage->values) visit(value);
    }
  }

 private:
  // Open addressing: one cache line leads to the storage, and tables of a few thousand storages are
  // looked into thousands of times a step, between operators that read more than the cache holds.
  struct Slot {
    PyObject* object = nullptr;  // not owned; alive if the storage's weak reference says so
    std::unique_ptr<Storage> storage;
  };
  static constexpr size_t kFirstSlots = 4096;

  [[nodiscard]] Slot& slot_of(PyObject* object);
  [[nodiscard]] bool has_bytes(const Storage& storage, const StoredValue& value) const {
    return value.bytes != nullptr && (value.bytes_epoch == epoch_ || !storage.leaves.empty());
  }
  [[nodiscard]] Slot* add(PyObject* object);
  void forget_values(Storage& storage);
  void new_version(Storage& storage);
  [[nodiscard]] std::optional<int64_t> watch(Storage& storage, PyObject* tensor);
  void forget_dead();

  TensorAccess& access_;
  // A power of two, at most half of them used.
  std::vector<Slot> slots_ = std::vector<Slot>(kFirstSlots);
  size_t used_ = 0;
  /// Of values that are gone, to be used again.
  std::vector<std::unique_ptr<TakenBytes>> spare_bytes_;
  int64_t next_storage_ = 0;
  int64_t next_value_ = 0;
  int64_t step_ = -1;
  int64_t epoch_ = 0;  // steps that ended
  bool inference_expected_ = false;
};

}  // namespace assay::capture
