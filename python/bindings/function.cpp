// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "python/bindings/bindings.h"
#include "weft/torch.h"

namespace weft::python {

namespace {

/// Words that NumPy and PyTorch use for one argument, in groups: a function that has one of a group
/// takes the others for it.
const std::vector<std::vector<const char*>> kGroups = {
    {"axis", "dim", "axes", "dims"},
    {"keepdims", "keepdim"},
    {"k", "diagonal"},
    {"shift", "shifts"},
    {"x", "x1", "input"},
    {"x2", "other"},
    {"arrays", "tensors"},
    {"stop", "end"},
    {"num", "steps"},
    {"shape", "size"},
    {"mesh", "device_mesh"},
    // Only compiled functions take these.
    {"sections", "indices_or_sections"},
};

/// Another word for an argument of a function.
struct Word {
  py::str given, own;
};

/// The C function of a PyCFunction with the flags METH_FASTCALL | METH_KEYWORDS.
using Entry = PyObject* (*)(PyObject* self, PyObject* const* values, size_t count, PyObject* names);

/// The object that Python calls: a function bound by pybind11, with a name and a text.
struct Function {
  PyObject_HEAD;
  vectorcallfunc call;
  /// The C function of `bound`, called with `entry_self`: faster than a call of `bound` through the
  /// interpreter. Null when `bound` has other flags.
  Entry entry;
  PyObject* entry_self;
  PyObject *bound, *name, *qualified_name, *module, *text;
  std::vector<Word>* words;
  /// The first argument has no value yet.
  bool is_constructor;
  /// Tensors without dims do not decide the dtype: torch::promote_by_dims.
  bool promotes_by_dims;
};

Function* as_function(PyObject* object) { return reinterpret_cast<Function*>(object); }

std::vector<Word> words_of(py::handle bound) {
  std::vector<Word> words;
  const auto* first =
      py::detail::function_record_ptr_from_PyObject(PyCFunction_GET_SELF(bound.ptr()));
  const auto has = [&](std::string_view name) {
    for (const auto* overload = first; overload; overload = overload->next) {
      for (const auto& argument : overload->args) {
        if (argument.name && argument.name == name) return true;
      }
    }
    return false;
  };
  for (const auto& group : kGroups) {
    const auto own = std::ranges::find_if(group, has);
    if (own == group.end()) continue;
    for (const char* word : group) {
      if (!has(word)) words.push_back({py::str(word), py::str(*own)});
    }
  }
  return words;
}

/// The names of a call's keyword arguments as the function has them.
py::object own_names(const Function& function, PyObject* names) {
  auto all = py::reinterpret_borrow<py::tuple>(names);
  for (size_t i = 0; i < all.size(); ++i) {
    for (const Word& word : *function.words) {
      if (!word.given.equal(all[i])) continue;
      if (all.contains(word.own)) {
        fail(function.name ? py::str(function.name).cast<std::string>() : "", ": argument ",
             word.own.cast<std::string>(), " is given as ", word.given.cast<std::string>(),
             " too, expected one of these words");
      }
      py::list changed(all);
      changed[i] = word.own;
      all = py::tuple(changed);
    }
  }
  return all;
}

/// Replaces an error that pybind11 raises for arguments, which has many lines.
void word_refusal(const Function& function, PyObject* const* values, size_t count,
                  const py::tuple& names) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  const std::string message = value ? py::str(py::handle(value)).cast<std::string>() : "";
  if (message.find("(): incompatible ") == message.npos) {
    PyErr_Restore(type, value, trace);
    return;
  }
  for (PyObject* object : {type, value, trace}) Py_XDECREF(object);
  py::tuple given(count);
  for (size_t i = 0; i < count; ++i) given[i] = py::handle(values[i]);
  const py::object sentence =
      py::module_::import("weft._arguments")
          .attr("refusal_of")(py::handle(function.name), py::handle(function.text), given, names,
                              py::cpp_function(&in_quotes));
  PyErr_SetObject(PyExc_TypeError, sentence.ptr());
}

/// Throws TypeError if the object's __init__ did not run, or that of an item of its lists, tuples
/// and dicts down to `depth`.
void check_values(PyObject* value, int depth = 3) {
  if (depth > 0 && (PyList_Check(value) || PyTuple_Check(value))) {
    PyObject** items = PySequence_Fast_ITEMS(value);
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); ++i) {
      check_values(items[i], depth - 1);
    }
  } else if (depth > 0 && PyDict_Check(value)) {
    PyObject *key, *item;
    for (Py_ssize_t at = 0; PyDict_Next(value, &at, &key, &item);) check_values(item, depth - 1);
  } else {
    check_value(value);
  }
}

