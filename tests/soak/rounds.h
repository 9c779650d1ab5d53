#pragma once

// How much of the soak is run: all of it with CASEMATE_SOAK=1 (`make soak`), else a tenth.

namespace casemate::soak {

bool whole();

// Of so many rounds a tenth, unless all are asked for.
int rounds(int all);

// CASEMATE_SOAK_SEED, or null.
const char* given_seed();

// Where a tenth of the steps begins: elsewhere each time, so that in time every step is tried, and
// at the seed's place where one is given.
int first_step(int stride);

}  // namespace casemate::soak
