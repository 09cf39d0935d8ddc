// SPDX-License-Identifier: Apache-2.0
// Pairs of all sheets become tasks first, so that a pair that several levels show is compared once.
// Rows are then computed here or elsewhere, judged, put into their sheets and noted.
#include "compare/compare.hpp"

#include <malloc.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "base/interruption.hpp"
#include "base/text.hpp"
#include "base/thread_pool.hpp"
#include "compare/comparability.hpp"
#include "compare/contradiction.hpp"
#include "compare/pair_comparer.hpp"
#include "compare/pair_loop.hpp"
#include "compare/parts.hpp"
#include "compare/pictures.hpp"
#include "pair/ranks.hpp"
#include "pair/torchair.hpp"
#include "pair/tree.hpp"
#include "run/common_names.hpp"

namespace assay::compare {
namespace {

using run::Run;
using run::TensorRecord;

bool is_list_of_run(std::string_view file) {
  return file.ends_with(".json") || file.ends_with(".jsonl") || file.ends_with("statistic.csv");
}

}  // namespace

RecordPath::RecordPath(const TensorRecord& record)
    : node_(record.node), slot_(record.slot), role_(record.role), form_(Form::Slot) {
  const auto is_text = [this](InternedText text) {
    *this = RecordPath();
    name_ = text;
  };
  if (!record.bytes) {
    name_ = record.stats_file;
    if (record.stats_file.empty()) {
      name_ = record.step_name;
      form_ = Form::Place;
    } else if (!is_list_of_run(record.stats_file)) {
      // A table of one node stands for it, as in the original; a list of a whole run is a container.
      is_text(record.stats_file);
    }
    return;
  }
  name_ = record.bytes->file;
  if (!record.bytes->member.empty()) {
    const InternedText member = record.bytes->member;
    is_text(name_);
    node_ = member;
    form_ = Form::Member;
  } else if (!record.bytes->raw || record.bytes->file.ends_with(".bin")) {
    // A file of the ATB library holds one tensor; other payloads at an offset share their file.
    is_text(name_);
  }
}

std::string RecordPath::str() const {
  if (form_ == Form::Text) return name_.str();
  const char name_end = form_ == Form::Place ? '/' : ':';
  std::string text = name_.str() + name_end + node_.str();
  if (form_ == Form::Member) return text;
  text += form_ == Form::Place ? '/' : '.';
  text += role_name(role_);
  if (!slot_.empty()) text += (form_ == Form::Place ? '_' : '.') + slot_.str();
  return text;
}

size_t RecordPath::hash() const {
  size_t mixed = static_cast<size_t>(form_) * 8 + static_cast<size_t>(role_);
  for (const InternedText part : {name_, node_, slot_})
    mixed = (mixed ^ part.handle()) * size_t{0x9E3779B97F4A7C15};
  return mixed;
}

bool holds_indices(const Row& row) {
  const auto is_index = [](std::string_view dtype) {
    return dtype == "torch.int64" || dtype == "torch.int32" || dtype == "torch.uint64" ||
           dtype == "torch.uint32";
  };
  return is_index(row.golden.dtype) && is_index(row.mine.dtype);
}

std::string_view outcome_name(Outcome outcome) {
  switch (outcome) {
    case Outcome::NotJudged:
      break;
    case Outcome::Pass:
      return "pass";
    case Outcome::Fail:
      return "fail";
  }
  return "";
}

PairKey::PairKey(const Row& row)
    : rank(row.rank),
      token_id(row.token_id),
      golden(row.golden.path),
      mine(row.mine.path),
      label(row.label) {}

size_t HashOfPairKey::operator()(const PairKey& key) const {
  size_t mixed = key.golden.hash();
  for (const size_t part : {key.mine.hash(), size_t{key.label.handle()},
                            static_cast<size_t>(key.token_id), static_cast<size_t>(key.rank)})
    mixed = (mixed ^ part) * size_t{0x9E3779B97F4A7C15};
  return mixed;
}

Comparison::Counts Comparison::counts() const {
  Counts counts;
  PairKeys known;
  for (const Sheet& sheet : sheets) {
    for (const Row& row : sheet.rows) {
      if (row.filtered) {
        ++counts.filtered;
        continue;
      }
      if (sheets.size() > 1 && !known.insert(PairKey(row)).second) continue;
      ++counts.pairs;
      counts.identical += row.identical ? 1 : 0;
      counts.unreadable += row.comparable ? 0 : 1;
      counts.failed += row.outcome == Outcome::Fail ? 1 : 0;
    }
  }
  return counts;
}

std::vector<const Row*> Comparison::worst_rows(size_t count) const {
  std::vector<std::pair<double, const Row*>> found;
  PairKeys known;
  for (const Sheet& sheet : sheets) {
    for (const Row& row : sheet.rows) {
      const double value = row.filtered ? 0 : severity(row);
      if (value > 0 && (sheets.size() == 1 || known.insert(PairKey(row)).second))
        found.emplace_back(value, &row);
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<const Row*> rows;
  known.clear();
  for (size_t i = 0; i < found.size() && rows.size() < count; ++i) {
    if (known.insert(PairKey(*found[i].second)).second) rows.push_back(found[i].second);
  }
  return rows;
}

bool Comparison::is_within_limits() const {
  const Counts counted = counts();
  return counted.failed == 0 && counted.pairs > 0 && gaps.empty();
}

const Row* Comparison::first_failed_row() const {
  const Row* first = nullptr;
  for (const Sheet& sheet : sheets) {
    for (const Row& row : sheet.rows) {
      if (row.filtered || row.outcome != Outcome::Fail) continue;
      if (first == nullptr ||
          std::tuple(row.token_id, row.order) < std::tuple(first->token_id, first->order)) {
        first = &row;
      }
    }
  }
  return first;
}

Row compare_pair(const TensorView& golden, const TensorView& mine, const CompareOptions& options) {
  Row row;
  row.matched_by = pair::Rule::Explicit;
  const std::string dtype = torch_name(mine.dtype);
  compare_pair_into(golden, mine, options, options.jobs, {"", "", "", "", dtype}, &row);
  return row;
}

void compare_pair_into(const TensorView& golden, const TensorView& mine,
                       const CompareOptions& options, int jobs, const LimitSubject& subject,
                       Row* row) {
  const Limit& limit = limit_for(options.limits, subject);
  compare_views(golden, mine, options, jobs, limit, row);
  judge(limit, row);
}

void judge_row(const CompareOptions& options, const LimitSubject& subject, Row* row) {
  judge(limit_for(options.limits, subject), row);
}

namespace {

/// A sheet before its rows are computed.
struct PlannedSheet {
  std::string name;
  int rank = -1;
  int graph = -1;
  pair::Matching matching;
  std::optional<pair::Level> level = {};
};

pair::MatchOptions match_options(const CompareOptions& options, pair::Level level) {
  pair::MatchOptions match;
  match.level = level;
  match.literal = options.conventions.pairs;
  match.statistics = options.statistics;
  match.tables = &options.tables;
  match.jobs = options.jobs;
  match.interrupted = options.interrupted;
  return match;
}

Result<std::vector<PlannedSheet>> plan_sheets(const Run& golden, const Run& mine,
                                              const pair::Correspondence& pairs,
                                              const CompareOptions& options) {
  std::vector<PlannedSheet> sheets;
  if (pair::is_torchair_pair(golden, mine)) {
    ASSAY_TRY(
        std::vector<pair::GraphMatching> graphs,
        pair::match_torchair(golden, mine, options.user, match_options(options, pair::Level::Api)));
    for (pair::GraphMatching& graph : graphs) {
      std::string name = "graph" + std::to_string(graph.graph);
      if (graph.rank >= 0) name = "rank" + std::to_string(graph.rank) + " " + name;
      sheets.push_back({name, graph.rank, graph.graph, std::move(graph.matching)});
    }
    return sheets;
  }
  for (const pair::Level level : options.levels) {
    ASSAY_TRY(pair::Matching matching,
              pair::match_runs(golden, mine, pairs, match_options(options, level)));
    sheets.push_back({std::string(pair::level_name(level)), -1, -1, std::move(matching), level});
  }
  return sheets;
}

void append_new(const std::vector<std::string>& from, std::vector<std::string>* to) {
  for (const std::string& text : from) {
    if (std::find(to->begin(), to->end(), text) == to->end()) to->push_back(text);
  }
}

/// What became of ranks against more or fewer of them, in one sentence for all sheets: each decides
/// for itself whether its tensors are shards.
void note_rank_group(const Run& golden, const Run& mine, const pair::RankGroup& group,
                     Comparison* out) {
  if (group.golden.size() == group.mine.size()) return;
  std::set<int> of_golden{group.golden.front()};
  std::set<int> of_mine{group.mine.front()};
  size_t merged = 0;
  std::string levels;  // that have shards
  for (const Sheet& sheet : out->sheets) {
    bool merges = false;
    const auto is_merged = [&](int32_t recipe) {
      return recipe >= 0 && sheet.matching.recipes[static_cast<size_t>(recipe)].records.size() > 1;
    };
    for (const pair::RecordPair& pair : sheet.matching.pairs) {
      const int rank = mine.records[pair.mine].rank;
      if (std::ranges::find(group.mine, rank) == group.mine.end()) continue;
      of_golden.insert(golden.records[pair.golden].rank);
      of_mine.insert(rank);
      merges = merges || is_merged(pair.golden_recipe) || is_merged(pair.mine_recipe);
    }
    if (!merges) continue;
    levels += (merged++ == 0 ? "" : " and ") + sheet.name;
  }
  const auto note = [out](std::string text) {
    if (!text.empty()) append_new({std::move(text)}, &out->notes);
  };
  const std::string counts = std::to_string(group.golden.size()) + " against " +
                             std::to_string(group.mine.size()) + " ranks: ";
  const std::string firsts = "golden's rank " + std::to_string(group.golden.front()) +
                             " and my rank " + std::to_string(group.mine.front());
  if (merged == 0) {
    note(counts + "no tensor is sharded, those of " + firsts + " are compared");
    note(pair::missing_ranks({group.golden.begin(), group.golden.end()}, of_golden, "golden"));
    note(pair::missing_ranks({group.mine.begin(), group.mine.end()}, of_mine, "mine"));
  } else if (merged == out->sheets.size()) {
    note(counts + "shards are put together");
  } else {
    note(counts + "shards are put together on level " + levels +
         "; tensors of the other levels are whole, those of " + firsts + " are compared");
  }
}

/// Processes of several runs in one folder stand as its ranks, and are none.
void note_runs(const Run& run, const std::string& side, Comparison* out) {
  const auto runs = run.properties.find("runs");
  if (runs == run.properties.end()) return;
  for (Sheet& sheet : out->sheets) sheet.matching.ranks.clear();
  append_new({side + " holds " + runs->second + " runs of " +
              counted(pair::ranks_of(run).size(), "process") +
              ", one after the other: each process is compared with the one of its place"},
             &out->notes);
}

// Of each pair, whether a pattern asks for its picture; nothing where there are no patterns.
std::vector<bool> asked_for_pictures(const Run& golden, const Run& mine,
                                     const PictureOptions& options, size_t pair_count,
                                     const std::function<const pair::RecordPair&(size_t)>& pair_of,
                                     std::vector<std::string>* notes) {
  std::vector<bool> asked_for;
  if (options.patterns.empty()) return asked_for;
  size_t matching = 0;
  for (size_t i = 0; i < pair_count; ++i) {
    const pair::RecordPair& pair = pair_of(i);
    const TensorRecord& record = mine.records[pair.mine];
    const auto path_of = [](InternedText label, const TensorRecord& of) {
      return label.empty() ? record_path(of) : label.str();
    };
    const std::string golden_path = path_of(pair.golden_label, golden_record(golden, mine, pair));
    const std::string mine_path = path_of(pair.mine_label, record);
    const std::string node = pair::shared_node_name(mine, record.node);
    const bool is_match = std::ranges::any_of(options.patterns, [&](const std::string& pattern) {
      return names_match(pattern, {golden_path, mine_path, node, "", ""});
    });
    asked_for.push_back(is_match && matching < options.most_matching);
    matching += is_match ? 1 : 0;
  }
  if (matching > options.most_matching)
    notes->push_back(std::to_string(matching) +
                     " pairs match the patterns for details; of the first " +
                     std::to_string(options.most_matching) + " of them they are kept");
  return asked_for;
}

/// The picture of a pair that is read for it.
PictureKeeper::Picture picture_of(const Run& golden, const Run& mine, const CompareOptions& options,
                                  const pair::Matching& matching, const pair::RecordPair& pair) {
  CompareOptions plain = options;
  plain.algorithms.clear();
  PictureKeeper pictures(1, {});
  (void)PairComparer(golden, mine, plain, &pictures).compare(matching, pair, 0, options.jobs);
  PictureKeeper::Picture made;
  pictures.finish(1, [&](size_t, const PictureKeeper::Picture& picture) { made = picture; });
  return made;
}

/// Names that the files of a run have for nodes whose layer or expert was numbered on.
class OwnNumbers {
 public:
  explicit OwnNumbers(const Run& run) : run_(run) {}

  /// Empty: the numbers are those of the files.
  const std::string& name_of(const TensorRecord& record) {
    const auto [known, is_new] = names_.try_emplace({record.rank, record.node.handle()});
    if (!is_new) return known->second;
    const std::string node = pair::shared_node_name(run_, record.node);
    const std::string own = run::own_name(run_, node);
    if (digits_of(own) != digits_of(node))
      known->second = own + " of rank " + std::to_string(record.rank);
    return known->second;
  }

 private:
  static std::string digits_of(std::string text) {
    std::erase_if(text, [](char c) { return c < '0' || c > '9'; });
    return text;
  }

  const Run& run_;
  std::map<std::pair<int, uint32_t>, std::string> names_;
};

/// A row whose sides have other numbers of layers or experts in their files says which.
void note_own_numbers(const Run& golden, const Run& mine, Comparison* out) {
  if (golden.own_names.empty() && mine.own_names.empty()) return;
  OwnNumbers of_golden(golden), of_mine(mine);
  for (Sheet& sheet : out->sheets) {
    for (size_t i = 0; i < sheet.rows.size(); ++i) {
      const pair::RecordPair& pair = sheet.matching.pairs[i];
      InternedText& note = sheet.rows[i].note;
      const auto add = [&](const char* side, const std::string& name) {
        if (!name.empty()) note = note.str() + (note.empty() ? "" : "; ") + side + name;
      };
      add("in golden ", of_golden.name_of(golden.records[pair.golden]));
      add("in mine ", of_mine.name_of(mine.records[pair.mine]));
    }
  }
}

Result<Comparison> compare_planned(const Run& golden, const Run& mine,
                                   std::vector<PlannedSheet> planned,
                                   const CompareOptions& options) {
  Comparison out = begin_comparison(golden, mine, options);
  out.statistics = options.statistics;
  out.order_known = mine.order_known;
  append_new(golden.warnings, &out.warnings);
  append_new(mine.warnings, &out.warnings);
  for (const std::string& finding : golden.findings) out.notes.push_back("golden: " + finding);
  for (const std::string& finding : mine.findings) out.notes.push_back("mine: " + finding);

  struct RowPlace {
    uint32_t sheet;
    uint32_t row;
  };
  std::vector<RowPlace> tasks;  // as many as rows
  size_t pair_count = 0;
  for (const PlannedSheet& plan : planned) pair_count += plan.matching.pairs.size();
  tasks.reserve(pair_count);
  // A pair that several levels look at is compared once, unless a level looks at a part of it.
  std::map<std::pair<size_t, size_t>, RowPlace> first_row;
  std::vector<std::pair<RowPlace, RowPlace>> repeated;  // (done, copy of it)
  for (PlannedSheet& plan : planned) {
    append_new(plan.matching.warnings, &out.warnings);
    append_new(plan.matching.notes, &out.notes);
    for (size_t i = 0; i < plan.matching.pairs.size(); ++i) {
      const pair::RecordPair& pair = plan.matching.pairs[i];
      const RowPlace place{static_cast<uint32_t>(out.sheets.size()), static_cast<uint32_t>(i)};
      const bool is_plain = pair.golden_recipe < 0 && pair.mine_recipe < 0;
      if (is_plain && planned.size() > 1) {
        const auto [first, is_new] = first_row.try_emplace({pair.golden, pair.mine}, place);
        if (!is_new) {
          repeated.emplace_back(first->second, place);
          continue;
        }
      }
      tasks.push_back(place);
    }
    Sheet sheet;
    sheet.name = std::move(plan.name);
    sheet.level = plan.level;
    sheet.rank = plan.rank;
    sheet.graph = plan.graph;
    sheet.rows.resize(plan.matching.pairs.size());
    sheet.matching = std::move(plan.matching);
    out.sheets.push_back(std::move(sheet));
  }

  const auto pair_of = [&](size_t task) -> const pair::RecordPair& {
    return out.sheets[tasks[task].sheet].matching.pairs[tasks[task].row];
  };
  PictureKeeper pictures(
      options.pictures.worst,
      asked_for_pictures(golden, mine, options.pictures, tasks.size(), pair_of, &out.notes));
  PairComparer comparer(golden, mine, options, pictures.is_active() ? &pictures : nullptr);
  uint64_t bytes_elsewhere = 0;
  /// task_of   the tasks that are this process' own, by 0, 1 ...
  const auto compare_here = [&](size_t count, const auto& task_of) {
    return for_each_pair(
        count, options, [&](size_t i) { return comparer.payload_bytes(pair_of(task_of(i))); },
        [&](size_t i, int threads) {
          const size_t task = task_of(i);
          Sheet& sheet = out.sheets[tasks[task].sheet];
          sheet.rows[tasks[task].row] =
              comparer.compare(sheet.matching, pair_of(task), task, threads);
        });
  };
  if (options.parts == nullptr) {
    ASSAY_TRY_STATUS(compare_here(tasks.size(), std::identity()));
  } else {
    PairsElsewhere elsewhere(golden, mine, options, comparer);
    for (size_t task = 0; task < tasks.size(); ++task) {
      Sheet& sheet = out.sheets[tasks[task].sheet];
      elsewhere.add(tasks[task].sheet, sheet.matching, pair_of(task), &sheet.rows[tasks[task].row]);
    }
    ASSAY_TRY(const std::vector<size_t> here, elsewhere.compare());
    bytes_elsewhere = elsewhere.compared_bytes();
    out.unfinished_pairs = elsewhere.unfinished();
    for (size_t task = 0; task < tasks.size() && pictures.is_active(); ++task) {
      const Sheet& sheet = out.sheets[tasks[task].sheet];
      const Row& row = sheet.rows[tasks[task].row];
      const double worse = severity(row);
      if (!row.comparable || worse == 0 || !pictures.wants(task, worse)) continue;
      pictures.keep(task, worse, 0, [&, task] {
        return picture_of(golden, mine, options, out.sheets[tasks[task].sheet].matching,
                          pair_of(task));
      });
    }
    ASSAY_TRY_STATUS(compare_here(here.size(), [&](size_t i) { return here[i]; }));
  }
  pictures.finish(options.jobs, [&](size_t task, const PictureKeeper::Picture& picture) {
    out.sheets[tasks[task].sheet].rows[tasks[task].row].picture = picture;
  });

  for (const auto& [done_place, copy] : repeated) {
    Row& row = out.sheets[copy.sheet].rows[copy.row];
    row = out.sheets[done_place.sheet].rows[done_place.row];
    const pair::RecordPair& pair = out.sheets[copy.sheet].matching.pairs[copy.row];
    const bool doubted = row.confidence == kContradictedConfidence;
    row.matched_by = pair.rule;
    row.confidence = doubted ? std::min(pair.confidence, kContradictedConfidence) : pair.confidence;
  }
  note_own_numbers(golden, mine, &out);
  int64_t data_id = 0;
  for (Sheet& sheet : out.sheets) {
    for (size_t i = 0; i < sheet.rows.size(); ++i) {
      const int64_t given = sheet.matching.pairs[i].data_id;
      sheet.rows[i].data_id = given >= 0 ? given : data_id;
      ++data_id;
    }
    // Several reports count each for itself; the sheets of one report go on counting.
    if (sheet.graph >= 0) data_id = 0;
  }
  out.compared_bytes = comparer.compared_bytes() + bytes_elsewhere;
  if (options.conventions.finish != nullptr) options.conventions.finish(golden, mine, &out);
  if (!options.conventions.trusting) out.gaps = find_damage(golden, mine);
  out.damaged = !out.gaps.empty();
  if (out.unfinished_pairs > 0)
    out.gaps.push_back("interrupted: " + std::to_string(out.unfinished_pairs) + " of " +
                       counted(tasks.size(), "pair") + " were not compared");
  return out;
}

}  // namespace

Result<Comparison> compare_runs(const run::Run& golden, const run::Run& mine,
                                const CompareOptions& options) {
  ASSAY_TRY(pair::Correspondence pairs,
            pair::correspond(golden, mine, options.user, options.engines));
  ASSAY_TRY(std::vector<PlannedSheet> sheets, plan_sheets(golden, mine, pairs, options));
  if (options.when_paired) {
    ASSAY_TRY_STATUS(options.when_paired(golden, mine, pairs));
    // Rows lie in blocks of their own, which do not use the room that small parts had before.
    ::malloc_trim(0);
  }
  ASSAY_TRY(Comparison comparison, compare_planned(golden, mine, std::move(sheets), options));
  for (const pair::RankGroup& group : pairs.ranks.groups)
    note_rank_group(golden, mine, group, &comparison);
  note_runs(golden, "golden", &comparison);
  note_runs(mine, "mine", &comparison);
  comparison.pairs = std::move(pairs);
  if (!options.conventions.trusting)
    append_new(find_gaps(golden, mine, comparison, options), &comparison.gaps);
  return comparison;
}

void add_picture(const run::Run& golden, const run::Run& mine, const CompareOptions& options,
                 Sheet* sheet, size_t row) {
  if (row >= sheet->matching.pairs.size() || sheet->rows[row].picture) return;
  if (auto picture = picture_of(golden, mine, options, sheet->matching, sheet->matching.pairs[row]))
    sheet->rows[row].picture = std::move(picture);
}

Result<Comparison> compare_manual(const run::ManualMapping& mapping,
                                  const CompareOptions& options) {
  PlannedSheet sheet;
  sheet.name = "manual";
  for (const run::ManualMapping::Pair& manual : mapping.pairs) {
    pair::RecordPair pair;
    pair.golden = manual.golden;
    pair.mine = manual.mine;
    pair.rule = pair::Rule::DumpData;
    pair.token = mapping.golden.records[manual.golden].step;
    pair.data_id = manual.data_id;
    sheet.matching.pairs.push_back(std::move(pair));
  }
  pair::Matching& matching = sheet.matching;
  matching.golden_candidates = matching.golden_matched = matching.pairs.size();
  matching.mine_candidates = matching.mine_matched = matching.pairs.size();
  std::vector<PlannedSheet> sheets;
  sheets.push_back(std::move(sheet));
  ASSAY_TRY(Comparison comparison,
            compare_planned(mapping.golden, mapping.mine, std::move(sheets), options));
  comparison.named_pairs = true;
  return comparison;
}

}  // namespace assay::compare
