// SPDX-License-Identifier: Apache-2.0
// What the files of an operator dump report by themselves: overflows, failures, trampled outputs.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "formats/cann_dump.hpp"
#include "formats/overflow_report.hpp"
#include "run/container.hpp"
#include "run/natural_sort.hpp"
#include "run/sources/ge_files.hpp"

namespace assay::run::sources {
namespace {

using formats::CannDump;

Result<CannDump> read_dump(const std::string& path,
                           std::shared_ptr<const Container>* keeps_mapped) {
  ASSAY_TRY(*keeps_mapped, open_container(path));
  return in_file(path, formats::read_cann_dump((*keeps_mapped)->bytes()));
}

std::string step_text(const GeFolder& place) {
  std::string text = place.has_model ? "step " + std::to_string(place.token) : std::string();
  if (!place.model_name.empty()) text = place.model_name + (text.empty() ? "" : " ") + text;
  if (place.rank > 0)
    text = "rank " + std::to_string(place.rank) + (text.empty() ? "" : " ") + text;
  return text.empty() ? text : text + ": ";
}

std::string_view core_name(formats::OverflowCore core) {
  switch (core) {
    case formats::OverflowCore::AiCore:
      return "AI Core";
    case formats::OverflowCore::AiVector:
      return "AI Vector";
    case formats::OverflowCore::AiCpu:
      return "AI CPU";
    case formats::OverflowCore::Sdma:
      return "SDMA";
    case formats::OverflowCore::DhaAtomicAdd:
      return "DHA atomic add";
    case formats::OverflowCore::L2AtomicAdd:
      return "L2 atomic add";
  }
  return "";
}

using Folder = std::tuple<int, std::string, std::string, int64_t, int64_t>;
Folder folder_of(const GeFile& file) {
  const GeFolder& place = file.place;
  return {place.rank, place.device, place.model_name, place.model_id, place.token};
}

class Findings {
 public:
  Findings(const std::vector<GeFile>& files, Run* run) : files_(files), run_(run) {}

  void add() {
    for (const GeFile& file : files_) {
      if (file.name.kind == GeFileKind::Overflow && !file.name.statistics) add_overflow(file);
      if (file.name.kind == GeFileKind::Exception && !file.name.statistics) add_exception(file);
    }
    add_changes();
  }

 private:
  void warn(const Error& error) { run_->warnings.push_back(error.describe()); }

  // ---- overflow ----

  void add_overflow(const GeFile& file) {
    std::shared_ptr<const Container> keeps_mapped;
    const Result<CannDump> dump = read_dump(file.path, &keeps_mapped);
    if (!dump) return warn(dump.error());
    if (dump->outputs.empty()) {
      run_->warnings.push_back(file.path + ": an overflow report without an output");
      return;
    }
    const auto report = in_file(file.path, formats::read_overflow_report(dump->outputs[0].data));
    if (!report) return warn(report.error());
    for (const formats::OverflowEntry& entry : report->entries) {
      std::string text = "overflow, " + step_text(file.place) + operator_of(file, entry);
      std::string causes;
      for (const std::string& cause : formats::overflow_causes(entry))
        causes += (causes.empty() ? ": " : "; ") + cause;
      run_->findings.push_back(text + " (" + std::string(core_name(entry.core)) + ", task " +
                               std::to_string(entry.task_id) + ", stream " +
                               std::to_string(entry.stream_id) + ")" + causes);
    }
  }

  /// The number of the task is in the report, not in the name of its file.
  std::string operator_of(const GeFile& report, const formats::OverflowEntry& entry) const {
    const GeFile* found = nullptr;
    for (const GeFile& file : files_) {
      if (file.name.kind != GeFileKind::Operator || !file.watched.empty() ||
          folder_of(file) != folder_of(report) || file.name.task != entry.task_id)
        continue;
      const bool same_stream = file.name.stream == entry.stream_id;
      if (found == nullptr || same_stream) found = &file;
      if (same_stream) break;
    }
    return found == nullptr ? "an operator without a file" : found->name.op_name;
  }

  // ---- failures ----

