// SPDX-License-Identifier: Apache-2.0
// Source: Ascend/msit: msit/components/llm/msit_llm/metrics/metrics.py, which takes words from
// jieba, BLEU from nltk and ROUGE from rouge_chinese
#include "measure/text_metrics.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/numbers.hpp"
#include "base/text.hpp"

namespace assay::measure {
namespace {

using Words = std::vector<std::string>;
using Kind = CaseMetric::Kind;

// ---- characters and words ----

/// The characters of a text, each as its UTF-8 bytes.
Words characters_of(std::string_view text) {
  const std::string valid = repair_utf8(text);
  Words characters;
  for (size_t i = 0; i < valid.size();) {
    size_t end = i + 1;
    while (end < valid.size() && (static_cast<unsigned char>(valid[end]) & 0xC0) == 0x80) ++end;
    characters.push_back(valid.substr(i, end - i));
    i = end;
  }
  return characters;
}

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }
bool is_alphanumeric(char letter) {
  return is_digit(letter) || (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
}
bool is_space(std::string_view character) {
  return character.find_first_not_of(" \t\n\r\f\v") == std::string_view::npos;
}

/// Punctuation that takes no part in rates and BLEU. The two wide ones are U+3002 and U+FF0C.
Words counted_words(std::string_view text) {
  Words words = words_of(text);
  std::erase_if(words, [](const std::string& word) {
    for (const std::string_view left_out :
         {".", ",", "\xE3\x80\x82", "\xEF\xBC\x8C", " ", "(", ")", "\"", "'"}) {
      if (word == left_out) return true;
    }
    return false;
  });
  return words;
}

/// Letters, digits, blanks and the common Chinese characters U+4E00 to U+9FA5.
bool is_normal(const std::string& word) {
  if (word.size() == 3 && word >= "\xE4\xB8\x80" && word <= "\xE9\xBE\xA5") return true;
  return is_space(word) || std::all_of(word.begin(), word.end(), is_alphanumeric);
}

/// The words that ROUGE sees: dots end sentences, also inside numbers, and blanks only separate.
Words rouge_words(std::string_view text) {
  Words words;
  for (const std::string& word : words_of(text)) {
    if (is_space(word)) continue;
    for (const std::string_view part : split(word, '.')) {
      if (!part.empty()) words.emplace_back(part);
    }
  }
  return words;
}

std::vector<Words> groups_of(const Words& words, size_t size) {
  std::vector<Words> groups;
  for (size_t i = 0; i + size <= words.size(); ++i) {
    groups.emplace_back(words.begin() + static_cast<std::ptrdiff_t>(i),
                        words.begin() + static_cast<std::ptrdiff_t>(i + size));
  }
  return groups;
}

// ---- metrics ----

double edit_distance(const Words& a, const Words& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = a[i - 1] == b[j - 1] ? diagonal : std::min({diagonal, above, row[j - 1]}) + 1;
      diagonal = above;
    }
  }
  return static_cast<double>(row[b.size()]);
}

Error no_words() { return {Errc::Invalid, {}, std::nullopt, "the text has too few words"}; }

Result<double> abnormal_rate(std::string_view text) {
  constexpr double kSmallestRate = 0.0001;  // instead of 0, so that rates can be divided
  const Words words = counted_words(text);
  if (words.empty()) return fail(no_words());
  const auto abnormal =
      std::count_if(words.begin(), words.end(), [](const auto& word) { return !is_normal(word); });
  const double rate = static_cast<double>(abnormal) / static_cast<double>(words.size());
  return rate == 0 ? kSmallestRate : rate;
}

Result<double> distinct_rate(std::string_view text, int size) {
  const std::vector<Words> groups = groups_of(counted_words(text), static_cast<size_t>(size));
  if (groups.empty()) return fail(no_words());
  const std::set<Words> unique(groups.begin(), groups.end());
  return static_cast<double>(unique.size()) / static_cast<double>(groups.size());
}

/// Groups of `output` that `expected` has, each at most as often as there.
size_t clipped_count(const std::vector<Words>& output, const std::vector<Words>& expected) {
  std::map<Words, size_t> left;
  for (const Words& group : expected) ++left[group];
  size_t count = 0;
  for (const Words& group : output) {
    const auto found = left.find(group);
    if (found == left.end() || found->second == 0) continue;
    --found->second;
    ++count;
  }
  return count;
}

/// Precision of the groups of one size times the brevity penalty; 0 when no single word agrees.
double bleu(const Words& output, const Words& expected, int size) {
  if (clipped_count(groups_of(output, 1), groups_of(expected, 1)) == 0) return 0;
  const std::vector<Words> groups = groups_of(output, static_cast<size_t>(size));
  const size_t agreeing = clipped_count(groups, groups_of(expected, static_cast<size_t>(size)));
  if (agreeing == 0) return 0;
  const double precision = static_cast<double>(agreeing) / static_cast<double>(groups.size());
  const double penalty = output.size() > expected.size()
                             ? 1.0
                             : std::exp(1.0 - static_cast<double>(expected.size()) /
                                                  static_cast<double>(output.size()));
  return penalty * precision;
}

double f_score(double common, double output_count, double expected_count) {
  const double precision = output_count == 0 ? 0 : common / output_count;
  const double recall = expected_count == 0 ? 0 : common / expected_count;
  return precision + recall == 0 ? 0 : 2 * precision * recall / (precision + recall);
}

/// F of the different groups, however often each one stands.
double rouge(const Words& output, const Words& expected, int size) {
  const auto set_of = [&](const Words& words) {
    const std::vector<Words> groups = groups_of(words, static_cast<size_t>(size));
    return std::set<Words>(groups.begin(), groups.end());
  };
  const std::set<Words> a = set_of(output);
  const std::set<Words> b = set_of(expected);
  const auto common =
      std::count_if(a.begin(), a.end(), [&](const Words& group) { return b.contains(group); });
  return f_score(static_cast<double>(common), static_cast<double>(a.size()),
                 static_cast<double>(b.size()));
}

