// SPDX-License-Identifier: Apache-2.0
#include "capture/torch/storage_table.hpp"

#include <algorithm>

#include "capture/torch/python_compat.hpp"

namespace assay::capture {
namespace {

// More values than these in one storage: those that the last two steps did not see are forgotten.
constexpr size_t kManyValues = 64;

[[nodiscard]] bool equal(const Dims& known, const int64_t* values, int count) {
  return values != nullptr && known.size() == static_cast<size_t>(count) &&
         std::equal(known.begin(), known.end(), values);
}

[[nodiscard]] bool is_value(const StoredValue& value, const TensorLook& look) {
  return value.dtype == look.dtype && value.conjugate == look.conjugate &&
         value.negative == look.negative && equal(value.shape, look.shape, look.ndim) &&
         equal(value.strides, look.strides, look.ndim);
}

}  // namespace

StorageTable::~StorageTable() { clear(); }

bool StorageTable::works(TensorAccess& access) {
  PyObject* torch = PyImport_ImportModule("torch");
  PyObject* tensor = torch != nullptr ? PyObject_CallMethod(torch, "empty", "i", 1) : nullptr;
  Py_XDECREF(torch);
  PyObject* first = tensor != nullptr ? access.storage_object(tensor) : nullptr;
  PyObject* weak = first != nullptr ? PyWeakref_NewRef(first, nullptr) : nullptr;
  Py_XDECREF(first);
  PyObject* kept = weak != nullptr ? weakref_get(weak) : nullptr;
  PyObject* second = kept != nullptr ? access.storage_object(tensor) : nullptr;
  const bool same = kept != nullptr && kept == second;
  Py_XDECREF(kept);
  Py_XDECREF(second);
  Py_XDECREF(weak);
  Py_XDECREF(tensor);
  PyErr_Clear();
  return same;
}

void StorageTable::drop(Storage& storage) {
  Py_CLEAR(storage.weakref);
  Py_CLEAR(storage.watched);
}

void StorageTable::clear() {
  for (auto& [object, storage] : storages_) drop(*storage);
  storages_.clear();
}

void StorageTable::forget_dead() {
  for (auto at = storages_.begin(); at != storages_.end();) {
    PyObject* object = weakref_get(at->second->weakref);
    if (object == nullptr) {
      drop(*at->second);
      at = storages_.erase(at);
    } else {
      Py_DECREF(object);
      ++at;
    }
  }
  forget_at_ = std::max<size_t>(4096, 2 * storages_.size());
}

void StorageTable::end_step() {
  forget_dead();
  for (auto& [object, storage] : storages_) {
    auto& values = storage->values;
    if (values.size() > kManyValues)
      std::erase_if(values, [this](const StoredValue& v) { return v.seen_in < step_ - 1; });
    if (!storage->leaves.empty()) continue;
    for (StoredValue& value : values) value.bytes.reset();
  }
}

void StorageTable::distrust() {
  for (auto& [object, storage] : storages_) {
    if (storage->unwatched && storage->leaves.empty()) new_version(*storage);
  }
}

// Takes notice of writes that nobody declared. Returns the tensor's counter when it had to be read.
std::optional<int64_t> StorageTable::watch(Storage& storage, PyObject* tensor) {
  if (storage.unwatched) return std::nullopt;
  PyObject* watched = storage.watched != nullptr ? weakref_get(storage.watched) : nullptr;
  if (watched == nullptr) {
    if (access_.is_inference(tensor)) {
      storage.unwatched = true;
      return -1;
    }
    Py_XSETREF(storage.watched, PyWeakref_NewRef(tensor, nullptr));
    PyErr_Clear();
    storage.watched_version = access_.version(tensor);
    return storage.watched_version;
  }
  const int64_t version = access_.version(watched);
  if (storage.watched_version >= 0 && version != storage.watched_version) new_version(storage);
  storage.watched_version = version;
  Py_DECREF(watched);
  if (watched != tensor) return std::nullopt;
  return version;
}

StorageTable::Sight StorageTable::see(PyObject* tensor, bool settled) {
  Sight sight;
  PyObject* object = access_.storage_object(tensor);
  if (object == nullptr) return sight;
  auto& known = storages_[object];
  if (known != nullptr && !weakref_is(known->weakref, object)) {
    // Another storage at the same address: the memory of what was known serves for it.
    drop(*known);
    std::vector<StoredValue> values = std::move(known->values);
    values.clear();
    *known = Storage{};
    known->values = std::move(values);
  }
  if (known == nullptr) known = std::make_unique<Storage>();
  sight.storage = known.get();
  if (sight.storage->weakref == nullptr) {
    PyObject* weak = PyWeakref_NewRef(object, nullptr);
    if (weak == nullptr) {
      PyErr_Clear();
      storages_.erase(object);
      Py_DECREF(object);
      return {};
    }
    sight.is_new = true;
    sight.storage->number = next_storage_++;
    sight.storage->weakref = weak;
    sight.storage->first_size_bytes = access_.storage_size_bytes(object);
    if (storages_.size() > forget_at_) forget_dead();  // this one is alive: its tensor is
  }
  Py_DECREF(object);
  if (settled) sight.version = watch(*sight.storage, tensor);
  return sight;
}

StoredValue& StorageTable::value_of(Storage& storage, PyObject* tensor, const TensorLook& look) {
  // The same address in the same storage is the same offset, which need not be asked for.
  for (StoredValue& value : storage.values) {
    if (value.data == look.data && is_value(value, look)) return value;
  }
  const int64_t offset = access_.storage_offset(tensor);
  for (StoredValue& value : storage.values) {
    if (value.storage_offset == offset && is_value(value, look)) return value;
  }
  StoredValue& value = storage.values.emplace_back();
  value.id = next_value_++;
  value.storage_offset = offset;
  value.data = look.data;
  value.dtype = look.dtype;
  value.conjugate = look.conjugate;
  value.negative = look.negative;
  const auto ndim = static_cast<size_t>(look.ndim);
  value.shape = Dims(std::span<const int64_t>(look.shape, ndim));
  value.strides = Dims(std::span<const int64_t>(look.strides, ndim));
  return value;
}

const SeenTensor* StorageTable::known_bytes(const Storage& storage, const StoredValue& value,
                                            const TensorLook& look, bool look_dense) const {
  if (value.bytes != nullptr) return value.bytes.get();
  if (!look_dense) return nullptr;
  for (const StoredValue& other : storage.values) {
    const SeenTensor* seen = other.bytes.get();
    if (seen != nullptr && seen->dense && seen->data == look.data &&
        seen->element_count == look.element_count && seen->dtype == look.dtype &&
        seen->conjugate == look.conjugate && seen->negative == look.negative) {
      return seen;
    }
  }
  return nullptr;
}

void StorageTable::new_version(Storage& storage) {
  ++storage.version;
  storage.watched_version = -1;
  storage.values.clear();
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
