// The two functions that IPluginRegistry::loadLibrary and trtexec --dynamicPlugins look for.
#include "operators.h"

extern "C" __attribute__((visibility("default"))) nvinfer1::IPluginCreatorInterface* const*
getCreators(int32_t& count) {
  return nystra::trt::creators_of<nystra::trt::Creator>(count);
}

// No logger is used: its layout differs between versions of TensorRT.
extern "C" __attribute__((visibility("default"))) void setLoggerFinder(nvinfer1::ILoggerFinder*) {}
