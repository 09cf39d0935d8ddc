// SPDX-License-Identifier: Apache-2.0
// Every token gets a key of its id, its position and all tokens before it; equal keys of two runs
// are one token. Columns of a batch are keyed together, and from rows in common follows which rows
// of a module's tensors belong together.
#include "pair/step_tokens.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "pair/operand.hpp"
#include "pair/places.hpp"
#include "pair/ranks.hpp"
#include "pair/slices.hpp"
#include "run/common_names.hpp"

namespace assay::pair {
namespace {

using run::Run;
using run::TensorRecord;

/// The table that tokens' ids are looked up in, by the names that families have for it.
bool is_embedding(std::string_view node) {
  constexpr std::string_view kNames[] = {"embed_tokens", "wte", "word_embeddings", "embed_in",
                                         "tok_embeddings"};
  const std::string_view last = node.substr(node.rfind('.') + 1);
  return std::ranges::find(kNames, last) != std::end(kNames);
}

/// What is captured of one step's tokens.
struct Embedded {
  std::optional<size_t> ids;  // records
  std::optional<size_t> positions;
  std::optional<size_t> mask;  // [sequences, tokens so far]
  int64_t rows = 0;            // of the embedding's output
};

std::map<int64_t, Embedded> embedded_steps(const Run& run, int rank) {
  std::map<int64_t, Embedded> steps;
  std::string_view embedding;
  for (size_t i = 0; i < run.records.size(); ++i) {
    const TensorRecord& record = run.records[i];
    if (record.rank != rank || record.kind != run::RecordKind::Operand || !record.value.empty())
      continue;
    if (record.is_of_operator()) continue;
    const bool input = record.role == Role::Input;
    if (!input && record.role != Role::Output) continue;
    if (input && record.bytes && record.slot.ends_with("position_ids")) {
      std::optional<size_t>& positions = steps[record.step].positions;
      if (!positions) positions = i;
    }
    if (input && record.bytes && record.slot.ends_with("attention_mask") && record.shape &&
        record.shape->size() == 2 && !steps[record.step].mask)
      steps[record.step].mask = i;
    if (record.call > 0 || !is_embedding(record.node)) continue;
    // An encoder beside a decoder: neither's tokens are the step's.
    if (!embedding.empty() && embedding != record.node) return {};
    embedding = record.node;
    const std::optional<Dims> shape = shape_of_record(record);
    if (!shape || shape->empty()) continue;
    Embedded& step = steps[record.step];
    if (!input) {
      step.rows = element_count(*shape).value_or(0) / std::max<int64_t>(shape->span().back(), 1);
    } else if (record.bytes && !step.ids && element_count(*shape).value_or(0) > 0) {
      step.ids = i;
    }
  }
  return steps;
}

/// The first position of a step, where its tokens follow each other and all sequences are alike.
std::optional<int64_t> first_position(const std::vector<int64_t>& positions, int64_t rows,
                                      int64_t padding) {
  if (rows <= padding || positions.empty() || static_cast<int64_t>(positions.size()) % rows != 0)
    return std::nullopt;
  const int64_t first = positions[static_cast<size_t>(padding)];
  for (size_t i = 0; i < positions.size(); ++i) {
    const int64_t at = static_cast<int64_t>(i) % rows - padding;
    if (at >= 0 && positions[i] != first + at) return std::nullopt;
  }
  return first;
}

/// How many of the step's rows a mask hides in front of the text, the same of all sequences; 0 where
/// it hides others, too.
int64_t padding_of(const std::vector<int64_t>& mask, const StepTokens& step) {
  const int64_t seen = static_cast<int64_t>(mask.size()) / step.sequences;
  const auto shown = std::ranges::find_if(mask, [](int64_t value) { return value != 0; });
  const int64_t hidden = shown - mask.begin();
  if (seen < step.length() || hidden >= seen) return 0;
  for (size_t i = 0; i < mask.size(); ++i) {
    if ((mask[i] != 0) != (static_cast<int64_t>(i) % seen >= hidden)) return 0;
  }
  return std::max<int64_t>(hidden - (seen - step.length()), 0);
}

constexpr uint64_t kStart = 0x9e3779b97f4a7c15;

uint64_t mixed(uint64_t key, int64_t number) {
  key ^= static_cast<uint64_t>(number) + kStart + (key << 6) + (key >> 2);
  key *= 0xff51afd7ed558ccd;
  return key ^ (key >> 33);
}

/// The columns of a batch, each with the tokens of all its sequences.
std::vector<uint64_t> column_keys(const StepTokens& step, const std::vector<uint64_t>& tokens) {
  std::vector<uint64_t> columns(static_cast<size_t>(step.length()), mixed(kStart, step.sequences));
  for (size_t i = 0; i < tokens.size(); ++i) {
    uint64_t& column = columns[i % columns.size()];
    column = mixed(column, static_cast<int64_t>(tokens[i]));
  }
  return columns;
}

/// The keys of the columns of every step.
using StepColumns = std::vector<std::vector<uint64_t>>;

StepColumns columns_of(const std::vector<StepTokens>& steps, const TokenKeys& keys) {
  StepColumns columns;
  for (size_t i = 0; i < steps.size(); ++i) columns.push_back(column_keys(steps[i], keys.steps[i]));
  return columns;
}

struct Column {
  size_t step = 0;  // index
  int64_t column = 0;
};

std::map<uint64_t, Column> first_places(const StepColumns& steps) {
  std::map<uint64_t, Column> places;
  for (size_t step = 0; step < steps.size(); ++step) {
    for (size_t i = 0; i < steps[step].size(); ++i)
      places.try_emplace(steps[step][i], Column{step, static_cast<int64_t>(i)});
  }
  return places;
}

bool has_all_ids(const std::vector<StepTokens>& steps) {
  return !steps.empty() && std::ranges::all_of(steps, &StepTokens::ids);
}

/// Steps of both runs with one number hold as many tokens, as far as that is known.
bool counts_agree(const std::vector<StepTokens>& golden, const std::vector<StepTokens>& mine) {
  for (const StepTokens& one : golden) {
    const auto other = std::ranges::find(mine, one.step, &StepTokens::step);
    if (other != mine.end() && other->tokens.size() != one.tokens.size()) return false;
  }
  return true;
}

bool steps_agree(const std::vector<StepTokens>& golden, const StepColumns& golden_columns,
                 const std::vector<StepTokens>& mine, const StepColumns& mine_columns) {
  for (size_t i = 0; i < golden.size(); ++i) {
    const auto other = std::ranges::find(mine, golden[i].step, &StepTokens::step);
    if (other == mine.end()) continue;
    if (golden[i].padding != other->padding ||
        golden_columns[i] != mine_columns[static_cast<size_t>(other - mine.begin())])
      return false;
  }
  return true;
}

int64_t context_of(const StepTokens& step) {
  const int64_t last = step.tokens.empty() ? -1 : step.tokens.back().position;
  return last + 1;
}

std::vector<StepRows> common_rows(const std::vector<StepTokens>& golden,
                                  const StepColumns& golden_columns,
                                  const std::vector<StepTokens>& mine,
                                  const StepColumns& mine_columns) {
  const std::map<uint64_t, Column> places = first_places(mine_columns);
  std::map<std::pair<size_t, size_t>, StepRows> found;
  for (const auto& [key, at] : first_places(golden_columns)) {
    const auto other = places.find(key);
    if (other == places.end()) continue;
    StepRows& rows = found[{at.step, other->second.step}];
    rows.golden.push_back(at.column);
    rows.mine.push_back(other->second.column);
  }
  std::vector<StepRows> out;
  for (auto& [steps, rows] : found) {
    // A token's place in the sequence orders both sides alike.
    std::ranges::sort(rows.golden);
    std::ranges::sort(rows.mine);
    const StepTokens& g = golden[steps.first];
    const StepTokens& m = mine[steps.second];
    for (int64_t& row : rows.golden) row += g.padding;
    for (int64_t& row : rows.mine) row += m.padding;
    rows.golden_step = g.step;
    rows.mine_step = m.step;
    rows.golden_count = g.padding + g.length();
    rows.mine_count = m.padding + m.length();
    rows.golden_context = context_of(g);
    rows.mine_context = context_of(m);
    rows.sequences = g.sequences;
    out.push_back(std::move(rows));
  }
  return out;
}

std::string count_text(int64_t tokens) {
  return " (" + std::to_string(tokens) + (tokens == 1 ? " token)" : " tokens)");
}

std::string describe(const std::vector<StepRows>& rows) {
  std::string text =
      "the runs cut their tokens into steps differently: steps are paired by the tokens' ids and "
      "positions";
  const auto odd = std::ranges::find_if(rows, [](const StepRows& one) {
    return one.golden_step != one.mine_step || !one.is_whole();
  });
  if (odd == rows.end()) return text;
  std::set<int64_t> steps;
  int64_t tokens = 0;
  for (const StepRows& one : rows) {
    if (one.golden_step == odd->golden_step && steps.insert(one.mine_step).second)
      tokens += one.mine_count;
  }
  text += ", golden's step " + std::to_string(odd->golden_step) + count_text(odd->golden_count) +
          " with the run under test's ";
  text += steps.size() == 1 ? "step " + std::to_string(*steps.begin())
                            : "steps " + std::to_string(*steps.begin()) + " to " +
                                  std::to_string(*steps.rbegin());
  return text + count_text(tokens);
}

/// How many different columns of a run's steps no pair has.
size_t unpaired(const StepColumns& columns, size_t paired) {
  std::set<uint64_t> tokens;
  for (const auto& step : columns) tokens.insert(step.begin(), step.end());
  return tokens.size() - std::min(paired, tokens.size());
}

std::vector<int64_t> counted(int64_t count) {
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), int64_t{0});
  return numbers;
}

}  // namespace

