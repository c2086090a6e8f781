// Written by crystal init; removed by crystal uninstall.
// Tells crystal that a turn has ended. crystal reads the database by itself, and OpenClaw waits for nothing.
import { spawn } from "node:child_process";

const COMMAND = [];

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

export default {
  id: "crystal",
  name: "crystal",
  register(api) {
    api.on("agent_end", (_, context) => tell(context));
  },
};
