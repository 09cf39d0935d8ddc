// SPDX-License-Identifier: Apache-2.0
// Runs and their records. assay/_run.py puts the public classes around them.
#include <memory>
#include <numeric>
#include <set>

#include "python/binding/class.hpp"
#include "python/module.hpp"
#include "python/tensor_array.hpp"
#include "report/html/run_page.hpp"
#include "run/layers.hpp"
#include "run/load.hpp"
#include "run/open.hpp"
#include "run/record_name.hpp"
#include "run/run.hpp"
#include "run/strided_payload.hpp"
#include "run/verify.hpp"

namespace py = assay::binding;
using namespace py::literals;

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

py::Object dims_or_none(InternedDims dims) {
  if (!dims) return py::none();
  py::List list;
  for (const int64_t size : *dims) list.append(size);
  return py::checked(PyList_AsTuple(list.ptr()));
}

py::Dict tree_dict(const run::TopologyNode& node) {
  py::List children;
  for (const run::TopologyNode& child : node.children) children.append(tree_dict(child));
  py::Dict dict;
  dict["name"] = to_str(node.name);
  dict["type"] = to_str(node.type);
  dict["source"] = to_str(node.source);
  dict["children"] = children;
  return dict;
}

py::List node_names(const run::Run& run) {
  std::set<std::string_view> known;
  py::List names;
  for (const run::TensorRecord& record : run.records)
    if (known.insert(record.node).second) names.append(to_str(record.node));
  return names;
}