std::vector<StepTokens> torch_steps(const Run& run, std::optional<int> rank) {
  std::vector<StepTokens> out;
  int64_t next = 0;  // position
  for (const auto& [number, record] : embedded_steps(run, rank.value_or(first_rank(run)))) {
    StepTokens step{.step = number};
    const auto values_of = [&](const std::optional<size_t>& values) {
      return values ? integer_values(run.records[*values]) : std::nullopt;
    };
    const auto ids = values_of(record.ids);
    step.ids = ids.has_value();
    if (record.ids) {
      const std::optional<Dims> shape = shape_of_record(run.records[*record.ids]);
      if (shape && shape->size() == 2) step.sequences = std::max<int64_t>((*shape)[0], 1);
    }
    step.tokens.resize(ids ? ids->size() : static_cast<size_t>(record.rows));
    if (step.tokens.empty()) continue;
    const int64_t rows = step.length();
    if (const auto mask = values_of(record.mask); mask && ids)
      step.padding = padding_of(*mask, step);
    const int64_t length = rows - step.padding;
    step.tokens.resize(static_cast<size_t>(step.sequences * length));
    const auto positions = values_of(record.positions);
    const int64_t first =
        (positions ? first_position(*positions, rows, step.padding) : std::nullopt).value_or(next);
    for (size_t i = 0; i < step.tokens.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      step.tokens[i].position = first + at % length;
      step.tokens[i].sequence = at / length;
      if (ids)
        step.tokens[i].token =
            (*ids)[static_cast<size_t>(at / length * rows + step.padding + at % length)];
    }
    next = first + length;
    out.push_back(std::move(step));
  }
  return out;
}

