#!/usr/bin/env python3
"""Runs invocations.txt with one tool set against one broker, and compares two such runs.

  run.py record  --tools java|BINARY --bootstrap HOST:PORT --logdir DIR --out FILE [--only WORD]
  run.py compare EXPECTED ACTUAL [--allowed FILE] [--at-least N]
                                          exit code 1 and a diff per invocation that differs

`cargo xtask goldens` does both with our tools and our broker, against reference.txt.

Only ids, times and hosts are masked. Both tool sets and both brokers give comparable files.
`java` needs KAFKA_LIBS (the directory with the reference's jars) and a JDK; all its tools run in one JVM.
"""
import argparse, base64, difflib, json, os, re, shlex, subprocess, sys, tempfile, time, urllib.parse

HERE = os.path.dirname(os.path.abspath(__file__))
CLASSES = {
    'kafka-topics': 'org.apache.kafka.tools.TopicCommand',
    'kafka-console-producer': 'org.apache.kafka.tools.ConsoleProducer',
    'kafka-console-consumer': 'org.apache.kafka.tools.consumer.ConsoleConsumer',
    'kafka-consumer-groups': 'org.apache.kafka.tools.consumer.group.ConsumerGroupCommand',
    'kafka-configs': 'org.apache.kafka.tools.ConfigCommand',
    'kafka-get-offsets': 'org.apache.kafka.tools.GetOffsetShell',
    'kafka-delete-records': 'org.apache.kafka.tools.DeleteRecordsCommand',
    'kafka-broker-api-versions': 'org.apache.kafka.tools.BrokerApiVersionsCommand',
    'kafka-cluster': 'org.apache.kafka.tools.ClusterTool',
    'kafka-features': 'org.apache.kafka.tools.FeatureCommand',
    'kafka-metadata-quorum': 'org.apache.kafka.tools.MetadataQuorumCommand',
    'kafka-log-dirs': 'org.apache.kafka.tools.LogDirsCommand',
    'kafka-dump-log': 'org.apache.kafka.tools.DumpLogSegments',
    'kafka-producer-perf-test': 'org.apache.kafka.tools.ProducerPerformance',
    'kafka-consumer-perf-test': 'org.apache.kafka.tools.ConsumerPerformance',
    'kafka-storage': 'kafka.tools.StorageTool',
}


def parse_invocations(path):
    for line in open(path, encoding='utf-8'):
        line = line.rstrip('\n')
        if not line or line.startswith('#'):
            continue
        text, _, stdin = line.partition(' <<< ')
        stdin = json.loads(stdin) if stdin else ''
        flags = []
        while text.startswith('@'):
            flag, _, text = text.partition(' ')
            flags.append(flag)
        yield line, flags, text, stdin


# Lists in messages that the reference takes from sets without an order.
LISTS = (r'(Valid (?:states|types) are: |takes (?:one of these|the following) options: |must be one of )'
         r'([\w\[\], -]+?)($| with)')
# The replicas in a log directory: the broker's order is that of its maps, the tool's depends on it.
REPLICAS = r'(?<="partitions":)\[({"partition":[^}]*},?)*\]'
SCENARIOS = r'(following scenarios: \[)(.*)(\]$)'


