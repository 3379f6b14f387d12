// Data directories, both ways: Apache Kafka and our broker take turns on one directory, through clean stops and
// kill -9, and after each start everything written so far is read back and compared.
//
//   java -Ddisk.libs=DIR Disk BINARY WORKDIR PORT CHAIN
//     CHAIN: words HOST:STOP, HOST one of reference, ours; STOP one of clean, kill. The first HOST formats.
//
// The model in this process is what must be there; one producer lives through all turns, so its sequence numbers have
// to be continued by whoever opens the directory. Every failed comparison is printed; exit code 1 when there was one.

import java.io.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.*;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.common.utils.internals.Exit;

public final class Disk {
    static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");
    static final String CLUSTER = "5L6g3nShT-eMCtK--X86sw";
    static final long BASE_TIME = 1_700_000_000_000L;

    final String binary, libs, bootstrap;
    final Path work, properties;
    final int port;
    final Random random = new Random(7);
    // What must be there.
    final Map<TopicPartition, TreeMap<Long, String>> records = new TreeMap<>(Comparator.comparing(TopicPartition::toString));
    final Map<TopicPartition, TreeMap<Long, Long>> times = new HashMap<>();
    final Map<TopicPartition, Long> starts = new HashMap<>();
    final Map<TopicPartition, Set<Long>> aborted = new HashMap<>();
    final Map<String, Map<String, String>> configs = new TreeMap<>();
    final Map<String, Uuid> ids = new TreeMap<>();
    final Map<String, Map<TopicPartition, OffsetAndMetadata>> commits = new TreeMap<>();
    // The log directory of each partition, and the one it is on its way to.
    final Map<TopicPartition, String> places = new HashMap<>();
    TopicPartition moving;
    String target;
    KafkaProducer<byte[], byte[]> lasting;
    Process broker;
    Path log;
    int failures;
    String turn = "";
    boolean ours, killed, killing;

    Disk(String[] args) throws IOException {
        binary = args[0];
        work = Path.of(args[1]);
        port = Integer.parseInt(args[2]);
        libs = System.getProperty("disk.libs");
        bootstrap = "127.0.0.1:" + port;
        Files.createDirectories(work);
        properties = work.resolve("server.properties");
        Files.writeString(properties, String.join("\n",
            "process.roles=broker,controller", "node.id=1",
            "controller.quorum.bootstrap.servers=127.0.0.1:" + (port + 1),
            "listeners=PLAINTEXT://127.0.0.1:" + port + ",CONTROLLER://127.0.0.1:" + (port + 1),
            "advertised.listeners=PLAINTEXT://127.0.0.1:" + port + ",CONTROLLER://127.0.0.1:" + (port + 1),
            "controller.listener.names=CONTROLLER", "inter.broker.listener.name=PLAINTEXT",
            "log.dirs=" + work.resolve("data-1") + "," + work.resolve("data-2"),
            "offsets.topic.num.partitions=5", "offsets.topic.replication.factor=1",
            "transaction.state.log.num.partitions=3", "transaction.state.log.replication.factor=1",
            "transaction.state.log.min.isr=1", "group.initial.rebalance.delay.ms=0",
            "log.flush.start.offset.checkpoint.interval.ms=500", "log.initial.task.delay.ms=500",
            "metadata.log.max.record.bytes.between.snapshots=20000", "log.retention.ms=-1", ""));
    }

    public static void main(String[] args) throws Exception {
        Exit.setExitProcedure((code, message) -> { throw new IllegalStateException("exit " + code + " " + message); });
        Exit.setHaltProcedure((code, message) -> { throw new IllegalStateException("halt " + code + " " + message); });
        Disk disk = new Disk(args);
        try {
            disk.run(Arrays.asList(args).subList(3, args.length));
        } catch (Throwable e) {
            disk.fail(String.valueOf(e));
            e.printStackTrace(System.out);
        } finally {
            if (disk.lasting != null) disk.lasting.close(Duration.ZERO);
            if (disk.broker != null) disk.broker.destroyForcibly().waitFor();
        }
        long count = disk.records.values().stream().mapToLong(Map::size).sum();
        System.out.println("disk: " + String.join(" ", Arrays.asList(args).subList(3, args.length)) + ": " + count + " records of "
            + disk.configs.size() + " topics, " + disk.commits.size() + " groups, " + disk.failures + " failures");
        Runtime.getRuntime().halt(disk.failures == 0 ? 0 : 1);
    }

