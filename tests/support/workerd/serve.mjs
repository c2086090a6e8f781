// Serves the relay with the real workerd: node serve.mjs PACKAGES FOLDER PORT VARIABLES
//
// PACKAGES has node_modules; FOLDER keeps what is stored; VARIABLES is JSON.

import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

const [packages, folder, port, variables] = process.argv.slice(2);
const require = createRequire(`${packages}/package.json`);
const { Log, LogLevel, Miniflare } = require("miniflare");

const built = await require("esbuild").build({
  entryPoints: [fileURLToPath(new URL("entry.ts", import.meta.url))],
  bundle: true,
  write: false,
  format: "esm",
  target: "es2022",
  external: ["cloudflare:workers"],
  loader: { ".yaml": "text" },
});
const sqlite = (className) => ({ className, useSQLite: true });
const relay = new Miniflare({
  host: "127.0.0.1",
  port: Number(port),
  log: new Log(LogLevel.WARN),
  cf: false,
  modules: [{ type: "ESModule", path: "worker.js", contents: built.outputFiles[0].text }],
  compatibilityDate: "2026-04-01",
  bindings: JSON.parse(variables),
  durableObjects: { ACCOUNTS: sqlite("Account"), DIRECTORY: sqlite("Directory") },
  durableObjectsPersist: `${folder}/objects`,
  r2Buckets: ["BODIES"],
  r2Persist: `${folder}/bucket`,
});
await relay.ready;
process.on("SIGTERM", () => relay.dispose().then(() => process.exit(0)));
