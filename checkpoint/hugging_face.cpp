// SPDX-License-Identifier: Apache-2.0
#include "weft/hugging_face.h"

#include <range/v3/range/conversion.hpp>
#include <range/v3/view/drop.hpp>
#include <range/v3/view/filter.hpp>
#include <range/v3/view/zip.hpp>
#include <set>
#include <vector>

#include "checkpoint/stacked.h"
#include "checkpoint/tied.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/ops/factories.h"
#include "weft/safetensors.h"

namespace weft {

namespace views = ranges::views;

namespace {

/// The tensors of the files that a parameter is read from: one, several of a tied one, or its
/// slices.
struct Source {
  std::vector<std::string> names;
  bool is_stacked = false;
};

}  // namespace

static Source source_of(const NamedParameter& named, const TensorFiles& files) {
  auto there = named.names |
               views::filter([&](const std::string& name) { return files.contains(name); }) |
               ranges::to<std::vector>();
  if (!there.empty()) return {there};
  there = names_of_slices(named, files);
  if (there.empty()) {
    fail("load_hugging_face: ", files.path(), ": tensor ", in_quotes(named.name()),
         named.names.size() > 1 ? " (or another name of that tied parameter)" : "", " is missing");
  }
  return {there, true};
}

static void check_fits(const NamedParameter& named, const std::string& name, bool is_slice,
                       const TensorFiles& files) {
  const SafetensorsEntry& entry = files.entry(name);
  Shape shape = named.parameter->shape();
  if (is_slice) shape.erase(0);
  if (!(entry.shape == shape)) {
    fail("load_hugging_face: ", files.path(), ": tensor ", in_quotes(name), " is ", entry.shape,
         " but the ", is_slice ? "slice of the parameter " : "parameter ", shape);
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

static void fill(const Tensor& whole, const TensorFiles& files, const std::string& name) {
  const Tensor value = whole.local();
  const Box box = whole.box();
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

static std::vector<NamedBuffer> persistent_buffers(const Module& model) {
  std::vector<NamedBuffer> buffers = model.named_buffers();
  std::erase_if(buffers, [](const NamedBuffer& buffer) { return !buffer.persistent; });
  return buffers;
}

static void check_buffer(const NamedBuffer& buffer, const TensorFiles& files) {
  if (!files.contains(buffer.name)) {
    fail("load_hugging_face: ", files.path(), ": tensor ", in_quotes(buffer.name), " is missing");
  }
  const SafetensorsEntry& entry = files.entry(buffer.name);
  if (entry.shape == buffer.value.shape()) return;
  fail("load_hugging_face: ", files.path(), ": tensor ", in_quotes(buffer.name), " is ",
       entry.shape, " but the buffer ", buffer.value.shape());
}

void load_hugging_face(Module& model, const std::string& path) {
  const TensorFiles files(path);
  const std::vector<NamedParameter> parameters = model.named_parameters();
  std::vector<Source> sources;
  std::set<std::string> known;
  for (const NamedParameter& named : parameters) {
    sources.push_back(source_of(named, files));
    for (const std::string& name : sources.back().names) {
      check_fits(named, name, sources.back().is_stacked, files);
      known.insert(name);
    }
  }
  for (const NamedBuffer& buffer : persistent_buffers(model)) {
    check_buffer(buffer, files);
    known.insert(buffer.name);
  }
  check_all_known(files, known);
  model.materialize();
  NoGrad no_grad;
  for (const auto& [named, source] : views::zip(parameters, sources)) {
    if (source.is_stacked) {
      fill_slices(*named.parameter, files, source.names);
      continue;
    }
    if (source.names.size() > 1) check_equal(*named.parameter, files, source.names);
    fill(named.parameter->value(), files, source.names[0]);
  }
  for (const NamedBuffer& buffer : persistent_buffers(model))
    fill(buffer.value, files, buffer.name);
}

}  // namespace weft
