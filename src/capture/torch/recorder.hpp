// SPDX-License-Identifier: Apache-2.0
// Turns the leaves of one walk over arguments or results into records: looks, asks whether the
// bytes were seen before, and takes statistics and bytes of those that were not.
#pragma once
#include "capture/torch/session.hpp"
#include "tensor/node.hpp"

namespace assay::capture {

class Session::Recorder final : public LeafVisitor {
 public:
  Recorder(Session& session, SessionNode& node, const std::shared_ptr<StepProgress>& step,
           uint64_t order, uint32_t call, Role role)
      : session_(session),
        run_(*session.run_),
        node_(node),
        step_(step),
        order_(order),
        call_(call),
        role_(role) {}
  /// Of what was promised, which outlives this.
  Recorder(Session& session, const Promise& promise)
      : Recorder(session, *promise.node, promise.step, promise.order, promise.call, promise.role) {
    set_operator(promise.operation, promise.operation_index, promise.is_view, promise.mutates);
  }

  void tensor(PyObject* tensor, std::string_view slot) override {
    this->tensor(tensor, slot == "0" ? session_.slot_0_ : run_.intern(slot));
  }
  void tensor(PyObject* tensor, const std::string* slot);
  void value(PyObject* value, std::string_view slot) override;
  /// In place of results.
  void call_raised();
  /// In place of a tensor that a collective may write until it has been waited for: which value it
  /// will be. nullptr: it is not known.
  void still_written(PyObject* tensor, const std::string* slot);
  /// Records what was promised if it has arrived.
  /// may_wait   wait for it, if need be
  /// waited     what the program has just waited for, or nullptr
  [[nodiscard]] bool keep(const Promise& promise, bool may_wait, PyObject* waited);

  /// Records from here on are those of an operator. `view`, `mutates`: what its schema says.
  void set_operator(const std::string* name, uint32_t index, bool is_view, bool mutates) {
    operation_ = name;
    operation_index_ = index;
    is_view_ = is_view;
    mutates_ = mutates;
  }
  void begin_operator(std::string_view arguments, const std::string* writes);

 private:
  // The tensor at hand, beyond its look.
  struct AtHand {
    PyObject* object = nullptr;
    const std::string* slot = nullptr;
    Storage* storage = nullptr;     // at operator level
    StoredValue* stored = nullptr;  // the same
    bool contiguous = false;
    bool is_made_here = false;       // by the operator that is being recorded
    bool has_fresh_storage = false;  // it is the first one seen of its storage
    // Torch's counter, when it was read on the way; -1: it has none.
    std::optional<int64_t> version;
    stats::MaybeDigest digest;  // when it was computed on the way
    RecordRef producer;
  };
  struct Seen {
    const SeenLayout* layout = nullptr;
    const TakenBytes* bytes = nullptr;
    explicit operator bool() const { return bytes != nullptr; }
  };

  [[nodiscard]] native::Record draft(const std::string* slot) const;
  void skip(PyObject* tensor, const std::string* slot, std::string_view reason);
  void skip_unread(PyObject* tensor, const std::string* slot, std::string_view reason);
  void forget_look();
  [[nodiscard]] bool is_result() const { return operation_ != nullptr && role_ == Role::Output; }
  void identify(native::Record& record);
  [[nodiscard]] bool has_changed_unseen(const Storage& storage, const StoredValue& value);
  [[nodiscard]] const stats::Digest& digest_at_hand();
  [[nodiscard]] bool is_negative_known(const StorageTable::Sight& sight);
  void describe(native::Record& record);
  uint64_t push(native::Record& record, std::string_view text = {});
  [[nodiscard]] WaitingRecord waiting(const native::Record& record) const;
  [[nodiscard]] bool record_parts(PyObject* tensor, const std::string* slot);
  void promise(PyObject* tensor, const std::string* slot, Ref counters, std::shared_ptr<Work> work);
  void record_part(PyObject* part, const std::string& slot);
  [[nodiscard]] bool waits_for_operands() const;
  [[nodiscard]] const std::string* members_of(PyObject* tensor);

  void record_memory(native::Record& record);
  void record_device(native::Record record);
  [[nodiscard]] bool is_settled() const;
  [[nodiscard]] int64_t version();
  [[nodiscard]] bool is_trusted();
  [[nodiscard]] bool is_covered() const;
  [[nodiscard]] Seen find_seen();
  [[nodiscard]] bool is_unchanged(const TakenBytes& known) const;
  [[nodiscard]] bool is_contradicted(const StoredValue& known);
  [[nodiscard]] bool lie_in_stored(native::Record& record, const Seen& seen);
  [[nodiscard]] bool is_complete(const Seen& seen) const;
  [[nodiscard]] bool is_transpose_of(const Seen& seen) const;
  void share(native::Record& record, const Seen& seen);
  [[nodiscard]] std::optional<stats::TensorStats> statistics_in(const Seen& seen) const;
  [[nodiscard]] bool keeps_digests() const;
  void remember(TakenBytes bytes);

  Session& session_;
  writer::NativeRun& run_;
  SessionNode& node_;
  const std::shared_ptr<StepProgress>& step_;
  uint64_t order_;
  uint32_t call_;
  Role role_;
  const std::string* operation_ = nullptr;
  uint32_t operation_index_ = 0;
  bool is_view_ = false;
  bool mutates_ = false;
  int wrapped_in_ = 0;                    // the tensor at hand is a part of so many wrappers
  const std::string* members_ = nullptr;  // what its line says of that
  PyObject* waited_ = nullptr;            // what the program has just waited for
  TensorLook look_;
  AtHand at_hand_;
};

}  // namespace assay::capture
