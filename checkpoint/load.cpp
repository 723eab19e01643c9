// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <set>

#include "checkpoint/blocks.h"
#include "checkpoint/source.h"
#include "weft/checkpoint.h"
#include "weft/error.h"
#include "weft/extend/disk_tensor.h"
#include "weft/extend/hash.h"
#include "weft/extend/saved_model.h"
#include "weft/extend/store.h"

namespace weft {

/// The dim along which the boxes have the most different starts.
static int dim_of_most_starts(const std::vector<Box>& boxes) {
  int best = -1;
  size_t most = 0;
  for (int dim = 0; dim < boxes[0].shape.ndim(); ++dim) {
    std::set<int64_t> starts;
    for (const Box& box : boxes) starts.insert(box.offset[dim]);
    if (starts.size() > most) {
      most = starts.size();
      best = dim;
    }
  }
  return best;
}

/// Sweeps along one dim, comparing only boxes that are open at the same place.
static void check_disjoint(const std::string& what, std::vector<Box> boxes) {
  if (boxes.size() < 2) return;
  const int dim = dim_of_most_starts(boxes);
  const auto begin = [&](const Box& box) { return dim < 0 ? 0 : box.offset[dim]; };
  const auto end = [&](const Box& box) { return dim < 0 ? 1 : box.offset[dim] + box.shape[dim]; };
  std::ranges::sort(boxes, {}, begin);
  std::vector<const Box*> open;
  for (const Box& box : boxes) {
    std::erase_if(open, [&](const Box* other) { return end(*other) <= begin(box); });
    for (const Box* other : open) {
      if (overlap(box, *other).shape.product() == 0) continue;
      fail("checkpoint: ", what, " is stored as ", other->shape, " at ", other->offset, " and ",
           box.shape, " at ", box.offset, ", expected each element once");
    }
    open.push_back(&box);
  }
}

void check_covers_once(const std::string& what, const Box& wanted, const std::vector<Box>& boxes) {
  const int64_t all = wanted.shape.product();
  if (all == 0) return;
  std::vector<Box> filled;
  for (const Box& box : boxes) {
    if (box.shape.product() == 0) continue;
    if (!contains(wanted, box)) {
      fail("checkpoint: ", what, ": a part of ", box.shape, " at ", box.offset, " is outside of ",
           wanted.shape, " at ", wanted.offset);
    }
    filled.push_back(box);
  }
  check_disjoint(what, filled);
  int64_t covered = 0;
  for (const Box& box : filled) covered += box.shape.product();
  if (covered == all) return;
  fail("checkpoint: ", what, " has ", covered, " elements of ", wanted.shape, " at ", wanted.offset,
       " in the files, expected ", all);
}

namespace {

/// Elements of one file that go to one wish: the same box, as runs on both sides.
struct WishPart {
  /// Counted from the start of the data.
  int64_t offset;
  BoxRuns in_file;
  BoxRuns in_memory;
  std::byte* into;
  bool is_own;
};

/// Bytes of the data that are read at once, and the parts that want some of them.
struct Range {
  int64_t block;
  int64_t begin, end;
  size_t first, last;
  /// This rank wants all of it and no other any.
  bool is_own;
};

/// Fills the parts of one file, block by block.
class FileReader {
 public:
  FileReader(const OpenedFile& file, std::vector<WishPart> parts)
      : file_(file), reader_(file.file), parts_(std::move(parts)) {
    std::sort(parts_.begin(), parts_.end(), [](const WishPart& a, const WishPart& b) {
      return a.offset + a.in_file.begin() < b.offset + b.in_file.begin();
    });
  }

  void read() const {
    const std::vector<Range> ranges = ranges_to_read();
    const bool is_object = is_object_path(file_.file.path());
    const int reads = is_object ? kObjectReads : kReads;
    work_in_parallel(ranges.size(), reads, [&](size_t i, const BlockBuffer& buffer) {
      const Range& range = ranges[i];
      if (file_.hashes.empty()) {
        read_by_pieces(range, buffer);
      } else if (!read_past_cache(range, buffer)) {
        file_.check_block(range.block, [&] { return read_by_pieces(range, buffer); });
      }
    });
  }

