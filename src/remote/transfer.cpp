// SPDX-License-Identifier: Apache-2.0
// Requests and answers as lines of JSON, and the process that answers them.
#include "remote/transfer.hpp"

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/interruption.hpp"
#include "base/numbers.hpp"
#include "base/python_process.hpp"

namespace assay::remote {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

constexpr int kDefaultTimeoutSeconds = 300;
constexpr size_t kMaxLineBytes = size_t{64} << 20;  // an answer lists at most some thousand files

int transfer_timeout_seconds() {
  const char* named = std::getenv("ASSAY_REMOTE_TIMEOUT");
  const auto seconds = parse_number<int>(named == nullptr ? "" : named);
  return seconds && *seconds > 0 ? *seconds : kDefaultTimeoutSeconds;
}

/// Requests of several threads share one process: whoever waits first also receives for the others.
class ProcessCarrier : public Carrier {
 public:
  Status carry(uint64_t number, const std::string& request, const OnLine& on_line) override {
    {
      const std::lock_guard lock(mutex_);
      if (process_ == nullptr || !process_->is_running()) {
        process_ = std::make_shared<PythonProcess>();
        if (Status started = process_->start(kTransferHost); !started) {
          Error error = started.error();
          error.message += "; paths with :// need a Python, name one in ASSAY_PYTHON";
          return fail(std::move(error));
        }
      }
      answers_[number];
      if (Status sent = process_->send(request); !sent) {
        answers_.erase(number);
        return fail(sent.error());
      }
    }
    Status status = read_answers(number, on_line);
    const std::lock_guard lock(mutex_);
    answers_.erase(number);
    lost_.erase(number);
    return status;
  }

 private:
  using Clock = std::chrono::steady_clock;

  Status read_answers(uint64_t number, const OnLine& on_line) {
    const int seconds = transfer_timeout_seconds();
    auto deadline = Clock::now() + std::chrono::seconds(seconds);
    while (true) {
      ASSAY_TRY(const std::optional<std::string> line, next_answer(number));
      if (line) {
        ASSAY_TRY(const bool goes_on, on_line(*line));
        if (!goes_on) return {};
        deadline = Clock::now() + std::chrono::seconds(seconds);
      }
      if (is_interrupted()) return fail(Errc::Interrupted, "interrupted");
      if (Clock::now() > deadline) {
        end_process();
        return fail(Errc::Io, "nothing arrived within " + std::to_string(seconds) +
                                  " s, the transfer was given up");
      }
    }
  }

  /// Of this request; nothing when none came for a moment.
  Result<std::optional<std::string>> next_answer(uint64_t number) {
    std::unique_lock lock(mutex_);
    if (const auto own = take(number)) return own;
    if (is_receiving_) {
      arrived_.wait_for(lock, 100ms);
      if (const auto own = take(number)) return own;
      return std::nullopt;
    }
    if (const auto lost = lost_.find(number); lost != lost_.end())
      return fail(Errc::Io, lost->second);
    if (process_ == nullptr) return fail(Errc::Io, "the transfer was given up");
    is_receiving_ = true;
    const std::shared_ptr<PythonProcess> process = process_;
    pollfd wait{process->descriptor(), POLLIN, 0};
    lock.unlock();
    ::poll(&wait, 1, 100);
    lock.lock();
    is_receiving_ = false;
    if (process != process_) return std::nullopt;
    Result<std::optional<std::string>> line = process->receive(0ms, kMaxLineBytes);
    if (!line) {
      // Whatever was asked of it stays without an answer.
      for (const auto& [asked, answers] : answers_) lost_[asked] = line.error().message;
      process_ = nullptr;
    } else if (*line) {
      const json answer = json::parse(**line, nullptr, /*allow_exceptions=*/false);
      const auto id = answer.is_object() ? answer.value("id", uint64_t{0}) : uint64_t{0};
      if (const auto asked = answers_.find(id); asked != answers_.end())
        asked->second.push_back(**std::move(line));
    }
    arrived_.notify_all();
    if (const auto own = take(number)) return own;
    if (const auto lost = lost_.find(number); lost != lost_.end())
      return fail(Errc::Io, lost->second);
    return std::nullopt;
  }

  std::optional<std::string> take(uint64_t number) {
    std::deque<std::string>& own = answers_[number];
    if (own.empty()) return std::nullopt;
    std::string line = std::move(own.front());
    own.pop_front();
    return line;
  }

