// SPDX-License-Identifier: Apache-2.0
// Reads a configuration file in either spelling, and refuses one that somebody else could have
// written.
#include "capture/common/dynamic_config.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/file_descriptor.hpp"
#include "capture/common/host_guard.hpp"

namespace assay::capture {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxBytes = 1u << 20;

bool is_msprobe(const Json& object) {
  for (const char* key : {"exec_range", "save_child", "task", "op_name", "filter_level"}) {
    if (object.contains(key)) return true;
  }
  return object.contains("dump_enable") && object["dump_enable"].is_boolean();
}

Status read_text(const Json& object, const char* key, std::string* value) {
  const auto found = object.find(key);
  if (found == object.end()) return {};
  if (!found->is_string()) {
    return fail(Errc::Invalid, std::string("\"") + key + "\" must be a string, for example \"\"");
  }
  *value = found->get<std::string>();
  return {};
}

// Empty texts mean the default, as in the command's own documentation.
Result<DynamicConfig> parse_command_schema(const Json& object) {
  DynamicConfig config;
  std::string enabled;
  std::string child;
  std::string range;
  ASSAY_TRY_STATUS(read_text(object, "dump_enable", &enabled));
  ASSAY_TRY_STATUS(read_text(object, "er", &range));
  ASSAY_TRY_STATUS(read_text(object, "ids", &config.ids));
  ASSAY_TRY_STATUS(read_text(object, "child", &child));
  ASSAY_TRY_STATUS(read_text(object, "device", &config.devices));
  config.enabled = enabled == "true";
  if (!range.empty()) config.range = range;
  config.child = child.empty() || child == "true";
  return config;
}

template <typename Value>
void read_or_warn(const Json& object, const char* key, const char* expected, Value* value,
                  bool (Json::*is_right)() const noexcept, DynamicConfig* config) {
  const auto found = object.find(key);
  if (found == object.end()) return;
  if (((*found).*is_right)()) {
    *value = found->get<Value>();
  } else {
    config->warnings.push_back(std::string("\"") + key + "\" must be " + expected +
                               "; its default counts");
  }
}

DynamicConfig parse_msprobe_schema(const Json& object) {
  DynamicConfig config;
  config.msprobe = true;
  config.child = false;
  std::string task = "tensor";
  read_or_warn(object, "task", "a string", &task, &Json::is_string, &config);
  read_or_warn(object, "dump_enable", "true or false", &config.enabled, &Json::is_boolean, &config);
  read_or_warn(object, "exec_range", "a string", &config.range, &Json::is_string, &config);
  read_or_warn(object, "ids", "a string", &config.ids, &Json::is_string, &config);
  read_or_warn(object, "op_name", "a string", &config.names, &Json::is_string, &config);
  read_or_warn(object, "save_child", "true or false", &config.child, &Json::is_boolean, &config);
  read_or_warn(object, "device", "a string", &config.devices, &Json::is_string, &config);
  read_or_warn(object, "filter_level", "a number", &config.filter_level, &Json::is_number_integer,
               &config);
  if (task != "tensor" && task != "statistics" && task != "all") {
    config.warnings.push_back("\"task\" must be tensor, statistics or all; tensor counts");
    task = "tensor";
  }
  config.data = task != "statistics";
  config.statistics = task != "tensor";
  return config;
}

Result<std::string> read_whole(int fd, const std::string& path) {
  std::string text(kMaxBytes + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(fd, text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(errno_error(errno, "read", path));
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  text.resize(size);
  return text;
}

// Who may write the file steers what a host writes to disk.
Status check(const struct stat& info) {
  if (!S_ISREG(info.st_mode)) return fail(Errc::Unsupported, "is not a regular file");
  if (::geteuid() != 0 && info.st_uid != ::geteuid() && info.st_uid != 0) {
    return fail(Errc::Permission, "belongs to another user");
  }
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return fail(Errc::Permission, "may be changed by other users; use chmod go-w");
  }
  if (info.st_size > static_cast<off_t>(kMaxBytes)) {
    return fail(Errc::TooLarge, "is larger than 1 MiB");
  }
  return {};
}

}  // namespace

Result<DynamicConfig> parse_dynamic_config(std::string_view text) {
  const Json object = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (object.is_discarded()) return fail(Errc::Invalid, "is no valid JSON");
  if (!object.is_object()) return fail(Errc::Invalid, "must hold one JSON object");
  if (is_msprobe(object)) return parse_msprobe_schema(object);
  return parse_command_schema(object);
}

Result<std::optional<DynamicConfig>> DynamicConfigFile::reload() {
  // A FIFO must not block the host's thread, nor a link lead elsewhere.
  const FileDescriptor file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  struct stat info{};
  if (file.get() < 0 || ::fstat(file.get(), &info) != 0) {
    const int reason = errno;
    if (told_missing_) return std::nullopt;
    told_missing_ = true;
    last_.reset();
    return fail(errno_error(reason, "read the configuration file", path_));
  }
  told_missing_ = false;
  const State state{info.st_dev, info.st_ino, info.st_size,
                    int64_t{info.st_ctim.tv_sec} * 1'000'000'000 + info.st_ctim.tv_nsec};
  if (last_ == state) return std::nullopt;
  last_ = state;
  ASSAY_TRY_STATUS(in_file(path_, check(info)));
  ASSAY_TRY(const std::string text, read_whole(file.get(), path_));
  ASSAY_TRY(DynamicConfig config, in_file(path_, parse_dynamic_config(text)));
  return std::optional(std::move(config));
}

std::optional<DynamicConfig> WatchedConfig::read() {
  next_ms_.store(now_ms() + interval_ms_, std::memory_order_relaxed);
  Result<std::optional<DynamicConfig>> config = file_.reload();
  if (config) return *std::move(config);
  tell(LogLevel::Error, config.error().describe() + "; what was read before stays in force");
  return std::nullopt;
}

}  // namespace assay::capture
