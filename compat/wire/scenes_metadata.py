"""Metadata, DescribeTopicPartitions, DescribeCluster, ApiVersions."""
import codec

UNKNOWN_ID = 'abcdefghijklmnopqrstug'


def mask_api_keys(answer):
    """Which APIs are served is compared elsewhere."""
    answer['ApiKeys'] = len(answer['ApiKeys']) > 0
    for key in ('~SupportedFeatures', '~FinalizedFeatures'):
        served = ('metadata.version', 'kraft.version', 'eligible.leader.replicas.version', 'group.version', 'transaction.version')
        if key in answer:
            answer[key] = sorted((f for f in answer[key] if f['Name'] in served[:3]), key=lambda f: f['Name'])
    return answer


def api_versions(s):
    for connection, name in ((s.broker, 'broker'), (s.controller, 'controller')):
        good = {'ClientSoftwareName': 'wire', 'ClientSoftwareVersion': '1.0'}
        s.each(f'{name}/plain', 'ApiVersions', good, connection=connection, edit=mask_api_keys)
        words = [('', '1'), ('a', ''), ('-a', '1'), ('a-', '1'), ('a b', '1'), ('a.b-c', '1-2.3'), ('a', '1_2'), ('ä', '1'),
                 ('a' * 300, '1'), ('a..b', '1'), ('.', '1'), ('a\n', '1')]
        for n, (software, version) in enumerate(words):
            s.each(f'{name}/software-{n}', 'ApiVersions', {'ClientSoftwareName': software, 'ClientSoftwareVersion': version},
                   versions=[3, 4, 5], connection=connection, edit=mask_api_keys)
        cluster = s.cluster_id
        for n, (given, node) in enumerate([(cluster, -1), (cluster, 1), (cluster, 2), (None, 1), (None, 2), ('other', -1),
                                           ('other', 1), ('', -1), (None, -2), ('other', 2), (cluster, 0)]):
            s.each(f'{name}/identity-{n}', 'ApiVersions', dict(good, ClusterId=given, NodeId=node), versions=[5],
                   connection=connection, edit=mask_api_keys)
        for version in (6, 100, -1):
            connection.close()
            connection.correlation += 1
            frame = bytearray(codec.request_frame('ApiVersions', 3, connection.correlation, 'wire', good))
            frame[6:8] = version.to_bytes(2, 'big', signed=True)
            connection.send_frame(bytes(frame))
            answer = connection.receive_frame()
            s.note(f'{name}/unknown-version', 'ApiVersions', version,
                   'CLOSED' if answer is None else codec.read_response('ApiVersions', 0, answer)[1])
        connection.close()


def metadata(s):
    s.create('meta-b', 3)
    s.create('meta-a')
    s.create('meta.c', 2)
    identity = s.topic_id('meta-a')
    other = s.topic_id('meta-b')

    def names(*names, **more):
        return dict({'Topics': [{'Name': name} for name in names], 'AllowAutoTopicCreation': False}, **more)
    flags = {'IncludeClusterAuthorizedOperations': True, 'IncludeTopicAuthorizedOperations': True}

    def no_internals(answer):
        answer['Topics'] = [t for t in answer['Topics'] if t['Name'].startswith('meta')]
    s.each('all', 'Metadata', {'Topics': None, 'AllowAutoTopicCreation': False}, edit=no_internals)
    s.each('all-flags', 'Metadata', dict({'Topics': None}, **flags), edit=no_internals)
    s.each('empty', 'Metadata', {'Topics': []}, edit=no_internals)
    s.each('names', 'Metadata', names('meta-b', 'meta-a', 'meta.c'))
    s.each('names-flags', 'Metadata', names('meta-a', 'meta-no', **flags), versions=range(4, 14))
    s.each('twice', 'Metadata', names('meta-a', 'meta-a', 'meta-no', 'meta-no'), versions=range(4, 14))
    s.each('unknown', 'Metadata', names('meta-no', 'meta-b', 'meta-nix'), versions=range(4, 14))
    s.each('invalid', 'Metadata', names('', '.', '..', 'a b', 'x' * 250, 'x' * 249, 'ä', 'a/b', 'meta-a'), versions=range(4, 14))
    s.each('invalid-flags', 'Metadata', names('', 'a b', 'meta-no', **flags), versions=range(8, 14))
    s.each('id-flags', 'Metadata', dict({'Topics': [{'TopicId': UNKNOWN_ID, 'Name': None}, {'TopicId': identity, 'Name': None}]}, **flags))
    s.each('invalid-auto', 'Metadata', names('', '.', '..', 'a b', 'x' * 250, 'ä', 'a/b', AllowAutoTopicCreation=True))
    s.each('null-name', 'Metadata', {'Topics': [{'Name': None}], 'AllowAutoTopicCreation': False})
    s.each('null-name-and-name', 'Metadata', {'Topics': [{'Name': None}, {'Name': 'meta-a'}], 'AllowAutoTopicCreation': False})
    s.each('by-id', 'Metadata', {'Topics': [{'TopicId': identity, 'Name': None}, {'TopicId': other, 'Name': None}]})
    s.each('by-id-and-name', 'Metadata', {'Topics': [{'TopicId': identity, 'Name': 'meta-b'}]})
    s.each('by-id-wrong-name', 'Metadata', {'Topics': [{'TopicId': UNKNOWN_ID, 'Name': 'meta-b'}]})
    s.each('mixed', 'Metadata', {'Topics': [{'Name': 'meta-b'}, {'TopicId': identity, 'Name': None}], 'AllowAutoTopicCreation': False})
    s.each('unknown-id', 'Metadata', {'Topics': [{'TopicId': UNKNOWN_ID, 'Name': None}, {'TopicId': identity, 'Name': None}]})
    s.each('ids-twice', 'Metadata', {'Topics': [{'TopicId': identity, 'Name': None}, {'TopicId': identity, 'Name': None}]})
    s.each('metadata-topic', 'Metadata', names('__cluster_metadata'), versions=range(4, 14))
    s.each('metadata-topic-id', 'Metadata', {'Topics': [{'TopicId': 'A' * 20 + 'AQ', 'Name': None}]})
    s.each('collides', 'Metadata', names('meta_c', AllowAutoTopicCreation=True), versions=range(4, 14))


