"""Produce, Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords, DescribeProducers."""
import time

from codec import TIME, batch, legacy_message, record
from scenes_metadata import UNKNOWN_ID

ZERO = 'A' * 22


def produce_body(version, parts, acks=-1, transactional=None):
    """`parts`: (name, id, [(partition, records)])."""
    return {'TransactionalId': transactional, 'Acks': acks, 'TimeoutMs': 5000, 'TopicData': [
        {'Name': name, 'TopicId': identity, 'PartitionData': [{'Index': index, 'Records': data} for index, data in partitions]} for name, identity, partitions in parts]}


def produce(s):
    ids = {'prod': s.create('prod', 2), 'prod-compact': s.create('prod-compact', 1, cleanup_policy='compact'),
           'prod-append-time': s.create('prod-append-time', 1, message_timestamp_type='LogAppendTime'), 'prod-small': s.create('prod-small', 1, max_message_bytes=200),
           'prod-strict': s.create('prod-strict', 1, message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=1000), 'prod-isr': s.create('prod-isr', 1, min_insync_replicas=2),
           'prod-gzip': s.create('prod-gzip', 1, compression_type='gzip'), 'prod-compact-gzip': s.create('prod-compact-gzip', 1, cleanup_policy='compact', compression_type='gzip'),
           'prod-segment': s.create('prod-segment', 1, segment_bytes=1048576, max_message_bytes=3000000)}
    all_versions = range(3, 14)

    def ask(step, name, data, partition=0, versions=(3, 7, 8, 9, 12, 13), **more):
        s.each(step, 'Produce', lambda v: produce_body(v, [(name, ids.get(name, UNKNOWN_ID), [(partition, data)])], **more), versions=versions)
    good = batch([record(0, b'k', b'v'), record(1, b'k', b'w')])
    ask('good', 'prod', good, versions=all_versions)
    ask('acks-1', 'prod', good, acks=1, versions=all_versions)
    for acks in (2, -2, 100):
        ask(f'acks-{acks}', 'prod', good, acks=acks)
        ask(f'acks-{acks}-unknown', 'prod-no', good, acks=acks)
    ask('unknown', 'prod-no', good, versions=all_versions)
    ask('unknown-partition', 'prod', good, partition=7, versions=all_versions)
    ask('negative-partition', 'prod', good, partition=-1)
    ask('bad-name', 'a b', good)
    s.each('zero-id', 'Produce', produce_body(13, [('', ZERO, [(0, good)])]), versions=[13])
    s.each('metadata-id', 'Produce', produce_body(13, [('', 'A' * 20 + 'AQ', [(0, good)])]), versions=[13])
    s.each('metadata-topic', 'Produce', produce_body(12, [('__cluster_metadata', ZERO, [(0, good)])]), versions=[12])
    ids['__consumer_offsets'] = s.topic_id('__consumer_offsets')
    ask('internal', '__consumer_offsets', good)
    s.each('nothing', 'Produce', produce_body(0, []))
    s.each('no-partitions', 'Produce', lambda v: produce_body(v, [('prod', ids['prod'], [])]))
    s.each('mixed', 'Produce', lambda v: produce_body(v, [('prod', ids['prod'], [(0, good), (7, good), (1, batch(bad_crc=True))]), ('prod-no', UNKNOWN_ID, [(0, good)])]))
    s.each('same-partition-twice', 'Produce', lambda v: produce_body(v, [('prod', ids['prod'], [(0, good), (0, good)])]), versions=[9, 13])
    s.each('same-topic-twice', 'Produce', lambda v: produce_body(v, [('prod', ids['prod'], [(0, good)]), ('prod', ids['prod'], [(1, good)])]), versions=[9, 13])
    bad = {
        # Not null: the reference never answers that.
        'empty': b'', 'short': b'\0' * 10, 'zeros': b'\0' * 61, 'bad-crc': batch(bad_crc=True), 'two-batches': good + good, 'cut': good[:-1], 'trailing': good + b'\0' * 5,
        'magic-0': legacy_message(0), 'magic-1': legacy_message(1), 'magic-3': batch(magic=3), 'magic--1': batch(magic=-1), 'count-more': batch(count=5), 'count-less': batch([record(0), record(1)], count=1),
        'count-0': batch([], count=0), 'count-0-body': batch([record(0)], count=0), 'count-negative': batch([record(0)], count=-1), 'last-delta': batch([record(0)], last_delta=4),
        'last-delta-negative': batch([record(0)], last_delta=-1), 'base-offset': batch([record(0)], base=5), 'deltas': batch([record(0), record(5)]), 'deltas-swapped': batch([record(1), record(0)]),
        'record-too-long': batch(body=b'\x7f' + record(0)[1:], count=1), 'record-negative': batch(body=b'\x01' + record(0)[1:], count=1), 'negative-key': batch(body=b'\x10\0\0\0\x03\x02v\0\0', count=1),
        'negative-headers': batch(body=b'\x0e\0\0\0\x01\x02v\x01', count=1), 'garbage-body': batch(body=b'\xff' * 20, count=1), 'not-gzip': batch([record(0)], attributes=0).replace(b'\0\0\0\0\0\0', b'\0\0\0\0\0\0'),
        'flagged-gzip': batch(body=record(0), count=1, attributes=1), 'flagged-lz4': batch(body=record(0), count=1, attributes=3), 'flagged-snappy': batch(body=record(0), count=1, attributes=2),
        'flagged-zstd': batch(body=record(0), count=1, attributes=4), 'codec-5': batch(body=record(0), count=1, attributes=5), 'codec-7': batch(body=record(0), count=1, attributes=7),
        'control': batch([record(0, b'\0\0\0\0', b'\0' * 6)], attributes=0x20), 'transactional': batch(attributes=0x10), 'transactional-producer': batch(attributes=0x10, producer=(999999, 0, 0)),
        'control-transactional': batch([record(0, b'\0\0\0\0', b'\0' * 6)], attributes=0x30, producer=(5, 0, -1)), 'horizon': batch(attributes=0x40), 'unused-attributes': batch(attributes=0x380),
        'append-time-flag': batch(attributes=8), 'time-negative': batch(time=-1), 'time-minus-2': batch(time=-2), 'time-future': batch(time=4_000_000_000_000), 'time-max-wrong': batch(max_time=TIME + 5000),
        'time-max-less': batch([record(0, time_delta=10)], max_time=TIME), 'epoch': batch(epoch=9), 'header-nulls': batch([record(0, None, None, headers=[(b'h', None), (b'', b'')])]),
        'producer-no-sequence': batch(producer=(1, 0, -1)), 'no-producer-sequence': batch(producer=(-1, -1, 5)), 'producer-negative-epoch': batch(producer=(1, -1, 0)),
        'length-negative': good[:8] + b'\xff\xff\xff\xff' + good[12:], 'length-small': good[:8] + b'\0\0\0\x0d' + good[12:], 'gzip': batch([record(0, b'a'), record(1, b'b')], attributes=1),
        'gzip-deltas': batch([record(1), record(3)], attributes=1), 'gzip-count': batch([record(0)], attributes=1, count=3, last_delta=2),
    }
    for name, data in bad.items():
        for topic in ('prod', 'prod-append-time', 'prod-gzip'):
            ask(f'{topic}-{name}', topic, data, versions=(3, 8, 13) if topic == 'prod' else (9,))
    ask('compact-no-key', 'prod-compact', batch([record(0, b'k'), record(1), record(2, b'k'), record(3)]), versions=all_versions)
    ask('compact-gzip-no-key', 'prod-compact', batch([record(0, b'k'), record(1), record(2, b'k'), record(3)], attributes=1))
    ask('compact-converted-no-key', 'prod-compact-gzip', batch([record(0, b'k'), record(1)]))
    ask('compact-key', 'prod-compact', batch([record(0, b'k')]))
    ask('compact-empty-key', 'prod-compact', batch([record(0, b'')]))
    ask('small-too-large', 'prod-small', batch([record(0, None, b'x' * 300)]), versions=all_versions)
    ask('small-fits', 'prod-small', batch([record(0, None, b'x' * 100)]))
    ask('small-gzip', 'prod-small', batch([record(0, None, b'x' * 3000)], attributes=1))
    ask('too-large', 'prod', batch([record(0, None, b'x' * 1048600)]), versions=(8, 13))
    ask('segment-too-large', 'prod-segment', batch([record(0, None, b'x' * 1500000)]), versions=(8, 13))
    ask('strict-old', 'prod-strict', batch([record(0), record(1), record(2)]), versions=all_versions)
    ask('strict-gzip', 'prod-strict', batch([record(0), record(1)], attributes=1))
    ask('strict-future', 'prod-strict', batch([record(0), record(1)], time=4_000_000_000_000))
    now = int(time.time() * 1000)
    ask('strict-second', 'prod-strict', batch([record(0), record(1, time_delta=-90_000_000)], time=now), versions=())
    ask('isr', 'prod-isr', good)
    ask('isr-acks-1', 'prod-isr', good, acks=1)
    for version in (3, 9, 13):
        for step, name, data in (('good', 'prod', good), ('unknown', 'prod-no', good), ('bad', 'prod', bad['bad-crc'])):
            s.broker.send('Produce', version, produce_body(version, [(name, ids.get(name, UNKNOWN_ID), [(0, data)])], acks=0))
            time.sleep(0.05)
            try:
                s.broker.send('ApiVersions', 0, {})
                after = s.broker.receive('ApiVersions', 0)
            except OSError:
                after = 'CLOSED'
                s.broker.close()
            s.note(f'acks-0-{step}', 'Produce', version, 'OPEN' if isinstance(after, dict) else after)
    ask('transactional-id', 'prod', good, transactional='t', versions=())


