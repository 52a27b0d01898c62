// Renders a plan as text, as JSON, as a Chrome trace and as a picture.
#pragma once

#include <string>

#include "ingot/plan/plan.h"

namespace ingot {

std::string plan_text(const Plan& plan, const PlanTarget& target);
// Returns one JSON object, whose fields docs/planning.md describes.
std::string plan_json(const Plan& plan, const PlanTarget& target);
// Returns the timelines that the plan keeps, for chrome://tracing or ui.perfetto.dev: a process per rank,
// with one track for its computing and waiting and one for its operations.
std::string plan_trace(const Plan& plan);
// Returns an SVG picture of the memory of each class of ranks by arena, and of the timelines that the plan
// keeps.
std::string plan_picture(const Plan& plan, const PlanTarget& target);

}  // namespace ingot
