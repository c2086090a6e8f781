// Written by crystal init; removed by crystal uninstall.
// Tells crystal that a turn has ended. crystal reads the session's file by itself, and Pi waits for nothing.
import { spawn } from "node:child_process";

const COMMAND = [];

function tell(event: string, context: any) {
  try {
    const manager = context.sessionManager;
    const options = { detached: true, stdio: ["pipe", "ignore", "ignore"] } as any;
    const hook = spawn(COMMAND[0], [...COMMAND.slice(1), "--event", event], options);
    hook.on("error", () => {});
    hook.stdin!.on("error", () => {});
    hook.stdin!.end(
      JSON.stringify({
        session_id: manager?.getSessionId?.(),
        transcript_path: manager?.getSessionFile?.(),
        cwd: context.cwd,
      }),
    );
    hook.unref();
  } catch {
    // crystal sync finds the turn all the same
  }
}

export default function (pi: any) {
  pi.on("agent_end", (_: unknown, context: any) => tell("Stop", context));
  pi.on("session_shutdown", (_: unknown, context: any) => tell("SessionEnd", context));
}
