"""CreateTopics, DeleteTopics, CreatePartitions, and what the controller decides on both listeners."""
from scenes_metadata import UNKNOWN_ID


def topic(name, partitions=1, replicas=1, assignments=(), configs=()):
    return {'Name': name, 'NumPartitions': partitions, 'ReplicationFactor': replicas,
            'Assignments': [{'PartitionIndex': index, 'BrokerIds': list(brokers)} for index, brokers in assignments],
            'Configs': [{'Name': key, 'Value': value} for key, value in configs]}


def create_topics(s):
    s.create('taken.name')
    refused = [
        [topic('')], [topic('.')], [topic('..')], [topic('x' * 250)], [topic('a b')], [topic('ä')], [topic('a/b')], [topic('a\n')],
        [topic('__cluster_metadata')], [topic('taken.name')], [topic('taken_name')],
        [topic('c1'), topic('c1')], [topic('c1'), topic('c1'), topic('c2')], [topic('c.1'), topic('c_1')],
        [topic('c1', 0)], [topic('c1', -2)], [topic('c1', 1, 0)], [topic('c1', 1, -2)], [topic('c1', 1, 2)], [topic('c1', 1, 30000)],
        [topic('c1', 10001)], [topic('c1', 6000), topic('c2', 6000)], [topic('c1', 2147483647)],
        [topic('c1', 1, 1, [(0, [1])])], [topic('c1', -1, 1, [(0, [1])])], [topic('c1', 1, -1, [(0, [1])])],
        [topic('c1', -1, -1, [(0, [])])], [topic('c1', -1, -1, [(0, [1, 1])])], [topic('c1', -1, -1, [(0, [2])])],
        [topic('c1', -1, -1, [(1, [1])])], [topic('c1', -1, -1, [(0, [1]), (2, [1])])], [topic('c1', -1, -1, [(0, [1]), (0, [1])])],
        [topic('c1', -1, -1, [(-1, [1])])], [topic('c1', -1, -1, [(0, [1]), (1, [1, 2])])], [topic('c1', -1, -1, [(0, [-1])])],
        [topic('c1', configs=[('retention.ms', 'abc')])], [topic('c1', configs=[('no.such', '1')])], [topic('c1', configs=[('retention.ms', None)])],
        [topic('c1', configs=[('retention.ms', '-2')])], [topic('c1', configs=[('cleanup.policy', 'x')])], [topic('c1', configs=[('', '1')])],
        [topic('c1', configs=[('min.insync.replicas', '0')])], [topic('c1', configs=[('segment.bytes', '1')])],
        [topic('c1', configs=[('compression.type', 'rar')])], [topic('c1', configs=[('message.timestamp.type', 'x')])],
        [topic('c1', configs=[('retention.ms', '1'), ('retention.ms', '2')])], [topic('c1', configs=[('retention.ms', '1'), ('no.such', '2')])],
        [topic('c1', configs=[('local.retention.ms', '99'), ('retention.ms', '9')])],
        [topic('c1', configs=[('remote.storage.enable', 'true')])], [topic('c1', configs=[('preallocate', 'maybe')])],
        [topic('c1', configs=[('max.compaction.lag.ms', '1'), ('min.compaction.lag.ms', '2')])],
        [topic('c1', configs=[('unclean.leader.election.enable', '')])], [topic('c1', configs=[('cleanup.policy', '')])],
        [topic('c1', configs=[('cleanup.policy', 'compact,compact')])], [topic('c1', configs=[('cleanup.policy', 'delete, compact')])],
        [topic('c1', configs=[('message.format.version', '3.0')])], [topic('c1', configs=[('compression.gzip.level', '99')])],
        [topic('c1', configs=[('leader.replication.throttled.replicas', 'x')])], [topic('c1', configs=[('min.cleanable.dirty.ratio', '2')])],
       
        [topic('c1', configs=[('max.message.bytes', ' 10 ')])], [topic('c1', configs=[('internal.segment.bytes', '10')])],
        [topic('good-one', 3, 1, configs=[('retention.ms', '1000'), ('cleanup.policy', 'compact,delete')])],
        [topic('good-defaults', -1, -1)], [topic('good-assigned', -1, -1, [(1, [1]), (0, [1])])], [topic('good'), topic('taken.name'), topic('')],
        [],
    ]
    for n, topics in enumerate(refused):
        s.each(f'check-{n}', 'CreateTopics', {'Topics': topics, 'timeoutMs': 30000, 'validateOnly': True}, versions=[2, 4, 5, 7] if n % 10 == 0 else [7])
    for version in range(2, 8):
        made = [topic(f'made-{version}', 2, 1, configs=[('retention.ms', '1000'), ('max.message.bytes', '2000')]), topic(f'made-assigned-{version}', -1, -1, [(0, [1]), (1, [1])]),
                topic('taken.name'), topic('', 1, 1)]
        s.note('make', 'CreateTopics', version, s.ask('CreateTopics', version, {'Topics': made, 'timeoutMs': 30000}))
        s.topic_id(f'made-{version}')
        s.note('again', 'CreateTopics', version, s.ask('CreateTopics', version, {'Topics': made, 'timeoutMs': 30000}))
    s.each('defaults', 'CreateTopics', lambda v: {'Topics': [topic(f'defaults-{v}', -1, -1)], 'timeoutMs': 30000})
    s.each('zero-timeout', 'CreateTopics', lambda v: {'Topics': [topic(f'zero-{v}')], 'timeoutMs': 0}, versions=[7], edit=lambda a: {'~': 'any'})
    s.each('controller', 'CreateTopics', lambda v: {'Topics': [topic(f'by-controller-{v}'), topic('taken_name'), topic('c1'), topic('c1')], 'timeoutMs': 30000}, connection=s.controller)
    s.create('a.b')
    s.note('collides', 'CreateTopics', 7, s.ask('CreateTopics', 7, {'Topics': [topic('a_b')], 'timeoutMs': 30000}))
    s.ask('DeleteTopics', 5, {'TopicNames': ['a.b'], 'TimeoutMs': 30000})
    s.note('collides-no-more', 'CreateTopics', 7, s.ask('CreateTopics', 7, {'Topics': [topic('a_b')], 'timeoutMs': 30000}))


