// SPDX-License-Identifier: Apache-2.0
// Words NAME=VALUE are taken from the front up to the first other word. ScopedEnvironment sets them
// and puts back what was there before, in the reverse order.
#include "cli/assignments.hpp"

#include <algorithm>
#include <cstdlib>

namespace assay::cli {
namespace {

bool is_variable_name(std::string_view text) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !text.empty() && is_letter(text[0]) && std::all_of(text.begin(), text.end(), [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9');
  });
}

}  // namespace

std::vector<std::pair<std::string, std::string>> take_assignments(
    std::vector<std::string>* command) {
  std::vector<std::pair<std::string, std::string>> assignments;
  for (const std::string& word : *command) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos || !is_variable_name(word.substr(0, equals))) break;
    assignments.emplace_back(word.substr(0, equals), word.substr(equals + 1));
  }
  command->erase(command->begin(),
                 command->begin() + static_cast<std::ptrdiff_t>(assignments.size()));
  return assignments;
}

ScopedEnvironment::ScopedEnvironment(
    const std::vector<std::pair<std::string, std::string>>& variables) {
  for (const auto& [name, value] : variables) {
    const char* old = std::getenv(name.c_str());
    before_.emplace_back(name, old == nullptr ? std::nullopt : std::optional<std::string>(old));
    ::setenv(name.c_str(), value.c_str(), 1);
  }
}

ScopedEnvironment::~ScopedEnvironment() {
  for (auto each = before_.rbegin(); each != before_.rend(); ++each) {
    if (each->second) {
      ::setenv(each->first.c_str(), each->second->c_str(), 1);
    } else {
      ::unsetenv(each->first.c_str());
    }
  }
}

}  // namespace assay::cli
