// SPDX-License-Identifier: Apache-2.0
#include "ops/engine/copied_view.h"

#include <unordered_map>
#include <utility>

#include "ops/engine/engine.h"
#include "ops/engine/route.h"
#include "src/kernels/copy/copy.h"
#include "weft/autograd.h"
#include "weft/error.h"
#include "weft/extend/views.h"
#include "weft/ops.h"

namespace weft {

void find_form(const OpBody& op, const Attributes& attributes, Route& route,
               const Ref<Form>& given) {
  const auto whole_of = [](const Layout& layout) {
    return layout_of(Sharding(), layout.shape, layout.dtype);
  };
  Route whole;
  const Ref<Layout> from = whole_of(*route.operands[0].given);
  whole.operands.push_back({.given = from, .used = from, .box = from->box});
  whole.results.push_back(whole_of(*route.results[0]));
  CallBody call(whole, attributes);
  const Strides& strides = given ? given->strides : from->local_strides;
  call.ins.add(MemoryBlock{nullptr, from->dtype, cpu, from->shape, strides});
  const std::optional<View> view = op.spec.view(Call(call));
  route.is_view = view.has_value();
  route.has_form = true;
  route.form_in = given;
  route.form_out = {};
  if (!view) return;
  int64_t offset = view->offset + (given ? given->offset : 0);
  if (route.operands[0].fetched) {
    const Box needed = op.spec.needs(attributes, 0, {&from->shape, 1}, whole.result(0).box);
    for (int d = 0; d < from->shape.ndim(); ++d) offset += needed.offset[d] * strides[d];
  }
  if (offset == 0 && view->strides == whole.result(0).local_strides) return;
  route.form_out = Ref<Form>(new Form(view->strides, offset));
}

/// The changes of the tensor's elements that copied views follow.
static uint64_t changes_of(const Tensor& tensor) {
  const Storage& storage = *tensor.storage();
  return tensor.is_sharded() ? storage.shared_changes() : storage.version();
}

void CopiedView::attach(const Tensor& view, const Tensor& base, std::shared_ptr<const OpBody> op,
                        const Attributes& attributes) {
  Ref<CopiedView> made(new CopiedView);
  made->op = std::move(op);
  made->attributes = attributes;
  made->base = base.detach();
  made->part = relabeled(view, layout_of(view));
  if (const Ref<CopiedView>& outer = base.body()->copied) made->depth = outer->depth + 1;
  if (made->depth > kDeepest) {
    made->op = nullptr;
    while (const Ref<CopiedView> outer = made->base.body()->copied) made->base = outer->base;
  }
  made->version = changes_of(made->base);
  made->recorded = made->base.storage()->recorded_changes();
  view.body()->copied = std::move(made);
}

bool CopiedView::is_current() const {
  if (is_busy) return true;
  const Ref<CopiedView>& outer = base.body()->copied;
  return version == changes_of(base) && (!outer || outer->is_current());
}

void CopiedView::refresh() {
  if (is_current()) return;
  const std::lock_guard lock(refreshing);
  if (!op) {
    fail("view: the tensor ", part.shape(), " shows elements through more than ", kDeepest,
         " copies, which have changed since, expected at most ", kDeepest, "; copy one of them");
  }
  if (const Ref<CopiedView>& outer = base.body()->copied) outer->refresh();
  const uint64_t changes = changes_of(base);
  if (version == changes) return;
  if (part.device().kind != DeviceKind::meta) {
    const NoGrad no_grad;
    const Results now = dispatch(op, {&base, 1}, attributes);
    copy(part.block(), now.tensors[0].block());
    changed(part);
  }
  version = changes;
}

void CopiedView::read() {
  if (is_current()) return;
  if (!part.is_sharded()) return refresh();
  fail("view: the tensor ", part.shape(), " is a copy of elements of other ranks, which have ",
       "changed since, expected current ones where one rank reads its part; take the view again");
}

void refresh(CopiedView& view) { view.refresh(); }

bool shows_recorded(const CopiedView& view) {
  for (const CopiedView* at = &view; at; at = at->base.body()->copied.get()) {
    if (at->recorded != at->base.storage()->recorded_changes()) return false;
  }
  return true;
}

/// Returns the registered puts, by the ids of their ops.
static std::unordered_map<uint32_t, Put>& all_puts() {
  static std::unordered_map<uint32_t, Put> puts;
  return puts;
}

bool puts(const Op& op, Put put) { return all_puts().emplace(op.body().id, std::move(put)).second; }

/// Returns the numbers of base's elements, in a tensor of base's shape on all ranks.
static Tensor numbers_of(const Tensor& base) {
  TensorOptions options{.dtype = DType::i64, .device = base.device()};
  if (base.is_sharded()) options.sharding = Sharding(base.sharding().mesh(), {});
  return reshape(arange(0, static_cast<double>(base.numel()), 1, options), base.shape());
}

/// Returns which elements of `base` the tensor `shown` of the memory of `part` shows, where `part`
/// shows those that `numbers` says.
static Tensor numbers_shown(const Tensor& numbers, const Tensor& part, const TensorBody& shown) {
  const auto as_numbers = [](const Layout& layout) {
    return layout_of(layout.sharding, layout.shape, DType::i64);
  };
  const Tensor moved = moved_to(numbers, as_numbers(*layout_of(part)));
  const TensorBody& body = *part.body();
  const size_t elements = body.storage->bytes() / size_of(part.dtype());
  const Ref<Storage> storage = Storage::allocate(elements * sizeof(int64_t), part.device());
  copy(make_tensor(layout_of(moved), storage, body.offset, body.strides).block(), moved.block());
  return make_tensor(as_numbers(*shown.layout), storage, shown.offset, shown.strides);
}

void CopiedView::put_back(const TensorBody& shown, bool is_recorded) {
  const NoGrad no_grad;
  if (is_recorded) mark_recorded(base);
  const Ref<Form>& form = part.body()->form;
  const bool repeats = form && repeats_elements(part.shape(), form->strides);
  const bool is_here = part.device().kind != DeviceKind::meta;
  is_busy = true;
  try {
    const auto found = all_puts().find(op->id);
    if (found != all_puts().end() && !repeats) {
      found->second(attributes, base, part);
    } else if (is_here) {
      Tensor numbers = Op(op)({numbers_of(base)}, attributes), from = part;
      if (repeats) {
        numbers = numbers_shown(numbers, part, shown);
        from = make_tensor(shown.layout, shown.storage, shown.offset, shown.strides);
      }
      copy_(base, put(base, numbers, from));
    }
  } catch (...) {
    is_busy = false;
    throw;
  }
  is_busy = false;
  // The other elements of `part` that are the same ones of `base` follow.
  if (repeats) {
    refresh();
  } else {
    version = changes_of(base);
  }
  for (CopiedView* at = this; at; at = at->base.body()->copied.get()) {
    const uint32_t now = at->base.storage()->recorded_changes();
    at->own += now - std::exchange(at->recorded, now);
  }
}

void CopiedView::check_changeable(const char* what, const Tensor& view) const {
  if (!op || layout_of(base)->sharding.has_partial()) {
    fail(what, ": the tensor ", view.shape(), " is a copy of elements of a tensor ", base.shape(),
         op ? " with a Partial" : "", ", expected one that holds its elements; change the tensor ",
         "it was made from, or copy it first");
  }
  if (!part.is_sharded()) return weft::check_changeable(what, base);
  if (!view.is_sharded()) {
    fail(what, ": the tensor ", view.shape(), " is this rank's part of a copied view, expected ",
         "the view; copy it first");
  }
  if (Context::current().traffic != Traffic::allow) {
    fail(what, ": the tensor ", view.shape(), " shows elements of other ranks, expected none, as ",
         "the traffic policy demands; change the tensor it was made from, or copy it first");
  }
  weft::check_changeable(what, base);
}

bool is_view_of(const Tensor& view, const Tensor& base) {
  const TensorBody* body = view.body().get();
  for (; !(body->storage == base.storage()); body = body->copied->base.body().get()) {
    if (!body->copied) return false;
  }
  return true;
}

uint32_t recorded_through(const Tensor& view, const Tensor& base) {
  for (const TensorBody* body = view.body().get(); body->copied;
       body = body->copied->base.body().get()) {
    if (body->copied->base.storage() == base.storage()) return body->copied->own;
  }
  return 1;
}

bool shows_same(const Tensor& a, const Tensor& b) {
  const TensorBody &x = *a.body(), &y = *b.body();
  if (!(a.shape() == b.shape()) || a.dtype() != b.dtype() || a.sharding() != b.sharding()) {
    return false;
  }
  if (!same_form(x.form, y.form)) return false;
  if (x.storage == y.storage) return x.offset == y.offset && x.strides == y.strides;
  // Two copies of the same elements.
  if (!x.copied || !y.copied) return false;
  const CopiedView &from = *x.copied, &to = *y.copied;
  const TensorBody &whole = *from.part.body(), &other = *to.part.body();
  const bool are_alike = whole.layout == other.layout && whole.offset == other.offset &&
                         whole.strides == other.strides;
  return from.op && from.op == to.op && from.attributes.structure == to.attributes.structure &&
         are_alike && x.offset == y.offset && x.strides == y.strides &&
         shows_same(from.base, to.base);
}

void mark_recorded(const Tensor& tensor) {
  tensor.storage()->mark_recorded();
  if (tensor.is_sharded()) tensor.storage()->mark_shared_change();
  if (const Ref<CopiedView>& copied = tensor.body()->copied) mark_recorded(copied->base);
}

void put_back(const TensorBody& body, bool recorded) { body.copied->put_back(body, recorded); }

}  // namespace weft
