#!/usr/bin/env python3
"""Asks a node about the topics old-CODEC whose segments WriteOld.java made; prints what tests/old_formats.rs expects.

  observe.py PORT DIR          DIR: the segments; lines are
  CODEC fetch OFFSET MAX_BYTES: POSITION LENGTH, or the error     where in the file the answer's records lie
  CODEC list TIMESTAMP: OFFSET TIMESTAMP LEADER_EPOCH, or the error
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'wire'))
import codec  # noqa: E402
import wire  # noqa: E402

port, directory = int(sys.argv[1]), sys.argv[2]
session = wire.Session(port, port + 1)
for name in ('none', 'gzip', 'snappy', 'lz4'):
    topic = f'old-{name}'
    identity = session.topic_id(topic)
    data = open(f'{directory}/{name}.log', 'rb').read()
    for limit in (1, 150, 400, 1 << 20):
        for offset in range(37):
            answer = session.ask('Fetch', 13, {'ReplicaId': -1, 'MaxWaitMs': 0, 'MinBytes': 0, 'MaxBytes': 1 << 30, 'SessionId': 0, 'SessionEpoch': -1, 'Topics': [
                {'TopicId': identity, 'Partitions': [{'Partition': 0, 'FetchOffset': offset, 'CurrentLeaderEpoch': -1, 'LastFetchedEpoch': -1, 'LogStartOffset': -1, 'PartitionMaxBytes': limit}]}]})
            partition = answer['Responses'][0]['Partitions'][0]
            records = partition['Records'] or b''
            what = f'{data.find(records) if records else 0} {len(records)}' if partition['ErrorCode'] == 0 else f"error {partition['ErrorCode']}"
            print(f'{name} fetch {offset} {limit}: {what}')
    for timestamp in (-1, -2, -3, -4, -5, -6, 0, 1, 999, 1000, 1001, 2000, 2001, 2500, 3000, 3001, 4000, 5000, 5001, 6000, 6001, 6002, 6003, 7000, 8000, 9000, 9001, 10000, 10001, 12000, 12001, 1 << 62):
        answer = session.ask('ListOffsets', 11, {'ReplicaId': -1, 'IsolationLevel': 0, 'TimeoutMs': 5000, 'Topics': [{'Name': topic, 'Partitions': [
            {'PartitionIndex': 0, 'CurrentLeaderEpoch': -1, 'Timestamp': timestamp}]}]})
        p = answer['Topics'][0]['Partitions'][0]
        print(f'{name} list {timestamp}: ' + (f"{p['Offset']} {p['Timestamp']} {p['LeaderEpoch']}" if p['ErrorCode'] == 0 else f"error {p['ErrorCode']}"))
