"""DescribeLogDirs, InitProducerId, FindCoordinator, SaslHandshake, groups in brief, and what is not served."""
from codec import batch, record


def log_dirs(s):
    s.create('dirs', 3)
    s.produce('dirs', batch([record(0)]), partition=1)

    def mine(answer):
        for result in answer['Results']:
            result['Topics'] = sorted((t for t in result['Topics'] if t['Name'].startswith('dirs')), key=lambda t: t['Name'])
            for topic in result['Topics']:
                topic['Partitions'].sort(key=lambda p: p['PartitionIndex'])
    s.each('all', 'DescribeLogDirs', {'Topics': None}, edit=mine)
    s.each('none', 'DescribeLogDirs', {'Topics': []}, edit=mine)
    s.each('some', 'DescribeLogDirs', {'Topics': [{'Topic': 'dirs', 'Partitions': [1, 2, 9]}, {'Topic': 'no', 'Partitions': [0]}]}, edit=mine)
    s.each('no-partitions', 'DescribeLogDirs', {'Topics': [{'Topic': 'dirs', 'Partitions': []}]}, edit=mine)


def alter_log_dirs(s):
    s.create('moved', 2)
    here = s.ask('DescribeLogDirs', 4, {'Topics': []})['Results'][0]['LogDir']

    def ordered(answer):
        answer['Results'].sort(key=lambda t: t['TopicName'])
        for topic in answer['Results']:
            topic['Partitions'].sort(key=lambda p: p['PartitionIndex'])

    def ask(step, *dirs):
        dirs = [{'Path': path, 'Topics': [{'Name': name, 'Partitions': partitions} for name, partitions in topics]} for path, topics in dirs]
        s.each(step, 'AlterReplicaLogDirs', {'Dirs': dirs}, edit=ordered)
    ask('none')
    ask('no-topics', (here, []))
    ask('same', (here, [('moved', [0, 1])]))
    ask('unknown-dir', ('/nowhere', [('moved', [0])]), ('', [('moved', [1])]))
    ask('unknown-partition', (here, [('moved', [0, 5, -1]), ('nothing', [0])]))
    ask('bad-name', (here, [('a b', [0]), ('', [0])]))
    # The name of the directory of a replica on the move has 45 bytes more than the topic's.
    for length in (212, 213, 249):
        ask(f'long-{length}', (here, [('l' * length, [0])]))
    ask('twice', ('/nowhere', [('moved', [0])]), (here, [('moved', [0])]))


def producer_ids(s):
    def relative(answer):
        if answer['ProducerId'] >= 0:
            answer['ProducerId'] = '<id>'
    # The reference's first block of ids comes later than its first answer.
    s.until(lambda: s.ask('InitProducerId', 4, {'TransactionalId': None})['ErrorCode'] == 0)
    for n, (producer, epoch) in enumerate([(-1, -1), (5, 0), (5, -1), (-1, 5), (-2, -2), (0, 0), (5, 32767)]):
        s.each(f'plain-{n}', 'InitProducerId', {'TransactionalId': None, 'TransactionTimeoutMs': 60000, 'ProducerId': producer, 'ProducerEpoch': epoch}, edit=relative)
    for timeout in (0, -1, 2147483647):
        s.each(f'timeout-{timeout}', 'InitProducerId', {'TransactionalId': None, 'TransactionTimeoutMs': timeout}, edit=relative)
    s.each('empty', 'InitProducerId', {'TransactionalId': '', 'TransactionTimeoutMs': 60000}, edit=relative)
    ids = [s.ask('InitProducerId', 4, {'TransactionalId': None})['ProducerId'] for _ in range(3)]
    s.note('counts', 'InitProducerId', 4, [ids[1] - ids[0], ids[2] - ids[1]])


