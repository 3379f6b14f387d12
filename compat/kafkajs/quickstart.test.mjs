// What a kafkajs quickstart does, end to end, against the broker at BOOTSTRAP.
import test from 'node:test'
import assert from 'node:assert/strict'
import { ChildConsumer, fresh, kafka } from './support.mjs'

async function produce(topic, messages) {
  const producer = kafka.producer()
  await producer.connect()
  try {
    return await producer.send({ topic, messages })
  } finally {
    await producer.disconnect()
  }
}

async function withAdmin(work) {
  const admin = kafka.admin()
  await admin.connect()
  try {
    return await work(admin)
  } finally {
    await admin.disconnect()
  }
}

test('a keyed message to a topic that does not exist yet creates it and can be read', async () => {
  const topic = fresh('auto')
  const [result] = await produce(topic, [{ key: 'pedido-1', value: 'creado' }])
  assert.equal(result.errorCode, 0)
  assert.equal(result.baseOffset, '0')
  const consumer = new ChildConsumer({ topic, group: fresh('g'), mode: 'commit' })
  try {
    const message = await consumer.until((e) => e.event === 'message')
    assert.deepEqual({ key: message.key, value: message.value, offset: message.offset }, { key: 'pedido-1', value: 'creado', offset: '0' })
  } finally {
    await consumer.kill()
  }
})

test('killed before the commit the message comes again, killed after it does not', async () => {
  const topic = fresh('commit')
  const group = fresh('g')
  await withAdmin((admin) => admin.createTopics({ topics: [{ topic, numPartitions: 1 }], waitForLeaders: true }))
  await produce(topic, [{ key: 'a', value: 'first' }])

  const before = new ChildConsumer({ topic, group, mode: 'hang-before-commit' })
  await before.until((e) => e.event === 'message' && e.value === 'first')
  await before.kill()

  const again = new ChildConsumer({ topic, group, mode: 'commit' })
  await again.until((e) => e.event === 'message' && e.value === 'first', 40000)
  await again.until((e) => e.event === 'committed' && e.offset === '0')
  await again.kill()

  await produce(topic, [{ key: 'a', value: 'second' }])
  const after = new ChildConsumer({ topic, group, mode: 'commit' })
  try {
    await after.until((e) => e.event === 'message', 40000)
    assert.deepEqual(after.events.filter((e) => e.event === 'message').map((e) => e.value), ['second'])
  } finally {
    await after.kill()
  }
  const [{ partitions }] = await withAdmin((admin) => admin.fetchOffsets({ groupId: group, topics: [topic] }))
  assert.ok(['1', '2'].includes(partitions[0].offset))
})

test('two members share three partitions and the survivor takes all when one dies', async () => {
  const topic = fresh('share')
  const group = fresh('g')
  await withAdmin((admin) => admin.createTopics({ topics: [{ topic, numPartitions: 3 }], waitForLeaders: true }))
  const one = new ChildConsumer({ topic, group, mode: 'commit' })
  await one.until((e) => e.event === 'join' && e.assignment.length === 3)
  const two = new ChildConsumer({ topic, group, mode: 'commit' })
  try {
    const second = await two.until((e) => e.event === 'join' && e.assignment.length > 0, 40000)
    const first = await one.until((e) => e.event === 'join' && e.assignment.length > 0 && e.assignment.length < 3, 40000)
    assert.deepEqual([...first.assignment, ...second.assignment].sort(), [0, 1, 2])
    await one.kill()
    await two.until((e) => e.event === 'join' && e.assignment.length === 3, 40000)
    await produce(topic, [0, 1, 2].map((partition) => ({ partition, key: `k${partition}`, value: `v${partition}` })))
    for (const partition of [0, 1, 2]) await two.until((e) => e.event === 'message' && e.partition === partition)
  } finally {
    await one.kill()
    await two.kill()
  }
})

test('equal keys land on one partition in order, and offsets by time and by end agree', async () => {
  const topic = fresh('keys')
  await withAdmin((admin) => admin.createTopics({ topics: [{ topic, numPartitions: 4 }], waitForLeaders: true }))
  const results = await produce(topic, Array.from({ length: 200 }, (_, i) => ({ key: `k${i % 10}`, value: String(i) })))
  assert.equal(results.every((r) => r.errorCode === 0), true)
  const ends = await withAdmin((admin) => admin.fetchTopicOffsets(topic))
  assert.equal(ends.reduce((sum, p) => sum + Number(p.high), 0), 200)
  const past = await withAdmin((admin) => admin.fetchTopicOffsetsByTimestamp(topic, 0))
  for (const p of past) assert.equal(p.offset, '0')
})

test('admin: configs, records deleted, partitions added, groups listed and deleted, topic deleted', async () => {
  const topic = fresh('admin')
  await withAdmin(async (admin) => {
    assert.equal(await admin.createTopics({ topics: [{ topic, numPartitions: 2, configEntries: [{ name: 'retention.ms', value: '3600000' }] }] }), true)
    assert.equal(await admin.createTopics({ topics: [{ topic }] }), false)
    const { resources } = await admin.describeConfigs({ includeSynonyms: false, resources: [{ type: 2, name: topic, configNames: ['retention.ms'] }] })
    assert.equal(resources[0].configEntries[0].configValue, '3600000')
    await admin.alterConfigs({ validateOnly: false, resources: [{ type: 2, name: topic, configEntries: [{ name: 'retention.ms', value: '7200000' }] }] })
    await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] })
    const metadata = await admin.fetchTopicMetadata({ topics: [topic] })
    assert.equal(metadata.topics[0].partitions.length, 3)
    await produce(topic, [{ partition: 0, value: 'x' }, { partition: 0, value: 'y' }])
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '1' }] })
    const offsets = await admin.fetchTopicOffsets(topic)
    assert.equal(offsets.find((p) => p.partition === 0).low, '1')
    const group = fresh('g')
    const consumer = new ChildConsumer({ topic, group, mode: 'commit' })
    await consumer.until((e) => e.event === 'committed')
    const described = await admin.describeGroups([group])
    assert.equal(described.groups[0].state, 'Stable')
    await consumer.kill()
    assert.ok((await admin.listGroups()).groups.some((g) => g.groupId === group))
    await assert.doesNotReject(async () => {
      for (let i = 0; ; i++) {
        try { return await admin.deleteGroups([group]) } catch (error) { if (i === 40) throw error; await new Promise((r) => setTimeout(r, 500)) }
      }
    })
    await admin.deleteTopics({ topics: [topic] })
    assert.equal((await admin.listTopics()).includes(topic), false)
  })
})
