// SPDX-License-Identifier: Apache-2.0
#include "nn/activation_store.h"

#include <algorithm>
#include <utility>

#include "weft/context.h"
#include "weft/error.h"
#include "weft/module.h"

namespace weft {

/// The least size of a request: a smaller one takes longer than the memory is worth.
static constexpr int64_t kLeastBytes = 1024;

static thread_local int64_t moved_bytes = 0;

int64_t offloaded_activation_bytes() { return moved_bytes; }

static bool is_on_gpu(const Tensor& tensor) { return tensor.device().kind == DeviceKind::cuda; }

std::shared_ptr<ActivationStore> ActivationStore::in(const Tier& tier) {
  using Stores = std::map<std::string, std::weak_ptr<ActivationStore>>;
  static thread_local const auto stores = std::make_unique<Stores>();
  std::weak_ptr<ActivationStore>& known = (*stores)[concat(tier)];
  std::shared_ptr<ActivationStore> store = known.lock();
  if (!store) known = store = std::make_shared<ActivationStore>(tier);
  return store;
}

/// On the CPU the host's memory is the device's. Memory that is bound for a time, as that of
/// gathered parameters, has an owner who frees it.
bool ActivationStore::moves(const Tensor& tensor) const {
  if (!tensor || !(tier_.is_disk() || tensor.device().kind != DeviceKind::cpu)) return false;
  if (tensor.storage()->is_bindable()) return false;
  const MemoryBlock block = tensor.block();
  return block.is_dense() &&
         block.numel() * static_cast<int64_t>(size_of(tensor.dtype())) >= kLeastBytes;
}

std::shared_ptr<SavedActivations> ActivationStore::save(Tensors tensors,
                                                        const std::vector<uint64_t>& versions) {
  // Ends after the lock where the tier fails.
  auto run = std::make_shared<SavedActivations>(shared_from_this());
  const std::lock_guard lock(mutex_);
  for (SavedActivations* before : runs_) {
    if (before->place_ == SavedActivations::Place::leaving) before->leave();
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    SavedActivations::Saved& saved = run->all_.emplace_back();
    saved.tensor = std::move(tensors[i]);
    saved.version = versions[i];
    saved.moves = moves(saved.tensor);
    if (!saved.moves) continue;
    saved.shape = saved.tensor.shape();
    saved.options = {saved.tensor.dtype(), saved.tensor.device(), saved.tensor.sharding()};
    saved.bytes = saved.tensor.block().numel() * static_cast<int64_t>(size_of(saved.options.dtype));
  }
  runs_.push_back(run.get());
  run->start_to_leave();
  return run;
}

/// Takes a free place of so many bytes, or makes one.
template <class Places, class Make>
static auto place_in(Places& places, int64_t bytes, const Make& make) {
  auto& free = places[bytes];
  if (free.empty()) {
    // Places of other sizes are of an earlier step.
    std::erase_if(places, [&](const auto& others) { return others.first != bytes; });
    return make();
  }
  auto place = std::move(free.back());
  free.pop_back();
  return place;
}

std::shared_ptr<DiskMemory> ActivationStore::file_of(int64_t bytes) {
  return place_in(files_, bytes, [&] {
    return DiskMemory::make(tier_.directory(),
                            {{concat("an activation of ", bytes, " bytes"), bytes}});
  });
}

Ref<Storage> ActivationStore::host_of(int64_t bytes) {
  return place_in(hosts_, bytes,
                  [&] { return Storage::allocate_pinned(static_cast<size_t>(bytes)); });
}

/// Makes the places of a tensor free for others.
void ActivationStore::take_back(SavedActivations::Saved& saved) {
  if (saved.file) files_[saved.bytes].push_back(std::exchange(saved.file, {}));
  if (saved.host) hosts_[saved.bytes].push_back(std::exchange(saved.host, {}));
}

void ActivationStore::forget(SavedActivations& run) {
  const std::lock_guard lock(mutex_);
  std::erase(runs_, &run);
  for (SavedActivations::Saved& saved : run.all_) {
    saved.transfer = {};
    saved.copied.synchronize_quietly();
    take_back(saved);
  }
}

SavedActivations::~SavedActivations() {
  if (place_ != Place::taken) store_->forget(*this);
}

Tensor SavedActivations::on_host(const Saved& saved) const {
  return tensor_in(saved.host, 0, saved.tensor.local().shape(), saved.options.dtype);
}

/// Starts the copies of all tensors to their tier.
void SavedActivations::start_to_leave() {
  for (Saved& saved : all_) {
    if (!saved.moves) continue;
    if (store_->tier_.is_disk()) moved_bytes += saved.bytes;
    if (saved.options.device.kind == DeviceKind::meta) continue;
    if (is_on_gpu(saved.tensor)) {
      saved.host = store_->host_of(saved.bytes);
      const Stream out = stream_for(saved.options.device, StreamRole::scatter);
      Event::record(current_stream(saved.options.device)).wait(out);
      const StreamScope scope(out);
      transfer_(on_host(saved), saved.tensor.local());
      saved.copied = Event::record(out);
      if (!store_->tier_.is_disk()) continue;
      saved.copied.synchronize();
    }
    const void* data = saved.host ? saved.host->data() : saved.tensor.block().data;
    saved.file = store_->file_of(saved.bytes);
    saved.transfer = saved.file->write(saved.file->offset(0), saved.bytes, data);
  }
}

/// Waits until the copies are complete, and frees the memory.
void SavedActivations::leave() {
  for (Saved& saved : all_) {
    saved.transfer.wait();
    if (saved.tensor) saved.changed = saved.tensor.storage()->version() != saved.version;
    if (!saved.moves) continue;
    if (!saved.copied.empty()) saved.copied.wait(current_stream(saved.options.device));
    if (saved.file && saved.host) {
      store_->hosts_[saved.bytes].push_back(std::exchange(saved.host, {}));
    }
    saved.tensor = {};
  }
  place_ = Place::resting;
}

/// Allocates memory and starts to fill it.
void SavedActivations::start_to_come() {
  const NoGrad no_grad;
  for (Saved& saved : all_) {
    if (!saved.moves) continue;
    saved.tensor = empty(saved.shape, saved.options);
    if (store_->tier_.is_disk()) moved_bytes += saved.bytes;
    // The file of a tensor that changed meanwhile is of no use.
    if (saved.options.device.kind == DeviceKind::meta || saved.changed) continue;
    if (saved.file) {
      if (is_on_gpu(saved.tensor)) saved.host = store_->host_of(saved.bytes);
      void* const into = saved.host ? saved.host->data() : saved.tensor.block().data;
      saved.transfer = saved.file->read(saved.file->offset(0), saved.bytes, into);
    } else {
      const Stream in = stream_for(saved.options.device, StreamRole::gather);
      Event::record(current_stream(saved.options.device)).wait(in);
      const StreamScope scope(in);
      transfer_(saved.tensor.local(), on_host(saved));
      saved.copied = Event::record(in);
    }
  }
  place_ = Place::coming;
}

/// Waits until the memory is filled.
void SavedActivations::come() {
  for (Saved& saved : all_) {
    if (!saved.moves || saved.options.device.kind == DeviceKind::meta || saved.changed) continue;
    saved.transfer.wait();
    if (!is_on_gpu(saved.tensor)) continue;
    const Stream computing = current_stream(saved.options.device);
    if (saved.file) {
      transfer_(saved.tensor.local(), on_host(saved));
      Event::record(computing).synchronize();
    } else {
      saved.copied.wait(computing);
    }
  }
}

Tensors SavedActivations::take() {
  const std::lock_guard lock(store_->mutex_);
  if (place_ == Place::taken) {
    fail("recompute: the tensors saved by forward were taken before, expected one backward");
  }
  if (place_ == Place::leaving) {
    for (Saved& saved : all_) {
      saved.transfer.wait();
      saved.changed = saved.tensor && saved.tensor.storage()->version() != saved.version;
    }
  } else {
    if (place_ == Place::resting) start_to_come();
    come();
  }
  Tensors tensors;
  for (Saved& saved : all_) {
    // A tensor that stays in memory may have changed at any time until now.
    if (!saved.moves && saved.tensor) {
      saved.changed = saved.changed || saved.tensor.storage()->version() != saved.version;
    }
    tensors.push_back(std::move(saved.tensor));
    store_->take_back(saved);
  }
  place_ = Place::taken;
  auto& runs = store_->runs_;
  std::erase(runs, this);
  const auto is_read = [](const SavedActivations* run) { return run->place_ == Place::coming; };
  if (std::ranges::none_of(runs, is_read) && !runs.empty() &&
      runs.back()->place_ == Place::resting) {
    runs.back()->start_to_come();
  }
  return tensors;
}

std::optional<size_t> SavedActivations::changed() const {
  for (size_t i = 0; i < all_.size(); ++i) {
    if (all_[i].changed) return i;
  }
  return {};
}

}  // namespace weft
