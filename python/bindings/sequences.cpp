// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/sequences.h"

#include "python/bindings/bindings.h"
#include "python/bindings/fields.h"

// Sequences that ranks share.

namespace weft::python {

namespace {

struct OrderedOptions {
  AttentionOptions attention = {};
  SequenceWay way = SequenceWay::automatic;
};

}  // namespace

static void bind_shared(py::module_& m) {
  using O = TokenOrder;
  using S = SharedSequence;
  const auto maybe = [](const Tensor& tensor) { return MaybeTensor(tensor); };
  py::class_<O>(m, "TokenOrder",
                "The places of the tokens of a sequence, whose elements may be in any order: "
                "integers [batch, sequence], and the numbers of their documents (alike) or None")
      .def(py::init([](const Tensor& places, const MaybeTensor& segments) {
             return O{places, segments};
           }),
           "places"_a, "segments"_a = py::none())
      .def_property_readonly("places", [maybe](const O& self) { return maybe(self.places); })
      .def_property_readonly("segments", [maybe](const O& self) { return maybe(self.segments); });
  py::class_<S>(m, "SharedSequence",
                "A batch whose sequences ranks share, in an order in which all have the same "
                "number of tokens and about the same work of attention: made by share_sequence")
      .def_readonly("ids", &S::ids, "Shard(1) along the axis")
      .def_property_readonly(
          "targets", [maybe](const S& self) { return maybe(self.targets); },
          "Shard(1); None if none were given")
      .def_readonly("positions", &S::positions, "Shard(1): the place of each token in its document")
      .def_readonly("order", &S::order, "Whole along the axis");
}

void bind_sequences(py::module_& m) {
  bind_shared(m);
  def(m, "share_sequence(ids, targets, axis, segments=None)",
      "Orders rows, whole along `axis` (such as mesh['cp']), and cuts them over its ranks: "
      "without segments rank i of n has parts i and 2n - 1 - i of 2n (zig-zag); with segments each "
      "row's documents are dealt out in pieces, the costliest first. targets may be None",
      [](const Tensor& ids, const MaybeTensor& targets, const DeviceMesh& axis,
         const MaybeTensor& segments) { return share_sequence(ids, targets, segments, axis); });
  using A = AttentionOptions;
  using O = OrderedOptions;
  const auto attend = [](const Tensor& q, const Tensor& k, const Tensor& v, const TokenOrder& order,
                         const O& options) {
    return ordered_attention(q, k, v, order, options.attention, options.way);
  };
  const auto of = [](const auto& field) { return within(&O::attention, field); };
  bind_with_fields<O, Tensor, Tensor, Tensor, TokenOrder>(
      m, "ordered_attention", attend, Released(), "q"_a, "k"_a, "v"_a, "order"_a,
      of(option("scale", &A::scale)), py::kw_only(), of(option("window", &A::window)),
      of(option("softcap", &A::softcap)), of(option("sinks", &A::sinks)),
      of(option("mask", &A::mask)), of(option("alibi", &A::alibi)),
      of(option("dropout", &A::dropout)),
      choice("ordered_attention", "way", &O::way, {"automatic", "gather", "heads", "ring"}),
      "Causal attention of tokens in any order: a token attends to those of its document at its "
      "own place and before it. q, k and v are as in `attention` and have the same tokens, which "
      "ranks may share: Shard(1) along an axis. way: how keys reach queries: 'gather' all, "
      "exchange tokens for 'heads', pass parts around a 'ring', or by predicted time. ValueError "
      "for a mask, ALiBi and dropout");
  def(m, "explain_attention(q, k, v)",
      "Says for each way of ordered_attention what it moves, its predicted time, the most bytes "
      "of keys and values on a rank, and which one is automatic",
      &explain_attention);
}

}  // namespace weft::python
