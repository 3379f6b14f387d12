#!/usr/bin/env python3
"""Sends the scripted requests to a node, writes its answers, and compares such files.

  wire.py record BROKER_PORT CONTROLLER_PORT OUT [SCENE…]    both ports on 127.0.0.1, the node freshly formatted
  wire.py compare EXPECTED ACTUAL                            exit code 1 and a diff per step that differs
  wire.py check BROKER_PORT CONTROLLER_PORT EXPECTED         record, then a line of TAP for each step

A line of such a file is `scene/step vN {answer}`; an answer that an earlier line has is written `=` and that line's number.
Only ids, times, ports and paths are masked. reference.txt was recorded from Apache Kafka 4.4.0 (see record.sh).
"""
import difflib
import json
import re
import socket
import struct
import sys
import time

import codec

MASKED_FIELDS = {'Port': '<port>', 'FinalizedFeaturesEpoch': '<offset>', 'BrokerEpoch': '<epoch>', 'LogDir': '<dir>',
                 'ClusterId': '<cluster>', 'TotalBytes': '<bytes>', 'UsableBytes': '<bytes>'}


# Lists that the reference takes from sets and maps without an order.
UNORDERED = {'Produce': ('Responses', 'PartitionResponses'), 'ListOffsets': ('Topics', 'Partitions'), 'DeleteTopics': ('Responses',), 'DeleteRecords': ('Topics', 'Partitions'),
             'Metadata': ('Topics', 'Partitions'), 'CreatePartitions': ('Results',), 'ElectLeaders': ('ReplicaElectionResults', 'PartitionResult'), 'CreateTopics': ('Topics',),
             'DescribeGroups': ('Groups',), 'DeleteGroups': ('Results',), 'DescribeTopicPartitions': (), 'OffsetDelete': ('Topics', 'Partitions')}


class Connection:
    def __init__(self, port, client='wire'):
        self.port, self.client, self.correlation, self.socket = port, client, 0, None

    def connect(self):
        self.socket = socket.create_connection(('127.0.0.1', self.port), timeout=12)

    def send_frame(self, frame):
        if self.socket is None:
            self.connect()
        self.socket.sendall(frame)

    def send(self, api, version, body):
        self.correlation += 1
        self.send_frame(codec.request_frame(api, version, self.correlation, self.client, body))

    def read_exactly(self, count):
        data = b''
        while len(data) < count:
            try:
                part = self.socket.recv(count - len(data))
            except ConnectionResetError:
                part = b''
            if not part:
                self.close()
                return None
            data += part
        return data

    def receive_frame(self):
        header = self.read_exactly(4)
        return None if header is None else self.read_exactly(struct.unpack('>i', header)[0])

    def receive(self, api, version):
        frame = self.receive_frame()
        if frame is None:
            return 'CLOSED'
        correlation, body = codec.read_response(api, version, frame)
        assert correlation == self.correlation, (correlation, self.correlation)
        return body

    def close(self):
        if self.socket is not None:
            self.socket.close()
            self.socket = None


def in_order(value, names):
    if isinstance(value, dict):
        for name, item in value.items():
            in_order(item, names)
            if name in names and isinstance(item, list):
                item.sort(key=lambda one: json.dumps([str(one.get(key)) for key in ('Name', 'TopicId', 'Topic', 'GroupId', 'PartitionIndex', 'Index')]))
    elif isinstance(value, list):
        for item in value:
            in_order(item, names)


