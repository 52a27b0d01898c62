#include "ingot/train/agree.h"

#include <array>
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

void agree(Reducer& all, const std::function<void()>& work) {
  const std::optional<Error> own = error_of(work);
  if (all.ranks() == 1) {
    if (own) throw Error(*own);
    return;
  }
  // Holds ranks - (lowest rank with an error) after the reduction; 0 if no rank has an error.
  std::array<double, 1> place{own ? static_cast<double>(all.ranks() - all.rank()) : 0.0};
  all.max(place);
  if (place[0] == 0) return;
  const int rank = all.ranks() - static_cast<int>(place[0]);
  std::string text;
  if (rank == all.rank()) text = fmt::format("{} {}", static_cast<int>(own->kind()), own->what());
  all.broadcast(text, rank);
  const size_t space = text.find(' ');
  throw Error(fmt::format("rank {}: {}", rank, text.substr(space + 1)),
              static_cast<ErrorKind>(std::stoi(text.substr(0, space))));
}

}  // namespace ingot