py::Dict coverage_dict(const run::Coverage& coverage) {
  py::List missed;
  for (const native::MissedNode& item : coverage.missed) {
    missed.append(py::tuple_of(to_str(item.node), to_message(item.reason), item.count));
  }
  py::Dict dict;
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

py::List damage_list(const std::vector<run::Damage>& damage) {
  py::List list;
  for (const run::Damage& one : damage)
    list.append(py::tuple_of(to_str(one.file), to_message(one.what)));
  return list;
}

Tensor load(const RecordHandle& handle) {
  const run::TensorRecord record = handle.record();
  return read_without_gil([&] { return run::load_tensor(record); });
}

void bind_record(py::Module& m) {
  py::Class<RecordHandle>(m, "Record", "One tensor of one execution of one node.")
      .property("rank", [](const RecordHandle& self) { return self.record().rank; })
      .property("step", [](const RecordHandle& self) { return self.record().step; })
      .property("step_name",
                [](const RecordHandle& self) { return to_str(self.record().step_name); })
      .property("node", [](const RecordHandle& self) { return to_str(self.record().node); })
      .property(
          "name", [](const RecordHandle& self) { return to_str(run::record_name(self.record())); },
          "Node, role and slot joined by dots.")
      .property("op_type", [](const RecordHandle& self) { return to_str(self.record().op_type); })
      .property("role",
                [](const RecordHandle& self) { return std::string(role_name(self.record().role)); })
      .property("slot", [](const RecordHandle& self) { return to_str(self.record().slot); })
      .property("member",
                [](const RecordHandle& self) {
                  const run::MaybeLocation& bytes = self.record().bytes;
                  return to_str(bytes ? std::string_view(bytes->member) : std::string_view());
                })
      .property("call", [](const RecordHandle& self) { return self.record().call; })
      .property("order", [](const RecordHandle& self) { return self.record().order; })
      .property("value", [](const RecordHandle& self) { return to_message(self.record().value); })
      .property("memory_format",
                [](const RecordHandle& self) {
                  const run::TensorRecord& record = self.record();
                  return run::has_plain_values(record) ? to_str("") : to_str(record.memory_format);
                })
      .property("problem",
                [](const RecordHandle& self) { return to_message(self.record().problem); })
      .property("has_bytes",
                [](const RecordHandle& self) { return self.record().bytes.has_value(); })
      .property(
          "file",
          [](const RecordHandle& self) -> py::Object {
            const auto& bytes = self.record().bytes;
            return bytes ? py::Object(to_str(bytes->file)) : py::Object(py::none());
          },
          py::Returns{"str | None"})
      .property(
          "dtype",
          [](const RecordHandle& self) -> py::Object {
            const auto& dtype = with_header(self).dtype;
            return dtype ? py::Object(to_str(name(*dtype))) : py::Object(py::none());
          },
          py::Returns{"str | None"})
      .property(
          "shape", [](const RecordHandle& self) { return dims_or_none(with_header(self).shape); },
          py::Returns{"tuple[int, ...] | None"})
      .property(
          "strides",
          [](const RecordHandle& self) { return dims_or_none(with_header(self).strides); },
          py::Returns{"tuple[int, ...] | None"})
      .property("recorded_stats",
                [](const RecordHandle& self) {
                  return std::optional<stats::TensorStats>(self.record().stats);
                })
      .property("recorded_digest",
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

void bind_run(py::Module& m) {
  bind_record(m);
  py::Class<RunHandle>(m, "Run", "One captured run.")
      .property("path", [](const RunHandle& self) { return to_str(self.run->path); })
      .property("layout",
                [](const RunHandle& self) { return to_str(run::layout_name(self.run->layout)); })
      .property("is_file", [](const RunHandle& self) { return self.run->has(run::Trait::OneFile); })
      .property("warnings",
                [](const RunHandle& self) {
                  py::List warnings;
                  for (const std::string& warning : self.run->warnings)
                    warnings.append(to_message(warning));
                  return warnings;
                })
      .property("properties",
                [](const RunHandle& self) {
                  py::Dict properties;
                  for (const auto& [key, value] : self.run->properties)
                    properties[to_message(key)] = to_message(value);
                  return properties;
                })
      .property(
          "damage", [](const RunHandle& self) { return damage_list(self.run->all_damage()); },
          "Tuples of file and fault, as far as they are known.")
      .def(
          "verify",
          [](const RunHandle& self) {
            const std::shared_ptr<run::Run> run = self.run;
            return damage_list(read_without_gil([&] { return run::verify_run(*run); }).damage);
          },
          "Reads everything; all of the damage.")
      .property("coverage", [](const RunHandle& self) { return coverage_dict(self.run->coverage); })
      .property(
          "tree",
          [](const RunHandle& self) -> py::Object {
            if (!self.run->topology) return py::none();
            return tree_dict(*self.run->topology);
          },
          py::Returns{"dict | None"})
      .property(
          "nodes", [](const RunHandle& self) { return node_names(*self.run); },
          "Names of the nodes, in the order of their first records.")
      .property(
          "steps",
          [](const RunHandle& self) {
            std::set<int64_t> steps;
            for (const run::TensorRecord& record : self.run->records)
              if (record.step >= 0) steps.insert(record.step);
            return std::vector<int64_t>(steps.begin(), steps.end());
          },
          "Token ids, ascending.")
      .property(
          "ranks",
          [](const RunHandle& self) {
            std::set<int> ranks;
            for (const run::TensorRecord& record : self.run->records) ranks.insert(record.rank);
            return std::vector<int>(ranks.begin(), ranks.end());
          },
          "Ascending.")
      .def(
          "named",
          [](const RunHandle& self, const py::Bytes& name) {
            return run::records_named(*self.run, std::string(name.view()));
          },
          "name"_a, "Indices of the records of a node, of one of its roles, or of one tensor.")
      .property(
          "layer_type",
          [](const RunHandle& self) {
            return self.run->topology ? run::layer_type(*self.run->topology, run::kAnySizeLayerRule)
                                      : std::string();
          },
          "Class of the repeated layers, empty when there are none.")
      .property(
          "operations",
          [](const RunHandle& self) {
            py::List operations;
            for (const run::OperationRecord& operation : self.run->operations) {
              operations.append(py::tuple_of(operation.rank, operation.step, to_str(operation.node),
                                             to_str(operation.op_type),
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
              throw std::out_of_range("record index out of range");
            return RecordHandle{self.run, index};
          },
          "index"_a);
  m.def(
      "open_run",
      [](const py::Bytes& encoded) {
        const std::string path(encoded.view());
        return RunHandle{
            std::make_shared<run::Run>(read_without_gil([&] { return run::open_run(path); }))};
      },
      "path"_a, "Opens a run of any layout.");
}

}  // namespace assay::python
