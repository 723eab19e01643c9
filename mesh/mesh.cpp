// SPDX-License-Identifier: Apache-2.0
#include "weft/mesh.h"

#include <numeric>
#include <ostream>

#include "mesh/mesh_body.h"
#include "weft/error.h"

namespace weft {

std::string printed(std::span<const MeshAxis> axes) {
  const auto axis = [](const MeshAxis& each) { return concat(each.name, "=", each.size); };
  return concat("mesh(", listed(axes, axis), ")");
}

static void check_axes(const Communicator& ranks, const std::vector<MeshAxis>& axes) {
  if (axes.empty()) fail("mesh: number of axes is 0, expected at least 1");
  if (axes.size() > kMaxAxes)
    fail("mesh: number of axes is ", axes.size(), ", expected at most ", kMaxAxes);
  int64_t product = 1;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].name.empty()) fail(printed(axes), ": name of axis ", i, " is empty, expected one");
    if (axes[i].size < 1) {
      fail(printed(axes), ": size of axis ", in_quotes(axes[i].name), " must be at least 1, got ",
           axes[i].size);
    }
    for (size_t j = 0; j < i; ++j) {
      if (axes[j].name == axes[i].name) {
        fail(printed(axes), ": two axes are called ", in_quotes(axes[i].name),
             ", expected different names");
      }
    }
    product = std::min<int64_t>(product * axes[i].size, INT32_MAX);
  }
  if (product != ranks.size()) {
    fail(printed(axes), ": number of its ranks is ", product, ", expected ", ranks.size(),
         ", those of the communicator ", in_quotes(ranks.name()));
  }
}

DeviceMesh::DeviceMesh(Communicator ranks, std::vector<MeshAxis> axes, DeviceKind device_type)
    : device_type_(device_type) {
  check_available({device_type, 0});
  if (!ranks) return;
  check_axes(ranks, axes);
  axes_.resize(axes.size());
  std::iota(axes_.begin(), axes_.end(), 0);
  body_ = mesh_body_for(ranks, std::move(axes));
}

DeviceMesh::DeviceMesh(std::shared_ptr<MeshBody> body) : body_(std::move(body)) {
  axes_.resize(body_ ? body_->grid().axes().size() : 0);
  std::iota(axes_.begin(), axes_.end(), 0);
}

static MeshGrid& grid_of(const std::shared_ptr<MeshBody>& body) {
  if (!body)
    fail(
        "mesh: this rank is not in the mesh, expected one of its ranks; check the mesh before "
        "using it");
  return body->grid();
}

bool DeviceMesh::operator==(const DeviceMesh& other) const {
  if (axes_ != other.axes_) return false;
  if (body_ == other.body_) return true;
  return body_ && other.body_ && body_->grid().is_same(other.body_->grid());
}

Device DeviceMesh::device() const {
  return {device_type_, static_cast<int8_t>(rank() % device_count(device_type_))};
}

int DeviceMesh::size() const {
  int size = 1;
  for (int i = 0; i < ndim(); ++i) size *= axis_size(i);
  return size;
}

static void check_axis(const DeviceMesh& mesh, int axis) {
  if (axis < 0 || axis >= mesh.ndim()) {
    fail(mesh, ": axis is ", axis, ", expected one of its ", mesh.ndim(), " axes");
  }
}

const std::string& DeviceMesh::axis_name(int axis) const {
  check_axis(*this, axis);
  return grid_of(body_).axes()[static_cast<size_t>(root_axis(axis))].name;
}

int DeviceMesh::axis_size(int axis) const {
  check_axis(*this, axis);
  return grid_of(body_).size(root_axis(axis));
}

int DeviceMesh::axis(std::string_view name) const {
  for (int i = 0; i < ndim(); ++i) {
    if (axis_name(i) == name) return i;
  }
  fail(*this, ": axis ", in_quotes(name), " does not exist");
}

int DeviceMesh::coordinate(int axis) const {
  check_axis(*this, axis);
  return grid_of(body_).coordinates()[static_cast<size_t>(root_axis(axis))];
}

int DeviceMesh::rank() const { return grid_of(body_).rank(); }

Communicator DeviceMesh::communicator() const {
  Axes axes;
  for (int axis : axes_) axes.push_back(axis);
  return grid_of(body_).group(axes);
}

CommunicatorTraffic DeviceMesh::traffic() const { return grid_of(body_).traffic(); }

DeviceMesh DeviceMesh::root() const { return DeviceMesh(body_).on(device_type_); }

DeviceMesh DeviceMesh::view(std::span<const std::string_view> names) const {
  if (names.empty()) fail(*this, ": number of axes of a view is 0, expected at least 1");
  DeviceMesh view;
  view.body_ = body_;
  view.device_type_ = device_type_;
  grid_of(body_);
  for (std::string_view name : names) {
    int chosen = root_axis(axis(name));
    if (std::find(view.axes_.begin(), view.axes_.end(), chosen) != view.axes_.end()) {
      fail(*this, ": axis ", in_quotes(name), " of a view is named twice, expected once");
    }
    view.axes_.push_back(chosen);
  }
  return view;
}

std::ostream& operator<<(std::ostream& out, const DeviceMesh& mesh) {
  if (!mesh) return out << "no mesh";
  std::vector<MeshAxis> axes;
  for (int i = 0; i < mesh.ndim(); ++i) axes.push_back({mesh.axis_name(i), mesh.axis_size(i)});
  return out << printed(axes);
}

}  // namespace weft
