// OVERDRIVE_API marks what a program outside the library may use. All else is hidden.
#pragma once

#define OVERDRIVE_API __attribute__((visibility("default")))
