// SPDX-License-Identifier: Apache-2.0
// A class for each kind of file lists its members and hands out one as a tensor. Behind them stands
// the cache of open files, which tells a replaced file by its stamp.
#include "run/container.hpp"

#include <algorithm>
#include <cerrno>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "base/ascii.hpp"
#include "base/file_changes.hpp"
#include "base/file_source.hpp"
#include "base/mapped_file.hpp"
#include "base/numbers.hpp"
#include "formats/atb_bin.hpp"
#include "formats/cann_dump.hpp"
#include "formats/detect.hpp"
#include "formats/gguf.hpp"
#include "formats/npy.hpp"
#include "formats/pth.hpp"
#include "formats/safetensors.hpp"
#include "formats/zip.hpp"
#include "run/atb_record.hpp"

namespace assay::run {
namespace {

using formats::FileKind;

TensorRecord member_record(const std::string& path, const std::string& member) {
  TensorRecord record;
  record.slot = member;
  ByteLocation location;
  location.file = path;
  location.member = member;
  record.bytes = std::move(location);
  return record;
}

void set_header(const TensorView& view, TensorRecord* record) {
  record->dtype = view.dtype;
  record->shape = view.shape;
  record->strides = view.strides;
}

Error no_member(const std::string& path, const std::string& member) {
  return {Errc::NotFound, path, std::nullopt,
          member.empty() ? "holds several tensors, name one of them"
                         : "has no member '" + member + "'"};
}

/// One array: the whole file.
class NpyContainer : public Container {
 public:
  explicit NpyContainer(MappedFile file) : file_(std::move(file)) {}
  Result<std::vector<TensorRecord>> list() const override {
    // Of a file that lies elsewhere the values may not be here yet.
    ASSAY_TRY(const Tensor array, in_file(file_.path(), formats::read_npy_file(file_)));
    std::vector<TensorRecord> records = {member_record(file_.path(), "")};
    set_header(array.view, &records[0]);
    return records;
  }
  Result<Tensor> tensor(const std::string& member) const override {
    if (!member.empty()) return fail(no_member(file_.path(), member));
    ASSAY_TRY_STATUS(file_.fetch(0, file_.bytes().size()));
    return in_file(file_.path(), formats::read_npy_file(file_));
  }
  const MappedFile& file() const override { return file_; }

 private:
  MappedFile file_;
};

/// Places of members by name; of two with one name the first counts.
using MemberIndex = std::unordered_map<std::string, size_t>;

/// Arrays inside a zip. An array is inflated only when it is asked for, and never kept.
class NpzContainer : public Container {
 public:
  explicit NpzContainer(MappedFile file)
      : file_(std::move(file)), archive_(in_file(file_.path(), formats::read_zip(file_.bytes()))) {
    if (!archive_) return;
    for (size_t i = 0; i < archive_->entries.size(); ++i)
      index_.emplace(member_name(archive_->entries[i].name), i);
  }
  Result<std::vector<TensorRecord>> list() const override {
    if (!archive_) return fail(archive_.error());
    std::vector<TensorRecord> records;
    records.reserve(archive_->entries.size());
    for (const formats::ZipEntry& entry : archive_->entries) {
      const std::string member = member_name(entry.name);
      records.push_back(member_record(file_.path(), member));
      // Only a stored array shows its header without being inflated.
      if (entry.method != static_cast<uint16_t>(formats::ZipMethod::Stored)) continue;
      if (const Result<Tensor> array = in_file(file_.path(), read_entry(entry))) {
        set_header(array->view, &records.back());
      } else {
        records.back().problem = array.error().describe();
      }
    }
    return records;
  }
  Result<Tensor> tensor(const std::string& member) const override {
    if (!archive_) return fail(archive_.error());
    if (const auto found = index_.find(member); found != index_.end())
      return in_file(file_.path(), read_entry(archive_->entries[found->second]));
    // "inputs.2" is element 2 of the first axis of "inputs".
    const size_t dot = member.rfind('.');
    const auto index = dot == std::string::npos
                           ? std::nullopt
                           : parse_number<int64_t>(std::string_view(member).substr(dot + 1));
    if (!index) return fail(no_member(file_.path(), member));
    ASSAY_TRY(Tensor whole, tensor(member.substr(0, dot)));
    if (whole.view.shape.empty() || *index < 0 || *index >= whole.view.shape[0])
      return fail(no_member(file_.path(), member));
    ASSAY_TRY(whole.view, make_view(whole.view.dtype, Dims(whole.view.shape.span().subspan(1)),
                                    Dims(whole.view.strides.span().subspan(1)), whole.view.storage,
                                    whole.view.offset_elements + *index * whole.view.strides[0]));
    return whole;
  }
  const MappedFile& file() const override { return file_; }

