package custody.benchmarks.append;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;

/**
 * Measures NiFi's write-ahead provenance repository on demand.
 *
 * <p>The one argument is the file of events. Each line on stdin is an {@link Order}; each gets one line on stdout,
 * an {@link Answer}. The process lives through all measurements, so that its code is compiled as in a NiFi that has
 * run for a while. It ends with its stdin.
 */
public final class AppendHarness {
    private AppendHarness() { }

    /** What to measure; the folder does not exist yet. */
    record Order(int threads, int batchEvents, int batches, double seconds, boolean alwaysSync, boolean verify,
                 String folder) { }

    public static void main(final String[] arguments) throws Exception {
        final PrintStream answers = System.out;
        System.setOut(System.err);
        final ObjectMapper json = new ObjectMapper();
        final EventFile events = new EventFile(Path.of(arguments[0]));
        final BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            final Answer answer = measure(events, json.readValue(line, Order.class));
            answers.println(json.writeValueAsString(answer));
            answers.flush();
        }
        System.exit(0); // NiFi leaves threads behind that are no daemons
    }

    private static Answer measure(final EventFile events, final Order order) throws Exception {
        final Path folder = Path.of(order.folder());
        final Answer answer;
        final String complaints;
        try (Repository repository = new Repository(folder, order.alwaysSync(), events.lookup())) {
            answer = new Load(repository, events.batches(order.batchEvents(), order.batches()), order.seconds())
                .run(order.threads());
            complaints = repository.complaints();
            if (order.verify()) {
                repository.awaitCompression();
            }
        }
        if (!order.verify()) {
            return answer.with(null, complaints);
        }
        try (Repository again = new Repository(folder, order.alwaysSync(), events.lookup())) {
            return answer.with(again.count(), complaints);
        }
    }
}