 private:
  static int64_t end_of(const WishPart& part) { return part.offset + part.in_file.end(); }

  /// The bytes in [begin, end) that the part wants: none, or from the first to the last.
  static std::pair<int64_t, int64_t> wanted(const WishPart& part, int64_t begin, int64_t end) {
    const int64_t run = part.in_file.first_after(begin - part.offset);
    if (run == part.in_file.count()) return {end, begin};
    const int64_t from = std::max(begin, part.offset + part.in_file.start(run));
    return {from, std::min(end, end_of(part))};
  }

  std::vector<Range> ranges_to_read() const {
    std::vector<Range> ranges;
    size_t first = 0;
    for (int64_t block = 0; block < blocks_in(file_.data_bytes()); ++block) {
      const int64_t begin = block * kBlockBytes;
      const int64_t end = std::min(begin + kBlockBytes, file_.data_bytes());
      while (first < parts_.size() && end_of(parts_[first]) <= begin) ++first;
      if (first == parts_.size()) break;
      const Range range = wanted_range({block, begin, end, first, first, false});
      if (range.begin < range.end) ranges.push_back(range);
    }
    return ranges;
  }

  /// The bytes of a block to read: all when it has a checksum, else first to last wanted byte.
  Range wanted_range(Range range) const {
    int64_t low = range.end, high = range.begin, own = 0;
    for (; range.last < parts_.size(); ++range.last) {
      const WishPart& part = parts_[range.last];
      if (part.offset + part.in_file.begin() >= range.end) break;
      const auto [from, to] = wanted(part, range.begin, range.end);
      low = std::min(low, from);
      high = std::max(high, to);
      if (part.is_own && part.in_file.count() == 1) own += std::max<int64_t>(0, to - from);
    }
    range.is_own = own == range.end - range.begin;
    if (file_.hashes.empty() || low >= high) range.begin = low, range.end = high;
    return range;
  }

  /// False when the page cache has the block, or another rank may want it there.
  bool read_past_cache(const Range& range, const BlockBuffer& buffer) const {
    if (!range.is_own) return false;
    constexpr auto alignment = static_cast<uintptr_t>(BlockBuffer::kAlignment);
    const int64_t bytes = range.end - range.begin;
    std::byte* const in_place = destination_of(range);
    const bool fits =
        (reinterpret_cast<uintptr_t>(in_place) | static_cast<uintptr_t>(bytes)) % alignment == 0;
    std::byte* const into = in_place && fits ? in_place : buffer.data();
    if (!reader_.read_past_cache(file_.data_start + range.begin, bytes, into)) return false;
    file_.check_block(range.block, [&] { return xxh3_of({into, static_cast<size_t>(bytes)}); });
    if (into == buffer.data()) copy_parts(range, into);
    return true;
  }

  /// Gives the hash of all of it.
  uint64_t read_by_pieces(const Range& range, const BlockBuffer& buffer) const {
    BlockHashes hashes;
    Range piece = range;
    // Each piece of an object is one request.
    const int64_t piece_bytes = is_object_path(file_.file.path()) ? kBlockBytes : kPieceBytes;
    for (; piece.begin < range.end; piece.begin = piece.end) {
      piece.end = std::min(piece.begin + piece_bytes, range.end);
      while (piece.first < piece.last && end_of(parts_[piece.first]) <= piece.begin) ++piece.first;
      std::byte* const in_place = destination_of(piece);
      const std::span bytes(in_place ? in_place : buffer.data(),
                            static_cast<size_t>(piece.end - piece.begin));
      file_.file.read(file_.data_start + piece.begin, bytes);
      if (!file_.hashes.empty()) hashes.add(bytes);
      if (!in_place) copy_parts(piece, bytes.data());
    }
    return file_.hashes.empty() ? 0 : hashes.finish()[0];
  }

