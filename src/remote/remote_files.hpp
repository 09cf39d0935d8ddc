// SPDX-License-Identifier: Apache-2.0
// Runs at URLs: s3://, gs://, http://, and whatever else Python's fsspec reads.
#pragma once
#include <memory>
#include <string>

#include "base/file_source.hpp"
#include "remote/transfer.hpp"

namespace assay::remote {

/// What the store tells is kept until prepare() asks anew; parts of files are kept in the cache of
/// remote/block_cache.hpp.
[[nodiscard]] std::shared_ptr<FileSource> make_remote_files(std::shared_ptr<Carrier> carrier);

/// From now on paths with a scheme lead to the helper process. Nothing is started before the first
/// such path.
void register_remote_files();

}  // namespace assay::remote
