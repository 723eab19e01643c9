// SPDX-License-Identifier: Apache-2.0
#include "weft/hugging_face.h"

#include <range/v3/range/conversion.hpp>
#include <range/v3/view/drop.hpp>
#include <range/v3/view/filter.hpp>
#include <range/v3/view/zip.hpp>
#include <set>
#include <vector>

#include "checkpoint/tied.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/ops/factories.h"
#include "weft/safetensors.h"

namespace weft {

namespace views = ranges::views;

/// The names under which `files` holds the parameter: one, or several of a tied one.
static std::vector<std::string> names_there(const NamedParameter& named, const TensorFiles& files) {
  auto there = named.names |
               views::filter([&](const std::string& name) { return files.contains(name); }) |
               ranges::to<std::vector>();
  if (there.empty()) {
    fail("load_hugging_face: ", files.path(), ": tensor ", in_quotes(named.name()),
         named.names.size() > 1 ? " (or another name of that tied parameter)" : "", " is missing");
  }
  return there;
}

static void check_fits(const NamedParameter& named, const std::string& name,
                       const TensorFiles& files) {
  const SafetensorsEntry& entry = files.entry(name);
  if (!(entry.shape == named.parameter->shape())) {
    fail("load_hugging_face: ", files.path(), ": tensor ", in_quotes(name), " is ", entry.shape,
         " but the parameter ", named.parameter->shape());
  }
  if (!is_floating(entry.dtype)) {
    fail("load_hugging_face: ", files.path(), ": tensor ", in_quotes(name), " is of ", entry.dtype,
         "; a parameter of ", named.parameter->dtype(), " is read from floating dtypes only");
  }
}

/// Old files hold the rope's frequencies, which follow from the config.
static bool is_left_out(const std::string& name) { return name.ends_with(".rotary_emb.inv_freq"); }

static void check_all_known(const TensorFiles& files, const std::set<std::string>& known) {
  const std::vector<std::string> names = files.names();
  const auto is_unknown = [&](const std::string& name) {
    return !known.contains(name) && !is_left_out(name);
  };
  const auto unknown = names | views::filter(is_unknown) | ranges::to<std::vector>();
  if (unknown.empty()) return;
  fail("load_hugging_face: ", files.path(), ": it holds tensor ", in_quotes(unknown[0]),
       unknown.size() > 1 ? concat(" and ", unknown.size() - 1, " others") : "",
       ", which the model has no parameter for");
}

/// This rank's elements as they are in the file.
static Tensor read_part(const TensorFiles& files, const std::string& name, const Box& box) {
  Tensor part = empty(box.shape, {.dtype = files.entry(name).dtype});
  files.read_box(name, box, part.block().data);
  return part;
}

static void fill(const Parameter& parameter, const TensorFiles& files, const std::string& name) {
  const Tensor value = parameter.value().local();
  const Box box = parameter.value().box();
  const bool as_it_is = value.dtype() == files.entry(name).dtype && value.block().is_dense() &&
                        value.device().kind == DeviceKind::cpu;
  if (as_it_is) {
    files.read_box(name, box, value.block().data);
    value.storage()->mark_changed();
  } else {
    copy_(value, read_part(files, name, box));
  }
}

static void check_equal(const Parameter& parameter, const TensorFiles& files,
                        const std::vector<std::string>& names) {
  const Box box = parameter.value().box();
  const Tensor first = read_part(files, names[0], box);
  for (const std::string& name : names | views::drop(1)) {
    check_tied(concat("load_hugging_face: ", files.path()), names[0], first, name,
               read_part(files, name, box));
  }
}

void load_hugging_face(Module& model, const std::string& path) {
  const TensorFiles files(path);
  const std::vector<NamedParameter> parameters = model.named_parameters();
  std::vector<std::vector<std::string>> sources;
  std::set<std::string> known;
  for (const NamedParameter& named : parameters) {
    sources.push_back(names_there(named, files));
    for (const std::string& name : sources.back()) {
      check_fits(named, name, files);
      known.insert(name);
    }
  }
  check_all_known(files, known);
  model.materialize();
  NoGrad no_grad;
  for (const auto& [named, names] : views::zip(parameters, sources)) {
    if (names.size() > 1) check_equal(*named.parameter, files, names);
    fill(*named.parameter, files, names[0]);
  }
}

}  // namespace weft
