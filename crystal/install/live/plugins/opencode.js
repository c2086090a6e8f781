// Written by crystal init; removed by crystal uninstall.
// Tells crystal that a turn has ended, and OpenCode's model what crystal knows. crystal reads the database by itself.
import { spawn } from "node:child_process";

const COMMAND = [];
const MOMENTS = [];
const HURRY_MS = 2000;
const ANSWER_MS = 3000;

function start(event, said, options) {
  const hook = spawn(COMMAND[0], [...COMMAND.slice(1), "--event", event], options);
  hook.on("error", () => {});
  hook.stdin.on("error", () => {});
  hook.stdin.end(JSON.stringify(said));
  return hook;
}

// Returns what crystal tells the model; empty if that is nothing, or not said in time: then its process is ended.
function ask(event, said) {
  return new Promise((resolve, reject) => {
    const hook = start(event, said, { stdio: ["pipe", "pipe", "ignore"], timeout: HURRY_MS });
    let text = "";
    const end = setTimeout(() => {
      hook.kill("SIGKILL");
      hook.stdout.destroy();
    }, ANSWER_MS);
    hook.on("error", reject);
    hook.stdout.on("data", (data) => (text += data));
    hook.stdout.on("close", () => resolve(text));
    hook.on("close", () => clearTimeout(end));
  })
    .then((text) => JSON.parse(text).hookSpecificOutput?.additionalContext ?? "")
    .catch(() => "");
}

export const Crystal = async ({ directory }) => {
  const contexts = new Map();
  const who = (session) => ({ session_id: session, cwd: directory });
  return {
    event: async ({ event }) => {
      if (event.type !== "session.idle") return;
      try {
        const options = { detached: true, stdio: ["pipe", "ignore", "ignore"] };
        start("Stop", who(event.properties.sessionID), options).unref();
      } catch {
        // crystal sync finds the turn all the same
      }
    },
    // The system prompt is not kept: it is made again for each request.
    "experimental.chat.system.transform": async ({ sessionID }, { system }) => {
      if (!MOMENTS.includes("start") || !sessionID) return;
      if (!contexts.has(sessionID)) contexts.set(sessionID, ask("SessionStart", who(sessionID)));
      const text = await contexts.get(sessionID);
      if (text) system.push(text);
    },
    "chat.message": async ({ sessionID }, { message, parts }) => {
      if (!MOMENTS.includes("prompt")) return;
      const prompt = parts.map((part) => part.text ?? "").join("\n");
      const text = await ask("UserPromptSubmit", { ...who(sessionID), prompt });
      // The parts of a message are read by their ids: this one comes after the user's.
      const id = `${parts.map((part) => part.id).sort().at(-1) ?? message.id.replace("msg", "prt")}z`;
      if (text) parts.push({ id, sessionID, messageID: message.id, type: "text", text, synthetic: true });
    },
    "tool.execute.after": async ({ tool, sessionID, args }, result) => {
      const isEdit = MOMENTS.includes("edit") && ["edit", "write"].includes(tool);
      if (!isEdit && !(MOMENTS.includes("failure") && tool === "bash" && result.metadata?.exit)) return;
      const text = isEdit
        ? await ask("PreToolUse", { ...who(sessionID), tool_input: args })
        : await ask("PostToolUseFailure", { ...who(sessionID), error: result.output });
      if (text) result.output += "\n" + text;
    },
  };
};
