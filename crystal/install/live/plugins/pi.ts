// Written by crystal init; removed by crystal uninstall.
// Tells crystal that a turn has ended, and Pi's model what crystal knows. crystal reads the session's file by itself.
import { spawn } from "node:child_process";

const COMMAND = [];
const MOMENTS = [];
const HURRY_MS = 2000;
const ANSWER_MS = 3000;

function start(event: string, context: any, more: object, options: any) {
  const manager = context.sessionManager;
  const hook = spawn(COMMAND[0], [...COMMAND.slice(1), "--event", event], options);
  hook.on("error", () => {});
  hook.stdin!.on("error", () => {});
  hook.stdin!.end(
    JSON.stringify({
      session_id: manager?.getSessionId?.(),
      transcript_path: manager?.getSessionFile?.(),
      cwd: context.cwd,
      ...more,
    }),
  );
  return hook;
}

function tell(event: string, context: any) {
  try {
    start(event, context, {}, { detached: true, stdio: ["pipe", "ignore", "ignore"] }).unref();
  } catch {
    // crystal sync finds the turn all the same
  }
}

// Returns what crystal tells the model; empty if that is nothing, or not said in time: then its process is ended.
function ask(event: string, context: any, more: object): Promise<string> {
  return new Promise<string>((resolve, reject) => {
    const hook = start(event, context, more, { stdio: ["pipe", "pipe", "ignore"], timeout: HURRY_MS });
    let text = "";
    const end = setTimeout(() => {
      hook.kill("SIGKILL");
      hook.stdout!.destroy();
    }, ANSWER_MS);
    hook.on("error", reject);
    hook.stdout!.on("data", (data: any) => (text += data));
    hook.stdout!.on("close", () => resolve(text));
    hook.on("close", () => clearTimeout(end));
  })
    .then((text) => JSON.parse(text).hookSpecificOutput?.additionalContext ?? "")
    .catch(() => "");
}

export default function (pi: any) {
  let begun: unknown;
  pi.on("agent_end", (_: unknown, context: any) => tell("Stop", context));
  pi.on("session_shutdown", (_: unknown, context: any) => tell("SessionEnd", context));
  pi.on("before_agent_start", async ({ prompt }: any, context: any) => {
    const session = context.sessionManager?.getSessionId?.();
    const isStart = MOMENTS.includes("start") && begun !== session;
    begun = session;
    const asked = [
      isStart ? ask("SessionStart", context, {}) : "",
      MOMENTS.includes("prompt") ? ask("UserPromptSubmit", context, { prompt }) : "",
    ];
    const content = (await Promise.all(asked)).filter(Boolean).join("\n");
    return content ? { message: { customType: "crystal", content, display: false } } : undefined;
  });
  pi.on("tool_result", async (event: any, context: any) => {
    const isEdit = MOMENTS.includes("edit") && ["edit", "write"].includes(event.toolName) && !event.isError;
    if (!isEdit && !(MOMENTS.includes("failure") && event.toolName === "bash" && event.isError)) return;
    const error = event.content.map((part: any) => part.text ?? "").join("\n");
    const text = isEdit
      ? await ask("PreToolUse", context, { tool_input: event.input })
      : await ask("PostToolUseFailure", context, { error });
    return text ? { content: [...event.content, { type: "text", text }] } : undefined;
  });
}
