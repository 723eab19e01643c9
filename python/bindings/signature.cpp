// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/signature.h"

#include <algorithm>
#include <cctype>

#include "weft/error.h"

namespace weft::python {

namespace {

/// The parts of a text between separators that are outside of brackets and quotes.
std::vector<std::string_view> parts_of(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> parts;
  int depth = 0;
  bool is_quoted = false;
  size_t start = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\'') is_quoted = !is_quoted;
    if (is_quoted) continue;
    depth += (c == '(' || c == '[' || c == '{') - (c == ')' || c == ']' || c == '}');
    if (depth != 0 || !text.substr(i).starts_with(separator)) continue;
    parts.push_back(text.substr(start, i - start));
    start = i + separator.size();
  }
  if (start < text.size()) parts.push_back(text.substr(start));
  return parts;
}

/// The text within the brackets that open at `at`.
std::string_view within_brackets(std::string_view text, size_t at) {
  int depth = 0;
  for (size_t i = at; i < text.size(); ++i) {
    depth += (text[i] == '(' || text[i] == '[') - (text[i] == ')' || text[i] == ']');
    if (depth == 0) return text.substr(at + 1, i - at - 1);
  }
  return {};
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != text.npos;) text.replace(at, from.size(), to);
  return text;
}

/// A type without the module of Python's abstract ones.
std::string short_type(std::string_view text) {
  return replaced(std::string(text), "collections.abc.", "");
}

Signature signature_of(std::string_view arguments) {
  Signature signature;
  bool by_name_only = false;
  for (const std::string_view part : parts_of(arguments, ", ")) {
    if (part == "*" || part == "/") {
      by_name_only = by_name_only || part == "*";
      continue;
    }
    if (part.starts_with('*')) {
      signature.takes_any = true;
      continue;
    }
    const size_t colon = part.find(": ");
    const std::string_view type = colon == part.npos ? "" : part.substr(colon + 2);
    const size_t equals = type.find(" = ");
    signature.arguments.push_back(
        {.name = std::string(part.substr(0, colon)),
         .type = short_type(type.substr(0, equals)),
         .value = short_type(equals == type.npos ? "" : type.substr(equals + 3)),
         .by_name_only = by_name_only});
  }
  return signature;
}

bool fits(py::handle value, std::string_view type, const py::dict& classes);

/// Whether each item fits; a sequence, or the keys of a mapping, that `type` describes.
bool items_fit(py::handle value, std::string_view type, const py::dict& classes) {
  if (type == "...") return true;
  for (const py::handle item : value) {
    if (!fits(item, type, classes)) return false;
  }
  return true;
}

bool container_fits(py::handle value, std::string_view name, std::string_view inner,
                    const py::dict& classes) {
  const std::vector<std::string_view> types = parts_of(inner, ", ");
  if (name == "Mapping" || name == "dict") {
    if (!PyDict_Check(value.ptr())) return false;
    for (const auto& [key, item] : py::reinterpret_borrow<py::dict>(value)) {
      if (!fits(key, types.front(), classes) || !fits(item, types.back(), classes)) return false;
    }
    return true;
  }
  if (!PySequence_Check(value.ptr()) || PyUnicode_Check(value.ptr())) return false;
  const bool has_any_length = name != "tuple" || types.back() == "...";
  if (has_any_length) return items_fit(value, types.front(), classes);
  if (py::len(value) != types.size()) return false;
  for (size_t i = 0; i < types.size(); ++i) {
    if (!fits(value[py::int_(i)], types[i], classes)) return false;
  }
  return true;
}

bool is_small_int(PyObject* value) {
  if (!PyIndex_Check(value)) return false;
  const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(value));
  const bool fits = number && (PyLong_AsLongLong(number.ptr()) != -1 || !PyErr_Occurred());
  PyErr_Clear();
  return fits;
}

/// Whether a value is of a type as it is written in a signature.
bool fits(py::handle value, std::string_view type, const py::dict& classes) {
  const auto alternatives = parts_of(type, " | ");
  if (alternatives.size() > 1) {
    return std::ranges::any_of(alternatives, [&](auto one) { return fits(value, one, classes); });
  }
  PyObject* object = value.ptr();
  if (type == "None") return value.is_none();
  if (type == "int") return is_small_int(object);
  if (type == "float") {
    return PyFloat_Check(object) || PyIndex_Check(object) || py::hasattr(value, "__float__");
  }
  if (type == "bool") {
    const PyNumberMethods* number = Py_TYPE(object)->tp_as_number;
    return value.is_none() || (number && number->nb_bool);
  }
  if (type == "str") return PyUnicode_Check(object);
  if (type == "bytes") return PyBytes_Check(object);
  if (type == "Callable") return PyCallable_Check(object);
  if (type == "dict") return PyDict_Check(object);
  if (const size_t bracket = type.find('['); bracket != type.npos) {
    return container_fits(value, type.substr(0, bracket), within_brackets(type, bracket), classes);
  }
  const py::str name{std::string(type)};
  return !classes.contains(name) || py::isinstance(value, classes[name]);
}

/// A small value itself, a type otherwise.
std::string described(py::handle value) {
  constexpr size_t kLongest = 30;
  const bool is_small = value.is_none() || PyLong_Check(value.ptr()) ||
                        PyFloat_Check(value.ptr()) || PyUnicode_Check(value.ptr());
  std::string text = is_small ? py::repr(value).cast<std::string>() : "";
  if (!text.empty() && text.size() <= kLongest) return text;
  const auto type = py::type::handle_of(value).attr("__name__").cast<std::string>();
  const bool has_vowel = std::string_view("aeiou").find(static_cast<char>(std::tolower(
                             static_cast<unsigned char>(type[0])))) != std::string::npos;
  return (has_vowel ? "an " : "a ") + type;
}

