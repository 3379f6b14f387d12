#!/usr/bin/env bash
# Formats the same directories with Apache Kafka's kafka-storage and with ours, and compares what they print, the exit
# codes, the files they leave and the sizes of the bootstrap snapshots.
#
#   format.sh KAFKA WORKDIR TOOL [ARG...]
#     KAFKA    runs the reference: `KAFKA run CLASS ARG...`
#     TOOL...  our kafka-storage, e.g. `bitacora kafka-storage`
#
# Directory ids are masked. Where the reference dies of an exception, stack traces and the exception's class are left
# out on both sides. Prints one line per difference; exit code 1 when there is one.
set -euo pipefail
kafka=$1 work=$2; shift 2
tool=("$@")
rm -rf "$work"; mkdir -p "$work"; cd "$work"
export KAFKA_PEER_LOG=OFF KAFKA_PEER_OPTS=${KAFKA_PEER_OPTS:--Xmx200m}
cluster=5L6g3nShT-eMCtK--X86sw
both=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
dynamic=controller.quorum.bootstrap.servers=127.0.0.1:9093
count=0 different=0

properties() { # NAME ROLES QUORUM LISTENERS [LINE]
  printf '%s\n' "process.roles=$2" node.id=1 "$3" "listeners=$4" controller.listener.names=CONTROLLER \
    "log.dirs=$work/dirs/$1-1,$work/dirs/$1-2" "${5:-}" > "$1.properties"
}
run() { # OUTPUT PREPARATION COMMAND...
  local output=$1 preparation=$2 code=0; shift 2
  rm -rf dirs; mkdir dirs; eval "$preparation"
  "$@" > "$output" 2>&1 || code=$?
  { echo "exit code $code"; (cd dirs; find . -type f | sort; find . -name '*.checkpoint' -size -1M -printf '%p %s\n' | sort); } >> "$output"
  sed -i -E '/^\tat |^\t\.\.\. |^Caused by|^java\./d; s/^Exception in thread "main" [A-Za-z.]+: //; s/directory.id=[A-Za-z0-9_-]{22}/directory.id=ID/' "$output"
}
compare() { # PREPARATION ARG...
  local preparation=$1; shift
  count=$((count + 1))
  run theirs.txt "$preparation" "$kafka" run kafka.tools.StorageTool "$@"
  run ours.txt "$preparation" "${tool[@]}" "$@"
  cmp -s theirs.txt ours.txt && return
  different=$((different + 1))
  echo "DIFFERENT: $*"; diff theirs.txt ours.txt || true
}
meta() { # DIRECTORY LINE...
  local directory=$1; shift
  echo "mkdir -p dirs/$directory; printf '%s\\n' $* > dirs/$directory/meta.properties"
}

properties a broker,controller "$dynamic" "$both"
properties s broker,controller controller.quorum.voters=1@127.0.0.1:9093 "$both"
properties b broker "$dynamic" PLAINTEXT://127.0.0.1:9092
properties c controller "$dynamic" CONTROLLER://:9093
properties m broker,controller "$dynamic" "$both" "metadata.log.dir=$work/dirs/m-3"
properties u broker,controller "$dynamic" "$both" unstable.feature.versions.enable=true
voters=1@127.0.0.1:9093:JEXY6aqzQY-32P5TStzaFg,2@h2:9093:MvDxzVmcRsaTz33bUuRU6A
a=(format -t $cluster -c a.properties)

compare : info -c a.properties
compare : "${a[@]}"
for name in a m c u; do compare : format -t $cluster -c $name.properties -s; done
for name in s b; do compare : format -t $cluster -c $name.properties; compare : format -t $cluster -c $name.properties -s; done
compare : "${a[@]}" -N
for text in "$voters" 7@h:1:JEXY6aqzQY-32P5TStzaFg garbage; do compare : "${a[@]}" -I "$text"; done
for version in 3.9 4.0-IV1 4.5-IV0 9; do compare : "${a[@]}" -s -r $version; compare : version-mapping -r $version; done
for feature in metadata.version=30 metadata.version=99 metadata.version=34 kraft.version=0 group.version=0 \
  group.version=5 foo=1 foo; do compare : "${a[@]}" -s -f $feature; done
compare : "${a[@]}" -s -f metadata.version=30 -r 4.0
compare : "${a[@]}" -s -r 4.0-IV0 -f eligible.leader.replicas.version=1
for scram in 'SCRAM-SHA-256=[name=a,salt="MWx2NHBkbnc0ZndxN25vdGN4bTB5MXM4ZHA=",password=b]' \
  'SCRAM-SHA-512=[name=a,salt="MWx2NHBkbnc0ZndxN25vdGN4bTB5MXM4ZHA=",saltedpassword="YWJj",iterations=8192]' \
  'SCRAM-SHA-256=[name=a]' 'SCRAM-MD5=[name=a]' x; do compare : "${a[@]}" -s -S "$scram"; done
compare : format -t $cluster -c s.properties -r 3.4 -S 'SCRAM-SHA-256=[name=a,password=b]'
compare "$(meta a-1 version=1)" "${a[@]}" -s
compare "$(meta a-1 version=1); $(meta a-2 version=1)" "${a[@]}" -s
compare 'touch dirs/a-1' info -c a.properties
compare 'touch dirs/a-1' "${a[@]}" -s
compare "$(meta a-1 version=1 node.id=1 cluster.id=$cluster)" "${a[@]}" -s
compare "$(meta a-1 version=1 node.id=1 cluster.id=$cluster)" "${a[@]}" -s -g
compare "$(meta a-1 version=1 node.id=2 cluster.id=$cluster)" "${a[@]}" -s -g
compare "$(meta a-1 version=1 node.id=1 cluster.id=other)" "${a[@]}" -s -g
compare "$(meta a-1 version=0 broker.id=1)" info -c a.properties
compare "$(meta a-1 version=0 broker.id=1)" "${a[@]}" -s -g
same="version=1 node.id=1 cluster.id=$cluster directory.id=JEXY6aqzQY-32P5TStzaFg"
compare "$(meta a-1 $same); $(meta a-2 $same)" "${a[@]}" -s -g
compare : version-mapping
compare : feature-dependencies -f metadata.version=33 -f kraft.version=1 -f eligible.leader.replicas.version=1
for feature in transaction.version=3 x x=y x=1; do compare : feature-dependencies -f $feature; done
echo "format: $count invocations, $different different"
[ $different = 0 ]
