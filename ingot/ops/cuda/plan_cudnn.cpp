#include "ingot/ops/cuda/plan_cudnn.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>

#include "ingot/core/cuda/cuda_device.h"

namespace ingot::cudnn {
namespace {

using Op = OpGraph::Op;
using Value = OpGraph::Value;

constexpr int64_t kAlignment = 16;     // alignment of every tensor in memory, in bytes
constexpr int64_t kMaxProposals = 16;  // number of plans that are tried
constexpr size_t kMaxPlaces = 24;      // maximum number of a graph's tensors in memory, including constants

// Returns false for versions whose attention is wrong, and for those before 9.6, which lack what the
// graphs need.
bool is_trusted(size_t version) {
  return version >= 90600 && version != 91000 && version != 91001 && version != 91400;
}

// Values count from 0, cuDNN's tensor ids from 1.
int64_t id_of(Value value) { return int64_t{value} + 1; }

cudnnDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return CUDNN_DATA_FLOAT;
    case DType::f16:
      return CUDNN_DATA_HALF;
    case DType::bf16:
      return CUDNN_DATA_BFLOAT16;
    case DType::i32:
      return CUDNN_DATA_INT32;
    case DType::u8:
      return CUDNN_DATA_BOOLEAN;
    default:
      fail(ErrorKind::kInternal, "cuDNN: no tensors of {}", name(dtype));
  }
}

cudnnPointwiseMode_t mode_of(Op op) {
  switch (op) {
    case Op::kMultiply:
      return CUDNN_POINTWISE_MUL;
    case Op::kAdd:
      return CUDNN_POINTWISE_ADD;
    case Op::kSubtract:
      return CUDNN_POINTWISE_SUB;
    case Op::kDivide:
      return CUDNN_POINTWISE_DIV;
    case Op::kExp:
      return CUDNN_POINTWISE_EXP;
    case Op::kLog:
      return CUDNN_POINTWISE_LOG;
    case Op::kCopy:
      return CUDNN_POINTWISE_IDENTITY;
    case Op::kIsAtLeast:
      return CUDNN_POINTWISE_CMP_GE;
    case Op::kIsAbove:
      return CUDNN_POINTWISE_CMP_GT;
    case Op::kIsBelow:
      return CUDNN_POINTWISE_CMP_LT;
    case Op::kAnd:
      return CUDNN_POINTWISE_LOGICAL_AND;
    case Op::kSelect:
      return CUDNN_POINTWISE_BINARY_SELECT;
    case Op::kIndex:
      return CUDNN_POINTWISE_GEN_INDEX;
    default:
      fail(ErrorKind::kInternal, "cuDNN: operation {} is not elementwise", static_cast<int>(op));
  }
}

// Builds the descriptors of a graph. The descriptors that an operation refers to must live as long as it
// does.
class Builder {
 public:
  Builder(const Library& library, const OpGraph& graph) : library_(library), graph_(graph) {}

