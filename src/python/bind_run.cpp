// SPDX-License-Identifier: Apache-2.0
// Runs and their records. assay/_run.py puts the public classes around them.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <numeric>
#include <set>

#include "python/module.hpp"
#include "python/tensor_array.hpp"
#include "report/html/run_page.hpp"
#include "run/layers.hpp"
#include "run/record_name.hpp"
#include "run/run.hpp"
#include "run/strided_payload.hpp"
#include "run/verify.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace assay::python {
namespace {

/// A record together with the run it lives in.
struct RecordHandle {
  std::shared_ptr<run::Run> run;
  size_t index = 0;
  [[nodiscard]] run::TensorRecord& record() const { return run->records[index]; }
};
struct RunHandle {
  std::shared_ptr<run::Run> run;
};

nb::object dims_or_none(InternedDims dims) {
  if (!dims) return nb::none();
  nb::list list;
  for (const int64_t size : *dims) list.append(size);
  return nb::tuple(list);
}

nb::dict tree_dict(const run::TopologyNode& node) {
  nb::list children;
  for (const run::TopologyNode& child : node.children) children.append(tree_dict(child));
  nb::dict dict;
  dict["name"] = to_str(node.name);
  dict["type"] = to_str(node.type);
  dict["source"] = to_str(node.source);
  dict["children"] = children;
  return dict;
}

nb::list node_names(const run::Run& run) {
  std::set<std::string_view> known;
  nb::list names;
  for (const run::TensorRecord& record : run.records)
    if (known.insert(record.node).second) names.append(to_str(record.node));
  return names;
}

nb::dict coverage_dict(const run::Coverage& coverage) {
  nb::list missed;
  for (const native::MissedNode& item : coverage.missed) {
    missed.append(nb::make_tuple(to_str(item.node), to_message(item.reason), item.count));
  }
  nb::dict dict;
  dict["complete"] = coverage.complete;
  dict["planned"] = coverage.planned;
  dict["captured"] = coverage.captured;
  dict["missed"] = missed;
  return dict;
}

/// Reads the file's header once when the records do not say what the caller asks for.
const run::TensorRecord& with_header(const RecordHandle& handle) {
  run::TensorRecord& record = handle.record();
  const bool known = record.dtype && record.shape && record.strides;
  if (known || !record.bytes) return record;
  run::TensorRecord completed = record;
  read_without_gil([&] { return run::load_header(completed); });
  record = std::move(completed);
  return record;
}

nb::list damage_list(const std::vector<run::Damage>& damage) {
  nb::list list;
  for (const run::Damage& one : damage)
    list.append(nb::make_tuple(to_str(one.file), to_message(one.what)));
  return list;
}

Tensor load(const RecordHandle& handle) {
  const run::TensorRecord record = handle.record();
  return read_without_gil([&] { return run::load_tensor(record); });
}

void bind_record(nb::module_& m) {
  nb::class_<RecordHandle>(m, "Record", "One tensor of one execution of one node.")
      .def_prop_ro("rank", [](const RecordHandle& self) { return self.record().rank; })
      .def_prop_ro("step", [](const RecordHandle& self) { return self.record().step; })
      .def_prop_ro("step_name",
                   [](const RecordHandle& self) { return to_str(self.record().step_name); })
      .def_prop_ro("node", [](const RecordHandle& self) { return to_str(self.record().node); })
      .def_prop_ro(
          "name", [](const RecordHandle& self) { return to_str(run::record_name(self.record())); },
          "Node, role and slot joined by dots.")
      .def_prop_ro("op_type",
                   [](const RecordHandle& self) { return to_str(self.record().op_type); })
      .def_prop_ro(
          "role",
          [](const RecordHandle& self) { return std::string(run::role_name(self.record().role)); })
      .def_prop_ro("slot", [](const RecordHandle& self) { return to_str(self.record().slot); })
      .def_prop_ro("call", [](const RecordHandle& self) { return self.record().call; })
      .def_prop_ro("order", [](const RecordHandle& self) { return self.record().order; })
      .def_prop_ro("value",
                   [](const RecordHandle& self) { return to_message(self.record().value); })
      .def_prop_ro("memory_format",
                   [](const RecordHandle& self) {
                     const run::TensorRecord& record = self.record();
                     return run::has_plain_values(record) ? to_str("")
                                                          : to_str(record.memory_format);
                   })
      .def_prop_ro("problem",
                   [](const RecordHandle& self) { return to_message(self.record().problem); })
      .def_prop_ro("has_bytes",
                   [](const RecordHandle& self) { return self.record().bytes.has_value(); })
      .def_prop_ro(
          "file",
          [](const RecordHandle& self) -> nb::object {
            const auto& bytes = self.record().bytes;
            return bytes ? nb::object(to_str(bytes->file)) : nb::object(nb::none());
          },
          nb::sig("def file(self) -> str | None"))
      .def_prop_ro(
          "dtype",
          [](const RecordHandle& self) -> nb::object {
            const auto& dtype = with_header(self).dtype;
            return dtype ? nb::object(to_str(name(*dtype))) : nb::object(nb::none());
          },
          nb::sig("def dtype(self) -> str | None"))
      .def_prop_ro(
          "shape", [](const RecordHandle& self) { return dims_or_none(with_header(self).shape); },
          nb::sig("def shape(self) -> tuple[int, ...] | None"))
      .def_prop_ro(
          "strides",
          [](const RecordHandle& self) { return dims_or_none(with_header(self).strides); },
          nb::sig("def strides(self) -> tuple[int, ...] | None"))
      .def_prop_ro("recorded_stats",
                   [](const RecordHandle& self) {
                     return std::optional<stats::TensorStats>(self.record().stats);
                   })
      .def_prop_ro("recorded_digest",
                   [](const RecordHandle& self) -> std::optional<std::string> {
                     const auto& digest = self.record().digest;
                     if (!digest) return std::nullopt;
                     return stats::digest_text(*digest);
                   })
      .def(
          "load", [](const RecordHandle& self) { return MappedTensor{load(self)}; },
          "Maps the tensor.");
}

}  // namespace

