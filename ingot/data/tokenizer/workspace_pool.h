// Workspaces that outlive the calls that use them, so that their caches stay warm.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "ingot/data/tokenizer/bpe_encoder.h"

namespace ingot {

class WorkspacePool {
 public:
  std::unique_ptr<BpeWorkspace> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<BpeWorkspace>();
    std::unique_ptr<BpeWorkspace> workspace = std::move(free_.back());
    free_.pop_back();
    return workspace;
  }
  void give_back(std::unique_ptr<BpeWorkspace> workspace) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(workspace));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<BpeWorkspace>> free_;
};

}  // namespace ingot