 private:
  static std::string member_name(const std::string& name) {
    return name.ends_with(".npy") ? name.substr(0, name.size() - 4) : name;
  }
  Result<Tensor> read_entry(const formats::ZipEntry& entry) const {
    ASSAY_TRY(const formats::SharedBytes content, formats::read_zip_entry(*archive_, entry));
    ASSAY_TRY(Tensor array, formats::read_npy(content.bytes));
    // read_npy owns what it had to convert; otherwise the array lives in `content`, and that in the
    // mapping.
    struct Owner {
      MappedFile file;
      formats::SharedBytes content;
      std::shared_ptr<const void> converted;
    };
    array.owner = std::make_shared<const Owner>(Owner{file_, content, array.owner});
    return array;
  }
  MappedFile file_;
  Result<formats::ZipArchive> archive_;
  MemberIndex index_;
};

class SafetensorsContainer : public Container {
 public:
  explicit SafetensorsContainer(MappedFile file) : file_(std::move(file)) {}
  Result<std::vector<TensorRecord>> list() const override {
    if (!content()) return fail(content().error());
    std::vector<TensorRecord> records;
    for (const formats::SafetensorsEntry& entry : content()->entries) {
      // Padding that our own step files declare to satisfy the format's rule against holes.
      if (entry.name.starts_with("__pad.")) continue;
      TensorRecord record = member_record(file_.path(), entry.name);
      set_header(entry.view, &record);
      record.bytes->raw = true;
      record.bytes->offset = entry.file_offset;
      record.bytes->size_bytes = entry.view.storage.size();
      records.push_back(std::move(record));
    }
    return records;
  }
  Result<Tensor> tensor(const std::string& member) const override {
    if (!content()) return fail(content().error());
    const formats::SafetensorsEntry* entry = content()->find(member);
    if (member.empty() && content()->entries.size() == 1) entry = &content()->entries[0];
    if (entry == nullptr) return fail(no_member(file_.path(), member));
    ASSAY_TRY_STATUS(file_.fetch(entry->file_offset, entry->view.storage.size()));
    return Tensor{entry->view, std::make_shared<const MappedFile>(file_)};
  }
  const MappedFile& file() const override { return file_; }

 private:
  /// Parsed when it is first asked for: records of a native run know where their bytes are.
  const Result<formats::Safetensors>& content() const {
    std::call_once(is_read_, [this] {
      content_.emplace(in_file(file_.path(), formats::read_safetensors(file_.bytes())));
    });
    return *content_;
  }

