import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

import org.apache.kafka.common.utils.internals.Exit;

/**
 * Apache Kafka's own client tools against a broker, nearly all in one JVM, with checks of what they print. Prints a line in
 * TAP's form per check. A tool that exits has its thread parked for ever, so nothing after the exit runs.
 */
@SuppressWarnings("removal")
public final class Clients {
    private static final int TOOL_TIMEOUT_S = 90;
    private static final PrintStream REPORT = System.out;
    private static final String TOOLS = "org.apache.kafka.tools.";
    private static volatile Run current;
    private static volatile boolean finished;
    private static int number;
    private static boolean failed;

    private static final class Run {
        final CompletableFuture<Integer> code = new CompletableFuture<>();
        final List<Runnable> hooks = new ArrayList<>();
    }

    private record Output(int code, String out, String err) {
        /** The numbers that a pattern's groups match in the output. */
        double[] numbers(String pattern) {
            Matcher matcher = Pattern.compile(pattern, Pattern.MULTILINE).matcher(out);
            if (!matcher.find()) throw new AssertionError("no " + pattern + " in: " + out + err);
            double[] values = new double[matcher.groupCount()];
            for (int i = 0; i < values.length; i++) values[i] = Double.parseDouble(matcher.group(i + 1));
            return values;
        }

        void expectOk() {
            if (code != 0) throw new AssertionError("exit code " + code + ": " + out + err);
        }

        void expectLine(String pattern) {
            if (!Pattern.compile(pattern, Pattern.MULTILINE).matcher(out).find())
                throw new AssertionError("no line " + pattern + " in: " + out + err);
        }

        int count(String pattern) {
            return (int) Pattern.compile(pattern, Pattern.MULTILINE).matcher(out).results().count();
        }
    }

    private interface Check {
        void run() throws Exception;
    }

    private static void check(String name, Check check) {
        number++;
        try {
            check.run();
            REPORT.println("ok " + number + " - " + name);
        } catch (Throwable problem) {
            failed = true;
            REPORT.println("not ok " + number + " - " + name);
            REPORT.println("  " + problem.toString().replace("\n", "\n  "));
        }
    }

    private static void exit(int status) {
        Run run = current;
        if (!run.code.isDone()) {
            for (Runnable hook : run.hooks) hook.run();
            run.code.complete(status);
        }
        while (true) LockSupport.park();
    }

    private static Output tool(String name, String... args) throws Exception {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        Run run = new Run();
        current = run;
        System.setOut(new PrintStream(out, true));
        System.setErr(new PrintStream(err, true));
        Thread thread = new Thread(() -> {
            try {
                Class.forName(TOOLS + name).getMethod("main", String[].class).invoke(null, (Object) args);
                // As at the end of a JVM: some tools print their sums in a hook.
                for (Runnable hook : run.hooks) hook.run();
                run.code.complete(0);
            } catch (Throwable problem) {
                Throwable cause = problem.getCause() == null ? problem : problem.getCause();
                System.err.println(cause);
                run.code.complete(1);
            }
        }, name);
        thread.setDaemon(true);
        thread.start();
        try {
            int code = run.code.get(TOOL_TIMEOUT_S, TimeUnit.SECONDS);
            return new Output(code, out.toString(), err.toString());
        } catch (java.util.concurrent.TimeoutException late) {
            throw new AssertionError(name + " " + Arrays.toString(args) + " took too long: " + out + err);
        }
    }

    /** For tools that add their hook to the JVM's own: a process. */
    private static Output process(String name, String... args) throws Exception {
        List<String> command = new ArrayList<>(List.of(ProcessHandle.current().info().command().orElse("java"), "-Xmx128m",
            "-XX:TieredStopAtLevel=1", "-cp", System.getProperty("java.class.path"), TOOLS + name));
        command.addAll(List.of(args));
        Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
        CompletableFuture<String> out = CompletableFuture.supplyAsync(() -> {
            try {
                return new String(process.getInputStream().readAllBytes());
            } catch (java.io.IOException problem) {
                return problem.toString();
            }
        });
        if (!process.waitFor(TOOL_TIMEOUT_S, TimeUnit.SECONDS)) {
            process.destroyForcibly();
            throw new AssertionError(name + " " + Arrays.toString(args) + " took too long: " + out.get());
        }
        return new Output(process.exitValue(), out.get(), "");
    }

