package custody.benchmarks.append;

import java.io.Closeable;
import java.io.IOException;
import java.lang.reflect.Field;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Stream;
import org.apache.nifi.events.EventReporter;
import org.apache.nifi.provenance.IdentifierLookup;
import org.apache.nifi.provenance.ProvenanceEventRecord;
import org.apache.nifi.provenance.WriteAheadProvenanceRepository;
import org.apache.nifi.reporting.Severity;
import org.apache.nifi.util.NiFiProperties;

/** NiFi's write-ahead provenance repository with the settings that NiFi 1.28.1 ships, in one folder, but for those named. */
final class Repository implements Closeable {
    static final String PREFIX = "nifi.provenance.repository.";
    private static final int READ_EVENTS = 5_000;
    private static final long COMPRESSION_NANOS_MAX = 120_000_000_000L;

    private final Path folder;
    private final WriteAheadProvenanceRepository repository;
    private final AtomicInteger complaints = new AtomicInteger();
    private final AtomicReference<String> lastComplaint = new AtomicReference<>();

    Repository(final Path folder, final boolean alwaysSync, final IdentifierLookup lookup) throws IOException {
        this(folder, alwaysSync, lookup, "100 MB", "10 GB");
    }

    Repository(final Path folder, final boolean alwaysSync, final IdentifierLookup lookup, final String rolloverSize,
               final String storageSize) throws IOException {
        this(folder, alwaysSync, lookup, Map.of(
            PREFIX + "rollover.size", rolloverSize,
            PREFIX + "max.storage.size", storageSize));
    }

    /** With settings, by their whole names, that are others than those that NiFi ships. */
    Repository(final Path folder, final boolean alwaysSync, final IdentifierLookup lookup,
               final Map<String, String> others) throws IOException {
        this.folder = folder;
        final Map<String, String> settings = new HashMap<>(Map.ofEntries(
            Map.entry(PREFIX + "directory.default", folder.toString()),
            Map.entry(PREFIX + "always.sync", Boolean.toString(alwaysSync)),
            Map.entry(PREFIX + "max.storage.time", "30 days"),
            Map.entry(PREFIX + "max.storage.size", "10 GB"),
            Map.entry(PREFIX + "rollover.time", "10 mins"),
            Map.entry(PREFIX + "rollover.size", "100 MB"),
            Map.entry(PREFIX + "query.threads", "2"),
            Map.entry(PREFIX + "index.threads", "2"),
            Map.entry(PREFIX + "compress.on.rollover", "true"),
            Map.entry(PREFIX + "indexed.fields", "EventType, FlowFileUUID, Filename, ProcessorID, Relationship"),
            Map.entry(PREFIX + "indexed.attributes", ""),
            Map.entry(PREFIX + "index.shard.size", "500 MB"),
            Map.entry(PREFIX + "max.attribute.length", "65536"),
            Map.entry(PREFIX + "concurrent.merge.threads", "2")));
        settings.putAll(others);
        repository = new WriteAheadProvenanceRepository(NiFiProperties.createBasicNiFiProperties(null, settings));
        final EventReporter reporter = new EventReporter() {
            @Override
            public void reportEvent(final Severity severity, final String category, final String message) {
                if (severity != Severity.INFO) {
                    complaints.incrementAndGet();
                    lastComplaint.set(severity + " " + category + ": " + message);
                }
            }
        };
        repository.initialize(reporter, null, null, lookup);
    }

    /** Store events as a process session does at its commit: all in one call. */
    void register(final List<ProvenanceEventRecord> batch) {
        repository.registerEvents(batch);
    }

    /**
     * Wait until the files that were rolled over are compressed.
     *
     * <p>Closing does not end a compression. A repository that this process opens on the same folder knows nothing of
     * it and would meet a file without its table of contents.
     */
    void awaitCompression() throws IOException, InterruptedException {
        final long deadline = System.nanoTime() + COMPRESSION_NANOS_MAX;
        while (isCompressing()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("the compression of " + folder + " did not end");
            }
            Thread.sleep(20);
        }
    }

    private boolean isCompressing() throws IOException {
        try (Stream<Path> events = Files.list(folder); Stream<Path> tables = Files.list(folder.resolve("toc"))) {
            final long plain = events.filter(path -> path.toString().endsWith(".prov")).count();
            return plain > 1 || tables.anyMatch(path -> path.toString().endsWith(".tmp"));
        }
    }

    /** How many events wait for NiFi's index threads; it tells nobody, so its queue is looked at. */
    int waitingForIndex() throws ReflectiveOperationException {
        final Field index = WriteAheadProvenanceRepository.class.getDeclaredField("eventIndex");
        index.setAccessible(true);
        final Object found = index.get(repository);
        final Field queue = found.getClass().getDeclaredField("documentQueue");
        queue.setAccessible(true);
        return ((Collection<?>) queue.get(found)).size();
    }

    /** The event with an id; null when there is none. */
    ProvenanceEventRecord get(final long eventId) throws IOException {
        return repository.getEvent(eventId);
    }

    /** Up to so many events from an id on. */
    List<ProvenanceEventRecord> page(final long firstEventId, final int events) throws IOException {
        return repository.getEvents(firstEventId, events);
    }

    /** The greatest id; -1 when nothing is stored. */
    long lastEventId() {
        final Long last = repository.getMaxEventId();
        return last == null ? -1 : last;
    }

    /** Read all events back and return how many different ones there are. */
    long count() throws IOException {
        final Long last = repository.getMaxEventId();
        final Set<Long> ids = new HashSet<>();
        for (long first = 0; last != null && first <= last; first += READ_EVENTS) {
            for (final ProvenanceEventRecord event : repository.getEvents(first, READ_EVENTS)) {
                ids.add(event.getEventId());
            }
        }
        return ids.size();
    }

    /** What NiFi would have shown as warnings on its bulletin board; null when there were none. */
    String complaints() {
        return complaints.get() == 0 ? null : complaints.get() + " warnings, the last: " + lastComplaint.get();
    }

    @Override
    public void close() {
        repository.close();
    }
}
