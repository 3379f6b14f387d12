"""Encodes and decodes Kafka requests from the schema tables of crates/protocol/schema, independently of the Rust codec.

Requests are dicts with the schema's field names; absent fields take the schema's defaults and fields that a version
lacks are left out. Responses are dicts of all fields of their version. Record batches are built and read here too.
"""
import os
import struct
import uuid as uuids
import base64
import zlib

SCHEMA = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../crates/protocol/schema')
INTS = {'int8': '>b', 'int16': '>h', 'uint16': '>H', 'int32': '>i', 'uint32': '>I', 'int64': '>q', 'float64': '>d'}
SCALARS = set(INTS) | {'bool', 'string', 'uuid', 'bytes', 'records'}


class Versions:
    def __init__(self, text):
        self.low, self.high = 1, 0
        if text != 'none':
            low, _, high = text.partition('-')
            if low.endswith('+'):
                self.low, self.high = int(low[:-1]), 1 << 15
            else:
                self.low, self.high = int(low), int(high or low)

    def __contains__(self, version):
        return self.low <= version <= self.high


class Field:
    def __init__(self, words):
        self.name, self.type, self.versions = words[0], words[1], Versions(words[2])
        options = dict(word.partition('=')[::2] for word in words[3:])
        self.null = Versions(options.get('null', 'none'))
        self.default = options.get('default')
        self.tag = int(options['tag']) if 'tag' in options else None
        self.tagged = Versions(options.get('tagged', 'none'))
        self.array = self.type.startswith('[]')
        self.element = self.type[2:] if self.array else self.type
        self.fields = []

    def default_value(self, structs):
        if self.default == 'null':
            return None
        if self.array:
            return []
        kind = self.element
        if kind in INTS:
            return int(self.default or '0', 0)
        if kind == 'bool':
            return self.default == 'true'
        if kind == 'string':
            return self.default or ''
        if kind == 'uuid':
            return ZERO_ID
        if kind in ('bytes', 'records'):
            return b''
        return {}


ZERO_ID = 'A' * 22


def uuid_bytes(text):
    return base64.urlsafe_b64decode(text + '==')


def uuid_text(data):
    return base64.urlsafe_b64encode(data).decode().rstrip('=')


class Schema:
    def __init__(self, words):
        options = dict(word.partition('=')[::2] for word in words[2:])
        self.name = words[1]
        self.key = int(options.get('key', -1))
        self.versions = Versions(options['versions'])
        self.flexible = Versions(options['flexible'])
        self.fields = []
        self.structs = {}


def load(name):
    schemas, schema, stack = {}, None, []
    for line in open(os.path.join(SCHEMA, name), encoding='utf-8'):
        words = line.split()
        if not words or words[0] == '#':
            continue
        depth = (len(line) - len(line.lstrip())) // 2
        if depth == 0:
            schema = Schema(words)
            schemas[schema.name] = schema
            stack = [schema.fields]
            continue
        if words[0] == 'struct':
            stack = stack[:depth] + [schema.structs.setdefault(words[1], [])]
            continue
        field = Field(words)
        stack[depth - 1].append(field)
        if field.element not in SCALARS and field.element not in schema.structs:
            # Later uses of the same struct name refer to the first one's fields.
            schema.structs[field.element] = field.fields
        stack = stack[:depth] + [schema.structs.get(field.element, [])]
    return schemas


REQUESTS = load('requests.txt')
RESPONSES = load('responses.txt')


class Writer:
    def __init__(self):
        self.out = bytearray()

    def int(self, kind, value):
        self.out += struct.pack(INTS[kind], value)

    def varint(self, value):
        while value >= 0x80:
            self.out.append(value & 0x7f | 0x80)
            value >>= 7
        self.out.append(value)

    def length(self, value, flexible, short):
        if flexible:
            self.varint(value + 1)
        else:
            self.int('int16' if short else 'int32', value)

    def scalar(self, kind, value, flexible):
        if kind in INTS:
            self.int(kind, value)
        elif kind == 'bool':
            self.out.append(1 if value else 0)
        elif kind == 'uuid':
            self.out += uuid_bytes(value)
        elif value is None:
            self.length(-1, flexible, kind == 'string')
        else:
            data = value.encode() if isinstance(value, str) else value
            self.length(len(data), flexible, kind == 'string')
            self.out += data


