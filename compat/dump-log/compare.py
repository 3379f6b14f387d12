#!/usr/bin/env python3
"""Dumps every file of a data directory with the reference's DumpLogSegments and with our kafka-dump-log, and compares.

  compare.py TOOL DIR [DIR…]     TOOL: the binary (`TOOL kafka-dump-log …`); exit code 1 when an output differs

The node whose directories these are must be stopped. Needs KAFKA_LIBS (the reference's jars) and a JDK 17.
"""
import os, subprocess, sys, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SUFFIXES = ('.log', '.index', '.timeindex', '.txnindex', '.snapshot', '.checkpoint')
DECODERS = {'__consumer_offsets': '--offsets-decoder', '__transaction_state': '--transaction-log-decoder',
            '__share_group_state': '--share-group-state-decoder', '__cluster_metadata': '--cluster-metadata-decoder'}


def invocations(directories):
    for directory in directories:
        for root, folders, files in os.walk(os.path.abspath(directory)):
            folders.sort()
            for name in sorted(file for file in files if file.endswith(SUFFIXES)):
                path = f'{root}/{name}'
                yield ['--files', path]
                if name.endswith(('.log', '.checkpoint')):
                    decoder = next((d for topic, d in DECODERS.items() if topic in root), '--print-data-log')
                    yield ['--files', path, decoder]
                elif 'txn' not in name and name.endswith('index'):
                    yield ['--files', path, '--index-sanity-check']


def main():
    tool, directories = sys.argv[1], sys.argv[2:]
    all_arguments = list(invocations(directories))
    with tempfile.TemporaryDirectory() as work:
        with open(f'{work}/list', 'w') as out:
            out.writelines(' '.join(arguments) + '\n' for arguments in all_arguments)
        classpath = os.environ['KAFKA_LIBS'] + '/*'
        subprocess.run(['java', '-Xmx512m', '-cp', classpath, f'{HERE}/DumpAll.java', f'{work}/list', f'{work}/expected'],
                       check=True, cwd=work)
        sections = open(f'{work}/expected', encoding='utf-8').read()[4:].split('\n>>> ')
    differing = 0
    for arguments, section in zip(all_arguments, sections, strict=True):
        done = subprocess.run([tool, 'kafka-dump-log'] + arguments, capture_output=True)
        actual = (done.stdout + b'--- stderr\n' + done.stderr).decode('utf-8', 'replace')
        if actual.rstrip('\n') != section.split('\n', 1)[1].rstrip('\n'):
            differing += 1
            print('differs:', ' '.join(arguments))
    print(f'{len(all_arguments)} outputs, {differing} differ')
    sys.exit(1 if differing else 0)


main()
