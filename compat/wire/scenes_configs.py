"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""
import zlib

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3

# What depends on the machine, the ports and the installation.
LOCAL = ('listeners', 'advertised.listeners', 'log.dir', 'log.dirs', 'controller.quorum.bootstrap.servers', 'node.id', 'broker.id', 'process.roles',
         'inter.broker.listener.name', 'controller.listener.names', 'listener.security.protocol.map', 'controller.quorum.voters')


def unordered(answer):
    """The reference takes the keys of a resource from a set without an order; documentation has its own words."""
    for result in answer['Results']:
        # Our node fills it in at its start.
        result['Configs'] = [config for config in result['Configs'] if config['Name'] != 'advertised.listeners']
        for config in result['Configs']:
            if config.get('Documentation'):
                config['Documentation'] = '<text>'
            if config['Name'] in LOCAL:
                config['Value'] = '<local>'
                for synonym in config['Synonyms']:
                    synonym['Value'] = '<local>'
        result['Configs'].sort(key=lambda config: config['Name'])


def digest_values(answer):
    unordered(answer)
    for result in answer['Results']:
        text = repr([(c['Name'], c['Value'], c['ConfigSource'], c['ReadOnly'], c['IsSensitive'], c.get('ConfigType'), c.get('Documentation') is not None) for c in result['Configs']])
        result['Configs'] = [len(result['Configs']), f'{zlib.crc32(text.encode()):08x}']


def describe(s):
    s.create('conf', 1, retention_ms=1000, cleanup_policy='compact,delete')

    def ask(step, *resources, versions=None, synonyms=True, docs=False, edit=unordered, connection=None):
        s.each(step, 'DescribeConfigs', {'IncludeSynonyms': synonyms, 'IncludeDocumentation': docs, 'Resources': [
            {'ResourceType': kind, 'ResourceName': name, 'ConfigurationKeys': keys} for kind, name, keys in resources]}, versions=versions, edit=edit, connection=connection)
    for connection, where in ((s.broker, 'broker'), (s.controller, 'controller')):
        for kind in (TOPIC, BROKER, LOGGER, METRICS, GROUP, 0, 1, 3, 64, -1):
            for name in ('', '1', '2', 'conf', 'conf-no', 'a b', '-1', '01', '+1', 'abc', '.'):
                keys = ['retention.ms', 'num.io.threads', 'interval.ms', 'consumer.session.timeout.ms', 'no.such'] if kind != LOGGER else ['no.such']
                ask(f'{where}/{kind}-{name or "empty"}'.replace(' ', '_'), (kind, name, keys), versions=[1, 4], connection=connection)
        ask(f'{where}/topic', (TOPIC, 'conf', None), versions=[1, 3, 4], connection=connection)
        ask(f'{where}/node', (BROKER, '1', None), versions=[4], connection=connection)
        ask(f'{where}/default', (BROKER, '', None), versions=[1, 4], connection=connection)
        ask(f'{where}/group', (GROUP, 'g', None), versions=[4], connection=connection)
        ask(f'{where}/metrics', (METRICS, 'm', None), versions=[4], connection=connection)
    ask('docs', (TOPIC, 'conf', None), docs=True, edit=digest_values)
    ask('docs-node', (BROKER, '1', None), docs=True, edit=digest_values)
    ask('no-synonyms', (TOPIC, 'conf', ['retention.ms']), synonyms=False)
    ask('keys', (TOPIC, 'conf', ['retention.ms', 'retention.ms', 'segment.bytes', 'no.such']))
    ask('no-keys', (TOPIC, 'conf', []), edit=digest_values)
    ask('several', (TOPIC, 'conf', ['retention.ms']), (BROKER, '1', ['num.io.threads']), (TOPIC, 'conf', ['segment.ms']), (TOPIC, 'conf-no', None))
    ask('none')


