// Marks the functions that a library offers to other programs; all else is hidden.
#pragma once

#if defined(_WIN32)
#define NYSTRA_EXPORTED __declspec(dllexport)
#else
#define NYSTRA_EXPORTED __attribute__((visibility("default")))
#endif
#define NYSTRA_EXPORT extern "C" NYSTRA_EXPORTED
