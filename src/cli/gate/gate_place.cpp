// SPDX-License-Identifier: Apache-2.0
// A temporary folder is removed whole; of a folder that was there only the captures are removed.
#include "cli/gate/gate_place.hpp"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "base/paths.hpp"

namespace assay::cli {
namespace {

constexpr std::array<const char*, 3> kCaptures = {"golden", "mine", "mine-operators"};

Result<std::string> make_temporary_folder() {
  std::error_code failed;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(failed);
  std::string pattern = ((failed ? "/tmp" : folder) / "assay-gate-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr)
    return fail(errno_error(errno, "make a temporary folder", pattern));
  return pattern;
}

}  // namespace

Result<GatePlace> GatePlace::make(const std::string& output) {
  if (output.empty()) {
    ASSAY_TRY(std::string path, make_temporary_folder());
    return GatePlace(std::move(path), true);
  }
  for (const char* capture : kCaptures) {
    const std::string path = output + "/" + capture;
    if (is_taken(path))
      return fail(
          Error{Errc::Usage, path, std::nullopt, "is there already; give another folder with -o"});
  }
  return GatePlace(output, !is_taken(output));
}

GatePlace::GatePlace(GatePlace&& other) noexcept
    : path_(std::move(other.path_)), made_(other.made_), keep_(std::exchange(other.keep_, true)) {}

GatePlace::~GatePlace() {
  if (keep_) return;
  std::error_code ignored;  // nobody can be told any more; what is left is the user's to see
  if (made_) std::filesystem::remove_all(path_, ignored);
  for (const char* capture : kCaptures)
    std::filesystem::remove_all(std::filesystem::path(path_) / capture, ignored);
}

}  // namespace assay::cli
