// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/communicator.h"
#include "weft/export.h"

namespace weft {

/// One direction of a mesh.
struct MeshAxis {
  std::string name;
  int size;
  bool operator==(const MeshAxis&) const = default;
};

class MeshBody;

/// Ranks in a grid with named axes; the last axis varies fastest. `mesh["dp"]` and `mesh[{"dp",
/// "tp"}]` are views: the same root mesh, some of its axes. A value handle; belongs to one rank's
/// thread.
class WEFT_API DeviceMesh {
 public:
  DeviceMesh() = default;
  /// Collective over `ranks`, whose number must be the product of the axes' sizes. An empty
  /// communicator gives an absent mesh: this rank is not in it.
  DeviceMesh(Communicator ranks, std::vector<MeshAxis> axes);
  DeviceMesh(Communicator ranks, std::initializer_list<MeshAxis> axes)
      : DeviceMesh(std::move(ranks), std::vector<MeshAxis>(axes)) {}

  /// The root mesh of tables that exist.
  explicit DeviceMesh(std::shared_ptr<MeshBody> body);

  explicit operator bool() const { return body_ != nullptr; }
  /// Equal communicator, root axes and view.
  bool operator==(const DeviceMesh& other) const;

  /// Axes of this view.
  int ndim() const { return static_cast<int>(axes_.size()); }
  /// Ranks along all axes of this view.
  int size() const;
  const std::string& axis_name(int axis) const;
  int axis_size(int axis) const;
  /// The axis of that name; std::invalid_argument lists the axes there are.
  int axis(std::string_view name) const;
  /// This rank's position along an axis.
  int coordinate(int axis) const;
  /// This rank in the root mesh's communicator.
  int rank() const;
  /// Ranks of this view that differ from this one in the view's axes only. Made at construction for
  /// one axis and for all, else at the first use by the group's members together.
  Communicator communicator() const;
  /// Bytes this rank received over all communicators of the root mesh, and collectives.
  CommunicatorTraffic traffic() const;

  DeviceMesh operator[](const char* axis) const { return view({std::string_view(axis)}); }
  DeviceMesh operator[](const std::string& axis) const { return view({std::string_view(axis)}); }
  DeviceMesh operator[](std::initializer_list<std::string_view> axes) const { return view(axes); }
  /// The same for axes that are known at run time only.
  DeviceMesh view(std::span<const std::string_view> names) const;

  /// The mesh this one is a view of (itself if it is none).
  DeviceMesh root() const;
  /// The root mesh's axis that is this view's `axis`.
  int root_axis(int axis) const { return axes_[static_cast<size_t>(axis)]; }

  const std::shared_ptr<MeshBody>& body() const { return body_; }

 private:
  DeviceMesh view(std::initializer_list<std::string_view> names) const {
    return view(std::span(names.begin(), names.size()));
  }

  std::shared_ptr<MeshBody> body_;
  std::vector<int> axes_;
};

/// "mesh(dp=2, tp=4)".
WEFT_API std::ostream& operator<<(std::ostream& out, const DeviceMesh& mesh);

}  // namespace weft
