"""What a mechanism costs in picture quality: PSNR, SSIM, pictures side by side."""