  /// Calls `use(at, into, bytes)` with the runs of wanted bytes in the range, which are at `at` of
  /// the data and go to `into`, until it returns false.
  template <class Use> void for_runs(const Range& range, const Use& use) const {
    for (size_t i = range.first; i < range.last; ++i) {
      const WishPart& part = parts_[i];
      const BoxRuns &in = part.in_file, &out = part.in_memory;
      if (part.offset + in.begin() >= range.end) break;
      for (int64_t run = in.first_after(range.begin - part.offset); run < in.count(); ++run) {
        const int64_t start = part.offset + in.start(run), first = run * in.bytes();
        if (start >= range.end) break;
        // The same elements, counted in the order of the box.
        int64_t at = first + std::max<int64_t>(0, range.begin - start);
        const int64_t stop = first + std::min(in.bytes(), range.end - start);
        while (at < stop) {
          const int64_t within = at % out.bytes();
          const int64_t count = std::min(stop - at, out.bytes() - within);
          std::byte* const into = part.into + out.start(at / out.bytes()) + within;
          if (!use(start + at - first, into, count)) return;
          at += count;
        }
      }
    }
  }

  /// The destination of the whole range, if it is contiguous in memory.
  std::byte* destination_of(const Range& range) const {
    std::byte* found = nullptr;
    for_runs(range, [&](int64_t, std::byte* into, int64_t bytes) {
      found = found || bytes < range.end - range.begin ? nullptr : into;
      return found != nullptr;
    });
    return found;
  }

  /// The elements of the range, whose bytes are at `from`.
  void copy_parts(const Range& range, const std::byte* from) const {
    for_runs(range, [&](int64_t at, std::byte* into, int64_t bytes) {
      std::memcpy(into, from + (at - range.begin), static_cast<size_t>(bytes));
      return true;
    });
  }