void bind_run(nb::module_& m) {
  bind_record(m);
  nb::class_<RunHandle>(m, "Run", "One captured run.")
      .def_prop_ro("path", [](const RunHandle& self) { return to_str(self.run->path); })
      .def_prop_ro("layout",
                   [](const RunHandle& self) { return to_str(run::layout_name(self.run->layout)); })
      .def_prop_ro("is_file",
                   [](const RunHandle& self) { return self.run->has(run::Trait::OneFile); })
      .def_prop_ro("warnings",
                   [](const RunHandle& self) {
                     nb::list warnings;
                     for (const std::string& warning : self.run->warnings)
                       warnings.append(to_message(warning));
                     return warnings;
                   })
      .def_prop_ro("properties",
                   [](const RunHandle& self) {
                     nb::dict properties;
                     for (const auto& [key, value] : self.run->properties)
                       properties[to_message(key)] = to_message(value);
                     return properties;
                   })
      .def_prop_ro(
          "damage", [](const RunHandle& self) { return damage_list(self.run->all_damage()); },
          "Tuples of file and fault, as far as they are known.")
      .def(
          "verify",
          [](const RunHandle& self) {
            const std::shared_ptr<run::Run> run = self.run;
            return damage_list(read_without_gil([&] { return run::verify_run(*run); }).damage);
          },
          "Reads everything; all of the damage.")
      .def_prop_ro("coverage",
                   [](const RunHandle& self) { return coverage_dict(self.run->coverage); })
      .def_prop_ro(
          "tree",
          [](const RunHandle& self) -> nb::object {
            if (!self.run->topology) return nb::none();
            return tree_dict(*self.run->topology);
          },
          nb::sig("def tree(self) -> dict | None"))
      .def_prop_ro(
          "nodes", [](const RunHandle& self) { return node_names(*self.run); },
          "Names of the nodes, in the order of their first records.")
      .def_prop_ro(
          "steps",
          [](const RunHandle& self) {
            std::set<int64_t> steps;
            for (const run::TensorRecord& record : self.run->records)
              if (record.step >= 0) steps.insert(record.step);
            return std::vector<int64_t>(steps.begin(), steps.end());
          },
          "Token ids, ascending.")
      .def_prop_ro(
          "ranks",
          [](const RunHandle& self) {
            std::set<int> ranks;
            for (const run::TensorRecord& record : self.run->records) ranks.insert(record.rank);
            return std::vector<int>(ranks.begin(), ranks.end());
          },
          "Ascending.")
      .def(
          "named",
          [](const RunHandle& self, const nb::bytes& name) {
            return run::records_named(*self.run, std::string(name.c_str(), name.size()));
          },
          "name"_a, "Indices of the records of a node, of one of its roles, or of one tensor.")
      .def_prop_ro(
          "layer_type",
          [](const RunHandle& self) {
            return self.run->topology ? run::layer_type(*self.run->topology, run::kAnySizeLayerRule)
                                      : std::string();
          },
          "Class of the repeated layers, empty when there are none.")
      .def_prop_ro(
          "operations",
          [](const RunHandle& self) {
            nb::list operations;
            for (const run::OperationRecord& operation : self.run->operations) {
              operations.append(nb::make_tuple(operation.rank, operation.step,
                                               to_str(operation.node), to_str(operation.op_type),
                                               to_message(operation.parameters)));
            }
            return operations;
          },
          "Tuples of rank, step, node, operator type, parameters.")
      .def(
          "write_page",
          [](const RunHandle& self, const std::string& path) {
            std::vector<size_t> all(self.run->records.size());
            std::iota(all.begin(), all.end(), size_t{0});
            value_or_raise(report::html::write_page(report::html::run_page(*self.run, all), path));
          },
          "path"_a)
      .def("__len__", [](const RunHandle& self) { return self.run->records.size(); })
      .def(
          "record",
          [](const RunHandle& self, size_t index) {
            if (index >= self.run->records.size())
              throw nb::index_error("record index out of range");
            return RecordHandle{self.run, index};
          },
          "index"_a);
  m.def(
      "open_run",
      [](const nb::bytes& encoded) {
        const std::string path(encoded.c_str(), encoded.size());
        return RunHandle{
            std::make_shared<run::Run>(read_without_gil([&] { return run::open_run(path); }))};
      },
      "path"_a, "Opens a run of any layout.");
}

}  // namespace assay::python
