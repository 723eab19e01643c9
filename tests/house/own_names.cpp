// SPDX-License-Identifier: Apache-2.0
// Compiles: a program that uses the whole namespace can have these names for itself.
#include "weft/weft.h"

using namespace weft;

class Block final : public Module {
 protected:
  Tensors forward(const Tensors& inputs) override { return inputs; }
};
struct Batch {};
struct Config {};
struct Layer {};
struct Model {};
struct State {};
namespace cuda {
struct Own {};
}  // namespace cuda

std::shared_ptr<Module> make() { return std::make_shared<Block>(); }
std::tuple<Batch, Config, Layer, Model, State, cuda::Own> others;
