// NystraWindowNystrom: qkv (B, H, W, h(2d+e)) -> (B, H, W, h e).
#pragma once

#include "landmark_windows.h"
#include "table.h"

namespace nystra {

class WindowNystrom : public LandmarkWindows {
 public:
  static constexpr const Schema& kSchema = kWindowNystromSchema;

  explicit WindowNystrom(const Attributes&);
};

}  // namespace nystra