/// The values, with tensors as PyTorch promotes them; nothing where none changes.
std::vector<py::object> promoted(PyObject* const* values, size_t count) {
  std::vector<Tensor> tensors(count);
  const Tensor* first = nullptr;
  bool differs = false;
  for (size_t i = 0; i < count; ++i) {
    auto tensor = tensor_of(values[i]);
    if (!tensor) continue;
    tensors[i] = *std::move(tensor);
    differs |= first && first->dtype() != tensors[i].dtype();
    first = &tensors[i];
  }
  if (!differs) return {};
  released([&] { torch::promote_by_dims(tensors); });
  std::vector<py::object> made(count);
  for (size_t i = 0; i < count; ++i) {
    made[i] = tensors[i] ? py::cast(tensors[i]) : py::reinterpret_borrow<py::object>(values[i]);
  }
  return made;
}

/// Replaces NotImplemented next to a tensor of another library, which cannot compute with weft's.
PyObject* refuse_other_library(const Function& function, PyObject* operand) {
  if (*conversion_of(operand) == 0) return Py_NewRef(Py_NotImplemented);
  return PyErr_Format(PyExc_TypeError, "%U: operand is a %s, expected a weft.Tensor or a number%s",
                      function.name, type_of(operand).c_str(), conversion_of(operand));
}

extern PyTypeObject method_type;

PyObject* call_function(PyObject* self, PyObject* const* values, size_t count, PyObject* names) {
  const Function& function = *as_function(self);
  PyObject* result = nullptr;
  // pybind11 takes None for the object of a method without further arguments.
  if (PyVectorcall_NARGS(count) > 0 && values[0] == Py_None && Py_TYPE(self) == &method_type) {
    return PyErr_Format(PyExc_TypeError, "%U: self is None, expected an object of the class",
                        function.qualified_name);
  }
  try {
    py::object own;
    if (names && !function.words->empty()) {
      own = own_names(function, names);
      names = own.ptr();
    }
    const size_t given =
        static_cast<size_t>(PyVectorcall_NARGS(count)) + (names ? py::len(names) : 0);
    for (size_t i = function.is_constructor; i < given; ++i) check_values(values[i]);
    std::vector<py::object> changed;
    if (function.promotes_by_dims) changed = promoted(values, given);
    if (!changed.empty()) values = reinterpret_cast<PyObject* const*>(changed.data());
    result = function.entry ? function.entry(function.entry_self, values, count, names)
                            : PyObject_Vectorcall(function.bound, values, count, names);
    if (result == Py_NotImplemented && given == 2) [[unlikely]] {
      Py_DECREF(result);
      result = refuse_other_library(function, values[1]);
    }
    if (!result && PyErr_ExceptionMatches(PyExc_TypeError)) {
      word_refusal(function, values, given,
                   names ? py::reinterpret_borrow<py::tuple>(names) : py::tuple());
    }
  } catch (const std::invalid_argument& two_words) {
    PyErr_SetString(PyExc_ValueError, two_words.what());
  } catch (py::error_already_set& other) {
    other.restore();
  }
  return result;
}

template <PyObject* Function::*member> PyObject* get_member(PyObject* self, void*) {
  return Py_NewRef(as_function(self)->*member);
}