    void fail(String what) {
        failures++;
        if (failures < 40) System.out.println("FAILED " + turn + ": " + what);
    }

    void equal(String what, Object expected, Object actual) {
        if (!Objects.equals(expected, actual)) fail(what + ": expected " + clip(expected) + ", got " + clip(actual));
    }

    static String clip(Object o) { String s = String.valueOf(o); return s.length() > 300 ? s.substring(0, 300) + "…" : s; }

    void run(List<String> chain) throws Exception {
        int number = 0;
        for (String word : chain) {
            String[] parts = word.split(":");
            ours = parts[0].equals("ours");
            turn = "turn " + number + " (" + word + ")";
            if (number == 0) format();
            long begin = System.nanoTime();
            start(number);
            if (number > 0) { verify(); places(number); }
            add(number);
            move(number);
            verify();
            remember(parts[1].equals("kill"));
            stop(parts[1].equals("kill"));
            inspectLog();
            killed = killing;
            if (ours) dump();
            System.out.println(turn + ": " + (System.nanoTime() - begin) / 1_000_000 + " ms");
            number++;
        }
    }

    // ---- processes

    List<String> java(String main, String... args) {
        List<String> command = new ArrayList<>(List.of("java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-Ddisk.log.level=INFO",
            "-Dlog4j2.configurationFile=" + System.getProperty("log4j2.configurationFile"), "-cp", libs + "/*", main));
        command.addAll(List.of(args));
        return command;
    }

    void format() throws Exception {
        String[] args = {"format", "-t", CLUSTER, "-c", properties.toString(), "--standalone"};
        List<String> command = new ArrayList<>();
        if (ours) { command.add(binary); command.add("storage"); command.addAll(List.of(args)); }
        else command = java("kafka.tools.StorageTool", args);
        Process p = new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(work.resolve("format.log").toFile()).start();
        equal("format", 0, p.waitFor());
    }

    void start(int number) throws Exception {
        log = work.resolve("turn-" + number + ".log");
        List<String> command = ours ? List.of(binary, "server", properties.toString()) : java("kafka.Kafka", properties.toString());
        broker = new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(log.toFile()).start();
        long deadline = System.nanoTime() + 120_000_000_000L;
        while (!Files.readString(log, StandardCharsets.ISO_8859_1).contains("Kafka Server started")) {
            if (!broker.isAlive() || System.nanoTime() > deadline) throw new IllegalStateException("did not start, see " + log + "\n" + tail());
            Thread.sleep(50);
        }
    }

    String tail() throws IOException {
        List<String> lines = Files.readAllLines(log, StandardCharsets.ISO_8859_1);
        return String.join("\n", lines.subList(Math.max(0, lines.size() - 15), lines.size()));
    }

    void stop(boolean kill) throws Exception {
        // What DeleteRecords has done outlives a kill once it stands in the checkpoint.
        if (kill) Thread.sleep(1500);
        killing = kill;
        if (kill) broker.destroyForcibly(); else broker.destroy();
        if (!broker.waitFor(60, TimeUnit.SECONDS)) throw new IllegalStateException("did not stop");
        if (!kill && broker.exitValue() != 0 && broker.exitValue() != 143) fail("exit code " + broker.exitValue() + "\n" + tail());
        broker = null;
    }

