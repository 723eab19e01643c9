// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/messages.h"

#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>

#include "python/bindings/function.h"
#include "weft/error.h"

namespace weft::python {

namespace py = pybind11;

namespace {

constexpr std::string_view kCompiledModule = "weft._weft.";

/// Python's own messages name a class by tp_name, which CPython takes from the module of its
/// definition.
void name_class(py::handle type) {
  auto* named = reinterpret_cast<PyTypeObject*>(type.ptr());
  if (std::string_view(named->tp_name).starts_with(kCompiledModule)) {
    named->tp_name = strdup(concat("weft.", named->tp_name + kCompiledModule.size()).c_str());
  }
}

/// Translates errors of arguments that weft's own functions convert, and of memory.
void translate_errors(std::exception_ptr thrown) {
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    py::set_error(PyExc_MemoryError, "out of memory");
  } catch (const std::length_error&) {
    py::set_error(PyExc_MemoryError, "out of memory");
  } catch (const py::cast_error& error) {
    const std::string message = error.what();
    const size_t start = message.find("<class '"), end = message.find("'>");
    const bool names_type = start != message.npos && end != message.npos;
    std::string type = names_type ? message.substr(start + 8, end - start - 8) : "object";
    if (type.starts_with(kCompiledModule)) type.replace(0, kCompiledModule.size(), "weft.");
    py::set_error(PyExc_TypeError,
                  concat("an argument holds a ", type,
                         ", which is not what is taken there, or more than it can hold")
                      .c_str());
  }
}

}  // namespace

void word_errors(py::module_& m) {
  m.attr("_WORDS") = words_for_arguments();
  py::register_exception_translator(translate_errors);
  word_functions(m);
  for (const auto& [name, member] : py::dict(m.attr("__dict__"))) {
    if (PyType_Check(member.ptr())) name_class(member);
  }
}

}  // namespace weft::python
