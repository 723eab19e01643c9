// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/block.h"
#include "weft/dtype.h"
#include "weft/export.h"
#include "weft/shape.h"

namespace weft {

class File;
struct OpenedFile;

/// One tensor of a safetensors file: dense, row-major, little-endian.
struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  /// Start and number of its bytes in the file.
  int64_t offset = 0;
  int64_t bytes = 0;
};

/// A safetensors file, open for reading. Opening it reads and checks the whole header and no
/// tensor: a header of at most 100 MB inside the file, UTF-8 JSON without duplicate keys, tensors
/// of known dtypes whose byte ranges fit their shapes and cover the rest of the file without hole,
/// overlap or excess. Anything else is std::invalid_argument, a sentence with file and tensor. A
/// value handle; several threads may read at once.
class WEFT_API SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const;
  /// The tensors, in the order of their bytes.
  const std::vector<SafetensorsEntry>& entries() const;
  /// The header's __metadata__.
  const std::map<std::string, std::string>& metadata() const;
  /// The tensor of that name, or nullptr.
  const SafetensorsEntry* find(std::string_view name) const;
  /// The tensor of that name; std::invalid_argument if there is none.
  const SafetensorsEntry& entry(std::string_view name) const;

  /// Fills `into` with the bytes of `entry` from its byte `offset` on. std::runtime_error when the
  /// file has become shorter.
  void read(const SafetensorsEntry& entry, int64_t offset, std::span<std::byte> into) const;
  /// Reads the elements of `box` (in the tensor's coordinates) to `into`, dense and row-major.
  /// Reads the ranges of the box and gaps of less than a page between them, nothing else.
  void read_box(const SafetensorsEntry& entry, const Box& box, void* into) const;
  /// Bytes read from the file so far, header included.
  int64_t bytes_read() const;

 private:
  friend class TensorFiles;
  friend struct OpenedFile;
  /// A file of another format whose tensors are known.
  SafetensorsFile(const File& file, std::vector<SafetensorsEntry> entries);
  /// Without `keeps_open`, each read opens the file and closes it.
  SafetensorsFile(const std::string& path, bool keeps_open);
  struct Body;
  std::shared_ptr<const Body> body_;
};

/// The tensors of a model that lies in one or several safetensors files, by name. More than 32
/// files are opened only while they are read: std::runtime_error when one has been replaced
/// meanwhile.
class WEFT_API TensorFiles {
 public:
  /// `path` is a .safetensors file, an index (.json, Hugging Face's form), or a directory with
  /// model.safetensors or else model.safetensors.index.json. std::invalid_argument when a file is
  /// missing or malformed, when the index names a file outside its directory or a tensor that its
  /// file lacks, and when a file holds a tensor that the index does not place there.
  explicit TensorFiles(const std::string& path);

  /// All names, sorted.
  std::vector<std::string> names() const;
  bool contains(std::string_view name) const { return places_.contains(name); }
  /// std::invalid_argument naming the path if there is no such tensor; so below.
  const SafetensorsEntry& entry(std::string_view name) const { return *place(name).entry; }
  const SafetensorsFile& file(std::string_view name) const { return files_[place(name).file]; }
  /// Does what SafetensorsFile::read_box does.
  void read_box(std::string_view name, const Box& box, void* into) const;

  const std::vector<SafetensorsFile>& files() const { return files_; }
  /// The path that was passed to the constructor.
  const std::string& path() const { return path_; }

 private:
  struct Place {
    size_t file = 0;
    const SafetensorsEntry* entry = nullptr;
  };
  const Place& place(std::string_view name) const;
  void open_index(const std::string& index);

  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, Place, std::less<>> places_;
};

}  // namespace weft