def auto_creation(s):
    for version in range(0, 14):
        name = f'auto-{version}'
        body = {'Topics': [{'Name': name}], 'AllowAutoTopicCreation': True}
        s.note('first', 'Metadata', version, s.ask('Metadata', version, body))
        s.topic_id(name)
        s.note('then', 'Metadata', version, s.ask('Metadata', version, body))
    for name in ('__consumer_offsets', '__transaction_state', '__share_group_state'):
        s.each(f'internal-{name}', 'Metadata', {'Topics': [{'Name': name}], 'AllowAutoTopicCreation': False}, versions=[1, 4, 12, 13])
    s.note('many', 'Metadata', 12, s.ask('Metadata', 12, {'Topics': [{'Name': f'auto-many-{n}'} for n in range(5)] + [{'Name': 'auto-0'}]}))
    for n in range(5):
        s.topic_id(f'auto-many-{n}')
    s.each('offsets-topic', 'Metadata', {'Topics': [{'Name': '__consumer_offsets'}], 'AllowAutoTopicCreation': True}, versions=[12])
    s.topic_id('__consumer_offsets')
    s.each('offsets-topic-there', 'Metadata', {'Topics': [{'Name': '__consumer_offsets'}]}, versions=[0, 4, 12, 13])


def describe_topic_partitions(s):
    for name, partitions in (('dtp-b', 3), ('dtp-a', 2), ('dtp-c', 4)):
        s.create(name, partitions)

    def ask(step, *names, limit=2000, cursor=None):
        s.each(step, 'DescribeTopicPartitions', {'Topics': [{'Name': name} for name in names], 'ResponsePartitionLimit': limit, 'Cursor': cursor})
    ask('order', 'dtp-c', 'dtp-a', 'dtp-b')
    ask('twice', 'dtp-a', 'dtp-a')
    # The reference fails on an invalid name that sorts before every other.
    ask('unknown', 'dtp-no', 'dtp-a', 'dtp-zz')
    ask('offsets', '__consumer_offsets', limit=2)
    for limit in (-1, 0, 1, 2, 3, 5, 6, 8, 9, 10, 2001):
        ask(f'limit-{limit}', 'dtp-a', 'dtp-b', 'dtp-c', limit=limit)
    for n, (topic, partition) in enumerate([('dtp-b', 0), ('dtp-b', 1), ('dtp-b', 3), ('dtp-b', 9), ('dtp-b', -1), ('dtp-a', 1), ('dtp-no', 0),
                                            ('dtp-bb', 1), ('zz', 0), ('', 0), ('dtp-c', 4)]):
        ask(f'cursor-{n}', 'dtp-a', 'dtp-b', 'dtp-c', cursor={'TopicName': topic, 'PartitionIndex': partition})
        ask(f'cursor-limit-{n}', 'dtp-a', 'dtp-b', 'dtp-c', limit=2, cursor={'TopicName': topic, 'PartitionIndex': partition})
        ask(f'cursor-all-{n}', limit=1, cursor={'TopicName': topic, 'PartitionIndex': partition})
    ask('unknown-limit', 'dtp-no', 'dtp-a', 'dtp-b', limit=1)
    ask('all-limit', limit=1)

    def mine(answer):
        answer['Topics'] = [t for t in answer['Topics'] if t['Name'].startswith('dtp')]
    s.each('all', 'DescribeTopicPartitions', {'Topics': []}, edit=mine)


def describe_cluster(s):
    for connection, name in ((s.broker, 'broker'), (s.controller, 'controller')):
        for kind in (0, 1, 2, 3, -1):
            for fenced in (False, True):
                for operations in (False, True):
                    s.each(f'{name}/{kind}-{fenced}-{operations}', 'DescribeCluster',
                           {'EndpointType': kind, 'IncludeFencedBrokers': fenced, 'IncludeClusterAuthorizedOperations': operations}, connection=connection)


SCENES = [('api-versions', api_versions), ('metadata', metadata), ('auto-creation', auto_creation),
          ('describe-topic-partitions', describe_topic_partitions), ('describe-cluster', describe_cluster)]