  void end_process() {
    const std::lock_guard lock(mutex_);
    if (process_ == nullptr) return;
    process_->kill();
    process_ = nullptr;
  }

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::shared_ptr<PythonProcess> process_;
  bool is_receiving_ = false;
  std::map<uint64_t, std::deque<std::string>> answers_;  // of open requests
  std::map<uint64_t, std::string> lost_;                 // requests whose process ended, and how
};

Error error_of(const json& answer) {
  Error error;
  error.path = answer.value("url", "");
  error.message = answer.value("error", "");
  const std::string kind = answer.value("kind", "");
  error.code = Errc::Io;
  if (kind == "NotFound") return errno_error(ENOENT, "open", error.path);
  if (kind == "Permission") error.code = Errc::Permission;
  if (kind == "NoSpace") error.code = Errc::NoSpace;
  if (kind == "Unsupported") error.code = Errc::Unsupported;
  return error;
}

Entry entry_of(const json& listed) {
  Entry entry;
  entry.name = listed.at(0).get<std::string>();
  const std::string kind = listed.at(1).get<std::string>();
  if (kind == "folder") {
    entry.facts.kind = FileFacts::Kind::Folder;
  } else if (kind == "file") {
    entry.facts.size_bytes = listed.at(2).get<uint64_t>();
    entry.facts.version = listed.at(3).get<std::string>();
    entry.facts.modified_ns = listed.at(4).get<int64_t>();
  } else {
    entry.facts.kind = FileFacts::Kind::Unusable;
    entry.facts.problem = kind;
  }
  return entry;
}

uint64_t next_number() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

/// Whether more answers follow. Entries are added to `entries`, which may be null.
Result<bool> take_answer(const std::string& line, std::vector<Entry>* entries) {
  const json answer = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!answer.is_object()) return fail(Errc::Io, "the Python process gave an answer that is none");
  if (answer.contains("error")) return fail(error_of(answer));
  if (answer.contains("done")) return false;
  if (entries == nullptr || !answer.contains("entries")) return true;
  try {
    for (const json& listed : answer.at("entries")) entries->push_back(entry_of(listed));
  } catch (const json::exception&) {
    return fail(Errc::Io, "the Python process gave an answer that is none");
  }
  return true;
}

}  // namespace

std::shared_ptr<Carrier> make_process_carrier() { return std::make_shared<ProcessCarrier>(); }

Result<std::vector<Entry>> Transfer::entries(const char* what, const std::string& url) {
  const uint64_t number = next_number();
  std::vector<Entry> found;
  const std::string request =
      json{{"id", number}, {what, url}}.dump(-1, ' ', true, json::error_handler_t::replace);
  ASSAY_TRY_STATUS(in_file(
      url, carrier_->carry(number, request + "\n",
                           [&](const std::string& line) { return take_answer(line, &found); })));
  return found;
}

Result<std::vector<Entry>> Transfer::tree(const std::string& url) { return entries("tree", url); }
Result<std::vector<Entry>> Transfer::list(const std::string& url) { return entries("list", url); }

Result<FileFacts> Transfer::facts(const std::string& url) {
  ASSAY_TRY(const std::vector<Entry> found, entries("facts", url));
  if (found.size() != 1)
    return fail(
        Error{Errc::Io, url, std::nullopt, "the Python process gave an answer that is none"});
  if (found[0].facts.kind == FileFacts::Kind::Unusable)
    return fail(Error{Errc::Unsupported, url, std::nullopt, found[0].facts.problem});
  return found[0].facts;
}

Status Transfer::fetch(const std::vector<WantedRanges>& wanted) {
  const uint64_t number = next_number();
  json files = json::array();
  for (const WantedRanges& one : wanted) {
    json ranges = json::array();
    for (const ByteRange& range : one.ranges) ranges.push_back({range.offset, range.size_bytes});
    files.push_back({{"url", one.url},
                     {"size", one.size_bytes},
                     {"version", one.version},
                     {"file", one.local_file},
                     {"ranges", std::move(ranges)}});
  }
  const std::string request = json{{"id", number}, {"fetch", std::move(files)}}.dump(
      -1, ' ', true, json::error_handler_t::replace);
  const std::string& url = wanted.empty() ? std::string() : wanted.front().url;
  return in_file(url, carrier_->carry(number, request + "\n", [](const std::string& line) {
    return take_answer(line, nullptr);
  }));
}

}  // namespace assay::remote
