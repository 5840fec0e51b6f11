// The door to the forward_ad folder: dual numbers on levels that nest.
#pragma once

#include "forward_ad/dual.h"
