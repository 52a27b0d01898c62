// The rules by which the simulated streams are captured into graphs, which are the runtime's.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>

namespace {

constexpr size_t kBytes = 4;

class Capture : public testing::Test {
 protected:
  Capture() {
    for (cudaStream_t* stream : {&main, &side})
      cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, 0);
    for (cudaEvent_t* event : {&fork, &joined, &outside}) cudaEventCreate(event);
    for (void** memory : {&x, &y}) {
      cudaMalloc(memory, kBytes);
      cudaMemset(*memory, 1, kBytes);
    }
    cudaHostAlloc(&host, kBytes, cudaHostAllocDefault);
    cudaDeviceSynchronize();
  }
  ~Capture() override {
    cudaDeviceSynchronize();
    cudaFree(x);
    cudaFree(y);
    cudaFreeHost(host);
    for (cudaEvent_t event : {fork, joined, outside}) cudaEventDestroy(event);
    for (cudaStream_t stream : {main, side}) cudaStreamDestroy(stream);
  }

  // Captures what `submit` submits, and returns the error of the end.
  cudaError_t capture(const std::function<void()>& submit) {
    EXPECT_EQ(cudaStreamBeginCapture(main, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    submit();
    return cudaStreamEndCapture(main, &graph);
  }
  void fill_on_side(int value) { cudaMemsetAsync(y, value, kBytes, side); }
  void copy(void* to, const void* from) { cudaMemcpyAsync(to, from, kBytes, cudaMemcpyDefault, main); }
  int byte_of(void* memory) {
    copy(host, memory);
    cudaStreamSynchronize(main);
    return *static_cast<unsigned char*>(host);
  }

  cudaStream_t main = nullptr, side = nullptr;
  cudaEvent_t fork = nullptr, joined = nullptr, outside = nullptr;
  void *x = nullptr, *y = nullptr, *host = nullptr;
  cudaGraph_t graph = nullptr;
};

TEST_F(Capture, RepeatsTheWorkOfAllItsStreams) {
  ASSERT_EQ(capture([&] {
              cudaEventRecord(fork, main);
              cudaStreamWaitEvent(side, fork, 0);
              fill_on_side(7);
              cudaEventRecord(joined, side);
              EXPECT_EQ(cudaEventQuery(joined), cudaErrorCapturedEvent);
              cudaStreamWaitEvent(main, joined, 0);
              copy(x, y);
            }),
            cudaSuccess);
  cudaGraphExec_t ready = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&ready, graph, 0), cudaSuccess);
  cudaGraphDestroy(graph);
  EXPECT_EQ(byte_of(x), 1);
  fill_on_side(3);  // the stream has left the capture
  cudaStreamSynchronize(side);
  EXPECT_EQ(byte_of(y), 3);
  for (int launch = 0; launch < 2; ++launch) {
    cudaMemsetAsync(x, 0, kBytes, main);
    EXPECT_EQ(cudaGraphLaunch(ready, main), cudaSuccess);
    EXPECT_EQ(byte_of(x), 7);
  }
  cudaGraphExecDestroy(ready);
}

TEST_F(Capture, RefusesAStreamThatDoesNotReturn) {
  EXPECT_EQ(capture([&] {
              cudaEventRecord(fork, main);
              cudaStreamWaitEvent(side, fork, 0);
              fill_on_side(7);
            }),
            cudaErrorStreamCaptureUnjoined);
  // The join comes before the last work.
  EXPECT_EQ(capture([&] {
              cudaEventRecord(fork, main);
              cudaStreamWaitEvent(side, fork, 0);
              cudaEventRecord(joined, side);
              cudaStreamWaitEvent(main, joined, 0);
              fill_on_side(7);
            }),
            cudaErrorStreamCaptureUnjoined);
}

TEST_F(Capture, RefusesToWaitForWhatIsOutside) {
  cudaEventRecord(outside, side);
  EXPECT_EQ(
      capture([&] { EXPECT_EQ(cudaStreamWaitEvent(main, outside, 0), cudaErrorStreamCaptureIsolation); }),
      cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(capture([&] { cudaEventRecord(fork, main); }), cudaSuccess);
  cudaGraphDestroy(graph);
  EXPECT_EQ(cudaStreamWaitEvent(side, fork, 0), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaEventSynchronize(fork), cudaErrorCapturedEvent);
}

// Without the join, the copy of the graph reads what its other stream writes.
TEST_F(Capture, RacesInAGraphAreFound) {
  ASSERT_EQ(capture([&] {
              cudaEventRecord(fork, main);
              cudaStreamWaitEvent(side, fork, 0);
              fill_on_side(7);
              copy(x, y);
              cudaEventRecord(joined, side);
              cudaStreamWaitEvent(main, joined, 0);
            }),
            cudaSuccess);
  cudaGraphExec_t ready = nullptr;
  cudaGraphInstantiate(&ready, graph, 0);
  EXPECT_DEATH(
      {
        cudaGraphLaunch(ready, main);
        cudaStreamSynchronize(main);
      },
      "race between streams: no event orders the two operations");
  cudaGraphDestroy(graph);
  cudaGraphExecDestroy(ready);
}

}  // namespace