def list_resources(s):
    s.create('conf', 1)

    def mine(answer):
        answer['ConfigResources'] = sorted((r for r in answer['ConfigResources'] if r.get('ResourceType', METRICS) != TOPIC or r['ResourceName'] == 'conf'),
                                           key=lambda r: (r.get('ResourceType', 0), r['ResourceName']))
    for kinds in ([], [TOPIC], [BROKER], [LOGGER], [METRICS], [GROUP], [0], [1], [TOPIC, BROKER], [TOPIC, TOPIC], [64], [TOPIC, 64], [-1], [LOGGER, GROUP]):
        s.each('kinds-' + '-'.join(map(str, kinds)), 'ListConfigResources', {'ResourceTypes': kinds}, edit=mine)


def sorted_by_resource(answer):
    """The reference answers resources from a map without an order."""
    answer['Responses'].sort(key=lambda r: (r['ResourceType'], r['ResourceName'], r['ErrorCode']))


def incremental(s):
    s.create('inc', 1)
    s.create('inc-2', 1)

    def ask(step, *resources, check=False, connection=None):
        for version in (0, 1):
            s.note(step, 'IncrementalAlterConfigs', version, s.ask('IncrementalAlterConfigs', version, {'ValidateOnly': check, 'Resources': [
                {'ResourceType': kind, 'ResourceName': name, 'Configs': [{'Name': key, 'ConfigOperation': operation, 'Value': value} for key, operation, value in changes]}
                for kind, name, changes in resources]}, connection), edit=sorted_by_resource)

    def show(step, kind=TOPIC, name='inc'):
        s.settle()
        answer = s.ask('DescribeConfigs', 4, {'IncludeSynonyms': True, 'Resources': [{'ResourceType': kind, 'ResourceName': name, 'ConfigurationKeys': None}]})
        for result in answer['Results']:
            result['Configs'] = sorted((c for c in result['Configs'] if c['ConfigSource'] in (1, 2, 3, 6, 7, 8)), key=lambda c: c['Name'])
        s.note(step, 'DescribeConfigs', 4, answer)
    changes = [
        [('retention.ms', SET, '1000')], [('retention.ms', SET, 'x')], [('retention.ms', SET, None)], [('retention.ms', DELETE, None)], [('retention.ms', DELETE, 'x')],
        [('retention.ms', APPEND, '1')], [('retention.ms', SUBTRACT, '1')], [('no.such', SET, '1')], [('no.such', DELETE, None)], [('', SET, '1')],
        [('cleanup.policy', APPEND, 'compact')], [('cleanup.policy', APPEND, 'compact,delete')], [('cleanup.policy', SUBTRACT, 'delete')], [('cleanup.policy', SUBTRACT, 'delete,compact')],
        [('cleanup.policy', APPEND, 'x')], [('cleanup.policy', SUBTRACT, 'x')], [('cleanup.policy', APPEND, None)],
        [('retention.ms', SET, '1'), ('retention.ms', SET, '2')], [('retention.ms', SET, '5'), ('segment.ms', SET, 'x')], [], [('retention.ms', SET, '')], [('cleanup.policy', SET, '')],
        [('min.insync.replicas', SET, '2')], [('min.insync.replicas', SET, '0')], [('max.compaction.lag.ms', SET, '1'), ('min.compaction.lag.ms', SET, '2')],
        [('local.retention.ms', SET, '9999999999999')], [('remote.storage.enable', SET, 'true')], [('leader.replication.throttled.replicas', APPEND, '0:1')],
        [('follower.replication.throttled.replicas', APPEND, '*')], [('compression.type', APPEND, 'gzip')], [('unclean.leader.election.enable', SET, 'true')],
        [('unclean.leader.election.enable', DELETE, None)],
    ]
    for n, change in enumerate(changes):
        ask(f'check-{n}', (TOPIC, 'inc', change), check=True)
    for n, change in enumerate(changes):
        ask(f'real-{n}', (TOPIC, 'inc', change))
        show(f'real-{n}-shown')
    for n, (kind, name) in enumerate([(TOPIC, ''), (TOPIC, 'inc-no'), (TOPIC, 'a b'), (BROKER, ''), (BROKER, '1'), (BROKER, '2'), (BROKER, 'x'), (BROKER, '-1'), (LOGGER, ''), (LOGGER, '1'), (LOGGER, '2'), (LOGGER, 'x'),
                                      (METRICS, ''), (METRICS, 'm'), (GROUP, ''), (GROUP, 'g'), (0, 'x'), (1, 'x'), (64, 'x'), (-1, 'x')]):
        for key, value in (('retention.ms', '1'), ('num.io.threads', '9'), ('interval.ms', '1000'), ('consumer.session.timeout.ms', '46000'), ('kafka.server', 'DEBUG')):
            ask(f'kind-{n}-{key}', (kind, name, [(key, SET, value)]), check=True)
        ask(f'kind-{n}-none', (kind, name, []), check=True)
        ask(f'kind-{n}-controller', (kind, name, [('retention.ms', SET, '1')]), check=True, connection=s.controller)
    ask('twice', (TOPIC, 'inc', [('retention.ms', SET, '1')]), (TOPIC, 'inc', [('segment.ms', SET, '1')]))
    ask('twice-and-other', (TOPIC, 'inc', [('retention.ms', SET, '1')]), (TOPIC, 'inc', []), (TOPIC, 'inc-2', [('retention.ms', SET, '77')]))
    show('twice-shown', name='inc-2')
    ask('several', (TOPIC, 'inc', [('retention.ms', SET, '1')]), (TOPIC, 'inc-2', [('retention.ms', SET, 'x')]), (BROKER, '1', [('no.such', SET, '1')]), (GROUP, 'g', [('no.such', SET, '1')]))
    ask('none')
    for n, change in enumerate([[('num.io.threads', SET, '9')], [('num.io.threads', SET, '0')], [('num.io.threads', SET, 'x')], [('num.io.threads', SET, '1000')], [('log.retention.ms', SET, '5')],
                                [('log.dirs', SET, '/x')], [('node.id', SET, '3')], [('no.such', SET, '3')], [('listeners', SET, 'x')], [('advertised.listeners', SET, 'PLAINTEXT://x:1')],
                                [('log.cleaner.threads', SET, '2')], [('log.cleanup.policy', APPEND, 'compact')], [('min.insync.replicas', SET, '2')], [('min.insync.replicas', DELETE, None)],
                                [('max.connections', SET, '5000')], [('max.connections.per.ip.overrides', SET, 'x')], [('ssl.keystore.location', SET, '/no')],
                                [('listener.name.plaintext.max.connections', SET, '3')], [('message.max.bytes', SET, '2000000')], [('log.retention.hours', SET, '3')],
                                [('unclean.leader.election.enable', SET, 'true')], [('follower.replication.throttled.rate', SET, '5')], [('log.message.timestamp.type', SET, 'LogAppendTime')],
                                [('num.replica.fetchers', SET, '3')], [('remote.log.manager.copy.max.bytes.per.second', SET, '4')], [('cordoned.log.dirs', SET, '*')]]):
        ask(f'broker-check-{n}', (BROKER, '1', change), check=True)
        ask(f'default-check-{n}', (BROKER, '', change), check=True)
    ask('broker-set', (BROKER, '1', [('log.retention.ms', SET, '604800001'), ('message.max.bytes', SET, '1048000')]))
    ask('default-set', (BROKER, '', [('log.retention.ms', SET, '604800002'), ('num.io.threads', SET, '9')]))
    show('broker-shown', BROKER, '1'), show('default-shown', BROKER, ''), show('topic-shown', TOPIC, 'inc-2')
    ask('broker-unset', (BROKER, '1', [('log.retention.ms', DELETE, None), ('message.max.bytes', DELETE, None)]))
    ask('default-unset', (BROKER, '', [('log.retention.ms', DELETE, None), ('num.io.threads', DELETE, None)]))
    show('broker-unset-shown', BROKER, '1')
    ask('group-set', (GROUP, 'inc-group', [('consumer.session.timeout.ms', SET, '46000'), ('consumer.heartbeat.interval.ms', SET, '6000')]))
    show('group-shown', GROUP, 'inc-group')
    ask('metrics-set', (METRICS, 'inc-metrics', [('interval.ms', SET, '1000'), ('metrics', SET, 'a.b,c'), ('match', SET, 'client_id=x.*')]))
    show('metrics-shown', METRICS, 'inc-metrics')
    for n, change in enumerate([[('interval.ms', SET, '1')], [('interval.ms', SET, '3600001')], [('match', SET, 'x')], [('match', SET, 'client_id=[')], [('match', SET, 'no=a')], [('metrics', SET, '')], [('metrics', APPEND, 'x')], [('interval.ms', SET, 'a')]]):
        ask(f'metrics-check-{n}', (METRICS, 'inc-metrics', change), check=True)
    for n, change in enumerate([[('consumer.session.timeout.ms', SET, '1')], [('consumer.session.timeout.ms', SET, 'x')], [('consumer.heartbeat.interval.ms', SET, '60000')], [('share.auto.offset.reset', SET, 'by_duration:PT1H')],
                                [('share.auto.offset.reset', SET, 'x')], [('share.isolation.level', SET, 'x')], [('streams.num.standby.replicas', SET, '9')], [('share.record.lock.duration.ms', SET, '1')]]):
        ask(f'group-check-{n}', (GROUP, 'inc-group', change), check=True)


