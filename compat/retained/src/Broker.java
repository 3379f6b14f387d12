// One side: a broker's process, its directory and the settings under which upkeep happens at once.
//
// `quiet` waits until nothing in the topics' directories changes any more.

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.TimeUnit;
import java.util.regex.*;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.config.ConfigResource;

final class Broker {
    static final String CLUSTER = "5L6g3nShT-eMCtK--X86sw";

    final String name, libs, binary;
    final Path work, data, properties;
    final int port;
    Process process;
    private int starts;

    /** `binary` null: the reference. */
    Broker(String name, String binary, String libs, Path work, int port) throws IOException {
        this.name = name;
        this.binary = binary;
        this.libs = libs;
        this.work = work;
        this.port = port;
        data = work.resolve("data");
        properties = work.resolve("server.properties");
        Files.createDirectories(work);
        Files.writeString(properties, String.join("\n",
            "process.roles=broker,controller", "node.id=1", "controller.quorum.bootstrap.servers=127.0.0.1:" + (port + 1),
            "listeners=PLAINTEXT://127.0.0.1:" + port + ",CONTROLLER://127.0.0.1:" + (port + 1),
            "advertised.listeners=PLAINTEXT://127.0.0.1:" + port + ",CONTROLLER://127.0.0.1:" + (port + 1),
            "controller.listener.names=CONTROLLER", "inter.broker.listener.name=PLAINTEXT", "log.dirs=" + data,
            "offsets.topic.num.partitions=1", "offsets.topic.replication.factor=1", "transaction.state.log.num.partitions=1",
            "transaction.state.log.replication.factor=1", "transaction.state.log.min.isr=1", "auto.create.topics.enable=false",
            "log.initial.task.delay.ms=100", "log.retention.check.interval.ms=300", "log.cleaner.backoff.ms=100", "log.cleaner.threads=2",
            "log.cleaner.dedupe.buffer.size=8388608", "log.flush.start.offset.checkpoint.interval.ms=300", ""));
    }

    private ProcessBuilder command(String main, String ours, String... args) {
        List<String> command = new ArrayList<>();
        if (binary != null) command.addAll(List.of(binary, ours));
        else command.addAll(List.of("java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-Dretained.log.level=INFO",
            "-Dlog4j2.configurationFile=" + System.getProperty("log4j2.configurationFile"), "-cp", libs + "/*", main));
        command.addAll(List.of(args));
        return new ProcessBuilder(command).redirectErrorStream(true);
    }

    void format() throws Exception {
        Process format = command("kafka.tools.StorageTool", "storage", "format", "-t", CLUSTER, "-c", properties.toString(), "--standalone")
            .redirectOutput(work.resolve("format.log").toFile()).start();
        if (format.waitFor() != 0) throw new IllegalStateException(name + " cannot format, see " + work);
    }

    void start() throws Exception {
        Path log = work.resolve("run-" + starts++ + ".log");
        process = command("kafka.Kafka", "server", properties.toString()).redirectOutput(log.toFile()).start();
        long deadline = System.nanoTime() + 180_000_000_000L;
        while (!Files.readString(log, StandardCharsets.ISO_8859_1).contains("Kafka Server started")) {
            if (!process.isAlive() || System.nanoTime() > deadline) throw new IllegalStateException(name + " did not start, see " + log);
            Thread.sleep(50);
        }
    }

    void stop(boolean kill) throws Exception {
        if (process == null) return;
        // What DeleteRecords has done outlives a kill once it stands in the checkpoint.
        if (kill) Thread.sleep(1500);
        if (kill) process.destroyForcibly(); else process.destroy();
        if (!process.waitFor(300, TimeUnit.SECONDS)) { process.destroyForcibly().waitFor(); throw new IllegalStateException(name + " did not stop"); }
        process = null;
    }

    void copyTo(Broker other) throws Exception {
        Process copy = new ProcessBuilder("cp", "-a", data.toString(), other.data.toString()).inheritIO().start();
        if (copy.waitFor() != 0) throw new IllegalStateException("cannot copy " + data);
    }

    Wire connect() throws IOException { return new Wire(port); }

    /** Waits until it leads all of these. */
    void lead(List<Scenario> scenarios) throws Exception {
        long deadline = System.nanoTime() + 120_000_000_000L;
        try (Wire wire = connect()) {
            for (Scenario scenario : scenarios) {
                while (Observer.listOffset(wire, scenario.topic, -1, (byte) 0).errorCode() != 0) {
                    if (System.nanoTime() > deadline) throw new IllegalStateException(name + " does not lead " + scenario.topic);
                    Thread.sleep(20);
                }
            }
        }
    }

    // ---- topics and their settings

    Admin admin() {
        return Admin.create(Map.of("bootstrap.servers", "127.0.0.1:" + port, "default.api.timeout.ms", "120000", "request.timeout.ms", "60000"));
    }

