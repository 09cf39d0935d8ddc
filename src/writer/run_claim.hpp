// SPDX-License-Identifier: Apache-2.0
// Which run a process captures into: an id that all processes of one capture share, and the
// manifest that names it.
#pragma once
#include <string>

#include "base/result.hpp"
#include "formats/native/manifest.hpp"

namespace assay::writer {

/// The time now as "2026-01-01T00:00:00Z".
[[nodiscard]] std::string utc_now();

/// 32 hexadecimal digits that no other run has.
[[nodiscard]] std::string new_run_id();

/// Which run the process belongs to that is about to capture beside the manifest `path`.
struct RunClaim {
  std::string id;
  /// The manifest was made here, with a new id; another process's is left as it is.
  bool is_first = false;
};
/// All processes that capture into one folder are of one run: the first one's manifest names it.
/// Those on hosts that share no folder are when ASSAY_RUN_ID gives them the same 32 hexadecimal
/// digits, or their job has an id.
///
/// job_id  the id that all processes of this one's job know, for the first manifest of a folder;
///         empty: none is known
/// errors  of create_file_atomically()
[[nodiscard]] Result<RunClaim> claim_run(const std::string& path, native::Manifest manifest,
                                         const std::string& job_id = {});

/// False when there is one already.
/// errors  of create_file_atomically()
[[nodiscard]] Result<bool> create_manifest(const std::string& path,
                                           const native::Manifest& manifest);
/// errors  of write_file_atomically()
[[nodiscard]] Status write_manifest(const std::string& path, const native::Manifest& manifest);

}  // namespace assay::writer
