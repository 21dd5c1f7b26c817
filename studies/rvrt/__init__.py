"""RVRT: seconds and memory of each form, exports of published sizes."""
