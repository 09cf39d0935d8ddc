// SPDX-License-Identifier: Apache-2.0
// Storages by the address of torch's object for them, and the values that were seen in each.
#include "capture/torch/storage_table.hpp"

#include <algorithm>
#include <bit>

#include "stats/glance.hpp"

namespace assay::capture {
namespace {

constexpr size_t kMostSpareBytes = 1024;

[[nodiscard]] size_t hash_of(const PyObject* object) {
  // Objects are 16-byte aligned; a multiplication spreads what is left over the upper bits.
  return static_cast<size_t>((reinterpret_cast<uintptr_t>(object) >> 4) * 0x9E3779B97F4A7C15ull >>
                             32);
}

// The tensor that `value` was seen as; other values were tensors of that address before.
void take_object(Storage& storage, StoredValue& value, const void* tensor) {
  if (value.object == tensor) return;
  for (StoredValue& other : storage.values) {
    if (other.object == tensor) other.object = nullptr;
  }
  value.object = tensor;
}

}  // namespace

bool StorageTable::works(TensorAccess& access) {
  const Ref torch(PyImport_ImportModule("torch"));
  const Ref tensor(torch ? PyObject_CallMethod(torch.get(), "empty", "i", 1) : nullptr);
  Ref first(tensor ? access.storage_object(tensor.get()) : nullptr);
  const Ref weak(first ? PyWeakref_NewRef(first.get(), nullptr) : nullptr);
  first = Ref();
  const Ref kept(weak ? weakref_get(weak.get()) : nullptr);
  const Ref second(kept ? access.storage_object(tensor.get()) : nullptr);
  PyErr_Clear();
  return kept && kept.get() == second.get();
}

StorageTable::Slot& StorageTable::slot_of(PyObject* object) {
  const size_t mask = slots_.size() - 1;
  size_t at = hash_of(object) & mask;
  while (slots_[at].object != nullptr && slots_[at].object != object) at = (at + 1) & mask;
  return slots_[at];
}

// Leaves out the storages that are gone, and makes room for as many as there are.
void StorageTable::forget_dead() {
  std::vector<Slot> before = std::move(slots_);
  size_t alive = 0;
  for (Slot& slot : before) {
    if (slot.storage == nullptr) continue;
    if (Ref(weakref_get(slot.storage->weakref.get())))
      ++alive;
    else
      slot = {};
  }
  slots_ = std::vector<Slot>(std::max(kFirstSlots, std::bit_ceil(4 * (alive + 1))));
  used_ = alive;
  for (Slot& slot : before) {
    if (slot.storage != nullptr) slot_of(slot.object) = std::move(slot);
  }
}

void StorageTable::distrust() {
  for (Slot& slot : slots_) {
    Storage* storage = slot.storage.get();
    if (storage != nullptr && storage->unwatched && storage->leaves.empty()) new_version(*storage);
  }
}

// Takes notice of writes that nobody declared. Returns the tensor's counter when it had to be read.
std::optional<int64_t> StorageTable::watch(Storage& storage, PyObject* tensor) {
  if (storage.unwatched) return std::nullopt;
  const Ref watched(storage.watched ? weakref_get(storage.watched.get()) : nullptr);
  if (!watched) {
    // Asking an inference tensor for its counter is an exception of 7 us, asking whether it is one
    // 100 ns: what the last one was decides which question comes first.
    const int64_t version =
        inference_expected_ && access_.is_inference(tensor) ? -1 : access_.version(tensor);
    inference_expected_ = version < 0;
    if (version < 0) {
      storage.unwatched = true;
      return -1;
    }
    storage.watched = Ref(PyWeakref_NewRef(tensor, nullptr));
    PyErr_Clear();
    storage.watched_version = version;
    return version;
  }
  const int64_t version = access_.version(watched.get());
  if (storage.watched_version >= 0 && version != storage.watched_version) new_version(storage);
  storage.watched_version = version;
  if (watched.get() != tensor) return std::nullopt;
  return version;
}

StorageTable::Sight StorageTable::see(PyObject* tensor, bool settled) {
  Sight sight;
  const Ref object(access_.storage_object(tensor));
  if (!object) return sight;
  Slot* slot = &slot_of(object.get());
  if (slot->object == nullptr || !weakref_is(slot->storage->weakref.get(), object.get())) {
    slot = add(object.get());
    if (slot == nullptr) return sight;
    sight.is_new = true;
  }
  sight.storage = slot->storage.get();
  if (settled) sight.version = watch(*sight.storage, tensor);
  return sight;
}

bool StorageTable::knows_negative(const Storage& storage, PyObject* tensor,
                                  TensorLook& look) const {
  // Views with and without the bit may lie in the same place, but they are different objects.
  for (const StoredValue& value : storage.values) {
    const SeenLayout& layout = value.layout;
    if (value.object != tensor || layout.data != look.data || layout.dtype != look.dtype ||
        !layout.has_dims(look))
      continue;
    look.negative = layout.negative;
    return true;
  }
  return false;
}

// Makes a place for a storage that is not known; nullptr when torch's object takes no weak
// references.
StorageTable::Slot* StorageTable::add(PyObject* object) {
  Ref weakref(PyWeakref_NewRef(object, nullptr));
  if (!weakref) {
    PyErr_Clear();
    return nullptr;
  }
  if (2 * (used_ + 1) > slots_.size()) forget_dead();
  Slot& slot = slot_of(object);
  if (slot.object == nullptr) {
    slot.storage = std::make_unique<Storage>();
    slot.object = object;
    ++used_;
  } else {
    // Another storage was at this address: the memory of what is known serves for the new one.
    forget_values(*slot.storage);
    std::vector<StoredValue> values = std::move(slot.storage->values);
    *slot.storage = Storage{};
    slot.storage->values = std::move(values);
  }
  slot.storage->weakref = std::move(weakref);
  slot.storage->number = next_storage_++;
  slot.storage->first_size_bytes = access_.storage_size_bytes(object);
  return &slot;
}

StoredValue& StorageTable::value_of(Storage& storage, PyObject* tensor, const TensorLook& look) {
  // The same address in the same storage is the same offset, which need not be asked for.
  for (StoredValue& value : storage.values) {
    if (value.layout.data != look.data || !value.layout.is_like(look)) continue;
    take_object(storage, value, tensor);
    return value;
  }
  const int64_t offset = access_.storage_offset(tensor);
  for (StoredValue& value : storage.values) {
    if (value.storage_offset != offset || !value.layout.is_like(look)) continue;
    value.layout.data = look.data;
    take_object(storage, value, tensor);
    return value;
  }
  if (storage.values.size() >= storage.forget_at) {
    std::erase_if(storage.values, [this](const StoredValue& v) { return v.seen_in < step_ - 1; });
    storage.forget_at = std::max(kManyValues, 2 * storage.values.size());
  }
  StoredValue& value = storage.values.emplace_back();
  value.id = next_value_++;
  value.storage_offset = offset;
  value.layout = SeenLayout(look);
  take_object(storage, value, tensor);
  return value;
}

const StoredValue* StorageTable::find_bytes(const Storage& storage, const StoredValue& value,
                                            const TensorLook& look, bool look_dense) const {
  if (has_bytes(storage, value)) return &value;
  if (!look_dense) return nullptr;
  return find_known(storage, [&](const StoredValue& other) {
    return other.layout.dense && other.layout.has_values_of(look, look_dense);
  });
}

bool StorageTable::is_unchanged(const Storage& storage, const StoredValue& known) const {
  const TakenBytes& bytes = *known.bytes;
  if (bytes.glance == 0) return true;
  const Ref object(weakref_get(storage.weakref.get()));
  if (!object) return false;
  // It may have been resized: its memory is another one then, or too small.
  const std::byte* begin = access_.storage_data(object.get());
  const int64_t size = access_.storage_size_bytes(object.get());
  const bool is_there =
      begin != nullptr && bytes.memory.data() >= begin &&
      bytes.memory.data() + bytes.memory.size() <= begin + std::max<int64_t>(size, 0);
  return is_there && stats::glance(bytes.memory) == bytes.glance;
}

void StorageTable::new_version(Storage& storage) {
  ++storage.version;
  storage.watched_version = -1;
  forget_values(storage);
}

void StorageTable::forget_values(Storage& storage) {
  for (StoredValue& value : storage.values) {
    if (value.bytes != nullptr && spare_bytes_.size() < kMostSpareBytes)
      spare_bytes_.push_back(std::move(value.bytes));
  }
  storage.values.clear();
}

void StorageTable::remember_bytes(StoredValue& value, TakenBytes bytes) {
  if (value.bytes == nullptr && !spare_bytes_.empty()) {
    value.bytes = std::move(spare_bytes_.back());
    spare_bytes_.pop_back();
  }
  if (value.bytes == nullptr) value.bytes = std::make_unique<TakenBytes>();
  *value.bytes = std::move(bytes);
  value.bytes_epoch = epoch_;
}

const std::string* StorageTable::leaf_of(const Storage& storage, const StoredValue& value) const {
  if (storage.leaves.empty() || storage.written) return nullptr;
  for (const Storage::Leaf& leaf : storage.leaves) {
    if (leaf.storage_offset == value.storage_offset) return leaf.name;
  }
  return storage.leaves.front().name;
}

void StorageTable::add_leaf(PyObject* tensor, const std::string* name) {
  Storage* storage = see(tensor, true).storage;
  if (storage == nullptr) return;
  storage->leaves.push_back({access_.storage_offset(tensor), name});
}

}  // namespace assay::capture