class Session:
    """What the scenes use: requests, waiting, masks, and the list of answers."""

    def __init__(self, broker_port, controller_port):
        self.broker_port, self.controller_port = broker_port, controller_port
        self.broker = Connection(broker_port)
        self.controller = Connection(controller_port)
        self.scene = ''
        self.lines = []
        self.labels = {codec.ZERO_ID: '<none>', 'A' * 20 + 'AQ': '<metadata>'}
        self.words = {}
        self.cluster_id = self.ask('Metadata', 4, {'Topics': [], 'AllowAutoTopicCreation': False})['ClusterId']
        self.labels[self.cluster_id] = '<cluster>'

    # Requests

    def ask(self, api, version, body, connection=None):
        connection = connection or self.broker
        connection.send(api, version, body)
        try:
            return connection.receive(api, version)
        except TimeoutError:
            connection.close()
            return 'SILENT'

    def each(self, step, api, body, versions=None, connection=None, edit=None):
        """One step in each version; `body` is a dict, or a function of the version (None skips it)."""
        for version in versions or codec.api_versions_range(api):
            asked = body(version) if callable(body) else body
            if asked is None:
                continue
            try:
                answer = self.ask(api, version, asked, connection)
            except codec.NotInVersion:
                continue
            except (OSError, ValueError, AssertionError) as error:
                answer = f'FAILED {type(error).__name__} {error}'
                (connection or self.broker).close()
            self.note(step, api, version, answer, edit)

    def note(self, step, api, version, answer, edit=None):
        if edit is not None and isinstance(answer, dict):
            answer = edit(answer) or answer
        answer = self.mask(answer)
        in_order(answer, UNORDERED.get(api, ()))
        text = json.dumps(answer, ensure_ascii=False, separators=(',', ':'))
        self.lines.append((f'{self.scene}/{step}', version, text))

    # State

    def topic_id(self, name):
        for _ in range(200):
            answer = self.ask('Metadata', 12, {'Topics': [{'Name': name}], 'AllowAutoTopicCreation': False})
            topic = answer['Topics'][0]
            if topic['ErrorCode'] == 0 and all(p['ErrorCode'] == 0 and p['LeaderId'] >= 0 for p in topic['Partitions']):
                self.labels[topic['TopicId']] = f'<id of {name}>'
                return topic['TopicId']
            time.sleep(0.02)
        raise TimeoutError(f'topic {name} does not appear')

    def create(self, name, partitions=1, **configs):
        configs = [{'Name': key.replace('_', '.'), 'Value': str(value)} for key, value in configs.items()]
        answer = self.ask('CreateTopics', 7, {'timeoutMs': 30000, 'Topics': [
            {'Name': name, 'NumPartitions': partitions, 'ReplicationFactor': 1, 'Configs': configs}]})
        assert answer['Topics'][0]['ErrorCode'] in (0, 36), answer
        identity = self.topic_id(name)
        # A leader answers for itself a moment after the metadata names it.
        for partition in range(partitions):
            self.until(lambda: self.ask('ListOffsets', 6, {'ReplicaId': -1, 'Topics': [{'Name': name, 'Partitions': [
                {'PartitionIndex': partition, 'Timestamp': -2}]}]})['Topics'][0]['Partitions'][0]['ErrorCode'] == 0)
        return identity

    def until(self, condition):
        for _ in range(300):
            if condition():
                return
            time.sleep(0.02)
        raise TimeoutError('a condition does not come true')

    def gone(self, name):
        self.until(lambda: self.ask('Metadata', 12, {'Topics': [{'Name': name}], 'AllowAutoTopicCreation': False})
                   ['Topics'][0]['ErrorCode'] == 3)

    def settle(self):
        """Lets the node take over what its controller has decided."""
        time.sleep(0.25)

    def produce(self, name, data, partition=0, acks=-1):
        return self.ask('Produce', 12, {'Acks': acks, 'TimeoutMs': 10000, 'TopicData': [
            {'Name': name, 'PartitionData': [{'Index': partition, 'Records': data}]}]})

    # Masks

    def mask_time(self, value):
        return '<now>' if isinstance(value, int) and abs(value - time.time() * 1000) < 86_400_000 else value

    def mask(self, value, key=None):
        if isinstance(value, dict):
            return {name: self.mask(item, name.lstrip('~')) for name, item in value.items()}
        if isinstance(value, list):
            return [self.mask(item, key) for item in value]
        if key in MASKED_FIELDS and value not in (None, -1, ''):
            return MASKED_FIELDS[key]
        if key == 'Records':
            return codec.describe_records(value, self.mask_time)
        if isinstance(value, bytes):
            return value.hex()
        if isinstance(value, str):
            value = re.sub(r'should be within \[-?\d+, -?\d+\]', 'should be within [<range>]', value)
            value = re.sub(r'Timestamp 17[0-9]{11} of message', 'Timestamp <t> of message', value)
            for word, label in self.words.items():
                value = value.replace(word, label)
            value = re.sub(r'[A-Za-z0-9_-]{22}', lambda m: self.labels.get(m[0], '<id>'), value) if self.is_id(value) else value
            return value.replace(str(self.broker_port), '<port>').replace(str(self.controller_port), '<cport>')
        return self.mask_time(value)

    def is_id(self, value):
        return any(word in self.labels or len(word) == 22 and re.search('[A-Z]', word) and re.search('[a-z]', word)
                   for word in re.findall(r'(?<![A-Za-z0-9_-])[A-Za-z0-9_-]{22}(?![A-Za-z0-9_-])', value))


