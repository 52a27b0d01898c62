#include "ingot/run/thread_count.h"

#include <algorithm>
#include <cstdint>

#include "ingot/core/error.h"
#include "ingot/core/process/thread_limit.h"

namespace ingot {

void require_threads(const TrainConfig& train) {
  constexpr int64_t kAnywhere = 64, kPerCore = 4, kAtAll = 256;  // kAtAll: the most that RowSum takes
  const auto cores = static_cast<int64_t>(machine_thread_limit().threads);
  const int64_t most = std::clamp(kPerCore * cores, kAnywhere, kAtAll);
  if (train.threads > most)
    fail(ErrorKind::kUsage,
         "train.threads = {} is too many for the {} cores of this machine; the most is {}, and 0 is one for "
         "each core",
         train.threads, cores, most);
}

void use_threads(const TrainConfig& train) {
  require_threads(train);
  if (train.threads > 0) use_threads_of("train.threads", static_cast<int>(train.threads));
}

}  // namespace ingot
