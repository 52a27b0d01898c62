// Compiles OpGraphs with cuDNN: loads the library on request and makes plans with it. Internal to ops;
// compiled if cuDNN's headers are found. It is the only header that uses cuDNN's types.
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

// The functions of the library that Ingot calls.
class Library {
 public:
  // Returns null if the library cannot be loaded or has a version with known errors in attention.
  static std::unique_ptr<Library> load();
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  // Throws unless status is success; the message has the call's name and cuDNN's own error text.
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

// A cuDNN descriptor: constructed, given its attributes with set(), then finished.
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
  // Finishes the descriptor; returns false if the library does not support it.
  bool finishes();

  cudnnBackendDescriptor_t handle() const { return handle_; }

 private:
  const Library* library_;
  cudnnBackendDescriptor_t handle_ = nullptr;
};

// The target of a plan: a device, or a description of one in cuDNN's JSON. A plan for a description can
// be inspected but not run.
struct Target {
  cudnnHandle_t device = nullptr;
  std::string description = {};
};

// The memory of one of the graph's tensors.
struct Binding {
  OpGraph::Value value;
  void* data;
};

class Plan {
 public:
  // Wanted selects the plans to build from those that cuDNN proposes, the best first: at most `most`, from
  // number `first` on.
  struct Wanted {
    int64_t first = 0;
    size_t most = 1;
  };
  // Returns the wanted plans that cuDNN can build and that need at most max_workspace_bytes. Takes about a
  // second for each.
  static std::vector<Plan> make(const Library& library, const OpGraph& graph, const Target& target,
                                size_t max_workspace_bytes, const Wanted& wanted);

  int64_t number() const { return number_; }  // among cuDNN's proposals
  size_t workspace_bytes() const { return workspace_bytes_; }
  // Runs the plan on the stream of the handle. places has every tensor of the graph that is kMemory.
  void run(cudnnHandle_t device, std::span<const Binding> places, void* workspace) const;

 private:
  using Descriptors = std::shared_ptr<std::vector<Descriptor>>;
  Plan(const Library& library, Descriptor plan, Descriptors parts, int64_t number, const OpGraph& graph);

  const Library* library_;
  Descriptors parts_;  // the descriptors that plan_ refers to; plans of one graph share them
  Descriptor plan_;
  int64_t number_;
  size_t workspace_bytes_ = 0;
  // The bits of f32 or i32 numbers, by id; run() passes their addresses to cuDNN.
  std::deque<std::pair<int64_t, uint32_t>> constants_;
};

}  // namespace ingot::cudnn
