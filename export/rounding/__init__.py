"""What low precision rounds: layers that round as in such a file, and half precision in float32."""
