// SPDX-License-Identifier: Apache-2.0
#include "weft/checkpoint.h"

#include <optional>

#include "python/bindings/bindings.h"
#include "python/bindings/fields.h"
#include "python/bindings/modules.h"
#include "weft/dcp.h"
#include "weft/ema.h"
#include "weft/extend/saved_model.h"
#include "weft/hugging_face.h"
#include "weft/loss_scaler.h"
#include "weft/state_dict.h"

namespace weft::python {

using WholeNumbers = std::map<std::string, int64_t>;

static void bind_training_state(py::module_& m) {
  py::class_<TrainingState> training_state_class(
      m, "TrainingState",
      "State saved and loaded together, part by part: models, optimizers, tensors, and numbers. "
      "Keys are '<part>/<key>'");
  training_state_class.def(py::init<>())
      .def("add", py::overload_cast<const std::string&, Module&>(&TrainingState::add),
           py::keep_alive<1, 3>(), "name"_a, "part"_a,
           "ValueError when there is a part of that name, or it has a slash")
      .def("add", py::overload_cast<const std::string&, Optimizer&>(&TrainingState::add),
           py::keep_alive<1, 3>(), "name"_a, "part"_a)
      .def("add_adapters", &TrainingState::add_adapters, py::keep_alive<1, 3>(), "name"_a, "part"_a,
           "Adds only the adapters of a module; ValueError at a load when rank or alpha differ")
      .def("add", py::overload_cast<const std::string&, Ema&>(&TrainingState::add),
           py::keep_alive<1, 3>(), "name"_a, "part"_a)
      .def("add", py::overload_cast<const std::string&, LossScaler&>(&TrainingState::add),
           py::keep_alive<1, 3>(), "name"_a, "part"_a)
      .def("add", py::overload_cast<const std::string&, NonFinitePolicy&>(&TrainingState::add),
           py::keep_alive<1, 3>(), "name"_a, "part"_a)
      .def("add", py::overload_cast<const std::string&, const Tensor&>(&TrainingState::add),
           "name"_a, "part"_a);
  training_state_class
      .def(
          "add",
          [](TrainingState& self, const std::string& name, const py::object& part) {
            py::module_::import("weft.training").attr("_add_stateful")(self, name, part);
          },
          "name"_a, "part"_a,
          "Also a GradScaler, a scheduler of lr_scheduler, or any object with state_dict() and "
          "load_state_dict() of numbers, texts, lists and dicts, equal on all ranks")
      .def(
          "__repr__", [](const TrainingState& self) { return concat(self); }, Released());
  def(training_state_class, "add_random(name='random')", "The state of this rank's random numbers",
      [](TrainingState& self, const std::string& name) {
        // That of the calling rank: this object may outlive the rank that made it.
        self.add(name, []() -> RandomState& { return Context::current().random; });
      });
  def(training_state_class, "add_numbers(name, give, take, *, takes_any=False)",
      "Whole numbers by name, equal on all ranks: give() returns them as a dict, take(dict) gets "
      "them back after a load; with takes_any whatever their names are in the checkpoint",
      [](TrainingState& self, const std::string& name, const py::function& give,
         const py::function& take, bool takes_any) {
        const auto numbers = function_in<WholeNumbers>(give);
        self.add(name, {.give =
                            [numbers] {
                              return StateDict{{}, numbers()};
                            },
                        .take = function_in<void, const WholeNumbers&>(take),
                        .takes_any_numbers = takes_any});
      });
  training_state_class.def("state_dict", &TrainingState::state_dict, Released());
  def(m, "_config_numbers(config)", &config_numbers);
  def(m, "_have_same_choices(saved, numbers)",
      [](const WholeNumbers& saved, const WholeNumbers& numbers) {
        return are_same_choices(saved_text("config", saved), saved_text("config", numbers));
      });
}

static void bind_state_dicts(py::module_& m) {
  py::class_<StateDict>(m, "StateDict",
                        "The state of an object, by name: `tensors`, which share their elements "
                        "with it, each in its layout, and whole `numbers`, equal on all ranks")
      .def(py::init([](std::map<std::string, Tensor> tensors, WholeNumbers numbers) {
             return StateDict{std::move(tensors), std::move(numbers)};
           }),
           "tensors"_a = std::map<std::string, Tensor>{}, "numbers"_a = WholeNumbers{})
      .def_readonly("tensors", &StateDict::tensors)
      .def_readwrite("numbers", &StateDict::numbers)
      .def("__repr__", [](const StateDict& self) { return concat("StateDict(", self, ')'); });
  py::class_<SkippedKeys>(m, "SkippedKeys", "Keys that were not loaded")
      .def_readonly("missing", &SkippedKeys::missing, "The receiver has them, the dict does not")
      .def_readonly("unexpected", &SkippedKeys::unexpected,
                    "The dict has them, the receiver does not")
      .def_readonly("missing_keys", &SkippedKeys::missing, "Equal to `missing`")
      .def_readonly("unexpected_keys", &SkippedKeys::unexpected, "Equal to `unexpected`")
      .def("__iter__",
           [](const SkippedKeys& skipped) {
             return py::iter(py::make_tuple(skipped.missing, skipped.unexpected));
           })
      .def("__repr__", [](const SkippedKeys& skipped) {
        const py::list missing = py::cast(skipped.missing),
                       unexpected = py::cast(skipped.unexpected);
        return concat("SkippedKeys(missing=", py::repr(missing),
                      ", unexpected=", py::repr(unexpected), ")");
      });
  def(m, "state_dict(part)", "The state of a module or an optimizer; its tensors alias. No traffic",
      [](const Module& module) { return state_dict(module); });
  def(m, "state_dict(part)", [](Optimizer& optimizer) { return state_dict(optimizer); });
  def(m, "state_dict(part)", [](Ema& ema) { return state_dict(ema); });
  def(m, "load_state_dict(part, state)",
      [](Ema& ema, const StateDict& from) { load_state_dict(ema, from); });
  const auto bind_load = [&](auto* type) {
    using Part = std::remove_pointer_t<decltype(type)>;
    def(m, "load_state_dict(part, state, *, strict=True)",
        "Copies the elements into a module or an optimizer; they move where the layouts differ. "
        "ValueError, before anything is changed, names keys that are missing or unexpected, and "
        "shapes that do not fit. strict=False loads what both have and gives the others",
        [](Part& part, const StateDict& from, bool strict) {
          if (!strict) return load_common_keys(part, from);
          load_state_dict(part, from);
          return SkippedKeys();
        });
  };
  bind_load(static_cast<Module*>(nullptr));
  bind_load(static_cast<Optimizer*>(nullptr));
  bind_training_state(m);
}

namespace {

/// A saver's destructor waits for the pending save, whose thread may call Python.
struct DeleteReleased {
  void operator()(CheckpointSaver* saver) const {
    const Unlocked release;
    delete saver;
  }
};

}  // namespace

static void bind_saver(py::module_& m) {
  using C = CheckpointOptions;
  py::class_<CheckpointSaver, std::unique_ptr<CheckpointSaver, DeleteReleased>> saver(
      m, "CheckpointSaver",
      "Saves states of a run to '<directory>/step-<step>-<generation>/', a file a rank. A save "
      "makes no collective and overwrites nothing");
  const auto make = [](const Communicator& world, const std::string& directory, const C& options) {
    return released([&] { return new CheckpointSaver(world, directory, options); });
  };
  bind_constructor<C, Communicator, std::string>(
      saver, make, "world"_a, "directory"_a, py::kw_only(), option("keep", &C::keep),
      option("continues", &C::continues), option("resumed_step", &C::resumed_step),
      option("async_bytes", &C::async_bytes), option("refuse_non_finite", &C::refuse_non_finite),
      option("lease_seconds", &C::lease_seconds),
      "Collective over all ranks that hold the state. keep: complete checkpoints of this run to "
      "keep next to the newest, 0 for all. continues: those that exist are this run's too; of "
      "those after resumed_step, which it passed over, none counts towards keep (-1: the step "
      "before the first that is saved). refuse_non_finite: a save raises RuntimeError, naming the "
      "tensor, when an element of this rank's part is NaN or infinite; without, it is saved and "
      "marked. lease_seconds: how long another job waits for a sign of life of this saver before "
      "it takes the directory over. A problem that does not make a save fail is a warning");
  saver
      .def("save", py::overload_cast<int64_t, const TrainingState&>(&CheckpointSaver::save),
           Released(), "step"_a, "state"_a,
           "Writes this rank's part; call it on all ranks. Gives the checkpoint's path when this "
           "rank's file is on the disk, where it survives a crash. The files of other ranks may be "
           "missing still, and readers pass over the checkpoint until all are there: wait_all")
      .def("save", py::overload_cast<int64_t, const StateDict&>(&CheckpointSaver::save), Released(),
           "step"_a, "state"_a)
      .def("save_async",
           py::overload_cast<int64_t, const TrainingState&>(&CheckpointSaver::save_async),
           Released(), "step"_a, "state"_a,
           "Returns as soon as the elements are copied, and writes them meanwhile; what goes wrong "
           "is raised by the next call")
      .def("save_async", py::overload_cast<int64_t, const StateDict&>(&CheckpointSaver::save_async),
           Released(), "step"_a, "state"_a)
      .def("wait", &CheckpointSaver::wait, Released(), "Waits until nothing is under way")
      .def(
          "wait_all",
          [](CheckpointSaver& own, double timeout) {
            return own.wait_all(std::chrono::milliseconds(static_cast<int64_t>(timeout * 1000)));
          },
          "timeout"_a = 600.0, Released(),
          "Waits until this rank's save is done and the files of all ranks of that step are there, "
          "by looking into the directory: no collective, so that any of the ranks may call it. "
          "Returns the checkpoint's path, which is complete. timeout: seconds, after which "
          "RuntimeError names the missing files")
      .def_property_readonly("is_saving", &CheckpointSaver::is_saving)
      .def_property_readonly("generation", &CheckpointSaver::generation);
}

static py::dict as_dict(const CheckpointReport& report) {
  return py::dict(
      "verdict"_a = name_of(report.verdict), "reason"_a = report.reason, "files"_a = report.files,
      "file"_a = report.file, "tensor"_a = report.tensor, "block"_a = report.block,
      "step"_a = report.step, "generation"_a = report.generation, "ranks"_a = report.ranks,
      "tensors"_a = report.tensors, "bytes"_a = report.bytes, "non_finite"_a = report.non_finite,
      "non_finite_tensor"_a = report.non_finite_tensor);
}

static void bind_readers(py::module_& m) {
  def(m, "inspect_checkpoint(path, *, data=True, threads=1)",
      "A report on a checkpoint: verdict (COMPLETE, INCOMPLETE, MIXED or CORRUPT), reason, and "
      "where; non_finite: elements that are NaN or infinite, -1 when they were not counted. "
      "data=False looks at names, sizes and headers only",
      [](const std::string& path, bool data, int threads) {
        const InspectOptions options{.depth = data ? Inspection::data : Inspection::headers,
                                     .threads = threads};
        return as_dict(released([&] { return inspect_checkpoint(path, options); }));
      });
  def(m, "list_checkpoints(directory)", &list_checkpoints, "Newest first");
  def(m, "newest_complete_checkpoint(directory, world=None)",
      "Uses names, sizes and headers; '' if there is none. With `world` all its ranks, which call "
      "it together, get what the first one finds: each might find another one while a job saves",
      [](const std::string& directory, const std::optional<Communicator>& world) {
        return world ? newest_complete_checkpoint(*world, directory)
                     : newest_complete_checkpoint(directory);
      });
  def(m, "load(path, into)", py::overload_cast<const std::string&, const TrainingState&>(&load),
      "Fills the tensors, wherever and however they lie, and the numbers, from a checkpoint of "
      "weft's or PyTorch's, or a model in safetensors form. Each rank reads what holds its own "
      "elements and checks it; no communication. Of a run's directory it takes the newest complete "
      "checkpoint, which the first rank of the tensors' mesh chooses: all its ranks must then call "
      "it. ValueError names file, tensor and block");
  def(m, "load(path, into)", py::overload_cast<const std::string&, StateDict&>(&load));
}

void bind_checkpoints(py::module_& m) {
  bind_state_dicts(m);
  bind_saver(m);
  bind_readers(m);
  def(m, "load_hugging_face(model, path, strict=True)",
      "Fills the parameters with the tensors of a .safetensors file, an index of several, or a "
      "Hugging Face directory. Each rank reads the elements that it holds; no communication. "
      "ValueError, before anything is read, names what is missing or does not fit. strict=False "
      "loads what both have, for a model with adapters, and gives the names of the others",
      [](Module& model, const std::string& path, bool strict) {
        if (!strict) return load_common_hugging_face(model, path);
        load_hugging_face(model, path);
        return SkippedKeys();
      });
  def(m, "export_dcp(checkpoint, directory)",
      "Writes a checkpoint as a directory that torch.distributed.checkpoint.load reads, tensors "
      "bit "
      "for bit and optimizers as get_optimizer_state_dict gives them. One rank calls it. "
      "ValueError "
      "when the directory has a .metadata already or an optimizer has moments that PyTorch lacks",
      [](const std::string& checkpoint, const std::string& directory) {
        export_dcp(checkpoint, directory);
      });
  using O = ExportOptions;
  bind_with_fields<O, std::string, std::string, Communicator>(
      m, "export_hugging_face", export_hugging_face, Released(), "checkpoint"_a, "directory"_a,
      "world"_a, py::kw_only(), option("prefix", &O::prefix), option("file_bytes", &O::file_bytes),
      option("config", &O::config), option("files", &O::files),
      "Writes a checkpoint as a Hugging Face model: the tensors in the form of its family, "
      "config.json, and the tokenizer and generation_config.json of the Hugging Face model in the "
      "folder `files`. Collective over `world`: each rank writes its share to its place in the "
      "final files. Without `config` and `files` they are those that `weft train` or `weft ckpt "
      "import` kept with the checkpoint; where it kept none, only tensors are written, under their "
      "names");
}

}  // namespace weft::python
