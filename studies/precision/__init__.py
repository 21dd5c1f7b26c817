"""What fp16, bf16 and int8 cost and bring."""
