"""RVRT: super-resolution, deblurring and denoising of video."""