TokenKeys token_keys(const std::vector<StepTokens>& steps, bool history) {
  TokenKeys keys;
  std::map<std::pair<int64_t, int64_t>, uint64_t> so_far;  // by sequence and position
  for (const StepTokens& step : steps) {
    std::vector<uint64_t>& of_step = keys.steps.emplace_back();
    for (const PlacedToken& one : step.tokens) {
      uint64_t before = kStart;
      if (one.position > 0) {
        const auto found = so_far.find({one.sequence, one.position - 1});
        if (found == so_far.end()) keys.from_start = false;
        if (found != so_far.end() && history) before = found->second;
      } else if (one.position < 0) {
        keys.from_start = false;
      }
      const uint64_t key = mixed(mixed(before, one.position), one.token);
      so_far.insert_or_assign({one.sequence, one.position}, key);
      of_step.push_back(key);
    }
  }
  return keys;
}

bool hold_sequences(const std::vector<StepTokens>& steps) {
  return std::ranges::any_of(steps, [](const StepTokens& step) {
    if (step.sequences > 1) return true;
    for (size_t i = 1; i < step.tokens.size(); ++i) {
      const int64_t before = step.tokens[i - 1].position;
      const int64_t position = step.tokens[i].position;
      if (before >= 0 && position >= 0 && position != before + 1) return true;
    }
    return false;
  });
}

