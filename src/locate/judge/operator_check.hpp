// SPDX-License-Identifier: Apache-2.0
// What `assay opcheck` judges: operations of an ATB dump, or operators of a run that has them.
//   docs/commands/opcheck.md
#pragma once
#include <memory>
#include <optional>

#include "locate/program/engine.hpp"
#include "opcheck/check.hpp"

namespace assay::locate {

/// What a path holds of the two.
struct CheckSubject {
  std::optional<opcheck::CaseList> operations;  // of an ATB dump
  std::shared_ptr<const run::Run> operators;    // of a run at operator level
};

/// errors  of opcheck::list_cases() | NotCaptured: a run without operators | Invalid: options that
///         only ATB dumps have
[[nodiscard]] Result<CheckSubject> find_check_subject(const std::string& path,
                                                      const opcheck::CaseOptions& cases,
                                                      const opcheck::CheckOptions& options,
                                                      Engines engines);

/// Operations by `options.standard`; operators by what rounding explains, `options.finished` is
/// called when all are judged, since what a coarse kernel is its peers tell.
/// names   of operators: only types whose name contains one of these, any case
/// errors  of own_errors()
[[nodiscard]] Result<opcheck::Report> check_subject(const CheckSubject& subject,
                                                    const std::vector<std::string>& names,
                                                    const opcheck::CheckOptions& options,
                                                    Engines engines);

}  // namespace assay::locate
