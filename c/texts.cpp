// SPDX-License-Identifier: Apache-2.0
#include "c/texts.h"

#include <algorithm>
#include <charconv>
#include <span>
#include <string_view>

#include "weft/reduce_op.h"

namespace weft::c {

static constexpr const char* kBlanks = " \t";

static std::string_view trimmed(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

static std::vector<std::string_view> parts_of(std::string_view text, char between) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(between, begin), text.size());
    parts.push_back(trimmed(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return parts;
}

/// Reads a whole number; false for any other text.
template <class T> static bool reads(std::string_view text, T& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

std::vector<MeshAxis> axes_in(const Call& call, const char* text, int ranks) {
  call.check(text, "axes");
  const auto refuse = [&](const char* expected) {
    fail(call.function, ": axes are ", in_quotes(text), ", expected ", expected);
  };
  std::vector<MeshAxis> axes;
  int64_t product = 1;
  MeshAxis* rest = nullptr;
  const auto parts = parts_of(text, ',');
  axes.reserve(parts.size());
  for (const std::string_view part : parts) {
    const size_t sign = part.find('=');
    MeshAxis& axis = axes.emplace_back(MeshAxis{std::string(trimmed(part.substr(0, sign))), 1});
    const bool has_size = sign != part.npos;
    if (has_size && (!reads(trimmed(part.substr(sign + 1)), axis.size) || axis.size < 1)) {
      refuse("a form such as \"rows=2,columns=3\", with sizes of at least 1");
    }
    if (axis.name.empty()) refuse("a form such as \"rows=2,columns=3\"");
    if (!has_size && rest) refuse("at most one axis without a size");
    if (!has_size) rest = &axis;
    product = std::min(product * axis.size, int64_t{1} << 31);
  }
  if (rest) rest->size = std::max(1, static_cast<int>(ranks / product));
  return axes;
}

/// False for a text that is none.
static bool reads_placement(std::string_view text, Placement& placement) {
  if (text == "R") {
    placement = Replicate();
    return true;
  }
  if (text.size() < 4 || text[1] != '(' || text.back() != ')') return false;
  const std::string_view inner = text.substr(2, text.size() - 3);
  if (text[0] == 'P') {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::max, ReduceOp::min}) {
      if (inner != name_of(op)) continue;
      placement = Partial{op};
      return true;
    }
    return false;
  }
  Shard shard{0};
  const size_t colon = inner.find(':');
  if (text[0] != 'S' || !reads(trimmed(inner.substr(0, colon)), shard.dim)) return false;
  if (colon != inner.npos) {
    for (const std::string_view size : parts_of(inner.substr(colon + 1), '+')) {
      if (!reads(size, shard.sizes.emplace_back())) return false;
    }
  }
  placement = shard;
  return true;
}

Placements placements_in(const Call& call, const char* text) {
  const std::string_view all = trimmed(text ? text : "");
  if (all.empty()) return {};
  std::vector<Placement> listed;
  std::vector<NamedPlacement> named;
  for (const std::string_view part : parts_of(all, ',')) {
    const size_t sign = part.find('=');
    const std::string_view word = sign == part.npos ? part : trimmed(part.substr(sign + 1));
    Placement placement;
    if (!reads_placement(word, placement)) {
      fail(call.function, ": placement is ", in_quotes(word),
           ", expected R, S(0), S(0: 3+1+4), P(sum), P(avg), P(max) or P(min)");
    }
    if (sign == part.npos) listed.push_back(placement);
    if (sign != part.npos) named.push_back({std::string(trimmed(part.substr(0, sign))), placement});
  }
  if (named.empty()) return Placements(std::span<const Placement>(listed));
  if (listed.empty()) return Placements(std::span<const NamedPlacement>(named));
  fail(call.function, ": placements are ", in_quotes(all),
       ", expected names of axes before all of them or before none");
}

Sharding sharding_in(const Call& call, weft_mesh mesh, const char* text, int ndim) {
  if (mesh.id != 0) return Sharding(call.mesh(mesh), placements_in(call, text), ndim);
  if (text && *text) {
    fail(call.function, ": placements are ", in_quotes(text), " without a mesh, expected a mesh");
  }
  return {};
}

std::vector<std::string> names_in(const Call& call, const char* text, int count) {
  call.check(text, "names");
  std::vector<std::string> names;
  for (const std::string_view part : parts_of(text, ',')) names.emplace_back(part);
  for (const std::string& name : names) {
    if (!name.empty() && std::ranges::count(names, name) == 1) continue;
    fail(call.function, ": names are ", in_quotes(text),
         ", expected different ones between commas");
  }
  if (std::ssize(names) != count) {
    fail(call.function, ": names are ", in_quotes(text), ", expected ", count,
         ", one for each tensor");
  }
  return names;
}

}  // namespace weft::c
