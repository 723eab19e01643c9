// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/shape.h"

/// The bytes of values in a pickle of protocol 2.
namespace weft::pickled {

using Values = std::vector<std::string>;

template <class T> std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
inline std::string none() { return "N"; }
inline std::string boolean(bool value) { return value ? "\x88" : "\x89"; }
inline std::string number(int64_t value) { return "\x8a\x08" + raw(value); }
inline std::string real(double value) {
  return "G" + raw(__builtin_bswap64(std::bit_cast<uint64_t>(value)));
}
inline std::string text(std::string_view value) {
  return "X" + raw(static_cast<uint32_t>(value.size())) + std::string(value);
}
inline std::string joined(const Values& values) {
  std::string all;
  for (const std::string& value : values) all += value;
  return all;
}
inline std::string tuple(const Values& values) { return "(" + joined(values) + "t"; }
inline std::string list(const Values& values) { return "](" + joined(values) + "e"; }
/// Takes keys and values in turn.
inline std::string dict(const Values& items) { return "}(" + joined(items) + "u"; }
inline std::string global(std::string_view module, std::string_view name) {
  return "c" + std::string(module) + "\n" + std::string(name) + "\n";
}
/// The result of calling a function or class with arguments.
inline std::string call(const std::string& function, const Values& arguments) {
  return function + tuple(arguments) + "R";
}
/// An object of a class with attributes: names and values in turn.
inline std::string object(const std::string& type, const Values& attributes) {
  return type + ")\x81" + dict(attributes) + "b";
}
inline std::string sizes(const Dims& dims) {
  Values values;
  for (const int64_t size : dims) values.push_back(number(size));
  return tuple(values);
}
inline std::string whole(const std::string& value) { return "\x80\x02" + value + "."; }

}  // namespace weft::pickled
