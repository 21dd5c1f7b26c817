"""VapourSynth: a script that runs a model file in vs-mlrt."""
