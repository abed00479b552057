package custody.benchmarks.append;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadInfo;
import java.lang.management.ThreadMXBean;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.nifi.provenance.ProvenanceEventRecord;

/**
 * Writes a provenance repository from events on stdin, or reads one that was written before.
 *
 * <p>Arguments: {@code write} or {@code read}, the file of some events that name all components, the repository's
 * folder, the size at which it rolls over. {@code write}: each line on stdin is an event; one answer at the end.
 * {@code read}: each line is an order, {@code {"ids": [...]}} or {@code {"page": 1000, "events": 200000}}, and gets
 * one line as answer.
 */
public final class LogHarness {
    private static final int BATCH_EVENTS = 1_000;
    private static final String STORAGE_SIZE = "1000 GB";
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    private static final ObjectMapper JSON = new ObjectMapper();

    private LogHarness() { }

    public static void main(final String[] arguments) throws Exception {
        final PrintStream answers = System.out;
        System.setOut(System.err);
        final EventFile names = new EventFile(Path.of(arguments[1]));
        final Path folder = Path.of(arguments[2]);
        final BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        if (arguments[0].equals("write")) {
            answers.println(JSON.writeValueAsString(write(lines, folder, names, arguments[3])));
        } else {
            try (Repository repository = open(folder, names, arguments[3])) {
                for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                    answers.println(JSON.writeValueAsString(read(repository, JSON.readTree(line))));
                    answers.flush();
                }
            }
        }
        answers.flush();
        System.exit(0); // NiFi leaves threads behind that are no daemons
    }

    private static Repository open(final Path folder, final EventFile names, final String rolloverSize)
            throws IOException {
        return new Repository(folder, false, names.lookup(), rolloverSize, STORAGE_SIZE);
    }

    /**
     * Register all events. What parses them is the same thread, and its time does not count.
     *
     * <p>The file that is written last stays plain: NiFi compresses it neither at its end nor at the next start.
     */
    private static Map<String, Object> write(
            final BufferedReader lines, final Path folder, final EventFile names, final String rolloverSize)
            throws Exception {
        long nanos = 0;
        long cpuNanos = 0;
        final double compressing;
        final double indexing;
        final long last;
        final String complaints;
        try (Repository repository = open(folder, names, rolloverSize)) {
            for (List<ProvenanceEventRecord> batch = next(lines); !batch.isEmpty(); batch = next(lines)) {
                final long begin = System.nanoTime();
                final long beginCpu = THREADS.getCurrentThreadCpuTime();
                repository.register(batch);
                nanos += System.nanoTime() - begin;
                cpuNanos += THREADS.getCurrentThreadCpuTime() - beginCpu;
            }
            final long begin = System.nanoTime();
            repository.awaitCompression();
            nanos += System.nanoTime() - begin;
            compressing = cpuSeconds("Compress Provenance Logs");
            indexing = cpuSeconds("Index Provenance Events");
            last = repository.lastEventId();
            complaints = repository.complaints();
        }
        final Map<String, Object> answer = new HashMap<>();
        answer.put("lastEventId", last);
        answer.put("seconds", nanos / 1e9);
        answer.put("registerCpuSeconds", cpuNanos / 1e9);
        answer.put("compressCpuSeconds", compressing);
        answer.put("indexCpuSeconds", indexing);
        answer.put("note", complaints);
        return answer;
    }

    private static List<ProvenanceEventRecord> next(final BufferedReader lines) throws IOException {
        final List<ProvenanceEventRecord> batch = new ArrayList<>(BATCH_EVENTS);
        while (batch.size() < BATCH_EVENTS) {
            final String line = lines.readLine();
            if (line == null) {
                break;
            }
            batch.add(EventFile.record(JSON.readTree(line)));
        }
        return batch;
    }

    /** What the living threads of one name have computed. */
    static double cpuSeconds(final String name) {
        long nanos = 0;
        for (final ThreadInfo thread : THREADS.getThreadInfo(THREADS.getAllThreadIds())) {
            if (thread != null && thread.getThreadName().startsWith(name)) {
                nanos += Math.max(THREADS.getThreadCpuTime(thread.getThreadId()), 0);
            }
        }
        return nanos / 1e9;
    }

    private static Map<String, Object> read(final Repository repository, final JsonNode order) throws IOException {
        return order.has("ids") ? points(repository, order.get("ids"))
            : pages(repository, order.get("page").asInt(), order.get("events").asLong());
    }

    private static Map<String, Object> points(final Repository repository, final JsonNode ids) throws IOException {
        final long[] nanos = new long[ids.size()];
        for (int number = 0; number < nanos.length; number++) {
            final long begin = System.nanoTime();
            final ProvenanceEventRecord found = repository.get(ids.get(number).asLong());
            nanos[number] = System.nanoTime() - begin;
            if (found == null || found.getEventId() != ids.get(number).asLong()) {
                throw new IllegalStateException("event " + ids.get(number) + " was not found");
            }
        }
        return Map.of("nanos", nanos);
    }

    private static Map<String, Object> pages(final Repository repository, final int page, final long events)
            throws IOException {
        final long begin = System.nanoTime();
        final long beginCpu = THREADS.getCurrentThreadCpuTime();
        long done = 0;
        for (long first = 0; done < events;) {
            final List<ProvenanceEventRecord> found = repository.page(first, page);
            if (found.isEmpty()) {
                break;
            }
            done += found.size();
            first = found.get(found.size() - 1).getEventId() + 1;
        }
        return Map.of("events", done, "seconds", (System.nanoTime() - begin) / 1e9,
            "cpuSeconds", (THREADS.getCurrentThreadCpuTime() - beginCpu) / 1e9);
    }
}
