// A folder of a test on several ranks.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "tests/comm/mpi/ranks_main.h"
#include "tests/reference/temporary_folder.h"

namespace ingot {

// A new folder that all ranks share; rank 0 removes it when every rank is done with it.
class SharedFolder {
 public:
  SharedFolder() {
    if (world->rank() == 0) own_.emplace();
    std::string name = own_ ? own_->path().string() : "";
    world->broadcast_text(name, 0);
    path = name;
  }
  ~SharedFolder() { world->barrier("folder"); }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;

  std::filesystem::path path;

 private:
  std::optional<TemporaryFolder> own_;
};

}  // namespace ingot
