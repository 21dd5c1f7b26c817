// Marks the exported functions of a library; all others are hidden.
#pragma once

#if defined(_WIN32)
#define NYSTRA_EXPORTED __declspec(dllexport)
#else
#define NYSTRA_EXPORTED __attribute__((visibility("default")))
#endif
#define NYSTRA_EXPORT extern "C" NYSTRA_EXPORTED
