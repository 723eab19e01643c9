// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "checkpoint/pickle.h"
#include "weft/dtype.h"
#include "weft/extend/file.h"
#include "weft/shape.h"

namespace weft {

/// The dtype of a global of PyTorch, "torch.float32". std::invalid_argument for one that weft does
/// not have.
DType torch_dtype(const std::string& source, const Pickled& global);
/// "float32", and the name of PyTorch's storage of such elements.
std::string_view torch_name(DType dtype);
std::string torch_storage_name(DType dtype);
/// The sizes of a torch.Size or a tuple of whole numbers.
Dims torch_sizes(const std::string& source, const Pickled& value);

/// A reader of what `torch.save` wrote to the bytes [begin, begin + bytes) of a file: a zip archive
/// without compression that holds a pickle and the elements of tensors. std::invalid_argument
/// "checkpoint: <path>: ..." for anything else.
class TorchFile {
 public:
  TorchFile(const File& file, int64_t begin, int64_t bytes);

  const Pickled& value() const { return pickle_.root(); }
  /// The offset of the saved tensor's elements in the file: it must have that dtype and shape,
  /// and lie densely.
  int64_t elements(DType dtype, const Shape& shape) const;

 private:
  struct Member {
    int64_t offset = 0, bytes = 0;
  };
  /// The member whose name ends so.
  Member member(const std::string& ending) const;
  Pickle pickle() const;

  const File file_;
  const int64_t begin_, bytes_;
  const std::string source_;
  Pickle pickle_;
};

}  // namespace weft
