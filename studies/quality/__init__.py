"""The effect of mechanisms on image quality: PSNR, SSIM, images side by side."""