def delete_topics(s):
    for version in range(1, 7):
        for kind in 'xy':
            s.create(f'del-{kind}-{version}')
        x, y = s.topic_id(f'del-x-{version}'), s.topic_id(f'del-y-{version}')
        if version < 6:
            names = [f'del-x-{version}', f'del-y-{version}', 'del-no', '', 'a b', f'del-x-{version}', 'del-no']
            s.note('twice', 'DeleteTopics', version, s.ask('DeleteTopics', version, {'TopicNames': names, 'TimeoutMs': 30000}))
            s.note('names', 'DeleteTopics', version, s.ask('DeleteTopics', version, {'TopicNames': names[:5], 'TimeoutMs': 30000}))
            s.gone(f'del-y-{version}')
            s.note('once-more', 'DeleteTopics', version, s.ask('DeleteTopics', version, {'TopicNames': names[:5], 'TimeoutMs': 30000}))
        else:
            ask = lambda step, *topics: s.note(step, 'DeleteTopics', version, s.ask('DeleteTopics', version, {
                'Topics': [{'Name': name, 'TopicId': identity} for name, identity in topics], 'TimeoutMs': 30000}))
            none = 'A' * 22
            ask('nothing', (None, none))
            ask('both', (f'del-x-{version}', x))
            ask('both-and-good', (f'del-x-{version}', x), ('del-no', none), (None, UNKNOWN_ID))
            ask('same-twice', (f'del-x-{version}', none), (None, x), (f'del-x-{version}', none))
            ask('id-twice', (None, y), (None, y), (None, UNKNOWN_ID))
            ask('unknowns', ('del-no', none), (None, UNKNOWN_ID), ('', none), (None, 'A' * 20 + 'AQ'), ('__cluster_metadata', none))
            s.create(f'del-x-{version}'), s.create(f'del-y-{version}')
            x, y = s.topic_id(f'del-x-{version}'), s.topic_id(f'del-y-{version}')
            ask('good', (f'del-x-{version}', none), (None, y))
            s.gone(f'del-y-{version}')
            ask('id-gone', (None, y))
        s.note('none', 'DeleteTopics', version, s.ask('DeleteTopics', version, {'TimeoutMs': 30000}))
    s.create('del-c')
    s.each('controller', 'DeleteTopics', {'TopicNames': ['del-c', 'del-no'], 'TimeoutMs': 30000}, versions=[5], connection=s.controller)