    // A line that tells of damage is a failure, whoever wrote it.
    void inspectLog() throws IOException {
        for (String line : Files.readAllLines(log, StandardCharsets.ISO_8859_1)) {
            boolean bad = line.matches("^\\[[^]]*\\] (WARN|ERROR|FATAL) .*")
                && !line.contains("is not in effect")
                && !line.contains("Performing controller activation")
                // A broker that was killed is still registered when it comes back.
                && !line.contains("Unable to register the broker because the RPC got timed out")
                // The reference says these of itself, with nobody else on the directory.
                && !(line.contains("Expected partition ") && line.contains("to exist, but it was missing. Creating..."))
                // After a kill the checkpoint of the high watermark may lie below the start that DeleteRecords has set.
                && !(killed && line.contains("Non-monotonic update of high watermark"))
                // Its directories are assigned by a request that may overtake the broker's new epoch; it is sent again.
                && !(line.contains("ASSIGN_REPLICAS_TO_DIRS") && line.contains("StaleBrokerEpochException"))
                && !line.contains("STALE_BROKER_EPOCH. Retrying.")
                // After a kill the reference takes its leadership away and back while it loads.
                && !(!ours && killed && line.contains("Stopped loading records from __consumer_offsets"))
                // A move that a kill left half done is assigned twice by the reference, whose second answer may come after
                // the promotion (ReplicaAlterLogDirsThread.updateReassignmentState, a null pointer).
                && !(!ours && line.contains("AssignmentsManager") && line.contains("unexpected callback exception"))
                // What is to be deleted anyway is left as it is, without the indexes that we write with the next flush.
                && !(line.contains("Could not find offset index file") && line.contains("-delete/"))
                && !line.contains("Attempting to close NetworkClient that has already been closed");
            if (bad) fail("log line: " + line);
        }
    }

    // ---- what is written

    Map<String, Object> clientConfig(Object... pairs) {
        Map<String, Object> map = new HashMap<>();
        map.put("bootstrap.servers", bootstrap);
        for (int i = 0; i < pairs.length; i += 2) map.put((String) pairs[i], pairs[i + 1]);
        return map;
    }

    KafkaProducer<byte[], byte[]> producer(Object... pairs) {
        return new KafkaProducer<>(clientConfig(pairs), new ByteArraySerializer(), new ByteArraySerializer());
    }