  const OpenedFile& file_;
  const BlockReader reader_;
  std::vector<WishPart> parts_;
};

}  // namespace

static WishPart wish_part(const OpenedFile& file, const Wish& wish,
                          const CheckpointSource::StoredBox& part, DType dtype) {
  const SafetensorsEntry* entry = file.tensors.find(wish.name);
  if (!entry || entry->dtype != dtype || !(entry->shape == part.box.shape)) {
    fail("checkpoint: ", file.file.path(), ": part ", part.box.shape, ' ', dtype, " of tensor ",
         in_quotes(wish.name), " is missing");
  }
  const Box both = overlap(part.box, wish.box);
  return {entry->offset - file.data_start, BoxRuns(part.box.shape, relative(both, part.box), dtype),
          BoxRuns(wish.box.shape, relative(both, wish.box), dtype), wish.into, wish.is_own};
}

void read_wishes(const CheckpointSource& source, const std::vector<Wish>& wishes) {
  std::map<size_t, std::vector<std::pair<const Wish*, CheckpointSource::StoredBox>>> by_file;
  for (const Wish& wish : wishes) {
    std::vector<Box> boxes;
    for (const CheckpointSource::StoredBox& part : source.boxes_of(wish.name)) {
      const Box both = overlap(part.box, wish.box);
      if (both.shape.product() == 0) continue;
      boxes.push_back(both);
      by_file[part.file].emplace_back(&wish, part);
    }
    check_covers_once(concat(source.path, ": tensor ", in_quotes(wish.name)), wish.box, boxes);
  }
  for (const auto& [number, wanted] : by_file) {
    const auto file = source.file(number);
    std::vector<WishPart> parts;
    for (const auto& [wish, part] : wanted) {
      parts.push_back(wish_part(*file, *wish, part, source.contents.tensors.at(wish->name).dtype));
    }
    FileReader(*file, std::move(parts)).read();
  }
}

/// Bytes of a rank's tensors that are converted at once.
static constexpr int64_t kConvertedBytes = int64_t{256} << 20;

/// `converts`: a floating dtype may be another one.
static void check_fits_source(const CheckpointSource& source, const std::string& name,
                              const Tensor& tensor, bool converts) {
  const auto& [dtype, shape] = source.contents.tensors.at(name);
  const bool is_other = converts && is_floating(dtype) && is_floating(tensor.dtype()) &&
                        is_complex(dtype) == is_complex(tensor.dtype());
  const DType expected = is_other ? dtype : tensor.dtype();
  if (shape == tensor.shape() && dtype == expected) return;
  fail("load: ", source.path, ": tensor ", in_quotes(name), " is ", shape, ' ', dtype,
       ", expected ", tensor.shape(), ' ', expected);
}

/// True when each element is on one rank only: every axis cuts it.
static bool is_on_one_rank(const Tensor& tensor) {
  if (!tensor.is_sharded()) return false;
  const Sharding sharding = tensor.sharding();
  for (int axis = 0; axis < sharding.axes(); ++axis) {
    if (!sharding[axis].is_shard() && sharding.mesh().axis_size(axis) > 1) return false;
  }
  return true;
}

/// Fills the tensors that the source has.
static void fill_tensors(const CheckpointSource& source, const StateDict& into,
                         bool converts = false) {
  const NoGrad no_grad;
  for (const auto& [name, tensor] : into.tensors) {
    if (!source.contents.tensors.contains(name)) continue;
    check_fits_source(source, name, tensor, converts);
    check_has_elements("load", name, tensor);
  }
  std::vector<Wish> wishes;
  std::vector<TensorFill> fills;
  int64_t converted = 0;
  const auto read = [&] {
    read_wishes(source, wishes);
    for (const TensorFill& fill : fills) fill.finish();
    wishes.clear(), fills.clear(), converted = 0;
  };
  for (const bool on_disk : {false, true}) {
    for (const auto& [name, tensor] : into.tensors) {
      if (!source.contents.tensors.contains(name) || rests_on_disk(tensor) != on_disk) continue;
      const DType dtype = source.contents.tensors.at(name).dtype;
      fills.emplace_back(tensor, dtype);
      wishes.push_back({name, tensor.box(), fills.back().memory(), is_on_one_rank(tensor)});
      if (dtype != tensor.dtype()) converted += fills.back().bytes();
      // Tensors on disk are read one at a time, so that only one is in memory.
      if (on_disk || converted >= kConvertedBytes) read();
    }
    read();
  }
}

CheckpointContents checkpoint_contents(const std::string& path) {
  return unless_removed(path, [&] { return open_source(path).contents; });
}

/// Fills what both have, or throws before if `needs_all` and something is left over.
static SkippedKeys filled(const CheckpointSource& source, const std::string& path, StateDict& into,
                          bool needs_all) {
  SkippedKeys skipped;
  add_unmatched_keys(into.tensors, source.contents.tensors, skipped);
  add_unmatched_keys(into.numbers, source.contents.numbers, skipped);
  if (needs_all) check_no_keys_skipped("load", path, skipped);
  fill_tensors(source, into);
  for (auto& [key, number] : into.numbers) {
    const auto found = source.contents.numbers.find(key);
    if (found != source.contents.numbers.end()) number = found->second;
  }
  return skipped;
}

void load(const std::string& path, StateDict& into) {
  with_chosen(path, into,
              [&](const CheckpointSource& source) { filled(source, path, into, true); });
}

SkippedKeys load_common_keys(const std::string& path, StateDict& into) {
  SkippedKeys skipped;
  with_chosen(path, into,
              [&](const CheckpointSource& source) { skipped = filled(source, path, into, false); });
  return skipped;
}

void load_weights(const std::string& checkpoint, const StateDict& into) {
  unless_removed(checkpoint, [&] {
    const auto source = open_source(checkpoint);
    for (const auto& [name, tensor] : into.tensors) {
      if (source.contents.tensors.contains(name)) continue;
      fail("weights: ", checkpoint, ": tensor ", in_quotes(name), " is missing");
    }
    fill_tensors(source, into, true);
  });
}

void load(const std::string& path, const TrainingState& into) {
  with_chosen(path, into.state_dict(), [&](const CheckpointSource& source) {
    StateDict state = into.state_dict_with(source.contents.numbers);
    filled(source, path, state, true);
    into.take_numbers(state.numbers);
  });
}

}  // namespace weft
