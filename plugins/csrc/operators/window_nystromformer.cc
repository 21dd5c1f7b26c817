#include "window_nystromformer.h"

namespace nystra {

WindowNystromformer::WindowNystromformer(const Attributes& a) : LandmarkWindows(a) {}

}  // namespace nystra