class NotInVersion(Exception):
    pass


def write_value(w, schema, field, value, version):
    flexible = version in schema.flexible
    if value is None and field.element != 'records' and version not in field.null:
        raise NotInVersion(f'{schema.name}.{field.name} must not be null in version {version}')
    if field.array:
        w.length(-1 if value is None else len(value), flexible, False)
        for item in value or []:
            if field.element in SCALARS:
                w.scalar(field.element, item, flexible)
            else:
                write_struct(w, schema, schema.structs[field.element], item, version)
    elif field.element in SCALARS:
        w.scalar(field.element, value, flexible)
    else:
        if field.null.low <= field.null.high:
            w.int('int8', -1 if value is None else 1)
        if value is not None:
            write_struct(w, schema, schema.structs[field.element], value, version)


def write_struct(w, schema, fields, value, version):
    known = {field.name for field in fields}
    unknown = set(value) - known
    assert not unknown, f'{schema.name} has no {unknown}'
    tagged = []
    for field in fields:
        if version not in field.versions:
            continue
        item = value.get(field.name, field.default_value(schema.structs))
        if version in field.tagged:
            if field.name in value:
                part = Writer()
                write_value(part, schema, field, item, version)
                tagged.append((field.tag, bytes(part.out)))
            continue
        write_value(w, schema, field, item, version)
    if version in schema.flexible:
        w.varint(len(tagged))
        for tag, data in sorted(tagged):
            w.varint(tag)
            w.varint(len(data))
            w.out += data


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        if count < 0 or self.at + count > len(self.data):
            raise ValueError(f'{count} bytes wanted at {self.at} of {len(self.data)}')
        self.at += count
        return self.data[self.at - count:self.at]

    def int(self, kind):
        return struct.unpack(INTS[kind], self.take(struct.calcsize(INTS[kind])))[0]

    def varint(self):
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7f) << shift
            shift += 7
            if not byte & 0x80:
                return value

    def length(self, flexible, short):
        return self.varint() - 1 if flexible else self.int('int16' if short else 'int32')

    def scalar(self, kind, flexible):
        if kind in INTS:
            return self.int(kind)
        if kind == 'bool':
            return bool(self.take(1)[0])
        if kind == 'uuid':
            return uuid_text(self.take(16))
        length = self.length(flexible, kind == 'string')
        if length < 0:
            return None
        data = self.take(length)
        return data.decode() if kind == 'string' else bytes(data)


def read_value(r, schema, field, version):
    flexible = version in schema.flexible
    if field.array:
        count = r.length(flexible, False)
        if count < 0:
            return None
        if field.element in SCALARS:
            return [r.scalar(field.element, flexible) for _ in range(count)]
        return [read_struct(r, schema, schema.structs[field.element], version) for _ in range(count)]
    if field.element in SCALARS:
        return r.scalar(field.element, flexible)
    if field.null.low <= field.null.high and version in field.null and r.int('int8') < 0:
        return None
    return read_struct(r, schema, schema.structs[field.element], version)


def read_struct(r, schema, fields, version):
    value = {}
    tagged = {}
    for field in fields:
        if version not in field.versions:
            continue
        if version in field.tagged:
            tagged[field.tag] = field
            continue
        value[field.name] = read_value(r, schema, field, version)
    if version in schema.flexible:
        for _ in range(r.varint()):
            tag, size = r.varint(), r.varint()
            data = r.take(size)
            if tag in tagged:
                # The mark shows whether a tagged field was sent at all.
                value['~' + tagged[tag].name] = read_value(Reader(data), schema, tagged[tag], version)
            else:
                value[f'~{tag}'] = data
    return value


