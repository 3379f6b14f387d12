package org.apache.kafka.common.test.junit;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.io.Writer;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;

import kafka.server.BrokerServer;
import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.fault.FaultHandlerException;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.AfterTestExecutionCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.Extension;
import org.junit.jupiter.api.extension.TestTemplateInvocationContext;
import org.mockito.Mockito;
import org.opentest4j.TestAbortedException;

/**
 * Takes the place of the class of this name in Apache Kafka's test runtime: each test gets a broker process of its own
 * instead of one inside this JVM. What a test asks of the broker's objects is answered through a client; what cannot be
 * asked over the wire aborts the test, which then counts as skipped.
 *
 * Which broker: `-Dbroker.binary` names our binary, or `-Dbroker.libs` the folder with Apache Kafka's jars.
 */
public class RaftClusterInvocationContext implements TestTemplateInvocationContext {
    /** Why a test is not run a second time: its outcome is left out of the results. */
    public static final String REPEATED = "the isolated mode repeats the combined one";
    private static final String CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw";

    private final String baseDisplayName;
    private final ClusterConfig config;
    private final boolean isCombined;

    public RaftClusterInvocationContext(String baseDisplayName, ClusterConfig config, boolean isCombined) {
        this.baseDisplayName = baseDisplayName;
        this.config = config;
        this.isCombined = isCombined;
    }

    @Override
    public String getDisplayName(int invocationIndex) {
        return baseDisplayName + " [" + invocationIndex + "]";
    }

    @Override
    public List<Extension> getAdditionalExtensions() {
        ExternalCluster cluster = new ExternalCluster(config, isCombined);
        return List.of(
            (BeforeEachCallback) context -> {
                if (config.isAutoStart()) cluster.start();
            },
            (AfterTestExecutionCallback) context -> cluster.stop(),
            (AfterEachCallback) context -> cluster.stop(),
            new ClusterInstanceParameterResolver(cluster));
    }

    private static final class ExternalCluster implements ClusterInstance {
        private final ClusterConfig config;
        private final boolean isCombined;
        private final Properties properties = new Properties();
        private boolean started;
        private boolean stopped;
        private Path dir;
        private Process process;
        private int port;
        private int controllerPort;
        private Admin client;
        private BrokerServer broker;
        private ControllerServer controller;

        ExternalCluster(ClusterConfig config, boolean isCombined) {
            this.config = config;
            this.isCombined = isCombined;
        }

        @Override
        public synchronized void start() {
            if (started) return;
            if (!isCombined && config.clusterTypes().contains(Type.CO_KRAFT))
                throw new TestAbortedException(REPEATED);
            if (config.numBrokers() > 1 || config.numControllers() > 1)
                throw new TestAbortedException("wants several nodes");
            SecurityProtocol protocol = config.brokerSecurityProtocol();
            if (protocol != SecurityProtocol.PLAINTEXT && protocol != SecurityProtocol.SASL_PLAINTEXT)
                throw new TestAbortedException("wants " + protocol);
            started = true;
            try {
                dir = Files.createTempDirectory("broker");
                port = freePort();
                controllerPort = freePort();
                configure();
                Path file = dir.resolve("server.properties");
                try (Writer writer = Files.newBufferedWriter(file)) {
                    properties.store(writer, null);
                }
                run(formatCommand(file)).waitFor();
                process = run(serverCommand(file));
                waitForBroker();
                mockServers();
            } catch (RuntimeException e) {
                throw e;
            } catch (Exception e) {
                throw new RuntimeException("the broker did not start: " + logTail(), e);
            }
        }

