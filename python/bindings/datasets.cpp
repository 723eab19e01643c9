// SPDX-License-Identifier: Apache-2.0
#include <pybind11/numpy.h>

#include <variant>

#include "python/bindings/bindings.h"
#include "python/bindings/fields.h"
#include "weft/text_dataset.h"

namespace weft::python {

using Array = py::array_t<int64_t, py::array::c_style>;

static py::tuple rows_of(const Dataset& data, int64_t first, int64_t count) {
  if (count < 0) fail("read: count must be at least 0, got ", count);
  const std::vector<py::ssize_t> shape = {count, data.sequence()};
  Array ids(shape), targets(shape),
      segments(data.has_segments() ? shape : std::vector<py::ssize_t>{0, 0});
  const auto span = [](Array& array) {
    return std::span(array.mutable_data(), static_cast<size_t>(array.size()));
  };
  const RowSpans into{span(ids), span(targets), span(segments)};
  released([&] { data.read(first, into); });
  if (!data.has_segments()) return py::make_tuple(ids, targets);
  return py::make_tuple(ids, targets, segments);
}

using Paths = std::variant<std::string, std::vector<std::string>>;

static DataOptions with_paths(const Paths& paths, DataOptions options) {
  const auto* one = std::get_if<std::string>(&paths);
  options.paths = one ? std::vector{*one} : std::get<std::vector<std::string>>(paths);
  return options;
}

/// Python changes no dataset either.
static std::shared_ptr<Dataset> held(const std::shared_ptr<const Dataset>& data) {
  return std::const_pointer_cast<Dataset>(data);
}

static void bind_text_datasets(py::module_& m) {
  using D = DataOptions;
  const auto each = [&](const auto& bind) {
    bind(
        "paths"_a, py::kw_only(), needed("sequence", &D::sequence),
        option("tokenizer", &D::tokenizer), option("seed", &D::seed),
        option("vocabulary", &D::vocabulary), option("field", &D::field),
        choice("text_dataset", "loss", &D::loss, {"automatic", "assistant", "all"}),
        option("pack", &D::pack),
        choice("text_dataset", "long_documents", &D::long_documents, {"split", "truncate", "drop"}),
        option("weights", &D::weights), option("cache", &D::cache), option("bytes", &D::bytes),
        option("threads", &D::threads));
  };
  each([&](const auto&... items) {
    bind_with_fields<D, Paths>(
        m, "text_dataset",
        [](const Paths& paths, D options) {
          return released(
              [&] { return held(text_dataset(with_paths(paths, std::move(options)))); });
        },
        items...,
        "Rows of files of text, of lines of JSON (.jsonl) with texts (`text`, or `field`) or "
        "conversations (`messages`, or `prompt` and `completion`), or of token files (.bin), "
        "shuffled anew each epoch. paths: one or several files or directories. tokenizer: turns "
        "text into tokens; without one bytes are the tokens. loss: the tokens that count, by "
        "default the assistant's in conversations and all others. pack: several documents in a "
        "row, with segments. long_documents: what becomes of a document that is longer than a row: "
        "several rows, its first row, or none. weights: the share of the rows that each path has. "
        "cache: a folder "
        "that keeps tokens for the next run. ValueError names a file or line that is wrong");
  });
  each([&](const auto& first, const auto&... items) {
    bind_with_fields<D, Paths, int64_t>(
        m, "split_text_dataset",
        [](const Paths& paths, int64_t batch, D options) {
          const DataSplit data = released(
              [&] { return split_text_dataset(with_paths(paths, std::move(options)), batch); });
          return std::pair(held(data.train), held(data.held_out));
        },
        first, "batch"_a, items...,
        "The same, and a dataset of rows held out: a twentieth, at least 1 row and at most 16 "
        "batches of `batch` rows. Returns both");
  });
}

void bind_datasets(py::module_& m) {
  py::class_<Dataset, std::shared_ptr<Dataset>> dataset(
      m, "Dataset",
      "Rows of tokens to train on, without an end: what a row holds follows from its index");
  const auto number = [](int64_t (Dataset::*get)() const) {
    // The first call may wait until text is tokenised.
    return [get](const Dataset& self) { return released([&] { return (self.*get)(); }); };
  };
  dataset.def("__len__", number(&Dataset::rows), "The rows of an epoch")
      .def("read", rows_of, "first"_a, "count"_a = 1,
           "Arrays [count, sequence] of ids, targets (-100 where they do not count) and, if "
           "has_segments, segments (the number of each token's document in its row) of the rows "
           "from `first` on")
      .def_property_readonly("sequence", &Dataset::sequence, "Tokens of a row")
      .def_property_readonly("tokens", number(&Dataset::tokens),
                             "Tokens that the rows are made of; 0: unknown")
      .def_property_readonly("has_segments", &Dataset::has_segments,
                             "True when rows hold several documents")
      .def(
          "description",
          [](const Dataset& self) { return released([&] { return self.description(); }); },
          "Describes in words what the rows are made of");
  bind_text_datasets(m);
}

}  // namespace weft::python
