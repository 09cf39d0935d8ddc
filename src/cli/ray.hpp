// SPDX-License-Identifier: Apache-2.0
// Commands whose work is done on a Ray cluster: the options, and handing over to the driver in
// Python, which starts the command again with a socket for its parts.   docs/scale.md
#pragma once
#include <optional>
#include <string>

#include "cli/argparse.hpp"

namespace assay::cli {

struct RayRequest {
  bool is_wanted = false;
  std::string address;  // empty: that of a cluster that runs here
  Words host_paths;     // "HOST=PATH"
  std::string resume;   // folder of the parts that are done; empty: none is kept
};

/// --ray, --map-host; of a command that has parts --resume, too
void add_ray_options(Command& command, RayRequest& request, bool has_parts);
/// Whether the driver has to be started: it was asked for, and did not start this process.
[[nodiscard]] bool has_to_hand_over(const RayRequest& request);
/// Becomes the driver's exit status.
///
/// name    of the command
/// words   that it was called with
/// runs    that it reads: paths which nodes may have
int hand_over_to_ray(const RayRequest& request, const std::string& name, const Words& words,
                     const Words& runs);

}  // namespace assay::cli