  MappedFile file_;
  mutable std::once_flag is_read_;
  mutable std::optional<Result<formats::Safetensors>> content_;
};

/// A model in a GGUF file. Block types are listed as the float32 values they are decoded to.
class GgufContainer : public Container {
 public:
  explicit GgufContainer(MappedFile file) : file_(std::move(file)), content_(read_header(file_)) {
    if (!content_) return;
    for (size_t i = 0; i < content_->tensors.size(); ++i)
      index_.emplace(content_->tensors[i].name, i);
  }
  Result<std::vector<TensorRecord>> list() const override {
    if (!content_) return fail(content_.error());
    std::vector<TensorRecord> records;
    for (const formats::GgufTensor& tensor : content_->tensors) {
      TensorRecord record = member_record(file_.path(), tensor.name);
      record.shape = tensor.shape;
      record.strides = contiguous_strides(tensor.shape);
      record.dtype = tensor.blocks ? DType::Float32 : tensor.dtype;
      if (tensor.blocks) record.memory_format = name(*tensor.blocks);
      record.bytes->raw = !content_->big_endian;
      record.bytes->offset = tensor.file_offset;
      record.bytes->size_bytes = tensor.bytes.size();
      record.problem = tensor.problem;
      records.push_back(std::move(record));
    }
    return records;
  }
  Result<Tensor> tensor(const std::string& member) const override {
    if (!content_) return fail(content_.error());
    const auto found = index_.find(member);
    const formats::GgufTensor* tensor =
        found == index_.end() ? nullptr : &content_->tensors[found->second];
    if (member.empty() && content_->tensors.size() == 1) tensor = &content_->tensors[0];
    if (tensor == nullptr) return fail(no_member(file_.path(), member));
    ASSAY_TRY_STATUS(file_.fetch(tensor->file_offset, tensor->bytes.size()));
    return in_file(file_.path(), formats::gguf_tensor(*content_, *tensor));
  }
  const MappedFile& file() const override { return file_; }
  std::map<std::string, std::string> properties() const override {
    std::map<std::string, std::string> out;
    if (!content_) return out;
    out["gguf.version"] =
        std::to_string(content_->version) + (content_->big_endian ? ", big-endian" : "");
    for (const formats::GgufEntry& entry : content_->metadata)
      out["gguf:" + entry.key] = formats::gguf_value_text(entry.value, kMaxShownElements);
    return out;
  }

 private:
  /// The header's length shows only once it was read: of a file that lies elsewhere more and more
  /// is brought here until its header makes sense.
  static Result<formats::Gguf> read_header(const MappedFile& file) {
    const uint64_t size = file.bytes().size();
    for (uint64_t here = kFirstHeadBytes;; here *= 2) {
      ASSAY_TRY_STATUS(file.fetch(0, std::min(here, size)));
      Result<formats::Gguf> content = formats::read_gguf_file(file);
      if (here >= size || !is_elsewhere(file.path()) || (content && content->data_offset <= here))
        return content;
    }
  }

  static constexpr uint64_t kFirstHeadBytes = uint64_t{1} << 20;
  // Enough for what a list says of each layer; vocabularies are cut.
  static constexpr size_t kMaxShownElements = 128;
  MappedFile file_;
  Result<formats::Gguf> content_;
  MemberIndex index_;
};

/// What torch.save wrote: one tensor, or tensors and values inside tuples, lists and dicts.
class PthContainer : public Container {
 public:
  explicit PthContainer(MappedFile file)
      : file_(std::move(file)), entries_(in_file(file_.path(), formats::read_pth_file(file_))) {
    if (!entries_) return;
    std::map<std::string, int> seen;
    for (const formats::PthEntry& entry : *entries_) {
      const int occurrence = ++seen[entry.path];
      members_.push_back(occurrence == 1 ? entry.path
                                         : entry.path + "#" + std::to_string(occurrence));
      if (entry.kind != formats::PthEntry::Kind::Tensor) continue;
      index_.emplace(members_.back(), members_.size() - 1);
    }
  }
  Result<std::vector<TensorRecord>> list() const override {
    if (!entries_) return fail(entries_.error());
    std::vector<TensorRecord> records;
    for (size_t i = 0; i < entries_->size(); ++i) {
      const formats::PthEntry& entry = (*entries_)[i];
      records.push_back(member_record(file_.path(), members_[i]));
      if (entry.kind == formats::PthEntry::Kind::Tensor) {
        set_header(entry.tensor.view, &records.back());
      } else {
        records.back().bytes.reset();
        records.back().op_type = entry.type;
        records.back().value = entry.text;
      }
    }
    return records;
  }
  Result<Tensor> tensor(const std::string& member) const override {
    if (!entries_) return fail(entries_.error());
    if (const auto found = index_.find(member); found != index_.end())
      return (*entries_)[found->second].tensor;
    if (member.empty() && index_.size() == 1) return (*entries_)[index_.begin()->second].tensor;
    if (index_.empty())
      return fail(Error{Errc::NotFound, file_.path(), std::nullopt, "holds no tensor"});
    return fail(no_member(file_.path(), member));
  }
  const MappedFile& file() const override { return file_; }

