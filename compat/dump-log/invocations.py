#!/usr/bin/env python3
"""Prints the arguments of every recorded kafka-dump-log; run in crates/cli."""
import os

DATA = 'tests/dump_log/data'
TOOLS = 'org.apache.kafka.tools.api.'
DECODERS = {'__consumer_offsets': '--offsets-decoder', '__transaction_state': '--transaction-log-decoder',
            '__share_group_state': '--share-group-state-decoder', '__cluster_metadata': '--cluster-metadata-decoder'}


def dump(path, *options):
    print('--files', path, *options)


for root, directories, files in os.walk(DATA):
    directories.sort()
    for name in sorted(files):
        path = f'{root}/{name}'
        dump(path)
        if name.endswith(('.log', '.checkpoint')):
            decoder = next((d for topic, d in DECODERS.items() if topic in root), None)
            if decoder:
                dump(path, decoder)
            else:
                dump(path, '--print-data-log')
        if 'index' in name and 'txn' not in name:
            dump(path, '--index-sanity-check')
            dump(path, '--verify-index-only')
PLAIN = f'{DATA}/t-none-0/{0:020}'
dump(f'{PLAIN}.log,{PLAIN}.index,{PLAIN}.timeindex,', '--print-data-log')
dump(f'{PLAIN}.index', '--max-message-size', '100')
for options in ('--deep-iteration', '--print-data-log --skip-record-metadata', '--print-data-log --max-bytes 500',
                f'--value-decoder-class {TOOLS}IntegerDecoder', f'--key-decoder-class {TOOLS}LongDecoder',
                '--key-decoder-class no.Such', '--offsets-decoder', '--cluster-metadata-decoder',
                '--transaction-log-decoder'):
    dump(f'{PLAIN}.log', *options.split(' '))
dump(f'{DATA}/t-txn-0/{0:020}.log', '--print-data-log', '--skip-record-metadata')
dump(f'{DATA}/__consumer_offsets-0/{0:020}.log', '--offsets-decoder', '--skip-record-metadata')
for name in ('nosuch.log', f'{0:020}.log', 'meta.properties', 'nosuffix'):
    dump(f'{DATA}/{name}')