def coordinators(s):
    s.topic_id('__consumer_offsets')
    for key in ('g', '', 'ä', 'x' * 300):
        s.each(f'old-{key[:3]}', 'FindCoordinator', {'Key': key, 'KeyType': 0}, versions=range(0, 4))
        s.each(f'one-{key[:3]}', 'FindCoordinator', {'CoordinatorKeys': [key], 'KeyType': 0}, versions=range(4, 7))
    s.each('several', 'FindCoordinator', {'CoordinatorKeys': ['a', 'b', 'a', ''], 'KeyType': 0}, versions=range(4, 7))
    s.each('none', 'FindCoordinator', {'CoordinatorKeys': [], 'KeyType': 0}, versions=range(4, 7))
    for kind in (3, -1, 100):
        s.each(f'kind-{kind}-old', 'FindCoordinator', {'Key': 'g', 'KeyType': kind}, versions=range(0, 4))
        s.each(f'kind-{kind}', 'FindCoordinator', {'CoordinatorKeys': ['g', 'h'], 'KeyType': kind}, versions=range(4, 7))
    s.each('share-old', 'FindCoordinator', {'Key': 'g', 'KeyType': 2}, versions=range(1, 4))
    s.each('share-early', 'FindCoordinator', {'CoordinatorKeys': ['g'], 'KeyType': 2}, versions=range(4, 6))
    for key in ('g', 'g:x:0', 'g:abcdefghijklmnopqrstug:x', ':abcdefghijklmnopqrstug:0', 'g:abcdefghijklmnopqrstug:-1', ''):
        s.each(f'share-{key}', 'FindCoordinator', {'CoordinatorKeys': [key], 'KeyType': 2}, versions=[6])


def sasl(s):
    from wire import Connection
    for port, name in ((s.broker_port, 'broker'), (s.controller_port, 'controller')):
        for version in (0, 1):
            for mechanism in ('PLAIN', '', 'X'):
                connection = Connection(port)
                s.note(f'{name}-{mechanism}', 'SaslHandshake', version, s.ask('SaslHandshake', version, {'Mechanism': mechanism}, connection))
                s.note(f'{name}-{mechanism}-after', 'SaslHandshake', version, s.ask('SaslHandshake', version, {'Mechanism': mechanism}, connection))
                connection.close()


