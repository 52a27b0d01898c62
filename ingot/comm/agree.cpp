#include "ingot/comm/agree.h"

#include <filesystem>
#include <optional>
#include <string>

#include "ingot/core/error.h"

namespace ingot {
namespace {

std::optional<Error> error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error;
  } catch (const std::filesystem::filesystem_error& error) {
    return Error(error.what(), ErrorKind::kDisk);
  }
  return std::nullopt;
}

}  // namespace

void agree(Communicator& all, const std::function<void()>& work) {
  const std::optional<Error> own = error_of(work);
  if (all.size() == 1) {
    if (own) throw Error(*own);
    return;
  }
  // Is size - (lowest rank with an error), or 0 if no rank has one.
  const int place = static_cast<int>(all.max(own ? all.size() - all.rank() : 0));
  if (place == 0) return;
  const int rank = all.size() - place;
  const auto kind =
      static_cast<ErrorKind>(all.broadcast_number(own ? static_cast<int64_t>(own->kind()) : 0, rank));
  std::string text = own ? own->what() : "";
  all.broadcast_text(text, rank);
  throw Error(fmt::format("rank {}: {}", rank, text), kind);
}

}  // namespace ingot
