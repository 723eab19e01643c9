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
#include "weft/device.h"
#include "weft/export.h"

namespace weft {

/// A named axis of a mesh and its number of ranks.
struct MeshAxis {
  std::string name;
  int size;
  bool operator==(const MeshAxis&) const = default;
};

class MeshBody;

/// Ranks in a grid with named axes; the last axis varies fastest. `mesh["dp"]` and `mesh[{"dp",
/// "tp"}]` are views: some of the axes of the same root mesh. A value handle, used only by the
/// thread of one rank.
class WEFT_API DeviceMesh {
 public:
  DeviceMesh() = default;
  /// Collective over `ranks`, whose size must be the product of the axes' sizes. An empty
  /// communicator gives an empty mesh, on a rank that is not in the mesh.
  DeviceMesh(Communicator ranks, std::vector<MeshAxis> axes,
             DeviceKind device_type = DeviceKind::cpu);

  /// Makes the root mesh from existing tables.
  explicit DeviceMesh(std::shared_ptr<MeshBody> body);

  explicit operator bool() const { return body_ != nullptr; }
  /// True for equal communicators, root axes and views.
  bool operator==(const DeviceMesh& other) const;

  /// Number of axes of this view.
  int ndim() const { return static_cast<int>(axes_.size()); }
  /// Number of ranks along all axes of this view.
  int size() const;
  const std::string& axis_name(int axis) const;
  int axis_size(int axis) const;
  /// Index of the axis called `name`; std::invalid_argument lists the existing axes.
  int axis(std::string_view name) const;
  /// This rank's position along an axis.
  int coordinate(int axis) const;
  /// This rank's number in the root mesh's communicator.
  int rank() const;
  /// The kind of the ranks' devices. Tensors over the mesh may be on any device.
  DeviceKind device_type() const { return device_type_; }
  /// The same mesh, with devices of another kind.
  DeviceMesh on(DeviceKind device_type) const {
    DeviceMesh same = *this;
    same.device_type_ = device_type;
    return same;
  }
  /// This rank's device of that kind; ranks beyond the number of devices start again from device 0.
  Device device() const;
  /// The ranks that differ from this one in the view's axes only. The communicators of single axes
  /// and of the whole mesh are made at construction, others at first use, collectively by their
  /// ranks.
  Communicator communicator() const;
  /// Bytes that this rank received over all communicators of the root mesh, and the number of
  /// collectives.
  CommunicatorTraffic traffic() const;

  DeviceMesh operator[](const char* axis) const { return view({std::string_view(axis)}); }
  DeviceMesh operator[](const std::string& axis) const { return view({std::string_view(axis)}); }
  DeviceMesh operator[](std::initializer_list<std::string_view> axes) const { return view(axes); }
  /// The same for axis names that are known only at run time.
  DeviceMesh view(std::span<const std::string_view> names) const;

  /// The mesh that this one is a view of, or itself.
  DeviceMesh root() const;
  /// Index, in the root mesh, of this view's `axis`.
  int root_axis(int axis) const { return axes_[static_cast<size_t>(axis)]; }

  const std::shared_ptr<MeshBody>& body() const { return body_; }

 private:
  DeviceMesh view(std::initializer_list<std::string_view> names) const {
    return view(std::span(names.begin(), names.size()));
  }

  std::shared_ptr<MeshBody> body_;
  std::vector<int> axes_;
  DeviceKind device_type_ = DeviceKind::cpu;
};

/// "mesh(dp=2, tp=4)".
WEFT_API std::ostream& operator<<(std::ostream& out, const DeviceMesh& mesh);

}  // namespace weft
