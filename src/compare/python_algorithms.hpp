// SPDX-License-Identifier: Apache-2.0
// Comparing algorithms written in Python, run in one helper process for all of them.
// The other side of the pipe, with the protocol: python/assay/_algorithm_host.py
#pragma once
#include <memory>
#include <string>

#include "compare/algorithms.hpp"

namespace assay::compare {

/// Invariant: at most one process runs; requests go one at a time. The process ends with this
/// object, and by itself when this one dies.
class PythonHost;

/// The text of python/assay/_algorithm_host.py.
extern const char* const kAlgorithmHost;

/// Nothing is started before the first load.
[[nodiscard]] std::shared_ptr<PythonHost> make_python_host();

/// The interpreter is $ASSAY_PYTHON, else python3 beside the running program, else the one on PATH.
/// A call that takes longer than $ASSAY_ALGORITHM_TIMEOUT seconds (600) ends the process, and the
/// next call starts a new one; after three such failures in a row the algorithms are switched off.
///
/// path        absolute, of the .py file
/// spec        as the user wrote it, for messages
/// errors      Invalid with the original's sentences | NotFound (no interpreter) | Io
[[nodiscard]] Result<std::shared_ptr<Algorithm>> load_python_algorithm(
    const std::shared_ptr<PythonHost>& host, const std::string& path, const std::string& directory,
    const std::string& function, const std::string& spec);

}  // namespace assay::compare