  void add_exception(const GeFile& file) {
    std::shared_ptr<const Container> keeps_mapped;
    const Result<CannDump> dump = read_dump(file.path, &keeps_mapped);
    if (!dump) return warn(dump.error());
    const std::string& name = dump->op_name.empty() ? file.name.op_name : dump->op_name;
    run_->findings.push_back(step_text(file.place) + name + " failed" +
                             (dump->message.empty() ? "" : ": " + dump->message));
  }

  // ---- trampled outputs ----

  /// For each watched operator its own file, then what its outputs were after others, in time.
  void add_changes() {
    std::map<std::pair<Folder, std::string>, std::vector<const GeFile*>> looks;
    for (const GeFile& file : files_) {
      if (!file.watched.empty()) looks[{folder_of(file), file.watched}].push_back(&file);
    }
    for (auto& [key, again] : looks) {
      std::stable_sort(again.begin(), again.end(), [](const GeFile* a, const GeFile* b) {
        return natural_less(a->name.time, b->name.time);
      });
      const auto own = std::find_if(files_.begin(), files_.end(), [&key](const GeFile& file) {
        return file.watched.empty() && file.name.op_name == key.second &&
               folder_of(file) == key.first;
      });
      const GeFile* before = &*own;
      for (const GeFile* look : again) {
        if (const auto output = first_change(*before, *look)) {
          run_->findings.push_back(step_text(look->place) + "output " + *output + " of " +
                                   key.second + " was changed by " + look->after + " (" +
                                   look->name.op_name + ")");
        }
        before = look;
      }
    }
  }

  /// Which output differs, "0"; nothing when all are equal.
  std::optional<std::string> first_change(const GeFile& before, const GeFile& after) {
    const bool statistics = before.name.statistics && after.name.statistics;
    return statistics ? first_other_statistic(before, after) : first_other_bytes(before, after);
  }

  std::optional<std::string> first_other_bytes(const GeFile& before, const GeFile& after) {
    std::shared_ptr<const Container> first_mapped;
    std::shared_ptr<const Container> second_mapped;
    const Result<CannDump> first = read_dump(before.path, &first_mapped);
    const Result<CannDump> second = read_dump(after.path, &second_mapped);
    if (!first || !second) {
      warn((first ? second : first).error());
      return std::nullopt;
    }
    const size_t count = std::min(first->outputs.size(), second->outputs.size());
    for (size_t i = 0; i < count; ++i) {
      const formats::CannTensor& a = first->outputs[i];
      const formats::CannTensor& b = second->outputs[i];
      if (!a.problem.empty() || !b.problem.empty()) continue;
      if (!std::equal(a.data.begin(), a.data.end(), b.data.begin(), b.data.end()))
        return std::to_string(formats::cann_operand_index(*first, a, i));
    }
    return std::nullopt;
  }

  std::optional<std::string> first_other_statistic(const GeFile& before, const GeFile& after) {
    const auto first = list_ge_members(before, &run_->warnings);
    const auto second = list_ge_members(after, &run_->warnings);
    if (!first || !second) {
      warn((first ? second : first).error());
      return std::nullopt;
    }
    for (const TensorRecord& a : *first) {
      for (const TensorRecord& b : *second) {
        const bool same_slot = a.role == Role::Output && b.role == Role::Output && a.slot == b.slot;
        if (same_slot && a.stats && b.stats && !same_stats(*a.stats, *b.stats)) return a.slot;
      }
    }
    return std::nullopt;
  }

  static bool same_stats(const stats::TensorStats& a, const stats::TensorStats& b) {
    const auto same = [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); };
    return a.count == b.count && a.nan_count == b.nan_count &&
           a.positive_inf_count == b.positive_inf_count &&
           a.negative_inf_count == b.negative_inf_count && same(a.min, b.min) &&
           same(a.max, b.max) && same(a.mean, b.mean) && same(a.l2_norm, b.l2_norm);
  }

  const std::vector<GeFile>& files_;
  Run* run_;
};

}  // namespace

void add_ge_findings(const std::vector<GeFile>& files, Run* run) { Findings(files, run).add(); }

}  // namespace assay::run::sources
