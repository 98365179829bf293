// Written by `prompt-rag install opencode` and removed by `prompt-rag uninstall opencode`.
//
// Asks prompt-rag about each prompt and shows the model what it answers, for this turn only. Nothing
// here may fail a prompt: whatever goes wrong, there are no notes. `setup` is what OpenCode 2 calls,
// `server` what OpenCode 1 calls.
import { spawn } from "node:child_process"

const program = []
const patience = 2000 // milliseconds; the program itself gives up earlier

function run(payload) {
  return new Promise((resolve) => {
    let out = ""
    const child = spawn(program[0], program.slice(1), { stdio: ["pipe", "pipe", "ignore"] })
    const timer = setTimeout(() => child.kill(), patience)
    const done = (text) => {
      clearTimeout(timer)
      resolve(text)
    }
    child.on("error", () => done(""))
    child.on("close", () => done(out))
    child.stdin.on("error", () => {})
    child.stdout.setEncoding("utf8")
    child.stdout.on("data", (piece) => (out += piece))
    child.stdin.end(JSON.stringify(payload))
  })
}

const notes = new Map() // what the current turn of each session is shown

async function asked(session, prompt, cwd) {
  notes.delete(session)
  try {
    const payload = { hook_event_name: "UserPromptSubmit", session_id: session, prompt, cwd }
    const answer = JSON.parse((await run(payload)) || "{}")
    const text = answer.hookSpecificOutput?.additionalContext
    if (text) notes.set(session, text)
  } catch {}
}

function edited(path, cwd) {
  if (path) run({ hook_event_name: "FileChanged", file_path: path, cwd })
}

export default {
  id: "prompt-rag",

  async setup(context) {
    await context.session.hook("prompt", (event) =>
      asked(event.sessionID, event.prompt?.text ?? "", process.cwd()),
    )
    await context.session.hook("context", (event) => {
      const text = notes.get(event.sessionID)
      if (text) event.system.push({ type: "text", text })
    })
  },

  async server(input) {
    const cwd = input?.directory ?? process.cwd()
    return {
      "chat.message": async (message, output) => {
        const typed = (output?.parts ?? []).filter((part) => part.type === "text" && !part.synthetic)
        await asked(message.sessionID, typed.map((part) => part.text).join("\n"), cwd)
      },
      "experimental.chat.system.transform": async (request, output) => {
        const text = notes.get(request?.sessionID)
        if (text) output.system.push(text)
      },
      event: async ({ event }) => {
        if (event?.type === "file.edited") edited(event.properties?.file, cwd)
      },
    }
  },
}
