// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "weft/adapters.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/module_sharder.h"
#include "weft/extend/packed.h"
#include "weft/ops/elementwise.h"

namespace weft {

namespace {

/// The product of a Linear with a packed weight.
struct PackedProduct {
  int64_t columns;
  Tensor operator()(const Tensor& x, const Tensor& weight, const Tensor& bias) const {
    const Tensor y = packed_linear(x, weight);
    return bias ? add(y, bias) : y;
  }
};

}  // namespace

static const PackedProduct* packed_product(const Linear& linear) {
  return linear.product().target<PackedProduct>();
}

std::optional<int64_t> packed_columns(const Linear& linear) {
  const PackedProduct* product = packed_product(linear);
  return product ? std::optional(product->columns) : std::nullopt;
}

int64_t in_features(const Linear& linear) {
  return packed_columns(linear).value_or(linear.own_parameters()[0].second->shape()[1]);
}

/// Returns the packed parameter that stands for `weight`, with its values if it has any.
static ParameterPtr packed_parameter(const Parameter& weight, int bits) {
  const Shape& shape = weight.shape();
  const int64_t columns = shape[1], blocks = (columns + kPackedBlock - 1) / kPackedBlock;
  const auto initial = [columns, values = weight.initializer()](const Tensor& packed) {
    const Tensor matrix = unpacked_like(packed, columns);
    values(matrix);
    pack_into(packed, matrix);
  };
  auto packed =
      std::make_shared<Parameter>(Shape{shape[0], blocks, packed_bytes(bits)}, DType::u8, initial);
  if (!weight.is_materialized()) return packed;
  const NoGrad no_grad;
  PurposeScope purpose(Purpose::parameters);
  packed->set_value(pack_rows(weight.value().detach(), bits));
  return packed;
}

static void check_packable(const std::string& path, const Linear& linear,
                           const std::map<const Parameter*, size_t>& names) {
  const Parameter& weight = *linear.own_parameters()[0].second;
  if (weight.value().is_sharded() || ModuleSharder::is_sharded(linear)) {
    fail("quantize_base: module ", in_quotes(path),
         " is sharded, expected a model before parallelize and fully_shard");
  }
  if (linear.is_float8() || linear.product()) {
    fail("quantize_base: module ", in_quotes(path),
         " has another product already, expected a plain Linear");
  }
  if (names.at(&weight) > 1) {
    fail("quantize_base: weight of ", in_quotes(path),
         " is tied to another parameter, expected one that is not tied");
  }
}

std::vector<std::string> quantize_base(Module& model, int bits) {
  if (bits != 4 && bits != 8) {
    fail("quantize_base: bits of a weight are ", bits, ", expected 4 or 8");
  }
  std::map<const Parameter*, size_t> names;
  for (const NamedParameter& named : model.named_parameters()) {
    names.emplace(named.parameter.get(), named.names.size());
  }
  std::vector<std::pair<std::string, Linear*>> linears;
  for (const auto& [path, module] : model.named_modules()) {
    auto* linear = dynamic_cast<Linear*>(module);
    const bool is_adapter = is_adapter_parameter(path + ".weight");
    if (!linear || is_adapter || path == "lm_head" || path.ends_with(".lm_head")) continue;
    check_packable(path, *linear, names);
    linears.emplace_back(path, linear);
  }
  if (linears.empty()) {
    fail("quantize_base: number of Linear modules but the head is 0, expected at least 1");
  }
  std::vector<std::string> paths;
  for (const auto& [path, linear] : linears) {
    const ParameterPtr weight = linear->own_parameters()[0].second;
    linear->replace("weight", packed_parameter(*weight, bits));
    linear->set_product(PackedProduct{weight->shape()[1]});
    paths.push_back(path);
  }
  return paths;
}

std::map<std::string, int64_t> packed_weights(const Module& model) {
  std::map<std::string, int64_t> found;
  for (const auto& [path, module] : const_cast<Module&>(model).named_modules()) {
    const auto* linear = dynamic_cast<const Linear*>(module);
    if (!linear || !packed_columns(*linear)) continue;
    found.emplace(path.empty() ? "weight" : path + ".weight", *packed_columns(*linear));
  }
  return found;
}

}  // namespace weft
