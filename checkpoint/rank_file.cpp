// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/manifest.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <range/v3/range/conversion.hpp>
#include <range/v3/view/filter.hpp>
#include <range/v3/view/indices.hpp>
#include <range/v3/view/zip.hpp>

#include "checkpoint/blocks.h"
#include "weft/error.h"
#include "weft/extend/hash.h"

namespace weft {

namespace views = ranges::views;

static std::shared_ptr<const Partition> partition_of(const SavedSharding& sharding,
                                                     const Shape& shape, int ranks) {
  auto partition = std::make_shared<Partition>();
  partition->box_of_rank.assign(static_cast<size_t>(ranks), -1);
  const bool is_empty = shape.product() == 0;
  std::map<std::vector<int64_t>, int> numbers;
  const std::vector<int> sizes = sharding.sizes();
  for (int rank = 0; rank < ranks; ++rank) {
    const Box box = is_empty ? Box{Dims::filled(shape.ndim(), 0), shape}
                             : box_of(sharding.pattern, sizes, shape, rank);
    if (!is_empty && box.shape.product() == 0) continue;
    std::vector<int64_t> content(box.offset.begin(), box.offset.end());
    content.insert(content.end(), box.shape.begin(), box.shape.end());
    const auto [at, is_new] =
        numbers.try_emplace(std::move(content), static_cast<int>(partition->boxes.size()));
    if (is_new) {
      partition->boxes.push_back(box);
      partition->holders.emplace_back();
    }
    partition->holders[static_cast<size_t>(at->second)].push_back(rank);
    partition->box_of_rank[static_cast<size_t>(rank)] = at->second;
  }
  return partition;
}

void RankFiles::cut_tensors() {
  constexpr int64_t most = int64_t{1} << 28;
  const auto tensors = static_cast<int64_t>(manifest_.tensors.size());
  if (tensors * manifest_.ranks > most) {
    fail("checkpoint: it has ", tensors, " tensors on ", manifest_.ranks,
         " ranks, expected at most ", most, " parts");
  }
  bytes_.assign(static_cast<size_t>(manifest_.ranks), 0);
  // A manifest of a few kilobytes may speak of any world: each partition is a list of its ranks.
  constexpr int64_t most_listed = int64_t{1} << 22;
  std::map<std::pair<size_t, std::vector<int64_t>>, std::shared_ptr<const Partition>> known;
  for (const SavedTensor& tensor : manifest_.tensors) {
    auto& partition = known[{tensor.layout, {tensor.shape.begin(), tensor.shape.end()}}];
    if (!partition) {
      if (static_cast<int64_t>(known.size()) * manifest_.ranks > most_listed) {
        fail("checkpoint: tensors have ", known.size(), " or more shapes and layouts on ",
             manifest_.ranks, " ranks, expected at most ", most_listed, " different parts");
      }
      partition = partition_of(manifest_.layouts[tensor.layout], tensor.shape, manifest_.ranks);
    }
    partitions_.push_back(partition);
    for (const auto& [box, holders] : views::zip(partition->boxes, partition->holders)) {
      if (holders.size() > 1) continue;
      bytes_[static_cast<size_t>(holders[0])] += bytes_of(box.shape, tensor.dtype);
    }
  }
  owners_.resize(manifest_.tensors.size());
  give_shared();
}

void RankFiles::give_shared() {
  const auto is_shared = [&](size_t i) {
    return std::ranges::any_of(partitions_[i]->holders,
                               [](const auto& holders) { return holders.size() > 1; });
  };
  auto shared =
      views::indices(partitions_.size()) | views::filter(is_shared) | ranges::to<std::vector>();
  const auto first_bytes = [&](size_t i) {
    return bytes_of(partitions_[i]->boxes[0].shape, manifest_.tensors[i].dtype);
  };
  std::ranges::stable_sort(shared, std::greater(), first_bytes);
  for (size_t i : shared) {
    for (const auto& [box, holders] : views::zip(partitions_[i]->boxes, partitions_[i]->holders)) {
      const int owner = *std::min_element(holders.begin(), holders.end(), [&](int a, int b) {
        return bytes_[static_cast<size_t>(a)] < bytes_[static_cast<size_t>(b)];
      });
      owners_[i].push_back(owner);
      if (holders.size() == 1) continue;
      bytes_[static_cast<size_t>(owner)] += bytes_of(box.shape, manifest_.tensors[i].dtype);
    }
  }
}

int RankFiles::owner(size_t tensor, size_t box) const {
  return owners_[tensor].empty() ? partitions_[tensor]->holders[box][0] : owners_[tensor][box];
}

const Box* RankFiles::box_of(size_t tensor, int rank) const {
  const Partition& partition = *partitions_[tensor];
  const int box = partition.box_of_rank[static_cast<size_t>(rank)];
  if (box < 0 || owner(tensor, static_cast<size_t>(box)) != rank) return nullptr;
  return &partition.boxes[static_cast<size_t>(box)];
}

static constexpr int64_t kLengthField = 8;

/// A JSON string, with its quotes; `text` is UTF-8.
static std::string json_string(const std::string& text) { return nlohmann::json(text).dump(); }

/// A header, or only its length where `text` is null.
struct HeaderText {
  std::string* text;
  int64_t length = 0;

