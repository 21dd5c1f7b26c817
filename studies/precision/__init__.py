"""Accuracy and speed of fp16, bf16 and int8."""
