// What the page's own code makes of images: `node tiles.mjs PAGE`, PAGE a folder with the page's
// files. Reads cases as JSON, one a line, and writes the results likewise; the network of a case
// enlarges a tile `scale` times and adds what depends on the place in the tile.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const page = pathToFileURL(`${process.argv[2]}/`);
const { restore } = await import(new URL("restoring.js", page));

function networkOf({ channels, tile, scale }) {
  const [height, width] = tile;
  const [tall, wide] = [height * scale, width * scale];
  return {
    facts: { scale, inputRange: [-1, 1], outputRange: [-1, 1], architecture: "places" },
    provider: "wasm",
    input: [channels, height, width],
    output: [channels, tall, wide],
    run: async (data) =>
      Float32Array.from({ length: channels * tall * wide }, (_, i) => {
        const [channel, y, x] = [Math.floor(i / (tall * wide)), Math.floor(i / wide) % tall, i % wide];
        const from = (channel * height + Math.floor(y / scale)) * width + Math.floor(x / scale);
        return data[from] + y / tall + x / wide / 2;
      }),
    release: async () => undefined,
  };
}

for (const line of readFileSync(0, "utf8").trim().split("\n")) {
  const test = JSON.parse(line);
  const image = { ...test.image, data: Float32Array.from(test.image.data) };
  const steps = [];
  const onProgress = (done, total) => steps.push([done, total]);
  const how = { overlap: test.overlap ?? undefined, onProgress };
  const result = await restore(networkOf(test), image, how);
  console.log(JSON.stringify({ ...result, data: [...result.data], steps }));
}
