// The plugins of this library; one file each. Meaning of the operators: ../../operators.
#pragma once

#include <memory>
#include <vector>

#include "plugin.h"

namespace nystra::trt {

const Description& pinv();
const Description& window_softmax();
const Description& window_nystrom();
const Description& window_nystromformer();
const Description& patch_match();

// A creator of class `Made` for each of them, made once; as getCreators returns them.
template <class Made>
nvinfer1::IPluginCreatorInterface* const* creators_of(int32_t& count) {
  static const std::vector<std::unique_ptr<Made>> made = [] {
    std::vector<std::unique_ptr<Made>> result;
    for (const auto one : {pinv, window_softmax, window_nystrom, window_nystromformer, patch_match})
      result.push_back(std::make_unique<Made>(one()));
    return result;
  }();
  static const std::vector<nvinfer1::IPluginCreatorInterface*> list = [] {
    std::vector<nvinfer1::IPluginCreatorInterface*> result;
    for (const auto& one : made) result.push_back(one.get());
    return result;
  }();
  count = static_cast<int32_t>(list.size());
  return list.data();
}

}  // namespace nystra::trt