        private void configure() {
            properties.putAll(config.serverProperties());
            config.perServerOverrideProperties().getOrDefault(0, Map.of()).forEach(properties::put);
            String listener = config.brokerListenerName().value();
            String controllerListener = config.controllerListenerName().value();
            SecurityProtocol protocol = config.brokerSecurityProtocol();
            setDefault("process.roles", "broker,controller");
            setDefault("node.id", "0");
            setDefault("log.dirs", dir.resolve("data").toString());
            setDefault("listeners",
                listener + "://127.0.0.1:" + port + "," + controllerListener + "://127.0.0.1:" + controllerPort);
            // Tests expect the host that the test runtime advertises.
            setDefault("advertised.listeners", listener + "://localhost:" + port);
            setDefault("listener.security.protocol.map",
                listener + ":" + protocol + "," + controllerListener + ":PLAINTEXT");
            setDefault("inter.broker.listener.name", listener);
            setDefault("controller.listener.names", controllerListener);
            setDefault("controller.quorum.voters", "0@127.0.0.1:" + controllerPort);
            setDefault("log.cleaner.dedupe.buffer.size", "2097152");
            setDefault("unstable.feature.versions.enable", "true");
            setDefault("unstable.api.versions.enable", "true");
            if (protocol == SecurityProtocol.SASL_PLAINTEXT) {
                setDefault("sasl.enabled.mechanisms", "PLAIN");
                setDefault("sasl.mechanism.inter.broker.protocol", "PLAIN");
                // The users that the test runtime's clients log in as.
                setDefault("listener.name." + listener.toLowerCase(Locale.ROOT) + ".plain.sasl.jaas.config",
                    "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"plain-admin\" "
                        + "password=\"plain-admin-secret\" user_plain-admin=\"plain-admin-secret\" "
                        + "user_plain-user1=\"plain-user1-secret\";");
            }
        }

        private void setDefault(String key, String value) {
            properties.putIfAbsent(key, value);
        }

        private List<String> formatCommand(Path file) {
            List<String> command = brokerCommand("kafka.tools.StorageTool", "storage");
            command.addAll(List.of("format", "-t", CLUSTER_ID, "-c", file.toString()));
            config.features().forEach((feature, level) ->
                command.addAll(List.of("--feature", feature.featureName() + "=" + level)));
            return command;
        }

        private List<String> serverCommand(Path file) {
            List<String> command = brokerCommand("kafka.Kafka", "server");
            command.add(file.toString());
            return command;
        }

        /** How to start one of the reference's classes, or the same command of our binary. */
        private static List<String> brokerCommand(String referenceClass, String command) {
            String binary = System.getProperty("broker.binary");
            if (binary != null) return new ArrayList<>(List.of(binary, command));
            String libs = System.getProperty("broker.libs");
            return new ArrayList<>(List.of("java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
                "-cp", libs + "/*", referenceClass));
        }

        private Process run(List<String> command) throws IOException {
            return new ProcessBuilder(command).redirectErrorStream(true)
                .redirectOutput(ProcessBuilder.Redirect.appendTo(dir.resolve("log").toFile())).start();
        }

        private void waitForBroker() throws Exception {
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
            while (true) {
                if (!process.isAlive()) throw new IllegalStateException("the broker ended: " + logTail());
                try (Socket socket = new Socket(InetAddress.getLoopbackAddress(), port)) {
                    break;
                } catch (IOException e) {
                    if (System.nanoTime() > end) throw e;
                    Thread.sleep(20);
                }
            }
            while (client().describeCluster().nodes().get(60, TimeUnit.SECONDS).isEmpty()) Thread.sleep(20);
        }

        private String logTail() {
            try {
                String text = Files.readString(dir.resolve("log"));
                return text.substring(Math.max(0, text.length() - 1500));
            } catch (IOException e) {
                return "";
            }
        }

