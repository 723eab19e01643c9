// SPDX-License-Identifier: Apache-2.0
#include "weft/trainer.h"

#include <pybind11/numpy.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>

#include "python/bindings/bindings.h"
#include "python/bindings/fields.h"
#include "python/bindings/modules.h"

namespace weft::python {

namespace {

using Ids = py::array_t<int64_t, py::array::c_style | py::array::forcecast>;

/// The parts of a row that Python gives.
struct GivenRow {
  Ids ids;
  std::optional<Ids> targets, segments;
};

GivenRow row_of(int64_t index, const py::object& given) {
  const auto ids_of = [index](const py::handle& part) {
    const auto given_part = py::array::ensure(py::reinterpret_borrow<py::object>(part));
    const bool is_whole = given_part && std::string_view("iub").find(given_part.dtype().kind()) !=
                                            std::string_view::npos;
    const Ids ids = is_whole ? Ids::ensure(given_part) : Ids();
    if (!is_whole || !ids || ids.ndim() != 1) {
      PyErr_Clear();
      fail("trainer: row ", index, " of data has a ", type_of(part),
           ", expected whole numbers of one dim");
    }
    return ids;
  };
  if (!py::isinstance<py::tuple>(given)) return {ids_of(given), {}, {}};
  const auto parts = given.cast<py::tuple>();
  if (parts.size() != 2 && parts.size() != 3) {
    fail("trainer: row ", index, " of data has ", parts.size(),
         " parts, expected ids and targets, or ids, targets and segments");
  }
  GivenRow row{ids_of(parts[0]), ids_of(parts[1]), {}};
  if (parts.size() == 3) row.segments = ids_of(parts[2]);
  return row;
}

/// Rows that Python makes: each one array of a token more than a row has, or a tuple of ids,
/// targets and segments.
class RowsOfPython final : public Dataset {
 public:
  /// `row` gets the index of a row, below `count`.
  RowsOfPython(Callable row, int64_t count) : row_(std::move(row)), count_(count) {
    const GivenRow first = row_of(0, row_(0));
    has_targets_ = first.targets.has_value();
    has_segments_ = first.segments.has_value();
    sequence_ = first.ids.size() - (has_targets_ ? 0 : 1);
    if (sequence_ < 1) fail("trainer: row 0 of data has no target, expected at least one");
  }

  int64_t sequence() const override { return sequence_; }
  int64_t rows() const override { return count_; }
  bool has_segments() const override { return has_segments_; }
  bool has_masks() const override { return has_targets_; }
  void read(int64_t first, const RowSpans& into) const override {
    const Locked lock;
    const auto size = static_cast<size_t>(sequence_);
    for (size_t at = 0; at < into.ids.size(); at += size, ++first) {
      const int64_t index = first % count_;
      const GivenRow row = row_of(index, row_(index));
      const auto copy = [&](const Ids& part, size_t from, const std::span<int64_t>& to) {
        const size_t expected = size + (has_targets_ ? 0 : 1);
        if (static_cast<size_t>(part.size()) != expected) {
          fail("trainer: row ", index, " of data has ", part.size(), " numbers, expected ",
               expected, " as row 0");
        }
        std::copy_n(part.data() + from, size, to.subspan(at, size).begin());
      };
      if (row.targets.has_value() != has_targets_ || row.segments.has_value() != has_segments_) {
        fail("trainer: row ", index, " of data has other parts than row 0, expected the same");
      }
      copy(row.ids, 0, into.ids);
      copy(has_targets_ ? *row.targets : row.ids, has_targets_ ? 0 : 1, into.targets);
      if (has_segments_) copy(*row.segments, 0, into.segments);
    }
  }

