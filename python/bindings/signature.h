// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft::python {

namespace py = pybind11;

/// One argument of a bound function.
struct Argument {
  std::string name;
  /// "int | None"
  std::string type;
  /// "-1"; empty for an argument that must be given.
  std::string value;
  bool by_name_only = false;
};

/// The arguments of a bound function, or of one of its overloads.
struct Signature {
  std::vector<Argument> arguments;
  /// Takes any others too: *args or **kwargs.
  bool takes_any = false;
};

/// A docstring of pybind11 with the names of types as in Python's documents.
std::string with_short_types(std::string text);

/// Returns the signatures at the beginning of a function's docstring, or of each overload.
std::vector<Signature> signatures_in(std::string_view docstring);

/// Arguments of a vectorcall: positional values, then those of `names`, a tuple or nothing.
struct GivenArguments {
  PyObject* const* values;
  size_t positional;
  PyObject* names;
};

/// States in one sentence why a function does not take these arguments; `classes` has the types.
std::string refusal_of(std::string_view function, std::span<const Signature> signatures,
                       const GivenArguments& given, const py::dict& classes);

}  // namespace weft::python