def idempotent(s):
    ids = {'idem': s.create('idem', 2)}

    def ask(step, producer, epoch, sequence, count=1, partition=0, version=12, **more):
        data = batch([record(n) for n in range(count)], producer=(producer, epoch, sequence), **more)
        s.note(step, 'Produce', version, s.ask('Produce', version, produce_body(version, [('idem', ids['idem'], [(partition, data)])])))
    ask('first', 4000, 0, 0, 2)
    ask('second', 4000, 0, 2, 3)
    ask('second-again', 4000, 0, 2, 3)
    ask('first-again', 4000, 0, 0, 2)
    ask('part-of-second', 4000, 0, 2, 2)
    ask('across', 4000, 0, 1, 3)
    ask('gap', 4000, 0, 6)
    ask('gap-v3', 4000, 0, 6, version=3)
    for n in range(6):
        ask(f'next-{n}', 4000, 0, 5 + n)
    ask('too-old', 4000, 0, 5)
    ask('oldest-kept', 4000, 0, 6)
    ask('last', 4000, 0, 10)
    ask('epoch-1-gap', 4000, 1, 5)
    ask('epoch-1', 4000, 1, 0)
    ask('epoch-0', 4000, 0, 11)
    ask('epoch-0-duplicate', 4000, 0, 10)
    ask('epoch-0-v3', 4000, 0, 11, version=3)
    ask('unknown-sequence', 4001, 0, 5)
    ask('unknown-sequence-again', 4001, 0, 5)
    ask('wrap', 4002, 0, 2147483646, 2)
    ask('wrapped', 4002, 0, 0)
    ask('wrap-inside', 4003, 0, 2147483646, 4)
    ask('wrap-inside-next', 4003, 0, 2)
    ask('other-partition', 4000, 0, 0, partition=1)
    ask('gzip', 4004, 0, 0, 3, attributes=1)
    ask('gzip-again', 4004, 0, 0, 3, attributes=1)
    for version in (0,):
        s.each('producers', 'DescribeProducers', {'Topics': [{'Name': 'idem', 'PartitionIndexes': [0, 1, 2, -1]}, {'Name': 'idem-no', 'PartitionIndexes': [0]}, {'Name': '', 'PartitionIndexes': [0]},
                                                             {'Name': 'a b', 'PartitionIndexes': [0]}, {'Name': 'idem', 'PartitionIndexes': []}, {'Name': '__cluster_metadata', 'PartitionIndexes': [0]}]},
               edit=lambda a: [p['ActiveProducers'].sort(key=lambda x: x['ProducerId']) for t in a['Topics'] for p in t['Partitions']] and None)
    s.each('producers-none', 'DescribeProducers', {'Topics': []})


