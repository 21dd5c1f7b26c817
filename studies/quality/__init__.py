"""What a mechanism costs in image quality: PSNR, SSIM, images side by side."""
