// Runs a model that nystra exported on an image, with the fused kernels of the operator library:
//   upscale MODEL.onnx libnystra_onnxruntime.so IN.ppm OUT.ppm
// The model takes and gives RGB images, float32 (1, 3, H, W) from 0 to 1; PPM files are binary
// (P6) with 8 bits a channel.
#include <onnxruntime_cxx_api.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

struct Image {
  int64_t height, width;
  std::vector<float> planes;  // (3, height, width)
};

Image read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string magic;
  int64_t width = 0, height = 0, largest = 0;
  file >> magic >> width >> height >> largest;
  file.get();
  if (!file || magic != "P6" || largest != 255 || width < 1 || height < 1)
    throw std::runtime_error(path + " is not a binary PPM file of 8 bits without comments");
  std::vector<uint8_t> bytes(3 * width * height);
  if (!file.read(reinterpret_cast<char*>(bytes.data()), bytes.size()))
    throw std::runtime_error(path + " ends early");
  Image image{height, width, std::vector<float>(bytes.size())};
  for (size_t i = 0; i < bytes.size(); ++i)
    image.planes[i % 3 * height * width + i / 3] = bytes[i] / 255.0f;
  return image;
}

void write(const std::string& path, int64_t height, int64_t width, const float* planes) {
  std::vector<uint8_t> bytes(3 * width * height);
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = uint8_t(std::clamp(planes[i % 3 * height * width + i / 3], 0.0f, 1.0f) * 255 + 0.5f);
  std::ofstream file(path, std::ios::binary);
  file << "P6\n" << width << " " << height << "\n255\n";
  file.write(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

int main(int count, char** arguments) try {
  if (count != 5) {
    std::cerr << "usage: upscale MODEL.onnx LIBRARY.so IN.ppm OUT.ppm\n";
    return 2;
  }
#ifndef _WIN32
  setenv("ORT_DISABLE_TELEMETRY", "1", 0);  // before onnxruntime starts
#endif
  Ort::Env environment;
  Ort::SessionOptions options;
  options.RegisterCustomOpsLibrary(arguments[2]);
  Ort::Session session(environment, arguments[1], options);

  Image image = read(arguments[3]);
  const int64_t shape[] = {1, 3, image.height, image.width};
  const Ort::Value input = Ort::Value::CreateTensor<float>(
      Ort::MemoryInfo::CreateCpu(OrtDeviceAllocator, OrtMemTypeDefault), image.planes.data(),
      image.planes.size(), shape, 4);
  Ort::AllocatorWithDefaultOptions allocator;
  const auto input_name = session.GetInputNameAllocated(0, allocator);
  const auto output_name = session.GetOutputNameAllocated(0, allocator);
  const char *const inputs[] = {input_name.get()}, *const outputs[] = {output_name.get()};
  const auto results = session.Run(Ort::RunOptions(), inputs, &input, 1, outputs, 1);

  const std::vector<int64_t> size = results[0].GetTensorTypeAndShapeInfo().GetShape();
  if (size.size() != 4 || size[0] != 1 || size[1] != 3)
    throw std::runtime_error("the model does not give one RGB image");
  write(arguments[4], size[2], size[3], results[0].GetTensorData<float>());
  std::cout << image.width << "x" << image.height << " -> " << size[3] << "x" << size[2] << "\n";
  return 0;
} catch (const std::exception& error) {
  std::cerr << "upscale: " << error.what() << "\n";
  return 1;
}
