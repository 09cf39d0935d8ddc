// SPDX-License-Identifier: Apache-2.0
// A launcher's command line ends with that of what it launches, so it is found among our ancestors.
#include "cli/dump/started_command.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <string_view>

#include "base/json_text.hpp"
#include "base/paths.hpp"
#include "base/text.hpp"
#include "cli/command.hpp"

extern char** environ;

namespace assay::cli {
namespace {

using Words = std::vector<std::string>;

/// Prefixes of variables that decide what a program computes and where; others may hold secrets and
/// are left alone.
constexpr std::array<std::string_view, 14> kTelling = {"ASCEND_RT_VISIBLE_DEVICES",
                                                       "CUDA_VISIBLE_DEVICES",
                                                       "HIP_VISIBLE_DEVICES",
                                                       "OMP_NUM_THREADS",
                                                       "MKL_NUM_THREADS",
                                                       "OPENBLAS_NUM_THREADS",
                                                       "PYTHONPATH",
                                                       "LD_LIBRARY_PATH",
                                                       "TORCHDYNAMO_",
                                                       "TORCH_",
                                                       "PYTORCH_",
                                                       "TRANSFORMERS_",
                                                       "VLLM_",
                                                       "SGLANG_"};
constexpr std::array<std::string_view, 5> kSecret = {"KEY", "TOKEN", "SECRET", "PASSWORD", "AUTH"};

bool is_telling(std::string_view name) {
  return std::ranges::any_of(kTelling, [&](auto prefix) { return name.starts_with(prefix); }) &&
         std::ranges::none_of(kSecret,
                              [&](auto part) { return name.find(part) != std::string_view::npos; });
}

std::string environment_json(const std::vector<std::pair<std::string, std::string>>& assignments) {
  JsonObject json;
  for (const auto& [name, value] : assignments)
    if (!is_telling(name)) json.add(name, value);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const size_t end = text.find('=');
    if (end != std::string_view::npos && is_telling(text.substr(0, end)))
      json.add(text.substr(0, end), text.substr(end + 1));
  }
  return json.text();
}

std::string text_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Words command_line(pid_t process) {
  Words words;
  const std::string text = text_of_file("/proc/" + std::to_string(process) + "/cmdline");
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\0', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

/// 0 when it is not known. "4711 (name (of) it) S 4710 ..."
pid_t parent_of(pid_t process) {
  const std::string text = text_of_file("/proc/" + std::to_string(process) + "/stat");
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || name_end + 4 > text.size()) return 0;
  const std::string_view rest = std::string_view(text).substr(name_end + 4);
  return parse_number<pid_t>(rest.substr(0, rest.find(' '))).value_or(0);
}

/// Whether somebody has started several of us.
bool is_one_of_several() {
  for (const char* name : {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
    if (parse_number<int64_t>(environment(name)).value_or(1) > 1) return true;
  return !environment("SLURM_PROCID").empty() &&
         parse_number<int64_t>(environment("SLURM_NTASKS")).value_or(1) > 1;
}

Words find_launcher() {
  constexpr int kMostAncestors = 8;
  const Words ours = command_line(::getpid());
  pid_t ancestor = ::getppid();
  for (int i = 0; i < kMostAncestors && ancestor > 1; ++i, ancestor = parent_of(ancestor)) {
    Words front = words_in_front(command_line(ancestor), ours);
    if (!front.empty()) return front;
  }
  return {};
}

}  // namespace

Words words_in_front(const Words& launcher, const Words& ours) {
  if (ours.empty() || launcher.size() <= ours.size()) return {};
  const auto first = launcher.end() - static_cast<std::ptrdiff_t>(ours.size());
  const auto name = [](const std::string& word) { return word.substr(word.rfind('/') + 1); };
  if (name(*first) != name(ours.front())) return {};
  if (!std::equal(first + 1, launcher.end(), ours.begin() + 1)) return {};
  return {launcher.begin(), first};
}

std::string started_command(const Words& words,
                            const std::vector<std::pair<std::string, std::string>>& assignments) {
  JsonObject json;
  json.add_json("words", json_texts(words));
  char folder[4096];
  if (::getcwd(folder, sizeof(folder)) != nullptr) json.add("folder", folder);
  json.add_json("environment", environment_json(assignments));
  // An empty list: there is a launcher, and nobody knows which.
  if (is_one_of_several()) json.add_json("launcher", json_texts(find_launcher()));
  return json.text();
}

}  // namespace assay::cli
