// SPDX-License-Identifier: Apache-2.0
// `assay join DEST SRC...`: the rank folders that the hosts of one job have captured become one
// run.   docs/commands/join.md
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/atomic_file.hpp"
#include "base/bytes.hpp"
#include "base/mapped_file.hpp"
#include "base/numbers.hpp"
#include "base/paths.hpp"
#include "base/shell_words.hpp"
#include "base/text.hpp"
#include "cli/answer.hpp"
#include "cli/commands.hpp"
#include "cli/dump/process_watch.hpp"
#include "cli/interrupt.hpp"
#include "cli/list_text.hpp"
#include "formats/native/manifest.hpp"
#include "formats/native/schema.hpp"

namespace assay::cli {
namespace {

namespace fs = std::filesystem;

enum class Way { Link, Copy, Move };

struct JoinRequest {
  std::string destination;
  std::vector<std::string> sources;
  bool copy = false;
  bool move = false;
  bool json = false;

  [[nodiscard]] Way way() const { return move ? Way::Move : copy ? Way::Copy : Way::Link; }
};

struct RankPart {
  std::string path;
  std::string name;  // "rank3", of a second process of the rank "rank3-4711"
  int64_t rank = 0;
  std::string manifest_path = {};
  std::string manifest_text = {};
  native::ReadManifest manifest = {};