def fetch_body(version, parts, session=(0, -1), forgotten=(), **more):
    """`parts`: (name, id, [(partition, {fields})])."""
    body = {'ReplicaId': -1, 'MaxWaitMs': 0, 'MinBytes': 0, 'SessionId': session[0], 'SessionEpoch': session[1], 'Topics': [
        {'Topic': name, 'TopicId': identity, 'Partitions': [dict({'Partition': index, 'FetchOffset': 0, 'PartitionMaxBytes': 1 << 20}, **fields) for index, fields in partitions]}
        for name, identity, partitions in parts], 'ForgottenTopicsData': [{'Topic': name, 'TopicId': identity, 'Partitions': list(partitions)} for name, identity, partitions in forgotten]}
    body.update(more)
    return body


def fetch(s):
    f = s.create('fetch', 3)
    g = s.create('fetch-2', 1)
    for n in range(3):
        s.produce('fetch', batch([record(0, b'k', b'x' * 100), record(1, b'k', b'y' * 100)], time=TIME + n))
    s.produce('fetch', batch([record(0, b'k', b'x' * 100)]), partition=1)
    s.produce('fetch-2', batch([record(0, b'k', b'z')], attributes=1))
    one = lambda **fields: [('fetch', f, [(0, fields)])]

    def ask(step, parts, versions=None, **more):
        s.each(step, 'Fetch', lambda v: fetch_body(v, parts, **more), versions=versions)
    ask('first', one())
    ask('none', [])
    ask('no-partitions', [('fetch', f, [])])
    for offset in (1, 2, 5, 6, 7, 100, -1, -2):
        ask(f'offset-{offset}', one(FetchOffset=offset), versions=(4, 11, 12, 16, 18))
    ask('offset-100-wait', one(FetchOffset=100), MaxWaitMs=20000, MinBytes=1, versions=(4, 12, 18))
    ask('all', [('fetch', f, [(2, {}), (0, {}), (1, {})]), ('fetch-2', g, [(0, {})])])
    ask('unknown-partition', [('fetch', f, [(9, {}), (0, {}), (-1, {})])])
    ask('unknown-topic', [('fetch-no', UNKNOWN_ID, [(0, {}), (1, {})]), ('fetch', f, [(0, {})])])
    ask('unknown-wait', [('fetch-no', UNKNOWN_ID, [(0, {})])], MaxWaitMs=20000, MinBytes=1)
    ask('unknown-zero-id', [('', ZERO, [(0, {})])], versions=(12, 13, 18))
    ask('metadata-topic', [('__cluster_metadata', 'A' * 20 + 'AQ', [(0, {})])], versions=(12, 13, 18), )
    ask('twice', [('fetch', f, [(0, {}), (0, {'FetchOffset': 2})])], versions=(4, 12, 13))
    ask('topic-twice', [('fetch', f, [(0, {})]), ('fetch-2', g, [(0, {})]), ('fetch', f, [(1, {})])], versions=(4, 12, 13))
    for size in (0, 1, 100, 300, 500, 700, -1):
        ask(f'partition-bytes-{size}', [('fetch', f, [(0, {'PartitionMaxBytes': size}), (1, {'PartitionMaxBytes': size})])], versions=(4, 12, 18))
        ask(f'bytes-{size}', [('fetch', f, [(2, {}), (0, {}), (1, {})])], MaxBytes=size, versions=(4, 12, 18))
    ask('min-bytes', one(), MinBytes=100000, MaxWaitMs=200, versions=(4, 12, 18))
    ask('min-bytes-empty', one(FetchOffset=6), MinBytes=1, MaxWaitMs=100, versions=(4, 12, 18))
    ask('negative-wait', one(FetchOffset=6), MinBytes=1, MaxWaitMs=-5, versions=(4, 12))
    ask('negative-min', one(FetchOffset=6), MinBytes=-5, MaxWaitMs=5000, versions=(4, 12))
    for level in (0, 1, 2, -1):
        ask(f'isolation-{level}', one(), IsolationLevel=level, versions=(4, 12, 18))
        ask(f'isolation-{level}-end', one(FetchOffset=6), IsolationLevel=level, versions=(4, 12, 18))
        ask(f'isolation-{level}-out', one(FetchOffset=60), IsolationLevel=level, versions=(4, 12, 18))
        ask(f'isolation-{level}-unknown', [('fetch', f, [(9, {})])], IsolationLevel=level, versions=(4, 12, 18))
        ask(f'isolation-{level}-empty', [('fetch', f, [(2, {})])], IsolationLevel=level, versions=(4, 12, 18))
    for epoch in (-1, 0, 1, 5, -2):
        ask(f'epoch-{epoch}', one(CurrentLeaderEpoch=epoch), versions=(9, 12, 16, 18))
        ask(f'last-epoch-{epoch}', one(LastFetchedEpoch=epoch, FetchOffset=3), versions=(12, 16, 18))
        ask(f'last-epoch-{epoch}-end', one(LastFetchedEpoch=epoch, FetchOffset=6), versions=(12, 18))
        ask(f'last-epoch-{epoch}-out', one(LastFetchedEpoch=epoch, FetchOffset=9), versions=(12, 18))
        ask(f'both-epochs-{epoch}', one(LastFetchedEpoch=epoch, CurrentLeaderEpoch=0, FetchOffset=9), versions=(12, 18))
    ask('rack', one(), RackId='r', versions=(11, 18))
    ask('cluster', one(), ClusterId=s.cluster_id, versions=(12, 18))
    ask('other-cluster', one(), ClusterId='other', versions=(12, 18))
    for replica in (0, 1, 2, -2, -3):
        more = lambda v: {'ReplicaId': replica} if v < 15 else {'ReplicaState': {'ReplicaId': replica, 'ReplicaEpoch': 0}}
        s.each(f'replica-{replica}', 'Fetch', lambda v: fetch_body(v, one(), **more(v)), versions=(4, 12, 15, 18))
    s.ask('DeleteRecords', 1, {'TimeoutMs': 10000, 'Topics': [{'Name': 'fetch', 'Partitions': [{'PartitionIndex': 0, 'Offset': 3}]}]})
    for offset in (0, 2, 3, 4):
        ask(f'trimmed-{offset}', one(FetchOffset=offset), versions=(4, 5, 12, 18))


