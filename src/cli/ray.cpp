// SPDX-License-Identifier: Apache-2.0
// The driver gets the path of this very program and the command's own words. ASSAY_PARTS in the
// environment says that a driver started this process, which then does not hand over again.
#include "cli/ray.hpp"

#include <unistd.h>

#include "cli/command.hpp"
#include "cli/dump/child_process.hpp"
#include "cli/python_driver.hpp"

namespace assay::cli {
namespace {

/// The running program, which the driver starts again.
std::string this_program() {
  std::string path(4096, '\0');
  const ssize_t size = ::readlink("/proc/self/exe", path.data(), path.size());
  path.resize(size < 0 ? 0 : static_cast<size_t>(size));
  return path;
}

}  // namespace

void add_ray_options(Command& command, RayRequest& request, bool has_parts) {
  command.in_group("Cluster");
  command.add(
      "--ray [ADDRESS]",
      "Do the work on a Ray cluster, where the files are; default: the cluster of this host",
      [&request](const Words& values) -> Status {
        request.is_wanted = true;
        request.address = values.empty() ? std::string() : values.front();
        return {};
      });
  command.add("--map-host HOST=PATH",
              "The node HOST has the files below PATH, whatever it seems; repeatable",
              added_to(request.host_paths));
  if (!has_parts) return;
  command.add("--resume DIR",
              "Keep the parts that are done in DIR, and do not do them again; with --ray",
              request.resume);
}

bool has_to_hand_over(const RayRequest& request) {
  return request.is_wanted && environment("ASSAY_PARTS").empty();
}

int hand_over_to_ray(const RayRequest& request, const std::string& name, const Words& words,
                     const Words& runs) {
  Words command = python_driver("import ray\nfrom assay.ray.driver import main", "ray");
  command.push_back("--program=" + this_program());
  if (!request.address.empty()) command.push_back("--address=" + request.address);
  for (const std::string& path : request.host_paths) command.push_back("--map-host=" + path);
  if (!request.resume.empty()) command.push_back("--resume=" + request.resume);
  for (const std::string& run : runs) command.push_back("--run=" + run);
  command.insert(command.end(), {"--", name});
  command.insert(command.end(), words.begin(), words.end());
  const Result<ChildEnd> end = run_program(command, {});
  if (!end) return report_error(end.error(), "ASSAY_PYTHON names the Python to use");
  return end->exit_status;
}

}  // namespace assay::cli