namespace {

/// Sequences that graphs computed so far, each with the key of every position.
class Sequences {
 public:
  explicit Sequences(const std::set<uint64_t>& wanted) : wanted_(wanted) {}

  std::vector<uint64_t> add(const StepTokens& graph) {
    std::vector<uint64_t> keys(graph.tokens.size());
    std::vector<bool> known(graph.tokens.size());
    touched_.clear();
    // Tokens that stand alone may belong to any sequence of that length: those that are looked for
    // choose first.
    for (const bool choose : {true, false}) {
      size_t before = kNoSequence;
      for (size_t i = 0; i < graph.tokens.size(); ++i) {
        const PlacedToken& token = graph.tokens[i];
        const bool follows = i > 0 && token.position == graph.tokens[i - 1].position + 1;
        if (!known[i]) {
          const size_t sequence = find(token, follows ? before : kNoSequence, choose);
          if (sequence == kNoSequence) {
            before = kNoSequence;
            continue;
          }
          keys[i] = put(sequence, token);
          known[i] = true;
          owner_[i] = sequence;
        }
        before = owner_[i];
      }
    }
    owner_.clear();
    return keys;
  }

 private:
  static constexpr size_t kNoSequence = static_cast<size_t>(-1);

  [[nodiscard]] uint64_t key_in(size_t sequence, const PlacedToken& token) const {
    const uint64_t before =
        token.position > 0 ? sequences_[sequence][static_cast<size_t>(token.position) - 1] : kStart;
    return mixed(mixed(before, token.position), token.token);
  }

  /// before   sequence of the token in front of it, when that is at the position before
  /// choose   only sequences in which the token is one of those that are wanted
  size_t find(const PlacedToken& token, size_t before, bool choose) {
    const auto length = static_cast<int64_t>(token.position);
    const auto fits = [&](size_t sequence) {
      return static_cast<int64_t>(sequences_[sequence].size()) >= length &&
             (!choose || wanted_.contains(key_in(sequence, token)));
    };
    if (length < 0) return kNoSequence;
    if (before != kNoSequence && fits(before)) return before;
    if (length == 0) {
      sequences_.emplace_back();
      if (fits(sequences_.size() - 1)) return sequences_.size() - 1;
      sequences_.pop_back();
      return kNoSequence;
    }
    for (const bool exact : {true, false}) {
      for (size_t i = sequences_.size(); i-- > 0;) {
        const bool ends_here = static_cast<int64_t>(sequences_[i].size()) == length;
        if ((ends_here || !exact) && !touched_.contains(i) && fits(i)) return i;
      }
    }
    if (choose) return kNoSequence;
    // Its beginning was not captured.
    sequences_.emplace_back(static_cast<size_t>(length), kStart);
    return sequences_.size() - 1;
  }

  uint64_t put(size_t sequence, const PlacedToken& token) {
    const uint64_t key = key_in(sequence, token);
    sequences_[sequence].resize(static_cast<size_t>(token.position));
    sequences_[sequence].push_back(key);
    touched_.insert(sequence);
    return key;
  }

  const std::set<uint64_t>& wanted_;
  std::vector<std::vector<uint64_t>> sequences_;
  std::set<size_t> touched_;        // by the graph
  std::map<size_t, size_t> owner_;  // sequence of each token of the graph
};

}  // namespace

TokenKeys sequence_keys(const std::vector<StepTokens>& graphs, const std::set<uint64_t>& wanted) {
  constexpr int64_t kMaxPosition = int64_t{1} << 24;  // of a file that is not to be trusted
  TokenKeys keys;
  Sequences sequences(wanted);
  for (const StepTokens& graph : graphs) {
    const bool sane = std::ranges::all_of(
        graph.tokens, [&](const PlacedToken& one) { return one.position < kMaxPosition; });
    keys.from_start &= sane;
    keys.steps.push_back(sane ? sequences.add(graph) : std::vector<uint64_t>(graph.tokens.size()));
  }
  return keys;
}

bool StepRows::is_whole() const {
  return golden_count == mine_count && static_cast<int64_t>(golden.size()) == golden_count &&
         golden == mine;
}