 private:
  MappedFile file_;
  Result<std::vector<formats::PthEntry>> entries_;
  std::vector<std::string> members_;  // unique names, parallel to *entries_
  MemberIndex index_;                 // of the tensors
};

/// One tensor of ATB, or what is left of it: a description, statistics.
class AtbContainer : public Container {
 public:
  explicit AtbContainer(MappedFile file)
      : file_(std::move(file)), record_(formats::read_atb_bin(file_.bytes())) {}
  Result<std::vector<TensorRecord>> list() const override {
    if (!record_) return fail(in_file(file_.path(), record_).error());
    TensorRecord record;
    fill_from_atb_bin(file_.path(), record_, &record);
    if (record_->reference.size() > 0 && !record.bytes)
      record.problem = file_.path() + ": its data was stored as " + std::string(record_->reference);
    return std::vector<TensorRecord>{std::move(record)};
  }
  Result<Tensor> tensor(const std::string& member) const override {
    if (!member.empty()) return fail(no_member(file_.path(), member));
    if (!record_) return fail(in_file(file_.path(), record_).error());
    ASSAY_TRY(const TensorView view, in_file(file_.path(), formats::atb_bin_view(*record_)));
    return Tensor{view, std::make_shared<const MappedFile>(file_)};
  }
  const MappedFile& file() const override { return file_; }

 private:
  MappedFile file_;
  Result<formats::AtbBin> record_;  // borrows the mapping
};

/// The operands of one operator of CANN's graph engine: "inputs.0", "outputs.1", "buffers.0",
/// "workspaces.0".
class CannContainer : public Container {
 public:
  explicit CannContainer(MappedFile file)
      : file_(std::move(file)), dump_(formats::read_cann_dump(file_.bytes())) {}
  Result<std::vector<TensorRecord>> list() const override {
    if (!dump_) return fail(in_file(file_.path(), dump_).error());
    std::vector<TensorRecord> records;
    append_tensors(dump_->inputs, "inputs.", Role::Input, &records);
    append_tensors(dump_->outputs, "outputs.", Role::Output, &records);
    append_buffers(dump_->buffers, "buffers.", &records);
    append_buffers(dump_->workspaces, "workspaces.", &records);
    return records;
  }
  Result<Tensor> tensor(const std::string& member) const override {
    if (!dump_) return fail(in_file(file_.path(), dump_).error());
    const size_t dot = member.find('.');
    const std::string_view list = std::string_view(member).substr(0, dot);
    const auto index = dot == std::string::npos
                           ? std::nullopt
                           : parse_number<size_t>(std::string_view(member).substr(dot + 1));
    Result<Tensor> found = fail(no_member(file_.path(), member));
    if (index && (list == "inputs" || list == "outputs")) {
      const auto& tensors = list == "inputs" ? dump_->inputs : dump_->outputs;
      if (*index < tensors.size()) found = formats::cann_tensor(tensors[*index]);
    } else if (index && (list == "buffers" || list == "workspaces")) {
      const auto& buffers = list == "buffers" ? dump_->buffers : dump_->workspaces;
      if (*index < buffers.size()) found = bytes_of(buffers[*index]);
    }
    if (!found) return in_file(file_.path(), std::move(found));
    if (found->owner == nullptr) found->owner = std::make_shared<const MappedFile>(file_);
    return found;
  }
  const MappedFile& file() const override { return file_; }

