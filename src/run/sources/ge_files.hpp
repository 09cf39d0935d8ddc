// SPDX-License-Identifier: Apache-2.0
// The files of an operator dump: where each stands, and what tensors it tells of.
#pragma once
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "run/ge_names.hpp"
#include "run/run.hpp"

namespace assay::run::sources {

/// Where a folder with dump files stands.
struct GeFolder {
  int rank = 0;
  bool has_rank = false;
  bool has_model = false;     // false: operators launched one by one, in {time}/{device}
  bool is_exception = false;  // extra-info/data-dump/{device}
  std::string time;           // "20250102030405"; empty in forms without
  std::string device;
  std::string model_name;
  int64_t model_id = 0;
  int64_t token = 0;
};

/// From the components of a folder's real path, so that a path that starts inside a dump is
/// understood.
[[nodiscard]] GeFolder ge_place_of(const std::string& real_folder);

struct GeFile {
  GeFolder place;
  GeFileName name;
  std::string path;
  uint64_t size_bytes = 0;
  uint32_t call = 0;                 // operators launched one by one: which time it was
  std::string watched = {};          // of {L}_To_{W}: W; empty in all other names
  std::string after = {};            // L
  std::string statistics_path = {};  // of the table beside a dump file
};

/// One file's records with role, slot, header or statistics. Place, order and names are the
/// caller's; `node` is set where the file has the operator's name in its header.
/// warnings   gets rows of a statistics table that cannot be read
/// errors     of the format's reader
[[nodiscard]] Result<std::vector<TensorRecord>> list_ge_members(const GeFile& file,
                                                                std::vector<std::string>* warnings);

/// What the files themselves report, for Run::findings: overflows with the operator and the cause,
/// operators that failed, and the operators after which a watched output was another one. A file
/// that cannot be read gives a warning.
void add_ge_findings(const std::vector<GeFile>& files, Run* run);

}  // namespace assay::run::sources