namespace {

bool same_ids(const StepTokens& a, const StepTokens& b) {
  return std::ranges::equal(a.tokens, b.tokens, {}, &PlacedToken::token, &PlacedToken::token);
}

/// Steps in front of the run under test's text: an engine runs once or more on placeholders.
/// Without captured positions the text would seem to go on behind them. Takes them away and returns
/// how many they were.
size_t drop_dry_runs(const std::vector<StepTokens>& golden, std::vector<StepTokens>* mine) {
  if (golden.empty() || mine->empty() || same_ids(golden.front(), mine->front())) return 0;
  const auto is_text = [&](size_t first) {
    const size_t count = std::min(golden.size(), mine->size() - first);
    for (size_t i = 0; i < count; ++i) {
      if (!same_ids(golden[i], (*mine)[first + i])) return false;
    }
    return count > 0;
  };
  size_t first = 1;
  while (first < mine->size() && !is_text(first)) ++first;
  if (first >= mine->size() || golden.front().tokens.empty()) return 0;
  mine->erase(mine->begin(), mine->begin() + static_cast<std::ptrdiff_t>(first));
  const int64_t ahead =
      mine->front().tokens.front().position - golden.front().tokens.front().position;
  for (StepTokens& step : *mine) {
    for (PlacedToken& token : step.tokens) token.position -= ahead;
  }
  return first;
}

/// Modules that have other numbers of rows from call to call of one step.
void add_gathered(const Run& run, std::set<std::string, std::less<>>* gathered) {
  std::map<std::tuple<int, int64_t, std::string, Role, std::string_view>, int64_t> rows;
  for (const TensorRecord& record : run.records) {
    if (!is_operand(record) || record.is_of_operator() || record.step < 0 ||
        (record.role != Role::Input && record.role != Role::Output) || !record.dtype ||
        !is_float(*record.dtype))
      continue;
    const std::optional<Dims> shape = shape_of_record(record);
    if (!shape || shape->size() != 2) continue;
    std::string kind = run::layer_pattern(run::module_path(run, record.node));
    const auto [first, fresh] =
        rows.try_emplace({record.rank, record.step, kind, record.role, record.slot}, (*shape)[0]);
    if (first->second != (*shape)[0]) gathered->insert(std::move(kind));
  }
}

}  // namespace

StepAlignment align_steps(const Run& golden_run, const Run& mine_run,
                          std::optional<int> golden_rank, std::optional<int> mine_rank) {
  StepAlignment out;
  const std::vector<StepTokens> golden = torch_steps(golden_run, golden_rank);
  std::vector<StepTokens> mine = torch_steps(mine_run, mine_rank);
  if (!has_all_ids(golden) || !has_all_ids(mine)) {
    if (!counts_agree(golden, mine))
      out.notes.push_back(
          "steps of one number hold different numbers of tokens, and which tokens was not captured "
          "(the embedding's input): they are paired by number");
    return out;
  }
  const size_t dry = drop_dry_runs(golden, &mine);
  if (dry > 0)
    out.notes.push_back("the first " + std::to_string(dry) + (dry == 1 ? " step" : " steps") +
                        " of mine came before golden's text (a dry run), and " +
                        (dry == 1 ? "is" : "are") + " not compared");
  TokenKeys golden_keys = token_keys(golden);
  TokenKeys mine_keys = token_keys(mine);
  if (!golden_keys.from_start || !mine_keys.from_start) {
    golden_keys = token_keys(golden, /*history=*/false);
    mine_keys = token_keys(mine, /*history=*/false);
  }
  const StepColumns golden_columns = columns_of(golden, golden_keys);
  const StepColumns mine_columns = columns_of(mine, mine_keys);
  if (dry == 0 && steps_agree(golden, golden_columns, mine, mine_columns)) return out;
  std::vector<StepRows> rows = common_rows(golden, golden_columns, mine, mine_columns);
  // The same places of a step of the same number and length: nothing was cut otherwise, other
  // tokens follow.
  const bool regrouped = std::ranges::any_of(rows, [](const StepRows& one) {
    return one.golden_step != one.mine_step || one.golden_count != one.mine_count ||
           one.golden != one.mine;
  });
  if (!regrouped) return out;  // other prompts, or runs that go on with other tokens
  out.by_number = false;
  out.notes.push_back(describe(rows));
  size_t paired = 0;
  for (const StepRows& one : rows) paired += one.golden.size();
  for (const auto& [side, columns] :
       {std::pair("golden", &golden_columns), {"mine", &mine_columns}}) {
    const size_t left = unpaired(*columns, paired);
    if (left == 0) continue;
    if (columns == &golden_columns) out.partial = true;
    out.notes.push_back(std::to_string(left) + (left == 1 ? " token of " : " tokens of ") + side +
                        (left == 1 ? " was" : " were") + " computed by it only, and " +
                        (left == 1 ? "is" : "are") + " not compared");
  }
  out.rows = std::move(rows);
  add_gathered(golden_run, &out.gathered);
  add_gathered(mine_run, &out.gathered);
  return out;
}

