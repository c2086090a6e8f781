// Written by crystal init; removed by crystal uninstall.
// Tells crystal that a turn has ended. crystal reads the database by itself; the process may end at once.
import { spawn } from "node:child_process";

const COMMAND = [];

export const Crystal = async ({ directory }) => ({
  event: async ({ event }) => {
    if (event.type !== "session.idle") return;
    try {
      const options = { detached: true, stdio: ["pipe", "ignore", "ignore"] };
      const hook = spawn(COMMAND[0], [...COMMAND.slice(1), "--event", "Stop"], options);
      hook.on("error", () => {});
      hook.stdin.on("error", () => {});
      hook.stdin.end(JSON.stringify({ session_id: event.properties.sessionID, cwd: directory }));
      hook.unref();
    } catch {
      // crystal sync finds the turn all the same
    }
  },
});
