# `make demo` exports a shipped network and upscales a photograph with it; `make test` runs the tests.
# Both make the environment .venv in this folder and print every command before they run it.
PYTHON ?= python3
bin := .venv/bin

.PHONY: demo test

demo: .venv
	$(bin)/python -m pip install '.[export]'
	mkdir -p out
	$(bin)/nystra-export models/pretrained/swinir_x2_w16.safetensors --attn cluster -o out/swinir_x2.onnx --overwrite
	$(bin)/nystra run out/swinir_x2.onnx -i export/photographs/chelsea.png -o out/chelsea_x2.png --overwrite
	$(bin)/nystra validate out/swinir_x2.onnx --sheet out/sheet.png
	@echo "The upscaled photograph: $(CURDIR)/out/chelsea_x2.png"

test: .venv
	$(bin)/python -m pip install '.[test]'
	$(bin)/python -m pytest -q -n 2

.venv:
	$(PYTHON) -m venv .venv
