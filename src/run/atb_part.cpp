// SPDX-License-Identifier: Apache-2.0
// From a path to the run that holds it: the folders of a process and of a run count are known by
// their names.
#include "run/atb_part.hpp"

#include <string_view>
#include <vector>

#include "base/text.hpp"
#include "run/atb_names.hpp"
#include "run/folder.hpp"
#include "run/open.hpp"

namespace assay::run {
namespace {

/// Where the folder of a run count is in a path, and what follows below it.
struct PartPlace {
  std::string step_folder;  // as it can be opened; empty: the path leads into no run count
  std::string below;
  std::string dump_folder;
};

/// ".../tensors/0_4711/2/0_layer/1_LinearOperation" -> the folder of run count 2, and what is
/// below.
PartPlace place_of_part(const std::string& path) {
  const std::string real = real_path(path);
  PartPlace place;
  const std::vector<std::string_view> parts = split(real, '/');
  for (size_t i = parts.size(); i-- > 1;) {
    if (!parse_atb_run_count(parts[i]) || !parse_atb_process_folder(parts[i - 1])) continue;
    const auto end = static_cast<size_t>(parts[i].data() + parts[i].size() - real.data());
    place.step_folder = real.substr(0, end);
    if (end < real.size()) place.below = real.substr(end + 1);
    const auto process = static_cast<size_t>(parts[i - 1].data() - real.data());
    place.dump_folder = real.substr(0, process == 0 ? 0 : process - 1);
    return place;
  }
  // The folder of a process, of which several run counts may be there.
  if (!parts.empty() && parse_atb_process_folder(parts.back()))
    place.dump_folder = real.substr(0, real.rfind('/'));
  return place;
}

}  // namespace

bool AtbPart::holds(const TensorRecord& record) const {
  return below.empty() || record.node == below || record.node.starts_with(below + "/");
}

Result<AtbPart> open_atb_part(const std::string& path) {
  PartPlace place = place_of_part(path);
  ASSAY_TRY(Run run, open_run(place.below.empty() ? path : place.step_folder));
  return AtbPart{std::move(run), std::move(place.below), std::move(place.dump_folder)};
}

}  // namespace assay::run
