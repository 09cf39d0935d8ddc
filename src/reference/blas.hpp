// SPDX-License-Identifier: Apache-2.0
// OpenBLAS, made fit to be called from several threads of ours at once.
#pragma once

namespace assay::reference {

/// To be called before a product: our threads are the only ones afterwards, also with a threaded
/// OpenBLAS. What makes concurrent calls safe is linked with it (blas.cpp).
void prepare_blas() noexcept;

}  // namespace assay::reference
