// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/messages.h"

#include <cstdlib>
#include <cstring>
#include <new>
#include <regex>
#include <stdexcept>
#include <string>
#include <utility>

#include "python/bindings/words.h"
#include "weft/error.h"

namespace weft::python {

namespace py = pybind11;

namespace {

/// The C function behind every function that pybind11 binds.
using Dispatcher = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);
Dispatcher dispatcher = nullptr;

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
}

/// What pybind11 writes for types, and their short names.
constexpr std::pair<const char*, const char*> kShortNames[] = {
    {"weft._weft.", ""},
    {"typing.SupportsInt | typing.SupportsIndex", "int"},
    {"typing.SupportsFloat | typing.SupportsIndex", "float"}};

/// "(x: Tensor, dim: int = -1)" of the signature as pybind11 writes it.
std::string short_signature(std::string signature) {
  signature.erase(std::min(signature.size(), signature.rfind(" -> ")));
  for (const auto& [from, to] : kShortNames) replace_all(signature, from, to);
  replace_all(signature, "collections.abc.", "");
  replace_all(signature, "(self: ", "(");
  return signature;
}

/// A small value itself, a type otherwise.
std::string described(py::handle value) {
  constexpr size_t kLongest = 30;
  const bool is_small = value.is_none() || PyLong_Check(value.ptr()) ||
                        PyFloat_Check(value.ptr()) || PyUnicode_Check(value.ptr());
  std::string text = is_small ? py::repr(value).cast<std::string>() : "";
  if (!text.empty() && text.size() <= kLongest) return text;
  return py::type::handle_of(value).attr("__name__").cast<std::string>();
}

std::string described(PyObject* const* arguments, size_t count, py::handle names) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += (i ? ", " : "") + described(arguments[i]);
  const size_t named = names ? py::len(names) : 0;
  for (size_t i = 0; i < named; ++i) {
    text += concat(text.empty() ? "" : ", ", py::str(names[py::int_(i)]).cast<std::string>(), "=",
                   described(arguments[count + i]));
  }
  return "(" + text + ")";
}

/// One sentence for pybind11's many lines; the message as it is when it is not of that kind.
std::string worded(const std::string& message, PyObject* const* arguments, size_t count,
                   py::handle names) {
  const size_t mark = message.find("(): incompatible ");
  if (mark == message.npos) return message;
  const bool is_constructor = message.compare(mark + 17, 11, "constructor") == 0;
  std::string name = message.substr(0, mark), taken;
  static const std::regex signature(R"(\n    \d+\. ([^\n(]*)(\([^\n]*))");
  const size_t end = message.rfind("\n\nInvoked with:");
  for (auto found = std::sregex_iterator(
           message.begin(), message.begin() + static_cast<ptrdiff_t>(std::min(end, message.size())),
           signature);
       found != std::sregex_iterator(); ++found) {
    if (is_constructor) name = short_signature((*found)[1]);
    taken += (taken.empty() ? "" : " or ") + short_signature((*found)[2]);
  }
  const size_t self = is_constructor || message.find("(self: ") != message.npos ? 1 : 0;
  const size_t hidden = std::min(self, count);
  return concat(name, ": it takes ", taken, ", not ",
                described(arguments + hidden, count - hidden, names));
}

PyObject* dispatch(PyObject* function, PyObject* const* arguments, Py_ssize_t flags,
                   PyObject* names) {
  py::object own_names;
  try {
    if (names) own_names = words_of(function, names);
  } catch (const std::invalid_argument& two_words) {
    PyErr_SetString(PyExc_ValueError, two_words.what());
    return nullptr;
  }
  PyObject* result = dispatcher(function, arguments, flags, own_names.ptr());
  if (result || !PyErr_ExceptionMatches(PyExc_TypeError)) [[likely]]
    return result;
  try {
    py::error_already_set raised;
    const auto message = py::str(raised.value()).cast<std::string>();
    const auto count = static_cast<size_t>(PyVectorcall_NARGS(static_cast<size_t>(flags)));
    const std::string text = worded(message, arguments, count, names);
    if (text == message) {
      raised.restore();
    } else {
      PyErr_SetString(PyExc_TypeError, text.c_str());
    }
  } catch (py::error_already_set& other) {
    other.restore();
  }
  return nullptr;
}

/// The function behind what a class or module has by a name; nothing for other things.
PyCFunctionObject* bound_function(py::handle object) {
  PyObject* function = object.ptr();
  if (PyInstanceMethod_Check(function)) function = PyInstanceMethod_GET_FUNCTION(function);
  if (!PyCFunction_Check(function)) return nullptr;
  return reinterpret_cast<PyCFunctionObject*>(function);
}

/// Gives the text of a function the short names of types; pybind11 owns it as a C string.
void shorten_doc(PyMethodDef& method) {
  if (!method.ml_doc) return;
  std::string text = method.ml_doc;
  for (const auto& [from, to] : kShortNames) replace_all(text, from, to);
  std::free(const_cast<char*>(method.ml_doc));
  method.ml_doc = strdup(text.c_str());
}

void word(py::handle object) {
  PyCFunctionObject* function = bound_function(object);
  if (!function || function->m_ml->ml_flags != (METH_FASTCALL | METH_KEYWORDS)) return;
  auto own = reinterpret_cast<Dispatcher>(reinterpret_cast<void (*)()>(function->m_ml->ml_meth));
  if (own == dispatch) return;
  if (!dispatcher) dispatcher = own;
  if (own != dispatcher) return;
  shorten_doc(*function->m_ml);
  learn_words(function);
  function->m_ml->ml_meth = reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(dispatch));
}

/// pybind11 gives an object without a value memory as it is.
void* refuse_value(size_t) {
  throw py::type_error(
      "an object is used whose __init__ did not run; a class of one's own calls "
      "super().__init__() first");
}

void word_class(py::handle type) {
  for (const auto& [name, member] : py::dict(type.attr("__dict__"))) {
    word(member);
    if (PyObject_IsInstance(member.ptr(), reinterpret_cast<PyObject*>(&PyProperty_Type))) {
      word(member.attr("fget"));
      word(member.attr("fset"));
    }
    if (PyObject_IsInstance(member.ptr(), reinterpret_cast<PyObject*>(&PyStaticMethod_Type))) {
      word(member.attr("__func__"));
    }
  }
  // Python's own messages name a type so.
  auto* named = reinterpret_cast<PyTypeObject*>(type.ptr());
  constexpr std::string_view kModule = "weft._weft.";
  if (std::string_view(named->tp_name).starts_with(kModule)) {
    named->tp_name = strdup(concat("weft.", named->tp_name + kModule.size()).c_str());
  }
  auto* known = py::detail::get_type_info(reinterpret_cast<PyTypeObject*>(type.ptr()));
  if (known) known->operator_new = refuse_value;
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
    replace_all(type, "weft._weft.", "weft.");
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
  for (const auto& [name, member] : py::dict(m.attr("__dict__"))) {
    word(member);
    if (PyType_Check(member.ptr())) word_class(member);
  }
}

}  // namespace weft::python
