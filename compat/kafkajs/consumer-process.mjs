// A group consumer with autoCommit: false that commits offset + 1 after each message, or hangs before it commits.
import { Kafka, logLevel, brokers } from './support.mjs'

const { TOPIC, GROUP, MODE, SESSION_TIMEOUT } = process.env
const say = (event) => process.stdout.write(JSON.stringify(event) + '\n')
const kafka = new Kafka({ clientId: `child-${process.pid}`, brokers, logLevel: logLevel.NOTHING })
const consumer = kafka.consumer({ groupId: GROUP, sessionTimeout: Number(SESSION_TIMEOUT), heartbeatInterval: 500, rebalanceTimeout: 10000, maxWaitTimeInMs: 200 })
consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => say({ event: 'join', member: payload.memberId, assignment: payload.memberAssignment[TOPIC] ?? [] }))
await consumer.connect()
await consumer.subscribe({ topics: [TOPIC], fromBeginning: true })
await consumer.run({
  autoCommit: false,
  eachMessage: async ({ topic, partition, message }) => {
    say({ event: 'message', partition, offset: message.offset, key: message.key?.toString() ?? null, value: message.value?.toString() ?? null })
    if (MODE === 'hang-before-commit') await new Promise(() => {})
    await consumer.commitOffsets([{ topic, partition, offset: (BigInt(message.offset) + 1n).toString() }])
    say({ event: 'committed', partition, offset: message.offset })
  },
})
