// SPDX-License-Identifier: Apache-2.0
// Makes the output path absolute and without links, checks the rights and the disk of the nearest
// folder that exists, then picks a name that no earlier run has and the ranks of a launch share.
#include "cli/dump/dump_places.hpp"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "base/atomic_file.hpp"
#include "base/paths.hpp"
#include "base/text.hpp"
#include "cli/dump/process_reports.hpp"

namespace assay::cli {
namespace {

constexpr int kMaxLevelsUp = 16;  // from the output folder to its nearest existing ancestor

std::string absolute(const std::string& path) {
  if (path.starts_with('/')) return path;
  char here[PATH_MAX];
  return ::getcwd(here, sizeof(here)) == nullptr ? path : std::string(here) + "/" + path;
}

/// "~" and "~user" in front of a path, as os.path.expanduser() replaces them.
std::string expand_user(const std::string& path) {
  if (!path.starts_with('~')) return path;
  const size_t slash = std::min(path.find('/'), path.size());
  const std::string user = path.substr(1, slash - 1);
  const char* home = user.empty() ? std::getenv("HOME") : nullptr;
  const passwd* entry = nullptr;
  if (home == nullptr) entry = user.empty() ? ::getpwuid(::getuid()) : ::getpwnam(user.c_str());
  if (entry != nullptr) home = entry->pw_dir;
  return home == nullptr ? path : home + path.substr(slash);
}

std::string parent_of(const std::string& path) {
  const size_t slash =
      path.find_last_not_of('/') == std::string::npos ? std::string::npos : path.rfind('/');
  return slash == std::string::npos || slash == 0 ? "/" : path.substr(0, slash);
}

/// Removes "." and "..", doubled and trailing slashes, without looking at the file system.
std::string normal(const std::string& path) {
  std::vector<std::string_view> kept;
  for (const std::string_view part : split(path, '/')) {
    if (part.empty() || part == ".") continue;
    if (part == "..") {
      if (!kept.empty()) kept.pop_back();
    } else {
      kept.push_back(part);
    }
  }
  std::string out;
  for (const std::string_view part : kept) out += "/" + std::string(part);
  return out.empty() ? "/" : out;
}

/// The path with every link in its existing part resolved.
std::string resolved(const std::string& path) {
  std::string existing = path;
  std::string rest;
  while (true) {
    if (char* real = ::realpath(existing.c_str(), nullptr)) {
      const std::string out = std::string(real) + rest;
      std::free(real);
      return normal(out);
    }
    if (existing == "/") return path;
    rest = "/" + existing.substr(existing.rfind('/') + 1) + rest;
    existing = parent_of(existing);
  }
}

bool has_plain_characters(std::string_view path) {
  for (const char c : path) {
    const bool alphanumeric =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!alphanumeric && std::string_view("_.:/-").find(c) == std::string_view::npos) return false;
  }
  return true;
}

Error refused(Errc code, const std::string& path, std::string message) {
  return Error{code, path, std::nullopt, std::move(message)};
}

// ---- the dump root's name ----

/// Identifies the process that started us: its id alone could be used again.
std::string launcher_identity() {
  const std::string parent = std::to_string(::getppid());
  std::ifstream file("/proc/" + parent + "/stat");
  std::string line;
  std::getline(file, line);
  const size_t behind_name = line.rfind(')');
  const std::vector<std::string_view> fields =
      split(std::string_view(line).substr(behind_name == std::string::npos ? 0 : behind_name), ' ');
  constexpr size_t kStartTime = 20;  // field 22 of /proc/<pid>/stat, counted from the name's end
  return parent + "_" + (fields.size() > kStartTime ? std::string(fields[kStartTime]) : "0");
}

/// The ranks of one launch each run their own command; all must write below one root. The first to
/// come decides, through a file beside the dump that is named after the common parent process.
std::string agreed_timestamp(const std::string& output, const std::string& mine) {
  const std::string path = output + "/.assay_launch_" + launcher_identity();
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
  if (fd >= 0) {
    const bool written = ::write(fd, mine.data(), mine.size()) == static_cast<ssize_t>(mine.size());
    ::close(fd);
    return written ? mine : std::string();
  }
  // Created a moment ago by another rank, perhaps not yet filled.
  for (int attempt = 0; attempt < 100; ++attempt) {
    std::ifstream file(path);
    std::string theirs;
    if (std::getline(file, theirs) && theirs.size() >= mine.size()) return theirs;
    ::usleep(10000);
  }
  return mine;
}

/// `timestamp`, or with _1, _2 ... behind it, so that no earlier run's root is used again.
std::string free_timestamp(const std::string& output, const std::string& timestamp) {
  std::string candidate = timestamp;
  for (int i = 1; is_taken(output + "/msit_dump_" + candidate); ++i)
    candidate = timestamp + "_" + std::to_string(i);
  return candidate;
}

int64_t local_world_size() {
  const char* text = std::getenv("LOCAL_WORLD_SIZE");
  return text == nullptr ? 1 : std::strtoll(text, nullptr, 10);
}

/// A run of the native layout is never overwritten; told now, it costs no run of the program.
Status check_is_free(const std::string& output) {
  for (const char* name : {"/manifest.json", "/rank0"}) {
    if (is_taken(output + name)) {
      return fail(refused(
          Errc::Invalid, output,
          "holds a captured run already; give another folder with -o, or --force to remove it"));
    }
  }
  return {};
}

/// Takes the captured run out of a folder, and nothing else.
Status remove_run(const std::string& output) {
  std::vector<std::string> paths;
  for (const std::string& name : names_in(output)) {
    const std::string path = output + "/" + name;
    if (!name.starts_with("rank") || !exists(path + "/records.jsonl")) continue;
    if (const int64_t writer = unfinished_writer(output, name);
        is_running(static_cast<pid_t>(writer)))
      return fail(refused(Errc::Invalid, path,
                          "process " + std::to_string(writer) + " is still writing into it"));
    paths.push_back(path);
  }
  if (!paths.empty()) paths.push_back(output + "/manifest.json");
  for (const std::string& path : paths) {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (error) return fail(refused(Errc::Io, path, "cannot be removed: " + error.message()));
  }
  return {};
}

}  // namespace

