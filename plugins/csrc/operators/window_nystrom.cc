#include "window_nystrom.h"

namespace nystra {

WindowNystrom::WindowNystrom(const Attributes& a) : LandmarkWindows(a) {
  params_.threshold = a.number("threshold");
  params_.guard = a.number("guard");
}

}  // namespace nystra