    private static void expect(double actual, double wanted, String what) {
        if (actual != wanted) throw new AssertionError(what + ": " + actual + " instead of " + wanted);
    }

    public static void main(String[] arguments) throws Exception {
        String broker = arguments[0];
        Exit.setExitProcedure((status, message) -> exit(status));
        Exit.setHaltProcedure((status, message) -> exit(status));
        Exit.setShutdownHookAdder((name, runnable) -> current.hooks.add(runnable));
        // argparse4j calls System.exit itself.
        System.setSecurityManager(new SecurityManager() {
            @Override public void checkPermission(java.security.Permission permission) { }
            @Override public void checkPermission(java.security.Permission permission, Object context) { }
            @Override public void checkExit(int status) {
                if (!finished) exit(status);
            }
        });
        quickstart(broker);
        verifiable(broker);
        performance(broker);
        finished = true;
        System.exit(failed ? 1 : 0);
    }

    private static void quickstart(String broker) {
        check("TopicCommand creates a topic", () -> {
            Output output = tool("TopicCommand", "--bootstrap-server", broker, "--create", "--topic", "quickstart",
                "--partitions", "3");
            output.expectOk();
            output.expectLine("^Created topic quickstart\\.$");
        });
        check("TopicCommand describes it", () -> {
            Output output = tool("TopicCommand", "--bootstrap-server", broker, "--describe", "--topic", "quickstart");
            output.expectOk();
            output.expectLine("PartitionCount: 3\tReplicationFactor: 1\t");
            expect(output.count("^\tTopic: quickstart\tPartition: [0-2]\tLeader: 1\tReplicas: 1\tIsr: 1\t"), 3, "lines");
        });
        check("TopicCommand refuses a second one", () -> {
            Output output = tool("TopicCommand", "--bootstrap-server", broker, "--create", "--topic", "quickstart");
            expect(output.code(), 1, "exit code");
            output.expectLine("Topic 'quickstart' already exists\\.");
        });
        check("VerifiableProducer writes", () -> {
            Output output = process("VerifiableProducer", "--bootstrap-server", broker, "--topic", "quickstart",
                "--max-messages", "300", "--acks", "-1");
            expect(output.count("\"name\":\"producer_send_success\""), 300, "acknowledged records");
            output.expectLine("\"sent\":300,\"acked\":300");
        });
        check("ConsoleConsumer reads from the beginning in a group", () -> {
            Output output = tool("consumer.ConsoleConsumer", "--bootstrap-server", broker, "--topic", "quickstart",
                "--from-beginning", "--group", "readers", "--max-messages", "300", "--timeout-ms", "30000");
            output.expectOk();
            long distinct = output.out().lines().map(Integer::parseInt).distinct().count();
            expect(distinct, 300, "distinct values");
        });
        check("GetOffsetShell tells the ends", () -> {
            Output output = tool("GetOffsetShell", "--bootstrap-server", broker, "--topic", "quickstart");
            output.expectOk();
            long sum = output.out().lines().mapToLong(line -> Long.parseLong(line.split(":")[2])).sum();
            expect(sum, 300, "sum of the end offsets");
        });
        check("ConsumerGroupCommand tells the lag", () -> {
            process("VerifiableProducer", "--bootstrap-server", broker, "--topic", "quickstart", "--max-messages", "30")
                .expectLine("\"acked\":30");
            Output output = tool("consumer.group.ConsumerGroupCommand", "--bootstrap-server", broker, "--describe",
                "--group", "readers");
            output.expectOk();
            long lag = output.out().lines().filter(line -> line.contains("quickstart"))
                .mapToLong(line -> Long.parseLong(line.trim().split("\\s+")[5])).sum();
            expect(lag, 30, "lag");
        });
        check("ConsumerGroupCommand resets offsets", () -> {
            Output output = tool("consumer.group.ConsumerGroupCommand", "--bootstrap-server", broker, "--group",
                "readers", "--topic", "quickstart", "--reset-offsets", "--to-earliest", "--execute");
            output.expectOk();
            expect(output.count("^readers +quickstart +[0-2] +0 *$"), 3, "lines");
        });
        check("DeleteRecordsCommand moves the start", () -> {
            Path file = Files.createTempFile("delete", ".json");
            // A producer without keys fills one partition before the next: which ones have records is its choice.
            String partitions = IntStream.range(0, 3).mapToObj(
                partition -> "{\"topic\":\"quickstart\",\"partition\":" + partition + ",\"offset\":-1}")
                .collect(Collectors.joining(","));
            Files.writeString(file, "{\"partitions\":[" + partitions + "],\"version\":1}");
            Output output =
                tool("DeleteRecordsCommand", "--bootstrap-server", broker, "--offset-json-file", file.toString());
            long sum = output.out().lines().filter(line -> line.startsWith("partition: quickstart-"))
                .mapToLong(line -> Long.parseLong(line.split("low_watermark: ")[1].trim())).sum();
            expect(sum, 330, "sum of the low watermarks");
            Files.delete(file);
        });
        check("TopicCommand deletes", () -> {
            tool("TopicCommand", "--bootstrap-server", broker, "--delete", "--topic", "quickstart").expectOk();
            Output output = tool("TopicCommand", "--bootstrap-server", broker, "--list");
            expect(output.count("^quickstart$"), 0, "lines");
        });
    }

