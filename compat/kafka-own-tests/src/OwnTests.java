import java.io.PrintStream;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;

import org.apache.kafka.common.test.junit.RaftClusterInvocationContext;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.discovery.DiscoverySelectors;
import org.junit.platform.launcher.LauncherDiscoveryRequest;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

/**
 * Runs test classes and prints one TAP line per test: `Class.method[n]` for the n-th configuration that the method runs
 * with. Everything else that the tests print goes to the standard error, so that nothing can be taken for a result.
 */
public final class OwnTests {
    public static void main(String[] classes) {
        PrintStream out = System.out;
        System.setOut(System.err);
        LauncherDiscoveryRequest request = LauncherDiscoveryRequestBuilder.request()
            .selectors(Arrays.stream(classes).map(DiscoverySelectors::selectClass).toList())
            // The cluster extension is found through the service loader.
            .configurationParameter("junit.jupiter.extensions.autodetection.enabled", "true")
            // A test that hangs must not hide the others; the longest take under a minute.
            .configurationParameter("junit.jupiter.execution.timeout.testtemplate.method.default", "180 s")
            .configurationParameter("junit.jupiter.execution.timeout.thread.mode.default", "SEPARATE_THREAD")
            .build();
        LauncherFactory.create().execute(request, new Tap(out));
        out.flush();
        // Clients that a failed test left open keep threads.
        System.exit(0);
    }

    private static final class Tap implements TestExecutionListener {
        private final PrintStream out;
        /** How often each method ran: JUnit's own index depends on the order of a hash set. */
        private final Map<String, Integer> runs = new HashMap<>();
        private int number;

        Tap(PrintStream out) {
            this.out = out;
        }

        @Override
        public void executionFinished(TestIdentifier test, TestExecutionResult result) {
            boolean failed = result.getStatus() == TestExecutionResult.Status.FAILED;
            // A class or a template is of interest only when it could not run its tests.
            if (!test.isTest() && !failed) return;
            String cause = result.getThrowable().map(OwnTests::describe).orElse("");
            boolean aborted = result.getStatus() == TestExecutionResult.Status.ABORTED;
            if (cause.contains(RaftClusterInvocationContext.REPEATED)) return;
            print(failed, name(test), aborted ? " # SKIP " + cause : failed ? " # " + cause : "");
            if (failed) result.getThrowable().ifPresent(thrown -> thrown.printStackTrace(System.err));
        }

        @Override
        public void executionSkipped(TestIdentifier test, String reason) {
            print(false, name(test), " # SKIP " + reason.replace('\n', ' '));
        }

        private synchronized void print(boolean failed, String name, String note) {
            String run = name + "[" + runs.merge(name, 1, Integer::sum) + "]";
            out.println((failed ? "not ok " : "ok ") + ++number + " - " + run + note);
            out.flush();
        }
    }

    private static String describe(Throwable thrown) {
        String message = thrown.toString().lines().findFirst().orElse("");
        return message.length() > 300 ? message.substring(0, 300) : message;
    }

    /** `Class.method`, from the segments of the unique id. */
    private static String name(TestIdentifier test) {
        StringBuilder name = new StringBuilder();
        for (var segment : test.getUniqueIdObject().getSegments()) {
            String value = segment.getValue();
            switch (segment.getType()) {
                case "class" -> name.append(value.substring(value.lastIndexOf('.') + 1));
                case "method", "test-template" -> name.append('.').append(value, 0, value.indexOf('('));
                default -> { }
            }
        }
        return name.toString();
    }
}