class JavaTools:
    def __init__(self, work):
        libs = os.environ['KAFKA_LIBS']
        classpath = f'{work}:{libs}/*'
        subprocess.run(['javac', '-cp', classpath, '-d', work, f'{HERE}/JavaTools.java'], check=True)
        self.process = subprocess.Popen(['java', '-Xmx512m', '-Djava.security.manager=allow', '-cp', classpath, 'JavaTools'], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def run(self, tool, args, stdin):
        fields = [CLASSES[tool], stdin] + args
        self.process.stdin.write('\t'.join(urllib.parse.quote(f, safe='') for f in fields) + '\n')
        self.process.stdin.flush()
        code, out, err = self.process.stdout.readline().rstrip('\n').split('\t')
        decode = lambda s: base64.b64decode(s).decode('utf-8', 'replace')
        return int(code), decode(out), decode(err)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Binary:
    def __init__(self, path):
        self.path = path

    def run(self, tool, args, stdin):
        try:
            done = subprocess.run([self.path, tool] + args, input=stdin.encode(), capture_output=True, timeout=120)
        except subprocess.TimeoutExpired:
            return 124, '', ''
        return done.returncode, done.stdout.decode('utf-8', 'replace'), done.stderr.decode('utf-8', 'replace')

    def close(self):
        pass


def without_traces(text):
    """Stack traces are the JVM's, the message of an uncaught exception is the tool's."""
    text = re.sub(r'Exception in thread "main" [\w.$]+: ', '', text)
    noise = r'\s+at |Caused by:|\s+\.\.\. \d+ more|([a-z]\w*\.)+[\w$]+(Exception|Error)\b|Exception in thread'
    return ''.join(l for l in text.splitlines(keepends=True) if not re.match(noise, l))


def reduce_usage(text, names_wanted):
    """A usage text becomes its first line and, for --help, the option names; the rest of it is prose."""
    lines = text.split('\n')
    starts = [i for i, l in enumerate(lines) if re.match(r'Option(s| \(\* = required\))?\s+Description', l)]
    if not starts:
        return text
    names = []
    for line in lines[starts[0] + 2:]:
        found = re.match(r'(?:\* )?(-{1,2}[A-Za-z][\w.-]*)(, (--[\w.-]+))?', line)
        if found:
            names.append(found.group(1) + (found.group(2) or ''))
    names = [name for name in names if name not in ('-o, --output', '--timeout')]  # ours, on every tool
    return '\n'.join(lines[:starts[0]] + ['<usage>'] + (names if names_wanted else [])) + '\n'


def mask(text, flags, env):
    text = re.sub(r'(?m)^\[\d{4}-\d\d-\d\d [\d:,]+\] (WARN|ERROR|INFO) .*\n', '', text)  # log lines
    for name in ('B', 'D', 'T'):
        text = text.replace(env[name], '$' + name)
    host, port = env['B'].rsplit(':', 1)
    text = text.replace(os.path.dirname(env['D']), '$DD') if len(os.path.dirname(env['D'])) > 4 else text
    text = re.sub(r'\b(127\.0\.0\.1|localhost)(:\d+)?\b', 'HOST', text)
    text = re.sub(r'(?<![\w-])(?=[\w-]*[A-Z])(?=[\w-]*[a-z])[A-Za-z0-9_-]{22}(?![\w(-])', '<id>', text)
    text = re.sub(r'\b1[789]\d{11}\b', '<time>', text)
    text = re.sub(r'\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.,:]\d{3}', '<date>', text)
    text = re.sub(r'\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b', '<uuid>', text)
    text = re.sub(r'(\bcrc: |\bsize: |"size":)\d+', r'\1<n>', text)  # depend on the times in a batch
    text = re.sub(r'Epoch: \d+$', 'Epoch: <n>', text, flags=re.M)  # the metadata log's end, of finalized features
    text = re.sub(r'(?m)^(\d+ +HOST +)\d+ *', r'\1<port> ', text)
    if '@numbers' in flags:
        text = re.sub(r'-?\d+(\.\d+)?(E-?\d+)?|NaN|Infinity', '#', text)
        text = re.sub(r' +', ' ', text)
    text = re.sub(r'\[(\[[\w-]+\]), (\[[\w-]+\])\]', lambda m: '[' + ', '.join(sorted(m.groups())) + ']', text)  # a set
    text = re.sub(REPLICAS, lambda m: '[' + ','.join(sorted(re.findall(r'{[^}]*}', m.group()))) + ']', text)
    for lists in (LISTS, SCENARIOS):
        text = re.sub(lists, lambda m: m.group(1) + ', '.join(sorted(m.group(2).split(', '))) + m.group(3), text, flags=re.M)
    text = reduce_usage(text, '--help' in flags)
    if '@unordered' in flags:
        text = ''.join(sorted(text.splitlines(keepends=True)))
    return text


def record(options):
    with tempfile.TemporaryDirectory() as work:
        env = {'B': options.bootstrap, 'D': options.logdir, 'T': f'{work}/files'}
        files(env['T'])
        tools = JavaTools(work) if options.tools == 'java' else Binary(options.tools)
        out = open(options.out, 'w', encoding='utf-8')
        for line, flags, text, stdin in parse_invocations(options.invocations):
            if options.only and options.only not in line:
                continue
            words = shlex.split(re.sub(r'\$([BDT])\b', lambda m: env[m.group(1)], text))
            if '@settle' in flags:
                time.sleep(1)
            started = time.time()
            code, stdout, stderr = tools.run(words[0], words[1:], stdin)
            if options.verbose:
                print(f'{time.time() - started:6.2f}s {code} {line}', file=sys.stderr, flush=True)
            if '@code' in flags:
                stdout = stderr = ''
            stderr = without_traces(stderr)
            out.write(f'>>> {line}\nexit {code}\n')
            for name, content in (('stdout', stdout), ('stderr', stderr)):
                content = mask(content, flags + words, env)
                if content:
                    end = '' if content.endswith('\n') else '\\\n'
                    out.write(f'{name}:\n' + ''.join('  ' + l for l in content.splitlines(keepends=True)) + end)
            out.flush()
        tools.close()


def files(directory):
    os.makedirs(directory)
    write = lambda name, text: open(f'{directory}/{name}', 'w').write(text)
    partition = lambda topic, number, offset: {'topic': topic, 'partition': number, 'offset': offset}
    write('delete-t3.json', json.dumps({'version': 1, 'partitions': [partition('t3', 0, 1), partition('t3', 1, 0)]}))
    write('delete-cfg.json', json.dumps({'version': 1, 'partitions': [partition('cfg', 0, 1)]}))
    write('delete-bad.json', '{"version": 2, "partitions": []}')
    write('delete-out-of-range.json', json.dumps({'version': 1, 'partitions': [partition('t3', 0, 1000)]}))
    write('payload.txt', 'first\nsecond\nthird\n')
    write('storage.properties', f'process.roles=broker,controller\nnode.id=1\nlog.dirs={directory}/data\n'
          'listeners=PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2\ncontroller.listener.names=CONTROLLER\n'
          'controller.quorum.bootstrap.servers=127.0.0.1:2\n')


def sections(path):
    result, current = {}, None
    for line in open(path, encoding='utf-8'):
        if line.startswith('>>> '):
            current = line
            while current in result:
                current = current.rstrip('\n') + ' (again)\n'
            result[current] = []
        else:
            result[current].append(line)
    return result


def allowances(path):
    """allowed.txt: per invocation the lines that may differ, `-` what the reference prints and `+` what we print."""
    result, current, reason = {}, None, False
    for number, line in enumerate(open(path, encoding='utf-8') if path else [], 1):
        if line.startswith('>>> '):
            current, reason = result.setdefault(line, []), False
        elif line.startswith('#'):
            reason = True
        elif line[0] in '-+':
            assert current is not None and reason, f'{path}:{number}: a difference needs an invocation and a reason'
            current.append(line)
    return result


def without(lines, allowed, sign):
    """`lines` less those that are allowed to be in this side only, and which of these it does not have."""
    lines, gone = list(lines), []
    for line in (line for line in allowed if line[0] == sign):
        lines.remove(line[1:]) if line[1:] in lines else gone.append(line)
    return lines, gone


def compare(options):
    expected, actual, allowed = sections(options.expected), sections(options.actual), allowances(options.allowed)
    equal = excused = differing = 0
    for name, lines in actual.items():
        wanted = expected.get(name, [])
        if wanted == lines and name not in allowed:
            equal += 1
            continue
        reference, gone_there = without(wanted, allowed.get(name, []), '-')
        ours, gone_here = without(lines, allowed.get(name, []), '+')
        if reference == ours and not gone_there and not gone_here and wanted != lines:
            excused += 1
            continue
        differing += 1
        print(name, end='')
        if not options.quiet:
            diff = difflib.unified_diff(reference, ours, n=100)
            print(''.join('    ' + l for l in diff if l[:3] not in ('---', '+++', '@@ ')))
        for line in gone_there + gone_here:
            print('  no longer so, take it out of allowed.txt: ' + line, end='')
    missing = len(expected.keys() - actual.keys())
    print(f'{equal} equal, {excused} differ as allowed, {differing} differ otherwise, {missing} not run')
    failed = differing or equal < options.at_least or options.at_least and missing
    sys.exit(1 if failed else 0)


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest='command', required=True)
    r = commands.add_parser('record')
    r.add_argument('--tools', required=True)
    r.add_argument('--bootstrap', required=True)
    r.add_argument('--logdir', required=True)
    r.add_argument('--out', required=True)
    r.add_argument('--only')
    r.add_argument('--verbose', action='store_true')
    r.add_argument('--invocations', default=f'{HERE}/invocations.txt')
    c = commands.add_parser('compare')
    c.add_argument('expected')
    c.add_argument('actual')
    c.add_argument('--quiet', action='store_true')
    c.add_argument('--allowed', help='a file of differences that are known, with reasons')
    c.add_argument('--at-least', type=int, default=0, help='so many have to be equal, and all have to be run')
    options = parser.parse_args()
    record(options) if options.command == 'record' else compare(options)


main()
