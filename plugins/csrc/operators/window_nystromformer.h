// NystraWindowNystromformer: qkv (B, H, W, h(2d+e)) -> (B, H, W, h e).
#pragma once

#include "landmark_windows.h"
#include "table.h"

namespace nystra {

class WindowNystromformer : public LandmarkWindows {
 public:
  static constexpr const Schema& kSchema = kWindowNystromformerSchema;

  explicit WindowNystromformer(const Attributes&);
};

}  // namespace nystra