 private:
  Callable row_;
  int64_t count_, sequence_ = 0;
  bool has_targets_ = false, has_segments_ = false;
};

template <class Row> Callable row_function(const Row& row) {
  return Callable(py::cpp_function([row](int64_t index) -> py::object { return row(index); }));
}

std::shared_ptr<const Dataset> dataset_of(const py::object& data) {
  if (data.is_none()) return {};
  if (py::isinstance<Dataset>(data)) return data.cast<std::shared_ptr<Dataset>>();
  const bool is_sized = py::hasattr(data, "__len__");
  if (py::hasattr(data, "read")) {
    return std::make_shared<RowsOfPython>(
        row_function([data](int64_t index) {
          const py::object rows = data.attr("read")(index, 1);
          return py::object(rows[py::int_(0)]);
        }),
        is_sized ? static_cast<int64_t>(py::len(data)) : Dataset::kEndless);
  }
  if (!is_sized && PyCallable_Check(data.ptr())) {
    return std::make_shared<RowsOfPython>(Callable(data.cast<py::function>()), Dataset::kEndless);
  }
  if (!py::isinstance<py::iterable>(data)) {
    fail_type("trainer: data is a ", type_of(data),
              ", expected a Dataset, a function of an index, an object with read, or rows");
  }
  if (PyIter_Check(data.ptr())) {
    fail_type(
        "trainer: data is an iterator, which is read once, expected rows that can be read "
        "again: a list or a function of an index");
  }
  const bool is_indexed = is_sized && py::hasattr(data, "__getitem__");
  const py::object rows = is_indexed ? data : py::object(py::list(data));
  if (py::len(rows) == 0) fail("trainer: data has no rows, expected at least one");
  return std::make_shared<RowsOfPython>(
      row_function([rows](int64_t index) { return py::object(rows[py::int_(index)]); }),
      static_cast<int64_t>(py::len(rows)));
}

Trainer::Loss loss_of(const py::object& given) {
  if (given.is_none()) return {};
  return [kept = Callable(py::function(given))](const Trainer::Batch& batch) {
    const Locked lock;
    const py::object loss = batch.segments ? kept(batch.ids, batch.targets, batch.segments)
                                           : kept(batch.ids, batch.targets);
    const std::optional<Tensor> tensor = tensor_of(loss);
    if (!tensor) fail_type("trainer: loss returned a ", type_of(loss), ", expected a Tensor");
    return *tensor;
  };
}

/// Waits of its destructor may call Python.
struct DeleteTrainer {
  void operator()(Trainer* trainer) const {
    const Unlocked release;
    delete trainer;
  }
};

template <class... Given> auto function_field(const char* name, auto TrainerOptions::*member) {
  using Function = std::decay_t<decltype(TrainerOptions().*member)>;
  return field<py::object>(
      py::arg(name) = py::none(), [member, name](TrainerOptions& all, const py::object& given) {
        if (!given.is_none() && !PyCallable_Check(given.ptr())) {
          fail_type("trainer: ", name, " is a ", type_of(given), ", expected a function",
                    std::string_view(name) == "schedule"
                        ? " of the steps done, such as optim.schedule_named makes"
                        : "");
        }
        all.*member = Function(function_in<typename Function::result_type, Given...>(given));
      });
}

}  // namespace

static void bind_reports(py::module_& m) {
  py::class_<StepReport> report(m, "StepReport", "Figures of one step of a Trainer");
  report.def_readonly("step", &StepReport::step, "Counted from 1")
      .def_readonly("loss", &StepReport::loss,
                    "The mean of the targets that count; NaN without any")
      .def_readonly("validation_loss", &StepReport::validation_loss)
      .def_readonly("learning_rate", &StepReport::learning_rate, "The rate of the first group")
      .def_readonly("learning_rates", &StepReport::learning_rates,
                    "The rates of all groups, where they differ")
      .def_readonly("gradient_norm", &StepReport::gradient_norm, "Before clipping")
      .def_readonly("tokens_per_second", &StepReport::tokens_per_second, "Without padding")
      .def_readonly("seconds", &StepReport::seconds, "Since the first step began")
      .def_readonly("skipped", &StepReport::skipped,
                    "Reason why the step left the weights as they are; '' where it updated them")
      .def_readonly("slow_rank", &StepReport::slow_rank,
                    "The rank whose own work took longest lately, where that is above 1.3 times "
                    "the median of all ranks; else -1")
      .def_readonly("slowness", &StepReport::slowness, "How many times the median it took; else 1")
      .def_readonly("loss_scale", &StepReport::loss_scale,
                    "The factor of the loss in backward of a float16 model, else None");
}

void bind_trainer(py::module_& m) {
  using C = TrainerOptions;
  using R = ResumeOptions;
  bind_reports(m);
  py::class_<Trainer, std::unique_ptr<Trainer, DeleteTrainer>> trainer(
      m, "Trainer",
      "Trains a model: reads rows, accumulates gradients, clips them, updates, validates, reports, "
      "saves and resumes. One a rank; calls are collective over the mesh");
  const auto make = [](const ModuleObject& model, const py::object& data,
                       const py::object& optimizer, const DeviceMesh& mesh, const py::object& loss,
                       const C& options) {
    const std::vector<Placement> cut(static_cast<size_t>(mesh.ndim()), Shard(0));
    const Sharding rows(mesh, Placements(std::span<const Placement>(cut)));
    auto& own_model = model.cast<Module&>();
    auto& own_optimizer = optimizer.cast<Optimizer&>();
    const auto own_data = dataset_of(data);
    const Trainer::Loss own_loss = loss_of(loss);
    return released(
        [&] { return new Trainer(own_model, own_data, own_optimizer, rows, options, own_loss); });
  };
  const auto dataset = field<py::object>(
      py::arg("validation") = py::none(),
      [](C& all, const py::object& given) { all.validation = dataset_of(given); });
  const auto in = [](const auto& inner) { return within(&C::checkpoints, inner); };
  bind_constructor<C, ModuleObject, py::object, py::object, DeviceMesh, py::object>(
      trainer, make, "model"_a, "data"_a, "optimizer"_a, "mesh"_a, "loss"_a = py::none(),
      py::kw_only(), option("batch", &C::batch), option("accumulate", &C::accumulate),
      option("steps", &C::steps), option("clip", &C::clip), option("clip_value", &C::clip_value),
      option("ema", &C::ema), function_field<int64_t>("schedule", &C::schedule),
      option("device", &C::device), dataset, option("validate_every", &C::validate_every),
      option("validation_batches", &C::validation_batches),
      choice("trainer", "on_non_finite", &C::on_non_finite, {"stop", "skip"}),
      option("spike", &C::spike), choice("trainer", "on_spike", &C::on_spike, {"stop", "skip"}),
      within(&C::scaler, option("loss_scale", &LossScalerOptions::scale)),
      option("most_skipped", &C::most_skipped), option("patience", &C::patience),
      option("keep_best", &C::keep_best), option("check_replicas", &C::check_replicas),
      option("reproducible", &C::reproducible), option("model_files", &C::model_files),
      option("metrics", &C::metrics), in(option("save", &R::save)),
      in(option("save_every", &R::save_every)), in(option("keep", &R::keep)),
      in(option("resume", &R::resume)), in(option("allow_change", &R::allow_change)),
      in(option("heeds_signals", &R::heeds_signals)),
      function_field<const std::string&>("tell", &C::tell),
      function_field<const StepReport&>("on_step", &C::on_step),
      function_field<int64_t, double>("on_evaluation", &C::on_evaluation),
      function_field<const std::string&>("on_save", &C::on_save), py::keep_alive<1, 2>(),
      py::keep_alive<1, 4>(),
      "The model has memory and its final layout: load weights, then shard, then make the "
      "optimizer. data: a Dataset; or rows, as a sequence, as a function of an index, or as an "
      "object with read(first, count). A row is an array of ids, one more than a row has targets, "
      "or a tuple of ids, targets (-100: does not count) and, for packed documents, segments. "
      "batch: rows of a step over all ranks, which all axes of `mesh` cut (pass a view, "
      "mesh['dp'], where other axes hold the same rows). loss(ids, targets) gives the mean of the "
      "targets that count; without, the model is a TransformerModel. schedule(steps done) gives "
      "the learning rate; groups with different rates have their own where it is highest, and a "
      "part of it elsewhere. clip: the largest norm of the gradients; clip_value: the largest "
      "magnitude of an element. ema: the decay of an average of the parameters, which is saved as "
      "the part 'ema' and evaluated. save: a folder for checkpoints. resume: a folder to go on "
      "from, where "
      "there is a checkpoint; on any number of ranks. tell(line), on rank 0; on_step(StepReport), "
      "on_evaluation(step, loss) and on_save(path), on all ranks. spike: a loss above so many "
      "times the median of the last 32 is a spike. patience: validations in a row without a lower "
      "loss that end the run. keep_best: saves to the folder best of `save`, too. "
      "check_replicas: steps between checks that replicas of parameters have equal bits. "
      "reproducible: losses and weights have the same bits on any number of ranks and threads");
  trainer
      .def("run", &Trainer::run, Released(),
           "Resumes and runs the remaining steps. False when a signal or stop() ended it before")
      .def(
          "resume", &Trainer::resume, Released(),
          "Compares ranks, takes up the checkpoint that `resume` names, and returns the steps done")
      .def("evaluate", &Trainer::evaluate, Released(), "The mean loss of the rows to validate on")
      .def("stop", &Trainer::stop,
           "The run ends, and is saved, after the step under way, whichever rank calls it")
      .def_property_readonly("step", &Trainer::step, "Steps done");
}

}  // namespace weft::python
