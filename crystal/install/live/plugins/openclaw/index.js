// Written by crystal init; removed by crystal uninstall.
// Tells crystal that a turn has ended, and gives OpenClaw's model the tools of crystal's MCP server.
// crystal reads the database by itself, and OpenClaw waits for nothing at the end of a turn.
import { spawn } from "node:child_process";

const COMMAND = [];
const SERVER = {};
const ANSWER_MS = 30000;
const END_MS = 33000;

const text = (description) => ({ type: "string", description });
const TOOLS = [
  ["crystal_search", "Search what was said in past sessions of all coding agents.", { query: text("Words, or a question.") }],
  ["crystal_get", "Read around a hit of crystal_search.", { id: text("The id of a hit.") }],
  ["crystal_remember", "Remember a fact, a preference or a decision for later sessions.", { text: text("One sentence.") }],
];

function tell(context) {
  try {
    const options = { detached: true, stdio: ["pipe", "ignore", "ignore"] };
    const hook = spawn(COMMAND[0], [...COMMAND.slice(1), "--event", "Stop"], options);
    hook.on("error", () => {});
    hook.stdin.on("error", () => {});
    hook.stdin.end(JSON.stringify({ session_id: context?.sessionId, cwd: context?.workspaceDir }));
    hook.unref();
  } catch {
    // crystal sync finds the turn all the same
  }
}

// Starts the server for one call: it answers what is in its input, then ends. If it does not, its process is ended.
function call(name, given) {
  const asked = [
    ["initialize", { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "openclaw", version: "1" } }],
    ["tools/call", { name, arguments: given }],
  ].map(([method, params], id) => JSON.stringify({ jsonrpc: "2.0", id, method, params }) + "\n");
  return new Promise((resolve, reject) => {
    const options = { env: { ...process.env, ...SERVER.env }, stdio: ["pipe", "pipe", "ignore"], timeout: ANSWER_MS };
    const server = spawn(SERVER.command, SERVER.args, options);
    let said = "";
    const end = setTimeout(() => {
      server.kill("SIGKILL");
      server.stdout.destroy();
    }, END_MS);
    server.on("error", reject);
    server.stdin.on("error", () => {});
    server.stdout.on("data", (data) => (said += data));
    server.on("close", () => {
      clearTimeout(end);
      resolve(said);
    });
    server.stdin.end(asked.join(""));
  }).then((said) => {
    const lines = said.split("\n").slice(0, -1).map((line) => JSON.parse(line)); // the last is empty, or cut off
    const answer = lines.find((line) => line.id === 1);
    const problem = answer ? answer.error?.message : "crystal did not answer; run: crystal doctor";
    if (problem) throw new Error(problem);
    return { ...answer.result, details: {} };
  });
}

export default {
  id: "crystal",
  name: "crystal",
  register(api) {
    api.on("agent_end", (_, context) => tell(context));
    for (const [name, description, properties] of TOOLS) {
      const parameters = { type: "object", properties, required: Object.keys(properties), additionalProperties: false };
      api.registerTool({ name, description, parameters, execute: (_, given) => call(name, given) });
    }
  },
};
