#include "ingot/parallel/distributed_muon.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "ingot/optim/rules/newton_schulz.h"

namespace ingot {
namespace {

using ::testing::ElementsAre;

TEST(AssignByCost, AssignsTheMostExpensiveToTheLeastLoadedRank) {
  const std::vector<double> costs = {1, 5, 2, 4, 3};
  const auto tasks = assign_by_cost(costs, 2);
  EXPECT_THAT(tasks[0], ElementsAre(1, 2, 0));  // costs 5, 2 and 1
  EXPECT_THAT(tasks[1], ElementsAre(3, 4));     // costs 4 and 3
}

TEST(AssignByCost, EqualCostsGoRoundInOrder) {
  const std::vector<double> costs(7, 2.0);
  const auto tasks = assign_by_cost(costs, 3);
  EXPECT_THAT(tasks[0], ElementsAre(0, 3, 6));
  EXPECT_THAT(tasks[1], ElementsAre(1, 4));
  EXPECT_THAT(tasks[2], ElementsAre(2, 5));
  EXPECT_TRUE(assign_by_cost({}, 2)[1].empty());
}

// Graham 1969: if the most expensive task is assigned first, the largest load is at most 4/3 - 1/(3 n) of
// the optimum. The test uses a lower bound of the optimum: the mean load or the most expensive task.
TEST(AssignByCost, OwnersOfAModelsMatricesAreBalanced) {
  std::vector<double> costs;
  for (int layer = 0; layer < 12; ++layer)
    for (const auto& [R, C] : {std::pair{2304, 768}, {768, 768}, {3072, 768}, {768, 3072}})
      costs.push_back(newton_schulz_flops(R, C));
  const double total = std::accumulate(costs.begin(), costs.end(), 0.0);
  for (const int owners : {1, 2, 3, 4, 8, 16, 64}) {
    std::vector<int> owned(costs.size());
    double most = 0;
    for (const std::vector<size_t>& tasks : assign_by_cost(costs, owners)) {
      double load = 0;
      for (const size_t task : tasks) {
        load += costs[task];
        ++owned[task];
      }
      most = std::max(most, load);
    }
    EXPECT_TRUE(std::ranges::all_of(owned, [](int count) { return count == 1; })) << owners;
    const double best = std::max(total / owners, *std::ranges::max_element(costs));
    EXPECT_LE(most, (4.0 / 3 - 1.0 / (3 * owners)) * best) << owners;
  }
}

// Each product costs 2 m n k: X Xᵀ, A A and B X.
TEST(NewtonSchulzFlops, CountsTheProducts) {
  EXPECT_EQ(newton_schulz_flops(3, 7), 5 * (2 * 3 * 3 * 7 + 2 * 3 * 3 * 3 + 2 * 3 * 3 * 7));
  EXPECT_EQ(newton_schulz_flops(7, 3), newton_schulz_flops(3, 7));
}

}  // namespace
}  // namespace ingot
