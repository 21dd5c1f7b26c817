// Pixels to planes and back, by the page's own code: `node pixels.mjs PAGE`, on the standard input
// JSON of pixels, of a scale and of colors; writes the alpha, enlarged, and the pixels of both.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const page = pathToFileURL(`${process.argv[2]}/`);
const images = await import(new URL("images.js", page));

const { pixels, scale, colors } = JSON.parse(readFileSync(0, "utf8"));
const given = { ...pixels, data: Uint8ClampedArray.from(pixels.data) };
const alpha = images.alphaOf(given);
const large = alpha === null ? null : images.enlarged(alpha, scale);
const planes = { ...colors, data: Float32Array.from(colors.data) };
const made = images.pixelsOf(planes, large);
const result = {
  colors: [...images.colorsOf(given).data],
  alpha: large === null ? null : [...large.data],
  pixels: [...made.data],
};
console.log(JSON.stringify(result));
