#!/usr/bin/env bash
# Records reference.txt anew: the run of `cargo xtask compat kafka-own-tests` with Apache Kafka 4.4.0 as the broker under
# test. Needs KAFKA_LIBS (the directory with the reference's jars), a JDK 17, and that suite's jars and classes, which one
# run of it leaves below target/. About 20 minutes.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
target=${CARGO_TARGET_DIR:-$here/../../target}/kafka-own-tests
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mapfile -t classes < <(grep -v '^#' "$here/classes.txt")
java -Xmx512m -Djava.net.preferIPv4Stack=true -Djava.io.tmpdir="$work" -Dbroker.libs="$KAFKA_LIBS" \
  -cp "$target/classes:$target/libs/*" OwnTests "${classes[@]}" 2> /dev/null > "$work/tap"
mv "$work/tap" "$here/reference.txt"