 private:
  void append_tensors(const std::vector<formats::CannTensor>& tensors, const std::string& prefix,
                      Role role, std::vector<TensorRecord>* records) const {
    for (size_t i = 0; i < tensors.size(); ++i) {
      TensorRecord record = member_record(file_.path(), prefix + std::to_string(i));
      // Of the operator: operands that were left out have no place in the file.
      record.slot = prefix + std::to_string(formats::cann_operand_index(*dump_, tensors[i], i));
      record.node = dump_->op_name;
      record.role = role;
      if (const auto header = formats::cann_header(tensors[i])) {
        record.dtype = header->dtype;
        record.shape = header->shape;
        record.strides = contiguous_strides(header->shape);
        if (header->tiled)
          record.memory_format = lower_case(formats::cann_format_name(tensors[i].format));
      } else {
        record.problem = in_file(file_.path(), header).error().describe();
      }
      records->push_back(std::move(record));
    }
  }
  void append_buffers(const std::vector<formats::CannBuffer>& buffers, const std::string& prefix,
                      std::vector<TensorRecord>* records) const {
    for (size_t i = 0; i < buffers.size(); ++i) {
      TensorRecord record = member_record(file_.path(), prefix + std::to_string(i));
      record.node = dump_->op_name;
      record.role = Role::Buffer;
      if (const auto content = bytes_of(buffers[i])) {
        set_header(content->view, &record);
      } else {
        record.problem = in_file(file_.path(), content).error().describe();
      }
      records->push_back(std::move(record));
    }
  }
  static Result<Tensor> bytes_of(const formats::CannBuffer& buffer) {
    if (!buffer.problem.empty()) return fail(Errc::Truncated, buffer.problem);
    ASSAY_TRY(const TensorView view,
              make_view(DType::UInt8, Dims{static_cast<int64_t>(buffer.data.size())}, buffer.data));
    return Tensor{view, nullptr};
  }

  MappedFile file_;
  Result<formats::CannDump> dump_;  // borrows the mapping
};

/// A file that holds bytes somebody else has located: a step file whose header was never written,
/// or a kind that cannot be read.
class OpaqueContainer : public Container {
 public:
  OpaqueContainer(MappedFile file, FileKind kind) : file_(std::move(file)), kind_(kind) {}
  Result<std::vector<TensorRecord>> list() const override { return fail(refusal()); }
  Result<Tensor> tensor(const std::string&) const override { return fail(refusal()); }
  const MappedFile& file() const override { return file_; }

 private:
  Error refusal() const {
    if (file_.bytes().empty()) return {Errc::Truncated, file_.path(), 0, "the file is empty"};
    if (kind_ == FileKind::Unknown) {
      return {Errc::BadMagic, file_.path(), 0,
              "is no tensor file that can be read (.npy .npz .pth .pt .safetensors .gguf .bin)"};
    }
    return {Errc::Unsupported, file_.path(), std::nullopt,
            "is a file of kind '" + std::string(formats::kind_name(kind_)) +
                "', which holds no tensors that can be read (.npy .npz .pth .pt .safetensors .gguf "
                ".bin "
                "can)"};
  }
  MappedFile file_;
  FileKind kind_;
};

std::shared_ptr<const Container> make_container(MappedFile file) {
  const FileKind kind = formats::detect_file(file.bytes(), file.path());
  switch (kind) {
    case FileKind::Npy:
      return std::make_shared<NpyContainer>(std::move(file));
    case FileKind::Npz:
      return std::make_shared<NpzContainer>(std::move(file));
    case FileKind::Safetensors:
      return std::make_shared<SafetensorsContainer>(std::move(file));
    case FileKind::Gguf:
      return std::make_shared<GgufContainer>(std::move(file));
    case FileKind::Pth:
    case FileKind::PthLegacy:
    case FileKind::TorchScript:  // read_pth says why it refuses
      return std::make_shared<PthContainer>(std::move(file));
    case FileKind::AtbBin:
      return std::make_shared<AtbContainer>(std::move(file));
    case FileKind::CannDump:
      return std::make_shared<CannContainer>(std::move(file));
    default:
      return std::make_shared<OpaqueContainer>(std::move(file), kind);
  }
}

/// What tells one content of a path from the next.
struct FileIdentity {
  FileStamp stamp;
  std::string version;  // of a file that lies elsewhere
  bool operator==(const FileIdentity&) const = default;
};

Result<FileIdentity> identity_of(const std::string& path) {
  if (is_elsewhere(path)) {
    ASSAY_TRY(const FileFacts facts, file_facts(path));
    return FileIdentity{{.size_bytes = facts.size_bytes, .modified_ns = facts.modified_ns},
                        facts.version};
  }
  ASSAY_TRY(const FileStamp stamp, file_stamp(path));
  return FileIdentity{stamp, {}};
}

// Enough for the headers of most formats: one block of the cache of remote files.
constexpr uint64_t kHeadBytes = uint64_t{1} << 20;

/// Opens a file. Of one that lies elsewhere the part with the directory of its members is brought
/// here, or all of it in formats that have no such part.
Result<MappedFile> open_with_head(const std::string& path) {
  ASSAY_TRY(MappedFile file, MappedFile::open_unfetched(path));
  if (!is_elsewhere(path)) return file;
  ASSAY_TRY_STATUS(file.fetch(0, kHeadBytes));
  const ByteSpan bytes = file.bytes();
  switch (formats::detect_file(bytes.first(std::min<uint64_t>(bytes.size(), kHeadBytes)), path)) {
    case FileKind::Npy:
    case FileKind::Gguf:  // their containers fetch what they need
      return file;
    case FileKind::Safetensors:
      // u64 length of the header, then the header
      if (bytes.size() > sizeof(uint64_t)) {
        const uint64_t length =
            std::min(load<uint64_t>(bytes.data()), formats::kMaxSafetensorsHeaderBytes);
        ASSAY_TRY_STATUS(file.fetch(0, sizeof(uint64_t) + length));
      }
      return file;
    default:
      ASSAY_TRY_STATUS(file.fetch(0, bytes.size()));
      return file;
  }
}

struct CachedFile {
  std::string path;
  FileIdentity identity;
  std::shared_ptr<const Container> container;
};

struct Cache {
  struct Open {
    FileIdentity identity;
    std::weak_ptr<const Container> container;
  };
  std::mutex mutex;
  std::list<CachedFile> files;  // most recently used first
  /// Somebody else may still hold what is not among `files` any more.
  std::unordered_map<std::string, Open> known;