  [[nodiscard]] std::string said(const std::string& key) const {
    const auto found = manifest.properties.find(key);
    return found == manifest.properties.end() ? std::string() : found->second;
  }
};

struct Joined {
  std::vector<RankPart> parts;  // by rank, then by name
  std::string id;
  int64_t world_size = 1;
  std::set<int64_t> ranks;
  std::set<int64_t> missing;
  std::set<std::string> hosts;
  bool complete = true;
  uint64_t bytes = 0;
  uint64_t files = 0;
  uint64_t copied = 0;  // of them
};

Error refused(const std::string& path, std::string message) {
  return Error{Errc::Invalid, path, std::nullopt, std::move(message)};
}

Result<std::string> read_text(const std::string& path) {
  ASSAY_TRY(const MappedFile file, MappedFile::open(path));
  return std::string(as_text(file.bytes()));
}

std::string own_hostname() {
  char name[256] = {};
  return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

/// Who is still writing a part; empty when nobody is, or nobody can tell.
std::string writer_of(const RankPart& part) {
  if (part.manifest.complete || !part.said("finished").empty()) return {};
  const auto pid = parse_number<int64_t>(part.said("host.pid"));
  if (!pid || part.said("host.hostname") != own_hostname() || !is_running(static_cast<pid_t>(*pid)))
    return {};
  return "process " + std::to_string(*pid);
}

/// The rank folders of a run, each with its manifest: of the process that started first, or of the
/// only one, that is the run's own.
Result<std::vector<RankPart>> parts_of(const std::string& source) {
  std::error_code error;
  std::vector<RankPart> parts;
  for (const auto& entry : fs::directory_iterator(source, error)) {
    const std::string name = entry.path().filename().string();
    const std::optional<int> rank = native::rank_of_folder(name);
    if (!rank || !fs::exists(entry.path() / native::kTopologyFile)) continue;
    parts.push_back({.path = entry.path().string(), .name = name, .rank = *rank});
  }
  if (error) return fail(errno_error(error.value(), "read the folder", source));
  if (parts.empty())
    return fail(refused(source, "is no run of the native layout: it has no folder of a rank"));
  std::ranges::sort(parts, {}, [](const RankPart& p) { return std::pair(p.rank, p.name); });
  for (RankPart& part : parts) {
    part.manifest_path = part.path + "/" + std::string(native::kManifestFile);
    if (!is_taken(part.manifest_path))
      part.manifest_path = source + "/" + std::string(native::kManifestFile);
    ASSAY_TRY(part.manifest_text, read_text(part.manifest_path));
    ASSAY_TRY(part.manifest,
              in_file(part.manifest_path, native::read_manifest(part.manifest_text)));
    if (!part.manifest.is_as_written)
      return fail(refused(part.manifest_path, "is not as it was written"));
    if (part.manifest.id.empty())
      return fail(refused(part.path, "has no id: it is of an earlier version"));
    if (const std::string writer = writer_of(part); !writer.empty())
      return fail(refused(part.path, writer + " is still writing it"));
  }
  return parts;
}

/// Reads what the sources say of themselves, and nothing else.
/// errors  Invalid: they cannot be one run
Result<Joined> plan(const JoinRequest& request) {
  if (is_taken(request.destination))
    return fail(refused(request.destination, "exists already; a joined run is a new folder"));
  Joined joined;
  std::map<int64_t, std::string> source_of;  // a rank
  std::string first;                         // source
  for (const std::string& source : request.sources) {
    ASSAY_TRY(std::vector<RankPart> parts, parts_of(source));
    for (RankPart& part : parts) {
      if (joined.id.empty()) {
        joined.id = part.manifest.id;
        first = part.path;
      }
      if (part.manifest.id != joined.id)
        return fail(refused(part.path, "is of another run than " + first + ": " + part.manifest.id +
                                           ", not " + joined.id));
      const auto [place, is_new] = source_of.try_emplace(part.rank, source);
      if (!is_new && place->second != source)
        return fail(refused(part.path, "is rank " + std::to_string(part.rank) + ", which " +
                                           place->second + " has, too"));
      joined.ranks.insert(part.rank);
      if (const std::string host = part.said("host.hostname"); !host.empty())
        joined.hosts.insert(host);
      joined.world_size =
          std::max({joined.world_size, part.rank + 1,
                    parse_number<int64_t>(part.said("host.world_size")).value_or(1)});
      joined.complete = joined.complete && part.manifest.complete && part.manifest.stopped.empty();
      joined.parts.push_back(std::move(part));
    }
  }
  for (int64_t rank = 0; rank < joined.world_size; ++rank) {
    if (!joined.ranks.contains(rank)) joined.missing.insert(rank);
  }
  std::ranges::sort(joined.parts, {}, [](const RankPart& p) { return std::pair(p.rank, p.name); });
  return joined;
}

/// A file in another folder: linked where the file system can, otherwise copied.
Status take_file(const std::string& from, const std::string& to, Way way, Joined* joined) {
  std::error_code error;
  const uint64_t size = fs::file_size(from, error);
  if (!error && way != Way::Copy) {
    fs::create_hard_link(from, to, error);
    if (!error) {
      ++joined->files;
      joined->bytes += size;
      return {};
    }
  }
  error.clear();
  fs::copy_file(from, to, error);
  if (error) return fail(errno_error(error.value(), "copy to " + to, from));
  ++joined->files;
  ++joined->copied;
  joined->bytes += size;
  return {};
}

Status take_part(const RankPart& part, const std::string& folder, Way way, Joined* joined) {
  const std::string target = folder + "/" + part.name;
  ASSAY_TRY_STATUS(make_directories(target));
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(part.path, error)) {
    if (interrupted()) return fail(Errc::Interrupted, "interrupted");
    const std::string name = entry.path().filename().string();
    if (name == native::kManifestFile) continue;
    if (!entry.is_regular_file() || entry.is_symlink())
      return fail(refused(entry.path().string(), "is no regular file"));
    ASSAY_TRY_STATUS(take_file(entry.path().string(), target + "/" + name, way, joined));
  }
  if (error) return fail(errno_error(error.value(), "read the folder", part.path));
  // Whole, whatever becomes of the source; where that had it at the top it is moved down.
  return write_file_atomically(target + "/" + std::string(native::kManifestFile),
                               as_bytes(part.manifest_text));
}

std::string json_numbers(const std::set<int64_t>& numbers) {
  return json_list(std::vector<int64_t>(numbers.begin(), numbers.end()),
                   [](int64_t number) { return std::to_string(number); });
}

/// Who the run is of: its ranks, which of the job's are missing, and their hosts.
std::string joined_json(const Joined& joined) {
  std::vector<std::string> hosts;
  for (const std::string& host : joined.hosts) {
    std::set<int64_t> ranks;
    for (const RankPart& part : joined.parts) {
      if (part.said("host.hostname") == host) ranks.insert(part.rank);
    }
    hosts.push_back(
        JsonObject().add("hostname", host).add_json("ranks", json_numbers(ranks)).text());
  }
  return JsonObject()
      .add("world_size", joined.world_size)
      .add_json("ranks", json_numbers(joined.ranks))
      .add_json("missing", json_numbers(joined.missing))
      .add_json("hosts", json_list(hosts, [](const std::string& host) { return host; }))
      .text();
}

std::string manifest_of(const Joined& joined) {
  native::Manifest manifest;
  manifest.id = joined.id;
  manifest.tool = "assay " ASSAY_VERSION;
  const auto first =
      nlohmann::ordered_json::parse(joined.parts.front().manifest_text, nullptr, false);
  const auto member = [&](const char* key) {
    return first.is_object() && first.contains(key) ? first[key].dump() : std::string("{}");
  };
  manifest.host_json = member("host");
  manifest.config_json = member("config");
  manifest.joined_json = joined_json(joined);
  if (joined.complete) manifest.finished.emplace();
  for (const RankPart& part : joined.parts) {
    const native::ReadManifest& said = part.manifest;
    const std::string started = part.said("started");
    if (manifest.started.empty() || started < manifest.started) manifest.started = started;
    if (manifest.finished) *manifest.finished = std::max(*manifest.finished, part.said("finished"));
    manifest.planned += said.planned;
    manifest.captured += said.captured;
    manifest.missed.insert(manifest.missed.end(), said.missed.begin(), said.missed.end());
    manifest.dropped += said.dropped;
    if (manifest.stopped.empty()) manifest.stopped = said.stopped;
  }
  return manifest.to_json();
}

/// Under another name first, so that there is never half a run.
Status make_run(const std::string& destination, Way way, Joined* joined) {
  const std::string temporary = destination + ".part" + std::to_string(::getpid());
  ASSAY_TRY_STATUS(make_directories(temporary));
  const auto fill = [&]() -> Status {
    for (const RankPart& part : joined->parts)
      ASSAY_TRY_STATUS(take_part(part, temporary, way, joined));
    ASSAY_TRY_STATUS(write_file_atomically(temporary + "/" + std::string(native::kManifestFile),
                                           as_bytes(manifest_of(*joined))));
    if (is_taken(destination))
      return fail(refused(destination, "exists already; a joined run is a new folder"));
    std::error_code error;
    fs::rename(temporary, destination, error);
    if (error) return fail(errno_error(error.value(), "rename to " + destination, temporary));
    return {};
  };
  Status made = fill();
  std::error_code ignored;
  if (!made) fs::remove_all(temporary, ignored);
  return made;
}

/// Of sources whose files are in the joined run now: the ranks' folders and the manifest.
Status remove_sources(const JoinRequest& request, const Joined& joined) {
  std::error_code error;
  for (const RankPart& part : joined.parts) {
    fs::remove_all(part.path, error);
    if (error) return fail(errno_error(error.value(), "remove", part.path));
  }
  for (const std::string& source : request.sources) {
    fs::remove(source + "/" + std::string(native::kManifestFile), error);
    if (error) return fail(errno_error(error.value(), "remove the manifest of", source));
    fs::remove(source, error);  // what else lies in it stays, and so does the folder
  }
  return {};
}

std::string sentence(const Joined& joined) {
  const bool one = joined.ranks.size() == 1;
  std::string text = std::string(one ? "rank " : "ranks ") + number_list(joined.ranks) + " of " +
                     std::to_string(joined.world_size) + " from " +
                     counted(joined.hosts.size(), "host") + " are one run of " +
                     counted(joined.files, "file") + ", " + human_bytes(joined.bytes);
  if (one) text.replace(text.find(" are one"), 8, " is one");
  if (!joined.missing.empty())
    text += "; missing: " + std::string(joined.missing.size() == 1 ? "rank " : "ranks ") +
            number_list(joined.missing);
  if (!joined.complete) text += "; not every capture came to its end";
  return text;
}

int run_join(const JoinRequest& request) {
  const auto failed = [&](const Error& error) {
    return report_failure("join", error, {}, request.json);
  };
  if (request.copy && request.move)
    return failed(Error{Errc::Usage, {}, std::nullopt, "--copy and --move exclude each other"});
  const InterruptGuard interrupt_guard;
  Result<Joined> joined = plan(request);
  if (!joined) return failed(joined.error());
  const Status made = make_run(request.destination, request.way(), &*joined);
  if (!made && interrupted()) {
    say("interrupted", "nothing was joined");
    return kInterrupted;
  }
  if (!made) return failed(made.error());
  if (request.move) {
    if (const Status removed = remove_sources(request, *joined); !removed)
      return failed(removed.error());
  }
  const bool whole = joined->missing.empty() && joined->complete;
  const Answer answer{"join", whole ? "joined" : "incomplete", sentence(*joined),
                      "assay verify " + shell_quote(request.destination), kSame};
  return print_answer(answer, answer.sentence + "\n", request.json,
                      std::move(answer_json(answer)
                                    .add("run", request.destination)
                                    .add("id", joined->id)
                                    .add("world_size", joined->world_size)
                                    .add_json("ranks", json_numbers(joined->ranks))
                                    .add_json("missing", json_numbers(joined->missing))
                                    .add("files", joined->files)
                                    .add("copied", joined->copied)
                                    .add("bytes", joined->bytes)));
}

}  // namespace

Command join_command(const Caller& caller) {
  Command command(caller, "Makes one run of what the hosts of a job have captured");
  const auto request = std::make_shared<JoinRequest>();
  command.require("DEST", "The folder of the joined run, which must not exist",
                  request->destination);
  command.require("SRC ...", "The folders that `assay dump` or assay.capture wrote, one a host",
                  added_to(request->sources));
  command.add("--copy", "Copy the files; without it they are linked where the file system can",
              request->copy);
  command.add("--move", "Remove the sources' ranks when the joined run is there", request->move);
  command.in_group("Output");
  command.add("--json", "One JSON object for programs", request->json);
  command.example = "assay join golden node0/golden node1/golden";
  command.epilogue =
      "Exit status: 0 joined, also when ranks are missing or a capture did not finish, 2 wrong "
      "options, or sources that are not of one run, 3 our fault.";
  command.ends_with_next = true;
  command.run = [request](const ParsedArguments&) { return run_join(*request); };
  return command;
}

}  // namespace assay::cli
