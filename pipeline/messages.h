// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <list>
#include <vector>

#include "weft/communicator.h"
#include "weft/mesh.h"
#include "weft/tensor.h"

namespace weft {

/// Tensors under way between stages: the receiver learns shapes, dtypes and placements from a
/// header before each message. Nothing blocks but `take` and `finish`.
class StageMessages : NotCopied {
 public:
  StageMessages(const Communicator& line, const DeviceMesh& mesh, Device device)
      : line_(line), mesh_(mesh), device_(device) {}

  /// Sends tensors, of which some may be empty; `number` tells messages apart.
  void send(const Tensors& tensors, int to, int number);
  /// Begins to receive the message `number`; on a GPU waits for its header.
  void expect(int from, int number);
  /// Returns the tensors of a message that was expected.
  Tensors take(int from, int number);
  /// Lets messages go on between two computing steps.
  void progress();
  /// Waits until all that was sent has been received.
  void finish();

 private:
  /// Counts and layouts of the tensors of a message, as numbers.
  using Header = std::vector<int64_t>;
  struct Sent {
    Header header;
    Tensors locals;
    std::vector<Work> works;
  };
  struct Expected {
    int from, number;
    Header header;
    Work header_work;
    bool is_begun = false;
    Tensors tensors = {};
    std::vector<Work> works = {};
  };
  void begin(Expected& expected);

  Communicator line_;
  DeviceMesh mesh_;
  Device device_;
  std::list<Sent> sent_;
  /// In the order in which they are sent.
  std::list<Expected> expected_;
};

}  // namespace weft