/// F of the longest common subsequence.
double rouge_l(const Words& a, const Words& b) {
  std::vector<size_t> row(b.size() + 1, 0);
  for (const std::string& word : a) {
    size_t diagonal = 0;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = word == b[j - 1] ? diagonal + 1 : std::max(above, row[j - 1]);
      diagonal = above;
    }
  }
  return f_score(static_cast<double>(row[b.size()]), static_cast<double>(a.size()),
                 static_cast<double>(b.size()));
}

constexpr CaseMetric kMetrics[] = {
    {"accuracy", Kind::Accuracy, 1, 1, 1},
    {"rouge", Kind::Rouge, 1, 0.4, 1},
    {"rouge_1", Kind::Rouge, 1, 0.4, 1},
    {"rouge_2", Kind::Rouge, 2, 0.4, 1},
    {"rouge_l", Kind::RougeL, 1, 0.4, 1},
    {"bleu", Kind::Bleu, 1, 0.4, 1},
    {"bleu_1", Kind::Bleu, 1, 0.4, 1},
    {"bleu_2", Kind::Bleu, 2, 0.4, 1},
    {"bleu_3", Kind::Bleu, 3, 0.4, 1},
    {"bleu_4", Kind::Bleu, 4, 0.4, 1},
    {"edit_distance", Kind::EditDistance, 1, 5, HUGE_VAL},
    {"relative_abnormal", Kind::RelativeAbnormal, 1, 1.2, HUGE_VAL},
    {"relative_distinct", Kind::RelativeDistinct, 2, 0.8, HUGE_VAL},
    {"relative_distinct_1", Kind::RelativeDistinct, 1, 0.8, HUGE_VAL},
    {"relative_distinct_2", Kind::RelativeDistinct, 2, 0.8, HUGE_VAL},
    {"relative_distinct_3", Kind::RelativeDistinct, 3, 0.8, HUGE_VAL},
    {"relative_distinct_4", Kind::RelativeDistinct, 4, 0.8, HUGE_VAL},
};

Error unknown_metric(std::string_view name) {
  std::string names;
  for (const CaseMetric& row : kMetrics)
    names += (names.empty() ? "" : ", ") + std::string(row.name);
  return {Errc::Usage,
          {},
          std::nullopt,
          "'" + std::string(name) + "' is not supported. Please choose from " + names};
}

}  // namespace

bool CaseMetric::is_integer() const { return kind == Kind::Accuracy || kind == Kind::EditDistance; }

bool CaseMetric::is_small_good() const {
  return kind == Kind::EditDistance || kind == Kind::RelativeAbnormal;
}

bool CaseMetric::passes(double score) const {
  return is_small_good() ? score <= threshold : score >= threshold;
}

std::span<const CaseMetric> case_metrics() { return kMetrics; }

Result<CaseMetric> parse_case_metric(std::string_view text) {
  const size_t equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  const auto* row = std::find_if(std::begin(kMetrics), std::end(kMetrics),
                                 [&](const CaseMetric& metric) { return metric.name == name; });
  if (row == std::end(kMetrics)) return fail(unknown_metric(name));
  CaseMetric metric = *row;
  if (equals == std::string_view::npos) return metric;
  const std::optional<double> limit = parse_number<double>(text.substr(equals + 1));
  if (!limit || !(*limit >= 0) || *limit > row->largest_threshold) {
    return fail(Errc::Usage, "the limit of '" + std::string(text) + "' is not a number from 0" +
                                 (std::isinf(row->largest_threshold) ? " on" : " to 1"));
  }
  metric.threshold = *limit;
  return metric;
}

std::vector<std::string> words_of(std::string_view text) {
  const Words characters = characters_of(text);
  Words words;
  for (size_t i = 0; i < characters.size();) {
    const auto at = [&](size_t place) {
      return place < characters.size() ? characters[place][0] : '\0';
    };
    std::string word = characters[i++];
    if (is_alphanumeric(word[0])) {
      while (is_alphanumeric(at(i))) word += characters[i++];
      if (at(i) == '.' && is_digit(at(i + 1))) {
        word += characters[i++];
        while (is_digit(at(i))) word += characters[i++];
      }
      if (at(i) == '%') word += characters[i++];
    }
    words.push_back(std::move(word));
  }
  return words;
}

Result<double> case_score(const CaseMetric& metric, std::string_view output,
                          std::string_view expected) {
  switch (metric.kind) {
    case Kind::Accuracy:
      return output == expected ? 1.0 : 0.0;
    case Kind::EditDistance:
      return edit_distance(characters_of(output), characters_of(expected));
    case Kind::RelativeAbnormal: {
      ASSAY_TRY(const double of_output, abnormal_rate(output));
      ASSAY_TRY(const double of_expected, abnormal_rate(expected));
      return of_output / of_expected;
    }
    case Kind::RelativeDistinct: {
      ASSAY_TRY(const double of_output, distinct_rate(output, metric.words));
      ASSAY_TRY(const double of_expected, distinct_rate(expected, metric.words));
      return of_output / of_expected;
    }
    case Kind::Bleu:
      return bleu(counted_words(output), counted_words(expected), metric.words);
    case Kind::Rouge:
    case Kind::RougeL:
      break;
  }
  const Words a = rouge_words(output);
  const Words b = rouge_words(expected);
  if (a.empty() || b.empty()) return fail(no_words());
  return metric.kind == Kind::RougeL ? rouge_l(a, b) : rouge(a, b, metric.words);
}

}  // namespace assay::measure