def sessions(s):
    f = s.create('sess', 3)
    g = s.create('sess-2', 1)
    n = 0
    for version in (7, 11, 12, 13, 15, 18):
        known = {}

        def ask(step, parts, session, forgotten=(), version=version, **more):
            answer = s.ask('Fetch', version, fetch_body(version, parts, session=(known.get('id', 0) if session[0] == 'my' else session[0], session[1]), forgotten=forgotten, **more))
            if isinstance(answer, dict):
                if answer['SessionId'] and answer['SessionId'] != known.get('id'):
                    known['id'] = answer['SessionId']
                answer['SessionId'] = '<mine>' if answer['SessionId'] and answer['SessionId'] == known.get('id') else answer['SessionId']
            s.note(step, 'Fetch', version, answer)
        zero = [('sess', f, [(0, {}), (1, {})])]
        ask('unknown-id', zero, (12345, 1))
        ask('unknown-id-epoch-0', zero, (12345, 0))
        ask('unknown-id-final', zero, (12345, -1))
        ask('id-0-epoch-1', zero, (0, 1))
        ask('full-empty', [], (0, 0))
        ask('full', zero, (0, 0))
        ask('next-empty', [], ('my', 1))
        s.produce('sess', batch([record(0)]), partition=n % 2)
        high = {'FetchOffset': 0}
        ask('next-with-data', [], ('my', 2))
        ask('again', [], ('my', 3))
        ask('same-epoch', [], ('my', 3))
        ask('epoch-ahead', [], ('my', 9))
        ask('moved', [('sess', f, [(0, {'FetchOffset': 100}), (1, {'FetchOffset': 100})])], ('my', 4))
        ask('error-repeats', [], ('my', 5))
        ask('add', [('sess', f, [(0, high), (2, {})]), ('sess-2', g, [(0, {})])], ('my', 6))
        ask('add-unknown', [('sess-no', UNKNOWN_ID, [(0, {})]), ('sess', f, [(9, {})])], ('my', 7))
        ask('unknown-repeats', [], ('my', 8))
        ask('forget', [], ('my', 9), forgotten=[('sess', f, [0, 1]), ('sess-no', UNKNOWN_ID, [0])])
        ask('forget-absent', [], ('my', 10), forgotten=[('sess', f, [0]), ('nope', UNKNOWN_ID, [0])])
        ask('after-forget', [('sess-2', g, [(0, {'FetchOffset': 0})])], ('my', 11))
        ask('forget-all', [], ('my', 12), forgotten=[('sess', f, [2, 9]), ('sess-2', g, [0])])
        ask('after-forget-all', [], ('my', 13))
        ask('full-again', zero, ('my', 0))
        ask('old-next', [], ('my', 1))
        ask('close', zero, ('my', -1))
        ask('closed', [], ('my', 2))
        ask('sessionless', zero, (0, -1))
        n += 1
    if True:
        known = {}
        name = 'sess-gone'
        gone = s.create(name)
        answer = s.ask('Fetch', 13, fetch_body(13, [(name, gone, [(0, {})])], session=(0, 0)))
        identity = answer['SessionId']
        answer['SessionId'] = '<mine>'
        s.note('gone-before', 'Fetch', 13, answer)
        s.ask('DeleteTopics', 5, {'TopicNames': [name], 'TimeoutMs': 30000})
        s.gone(name), s.settle()
        for epoch in (1, 2):
            answer = s.ask('Fetch', 13, fetch_body(13, [], session=(identity, epoch)))
            answer['SessionId'] = '<mine>'
            s.note(f'gone-{epoch}', 'Fetch', 13, answer)
        answer = s.ask('Fetch', 12, fetch_body(12, [], session=(identity, 3)))
        answer['SessionId'] = '<mine>' if answer['SessionId'] == identity else answer['SessionId']
        s.note('other-naming', 'Fetch', 12, answer)


