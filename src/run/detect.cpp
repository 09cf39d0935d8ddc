// SPDX-License-Identifier: Apache-2.0
// The order in which the readers are asked, and the sentence for a path that none of them
// recognises.
#include "run/detect.hpp"

#include "base/file_source.hpp"
#include "run/folder.hpp"
#include "run/sources/graphs_json.hpp"
#include "run/sources/sources.hpp"

namespace assay::run {

Result<Run> detect_and_read(const std::string& path) {
  if (const auto source = file_source(path)) ASSAY_TRY_STATUS(source->prepare(path));
  ASSAY_TRY_STATUS(file_facts(path));
  const ListingScope listing;
  // From the most to the least specific: a native run is also a folder with tensor files in it, and
  // runs of msprobe and transformers may be named by their lists.
  for (const auto source :
       {sources::read_msprobe, sources::read_debug_tree_dump, sources::read_fingerprint,
        sources::read_file, sources::read_native, sources::read_ge_tree, sources::read_fx_tree,
        sources::read_captured_graph, sources::read_graphs_alone, sources::read_atb_tree,
        sources::read_torch_tree, sources::read_flat}) {
    if (sources::Attempt attempt = source(path)) return *std::move(attempt);
  }
  return fail(Error{Errc::Unsupported, path, std::nullopt,
                    "holds no run: no native run (manifest.json, rank0/records.jsonl), no dump of "
                    "torch or ATB (msit_dump_*, ait_dump_*, atb_dump_data, torch_tensors, tensors, "
                    "a device_pid, step or module folder) or msprobe (dump.json), no dump of "
                    "transformers (*_debug_tree_*.json), no fingerprint, no tensor files "
                    "(.npy .npz .pth .pt "
                    ".safetensors .bin)"});
}

}  // namespace assay::run
