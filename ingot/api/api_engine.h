// ApiEngine continues the texts of all requests together: each pass of the model has a token of every text
// that is being written, and prompts that have just come join it as soon as a slot of the cache is free.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "ingot/api/completion.h"
#include "ingot/checkpoint/served_model.h"
#include "ingot/infer/generate.h"

namespace ingot {

class ApiEngine {
 public:
  static constexpr double kLimit_s = 600;  // from the arrival of a request to the end of its answer

  // Moves the model to its device and allocates caches for `slots` texts. Borrows the model. Throws a kMemory
  // error if there is no room.
  ApiEngine(ServedModel& served, int64_t slots);

  // Adds a request, from any thread.
  void add(std::shared_ptr<Completion> completion);
  // Answers requests until stop(). Calls `notify` whenever answers or events are ready.
  void run(const std::function<void()>& notify);
  void stop() noexcept;  // from any thread

  struct Load {
    size_t waiting = 0, running = 0;  // texts
  };
  Load load() const;

 private:
  // A request of which some choices have no slot yet.
  struct Waiting {
    std::shared_ptr<Completion> completion;
    size_t next = 0;  // the first such choice
  };
  struct Running {
    std::shared_ptr<Completion> completion;
    size_t choice = 0;
  };

  // Waits until there is work, and takes the requests that have come. Returns false after stop().
  bool take_arrived();
  // Frees the slots of clients that have gone, and ends requests that are too old.
  void drop_ended();
  // Gives the free slots to the requests in turn.
  void fill_slots();
  void step();
  void note_load();

  Region region_;
  std::optional<Generator> generator_;
  std::deque<Waiting> waiting_;
  std::map<size_t, Running> running_;  // by the generator's numbers

  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable has_come_;
  std::vector<std::shared_ptr<Completion>> arrived_;
  Load load_;
  bool is_stopped_ = false;
};

}  // namespace ingot