def request_frame(api, version, correlation, client, body):
    schema = REQUESTS[api + 'Request']
    w = Writer()
    w.int('int16', schema.key)
    w.int('int16', version)
    w.int('int32', correlation)
    w.scalar('string', client, False)
    if version in schema.flexible:
        w.varint(0)
    write_struct(w, schema, schema.fields, body, version)
    return struct.pack('>i', len(w.out)) + bytes(w.out)


def read_response(api, version, frame):
    schema = RESPONSES[api + 'Response']
    r = Reader(frame)
    correlation = r.int('int32')
    if version in schema.flexible and api != 'ApiVersions':
        for _ in range(r.varint()):
            r.varint()
            r.take(r.varint())
    body = read_struct(r, schema, schema.fields, version)
    if r.at != len(frame):
        body['~trailing'] = len(frame) - r.at
    return correlation, body


def api_versions_range(api):
    schema = REQUESTS[api + 'Request']
    return range(schema.versions.low, schema.versions.high + 1)


# Record batches.
TABLE = []
for n in range(256):
    for _ in range(8):
        n = n >> 1 ^ 0x82f63b78 if n & 1 else n >> 1
    TABLE.append(n)


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xff]
    return crc ^ 0xffffffff


def zigzag(value):
    w = Writer()
    w.varint((value << 1 ^ value >> 63) & 0xffffffffffffffff)
    return bytes(w.out)


def record(delta, key=None, value=b'v', time_delta=0, headers=()):
    body = b'\0' + zigzag(time_delta) + zigzag(delta)
    for part in (key, value):
        body += zigzag(-1) if part is None else zigzag(len(part)) + part
    body += zigzag(len(headers))
    for name, data in headers:
        body += zigzag(len(name)) + name + (zigzag(-1) if data is None else zigzag(len(data)) + data)
    return zigzag(len(body)) + body


TIME = 1_700_000_000_000


def batch(records=None, count=None, *, base=0, magic=2, attributes=0, time=TIME, max_time=None, last_delta=None,
          producer=(-1, -1, -1), epoch=-1, body=None, bad_crc=False):
    if records is None:
        records = [record(0)]
    count = len(records) if count is None else count
    if body is None:
        body = b''.join(records)
        if attributes & 7 == 1:
            compressor = zlib.compressobj(6, zlib.DEFLATED, 31)
            body = compressor.compress(body) + compressor.flush()
    last_delta = count - 1 if last_delta is None else last_delta
    max_time = time if max_time is None else max_time
    tail = struct.pack('>hiqqqhii', attributes, last_delta, time, max_time, *producer, count) + body
    crc = crc32c(tail) ^ (1 if bad_crc else 0)
    return struct.pack('>qiibI', base, len(tail) + 9, epoch, magic, crc) + tail


def legacy_message(magic, value=b'v', offset=0, attributes=0):
    body = struct.pack('>bb', magic, attributes) + (struct.pack('>q', TIME) if magic else b'')
    body += struct.pack('>i', -1) + struct.pack('>i', len(value)) + value
    message = struct.pack('>I', zlib.crc32(body)) + body
    return struct.pack('>qi', offset, len(message)) + message


def describe_records(data, mask_time):
    """Batches in words: a byte string says little in a diff."""
    if data is None:
        return None
    out, at = [], 0
    while at + 61 <= len(data):
        base, length, epoch, magic, crc = struct.unpack_from('>qiibI', data, at)
        fields = struct.unpack_from('>hiqqqhii', data, at + 21)
        end = at + 12 + length
        attributes, last, time, max_time, pid, pepoch, sequence, count = fields
        times = [mask_time(time), mask_time(max_time)]
        masked = times != [time, max_time]
        crc_word = '' if masked else f' crc={crc:08x}'
        out.append(f'base={base} epoch={epoch} magic={magic}{crc_word} attr={attributes:#x} last={last} time={times[0]}..{times[1]} '
                   f'producer={pid}/{pepoch}/{sequence} count={count} body={zlib.crc32(data[at + 61:end]):08x}/{end - at - 61}'
                   + ('' if end <= len(data) else ' (cut)'))
        at = end
    if at < len(data):
        out.append(f'rest {data[at:].hex()}')
    return out