def create_partitions(s):
    for version in range(0, 4):
        s.create(f'parts-{version}', 2)
        ask = lambda step, *topics, check=False: s.note(step, 'CreatePartitions', version, s.ask('CreatePartitions', version, {
            'Topics': [{'Name': name, 'Count': count, 'Assignments': None if assignments is None else [{'BrokerIds': a} for a in assignments]}
                       for name, count, assignments in topics], 'TimeoutMs': 30000, 'ValidateOnly': check}))
        name = f'parts-{version}'
        for n, (count, assignments) in enumerate([(0, None), (-1, None), (1, None), (2, None), (3, []), (3, [[1]]), (4, [[1]]), (3, [[]]), (3, [[2]]),
                                                  (3, [[1, 1]]), (3, [[1], [1]]), (2, [[1]]), (4, None), (11000, None), (4, [[1], [1, 2]])]):
            ask(f'check-{n}', (name, count, assignments), check=True)
        ask('unknown', ('parts-no', 3, None), ('', 3, None), ('a b', 2, None))
        ask('twice', (name, 3, None), (name, 4, None), ('parts-no', 3, None))
        ask('good', (name, 3, None))
        ask('good-assigned', (name, 5, [[1], [1]]))
        ask('none')
    s.each('controller', 'CreatePartitions', {'Topics': [{'Name': 'parts-0', 'Count': 1, 'Assignments': None}], 'TimeoutMs': 1000}, connection=s.controller)


def elections(s):
    s.create('elect', 2)
    for kind in (0, 1, 2, -1):
        for n, partitions in enumerate([[('elect', [0, 1])], [('elect', [0, 7]), ('elect-no', [0])], [], [('', [0])], [('elect', [])], [('elect', [0, 0])]]):
            s.each(f'{kind}-{n}', 'ElectLeaders', {'ElectionType': kind, 'TopicPartitions': [{'Topic': t, 'Partitions': p} for t, p in partitions], 'TimeoutMs': 10000})
    mine = lambda answer: answer.update(ReplicaElectionResults=[r for r in answer['ReplicaElectionResults'] if r['Topic'] == 'elect'])
    s.each('all', 'ElectLeaders', {'ElectionType': 0, 'TopicPartitions': None, 'TimeoutMs': 10000}, edit=mine)
    s.each('all-unclean', 'ElectLeaders', {'ElectionType': 1, 'TopicPartitions': None, 'TimeoutMs': 10000}, edit=mine)
    s.each('controller', 'ElectLeaders', {'ElectionType': 0, 'TopicPartitions': [{'Topic': 'elect', 'Partitions': [0]}], 'TimeoutMs': 10000}, connection=s.controller)


def reassignments(s):
    s.create('move', 2)
    for n, (partition, replicas) in enumerate([(0, [1]), (0, None), (0, []), (0, [2]), (0, [1, 1]), (7, [1]), (7, None), (0, [-1]), (-1, [1])]):
        for allow in (True, False):
            s.each(f'alter-{n}-{allow}', 'AlterPartitionReassignments', {'AllowReplicationFactorChange': allow, 'Topics': [
                {'Name': 'move', 'Partitions': [{'PartitionIndex': partition, 'Replicas': replicas}]}]})
    s.each('alter-unknown', 'AlterPartitionReassignments', {'Topics': [{'Name': name, 'Partitions': [{'PartitionIndex': 0, 'Replicas': [1]}]} for name in ('', 'move-no', 'a b')]})
    s.each('alter-none', 'AlterPartitionReassignments', {'Topics': []})
    s.each('alter-empty', 'AlterPartitionReassignments', {'Topics': [{'Name': 'move', 'Partitions': []}]})
    s.each('alter-twice', 'AlterPartitionReassignments', {'Topics': [{'Name': 'move', 'Partitions': [{'PartitionIndex': 0, 'Replicas': [1]}, {'PartitionIndex': 0, 'Replicas': [1]}]}]})
    for connection, name in ((s.broker, 'broker'), (s.controller, 'controller')):
        s.each(f'list-all-{name}', 'ListPartitionReassignments', {'Topics': None}, connection=connection)
        s.each(f'list-{name}', 'ListPartitionReassignments', {'Topics': [{'Name': 'move', 'PartitionIndexes': [0, 1, 9]}, {'Name': 'move-no', 'PartitionIndexes': [0]}]}, connection=connection)
        s.each(f'list-none-{name}', 'ListPartitionReassignments', {'Topics': []}, connection=connection)