  template <class... Parts> void write(const Parts&... parts) { (add(parts), ...); }
  void add(std::string_view part) {
    length += static_cast<int64_t>(part.size());
    if (text) *text += part;
  }
  void add(int64_t number) {
    char digits[20];
    add(std::string_view(digits, std::to_chars(digits, digits + sizeof digits, number).ptr));
  }
  void add(const Dims& dims) {
    for (int dim = 0; dim < dims.ndim(); ++dim) {
      add(dim ? "," : "[");
      add(dims[dim]);
    }
    add(dims.ndim() ? "]" : "[]");
  }
};

RankFiles::RankFiles(const Manifest& manifest) : manifest_(manifest), text_(text_of(manifest)) {
  cut_tensors();
  text_in_string_ = json_string(text_);
  for (const SavedTensor& tensor : manifest_.tensors) {
    names_.push_back(json_string(tensor.name));
    const std::string quoted = json_string(names_.back());
    names_in_string_.push_back(quoted.substr(1, quoted.size() - 2));
  }
  check_headers();
}

void RankFiles::check_headers() const {
  // Dims, offsets and words of one tensor take less than this, its names not counted. Those stand
  // in the manifest, which is escaped, and twice beside it, once escaped: an escape at most
  // doubles.
  constexpr int64_t kBesideNames = 200 + 3 * 20 * (kMaxDims + 1);
  const int64_t bound = 1000 + 5 * static_cast<int64_t>(text_.size()) +
                        static_cast<int64_t>(names_.size()) * kBesideNames;
  const int64_t most_blocks = blocks_in(*std::ranges::max_element(bytes_));
  if (bound + 16 * most_blocks <= kMaxHeaderBytes) return;
  for (int rank = 0; rank < manifest_.ranks; ++rank) {
    const int64_t bytes = data_start(rank);
    if (bytes <= kMaxHeaderBytes) continue;
    fail("checkpoint: the header of rank ", rank, "'s file would have ", bytes, " bytes for ",
         names_.size(), " tensors and ", data_bytes(rank), " bytes of data, expected at most ",
         kMaxHeaderBytes, ", the limit of safetensors");
  }
}

std::vector<RankFiles::Entry> RankFiles::entries(int rank) const {
  std::vector<Entry> entries;
  int64_t offset = 0;
  for (size_t i = 0; i < manifest_.tensors.size(); ++i) {
    const Box* box = box_of(i, rank);
    if (!box) continue;
    const int64_t bytes = bytes_of(box->shape, manifest_.tensors[i].dtype);
    entries.push_back({i, box, offset, bytes});
    offset += bytes;
  }
  return entries;
}

void RankFiles::write_header(int rank, const std::string& hashes, const NonFinite& non_finite,
                             HeaderText& header) const {
  header.write(R"({"__metadata__":{"DCP_SHARDING_INFO":"{)");
  const std::vector<Entry> own = entries(rank);
  for (const Entry& entry : own) {
    header.write(&entry == own.data() ? "" : ",", names_in_string_[entry.tensor],
                 R"(:{\"saved_offsets\":)", entry.box->offset, "}");
  }
  header.write(R"(}","DCP_VERSION":"1.0","format":"pt","weft":)", text_in_string_,
               R"(,"weft.blocks":")", hashes);
  if (manifest_.format >= 2) {
    header.write(R"(","weft.finite":")",
                 hex_of(std::array{static_cast<uint64_t>(non_finite.count),
                                   static_cast<uint64_t>(non_finite.tensor)}));
  }
  header.write(R"(","weft.header":"0000000000000000","weft.rank":")", int64_t{rank}, "\"}");
  for (const Entry& entry : own) {
    header.write(",", names_[entry.tensor], R"(:{"dtype":")",
                 safetensors_name_of(manifest_.tensors[entry.tensor].dtype), R"(","shape":)",
                 entry.box->shape, R"(,"data_offsets":[)", entry.offset, ",",
                 entry.offset + entry.bytes, "]}");
  }
  header.write("}");
}

int64_t RankFiles::data_start(int rank) const {
  HeaderText header{nullptr, kLengthField + 16 * blocks_in(data_bytes(rank))};
  write_header(rank, {}, {}, header);
  return (header.length + kAlignment - 1) / kAlignment * kAlignment;
}

std::string RankFiles::header(int rank, std::span<const uint64_t> block_hashes,
                              const NonFinite& non_finite) const {
  std::string text(kLengthField, '\0');
  HeaderText header{&text};
  write_header(rank, hex_of(block_hashes), non_finite, header);
  const auto size = static_cast<int64_t>(text.size());
  const int64_t padded = (size + kAlignment - 1) / kAlignment * kAlignment;
  text.resize(static_cast<size_t>(padded), ' ');
  const auto length = static_cast<uint64_t>(padded - kLengthField);
  std::memcpy(text.data(), &length, sizeof length);
  const uint64_t hash = xxh3_of(std::as_bytes(std::span(text)));
  // The last of its kind: a tensor's name cannot look like it, for its quotes are escaped.
  text.replace(text.find(R"("weft.header":")") + 15, 16, hex_of({&hash, 1}));
  return text;
}

bool hash_header(std::string before_data, uint64_t& hash) {
  const size_t at = before_data.find(R"("weft.header":")");
  if (at == before_data.npos || at + 31 > before_data.size()) return false;
  before_data.replace(at + 15, 16, 16, '0');
  hash = xxh3_of(std::as_bytes(std::span(before_data)));
  return true;
}

}  // namespace weft
