// What the page's own code reads of files: `node read.mjs PAGE FILE ...`, a line of JSON for each.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [folder, ...files] = process.argv.slice(2);
const page = pathToFileURL(`${folder}/`);
const { readFacts } = await import(new URL("metadata.js", page));
const { readReferences } = await import(new URL("references.js", page));

for (const file of files) {
  const read = file.endsWith(".npz") ? readReferences : readFacts;
  try {
    const found = await read(readFileSync(file));
    const text = JSON.stringify(found, (_, value) =>
      value instanceof Float32Array ? [...value] : value,
    );
    console.log(text);
  } catch (error) {
    console.log(JSON.stringify({ error: error.name, message: error.message }));
  }
}