    void createTopic(Admin admin, String name, int partitions, Map<String, String> config) throws Exception {
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1).configs(config))).all().get();
        configs.put(name, new TreeMap<>(config));
        for (int p = 0; p < partitions; p++) {
            records.put(new TopicPartition(name, p), new TreeMap<>());
            times.put(new TopicPartition(name, p), new TreeMap<>());
            starts.put(new TopicPartition(name, p), 0L);
        }
    }

    byte[] bytes(int size, boolean compressible) {
        byte[] b = new byte[size];
        if (compressible) Arrays.fill(b, (byte) ('a' + random.nextInt(26))); else random.nextBytes(b);
        return b;
    }

    static String line(long offset, long timestamp, String type, byte[] key, byte[] value, Iterable<Header> headers) {
        StringBuilder h = new StringBuilder();
        for (Header header : headers) h.append(header.key()).append('=').append(Arrays.hashCode(header.value())).append(',');
        return offset + " " + timestamp + " " + type + " " + (key == null ? "null" : Arrays.hashCode(key) + "/" + key.length) + " "
            + (value == null ? "null" : Arrays.hashCode(value) + "/" + value.length) + " [" + h + "]";
    }

    interface Sent { void accept(RecordMetadata metadata); }

    Future<RecordMetadata> send(KafkaProducer<byte[], byte[]> p, String topic, int partition, int size, int n, boolean appendTime) {
        byte[] key = n % 7 == 3 ? null : ("key-" + topic + "-" + random.nextInt(1 << 30)).getBytes(StandardCharsets.UTF_8);
        byte[] value = n % 11 == 5 ? null : n % 13 == 6 ? new byte[0] : bytes(size, n % 2 == 0);
        if (topic.startsWith("compact")) { if (key == null) key = ("k" + random.nextLong()).getBytes(); if (value == null) value = bytes(9, true); }
        List<Header> headers = new ArrayList<>();
        for (int i = 0; i < n % 4; i++) {
            final int index = i;
            final byte[] v = i == 2 ? null : bytes(5, false);
            headers.add(new Header() {
                public String key() { return "h" + index; }
                public byte[] value() { return v; }
            });
        }
        long timestamp = BASE_TIME + random.nextInt(1_000_000_000);
        byte[] k = key, v0 = value;
        TopicPartition tp = new TopicPartition(topic, partition);
        return p.send(new ProducerRecord<>(topic, partition, timestamp, key, value, headers), (metadata, error) -> {
            if (error != null) { fail("send to " + topic + ": " + error); return; }
            long time = appendTime ? metadata.timestamp() : timestamp;
            synchronized (records) {
                String old = records.get(tp).put(metadata.offset(), line(metadata.offset(), time, appendTime ? "LogAppendTime" : "CreateTime", k, v0, headers));
                if (old != null) fail("offset " + metadata.offset() + " of " + tp + " was given twice");
                times.get(tp).put(metadata.offset(), time);
            }
        });
    }

    void add(int number) throws Exception {
        try (Admin admin = Admin.create(clientConfig())) {
            if (number == 0) {
                for (String codec : CODECS) {
                    createTopic(admin, "codec-" + codec, 2, Map.of());
                    createTopic(admin, "broker-" + codec, 1, Map.of("compression.type", codec.equals("none") ? "uncompressed" : codec));
                }
                createTopic(admin, "segments", 2, Map.of("segment.bytes", "1048576", "index.interval.bytes", "1024"));
                createTopic(admin, "append-time", 1, Map.of("message.timestamp.type", "LogAppendTime"));
                createTopic(admin, "compact.topic", 1, Map.of("cleanup.policy", "compact", "min.compaction.lag.ms", "3600000"));
                createTopic(admin, "lasting", 2, Map.of("retention.bytes", "1000000000", "max.message.bytes", "2000000"));
                createTopic(admin, "trimmed", 1, Map.of("segment.bytes", "1048576"));
                createTopic(admin, "doomed", 1, Map.of());
                lasting = producer("enable.idempotence", true, "max.in.flight.requests.per.connection", 5, "linger.ms", 0, "batch.size", 2000,
                    "metadata.max.age.ms", 1000, "reconnect.backoff.max.ms", 200, "delivery.timeout.ms", 60000, "request.timeout.ms", 20000);
                if (!ours) createTopic(admin, "transactional", 1, Map.of());
            }
            createTopic(admin, "added-" + number, 3, Map.of("retention.ms", String.valueOf(1_000_000_000_000L + number)));
            createTopic(admin, "codec-added-" + number, 1, Map.of());
            for (String codec : CODECS) {
                try (KafkaProducer<byte[], byte[]> p = producer("compression.type", codec, "linger.ms", 5, "enable.idempotence", number % 2 == 0)) {
                    for (int n = 0; n < 300; n++) {
                        send(p, "codec-" + codec, n % 2, 10 + n, n, false);
                        send(p, "added-" + number, n % 3, 40, n, false);
                        if (codec.equals("lz4")) send(p, "codec-added-" + number, 0, 100, n, false);
                    }
                }
            }
            try (KafkaProducer<byte[], byte[]> p = producer("linger.ms", 5)) {
                for (int n = 0; n < 200; n++) {
                    for (String codec : CODECS) send(p, "broker-" + codec, 0, 100, n, false);
                    send(p, "append-time", 0, 20, n, true);
                    send(p, "compact.topic", 0, 50, n, false);
                }
                for (int n = 0; n < 2000; n++) send(p, "segments", n % 2, 1500, n, false);
                for (int n = 0; n < 1000; n++) send(p, "trimmed", 0, 1500, n, false);
            }
            for (int n = 0; n < 400; n++) send(lasting, "lasting", n % 2, 100, n, false);
            lasting.flush();
            transactions();
            trim(admin);
            alter(admin, number);
            commit("old-group", List.of("codec-none", "codec-zstd", "segments"), number);
            commit("group-" + number, List.of("added-" + number), number);
            commit("doomed-group", List.of("codec-gzip"), number);
            admin.deleteConsumerGroups(List.of("doomed-group")).all().get();
            commits.remove("doomed-group");
            commit("kept-offsets", List.of("codec-lz4"), number);
            TopicPartition forgotten = new TopicPartition("codec-lz4", number % 2);
            admin.deleteConsumerGroupOffsets("kept-offsets", Set.of(forgotten)).all().get();
            commits.get("kept-offsets").remove(forgotten);
            if (number > 0) {
                String doomed = number == 1 ? "doomed" : "codec-added-" + (number - 1);
                admin.deleteTopics(List.of(doomed)).all().get();
                configs.remove(doomed); ids.remove(doomed);
                records.keySet().removeIf(tp -> tp.topic().equals(doomed));
            }
            for (var e : admin.describeTopics(configs.keySet()).allTopicNames().get().entrySet()) {
                Uuid old = ids.put(e.getKey(), e.getValue().topicId());
                if (old != null) equal("topic id of " + e.getKey(), old, e.getValue().topicId());
            }
        }
    }

    void transactions() throws Exception {
        if (!configs.containsKey("transactional") || ours) return;
        try (KafkaProducer<byte[], byte[]> p = producer("transactional.id", "tx")) {
            p.initTransactions();
            TopicPartition tp = new TopicPartition("transactional", 0);
            for (int t = 0; t < 4; t++) {
                p.beginTransaction();
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (int n = 0; n < 10; n++) sent.add(send(p, "transactional", 0, 50, n, false));
                p.flush();
                if (t % 2 == 0) { p.commitTransaction(); continue; }
                p.abortTransaction();
                for (Future<RecordMetadata> f : sent) aborted.computeIfAbsent(tp, x -> new HashSet<>()).add(f.get().offset());
            }
        }
    }

    void trim(Admin admin) throws Exception {
        TopicPartition tp = new TopicPartition("trimmed", 0);
        long to = starts.get(tp) + (records.get(tp).lastKey() - starts.get(tp)) * 2 / 3;
        admin.deleteRecords(Map.of(tp, RecordsToDelete.beforeOffset(to))).all().get();
        starts.put(tp, to);
        records.get(tp).headMap(to).clear();
        times.get(tp).headMap(to).clear();
    }

    void alter(Admin admin, int number) throws Exception {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, "codec-none");
        String value = String.valueOf(1_000_000_000_000L + number);
        admin.incrementalAlterConfigs(Map.of(topic, List.of(
            new AlterConfigOp(new ConfigEntry("retention.ms", value), AlterConfigOp.OpType.SET)))).all().get();
        configs.get("codec-none").put("retention.ms", value);
        NewPartitions more = NewPartitions.increaseTo(4 + number);
        admin.createPartitions(Map.of("added-" + number, more)).all().get();
        for (int p = 3; p < 4 + number; p++) {
            TopicPartition tp = new TopicPartition("added-" + number, p);
            records.put(tp, new TreeMap<>()); times.put(tp, new TreeMap<>()); starts.put(tp, 0L);
        }
    }

    // ---- log directories

    static final String LIMIT = "replica.alter.log.dirs.io.max.bytes.per.second";

    Map<TopicPartition, String> describe(Admin admin, boolean future) throws Exception {
        Map<TopicPartition, String> found = new HashMap<>();
        admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1).forEach((dir, description) -> {
            if (description.error() != null) fail("log dir " + dir + ": " + description.error());
            description.replicaInfos().forEach((tp, replica) -> { if (replica.isFuture() == future) found.put(tp, dir); });
        });
        return found;
    }

    String otherDir(String dir) {
        return work.resolve(dir.endsWith("data-1") ? "data-2" : "data-1").toString();
    }

    void alter(Admin admin, TopicPartition tp, String dir) throws Exception {
        admin.alterReplicaLogDirs(Map.of(new TopicPartitionReplica(tp.topic(), tp.partition(), 1), dir)).all().get();
    }

    void await(Admin admin, TopicPartition tp, String dir) throws Exception {
        long deadline = System.nanoTime() + 60_000_000_000L;
        while (!dir.equals(describe(admin, false).get(tp)) || describe(admin, true).containsKey(tp)) {
            if (System.nanoTime() > deadline) { fail(tp + " does not arrive in " + dir); return; }
            Thread.sleep(100);
        }
    }

    void limit(Admin admin, String value) throws Exception {
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
        admin.incrementalAlterConfigs(Map.of(broker, List.of(new AlterConfigOp(new ConfigEntry(LIMIT, value),
            value == null ? AlterConfigOp.OpType.DELETE : AlterConfigOp.OpType.SET)))).all().get();
    }

    // A partition goes to the other directory while it is written.
    void move(int number) throws Exception {
        try (Admin admin = Admin.create(clientConfig()); KafkaProducer<byte[], byte[]> p = producer("linger.ms", 5)) {
            TopicPartition tp = new TopicPartition("lasting", number % 2);
            String dir = otherDir(describe(admin, false).get(tp));
            alter(admin, tp, dir);
            for (int n = 0; n < 500; n++) send(p, tp.topic(), tp.partition(), 200, n, false);
            await(admin, tp, dir);
            for (int n = 0; n < 10; n++) send(p, tp.topic(), tp.partition(), 20, n, false);
            p.flush();
        }
    }

    // Where everything is when the turn ends; before a kill one partition is still on its way.
    void remember(boolean kill) throws Exception {
        try (Admin admin = Admin.create(clientConfig())) {
            if (kill) {
                limit(admin, "1000");
                moving = new TopicPartition("segments", 0);
                target = otherDir(describe(admin, false).get(moving));
                alter(admin, moving, target);
                long deadline = System.nanoTime() + 30_000_000_000L;
                while (!describe(admin, true).containsKey(moving) && System.nanoTime() < deadline) Thread.sleep(50);
                equal("the move of " + moving + " before the kill", target, describe(admin, true).get(moving));
            }
            places.clear();
            places.putAll(describe(admin, false));
        }
    }

    // Nothing is elsewhere than the other broker left it, nothing was assigned anew, and the move goes on.
    void places(int number) throws Exception {
        try (Admin admin = Admin.create(clientConfig())) {
            equal("places", new TreeMap<>(named(places)), new TreeMap<>(named(describe(admin, false))));
            for (String line : Files.readAllLines(log, StandardCharsets.ISO_8859_1))
                if (line.matches(".*sending [1-9][0-9]* assignments.*")) fail("assigned anew: " + line);
            if (moving == null) return;
            equal("the move of " + moving + " after the kill", target, describe(admin, true).get(moving));
            limit(admin, null);
            await(admin, moving, target);
            moving = null;
        }
    }

    static Map<String, String> named(Map<TopicPartition, String> map) {
        return map.entrySet().stream().collect(Collectors.toMap(e -> e.getKey().toString(), Map.Entry::getValue));
    }

    // A member of the group reads a little from where the group stands, and commits.
    void commit(String group, List<String> topics, int number) {
        Map<TopicPartition, OffsetAndMetadata> before = commits.getOrDefault(group, Map.of());
        try (KafkaConsumer<byte[], byte[]> c = consumer("group.id", group, "auto.offset.reset", "earliest", "max.poll.records", 50)) {
            c.subscribe(topics);
            Map<TopicPartition, OffsetAndMetadata> position = new HashMap<>();
            Map<TopicPartition, Long> first = new HashMap<>();
            long deadline = System.nanoTime() + 30_000_000_000L;
            int polled = 0;
            while (polled < 200 && System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> r : c.poll(Duration.ofMillis(200))) {
                    TopicPartition tp = new TopicPartition(r.topic(), r.partition());
                    first.putIfAbsent(tp, r.offset());
                    position.put(tp, new OffsetAndMetadata(r.offset() + 1, r.leaderEpoch(), "turn " + number));
                    polled++;
                }
            }
            if (polled < 200) fail("group " + group + " got only " + polled + " records");
            first.forEach((tp, offset) -> {
                long expected = before.containsKey(tp) ? before.get(tp).offset() : starts.get(tp);
                equal("where group " + group + " continues in " + tp, expected, offset);
            });
            c.commitSync(position);
            commits.computeIfAbsent(group, g -> new HashMap<>()).putAll(position);
        }
    }

    KafkaConsumer<byte[], byte[]> consumer(Object... pairs) {
        Map<String, Object> config = clientConfig(pairs);
        config.put("enable.auto.commit", false);
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    // ---- what must be there

    void verify() throws Exception {
        content("read_uncommitted", Map.of());
        if (configs.containsKey("transactional")) content("read_committed", aborted);
        try (Admin admin = Admin.create(clientConfig())) {
            Set<String> names = new TreeSet<>(admin.listTopics().names().get());
            equal("topics", new TreeSet<>(configs.keySet()), names);
            for (var e : admin.describeTopics(configs.keySet()).allTopicNames().get().entrySet()) {
                equal("topic id of " + e.getKey(), ids.get(e.getKey()), e.getValue().topicId());
                long partitions = records.keySet().stream().filter(tp -> tp.topic().equals(e.getKey())).count();
                equal("partitions of " + e.getKey(), partitions, (long) e.getValue().partitions().size());
            }
            List<ConfigResource> resources = configs.keySet().stream().map(t -> new ConfigResource(ConfigResource.Type.TOPIC, t)).toList();
            admin.describeConfigs(resources).all().get().forEach((resource, config) -> {
                Map<String, String> own = new TreeMap<>();
                for (ConfigEntry e : config.entries()) if (e.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG) own.put(e.name(), e.value());
                equal("configs of " + resource.name(), configs.get(resource.name()), own);
            });
            Set<String> groups = admin.listGroups().all().get().stream().map(GroupListing::groupId).collect(Collectors.toCollection(TreeSet::new));
            equal("groups", new TreeSet<>(commits.keySet()), groups);
            for (var e : commits.entrySet())
                equal("offsets of " + e.getKey(), e.getValue(), new HashMap<>(admin.listConsumerGroupOffsets(e.getKey()).partitionsToOffsetAndMetadata().get()));
        }
    }

    void content(String isolation, Map<TopicPartition, Set<Long>> hidden) throws Exception {
        try (KafkaConsumer<byte[], byte[]> c = consumer("isolation.level", isolation, "max.poll.records", 5000, "fetch.max.wait.ms", 50, "check.crcs", true)) {
            Set<TopicPartition> all = records.keySet();
            c.assign(all);
            Map<TopicPartition, Long> ends = c.endOffsets(all);
            equal("start offsets", starts.entrySet().stream().filter(e -> all.contains(e.getKey())).collect(Collectors.toMap(Map.Entry::getKey, Map.Entry::getValue)), c.beginningOffsets(all));
            c.seekToBeginning(all);
            Map<TopicPartition, TreeMap<Long, String>> got = new HashMap<>();
            for (TopicPartition tp : all) got.put(tp, new TreeMap<>());
            long deadline = System.nanoTime() + 60_000_000_000L;
            while (System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> r : c.poll(Duration.ofMillis(100))) {
                    String old = got.get(new TopicPartition(r.topic(), r.partition())).put(r.offset(),
                        line(r.offset(), r.timestamp(), r.timestampType().toString(), r.key(), r.value(), r.headers()));
                    if (old != null) fail("read twice: " + r.topic() + " " + r.offset());
                }
                boolean done = true;
                for (TopicPartition tp : all) if (c.position(tp) < ends.get(tp)) { done = false; break; }
                if (done) break;
            }
            for (TopicPartition tp : all) {
                TreeMap<Long, String> expected = new TreeMap<>(records.get(tp));
                expected.keySet().removeAll(hidden.getOrDefault(tp, Set.of()));
                compare(isolation + " " + tp, expected, got.get(tp));
                if (!tp.topic().equals("transactional") && !records.get(tp).isEmpty()) equal("end of " + tp, records.get(tp).lastKey() + 1, ends.get(tp));
            }
            offsetsForTimes(c);
        }
    }

    void compare(String what, TreeMap<Long, String> expected, TreeMap<Long, String> got) {
        if (expected.equals(got)) return;
        TreeSet<Long> offsets = new TreeSet<>(expected.keySet());
        offsets.addAll(got.keySet());
        long differing = offsets.stream().filter(o -> !Objects.equals(expected.get(o), got.get(o))).count();
        long first = offsets.stream().filter(o -> !Objects.equals(expected.get(o), got.get(o))).findFirst().get();
        fail(what + ": " + differing + " of " + offsets.size() + " records differ, first: expected " + expected.get(first) + ", got " + got.get(first));
    }

    // The first record in offset order with at least that time.
    // Both answer nothing for a topic whose oldest segments lie below the start and are not yet deleted.
    void offsetsForTimes(KafkaConsumer<byte[], byte[]> c) {
        for (int i = 0; i < 5; i++) {
            long time = BASE_TIME + 200_000_000L * i;
            Map<TopicPartition, Long> query = new HashMap<>();
            for (TopicPartition tp : records.keySet()) if (!tp.topic().equals("transactional") && !tp.topic().equals("trimmed")) query.put(tp, time);
            c.offsetsForTimes(query).forEach((tp, answer) -> {
                Long expected = times.get(tp).entrySet().stream().filter(e -> e.getValue() >= time).map(Map.Entry::getKey).findFirst().orElse(null);
                equal("offset of " + tp + " for time " + time, expected, answer == null ? null : answer.offset());
            });
        }
    }

    // ---- the reference's DumpLogSegments and ours over every file that we leave

    void dump() throws Exception {
        List<Path> files;
        try (Stream<Path> s = Stream.concat(Files.walk(work.resolve("data-1")), Files.walk(work.resolve("data-2")))) {
            files = s.filter(Files::isRegularFile).filter(p -> p.toFile().length() > 0 && !dir(p).endsWith("-delete")).sorted().toList();
        }
        dump(files, p -> name(p).endsWith(".log") && dir(p).equals("__cluster_metadata-0"), "--cluster-metadata-decoder");
        dump(files, p -> name(p).endsWith(".checkpoint") && dir(p).equals("__cluster_metadata-0"), "--cluster-metadata-decoder");
        dump(files, p -> name(p).endsWith(".log") && dir(p).startsWith("__consumer_offsets"), "--offsets-decoder");
        dump(files, p -> name(p).endsWith(".log") && !dir(p).startsWith("__"), "--deep-iteration", "--print-data-log");
        dump(files, p -> name(p).endsWith(".index"), "--verify-index-only");
        dump(files, p -> name(p).endsWith(".timeindex"));
        dump(files, p -> name(p).endsWith(".txnindex"));
        dump(files, p -> name(p).endsWith(".snapshot") && !dir(p).startsWith("__cluster"));
    }

    // The order of the files in its complaints is that of a hash map.
    static String lines(String text) { return text.lines().sorted().collect(Collectors.joining("\n")); }

    static String name(Path p) { return p.getFileName().toString(); }
    static String dir(Path p) { return p.getParent().getFileName().toString(); }

    void dump(List<Path> all, java.util.function.Predicate<Path> wanted, String... options) throws Exception {
        String files = all.stream().filter(wanted).map(Path::toString).collect(Collectors.joining(","));
        if (files.isEmpty()) return;
        List<String> args = new ArrayList<>(List.of(options));
        args.addAll(List.of("--files", files));
        PrintStream out = System.out, err = System.err;
        ByteArrayOutputStream captured = new ByteArrayOutputStream(), complaints = new ByteArrayOutputStream();
        try {
            System.setOut(new PrintStream(captured, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(complaints, true, StandardCharsets.UTF_8));
            org.apache.kafka.tools.DumpLogSegments.main(args.toArray(new String[0]));
        } catch (Throwable e) {
            System.setOut(out);
            fail("the reference's DumpLogSegments " + String.join(" ", options) + ": " + e);
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        // With --deep-iteration it complains of every file that does not begin at offset 0; so should we.
        String theirErrors = lines(complaints.toString(StandardCharsets.UTF_8));
        String theirs = captured.toString(StandardCharsets.UTF_8);
        for (String bad : theirs.split("\n"))
            if (bad.contains("isvalid: false") || bad.contains("Mismatches in") || bad.contains("Could not") || bad.contains("Exception"))
                { fail("DumpLogSegments " + String.join(" ", options) + ": " + clip(bad)); break; }
        List<String> command = new ArrayList<>(List.of(binary, "kafka-dump-log"));
        command.addAll(args);
        Process p = new ProcessBuilder(command).redirectError(work.resolve("dump.err").toFile()).start();
        String own = new String(p.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        if (p.waitFor() != 0) fail("kafka-dump-log " + String.join(" ", options) + " ended with " + p.exitValue() + ": " + clip(Files.readString(work.resolve("dump.err"))));
        equal("errors of kafka-dump-log " + String.join(" ", options), theirErrors, lines(Files.readString(work.resolve("dump.err"))));
        if (own.equals(theirs)) return;
        String[] a = theirs.split("\n", -1), b = own.split("\n", -1);
        int i = 0;
        while (i < a.length && i < b.length && a[i].equals(b[i])) i++;
        fail("kafka-dump-log " + String.join(" ", options) + " differs in line " + i + "\n  reference: " + clip(i < a.length ? a[i] : "(end)") + "\n  ours:      " + clip(i < b.length ? b[i] : "(end)"));
    }
}
