// SPDX-License-Identifier: Apache-2.0
#include "weft/pipelined_transformer.h"

#include "python/bindings/bindings.h"
#include "python/bindings/modules.h"
#include "weft/fsdp.h"

// Pipelines: programs of steps, and the stages of a transformer. python/weft/pipeline.py names
// them.

namespace weft::python {

using Step = std::tuple<std::string, int, int>;

static PipelineAct act_named(const std::string& name) {
  for (int i = 0; i <= static_cast<int>(PipelineAct::reduce); ++i) {
    if (name_of(static_cast<PipelineAct>(i)) == name) return static_cast<PipelineAct>(i);
  }
  fail("with_messages: step is ", in_quotes(name),
       ", expected forward, backward, backward_input or backward_weight");
}

static std::vector<std::vector<Step>> steps_in_words(const PipelineProgram& program) {
  std::vector<std::vector<Step>> all;
  for (const auto& steps : program.steps) {
    auto& own = all.emplace_back();
    for (const auto& [act, stage, microbatch] : steps) {
      own.emplace_back(name_of(act), stage, microbatch);
    }
  }
  return all;
}

static PipelineTimes times_of(double forward, double backward_input, double backward_weight,
                              double message, const std::vector<double>& stages) {
  return {forward, backward_input, backward_weight, message, stages};
}

static void bind_programs(py::module_& m) {
  using P = PipelineProgram;
  py::class_<PipelinePrediction>(m, "PipelinePrediction", "Time and memory that a program needs")
      .def_readonly("seconds", &PipelinePrediction::seconds, "Until the last rank has ended")
      .def_readonly("bubble", &PipelinePrediction::bubble,
                    "The part of all ranks' time in which they do not compute")
      .def_readonly("held", &PipelinePrediction::held,
                    "By rank: the most microbatches whose activations it holds at a time");
  py::class_<P> program(m, "PipelineProgram",
                        "The steps of all ranks along a pipeline axis in one training step: made "
                        "by gpipe and others, then checked, printed, and run. str() is a line a "
                        "rank: F, B, I and W compute, > sends, < receives, R reduces");
  program.def_readonly("name", &P::name)
      .def_readonly("microbatches", &P::microbatches)
      .def_readonly("rank_of_stage", &P::rank_of_stage, "The rank that holds each stage")
      .def_property_readonly("steps", &steps_in_words,
                             "By rank: tuples of what a step does, its stage and its microbatch")
      .def_property_readonly("ranks", &P::ranks)
      .def_property_readonly("stages", &P::stages)
      .def("__repr__", [](const P& self) { return concat(self); });
  def(program, "check(activation_bytes=(), budget=0, output_bytes=())",
      "ValueError names the first defect: a missing or repeated step, a wrong order or scale, a "
      "deadlock; or, with the bytes of one microbatch's activations in each stage, and of the "
      "outputs that the next ones receive, a rank that holds more than `budget` bytes",
      [](const P& self, const std::vector<int64_t>& bytes, int64_t budget,
         const std::vector<int64_t>& outputs) {
        check(self, {bytes, budget, outputs});
      });
  def(program, "held_bytes(activation_bytes, output_bytes=())",
      "By rank: the most bytes that it holds of activations and messages, by those of one "
      "microbatch in each stage",
      [](const P& self, const std::vector<int64_t>& bytes, const std::vector<int64_t>& outputs) {
        return held_bytes(self, {bytes, 0, outputs});
      });
  def(program,
      "predict(forward=1.0, backward_input=1.0, backward_weight=1.0, message=0.0, stages=())",
      "When it ends, and how much of the time ranks wait, for seconds of the steps of one "
      "microbatch; `stages` multiplies them stage by stage",
      [](const P& self, double forward, double input, double weight, double message,
         const std::vector<double>& stages) {
        return predict(self, times_of(forward, input, weight, message, stages));
      });
  def(program,
      "visualize(forward=1.0, backward_input=1.0, backward_weight=1.0, message=0.0, stages=())",
      "A Picture of the program over time, one row a rank",
      [](const P& self, double forward, double input, double weight, double message,
         const std::vector<double>& stages) {
        return visualize(self, times_of(forward, input, weight, message, stages));
      });
  def(m, "gpipe(ranks, microbatches)", &gpipe, "All forwards, then all backwards");
  def(m, "one_forward_one_backward(ranks, microbatches)", &one_forward_one_backward,
      "1F1B: rank r holds the activations of at most ranks - r microbatches");
  def(m, "interleaved(ranks, microbatches, chunks=2)", &interleaved,
      "1F1B with `chunks` stages a rank: the bubble is as many times smaller");
  def(m, "zero_bubble(ranks, microbatches)", &zero_bubble,
      "ZB-H1: gradients of weights fill the bubble of 1F1B");
  def(m, "with_messages(name, microbatches, rank_of_stage, table)",
      "A program of a table by rank of computing steps, tuples ('forward', 'backward', "
      "'backward_input' or 'backward_weight', stage, microbatch): adds messages and reductions",
      [](const std::string& name, int microbatches, const std::vector<int>& rank_of_stage,
         const std::vector<std::vector<Step>>& table) {
        std::vector<std::vector<PipelineStep>> steps;
        for (const auto& given : table) {
          auto& own = steps.emplace_back();
          for (const auto& [act, stage, microbatch] : given) {
            own.push_back({act_named(act), stage, microbatch});
          }
        }
        return with_messages(name, microbatches, rank_of_stage, steps);
      });
}

using Rows = std::vector<std::tuple<Tensor, Tensor>>;

static std::vector<TrainingBatch> batches_of(const Rows& rows) {
  std::vector<TrainingBatch> batches;
  for (const auto& [ids, targets] : rows) batches.push_back({ids, targets});
  return batches;
}

static void bind_pictures(py::module_& m) {
  def(m, "visualize_schedule(model, *, training=True, sync=True, updated=True)",
      "A Picture of that: rows of steps over time, and the memory of the buffers",
      [](Module& model, bool training, bool sync, bool updated) {
        return visualize(schedule_of(model, {training, sync, updated}));
      });
  def(m, "visualize_calls(calls)",
      "A Picture of what the ops that calls() makes move, compute and allocate on this rank; with "
      "tensors on device meta nothing is computed or communicated",
      [](const py::function& calls) {
        const Callable kept(calls);
        return released([&] {
          return visualize(program_of([&kept] {
            const Locked lock;
            kept();
          }));
        });
      });
  def(m, "set_strict_plan(strict)",
      "Checks the steps of redistributions and of fully sharded models before each run, not only "
      "the first, on all ranks of the process",
      &set_strict_plan);
}

void bind_pipeline(py::module_& m) {
  using P = PipelinedTransformer;
  bind_programs(m);
  bind_pictures(m);
  def(m, "stage_ends(config, firsts)", &stage_ends,
      "The ends of the stages whose first modules, of all stages but the first, have these paths, "
      "such as 'model.layers.4'");
  py::class_<P, std::shared_ptr<P>> model(
      m, "PipelinedTransformer",
      "A decoder whose blocks are cut into the stages of a pipeline along the axis pp of a mesh, "
      "by "
      "predicted cost. Cut its stages by parallelize and fully_shard over stage_mesh, then call "
      "materialize. Calls are collective over the mesh");
  model.def(
      py::init([](const DeviceMesh& mesh, const TransformerConfig& config,
                  const PipelineProgram& program, int64_t sequence, const std::vector<int>& ends) {
        return released([&] { return std::make_shared<P>(mesh, config, program, sequence, ends); });
      }),
      "mesh"_a, "config"_a, "program"_a, "sequence"_a, "ends"_a = std::vector<int>());
  model
      .def_property_readonly(
          "stages",
          [](const std::shared_ptr<P>& self) {
            std::vector<std::shared_ptr<Module>> all;
            for (const auto& stage : self->stages()) all.push_back(stage);
            return all;
          },
          "The models of this rank's stages, first to last")
      .def_property_readonly("stage_mesh", &P::stage_mesh, "The ranks of this rank's stages")
      .def_property_readonly("mesh", &P::mesh)
      .def_property_readonly("ends", &P::ends, "The end of each stage's blocks")
      .def(
          "named_parameters",
          [](const P& self) {
            std::vector<std::pair<std::string, ParameterPtr>> all;
            for (const NamedParameter& named : self.named_parameters()) {
              all.emplace_back(named.name(), named.parameter);
            }
            return all;
          },
          "Parameters of this rank's stages, by their names in the whole model");
  def(model, "share_sequences(axis, way='automatic')",
      "Lets ranks along an axis of stage_mesh share sequences, which each run orders and cuts; "
      "`way` as in ordered_attention",
      [](P& self, const std::string& axis, const std::string& way) {
        self.share_sequences(axis, sequence_way_named("share_sequences", way));
      });
  def(model, "materialize(device='cpu')", "Allocates parameters and sets their initial values",
      Released(), [](P& self, Device device) { self.materialize(device); });
  def(model, "differentiate(batches, weights)",
      "Leaves the gradients of the sum of each micro-batch's mean loss times its weight, and gives "
      "these products. Batches are pairs of ids and targets over `mesh` or `stage_mesh`",
      Released(), [](P& self, const Rows& rows, const std::vector<double>& weights) {
        return self.differentiate(batches_of(rows), weights);
      });
  def(model, "evaluate(batches, weights)", "The same without gradients", Released(),
      [](P& self, const Rows& rows, const std::vector<double>& weights) {
        return self.evaluate(batches_of(rows), weights);
      });
  def(model, "clip_grad_norm(max_norm)",
      "Scales the gradients of all stages so that their norm is at most `max_norm`; gives the norm",
      Released(), [](P& self, double max_norm) { return self.clip_grad_norm(max_norm); });
  model.def(
      "add_to", &P::add_to, "state"_a, "optimizer"_a, py::keep_alive<2, 1>(),
      py::keep_alive<2, 3>(),
      "Adds the parts 'model' and 'optimizer' of all stages, by the names in the whole model, "
      "to a TrainingState: it can be resumed with other stages, or without");
}

}  // namespace weft::python