  // Returns all descriptors; the last one is the graph itself.
  std::vector<Descriptor> build(const Target& target) {
    for (size_t i = 0; i < graph_.tensors.size(); ++i) add_tensor(static_cast<Value>(i));
    std::vector<cudnnBackendDescriptor_t> operations;
    for (const OpGraph::Operation& o : graph_.operations) operations.push_back(add_operation(o));
    Descriptor& whole = add(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    whole.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::ssize(operations),
              operations.data());
    if (target.device) whole.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &target.device);
    whole.finish();
    return std::move(parts_);
  }

 private:
  Descriptor& add(cudnnBackendDescriptorType_t type) { return parts_.emplace_back(library_, type); }
  const Descriptor& tensor(Value value) const { return parts_[static_cast<size_t>(value)]; }

  void add_tensor(Value value) {
    const OpGraph::Tensor& t = graph_.at(value);
    Descriptor& d = add(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const cudnnDataType_t type = type_of(t.dtype);
    const bool is_virtual = t.place == OpGraph::Place::kPassing;
    const bool is_by_value = t.place == OpGraph::Place::kConstant;
    d.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id_of(value));
    d.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    d.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kAlignment);
    d.set(CUDNN_ATTR_TENSOR_DIMENSIONS, t.shape);
    d.set(CUDNN_ATTR_TENSOR_STRIDES, t.strides);
    d.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    d.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &is_by_value);
    if (t.offsets != OpGraph::kNone) d.set(CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, tensor(t.offsets));
    d.finish();
  }

  cudnnBackendDescriptor_t add_operation(const OpGraph::Operation& o) {
    switch (o.op) {
      case Op::kMatrixProduct:
        return add_product(o);
      case Op::kSum:
        return add_reduction(o, CUDNN_REDUCE_TENSOR_ADD);
      case Op::kMax:
        return add_reduction(o, CUDNN_REDUCE_TENSOR_MAX);
      case Op::kReshape:
        return add_reshape(o);
      default:
        return add_elementwise(o);
    }
  }

  cudnnBackendDescriptor_t add_elementwise(const OpGraph::Operation& o) {
    const cudnnPointwiseMode_t mode = mode_of(o.op);
    const DType out = graph_.at(o.out).dtype;
    const bool is_integer = out == DType::i32 && o.op != Op::kIndex;
    const cudnnDataType_t computed = out == DType::u8 ? CUDNN_DATA_BOOLEAN
                                     : is_integer     ? CUDNN_DATA_INT32
                                                      : CUDNN_DATA_FLOAT;
    Descriptor rule(library_, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    rule.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    rule.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &computed);
    if (o.op == Op::kIndex) rule.set(CUDNN_ATTR_POINTWISE_AXIS, int64_t{o.axis});
    rule.finish();
    return add_ruled(std::move(rule), CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
                     CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
                     {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, o.in[0]},
                      {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, o.in[1]},
                      {CUDNN_ATTR_OPERATION_POINTWISE_TDESC, o.in[2]},
                      {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, o.out}});
  }

  cudnnBackendDescriptor_t add_product(const OpGraph::Operation& o) {
    const cudnnDataType_t computed = CUDNN_DATA_FLOAT;
    Descriptor rule(library_, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    rule.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &computed);
    rule.finish();
    return add_ruled(std::move(rule), CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
                     CUDNN_ATTR_OPERATION_MATMUL_DESC,
                     {{CUDNN_ATTR_OPERATION_MATMUL_ADESC, o.in[0]},
                      {CUDNN_ATTR_OPERATION_MATMUL_BDESC, o.in[1]},
                      {CUDNN_ATTR_OPERATION_MATMUL_CDESC, o.out},
                      {CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, o.lengths.m},
                      {CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, o.lengths.n},
                      {CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, o.lengths.k}});
  }

  cudnnBackendDescriptor_t add_reduction(const OpGraph::Operation& o, cudnnReduceTensorOp_t how) {
    const cudnnDataType_t computed = CUDNN_DATA_FLOAT;
    Descriptor rule(library_, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    rule.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &how);
    rule.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &computed);
    rule.finish();
    return add_ruled(
        std::move(rule), CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_DESC,
        {{CUDNN_ATTR_OPERATION_REDUCTION_XDESC, o.in[0]}, {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, o.out}});
  }

  cudnnBackendDescriptor_t add_reshape(const OpGraph::Operation& o) {
    Descriptor operation(library_, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, tensor(o.in[0]));
    operation.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, tensor(o.out));
    operation.finish();
    return parts_.emplace_back(std::move(operation)).handle();
  }

  struct Operand {
    cudnnBackendAttributeName_t name;
    Value value;
  };
  cudnnBackendDescriptor_t add_ruled(Descriptor rule, cudnnBackendDescriptorType_t type,
                                     cudnnBackendAttributeName_t rule_name,
                                     std::initializer_list<Operand> operands) {
    Descriptor operation(library_, type);
    operation.set(rule_name, rule);
    for (const Operand& o : operands)
      if (o.value != OpGraph::kNone) operation.set(o.name, tensor(o.value));
    operation.finish();
    parts_.push_back(std::move(rule));
    return parts_.emplace_back(std::move(operation)).handle();
  }

  const Library& library_;
  const OpGraph& graph_;
  std::vector<Descriptor> parts_;  // begins with the tensors
};

// Returns the engine configurations that the library proposes for the graph, the best first.
std::vector<Descriptor> proposals(const Library& library, const Descriptor& graph, const Descriptor* device) {
  Descriptor heuristics(library, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (device) heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *device);
  std::vector<Descriptor> found;
  if (!heuristics.finishes()) return found;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (int64_t i = 0; i < kMaxProposals; ++i)
    handles.push_back(found.emplace_back(library, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).handle());
  int64_t count = 0;
  library.check(library.get_attribute(heuristics.handle(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, kMaxProposals, &count, handles.data()),
                "BackendGetAttribute of the proposals");
  while (std::ssize(found) > std::min(count, kMaxProposals)) found.pop_back();
  return found;
}

}  // namespace

std::unique_ptr<Library> Library::load() {
  void* handle = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (!handle) return nullptr;
  std::unique_ptr<Library> library(new Library(handle));
  if (!library->find_all() || !is_trusted(library->version())) return nullptr;
  return library;
}

// Leaves the library loaded, because its own threads and caches outlive its handles.
Library::~Library() = default;