def replace(s):
    s.create('old', 1, retention_ms=1, compression_type='gzip')

    def ask(step, *resources, check=False, connection=None):
        for version in (0, 1, 2):
            s.note(step, 'AlterConfigs', version, s.ask('AlterConfigs', version, {'ValidateOnly': check, 'Resources': [
                {'ResourceType': kind, 'ResourceName': name, 'Configs': [{'Name': key, 'Value': value} for key, value in changes]}
                for kind, name, changes in resources]}, connection), edit=sorted_by_resource)

    def show(step, kind=TOPIC, name='old'):
        s.settle()
        answer = s.ask('DescribeConfigs', 4, {'IncludeSynonyms': True, 'Resources': [{'ResourceType': kind, 'ResourceName': name, 'ConfigurationKeys': ['retention.ms', 'compression.type', 'segment.ms']}]})
        s.note(step, 'DescribeConfigs', 4, answer, edit=unordered)
    for n, change in enumerate([[('compression.type', 'lz4')], [('retention.ms', 'x')], [('retention.ms', None)], [('no.such', '1')], [('', '')], [('retention.ms', '1'), ('retention.ms', '2')], []]):
        ask(f'check-{n}', (TOPIC, 'old', change), check=True)
    ask('set', (TOPIC, 'old', [('compression.type', 'lz4')]))
    show('shown')
    ask('clear', (TOPIC, 'old', []))
    show('clear-shown')
    # The same resource twice is never answered by the reference.
    for n, (kind, name) in enumerate([(TOPIC, ''), (TOPIC, 'old-no'), (TOPIC, 'a b'), (BROKER, ''), (BROKER, '1'), (BROKER, '2'), (BROKER, 'x'), (LOGGER, '1'), (LOGGER, ''), (METRICS, ''), (METRICS, 'm'), (GROUP, ''), (GROUP, 'g'), (0, 'x'), (64, 'x')]):
        ask(f'kind-{n}', (kind, name, [('retention.ms', '1')]), check=True)
        ask(f'kind-{n}-none', (kind, name, []), check=True)
        ask(f'kind-{n}-controller', (kind, name, [('retention.ms', '1')]), check=True, connection=s.controller)
    ask('none')


SCENES = [('describe-configs', describe), ('list-config-resources', list_resources), ('incremental-alter-configs', incremental), ('alter-configs', replace)]