PyGetSetDef kAttributes[] = {
    {"__name__", get_member<&Function::name>, nullptr, nullptr, nullptr},
    {"__qualname__", get_member<&Function::qualified_name>, nullptr, nullptr, nullptr},
    {"__module__", get_member<&Function::module>, nullptr, nullptr, nullptr},
    {"__doc__", get_member<&Function::text>, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

/// Copies and pickles refer to a function by its name.
PyObject* reduce_to_name(PyObject* self, PyObject*) {
  return Py_NewRef(as_function(self)->qualified_name);
}

PyMethodDef kMethods[] = {{"__reduce__", reduce_to_name, METH_NOARGS, nullptr},
                          {nullptr, nullptr, 0, nullptr}};

PyObject* represent_function(PyObject* self) {
  const Function& f = *as_function(self);
  const bool is_method = Py_TYPE(self) == &method_type;
  return PyUnicode_FromFormat("<function weft.%U>", is_method ? f.qualified_name : f.name);
}

PyObject* bind_method(PyObject* self, PyObject* object, PyObject*) {
  return object ? PyMethod_New(self, object) : Py_NewRef(self);
}

/// A function does not become a method of the class that it is an attribute of.
PyObject* bind_nothing(PyObject* self, PyObject*, PyObject*) { return Py_NewRef(self); }

void release_function(PyObject* self) {
  Function* function = as_function(self);
  for (PyObject* owned : {function->bound, function->name, function->qualified_name,
                          function->module, function->text}) {
    Py_XDECREF(owned);
  }
  delete function->words;
  Py_TYPE(self)->tp_free(self);
}

PyTypeObject type_called(const char* name, unsigned long flags, descrgetfunc bind) {
  PyTypeObject type{};
  type.ob_base = {PyObject_HEAD_INIT(nullptr) 0};
  type.tp_name = name;
  type.tp_basicsize = sizeof(Function);
  type.tp_dealloc = release_function;
  type.tp_vectorcall_offset = offsetof(Function, call);
  type.tp_repr = represent_function;
  type.tp_call = PyVectorcall_Call;
  type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | flags;
  type.tp_getset = kAttributes;
  type.tp_methods = kMethods;
  type.tp_descr_get = bind;
  return type;
}

PyTypeObject function_type = type_called("weft.function", 0, bind_nothing);
PyTypeObject method_type = type_called("weft.method", Py_TPFLAGS_METHOD_DESCRIPTOR, bind_method);

py::object text_attribute(py::handle object, const char* name) {
  const py::object value = py::getattr(object, name, py::none());
  return py::isinstance<py::str>(value) ? value : py::object(py::str(""));
}

/// A docstring of pybind11 with the names of types as in Python's documents.
py::object with_short_types(py::object text) {
  constexpr std::pair<const char*, const char*> kShort[] = {
      {"weft._weft.", ""},
      {"typing.SupportsInt | typing.SupportsIndex", "int"},
      {"typing.SupportsFloat | typing.SupportsIndex", "float"}};
  for (const auto& [from, to] : kShort) text = text.attr("replace")(from, to);
  return text;
}

/// A Function for `bound`; `own` is its qualified name within the module.
py::object function_of(PyTypeObject& type, py::handle bound, const std::string& name,
                       const std::string& own) {
  auto made = py::reinterpret_steal<py::object>(PyType_GenericAlloc(&type, 0));
  if (!made) throw py::error_already_set();
  Function& function = *as_function(made.ptr());
  py::object text = with_short_types(text_attribute(bound, "__doc__"));
  if (const auto said = std::string(py::str(text)); said.starts_with(own + '(')) {
    text = py::str(name + said.substr(own.size()));
  }
  function.call = call_function;
  function.bound = bound.inc_ref().ptr();
  if (PyCFunction_GET_FLAGS(bound.ptr()) == (METH_FASTCALL | METH_KEYWORDS)) {
    function.entry = reinterpret_cast<Entry>(
        reinterpret_cast<void (*)()>(PyCFunction_GET_FUNCTION(bound.ptr())));
    function.entry_self = PyCFunction_GET_SELF(bound.ptr());
  }
  function.name = py::str(name).release().ptr();
  function.qualified_name = py::str(own).release().ptr();
  function.module = text_attribute(bound, "__module__").release().ptr();
  function.words = new std::vector(words_of(bound));
  function.text = text.inc_ref().ptr();
  function.is_constructor = own.ends_with(".__init__") || own.ends_with(".__setstate__");
  return made;
}

const Function& compiled(const py::object& given) {
  if (PyObject_TypeCheck(given.ptr(), &function_type)) return *as_function(given.ptr());
  fail_type("function: it is a ", type_of(given), ", expected a compiled one");
}

/// The same function as another object: of a type, by a name in a module.
py::object copied(const py::object& given, PyTypeObject& type, const std::string& own,
                  const py::object& module, bool promotes_by_dims) {
  const Function& function = compiled(given);
  const std::string name = py::str(py::handle(function.name));
  py::object made = function_of(type, function.bound, name, own + name);
  Function& copy = *as_function(made.ptr());
  Py_SETREF(copy.module, Py_NewRef(module.ptr()));
  Py_SETREF(copy.text, Py_NewRef(function.text));
  copy.promotes_by_dims = promotes_by_dims;
  return made;
}

/// The function with PyTorch's promotion, as one of weft.torch by that name.
py::object promoting_by_dims(const py::object& given, const std::string& name) {
  py::object made = copied(given, function_type, "", py::str("weft.torch"), true);
  Function& function = *as_function(made.ptr());
  Py_SETREF(function.name, py::str(name).release().ptr());
  Py_SETREF(function.qualified_name, Py_NewRef(function.name));
  return made;
}

/// The function as a method of Tensor.
py::object as_method(const py::object& given) {
  const Function& function = compiled(given);
  return copied(given, method_type, "Tensor.", py::reinterpret_borrow<py::object>(function.module),
                function.promotes_by_dims);
}

py::object worded_property(py::handle property, const std::string& name, const std::string& own) {
  const auto worded = [&](const char* attribute) -> py::object {
    py::object accessor = property.attr(attribute);
    if (accessor.is_none()) return accessor;
    const bool is_method = PyInstanceMethod_Check(accessor.ptr());
    py::handle bound = accessor;
    if (is_method) bound = PyInstanceMethod_GET_FUNCTION(accessor.ptr());
    return function_of(function_type, bound, name, own);
  };
  const py::handle type(reinterpret_cast<PyObject*>(&PyProperty_Type));
  return type(worded("fget"), worded("fset"), py::none(), property.attr("__doc__"));
}

void word_class(py::handle type) {
  const auto class_name = type.attr("__name__").cast<std::string>();
  for (const auto& [key, member] : py::dict(type.attr("__dict__"))) {
    const auto name = key.cast<std::string>();
    const std::string own = class_name + '.' + name;
    const std::string shown = name == "__init__" ? class_name : name;
    if (PyInstanceMethod_Check(member.ptr())) {
      const py::handle bound = PyInstanceMethod_GET_FUNCTION(member.ptr());
      if (!PyCFunction_Check(bound.ptr())) continue;
      type.attr(key) = function_of(method_type, bound, shown, own);
    } else if (Py_IS_TYPE(member.ptr(), &PyProperty_Type)) {  // not of a class: no setter
      type.attr(key) = worded_property(member, name, own);
    } else if (PyObject_TypeCheck(member.ptr(), &PyStaticMethod_Type)) {
      const py::object bound = member.attr("__func__");
      if (PyCFunction_Check(bound.ptr())) {
        type.attr(key) = py::staticmethod(function_of(function_type, bound, shown, own));
      }
    }
  }
}

/// Functions of weft.nn.init and weft.torch, which have them without what tells them from others.
constexpr std::string_view kPrefixes[] = {"_init_", "_linalg_", "_torch_", "_fft_"};

}  // namespace

void word_functions(py::module_& m) {
  m.def("_by_dims", &promoting_by_dims);
  m.def("_method", &as_method);
  m.attr("_WORDS") = py::tuple(py::cast(std::vector(kGroups.begin(), kGroups.end() - 1)));
  if (PyType_Ready(&function_type) < 0 || PyType_Ready(&method_type) < 0) {
    throw py::error_already_set();
  }
  for (const auto& [key, member] : py::dict(m.attr("__dict__"))) {
    const auto name = key.cast<std::string>();
    if (PyType_Check(member.ptr())) {
      word_class(member);
    } else if (PyCFunction_Check(member.ptr())) {
      std::string shown = name;
      for (const std::string_view prefix : kPrefixes) {
        if (name.starts_with(prefix)) shown.erase(0, prefix.size());
      }
      m.attr(key) = function_of(function_type, member, shown, name);
    }
  }
}

}  // namespace weft::python
