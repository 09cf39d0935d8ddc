// SPDX-License-Identifier: Apache-2.0
// The system calls of the sinks, replaceable so that tests can fill a disk without having one to
// fill.
#pragma once
#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

namespace assay::writer {

struct IoFunctions {
  ssize_t (*pwrite)(int fd, const void* bytes, size_t size, off_t offset) = ::pwrite;
  ssize_t (*write)(int fd, const void* bytes, size_t size) = ::write;
};

}  // namespace assay::writer
