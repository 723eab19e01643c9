// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "weft/export.h"
#include "weft/extend/disk_memory.h"
#include "weft/ops/factories.h"
#include "weft/stream.h"
#include "weft/tensor.h"
#include "weft/tier.h"

namespace weft {

class ActivationStore;

/// The tensors that one recomputed run saves for backward.
class SavedActivations : NotCopied {
 public:
  explicit SavedActivations(std::shared_ptr<ActivationStore> store) : store_(std::move(store)) {}
  ~SavedActivations();

  /// Returns the tensors in memory, and starts to read those that backward needs next.
  /// std::invalid_argument the second time.
  Tensors take();
  /// The number of a tensor that changed in place before its copy was complete.
  std::optional<size_t> changed() const;

 private:
  friend class ActivationStore;
  enum class Place : uint8_t { leaving, resting, coming, taken };

  struct Saved {
    /// Empty while the elements rest elsewhere.
    Tensor tensor;
    Shape shape;
    TensorOptions options;
    /// The bytes of this rank's elements.
    int64_t bytes = 0;
    uint64_t version = 0;
    bool moves = false, changed = false;
    std::shared_ptr<DiskMemory> file;
    /// Pinned memory, for a GPU.
    Ref<Storage> host;
    Event copied;
    /// Ends before the memory above does.
    DiskMemory::Transfer transfer;
  };

  void start_to_leave();
  void leave();
  void start_to_come();
  void come();
  Tensor on_host(const Saved& saved) const;

  std::shared_ptr<ActivationStore> store_;
  std::vector<Saved> all_;
  Place place_ = Place::leaving;
};

/// Keeps the tensors that recomputed runs save in a tier between forward and backward. The last run
/// saved stays in memory until the next one is saved: its tensors are written meanwhile. Backward
/// takes the runs in the opposite order, and the run before the one taken is read meanwhile. So at
/// most two runs are in memory. On `meta` it counts the same memory.
class ActivationStore : public std::enable_shared_from_this<ActivationStore> {
 public:
  /// The calling rank's store, made if it has none.
  static std::shared_ptr<ActivationStore> in(const Tier& tier);
  explicit ActivationStore(Tier tier) : tier_(std::move(tier)) {}

  /// Takes over the tensors of a run, whose storages had these versions when it began. Tensors with
  /// strides or of less than 1 KiB stay in memory.
  std::shared_ptr<SavedActivations> save(Tensors tensors, const std::vector<uint64_t>& versions);

 private:
  friend class SavedActivations;
  bool moves(const Tensor& tensor) const;
  std::shared_ptr<DiskMemory> file_of(int64_t bytes);
  Ref<Storage> host_of(int64_t bytes);
  void take_back(SavedActivations::Saved& saved);
  void forget(SavedActivations& run);

  const Tier tier_;
  /// Another thread may end a run.
  std::mutex mutex_;
  /// The runs that are not taken yet, oldest first.
  std::vector<SavedActivations*> runs_;
  /// Places of the tier that are free, by their size, kept for the next step.
  std::map<int64_t, std::vector<std::shared_ptr<DiskMemory>>> files_;
  std::map<int64_t, std::vector<Ref<Storage>>> hosts_;
};

}  // namespace weft