std::string time_in_name(DumpName name, std::time_t time) {
  std::tm parts{};
  if (name == DumpName::Assay) {
    ::gmtime_r(&time, &parts);
  } else {
    ::localtime_r(&time, &parts);
  }
  char text[32];
  std::strftime(text, sizeof(text), "%Y%m%d_%H%M%S", &parts);
  return text;
}

Status check_path(const std::string& path, PathUse use, bool any_name) {
  struct stat info{};
  if (::lstat(path.c_str(), &info) != 0) return fail(errno_error(errno, "look at", path));
  if (S_ISLNK(info.st_mode)) return fail(refused(Errc::Invalid, path, "is a symbolic link"));
  const bool folder = use == PathUse::WriteFolder;
  if (folder && !S_ISDIR(info.st_mode)) return fail(refused(Errc::Invalid, path, "is no folder"));
  if (!folder && !S_ISREG(info.st_mode))
    return fail(refused(Errc::Invalid, path, "is no regular file"));
  if (!any_name && !has_plain_characters(path))
    return fail(
        refused(Errc::Invalid, path, "holds characters other than letters, digits and _ . : / -"));
  if (::geteuid() != 0 && info.st_uid != ::geteuid())
    return fail(refused(Errc::Permission, path, "belongs to another user"));
  // A sticky folder like /tmp lets nobody replace what others have made.
  const bool sticky = folder && (info.st_mode & S_ISVTX) != 0;
  if ((info.st_mode & S_IWOTH) != 0 && !sticky)
    return fail(refused(Errc::Permission, path, "can be changed by every user; chmod o-w it"));
  if (!folder && (info.st_mode & S_IWGRP) != 0)
    return fail(refused(Errc::Permission, path, "can be changed by its group; chmod g-w it"));
  if (::access(path.c_str(), folder ? W_OK | X_OK : R_OK) != 0)
    return fail(errno_error(errno, folder ? "write into" : "read", path));
  return {};
}

Result<DumpPlaces> choose_places(const DumpRequest& request) {
  DumpPlaces places;
  const std::string timestamp = time_in_name(request.name, std::time(nullptr));
  // The original's rule for names; under ours every name will do.
  const bool any_name = request.name == DumpName::Assay;
  const std::string asked = request.output.empty() ? "assay_dump_" + timestamp : request.output;
  places.output = resolved(normal(absolute(expand_user(asked))));

  struct stat info{};
  if (::stat(places.output.c_str(), &info) == 0 && !S_ISDIR(info.st_mode))
    return fail(refused(Errc::Invalid, places.output, "the output path is a file, not a folder"));
  std::string ancestor = places.output;
  for (int level = 0; !is_taken(ancestor); ++level) {
    if (level == kMaxLevelsUp)
      return fail(refused(Errc::NotFound, places.output,
                          "none of the 16 folders above the output path exists"));
    ancestor = parent_of(ancestor);
  }
  ASSAY_TRY_STATUS(check_path(ancestor, PathUse::WriteFolder, any_name));
  if (!any_name && !has_plain_characters(places.output))
    return fail(
        refused(Errc::Invalid, places.output,
                "the output path holds characters other than letters, digits and _ . : / -"));
  struct statvfs disk{};
  // A file system without blocks (/proc) is no full disk: making the folder says what is wrong.
  if (::statvfs(ancestor.c_str(), &disk) == 0 && disk.f_blocks > 0 &&
      uint64_t{disk.f_bavail} * disk.f_frsize < kLeastFreeBytes) {
    return fail(refused(Errc::NoSpace, ancestor,
                        "Please make sure that the remaining disk space in the dump path is "
                        "greater than 2 GB"));
  }
  if (!request.config_path.empty()) {
    places.config_path = normal(absolute(expand_user(request.config_path)));
    ASSAY_TRY_STATUS(check_path(places.config_path, PathUse::ReadFile, any_name));
  }
  // The other ranks of one launch write into the same folder.
  const bool native = request.captures_ggml() || (request.captures_torch() && !request.strict);
  if (native && request.force) ASSAY_TRY_STATUS(remove_run(places.output));
  if (request.output.empty() && any_name && local_world_size() < 2) {
    // Of two captures that begin in one second each has a folder.
    ASSAY_TRY(places.output, make_new_directory(places.output, 0750));
  } else {
    if (native && local_world_size() < 2) ASSAY_TRY_STATUS(check_is_free(places.output));
    ASSAY_TRY_STATUS(make_directories(places.output, 0750));
  }

  places.scratch = places.output + "/" + std::to_string(::getpid());
  if (request.name == DumpName::Ait) {
    places.dump_name = "ait_dump";
    return places;
  }
  places.timestamp = local_world_size() >= 2
                         ? agreed_timestamp(places.output, free_timestamp(places.output, timestamp))
                         : free_timestamp(places.output, timestamp);
  places.dump_name = "msit_dump_" + places.timestamp;
  return places;
}

}  // namespace assay::cli
