package custody.benchmarks.flowfiles;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.nifi.controller.queue.StandardFlowFileQueue;
import org.apache.nifi.controller.repository.FlowFileRecord;
import org.apache.nifi.controller.repository.claim.ContentClaim;
import org.apache.nifi.provenance.ProvenanceEventType;

/**
 * Measures NiFi's repositories on demand.
 *
 * <p>Each line on stdin is an order: what to measure, the folder, and its numbers; each gets one line on stdout. The
 * process lives through all measurements, so that its code is compiled as in a NiFi that has run for a while. It ends
 * with its stdin.
 */
public final class FlowFileHarness {
    private static final int PIECE_BYTES = 256 << 10;
    private static final int SWAP_FILE_FLOWFILES = 10_000;

    private FlowFileHarness() { }

    public static void main(final String[] arguments) throws Exception {
        final PrintStream answers = System.out;
        System.setOut(System.err);
        final ObjectMapper json = new ObjectMapper();
        final BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            answers.println(json.writeValueAsString(measure(json.readTree(line))));
            answers.flush();
        }
        System.exit(0); // NiFi leaves threads behind that are no daemons
    }

    private static Map<String, Object> measure(final JsonNode order) throws Exception {
        switch (order.get("measure").asText()) {
            case "commits": return commits(order);
            case "contents": return contents(order);
            case "swap": return swap(order);
            case "fill": return fill(order);
            case "open": return open(order);
            default: return drain(order);
        }
    }

    private static Repositories repositories(final JsonNode order, final int folders, final List<String> queues)
            throws IOException {
        return new Repositories(Path.of(order.get("folder").asText()), folders, order.get("sync").asBoolean(), queues);
    }

    private static Map<String, String> attributes(final JsonNode order) {
        final Map<String, String> attributes = new HashMap<>();
        order.get("attributes").fields().forEachRemaining(field -> attributes.put(field.getKey(), field.getValue().asText()));
        return attributes;
    }

    /** Run the work of so many threads, each with its number; return the seconds from the first start to the last end. */
    private static double seconds(final int threads, final Work work) throws Exception {
        final ExecutorService pool = Executors.newFixedThreadPool(threads);
        try {
            final List<Callable<Void>> calls = new ArrayList<>();
            for (int thread = 0; thread < threads; thread++) {
                final int number = thread;
                calls.add(() -> {
                    work.run(number);
                    return null;
                });
            }
            final long begin = System.nanoTime();
            for (final Future<Void> done : pool.invokeAll(calls)) {
                done.get();
            }
            return (System.nanoTime() - begin) / 1e9;
        } finally {
            pool.shutdown();
        }
    }

    private static Map<String, Object> commits(final JsonNode order) throws Exception {
        final int threads = order.get("threads").asInt();
        final Map<String, String> attributes = attributes(order);
        final byte[] content = new byte[order.get("bytes").asInt()];
        final List<String> names = new ArrayList<>();
        for (int thread = 0; thread < threads; thread++) {
            names.addAll(List.of("a" + thread, "b" + thread, "c" + thread));
        }
        final long[] done = new long[threads];
        try (Repositories repositories = repositories(order, 1, names)) {
            repositories.load();
            final long end = System.nanoTime() + (long) (order.get("seconds").asDouble() * 1e9);
            final double taken = seconds(threads, number -> {
                while (System.nanoTime() < end) {
                    final ContentClaim claim = repositories.write(content, 1);
                    final FlowFileRecord record = repositories.create(attributes, claim);
                    repositories.register(record, null, ProvenanceEventType.RECEIVE, "http://localhost/benchmark", null);
                    repositories.enter(List.of(record), "a" + number);
                    repositories.move("a" + number, "b" + number, "checked", "yes",
                        ProvenanceEventType.ATTRIBUTES_MODIFIED, null);
                    repositories.move("b" + number, "c" + number, null, null, ProvenanceEventType.ROUTE, "success");
                    done[number] += 3;
                }
            });
            long waiting = 0;
            for (int thread = 0; thread < threads; thread++) {
                waiting += repositories.queues.get("c" + thread).size().getObjectCount();
            }
            return Map.of("commits", java.util.Arrays.stream(done).sum(), "seconds", taken, "waiting", waiting);
        }
    }

    private static Map<String, Object> contents(final JsonNode order) throws Exception {
        final int threads = order.get("threads").asInt();
        final int count = order.get("contents").asInt();
        final int times = order.get("bytes").asInt() / PIECE_BYTES;
        final byte[] piece = new byte[PIECE_BYTES];
        new java.util.Random(7).nextBytes(piece);
        final List<List<ContentClaim>> claims = new ArrayList<>();
        for (int thread = 0; thread < threads; thread++) {
            claims.add(new ArrayList<>());
        }
        try (Repositories repositories = repositories(order, order.get("folders").asInt(), List.of())) {
            final double writing = seconds(threads, number -> {
                for (int content = 0; content < count; content++) {
                    claims.get(number).add(repositories.write(piece, times));
                }
            });
            final long[] lengths = new long[threads];
            final double reading = seconds(threads, number -> {
                final byte[] buffer = new byte[PIECE_BYTES];
                for (final ContentClaim claim : claims.get(number)) {
                    lengths[number] += repositories.read(claim, buffer);
                }
            });
            return Map.of("bytes", java.util.Arrays.stream(lengths).sum(), "seconds", writing, "read_seconds", reading);
        }
    }

    private static Map<String, Object> swap(final JsonNode order) throws Exception {
        final int files = order.get("files").asInt();
        final Map<String, String> attributes = attributes(order);
        try (Repositories repositories = repositories(order, 1, List.of("q"))) {
            repositories.load();
            final StandardFlowFileQueue queue = repositories.queues.get("q");
            final List<FlowFileRecord> records = new ArrayList<>();
            for (int number = 0; number < SWAP_FILE_FLOWFILES; number++) {
                records.add(repositories.create(attributes, null));
            }
            final List<String> locations = new ArrayList<>();
            final long begin = System.nanoTime();
            for (int file = 0; file < files; file++) {
                locations.add(repositories.swaps.swapOut(records, queue, null));
            }
            final long written = System.nanoTime();
            long count = 0;
            for (final String location : locations) {
                count += repositories.swaps.swapIn(location, queue).getFlowFiles().size();
            }
            return Map.of("flowfiles", count, "seconds", (written - begin) / 1e9,
                "in_seconds", (System.nanoTime() - written) / 1e9);
        }
    }

    private static Map<String, Object> fill(final JsonNode order) throws Exception {
        final int count = order.get("flowfiles").asInt();
        final int batch = order.get("batch").asInt();
        final Map<String, String> attributes = attributes(order);
        try (Repositories repositories = repositories(order, 1, List.of("q"))) {
            repositories.load();
            final long begin = System.nanoTime();
            for (int done = 0; done < count; done += batch) {
                final List<FlowFileRecord> records = new ArrayList<>(batch);
                for (int number = 0; number < batch; number++) {
                    records.add(repositories.create(attributes, null));
                }
                repositories.enter(records, "q");
            }
            return Map.of("seconds", (System.nanoTime() - begin) / 1e9);
        }
    }

    /** Open what is there, until the queue is known; then make a checkpoint if that is asked for. */
    private static Map<String, Object> open(final JsonNode order) throws Exception {
        final long begin = System.nanoTime();
        try (Repositories repositories = repositories(order, 1, List.of("q"))) {
            repositories.load();
            final long waiting = repositories.queues.get("q").size().getObjectCount();
            final double taken = (System.nanoTime() - begin) / 1e9;
            if (order.get("checkpoint").asBoolean()) {
                repositories.flowFiles.checkpoint();
            }
            final Map<String, Object> answer = new TreeMap<>();
            answer.put("seconds", taken);
            answer.put("waiting", waiting);
            return answer;
        }
    }

    private static Map<String, Object> drain(final JsonNode order) throws Exception {
        final int count = order.get("flowfiles").asInt();
        try (Repositories repositories = repositories(order, 1, List.of("q"))) {
            repositories.load();
            final long begin = System.nanoTime();
            int done = 0;
            while (done < count) {
                final int dropped = repositories.drop("q", order.get("batch").asInt());
                if (dropped == 0) {
                    throw new IllegalStateException("the queue is empty after " + done + " FlowFiles");
                }
                done += dropped;
            }
            return Map.of("flowfiles", done, "seconds", (System.nanoTime() - begin) / 1e9);
        }
    }

    /** What one thread does. */
    private interface Work {
        void run(int thread) throws Exception;
    }
}