    void create(List<Scenario> scenarios) throws Exception {
        try (Admin admin = admin()) {
            admin.createTopics(scenarios.stream().map(s -> new NewTopic(s.topic, 1, (short) 1).configs(resolved(s.config))).toList()).all().get();
        }
    }

    /** Sets (or takes back) each topic's settings in one request. */
    void configure(Map<Scenario, Map<String, String>> settings) throws Exception {
        Map<ConfigResource, Collection<AlterConfigOp>> changes = new LinkedHashMap<>();
        settings.forEach((scenario, values) -> changes.put(new ConfigResource(ConfigResource.Type.TOPIC, scenario.topic),
            resolved(values).entrySet().stream().map(e -> new AlterConfigOp(new ConfigEntry(e.getKey(), e.getValue()),
                e.getValue() == null ? AlterConfigOp.OpType.DELETE : AlterConfigOp.OpType.SET)).collect(Collectors.toList())));
        try (Admin admin = admin()) {
            admin.incrementalAlterConfigs(changes).all().get();
        }
    }

    private static Map<String, String> resolved(Map<String, String> settings) {
        Map<String, String> resolved = new LinkedHashMap<>();
        settings.forEach((key, value) -> resolved.put(key, value != null && value.startsWith("since:")
            ? String.valueOf(System.currentTimeMillis() - Long.parseLong(value.substring(6))) : value));
        return resolved;
    }

    // ---- what the disk says

    /** Waits until the segments and the checkpoints have not changed for `still` milliseconds. */
    void quiet(long still) throws Exception {
        long deadline = System.currentTimeMillis() + 180_000, since = System.currentTimeMillis();
        String last = "";
        while (System.currentTimeMillis() - since < still) {
            Thread.sleep(200);
            String now = picture();
            if (!now.equals(last)) { last = now; since = System.currentTimeMillis(); }
            if (System.currentTimeMillis() > deadline) throw new IllegalStateException(name + " is never quiet");
            if (!process.isAlive()) throw new IllegalStateException(name + " died, see " + work);
        }
    }

    private String picture() throws IOException {
        StringBuilder picture = new StringBuilder();
        for (String file : List.of("cleaner-offset-checkpoint", "log-start-offset-checkpoint")) {
            try { picture.append(Files.readString(data.resolve(file))); } catch (NoSuchFileException e) { picture.append('-'); }
        }
        try (Stream<Path> directories = Files.list(data)) {
            for (Path directory : directories.filter(d -> d.getFileName().toString().matches("t\\d+-0")).sorted().toList()) picture.append(segments(directory, true));
        }
        return picture.toString();
    }

    private static List<String> segments(Path directory, boolean sizes) throws IOException {
        List<String> found = new ArrayList<>();
        try (Stream<Path> files = Files.list(directory)) {
            for (Path file : files.sorted().toList()) {
                String name = file.getFileName().toString();
                if (!name.endsWith(".log")) continue;
                long size;
                try { size = Files.size(file); } catch (NoSuchFileException e) { size = -1; }
                found.add(Long.parseLong(name.substring(0, 20)) + (sizes ? ":" + size : ""));
            }
        } catch (java.io.UncheckedIOException | NoSuchFileException e) {
            found.add("changing");
        }
        return found;
    }

    /** Topics that the reference's cleaner gave up: what it did until then is chance. */
    Set<String> uncleanable() throws IOException {
        Set<String> topics = new TreeSet<>();
        for (int i = 0; binary == null && i < starts; i++) {
            Matcher matcher = Pattern.compile("Marking its partition \\((t\\d+)-0\\) as uncleanable").matcher(Files.readString(work.resolve("run-" + i + ".log"), StandardCharsets.ISO_8859_1));
            while (matcher.find()) topics.add(matcher.group(1));
        }
        return topics;
    }

    /** The first offsets of a topic's segments, and its entries of the checkpoints. */
    String layout(Scenario scenario) throws IOException {
        List<String> segments = segments(data.resolve(scenario.topic + "-0"), false);
        StringBuilder layout = new StringBuilder("segments ");
        layout.append(scenario.layoutComparable() ? segments : "not compared");
        for (String file : List.of("cleaner-offset-checkpoint", "log-start-offset-checkpoint")) {
            String entry = "none";
            if (Files.exists(data.resolve(file))) {
                for (String line : Files.readAllLines(data.resolve(file))) if (line.startsWith(scenario.topic + " 0 ")) entry = line.substring(scenario.topic.length() + 3);
            }
            // A start that is the first segment's need not be written down; we do, before the ones below it go.
            if (file.startsWith("log-start") && !segments.isEmpty() && entry.equals(segments.get(0))) entry = "none";
            layout.append(", ").append(file).append(' ').append(entry);
        }
        return layout.toString();
    }
}