    private static void verifiable(String broker) {
        check("VerifiableProducer with keys and a rate", () -> {
            tool("TopicCommand", "--bootstrap-server", broker, "--create", "--topic", "verified", "--partitions", "4");
            Output output = process("VerifiableProducer", "--bootstrap-server", broker, "--topic", "verified",
                "--max-messages", "2000", "--throughput", "2000", "--repeating-keys", "10", "--value-prefix", "7");
            output.expectLine("\"sent\":2000,\"acked\":2000");
        });
        check("VerifiableConsumer reads, commits and leaves", () -> {
            Output output = tool("VerifiableConsumer", "--bootstrap-server", broker, "--topic", "verified",
                "--group-id", "verifiers", "--max-messages", "2000", "--reset-policy", "earliest");
            output.expectLine("\"name\":\"partitions_assigned\"");
            output.expectLine("\"name\":\"offsets_committed\".*\"success\":true");
            long sum = Pattern.compile("\"name\":\"records_consumed\",\"count\":(\\d+)|\"count\":(\\d+),\"name\":\"records_consumed\"")
                .matcher(output.out()).results().mapToLong(m -> Long.parseLong(m.group(1) == null ? m.group(2) : m.group(1))).sum();
            expect(sum, 2000, "records");
        });
        check("VerifiableConsumer's offsets have no lag", () -> {
            Output output = tool("consumer.group.ConsumerGroupCommand", "--bootstrap-server", broker, "--describe",
                "--group", "verifiers");
            long lag = output.out().lines().filter(line -> line.contains("verified"))
                .mapToLong(line -> Long.parseLong(line.trim().split("\\s+")[5])).sum();
            expect(lag, 0, "lag");
            expect(output.count(" verified "), 4, "partitions");
        });
    }

    private static void performance(String broker) {
        check("TopicCommand creates with settings", () -> {
            Output output = tool("TopicCommand", "--bootstrap-server", broker, "--create", "--topic", "performance",
                "--partitions", "2", "--config", "segment.bytes=1048576");
            output.expectOk();
        });
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            check("ProducerPerformance with " + codec, () -> {
                Output output = tool("ProducerPerformance", "--bootstrap-server", broker, "--topic", "performance",
                    "--num-records", "20000", "--record-size", "200", "--throughput", "-1", "--command-property",
                    "compression.type=" + codec, "acks=all");
                output.expectOk();
                output.expectLine("^20000 records sent, .*99\\.9th\\.");
            });
        }
        check("ConsumerPerformance reads all", () -> {
            Output output = tool("ConsumerPerformance", "--bootstrap-server", broker, "--topic", "performance",
                "--num-records", "100000", "--timeout", "30000");
            output.expectOk();
            double[] values = output.numbers("^[^,]+, [^,]+, ([0-9.]+), [0-9.]+, (\\d+), ");
            expect(values[1], 100000, "records");
        });
        check("EndToEndLatency", () -> {
            Output output = tool("EndToEndLatency", "--bootstrap-server", broker, "--topic", "latency",
                "--num-records", "200", "--producer-acks", "1", "--record-size", "100");
            output.expectOk();
            output.expectLine("^Avg latency: [0-9.]+ ms");
            output.expectLine("^Percentiles: 50th = ");
        });
    }
}