def groups(s):
    s.topic_id('__consumer_offsets')
    s.create('grp', 2)
    s.until(lambda: s.ask('OffsetFetch', 1, {'GroupId': 'g', 'Topics': []})['Topics'] == [] and
            s.ask('Heartbeat', 4, {'GroupId': 'g', 'GenerationId': 1, 'MemberId': 'm'})['ErrorCode'] == 25)
    s.each('commit', 'OffsetCommit', {'GroupId': 'g', 'GenerationIdOrMemberEpoch': -1, 'MemberId': '', 'RetentionTimeMs': -1, 'Topics': [
        {'Name': 'grp', 'Partitions': [{'PartitionIndex': n, 'CommittedOffset': 5, 'CommittedMetadata': m} for n, m in ((0, 'm'), (1, None), (9, 'x'), (0, 'x' * 5000))]},
        {'Name': 'grp-no', 'Partitions': [{'PartitionIndex': 0, 'CommittedOffset': 1, 'CommittedMetadata': ''}]}]}, versions=range(2, 10))
    grp = s.topic_id('grp')
    s.each('commit-id', 'OffsetCommit', {'GroupId': 'g', 'GenerationIdOrMemberEpoch': -1, 'MemberId': '', 'Topics': [
        {'TopicId': i, 'Partitions': [{'PartitionIndex': n, 'CommittedOffset': 6, 'CommittedMetadata': ''} for n in (0, 9)]} for i in (grp, 'abcdefghijklmnopqrstug', 'A' * 22)]}, versions=[10])
    s.each('fetch', 'OffsetFetch', {'GroupId': 'g', 'Topics': [{'Name': 'grp', 'PartitionIndexes': [0, 1, 2]}, {'Name': 'grp-no', 'PartitionIndexes': [0]}]}, versions=range(1, 8))
    s.each('fetch-all', 'OffsetFetch', {'GroupId': 'g', 'Topics': None}, versions=range(2, 8))
    s.each('fetch-groups', 'OffsetFetch', {'Groups': [{'GroupId': 'g', 'Topics': [{'Name': 'grp', 'TopicId': grp, 'PartitionIndexes': [0, 1]}, {'Name': 'grp-no', 'TopicId': 'abcdefghijklmnopqrstug', 'PartitionIndexes': [0]}]},
                                                      {'GroupId': 'none', 'Topics': None}, {'GroupId': '', 'Topics': None}]}, versions=range(8, 11))
    s.each('describe', 'DescribeGroups', {'Groups': ['g', 'none', ''], 'IncludeAuthorizedOperations': True})
    s.each('heartbeat', 'Heartbeat', {'GroupId': 'g', 'GenerationId': 1, 'MemberId': 'm'})
    s.each('heartbeat-empty', 'Heartbeat', {'GroupId': '', 'GenerationId': 1, 'MemberId': 'm'})
    s.each('leave', 'LeaveGroup', {'GroupId': 'g', 'MemberId': 'm', 'Members': [{'MemberId': 'm'}, {'MemberId': '', 'GroupInstanceId': 'i'}]})
    s.each('sync', 'SyncGroup', {'GroupId': 'g', 'GenerationId': 1, 'MemberId': 'm'})
    s.each('join', 'JoinGroup', {'GroupId': 'g', 'SessionTimeoutMs': 10000, 'RebalanceTimeoutMs': 10000, 'MemberId': 'nobody', 'ProtocolType': 'consumer', 'Protocols': [{'Name': 'range', 'Metadata': b''}]})
    s.each('join-short', 'JoinGroup', {'GroupId': 'g', 'SessionTimeoutMs': 1, 'RebalanceTimeoutMs': 10000, 'MemberId': '', 'ProtocolType': 'consumer', 'Protocols': [{'Name': 'range', 'Metadata': b''}]})
    mine = lambda a: a.update(Groups=[g for g in a['Groups'] if g['GroupId'] == 'g'])
    s.each('list', 'ListGroups', {'StatesFilter': [], 'TypesFilter': []}, edit=mine)
    s.each('list-filter', 'ListGroups', {'StatesFilter': ['eMpty'], 'TypesFilter': ['Classic']}, edit=mine)
    s.each('offset-delete', 'OffsetDelete', {'GroupId': 'g', 'Topics': [{'Name': 'grp', 'Partitions': [{'PartitionIndex': n} for n in (0, 9)]}, {'Name': 'grp-no', 'Partitions': [{'PartitionIndex': 0}]}]})
    s.each('offset-delete-none', 'OffsetDelete', {'GroupId': 'none', 'Topics': [{'Name': 'grp', 'Partitions': [{'PartitionIndex': 0}]}]})
    s.each('delete', 'DeleteGroups', {'GroupsNames': ['g', 'none', '', 'g']})


def frames(s):
    """Frames that end the connection."""
    import codec
    import struct
    from wire import Connection
    for port, name in ((s.broker_port, 'broker'), (s.controller_port, 'controller')):
        for n, frame in enumerate([b'', b'\0', b'\0\x03\0\x01', struct.pack('>hhih', 3, 99, 1, -1), struct.pack('>hhih', 999, 0, 1, -1), struct.pack('>hhih', 3, 1, 1, -1) + b'\0\0\0\x05',
                                   struct.pack('>hhih', 3, 1, 1, -1) + b'\xff\xff\xff\xfe', struct.pack('>hhih', 3, 1, 1, -5) + b'\0\0\0\0', struct.pack('>hhih', 3, 1, 1, -1) + b'\0\0\0\0trailing',
                                   struct.pack('>hhih', 18, 3, 1, -1), struct.pack('>hhih', 18, 2, 1, -1) + b'xx', struct.pack('>hhih', -1, 0, 1, -1), struct.pack('>hhih', 4, 0, 1, -1),
                                   struct.pack('>hhih', 0, 2, 1, -1), struct.pack('>hhih', 1, 3, 1, -1)]):
            connection = Connection(port)
            connection.send_frame(struct.pack('>i', len(frame)) + frame)
            answer = connection.receive_frame()
            s.note(f'{name}-{n}', 'frame', 0, 'CLOSED' if answer is None else 'ANSWERED')
            connection.close()


SCENES = [('log-dirs', log_dirs), ('alter-log-dirs', alter_log_dirs), ('producer-ids', producer_ids), ('find-coordinator', coordinators), ('sasl', sasl), ('groups', groups), ('frames', frames)]
