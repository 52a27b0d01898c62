#include "ingot/parallel/tensor.h"

#include "ingot/core/trace.h"

namespace ingot {
namespace {

Tensor flat(const Tensor& t) { return t.reshape({t.elements()}); }

}  // namespace

void TensorRegion::sum(std::string_view name, const Tensor& t, Stream& stream) {
  const Span span(stream.trace, "tensor parallel");
  group_.all_reduce(name, t);
}

void TensorRegion::max(std::string_view name, const Tensor& t, Stream& stream) {
  const Span span(stream.trace, "tensor parallel");
  group_.all_reduce(name, t, ReduceOp::kMax);
}

void TensorRegion::gather(std::string_view name, const Tensor& all, const Tensor& own, Stream& stream) {
  const Span span(stream.trace, "tensor parallel");
  group_.all_gather_into(name, flat(all), flat(own));
}

void TensorRegion::spread(std::string_view name, const Tensor& all, const Tensor& own, Stream& stream) {
  if (all.data == own.data) return;
  const Span span(stream.trace, "tensor parallel");
  group_.all_gather_into(name, flat(all), flat(own));
}

void TensorRegion::collect(std::string_view name, const Tensor& own, const Tensor& partial, Stream& stream) {
  const Span span(stream.trace, "tensor parallel");
  if (own.data == partial.data)
    group_.all_reduce(name, own);
  else
    group_.reduce_scatter(name, flat(own), flat(partial));
}

TensorParallel tensor_parallel(const Communicator& group, bool splits_tokens) {
  return {.rank = group.rank(), .count = group.size(), .splits_tokens = splits_tokens && group.size() > 1};
}

}  // namespace ingot
