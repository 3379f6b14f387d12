#!/usr/bin/env python3
"""Makes the damaged and the old files among the fixtures: damage.py DATA."""
import gzip, os, struct, sys, zlib

data = sys.argv[1]
ZERO = '0' * 20
plain = f'{data}/t-none-0/{ZERO}'
read = lambda path: open(path, 'rb').read()
log, index, time_index = read(plain + '.log'), read(plain + '.index'), read(plain + '.timeindex')


def write(directory, name, content):
    os.makedirs(f'{data}/{directory}', exist_ok=True)
    open(f'{data}/{directory}/{name}', 'wb').write(content)


def flipped(content, *changes):
    content = bytearray(content)
    for at, mask in changes:
        content[at] ^= mask
    return bytes(content)


def message(magic, offset, attributes, timestamp, key, value):
    body = struct.pack('>bb', magic, attributes) + (struct.pack('>q', timestamp) if magic else b'')
    for field in (key, value):
        body += struct.pack('>i', -1) if field is None else struct.pack('>i', len(field)) + field
    body = struct.pack('>I', zlib.crc32(body)) + body
    return struct.pack('>qi', offset, len(body)) + body


first_batch = struct.unpack('>i', log[8:12])[0] + 12
write('torn', ZERO + '.log', log[:-30])
write('badcrc', ZERO + '.log', flipped(log, (70, 1)))
write('gap', f'{3:020}.log', log[first_batch:])
write('badsize', ZERO + '.log', log[:8] + struct.pack('>i', 5) + log[12:])
write('badindex', ZERO + '.log', log)
write('badindex', ZERO + '.index', flipped(index, (3, 3)) + bytes(3))
write('badindex', ZERO + '.timeindex', flipped(time_index, (7, 5), (23, 1)) + bytes(1))
write('badindex', f'{40:020}.snapshot', flipped(read(f'{data}/t-none-0/{40:020}.snapshot'), (20, 1)))
# Indexes of a segment that is being written end in zeros.
write('open', ZERO + '.log', log)
write('open', ZERO + '.index', index + bytes(4096))
write('open', ZERO + '.timeindex', time_index + bytes(4092))
time = 1600000000000
old = [message(0, i, 0, 0, b'k%d' % i, b'v%d' % i) for i in range(3)]
old += [message(1, 3 + i, 8 if i == 2 else 0, time + i, None if i else b'k', b'val') for i in range(3)]
write('legacy', ZERO + '.log', b''.join(old))
pack = lambda magic, offset, letter: gzip.compress(
    b''.join(message(magic, offset + i, 0, time + i, b'k', b'%s%d' % (letter, i)) for i in range(3)), mtime=0)
wrappers = [message(0, 12, 1, 0, None, pack(0, 10, b'a')), message(1, 15, 1, time + 2, None, pack(1, 0, b'b')),
            message(1, 18, 9, time + 9999, None, pack(1, 0, b'c'))]
write('legacy', f'{10:020}.log', b''.join(wrappers))