  std::shared_ptr<const Container> find(const std::string& path, const FileIdentity& identity) {
    const std::lock_guard lock(mutex);
    for (auto it = files.begin(); it != files.end(); ++it) {
      if (it->path != path) continue;
      if (it->identity != identity) {
        files.erase(it);
        return nullptr;
      }
      files.splice(files.begin(), files, it);
      return it->container;
    }
    const auto open = known.find(path);
    if (open == known.end() || open->second.identity != identity) return nullptr;
    std::shared_ptr<const Container> container = open->second.container.lock();
    if (container) put_first({path, identity, container});
    return container;
  }
  /// Whether somebody holds what was opened at the path.
  bool is_open(const std::string& path) {
    const std::lock_guard lock(mutex);
    const auto open = known.find(path);
    return open != known.end() && !open->second.container.expired();
  }
  void insert(CachedFile file) {
    const std::lock_guard lock(mutex);
    if (known.size() > 64 * kMaxCachedFiles)
      std::erase_if(known, [](const auto& one) { return one.second.container.expired(); });
    known.insert_or_assign(file.path, Open{file.identity, file.container});
    put_first(std::move(file));
  }

 private:
  void put_first(CachedFile file) {
    files.push_front(std::move(file));
    if (files.size() > kMaxCachedFiles) files.pop_back();
  }
};

Cache& cache() {
  static Cache instance;
  return instance;
}

}  // namespace

Result<std::shared_ptr<const Container>> open_container(const std::string& path) {
  // What nobody holds is opened without asking the file system first: the open file has its stamp.
  if (cache().is_open(path)) {
    ASSAY_TRY(const FileIdentity identity, identity_of(path));
    // A mapping whose file was found shorter reads as zeros for good; the file may be whole again.
    if (std::shared_ptr<const Container> known = cache().find(path, identity);
        known && check_unchanged(known->bytes()))
      return known;
  }
  FileIdentity identity;
  if (is_elsewhere(path)) {
    ASSAY_TRY(identity, identity_of(path));
  }
  ASSAY_TRY(MappedFile file, open_with_head(path));
  if (!is_elsewhere(path)) identity.stamp = file.stamp();
  std::shared_ptr<const Container> container = make_container(std::move(file));
  cache().insert({path, identity, container});
  return container;
}

}  // namespace assay::run