bool StepAlignment::is_by_tokens(std::string_view module) const {
  return gathered.empty() || !gathered.contains(run::layer_pattern(module));
}

namespace {

/// The tokens in common, as rows of two tensors that may hold the last tokens of their steps only.
struct Kept {
  std::vector<int64_t> golden, mine;
};
Kept kept_rows(const StepRows& rows, int64_t golden_size, int64_t mine_size) {
  Kept kept;
  const int64_t golden_first = rows.golden_count - golden_size;
  const int64_t mine_first = rows.mine_count - mine_size;
  for (size_t i = 0; i < rows.golden.size(); ++i) {
    if (rows.golden[i] < golden_first || rows.mine[i] < mine_first) continue;
    kept.golden.push_back(rows.golden[i] - golden_first);
    kept.mine.push_back(rows.mine[i] - mine_first);
  }
  return kept;
}

std::vector<size_t> differing_axes(const Dims& golden, const Dims& mine) {
  std::vector<size_t> axes;
  for (size_t axis = 0; axis < golden.size(); ++axis) {
    if (golden[axis] != mine[axis]) axes.push_back(axis);
  }
  return axes;
}

/// Of tensors of equal shapes: [sequences, tokens, ...] as modules have it, else the only axis of
/// that size.
std::optional<size_t> token_axis(const StepRows& rows, const Dims& shape) {
  const auto fits = [&](size_t axis) {
    return shape[axis] == rows.golden_count && shape[axis] == rows.mine_count;
  };
  if (shape.size() >= 2 && shape.size() <= 3 && shape[0] == rows.sequences && fits(1)) return 1;
  std::optional<size_t> found;
  for (size_t axis = 0; axis + 1 < std::max<size_t>(shape.size(), 2) && axis < shape.size();
       ++axis) {
    if (!fits(axis)) continue;
    if (found) return std::nullopt;
    found = axis;
  }
  return found;
}

}  // namespace

RowSelection select_rows(const StepRows& rows, const Dims& golden, const Dims& mine) {
  RowSelection out;
  if (rows.is_whole() && golden == mine) {
    out.known = out.whole = true;
    return out;
  }
  if (golden.size() != mine.size() || golden.empty()) return out;
  const std::vector<size_t> differ = differing_axes(golden, mine);
  if (differ.size() > 1) return out;
  std::optional<size_t> axis;
  if (differ.empty()) {
    axis = token_axis(rows, golden);
  } else if (golden[differ[0]] == rows.golden_count && mine[differ[0]] == rows.mine_count) {
    axis = differ[0];
  }
  // [sequences, last tokens, channels], of a head
  if (!axis && golden.size() == 3 && (differ.empty() || differ[0] == 1) &&
      golden[0] == rows.sequences && golden[1] <= rows.golden_count && mine[1] <= rows.mine_count)
    axis = 1;
  if (!axis && !differ.empty()) {
    // Keys and values of all tokens so far: a shorter text is the beginning of the longer.
    out.axis = differ[0];
    out.known = out.keys = golden[out.axis] == rows.golden_context &&
                           mine[out.axis] == rows.mine_context && out.axis + 1 < golden.size();
    out.count = std::min(golden[out.axis], mine[out.axis]);
    return out;
  }
  if (!axis) {
    const bool has_tokens = std::ranges::any_of(golden.span(), [&](int64_t size) {
      return size == rows.golden_count || size == rows.mine_count;
    });
    out.known = out.whole = !has_tokens && golden.size() < 3;  // a table or a number, of no token
    return out;
  }
  out.known = true;
  out.axis = *axis;
  Kept kept = kept_rows(rows, golden[*axis], mine[*axis]);
  out.none = kept.golden.empty();
  out.whole = golden == mine && kept.golden == counted(golden[*axis]) && kept.mine == kept.golden;
  out.golden = std::move(kept.golden);
  out.mine = std::move(kept.mine);
  return out;
}

}  // namespace assay::pair
