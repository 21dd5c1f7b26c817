"""Videos through model files: read, restored frame by frame or cut in time, written."""