def parked(s):
    """What wakes a waiting fetch."""
    from wire import Connection
    for version in (4, 12, 13, 18):
        name = f'park-{version}'
        identity = s.create(name)
        waiting = Connection(s.broker_port)
        waiting.send('Fetch', version, fetch_body(version, [(name, identity, [(0, {})])], MaxWaitMs=15000, MinBytes=1))
        time.sleep(0.15)
        started = time.time()
        s.produce(name, batch([record(0)]))
        s.note('data', 'Fetch', version, waiting.receive('Fetch', version))
        s.note('data-at-once', 'Fetch', version, time.time() - started < 3)
        waiting.send('Fetch', version, fetch_body(version, [(name, identity, [(0, {'FetchOffset': 1})])], MaxWaitMs=3000, MinBytes=1))
        time.sleep(0.15)
        started = time.time()
        s.ask('DeleteTopics', 5, {'TopicNames': [name], 'TimeoutMs': 30000})
        s.note('deleted', 'Fetch', version, waiting.receive('Fetch', version))
        s.note('deleted-at-once', 'Fetch', version, time.time() - started < 2)
        waiting.close()


def list_offsets(s):
    s.create('offs', 2)
    s.create('offs-append', 1, message_timestamp_type='LogAppendTime')
    for times in ((100, 200, 300), (250, 400), (50,), (400,)):
        s.produce('offs', batch([record(n, None, b'v', time_delta=t - times[0]) for n, t in enumerate(times)], time=TIME + times[0], max_time=TIME + max(times)))
    s.produce('offs', batch([record(0, time_delta=0), record(1, time_delta=500)], time=TIME + 500, max_time=TIME + 1000, attributes=1))
    s.produce('offs-append', batch([record(0), record(1)]))

    def ask(step, partitions, versions=None, name='offs', **more):
        s.each(step, 'ListOffsets', dict({'ReplicaId': -1, 'TimeoutMs': 5000, 'Topics': [
            {'Name': name, 'Partitions': [{'PartitionIndex': index, 'Timestamp': time, **extra} for index, time, extra in partitions]}]}, **more), versions=versions)
    for level in (0, 1):
        for timestamp in (-1, -2, -3, -4, -5, -6, -7, -100, 0, TIME, TIME + 100, TIME + 101, TIME + 250, TIME + 300, TIME + 301, TIME + 400, TIME + 401, TIME + 501, TIME + 1000, TIME + 1001, 1 << 62):
            ask(f'{level}/time-{timestamp}', [(0, timestamp, {})], IsolationLevel=level)
        for timestamp in (-1, -2, -3, -4, -5, -6, 0):
            ask(f'{level}/empty-{timestamp}', [(1, timestamp, {})], IsolationLevel=level, versions=(1, 4, 7, 8, 9, 11))
            ask(f'{level}/append-{timestamp}', [(0, timestamp, {})], IsolationLevel=level, versions=(1, 4, 7, 8, 9, 11), name='offs-append')
    for timestamp in (-1, -2, 0, -3, -7):
        ask(f'unknown-partition-{timestamp}', [(9, timestamp, {}), (0, timestamp, {}), (-1, timestamp, {})], versions=(1, 4, 7, 11))
        ask(f'unknown-topic-{timestamp}', [(0, timestamp, {})], name='offs-no', versions=(1, 4, 11))
        for epoch in (-1, 0, 1, -2):
            ask(f'epoch-{epoch}-{timestamp}', [(0, timestamp, {'CurrentLeaderEpoch': epoch})], versions=(4, 11))
        for replica in (0, 1, 2, -2, -3):
            ask(f'replica-{replica}-{timestamp}', [(0, timestamp, {})], ReplicaId=replica, versions=(1, 11))
    ask('twice', [(0, -1, {}), (0, -2, {})], versions=(1, 4, 11))
    ask('twice-and-other', [(0, -1, {}), (1, -1, {}), (0, -2, {})])
    ask('bad-name', [(0, -1, {})], name='a b')
    ask('level-2', [(0, -1, {})], IsolationLevel=2, versions=(2, 11))
    s.each('none', 'ListOffsets', {'ReplicaId': -1, 'Topics': []})
    s.each('no-partitions', 'ListOffsets', {'ReplicaId': -1, 'Topics': [{'Name': 'offs', 'Partitions': []}]})
    s.each('topic-twice', 'ListOffsets', {'ReplicaId': -1, 'Topics': [{'Name': 'offs', 'Partitions': [{'PartitionIndex': 0, 'Timestamp': -1}]}, {'Name': 'offs', 'Partitions': [{'PartitionIndex': 1, 'Timestamp': -1}]}]})