def features(s):
    def ask(step, *updates, connection=None, check=True, versions=None):
        s.each(step, 'UpdateFeatures', {'timeoutMs': 30000, 'ValidateOnly': check, 'FeatureUpdates': [
            {'Feature': name, 'MaxVersionLevel': level, 'AllowDowngrade': kind > 1, 'UpgradeType': kind} for name, level, kind in updates]}, connection=connection, versions=versions)
    for connection, where in ((s.broker, 'broker'), (s.controller, 'controller')):
        ask(f'{where}/none', connection=connection)
        for kind in (0, 1, 2, 3, 4, -1):
            for n, (name, level) in enumerate([('metadata.version', 33), ('metadata.version', 34), ('metadata.version', 30), ('metadata.version', 20), ('metadata.version', 7),
                                               ('metadata.version', 1), ('metadata.version', 0), ('metadata.version', -1), ('no.such', 1), ('no.such', 0), ('', 1), ('kraft.version', 1), ('kraft.version', 0),
                                               ('kraft.version', 2), ('eligible.leader.replicas.version', 0), ('eligible.leader.replicas.version', 1),
                                               ('eligible.leader.replicas.version', 2), ('group.version', 0), ('group.version', 1), ('transaction.version', 1), ('transaction.version', 3), ('share.version', 0), ('streams.version', 0)]):
                ask(f'{where}/{kind}-{n}', (name, level, kind), connection=connection, versions=[0, 1, 2] if where == 'broker' and kind in (0, 1, 2) else [1, 2] if n < 6 else [2])
        ask(f'{where}/two', ('metadata.version', 33, 1), ('no.such', 1, 1), connection=connection)
        ask(f'{where}/twice', ('metadata.version', 33, 1), ('metadata.version', 33, 1), connection=connection)
        ask(f'{where}/two-bad', ('no.such', 1, 1), ('group.version', 9, 1), connection=connection)
    ask('for-real', ('no.such', 1, 1), check=False)
    ask('for-real-same', ('metadata.version', 33, 1), check=False)


def quorum(s):
    def without_offsets(answer):
        for topic in answer['Topics']:
            for partition in topic['Partitions']:
                for replica in partition.get('CurrentVoters', []) + partition.get('Observers', []):
                    replica['LogEndOffset'] = '<offset>' if replica.get('LogEndOffset', 0) > 0 else replica.get('LogEndOffset')
                if partition.get('HighWatermark', -1) > 0:
                    partition['HighWatermark'] = '<offset>'
                if partition.get('LeaderEpoch', -1) > 0:
                    partition['LeaderEpoch'] = '<epoch>'
    for connection, name in ((s.broker, 'broker'), (s.controller, 'controller')):
        for n, topics in enumerate([[('__cluster_metadata', [0])], [('__cluster_metadata', [1])], [('__cluster_metadata', [0, 1])], [('x', [0])], [],
                                    [('__cluster_metadata', [0]), ('x', [0])], [('__cluster_metadata', [])], [('', [0])]]):
            s.each(f'{name}/{n}', 'DescribeQuorum', {'Topics': [{'TopicName': t, 'Partitions': [{'PartitionIndex': i} for i in p]} for t, p in topics]},
                   connection=connection, edit=without_offsets)
    for broker in (2, 77, -1):
        s.each(f'unregister-{broker}', 'UnregisterBroker', {'BrokerId': broker})
        s.each(f'unregister-{broker}-controller', 'UnregisterBroker', {'BrokerId': broker}, connection=s.controller)


SCENES = [('create-topics', create_topics), ('delete-topics', delete_topics), ('create-partitions', create_partitions), ('elect-leaders', elections),
          ('reassignments', reassignments), ('update-features', features), ('quorum', quorum)]