size_t count_of(const GivenArguments& given) {
  return given.positional + (given.names ? py::len(given.names) : 0);
}

std::string given_in_words(const GivenArguments& given, size_t self) {
  std::string text;
  for (size_t i = std::min(self, given.positional); i < count_of(given); ++i) {
    if (!text.empty()) text += ", ";
    if (i >= given.positional) {
      const py::handle name = PyTuple_GET_ITEM(given.names, i - given.positional);
      text += name.cast<std::string>() + '=';
    }
    text += described(given.values[i]);
  }
  return '(' + text + ')';
}

bool has_self(const Signature& signature) {
  return !signature.arguments.empty() && signature.arguments[0].name == "self";
}

std::string taken_in_words(const Signature& signature) {
  std::string text;
  bool by_name_only = false;
  for (const Argument& argument : signature.arguments) {
    if (argument.name == "self") continue;
    if (!text.empty()) text += ", ";
    if (argument.by_name_only && !by_name_only) text += "*, ";
    by_name_only = argument.by_name_only;
    text += argument.name + ": " + argument.type;
    if (!argument.value.empty()) text += " = " + argument.value;
  }
  return '(' + text + (signature.takes_any ? ", ...)" : ")");
}

/// The value that a call gives for an argument, by place or name.
py::handle value_of(const Signature& signature, size_t i, const GivenArguments& given) {
  const Argument& argument = signature.arguments[i];
  if (!argument.by_name_only && i < given.positional) return given.values[i];
  for (size_t n = given.positional; n < count_of(given); ++n) {
    const py::handle name = PyTuple_GET_ITEM(given.names, n - given.positional);
    if (name.cast<std::string>() == argument.name) return given.values[n];
  }
  return {};
}

/// What is wrong with the number and the names of the arguments; "" for nothing.
std::string wrong_arguments(const Signature& signature, const GivenArguments& given) {
  if (signature.takes_any) return "";
  const auto& arguments = signature.arguments;
  const auto places = static_cast<size_t>(
      std::ranges::count_if(arguments, [](const Argument& a) { return !a.by_name_only; }));
  const size_t self = has_self(signature);
  if (given.positional > places) {
    return concat("number of arguments by position is ", given.positional - self,
                  ", expected at most ", places - self);
  }
  for (size_t n = given.positional; n < count_of(given); ++n) {
    const auto name = py::handle(PyTuple_GET_ITEM(given.names, n - given.positional));
    const auto text = name.cast<std::string>();
    const auto named = std::ranges::find(arguments, text, &Argument::name);
    if (named == arguments.end()) return concat("argument ", in_quotes(text), " does not exist");
    if (static_cast<size_t>(named - arguments.begin()) < given.positional) {
      return concat(text, " is given by position and by name, expected once");
    }
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].value.empty() && !value_of(signature, i, given)) {
      return concat(arguments[i].name, " is missing, expected ", arguments[i].type);
    }
  }
  return "";
}

/// What is wrong with the first value that does not fit; "" for nothing.
std::string wrong_value(const Signature& signature, const GivenArguments& given,
                        const py::dict& classes) {
  for (size_t i = 0; i < signature.arguments.size(); ++i) {
    const Argument& argument = signature.arguments[i];
    const py::handle value = value_of(signature, i, given);
    if (!value || fits(value, argument.type, classes)) continue;
    const bool has_name = !argument.name.starts_with("arg");
    const bool is_large = argument.type == "int" && PyLong_Check(value.ptr());
    return concat(has_name ? argument.name : "argument", " is ", described(value), ", expected ",
                  argument.type, is_large ? " of 64 bits" : "");
  }
  return "";
}

}  // namespace

std::string with_short_types(std::string text) {
  text = replaced(std::move(text), "weft._weft.", "");
  text = replaced(std::move(text), "typing.SupportsInt | typing.SupportsIndex", "int");
  return replaced(std::move(text), "typing.SupportsFloat | typing.SupportsIndex", "float");
}

std::vector<Signature> signatures_in(std::string_view docstring) {
  std::vector<Signature> signatures;
  const bool is_overloaded = docstring.find("\nOverloaded function.") != docstring.npos;
  for (size_t start = 0; start < docstring.size();) {
    const size_t end = std::min(docstring.find('\n', start), docstring.size());
    const std::string_view line = docstring.substr(start, end - start);
    const bool is_one = !is_overloaded || line.find_first_not_of("0123456789") == line.find(". ");
    const size_t bracket = line.find('(');
    if (is_one && bracket != line.npos && line.find(") -> ") != line.npos) {
      signatures.push_back(signature_of(within_brackets(line, bracket)));
      if (!is_overloaded) break;
    } else if (!is_overloaded) {
      break;
    }
    start = end + 1;
  }
  return signatures;
}

std::string refusal_of(std::string_view function, std::span<const Signature> signatures,
                       const GivenArguments& given, const py::dict& classes) {
  std::string taken;
  for (const Signature& signature : signatures) {
    taken += (taken.empty() ? "" : " or ") + taken_in_words(signature);
  }
  if (signatures.size() == 1) {
    if (const std::string wrong = wrong_arguments(signatures[0], given); !wrong.empty()) {
      return concat(function, ": ", wrong, "; it takes ", taken);
    }
    if (const std::string wrong = wrong_value(signatures[0], given, classes); !wrong.empty()) {
      return concat(function, ": ", wrong);
    }
  }
  const size_t self = !signatures.empty() && has_self(signatures[0]);
  return concat(function, ": arguments are ", given_in_words(given, self), ", expected ", taken);
}

}  // namespace weft::python
