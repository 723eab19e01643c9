// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/words.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "weft/error.h"

namespace weft::python {

namespace {

const std::vector<std::vector<const char*>> kGroups = {
    {"axis", "dim", "axes", "dims"},
    {"keepdims", "keepdim"},
    {"k", "diagonal"},
    {"shift", "shifts"},
    {"x", "x1", "input"},
    {"x2", "other"},
    {"arrays", "tensors"},
};

/// Another word for an argument of a function.
struct Word {
  PyObject* given;
  PyObject* own;
};
std::unordered_map<PyObject*, std::vector<Word>> words_by_function;

/// Names of the arguments in "name(x: Tensor, axis: object = None, *, k: int = 0) -> Tensor".
std::vector<std::string> arguments_of(std::string_view signature) {
  std::vector<std::string> names;
  int depth = 0;
  bool starts = false;
  for (size_t i = 0; i < signature.size() && signature[i] != '\n'; ++i) {
    const char c = signature[i];
    if (starts && c != ' ' && c != '*') {
      names.emplace_back(signature.substr(i, signature.find_first_of(":,)= ", i) - i));
      starts = false;
    }
    if (c == '(' || c == '[' || c == '{') starts = ++depth == 1;
    if (c == ')' || c == ']' || c == '}') --depth;
    if (c == ',' && depth == 1) starts = true;
    if (depth == 0 && !names.empty()) break;
  }
  return names;
}

PyObject* interned(const std::string& name) { return PyUnicode_InternFromString(name.c_str()); }

}  // namespace

py::tuple words_for_arguments() { return py::tuple(py::cast(kGroups)); }

void learn_words(PyCFunctionObject* function) {
  if (!function->m_ml->ml_doc) return;
  const std::vector<std::string> names = arguments_of(function->m_ml->ml_doc);
  const auto has = [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  std::vector<Word> words;
  for (const auto& group : kGroups) {
    const auto own = std::find_if(group.begin(), group.end(), has);
    if (own == group.end()) continue;
    for (const char* word : group) {
      if (!has(word)) words.push_back({interned(word), interned(*own)});
    }
  }
  if (!words.empty()) words_by_function[function->m_self] = std::move(words);
}

py::object words_of(PyObject* function, PyObject* names) {
  auto all = py::reinterpret_borrow<py::object>(names);
  const auto found = words_by_function.find(function);
  if (found == words_by_function.end()) return all;
  const auto count = py::len(all);
  for (size_t i = 0; i < count; ++i) {
    const auto name = py::reinterpret_borrow<py::str>(PyTuple_GET_ITEM(all.ptr(), i));
    for (const Word& word : found->second) {
      if (PyUnicode_Compare(name.ptr(), word.given) != 0) continue;
      const py::handle own = word.own;
      if (py::tuple(all).contains(own)) {
        fail(own.cast<std::string>(), " and ", name.cast<std::string>(),
             " are two words for one argument; give one");
      }
      py::list changed(all);
      changed[i] = own;
      all = py::tuple(changed);
    }
  }
  return all;
}

}  // namespace weft::python
