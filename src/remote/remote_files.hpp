// SPDX-License-Identifier: Apache-2.0
// Runs at URLs: s3://, gs://, http://, and whatever else Python's fsspec reads.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "base/file_source.hpp"
#include "remote/transfer.hpp"

namespace assay::remote {

/// What the store tells is kept until prepare() asks anew; parts of files are kept in the cache of
/// remote/block_cache.hpp.
/// home   beginning of URLs that the user does not know; behind it is the path that he does
[[nodiscard]] std::shared_ptr<FileSource> make_remote_files(std::shared_ptr<Carrier> carrier,
                                                            std::string home = {});

/// The error with the path that the user knows, where it names a URL below `home`.
/// path   as the user wrote it; empty: what is behind `home`
[[nodiscard]] Error without_home(Error error, std::string_view home, const std::string& path = {});

/// From now on paths with a scheme lead to the helper process. Nothing is started before the first
/// such path.
void register_remote_files();

/// Paths that look local and lie on other hosts, where a driver that started this process says so.
/// It gives a file in ASSAY_NODE_FILES: {"folder": of relative paths, "paths": [...], "socket": for
/// python/assay/_remote.py}.
/// errors   NotFound | Io | Invalid: ASSAY_NODE_FILES names no such file
[[nodiscard]] Status register_node_files();

}  // namespace assay::remote
