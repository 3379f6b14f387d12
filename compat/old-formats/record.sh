#!/usr/bin/env bash
# Records crates/bitacora/tests/old_formats anew: the reference's classes write segments of formats v0 and v1, a node of
# it serves them. Needs KAFKA_LIBS (the directory with the reference's jars), a JDK 17 and python3.
#   record.sh PORT    the node takes PORT and PORT+1 on 127.0.0.1
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=$here/../../crates/bitacora/tests/old_formats
port=$1 work=$(mktemp -d)
mkdir -p "$out"
java -cp "$KAFKA_LIBS/*" "$here/WriteOld.java" "$out"
cat > "$work/server.properties" <<P
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:$((port + 1))
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((port + 1))
controller.listener.names=CONTROLLER
log.dirs=$work/data
log.retention.ms=-1
P
node=
begin() {
  java -Xmx512m -cp "$KAFKA_LIBS/*" kafka.Kafka "$work/server.properties" > "$work/log" 2>&1 & node=$!
  until (echo > "/dev/tcp/127.0.0.1/$port") 2> /dev/null; do kill -0 "$node"; sleep 1; done
  sleep 2
}
end() { kill "$node"; wait "$node" || true; node=; }
trap '[ -z "$node" ] || end; rm -rf "$work"' EXIT
java -cp "$KAFKA_LIBS/*" kafka.tools.StorageTool format -t 5L6g3nShT-eMCtK--X86sw -c "$work/server.properties" --standalone
begin
for codec in none gzip snappy lz4; do
  java -cp "$KAFKA_LIBS/*" org.apache.kafka.tools.TopicCommand --bootstrap-server "127.0.0.1:$port" --create --topic "old-$codec"
done
end
for codec in none gzip snappy lz4; do
  rm -f "$work/data/old-$codec-0"/{*.index,*.timeindex,*.snapshot,leader-epoch-checkpoint}
  cp "$out/$codec.log" "$work/data/old-$codec-0/00000000000000000000.log"
done
rm -f "$work/data/.kafka_cleanshutdown"
begin
python3 "$here/observe.py" "$port" "$out" > "$out/expected.txt"