        @Override
        public synchronized void stop() {
            if (stopped || !started) return;
            stopped = true;
            if (client != null) client.close(Duration.ofSeconds(1));
            if (process != null) {
                process.destroyForcibly();
                try {
                    process.waitFor();
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                }
            }
            try (var files = Files.walk(dir)) {
                files.sorted(Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
            } catch (IOException e) {
                // Left for whoever clears the work folder.
            }
        }

        private synchronized Admin client() {
            if (client == null)
                client = Admin.create(setClientSaslConfig(Map.of("bootstrap.servers", bootstrapServers())));
            return client;
        }

        /** Null when there is no such topic. */
        private TopicDescription describe(String topic) {
            try {
                return client().describeTopics(List.of(topic)).allTopicNames().get(20, TimeUnit.SECONDS).get(topic);
            } catch (ExecutionException e) {
                return null;
            } catch (Exception e) {
                throw new RuntimeException(e);
            }
        }

        /** The server objects that tests read from, as far as their answers can be had over the wire. */
        private void mockServers() {
            KafkaConfig kafkaConfig = new KafkaConfig(properties, false);
            broker = Mockito.mock(BrokerServer.class, Mockito.RETURNS_DEEP_STUBS);
            Mockito.doReturn(mockMetadataCache()).when(broker).metadataCache();
            Mockito.doReturn(kafkaConfig).when(broker).config();
            Mockito.doReturn(port).when(broker).boundPort(Mockito.any());
            Mockito.when(broker.socketServer().boundPort(Mockito.any())).thenReturn(port);
            // What the offsets topic is created with by tests that need it.
            Properties offsetsTopic = new Properties();
            offsetsTopic.put("cleanup.policy", "compact");
            offsetsTopic.put("compression.type", "producer");
            offsetsTopic.put("segment.bytes", "104857600");
            Mockito.when(broker.groupCoordinator().groupMetadataTopicConfigs()).thenReturn(offsetsTopic);
            Mockito.when(broker.dataPlaneRequestProcessor().isConsumerGroupProtocolEnabled()).thenReturn(true);
            controller = Mockito.mock(ControllerServer.class, Mockito.RETURNS_DEEP_STUBS);
            Mockito.when(controller.raftManager().raftLog().endOffset().offset()).thenReturn(0L);
            Mockito.when(controller.controller().findAllTopicIds(Mockito.any())).thenAnswer(call -> {
                Map<String, Uuid> ids = new HashMap<>();
                client().listTopics(new ListTopicsOptions().listInternal(true)).listings().get()
                    .forEach(topic -> ids.put(topic.name(), topic.topicId()));
                return CompletableFuture.completedFuture(ids);
            });
            Mockito.doReturn(kafkaConfig).when(controller).config();
        }

        private KRaftMetadataCache mockMetadataCache() {
            KRaftMetadataCache cache = Mockito.mock(KRaftMetadataCache.class, call -> {
                throw new TestAbortedException("needs the broker's MetadataCache." + call.getMethod().getName());
            });
            Mockito.doAnswer(call -> Optional.ofNullable(describe(call.getArgument(0)))
                .map(topic -> topic.partitions().size())).when(cache).numPartitions(Mockito.anyString());
            Mockito.doAnswer(call -> describe(call.getArgument(0)) != null).when(cache).contains(Mockito.anyString());
            Mockito.doAnswer(call -> {
                TopicDescription topic = describe(call.getArgument(0));
                int partition = call.getArgument(1);
                if (topic == null || topic.partitions().size() <= partition) return Optional.empty();
                var info = topic.partitions().get(partition);
                if (info.leader() == null) return Optional.empty();
                return Optional.of(new LeaderAndIsr(info.leader().id(), info.isr().stream().map(Node::id).toList()));
            }).when(cache).getLeaderAndIsr(Mockito.anyString(), Mockito.anyInt());
            Mockito.doAnswer(call -> {
                TopicDescription topic = describe(call.getArgument(0));
                return topic == null ? Uuid.ZERO_UUID : topic.topicId();
            }).when(cache).getTopicId(Mockito.anyString());
            return cache;
        }

        private static int freePort() {
            try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
                return socket.getLocalPort();
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }

        private void waitForTopic(String topic, String failure, Predicate<TopicDescription> done)
            throws InterruptedException {
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
            while (!done.test(describe(topic))) {
                if (System.nanoTime() > end) throw new AssertionError(topic + failure);
                Thread.sleep(20);
            }
        }

        @Override
        public void waitTopicDeletion(String topic) throws InterruptedException {
            waitForTopic(topic, " is not deleted", description -> description == null);
        }

        @Override
        public void waitTopicCreation(String topic, int partitions) throws InterruptedException {
            waitForTopic(topic, " has not its partitions", description -> description != null
                && description.partitions().size() == partitions
                && description.partitions().stream().allMatch(partition -> partition.leader() != null));
        }

        @Override
        public void waitAcls(AclBindingFilter filter, Collection<AccessControlEntry> entries)
            throws InterruptedException {
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(15);
            while (true) {
                try {
                    Set<AccessControlEntry> found = new HashSet<>();
                    client().describeAcls(filter).values().get().forEach(binding -> found.add(binding.entry()));
                    if (found.equals(new HashSet<>(entries))) return;
                } catch (ExecutionException e) {
                    // Asked again until the time is over.
                }
                if (System.nanoTime() > end) throw new AssertionError("the ACLs are not as expected");
                Thread.sleep(20);
            }
        }

        private static <T> T unavailable(String what) {
            throw new TestAbortedException("needs " + what + " inside this JVM");
        }

        @Override
        public Type type() {
            return isCombined ? Type.CO_KRAFT : Type.KRAFT;
        }

        @Override
        public Map<Integer, KafkaBroker> brokers() {
            return new HashMap<>(Map.of(0, broker));
        }

        @Override
        public Map<Integer, KafkaBroker> aliveBrokers() {
            return brokers();
        }

        @Override
        public Map<Integer, ControllerServer> controllers() {
            return new HashMap<>(Map.of(0, controller));
        }

        @Override
        public ClusterConfig config() {
            return config;
        }

        @Override
        public Set<Integer> controllerIds() {
            return Set.of(0);
        }

        @Override
        public Set<Integer> brokerIds() {
            return Set.of(0);
        }

        @Override
        public ListenerName clientListener() {
            return config.brokerListenerName();
        }

        @Override
        public ListenerName controllerListenerName() {
            return config.controllerListenerName();
        }

        @Override
        public String bootstrapServers() {
            return "localhost:" + port;
        }

        @Override
        public String bootstrapControllers() {
            return "localhost:" + controllerPort;
        }

        @Override
        public List<Integer> controllerBoundPorts() {
            return List.of(controllerPort);
        }

        @Override
        public List<Integer> brokerBoundPorts() {
            return List.of(port);
        }

        @Override
        public String clusterId() {
            try {
                return client().describeCluster().clusterId().get();
            } catch (Exception e) {
                throw new RuntimeException(e);
            }
        }

        @Override
        public Set<GroupProtocol> supportedGroupProtocols() {
            // Tests that run for every protocol run for the one that is served.
            return Set.of(GroupProtocol.CLASSIC);
        }

        @Override
        public Optional<FaultHandlerException> firstFatalException() {
            return Optional.empty();
        }

        @Override
        public Optional<FaultHandlerException> firstNonFatalException() {
            return Optional.empty();
        }

        @Override
        public boolean started() {
            return started;
        }

        @Override
        public boolean stopped() {
            return stopped;
        }

        @Override
        public void shutdownBroker(int brokerId) {
            unavailable("a broker to stop");
        }

        @Override
        public void startBroker(int brokerId) {
            unavailable("a broker to start");
        }

        @Override
        public void waitForReadyBrokers() {
            // The only broker is registered and unfenced once it is in the cluster's description.
        }

        @Override
        public void ensureConsistentMetadata() {
            // There is one node.
        }

        @Override
        public void ensureConsistentMetadata(Collection<KafkaBroker> brokers, Collection<ControllerServer> controllers) {
            // There is one node.
        }

        @Override
        public List<Authorizer> authorizers() {
            return List.of();
        }
    }
}
