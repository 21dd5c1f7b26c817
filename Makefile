# `make demo` exports a shipped network and upscales a photograph with it; `make test` runs the tests.
# Both use the environment .venv in this folder, which the first one makes, and print every command
# before they run it. TORCH_INDEX=URL takes PyTorch from that index: its CPU index has a tenth of the
# usual 5 GB. Otherwise pip decides by its own settings, such as PIP_INDEX_URL.
PYTHON ?= python3
bin := .venv/bin
sources := $(shell find pyproject.toml cli core deploy export models plugins runtime -type f ! -path '*/__pycache__/*')

CUDA_NOTE := No NVIDIA GPU was found. pip may download PyTorch with CUDA, about 5 GB; \
  the index of PyTorch for CPUs has a tenth of that: make demo TORCH_INDEX=URL

.PHONY: demo test

demo: .venv/installed
	mkdir -p out
	$(bin)/nystra-export models/pretrained/swinir_x2_w16.safetensors --attn cluster -o out/swinir_x2.onnx --overwrite
	$(bin)/nystra run out/swinir_x2.onnx -i export/photographs/chelsea.png -o out/chelsea_x2.png --overwrite
	$(bin)/nystra validate out/swinir_x2.onnx --sheet out/sheet.png
	@echo "The upscaled photograph: $(CURDIR)/out/chelsea_x2.png; before and after: $(CURDIR)/out/sheet.png"

test: .venv/installed
	$(bin)/python -m pip install --no-compile 'nystra[test]'
	$(bin)/python -m pytest -q -n 2

# Compiles the kernels, which takes some minutes: once, until a file of the package changes.
.venv/installed: $(sources)
	test -d .venv || $(PYTHON) -m venv .venv
	@$(if $(TORCH_INDEX),,command -v nvidia-smi > /dev/null || echo "$(CUDA_NOTE)")
	$(if $(TORCH_INDEX),$(bin)/python -m pip install --index-url $(TORCH_INDEX) torch torchvision)
	$(bin)/python -m pip install '.[export]'
	@touch $@
