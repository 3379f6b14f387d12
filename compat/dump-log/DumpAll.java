import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import org.apache.kafka.tools.DumpLogSegments;

/**
 * DumpAll LIST OUT: runs the reference's DumpLogSegments for every line of LIST (arguments separated by blanks) and
 * writes what it printed to OUT, in sections. The working directory's own path is masked.
 */
public class DumpAll {
  public static void main(String[] args) throws Exception {
    StringBuilder sections = new StringBuilder();
    PrintStream stdout = System.out, stderr = System.err;
    for (String line : Files.readAllLines(Path.of(args[0]))) {
      ByteArrayOutputStream out = new ByteArrayOutputStream(), err = new ByteArrayOutputStream();
      System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
      System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
      String uncaught = "";
      try {
        DumpLogSegments.main(line.split(" "));
      } catch (Throwable thrown) {
        uncaught = "Exception in thread \"main\" " + thrown + "\n";
      }
      System.setOut(stdout);
      System.setErr(stderr);
      sections.append(">>> ").append(line).append('\n').append(out.toString(StandardCharsets.UTF_8))
          .append("--- stderr\n").append(err.toString(StandardCharsets.UTF_8)).append(uncaught);
    }
    String here = Path.of("").toAbsolutePath().toString();
    Files.writeString(Path.of(args[1]), sections.toString().replace(here, "$DIR"));
  }
}