bool Library::find_all() {
  bool has_all = true;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle_, name));
    has_all = has_all && function;
  };
  find(version, "cudnnGetVersion");
  find(status_text, "cudnnGetErrorString");
  find(last_error, "cudnnGetLastErrorString");
  find(create, "cudnnCreate");
  find(destroy, "cudnnDestroy");
  find(set_stream, "cudnnSetStream");
  find(create_descriptor, "cudnnBackendCreateDescriptor");
  find(destroy_descriptor, "cudnnBackendDestroyDescriptor");
  find(set_attribute, "cudnnBackendSetAttribute");
  find(get_attribute, "cudnnBackendGetAttribute");
  find(finalize, "cudnnBackendFinalize");
  find(execute, "cudnnBackendExecute");
  return has_all;
}

void Library::check(cudnnStatus_t status, const char* call) const {
  if (status == CUDNN_STATUS_SUCCESS) return;
  std::array<char, 512> words{};
  last_error(words.data(), words.size());
  fail(ErrorKind::kInternal, "cuDNN {}: {}: {}; {}", version(), call, status_text(status), words.data());
}

Descriptor::Descriptor(const Library& library, cudnnBackendDescriptorType_t type) : library_(&library) {
  library.check(library.create_descriptor(type, &handle_), "BackendCreateDescriptor");
}

Descriptor::~Descriptor() {
  if (handle_) library_->destroy_descriptor(handle_);
}

void Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                     const void* values) {
  library_->check(library_->set_attribute(handle_, name, type, count, values), "BackendSetAttribute");
}

void Descriptor::finish() { library_->check(library_->finalize(handle_), "BackendFinalize"); }

bool Descriptor::finishes() { return library_->finalize(handle_) == CUDNN_STATUS_SUCCESS; }

Plan::Plan(const Library& library, Descriptor plan, Descriptors parts, int64_t number, const OpGraph& graph)
    : library_(&library), parts_(std::move(parts)), plan_(std::move(plan)), number_(number) {
  int64_t bytes = 0;
  library.check(library.get_attribute(plan_.handle(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                      CUDNN_TYPE_INT64, 1, nullptr, &bytes),
                "BackendGetAttribute of the workspace's size");
  workspace_bytes_ = static_cast<size_t>(bytes);
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    const OpGraph::Tensor& t = graph.tensors[i];
    if (t.place != OpGraph::Place::kConstant) continue;
    const bool is_integer = t.dtype == DType::i32;
    constants_.emplace_back(id_of(static_cast<Value>(i)),
                            is_integer ? std::bit_cast<uint32_t>(static_cast<int32_t>(t.constant))
                                       : std::bit_cast<uint32_t>(t.constant));
  }
}

std::vector<Plan> Plan::make(const Library& library, const OpGraph& graph, const Target& target,
                             size_t max_workspace_bytes, const Wanted& wanted) {
  const auto parts = std::make_shared<std::vector<Descriptor>>(Builder(library, graph).build(target));
  std::optional<Descriptor> device;
  if (!target.device) {
    device.emplace(library, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    device->set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, std::ssize(target.description),
                target.description.data());
    device->finish();
  }
  std::vector<Descriptor> proposed = proposals(library, parts->back(), device ? &*device : nullptr);
  std::vector<Plan> plans;
  for (int64_t i = wanted.first; i < std::ssize(proposed) && plans.size() < wanted.most; ++i) {
    Descriptor description(library, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    description.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, proposed[static_cast<size_t>(i)]);
    if (target.device)
      description.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &target.device);
    else
      description.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *device);
    if (!description.finishes()) continue;
    Plan plan(library, std::move(description), parts, i, graph);
    if (plan.workspace_bytes() <= max_workspace_bytes) plans.push_back(std::move(plan));
  }
  if (device) parts->push_back(std::move(*device));
  std::ranges::move(proposed, std::back_inserter(*parts));
  return plans;
}

void Plan::run(cudnnHandle_t device, std::span<const Binding> places, void* workspace) const {
  std::array<int64_t, kMaxPlaces> ids{};
  std::array<const void*, kMaxPlaces> addresses{};
  INGOT_CHECK(places.size() + constants_.size() <= kMaxPlaces, "cuDNN: {} tensors in memory", places.size());
  size_t count = 0;
  for (const Binding& place : places) {
    ids[count] = id_of(place.value);
    addresses[count++] = place.data;
  }
  for (const auto& [id, value] : constants_) {
    ids[count] = id;
    addresses[count++] = &value;
  }
  Descriptor pack(*library_, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::span(ids).first(count));
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, static_cast<int64_t>(count),
           addresses.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  pack.finish();
  cuda::count_launch(cuda::LaunchKind::kLibrary);
  library_->check(library_->execute(device, plan_.handle(), pack.handle()), "BackendExecute");
}

}  // namespace ingot::cudnn
