// SPDX-License-Identifier: Apache-2.0
// Two lists of work for the threads: one record of each different payload, which is loaded and
// checked on the way, and the step files, whose digest and header are held against the records.
#include "run/verify.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <tuple>

#include "base/file_changes.hpp"
#include "base/file_source.hpp"
#include "base/interruption.hpp"
#include "base/mapped_file.hpp"
#include "base/thread_pool.hpp"
#include "formats/safetensors.hpp"
#include "run/load.hpp"
#include "run/native_damage.hpp"
#include "run/strided_payload.hpp"
#include "stats/digest.hpp"
#include "tensor/dtype.hpp"

namespace assay::run {
namespace {

// Where a native record's bytes are in its file.
using Place = std::pair<uint64_t, uint64_t>;  // offset, size

uint64_t end_of(const formats::SafetensorsEntry& entry) {
  const auto elements = static_cast<uint64_t>(entry.view.element_count());
  return entry.file_offset + storage_bytes(entry.view.dtype, elements).value_or(0);
}

class Verifier {
 public:
  Verifier(const Run& run, const VerifyOptions& options) : run_(run), options_(options) {
    result_.damage = run.damage;
  }

  Result<Verification> verify() {
    const std::vector<const TensorRecord*> payloads = list_payloads();
    list_step_files();
    const size_t total = payloads.size() + files_.size();
    const unsigned jobs = resolve_job_count(options_.jobs);
    try {
      const InterruptScope scope(options_.interrupted);
      parallel_for(total, jobs, [&](size_t i) {
        if (is_interrupted()) return;
        if (i < payloads.size()) {
          read(*payloads[i]);
        } else {
          check_file(*std::next(files_.begin(), static_cast<std::ptrdiff_t>(i - payloads.size())));
        }
        note_progress(total);
      });
      throw_if_interrupted();
    } catch (const Interrupted&) {
      return fail(Errc::Interrupted, "interrupted");
    }
    for (Damage& one : found_) {  // readers name the file themselves
      if (one.what.starts_with(one.file + ": ")) one.what.erase(0, one.file.size() + 2);
    }
    std::ranges::sort(found_, {}, [](const Damage& one) { return std::tie(one.file, one.what); });
    for (Damage& one : found_) {
      if (std::ranges::find(result_.damage, one) == result_.damage.end())
        result_.damage.push_back(std::move(one));
    }
    return std::move(result_);
  }

 private:
  // One record of each payload. Records without bytes say why in `problem`.
  std::vector<const TensorRecord*> list_payloads() {
    std::vector<const TensorRecord*> payloads;
    std::set<std::tuple<std::string_view, uint64_t, uint64_t, std::string_view, uint32_t, uint32_t>>
        known;
    for (const TensorRecord& record : run_.records) {
      if (!record.problem.empty() && !record.not_captured) {
        add(record.bytes ? record.bytes->file.str() : run_.path, record.problem);
      } else if (record.bytes) {
        const ByteLocation& place = *record.bytes;
        // Two views of one place may have other elements: shape and strides count, too.
        const bool is_view = is_strided(record);
        if (known
                .emplace(place.file, place.offset, place.size_bytes, place.member,
                         is_view ? record.shape.handle() : 0, is_view ? record.strides.handle() : 0)
                .second)
          payloads.push_back(&record);
      }
    }
    return payloads;
  }

  // Only the native layout has them, in which processes of an ATB dump may be recorded, too.
  void list_step_files() {
    constexpr Layout kLayouts[] = {Layout::Native, Layout::NativeGraph, Layout::AtbTree};
    if (std::ranges::find(kLayouts, run_.layout) == std::end(kLayouts)) return;
    for (const TensorRecord& record : run_.records) {
      if (record.bytes && record.problem.empty() &&
          record.bytes->file.str().ends_with(native::kStepFileSuffix))
        files_[record.bytes->file].emplace(record.bytes->offset, record.bytes->size_bytes);
    }
  }

  void read(const TensorRecord& record) {
    const Result<Tensor> tensor = load_tensor(record);
    if (!tensor) return add(record.bytes->file, tensor.error().message);
    const auto elements = static_cast<uint64_t>(tensor->view.element_count());
    const std::lock_guard lock(mutex_);
    ++result_.payloads;
    result_.bytes += storage_bytes(tensor->view.dtype, elements).value_or(0);
  }

  void check_file(const std::pair<const std::string, std::set<Place>>& file) {
    const auto& [path, places] = file;
    const Result<StepFileHead> head = read_step_file_head(path);
    if (!head || head->digest.empty())
      return;  // of an earlier version, or of a capture that did not end
    const Result<MappedFile> mapped = MappedFile::open(path);
    if (!mapped) return add(path, mapped.error().message);
    const ByteSpan bytes = mapped->bytes();
    if (head->header_bytes > bytes.size()) return add(path, "ends inside its header");
    const stats::Digest digest = stats::digest_bytes(bytes.subspan(head->header_bytes));
    if (stats::digest_text(digest) != head->digest)
      add(path, "holds other bytes than the capture wrote");
    check_header(path, *mapped, places);
    const std::lock_guard lock(mutex_);
    ++result_.digests;
  }

  // Other tools find the tensors by the header, we by the records.
  void check_header(const std::string& path, const MappedFile& file,
                    const std::set<Place>& places) {
    const Result<formats::Safetensors> header = formats::read_safetensors_file(file);
    if (!header) return add(path, header.error().message);
    for (const auto& [offset, size] : places) {
      // The entry that begins last before it: a view may be a part of one.
      const auto after = std::ranges::upper_bound(header->entries, offset, {},
                                                  &formats::SafetensorsEntry::file_offset);
      const bool is_inside = after != header->entries.begin() &&
                             !std::prev(after)->name.starts_with("__pad.") &&
                             offset + size <= end_of(*std::prev(after));
      if (size > 0 && !is_inside)
        add(path, "its header has no tensor at byte " + std::to_string(offset));
    }
  }

  void add(const std::string& file, std::string what) {
    const std::lock_guard lock(mutex_);
    found_.push_back({file, std::move(what)});
  }

  void note_progress(size_t total) {
    if (!options_.progress) return;
    const std::lock_guard lock(progress_mutex_);
    options_.progress(++done_, total);
  }

  const Run& run_;
  const VerifyOptions& options_;
  Verification result_;
  std::map<std::string, std::set<Place>> files_;
  std::vector<Damage> found_;
  std::mutex mutex_;
  std::mutex progress_mutex_;
  size_t done_ = 0;
};

}  // namespace

Result<Verification> verify_run(const Run& run, const VerifyOptions& options) {
  const ReadingScope reading;
  Result<Verification> verified = Verifier(run, options).verify();
  // What could not be fetched is not damaged.
  if (is_url(run.path)) ASSAY_TRY_STATUS(reading.take_failure());
  return verified;
}

}  // namespace assay::run
