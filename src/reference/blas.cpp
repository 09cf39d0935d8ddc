// SPDX-License-Identifier: Apache-2.0
// Each product takes one of 128 work buffers of OpenBLAS. Without threads of its own the library
// looks for a free one without a lock (0.3.21, and Debian's libopenblas-serial is built so): two
// threads can get the same one, and then some rows of their results are wrong. The linker therefore
// leads its calls here (--wrap, cmake/openblas.cmake).
#include "reference/blas.hpp"

#include <cblas.h>

#include <mutex>
#include <semaphore>

extern "C" {
void* __real_blas_memory_alloc(int purpose);
void __real_blas_memory_free(void* buffer);
void* __wrap_blas_memory_alloc(int purpose);
void __wrap_blas_memory_free(void* buffer);
}

namespace {

// OpenBLAS complains on stderr when its buffers are used up.
constexpr int kMaxProducts = 64;
std::counting_semaphore<kMaxProducts> free_buffers(kMaxProducts);
std::mutex buffers_mutex;

}  // namespace

void* __wrap_blas_memory_alloc(int purpose) {
  free_buffers.acquire();
  const std::lock_guard lock(buffers_mutex);
  return __real_blas_memory_alloc(purpose);
}

void __wrap_blas_memory_free(void* buffer) {
  {
    const std::lock_guard lock(buffers_mutex);
    __real_blas_memory_free(buffer);
  }
  free_buffers.release();
}

namespace assay::reference {

void prepare_blas() noexcept {
  static std::once_flag once;
  std::call_once(once, [] { openblas_set_num_threads(1); });
}

}  // namespace assay::reference
