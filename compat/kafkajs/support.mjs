// Shared by the kafkajs tests: the broker's address, fresh names, and consumers that run as their own process so that they can be killed.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { randomUUID } from 'node:crypto'
import kafkajs from 'kafkajs'

export const { Kafka, logLevel } = kafkajs
process.env.KAFKAJS_NO_PARTITIONER_WARNING = '1'

export const brokers = (process.env.BOOTSTRAP ?? '127.0.0.1:9092').split(',')
export const kafka = new Kafka({ clientId: 'compat', brokers, logLevel: logLevel.NOTHING })
export const fresh = (name) => `${name}-${randomUUID().slice(0, 8)}`

/// Starts a group consumer as a child process. `mode`: what it does after each message.
/// Yields its lines: {event: 'join', assignment}, {event: 'message', partition, offset, key, value}, {event: 'committed', offset}.
export class ChildConsumer {
  constructor({ topic, group, mode, sessionTimeout = 6000 }) {
    this.events = []
    this.waiting = []
    const path = fileURLToPath(new URL('./consumer-process.mjs', import.meta.url))
    this.child = spawn(process.execPath, [path], {
      env: { ...process.env, BOOTSTRAP: brokers.join(','), TOPIC: topic, GROUP: group, MODE: mode, SESSION_TIMEOUT: String(sessionTimeout) },
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    createInterface({ input: this.child.stdout }).on('line', (line) => {
      this.events.push(JSON.parse(line))
      for (const wake of this.waiting.splice(0)) wake()
    })
  }

  /// The first event, past or future, that fits; fails after `ms`.
  async until(fits, ms = 30000) {
    const deadline = Date.now() + ms
    for (;;) {
      const found = this.events.find(fits)
      if (found) return found
      const left = deadline - Date.now()
      if (left <= 0) throw new Error(`no such event within ${ms} ms; had ${JSON.stringify(this.events)}`)
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, left)
        this.waiting.push(() => { clearTimeout(timer); resolve() })
      })
    }
  }

  async kill() {
    if (this.child.exitCode === null && this.child.signalCode === null) {
      this.child.kill('SIGKILL')
      await once(this.child, 'exit')
    }
  }
}