def leader_epochs(s):
    s.create('epochs', 2)
    s.produce('epochs', batch([record(0), record(1)]))

    def ask(step, partitions, versions=None, name='epochs', **more):
        s.each(step, 'OffsetForLeaderEpoch', dict({'ReplicaId': -1, 'Topics': [
            {'Topic': name, 'Partitions': [{'Partition': index, 'CurrentLeaderEpoch': current, 'LeaderEpoch': epoch} for index, current, epoch in partitions]}]}, **more), versions=versions)
    for epoch in (-2, -1, 0, 1, 5):
        for current in (-2, -1, 0, 1):
            ask(f'{current}-{epoch}', [(0, current, epoch), (1, current, epoch)])
    ask('unknown', [(9, -1, 0), (-1, -1, 0)])
    ask('unknown-topic', [(0, -1, 0)], name='epochs-no')
    ask('bad-name', [(0, -1, 0)], name='a b')
    ask('twice', [(0, -1, 0), (0, -1, 0)])
    ask('replica', [(0, -1, 0)], ReplicaId=2)
    s.each('none', 'OffsetForLeaderEpoch', {'ReplicaId': -1, 'Topics': []})


def delete_records(s):
    for version in (0, 1, 2):
        name = f'trim-{version}'
        s.create(name, 2), s.create(f'trim-compact-{version}', 1, cleanup_policy='compact'), s.create(f'trim-both-{version}', 1, cleanup_policy='compact,delete')
        for topic in (name, f'trim-compact-{version}', f'trim-both-{version}'):
            s.produce(topic, batch([record(n, b'k') for n in range(5)]))

        def ask(step, *topics, timeout=10000):
            s.note(step, 'DeleteRecords', version, s.ask('DeleteRecords', version, {'TimeoutMs': timeout, 'Topics': [
                {'Name': topic, 'Partitions': [{'PartitionIndex': index, 'Offset': offset} for index, offset in partitions]} for topic, partitions in topics]}))
        ask('too-high', (name, [(0, 6)]))
        ask('negative', (name, [(0, -2)]))
        ask('two', (name, [(0, 2)]))
        ask('back', (name, [(0, 1)]))
        ask('same', (name, [(0, 2)]), timeout=0)
        ask('end', (name, [(0, 5)]))
        ask('high-watermark', (name, [(0, -1)]))
        ask('empty', (name, [(1, -1)]))
        ask('empty-zero', (name, [(1, 0)]))
        ask('compact', (f'trim-compact-{version}', [(0, -1)]))
        ask('both', (f'trim-both-{version}', [(0, -1)]))
        ask('unknown', (name, [(9, 0), (-1, 0), (0, 5)]), ('trim-no', [(0, 0)]), ('', [(0, 0)]), ('a b', [(0, 0)]))
        ask('twice', (name, [(0, 5), (0, 5)]))
        ask('topic-twice', (name, [(0, 5)]), (name, [(1, 0)]))
        ask('internal', ('__consumer_offsets', [(0, 0)]), ('__cluster_metadata', [(0, 0)]))
        ask('none')
        ask('no-partitions', (name, []))


SCENES = [('produce', produce), ('idempotent', idempotent), ('fetch', fetch), ('fetch-sessions', sessions), ('parked-fetches', parked), ('list-offsets', list_offsets),
          ('leader-epochs', leader_epochs), ('delete-records', delete_records)]
