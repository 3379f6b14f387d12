// Runs many invocations of the reference's command line tools inside one JVM.
// Input, a line per invocation:  class TAB stdin TAB arg TAB arg …   (every field URL-encoded)
// Output, a line per invocation: exit-code TAB base64(stdout) TAB base64(stderr)
// A tool that "exits" has its thread parked for ever, so nothing after the exit can run, as after a real one.
import java.io.*;
import java.lang.reflect.Method;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.common.utils.internals.Exit;

// argparse4j calls System.exit itself, hence the security manager (-Djava.security.manager=allow).
@SuppressWarnings("removal")
public final class JavaTools {
    private static final class Run {
        final CompletableFuture<Integer> code = new CompletableFuture<>();
        final List<Runnable> hooks = new ArrayList<>();
    }

    private static volatile Run current;
    private static volatile boolean finished;

    private static void exit(int status) {
        Run run = current;
        if (!run.code.isDone()) {
            for (Runnable hook : run.hooks) hook.run();
            run.code.complete(status);
        }
        while (true) LockSupport.park();
    }

    public static void main(String[] unused) throws Exception {
        Exit.setExitProcedure((status, message) -> exit(status));
        Exit.setHaltProcedure((status, message) -> exit(status));
        Exit.setShutdownHookAdder((name, runnable) -> current.hooks.add(runnable));
        System.setSecurityManager(new SecurityManager() {
            @Override public void checkPermission(java.security.Permission permission) { }
            @Override public void checkPermission(java.security.Permission permission, Object context) { }
            @Override public void checkExit(int status) { if (!finished) exit(status); }
        });
        PrintStream realOut = System.out;
        PrintStream realErr = System.err;
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = lines.readLine()) != null; ) {
            String[] fields = line.split("\t", -1);
            for (int i = 0; i < fields.length; i++) fields[i] = URLDecoder.decode(fields[i], StandardCharsets.UTF_8);
            String[] args = Arrays.copyOfRange(fields, 2, fields.length);
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            PrintStream outStream = new PrintStream(out, true);
            PrintStream errStream = new PrintStream(err, true);
            System.setOut(outStream);
            System.setErr(errStream);
            System.setIn(new ByteArrayInputStream(fields[1].getBytes(StandardCharsets.UTF_8)));
            Run run = new Run();
            current = run;
            Method main = Class.forName(fields[0]).getMethod("main", String[].class);
            Thread thread = new Thread(() -> {
                try {
                    main.invoke(null, (Object) args);
                    exit(0);
                } catch (Throwable t) {
                    Throwable cause = t.getCause() == null ? t : t.getCause();
                    errStream.print("Exception in thread \"main\" ");
                    cause.printStackTrace(errStream);
                    exit(1);
                }
            }, "main");
            thread.setDaemon(true);
            thread.start();
            int code;
            try {
                code = run.code.get(120, TimeUnit.SECONDS);
            } catch (TimeoutException e) {
                code = 124;
            }
            outStream.flush();
            errStream.flush();
            Base64.Encoder encoder = Base64.getEncoder();
            realOut.println(code + "\t" + encoder.encodeToString(out.toByteArray()) + "\t" + encoder.encodeToString(err.toByteArray()));
            realOut.flush();
        }
        System.setErr(realErr);
        finished = true;
        Runtime.getRuntime().halt(0);
    }
}