def record(broker_port, controller_port, scenes=None):
    import script
    session = Session(broker_port, controller_port)
    for name, scene in script.SCENES:
        if scenes and name not in scenes:
            continue
        session.scene = name
        started = time.time()
        try:
            scene(session)
        except Exception as error:  # The step is named; the other scenes still tell something.
            if scenes:
                raise
            session.lines.append((f'{name}/ABORTED', 0, json.dumps(f'{type(error).__name__}: {error}')))
            session.broker.close()
            session.controller.close()
        print(f'{name} {time.time() - started:.1f} s', file=sys.stderr)
    return session.lines


def write(lines, path):
    with open(path, 'w', encoding='utf-8') as out:
        seen = {}
        for number, (step, version, text) in enumerate(lines, 1):
            first = seen.setdefault(text, number)
            out.write(f'{step} v{version} {text if first == number or len(text) < 8 else f"={first}"}\n')


def read(path):
    answers, texts = {}, ['']
    for line in open(path, encoding='utf-8'):
        step, version, text = line.rstrip('\n').split(' ', 2)
        text = texts[int(text[1:])] if text.startswith('=') else text
        texts.append(text)
        answers[f'{step} {version}'] = json.loads(text)
    return answers


def pretty(answer):
    return json.dumps(answer, ensure_ascii=False, indent=1).split('\n')


def differences(expected, actual):
    """Pairs of a step and its diff, empty when equal."""
    for step in list(expected) + [step for step in actual if step not in expected]:
        if step in expected and step in actual and expected[step] == actual[step] and \
                list_order(expected[step]) == list_order(actual[step]):
            yield step, []
            continue
        lines = difflib.unified_diff(pretty(expected.get(step, 'no such step')), pretty(actual.get(step, 'no such step')), 'expected', 'actual', lineterm='', n=2)
        yield step, list(lines)[2:]


def list_order(value):
    return json.dumps(value, sort_keys=True)


def main(arguments):
    if arguments[:1] == ['record'] and len(arguments) >= 4:
        write(record(int(arguments[1]), int(arguments[2]), arguments[4:]), arguments[3])
        return 0
    if arguments[:1] == ['compare'] and len(arguments) == 3:
        failed, last = 0, None
        for step, diff in differences(read(arguments[1]), read(arguments[2])):
            if diff:
                failed += 1
                if last != diff:
                    print(f'--- {step}', *diff, sep='\n')
                else:
                    print(f'--- {step}: the same')
                last = diff
        print(f'{failed} steps differ')
        return 1 if failed else 0
    if arguments[:1] == ['check'] and len(arguments) == 4:
        lines = record(int(arguments[1]), int(arguments[2]))
        actual = {f'{step} v{version}': json.loads(text) for step, version, text in lines}
        failed = False
        for number, (step, diff) in enumerate(differences(read(arguments[3]), actual), 1):
            print(f'{"not ok" if diff else "ok"} {number} - {step}')
            if diff:
                failed = True
                print(*('  ' + line for line in diff), sep='\n')
        return 1 if failed else 0
    print(__doc__)
    return 2


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
