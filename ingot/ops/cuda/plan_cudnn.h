// cuDNN as a compiler of OpGraphs: the library, loaded when it is asked for, and plans made with it. Internal
// to ops, and compiled where cuDNN's headers are found; the only header with its types.
#pragma once

#include <cudnn.h>

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ingot/core/tensor.h"
#include "ingot/ops/cuda/op_graph.h"

namespace ingot::cudnn {

inline constexpr const char* kLibrary = "libcudnn.so.9";

// The functions of the library that are called.
class Library {
 public:
  // Nothing where it cannot be loaded, or is of a version with known faults in attention.
  static std::unique_ptr<Library> load();
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  // Throws with the call's text and the library's own words.
  void check(cudnnStatus_t status, const char* call) const;

  decltype(&cudnnGetVersion) version = nullptr;
  decltype(&cudnnGetErrorString) status_text = nullptr;
  decltype(&cudnnGetLastErrorString) last_error = nullptr;
  decltype(&cudnnCreate) create = nullptr;
  decltype(&cudnnDestroy) destroy = nullptr;
  decltype(&cudnnSetStream) set_stream = nullptr;
  decltype(&cudnnBackendCreateDescriptor) create_descriptor = nullptr;
  decltype(&cudnnBackendDestroyDescriptor) destroy_descriptor = nullptr;
  decltype(&cudnnBackendSetAttribute) set_attribute = nullptr;
  decltype(&cudnnBackendGetAttribute) get_attribute = nullptr;
  decltype(&cudnnBackendFinalize) finalize = nullptr;
  decltype(&cudnnBackendExecute) execute = nullptr;

 private:
  explicit Library(void* handle) : handle_(handle) {}
  bool find_all();

  void* handle_;
};

// One of cuDNN's descriptors, made, given its attributes, and finished.
class Descriptor {
 public:
  Descriptor(const Library& library, cudnnBackendDescriptorType_t type);
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept
      : library_(other.library_), handle_(std::exchange(other.handle_, nullptr)) {}
  Descriptor& operator=(Descriptor&&) = delete;

  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
           const void* values);
  void set(cudnnBackendAttributeName_t name, std::span<const int64_t> values) {
    set(name, CUDNN_TYPE_INT64, std::ssize(values), values.data());
  }
  void set(cudnnBackendAttributeName_t name, int64_t value) { set(name, CUDNN_TYPE_INT64, 1, &value); }
  void set(cudnnBackendAttributeName_t name, const Descriptor& value) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.handle_);
  }
  void finish();
  // False where the library does not support it.
  bool finishes();

  cudnnBackendDescriptor_t handle() const { return handle_; }

 private:
  const Library* library_;
  cudnnBackendDescriptor_t handle_ = nullptr;
};

// What a plan is made for: a device, or the description of one in cuDNN's JSON. Plans for a description can
// be looked at, not run.
struct Target {
  cudnnHandle_t device = nullptr;
  std::string description = {};
};

// The memory of one of the graph's tensors.
struct Place {
  OpGraph::Value value;
  void* data;
};

class Plan {
 public:
  // The first that cuDNN proposes, can make, and that takes no more than max_workspace_bytes; nothing where
  // it has none. Takes about a second.
  static std::optional<Plan> make(const Library& library, const OpGraph& graph, const Target& target,
                                  size_t max_workspace_bytes);

  size_t workspace_bytes() const { return workspace_bytes_; }
  // On the stream of the handle. places: of every tensor of the graph that is memory.
  void run(cudnnHandle_t device, std::span<const Place> places, void* workspace) const;

 private:
  Plan(const Library& library, Descriptor plan, std::vector<Descriptor> parts, const OpGraph& graph);

  const Library* library_;
  std::vector<Descriptor> parts_;  // what the plan was made of
  Descriptor plan_;
  size_t workspace_bytes_ = 0;
  std::deque<std::pair<int64_t, float>> constants_;  // by value; their addresses are handed on
};

}  // namespace ingot::cudnn
