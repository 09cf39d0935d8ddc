// SPDX-License-Identifier: Apache-2.0
// Looks through the command's words for env and Python switches that drop the probes' variables,
// and through the program's bytes for a name from ggml's table of operators.
#include "cli/dump/hidden_program.hpp"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <vector>

namespace assay::cli {
namespace {

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

bool is_python(std::string_view word) {
  std::string_view name = base_name(word);
  if (!name.starts_with("python") && !name.starts_with("pypy")) return false;
  name.remove_prefix(name.starts_with("python") ? 6 : 4);
  return std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return std::isdigit(c) != 0 || c == '.' || c == 't'; });
}

/// Switches that take our start-up file away: -I (isolated), -E (no PYTHON variables), -S (no
/// site), alone or among others ("-sIu").
std::string hiding_switch(const std::vector<std::string>& words, size_t first) {
  for (size_t i = first; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word.size() < 2 || word[0] != '-' || word[1] == '-') return {};
    for (const char letter : std::string_view(word).substr(1)) {
      if (letter == 'I' || letter == 'E' || letter == 'S') return word;
      if (letter == 'c' || letter == 'm') return {};  // the rest is the program's
      if (letter == 'W' || letter == 'X') {
        if (word.back() == letter) ++i;  // its value is the next word
        break;
      }
    }
  }
  return {};
}

/// "env -i", "env -", "env --ignore-environment"
bool clears_environment(const std::vector<std::string>& words, size_t first) {
  for (size_t i = first;
       i < words.size() && (words[i].starts_with('-') || words[i].find('=') != std::string::npos);
       ++i) {
    const std::string& word = words[i];
    if (word == "-" || word == "--ignore-environment") return true;
    if (!word.starts_with("--") && word.starts_with('-') && word.find('i') != std::string::npos)
      return true;
  }
  return false;
}

}  // namespace

std::string hidden_from_probes(const DumpRequest& request) {
  const std::vector<std::string>& words = request.command;
  for (size_t i = 0; i < words.size(); ++i) {
    if (base_name(words[i]) == "env" && clears_environment(words, i + 1))
      return "'" + words[i] +
             "' starts the program without the environment that carries the capture; leave -i out, "
             "or "
             "put env in front of assay";
    if (is_python(words[i]) && request.captures_torch()) {
      if (const std::string found = hiding_switch(words, i + 1); !found.empty())
        return words[i] + " " + found + " ignores the start-up file that captures PyTorch; leave " +
               found + " out";
      return {};
    }
  }
  return {};
}

bool holds_ggml(ByteSpan program) {
  // Of ggml's table of operator names: a program that only calls ggml has no use for it.
  constexpr std::string_view kText = "CROSS_ENTROPY_LOSS_BACK";
  const std::string_view bytes(reinterpret_cast<const char*>(program.data()), program.size());
  return bytes.find(kText) != std::string_view::npos;
}

}  // namespace assay::cli
