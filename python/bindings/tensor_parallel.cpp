// SPDX-License-Identifier: Apache-2.0
#include "weft/tensor_parallel.h"

#include <pybind11/stl.h>

#include "python/bindings/bindings.h"
#include "python/bindings/fields.h"
#include "python/bindings/modules.h"

namespace weft::python {

static std::vector<std::pair<std::string, Placement>> pairs_of(
    const std::map<std::string, Placement>& parameters) {
  return {parameters.begin(), parameters.end()};
}

/// Binds Colwise or Rowwise.
template <class Cut> static void bind_cut(py::module_& m, const char* name, const char* text) {
  bind_options<Cut>(m, name, text, py::kw_only(), option("output_layouts", &Cut::output),
                    option("heads", &Cut::heads), option("parts", &Cut::parts));
}

static void bind_styles(py::module_& m) {
  bind_cut<Colwise>(
      m, "Colwise",
      "A Linear cut along its outputs, an Embedding along its width: the output is cut along its "
      "last dim, or brought to `output_layouts`. `heads`: so many heads stay whole. `parts`: the "
      "product begins with parts of a gathered input while others arrive");
  bind_cut<Rowwise>(m, "Rowwise",
                    "A Linear cut along its inputs, an Embedding along its vocabulary: addends of "
                    "the output are added up to `output_layouts`. `parts`: one part of the product "
                    "is summed and scattered while the next one is computed");
  bind_options<SequenceParallel>(m, "SequenceParallel",
                                 "Whole parameters, and an input cut along dim `sequence_dim`",
                                 py::kw_only(), option("sequence_dim", &SequenceParallel::dim));
  bind_options<ExpertParallel>(m, "ExpertParallel",
                               "Separate experts for each rank: parameters stacked by expert are "
                               "cut along dim 0, and tokens travel to their experts");
  bind_options<PrepareInput>(m, "PrepareInput", "Inputs by number are brought to these layouts",
                             needed("input_layouts", &PrepareInput::inputs));
  bind_options<PrepareOutput>(m, "PrepareOutput", "Outputs by number are brought to these layouts",
                              needed("output_layouts", &PrepareOutput::outputs));
  bind_options<Layouts>(
      m, "Layouts",
      "Own parameters by name, inputs and outputs by number: a style for modules of one's own",
      py::kw_only(),
      converted("parameters"_a = std::map<std::string, Placement>{}, &Layouts::parameters,
                pairs_of),
      option("inputs", &Layouts::inputs), option("outputs", &Layouts::outputs));
}

static Style style_of(py::handle path, py::handle given) {
  try {
    return given.cast<Style>();
  } catch (const py::cast_error&) {
    throw py::type_error(concat("parallelize: the style of ", py::repr(path).cast<std::string>(),
                                " is a ", Py_TYPE(given.ptr())->tp_name,
                                ", expected Colwise, Rowwise, SequenceParallel, ExpertParallel, "
                                "PrepareInput, PrepareOutput or Layouts"));
  }
}

/// Parses {path: style or list of styles}, in order.
static std::vector<ModuleStyle> styles_of(const py::dict& plan) {
  std::vector<ModuleStyle> styles;
  for (const auto& [path, given] : plan) {
    if (!PyUnicode_Check(path.ptr())) {
      throw py::type_error(concat("parallelize: path is ", py::repr(path).cast<std::string>(),
                                  ", expected a string such as 'layers.*.wq'"));
    }
    const bool is_list = PyList_Check(given.ptr()) || PyTuple_Check(given.ptr());
    const py::object all =
        is_list ? py::reinterpret_borrow<py::object>(given) : py::object(py::make_tuple(given));
    for (const py::handle style : all) {
      styles.push_back({path.cast<std::string>(), style_of(path, style)});
    }
  }
  return styles;
}

static py::dict as_dict(const std::vector<ModuleStyle>& styles) {
  py::dict plan;
  for (const ModuleStyle& style : styles) {
    const py::str path(style.path);
    if (!plan.contains(path)) plan[path] = py::list();
    plan[path].cast<py::list>().append(py::cast(style.style));
  }
  return plan;
}

void bind_tensor_parallel(py::module_& m) {
  bind_styles(m);
  def(m, "parallelize(module, mesh, plan)",
      "Lays out the module's parameters along `mesh`, a view of one axis (mesh['tp']), as the plan "
      "says, {path: style or list of styles} with * for any part of one name; whole along other "
      "axes. Inputs must be laid out over the root mesh. Call it before fully_shard. ValueError, "
      "with nothing changed, for a path that matches nothing, heads that are not divided, or a "
      "style that does not fit its module. Gives the module",
      [](const ModuleObject& module, const DeviceMesh& axis, const py::dict& plan) {
        auto& tree = module.cast<Module&>();
        const std::vector<ModuleStyle> styles = styles_of(plan);
        released([&] { parallelize(tree, axis, styles); });
        return module;
      });
  def(m, "transformer_styles(config, *, sequence_parallel=False, parts=1)",
      "The plan of a TransformerModel: embedding, head and loss cut over the vocabulary, attention "
      "by heads, the feed-forward along its width. `parts`: products are split so that gathers and "
      "reductions overlap with them",
      [](const TransformerConfig& config, bool sequence_parallel, int parts) {
        return as_dict(
            transformer_styles(config, {.sequence_parallel = sequence_parallel, .parts = parts}));
      });
  def(m, "expert_styles()",
      "The plan that gives each rank of an axis its own experts of all layers of a "
      "TransformerModel; apply it before transformer_styles",
      [] { return as_dict(expert_styles()); });
  def(m, "explain_model(model, loss)",
      "The collectives of one training step of a parallelized model, by layer, found by running "
      "loss() and its backward on device meta, where its tensors must be. Nothing is communicated",
      [](Module& model, const py::function& loss) {
        const Callable kept(loss);
        return released([&] {
          return explain(model, [&kept] {
            const Locked lock;
            return tensors_of("explain_model", kept()).at(0);
          });
        });
      });
}

}  // namespace weft::python
