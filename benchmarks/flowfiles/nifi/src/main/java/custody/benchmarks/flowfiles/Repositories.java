package custody.benchmarks.flowfiles;

import java.io.Closeable;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.nifi.controller.FileSystemSwapManager;
import org.apache.nifi.controller.queue.ConnectionEventListener;
import org.apache.nifi.controller.queue.FlowFileQueue;
import org.apache.nifi.controller.queue.PollStrategy;
import org.apache.nifi.controller.queue.StandardFlowFileQueue;
import org.apache.nifi.controller.repository.FileSystemRepository;
import org.apache.nifi.controller.repository.FlowFileRecord;
import org.apache.nifi.controller.repository.FlowFileRepository;
import org.apache.nifi.controller.repository.RepositoryRecord;
import org.apache.nifi.controller.repository.StandardContentRepositoryContext;
import org.apache.nifi.controller.repository.StandardFlowFileRecord;
import org.apache.nifi.controller.repository.StandardRepositoryRecord;
import org.apache.nifi.controller.repository.SwapManagerInitializationContext;
import org.apache.nifi.controller.repository.WriteAheadFlowFileRepository;
import org.apache.nifi.controller.repository.claim.ContentClaim;
import org.apache.nifi.controller.repository.claim.ResourceClaimManager;
import org.apache.nifi.controller.repository.claim.StandardResourceClaimManager;
import org.apache.nifi.events.EventReporter;
import org.apache.nifi.provenance.IdentifierLookup;
import org.apache.nifi.provenance.ProvenanceEventRecord;
import org.apache.nifi.provenance.ProvenanceEventType;
import org.apache.nifi.provenance.StandardProvenanceEventRecord;
import org.apache.nifi.provenance.WriteAheadProvenanceRepository;
import org.apache.nifi.util.NiFiProperties;

/**
 * NiFi's repositories of FlowFiles, contents and events in one folder, with the settings that NiFi ships but for those
 * named, and its queues.
 */
final class Repositories implements Closeable {
    static final String COMPONENT = "benchmark";
    static final String COMPONENT_TYPE = "Benchmark";
    private static final String PROVENANCE = "nifi.provenance.repository.";
    private static final int SWAP_THRESHOLD = 20_000;

    final WriteAheadFlowFileRepository flowFiles;
    final FileSystemRepository contents;
    final FileSystemSwapManager swaps;
    final Map<String, StandardFlowFileQueue> queues = new HashMap<>();
    private final WriteAheadProvenanceRepository events;
    private final ResourceClaimManager claims = new StandardResourceClaimManager();

    /**
     * @param contentFolders over how many folders contents are spread
     * @param alwaysSync whether each of the three repositories syncs; NiFi's default is false
     */
    Repositories(final Path home, final int contentFolders, final boolean alwaysSync, final Collection<String> names)
            throws IOException {
        final String sync = Boolean.toString(alwaysSync);
        final Map<String, String> settings = new HashMap<>(Map.ofEntries(
            Map.entry("nifi.flowfile.repository.directory", home.resolve("flowfiles").toString()),
            Map.entry("nifi.flowfile.repository.always.sync", sync),
            // A checkpoint is made when it is asked for: otherwise some runs would have one and others none.
            Map.entry("nifi.flowfile.repository.checkpoint.interval", "1 day"),
            Map.entry("nifi.queue.swap.threshold", Integer.toString(SWAP_THRESHOLD)),
            Map.entry("nifi.content.repository.always.sync", sync),
            Map.entry("nifi.content.claim.max.appendable.size", "50 KB"),
            Map.entry("nifi.content.repository.archive.enabled", "true"),
            Map.entry("nifi.content.repository.archive.max.retention.period", "7 days"),
            Map.entry("nifi.content.repository.archive.max.usage.percentage", "90%"),
            Map.entry(PROVENANCE + "directory.default", home.resolve("events").toString()),
            Map.entry(PROVENANCE + "always.sync", sync),
            Map.entry(PROVENANCE + "max.storage.time", "30 days"),
            Map.entry(PROVENANCE + "max.storage.size", "10 GB"),
            Map.entry(PROVENANCE + "rollover.time", "10 mins"),
            Map.entry(PROVENANCE + "rollover.size", "100 MB"),
            Map.entry(PROVENANCE + "index.threads", "2"),
            Map.entry(PROVENANCE + "indexed.fields", "EventType, FlowFileUUID, Filename, ProcessorID, Relationship"),
            Map.entry(PROVENANCE + "index.shard.size", "500 MB")));
        for (int number = 0; number < contentFolders; number++) {
            final String name = number == 0 ? "default" : "content" + number;
            settings.put("nifi.content.repository.directory." + name, home.resolve("content" + number).toString());
        }
        final NiFiProperties properties = NiFiProperties.createBasicNiFiProperties(null, settings);
        flowFiles = new WriteAheadFlowFileRepository(properties);
        flowFiles.initialize(claims);
        contents = new FileSystemRepository(properties);
        contents.initialize(new StandardContentRepositoryContext(claims, EventReporter.NO_OP));
        swaps = new FileSystemSwapManager(properties);
        swaps.initialize(new SwapContext());
        events = new WriteAheadProvenanceRepository(properties);
        events.initialize(EventReporter.NO_OP, null, null, new Lookup());
        for (final String name : names) {
            // NiFi tells the queue of a swap file by the file's name, and knows UUIDs there only.
            final String id = UUID.nameUUIDFromBytes(name.getBytes(StandardCharsets.UTF_8)).toString();
            queues.put(name, new StandardFlowFileQueue(id, ConnectionEventListener.NOP_EVENT_LISTENER, flowFiles,
                events, claims, null, swaps, EventReporter.NO_OP, SWAP_THRESHOLD, "0 sec", 0L, "0 B"));
        }
    }

    /** Bring back what was stored, as a starting NiFi does: the log, and then the swap files that it knows of. */
    void load() throws IOException {
        long greatest = flowFiles.loadFlowFiles(() -> List.copyOf(queues.values()));
        for (final StandardFlowFileQueue queue : queues.values()) {
            final Long id = queue.recoverSwappedFlowFiles().getMaxFlowFileId();
            greatest = id == null ? greatest : Math.max(greatest, id);
        }
        flowFiles.updateMaxFlowFileIdentifier(greatest + 1);
    }

    /** A new FlowFile with a name, and the content of a claim or none. */
    FlowFileRecord create(final Map<String, String> attributes, final ContentClaim claim) {
        final long id = flowFiles.getNextFlowFileSequence();
        final long now = System.currentTimeMillis();
        final String uuid = UUID.randomUUID().toString();
        final StandardFlowFileRecord.Builder builder = new StandardFlowFileRecord.Builder().id(id).entryDate(now)
            .lineageStart(now, id).lastQueued(now, id).addAttributes(attributes)
            .addAttribute("uuid", uuid).addAttribute("filename", uuid).addAttribute("path", "./");
        return claim == null ? builder.build()
            : builder.contentClaim(claim).contentClaimOffset(claim.getOffset()).size(claim.getLength()).build();
    }

    /** Store a content, closed and, where that is asked for, synced. */
    ContentClaim write(final byte[] content, final int times) throws IOException {
        final ContentClaim claim = contents.create(false);
        try (OutputStream output = contents.write(claim)) {
            for (int number = 0; number < times; number++) {
                output.write(content);
            }
        }
        return claim;
    }

    long read(final ContentClaim claim, final byte[] buffer) throws IOException {
        long length = 0;
        try (InputStream input = contents.read(claim)) {
            for (int count = input.read(buffer); count >= 0; count = input.read(buffer)) {
                length += count;
            }
        }
        return length;
    }

    /** Commit new FlowFiles to a queue. */
    void enter(final List<FlowFileRecord> records, final String queue) throws IOException {
        final FlowFileQueue target = queues.get(queue);
        final List<RepositoryRecord> changes = new ArrayList<>(records.size());
        for (final FlowFileRecord record : records) {
            final StandardRepositoryRecord change = new StandardRepositoryRecord(null);
            change.setWorking(record, record.getAttributes(), true);
            change.setDestination(target);
            changes.add(change);
        }
        flowFiles.updateRepository(changes);
        target.putAll(records);
    }

    /** Take the first FlowFile of a queue and commit it to another one, with one more attribute or as it is. */
    FlowFileRecord move(final String from, final String to, final String attribute, final String value,
                        final ProvenanceEventType type, final String relationship) throws IOException {
        final FlowFileQueue source = queues.get(from);
        final FlowFileQueue target = queues.get(to);
        final FlowFileRecord before = source.poll(new HashSet<>(), PollStrategy.UNPENALIZED_FLOWFILES);
        if (before == null) {
            throw new IllegalStateException("queue " + from + " is empty: a FlowFile is lost");
        }
        final StandardFlowFileRecord.Builder builder = new StandardFlowFileRecord.Builder().fromFlowFile(before)
            .lastQueued(System.currentTimeMillis(), before.getId());
        final StandardRepositoryRecord change = new StandardRepositoryRecord(source, before);
        final FlowFileRecord after = attribute == null ? builder.build() : builder.addAttribute(attribute, value).build();
        if (attribute == null) {
            change.setWorking(after, false);
        } else {
            change.setWorking(after, attribute, value, false);
        }
        change.setDestination(target);
        register(after, before, type, null, relationship);
        flowFiles.updateRepository(List.of(change));
        source.acknowledge(before);
        target.put(after);
        return after;
    }

    /** Take up to so many FlowFiles of a queue out of the flow; return how many there were. */
    int drop(final String from, final int count) throws IOException {
        final FlowFileQueue source = queues.get(from);
        final List<FlowFileRecord> records =
            source.poll(count, new HashSet<>(), PollStrategy.UNPENALIZED_FLOWFILES);
        final List<RepositoryRecord> changes = new ArrayList<>(records.size());
        for (final FlowFileRecord record : records) {
            final StandardRepositoryRecord change = new StandardRepositoryRecord(source, record);
            change.markForDelete();
            changes.add(change);
        }
        flowFiles.updateRepository(changes);
        source.acknowledge(records);
        return records.size();
    }

    /** Store the event of a commit, as a process session does before it updates the FlowFile repository. */
    void register(final FlowFileRecord after, final FlowFileRecord before, final ProvenanceEventType type,
                  final String transitUri, final String relationship) {
        final Map<String, String> previous = before == null ? Map.of() : before.getAttributes();
        final Map<String, String> updated = new HashMap<>(after.getAttributes());
        updated.entrySet().removeIf(entry -> entry.getValue().equals(previous.get(entry.getKey())));
        final ContentClaim claim = after.getContentClaim();
        final StandardProvenanceEventRecord.Builder builder = new StandardProvenanceEventRecord.Builder();
        builder.setEventType(type).setEventTime(System.currentTimeMillis()).setComponentId(COMPONENT)
            .setComponentType(COMPONENT_TYPE).setFlowFileUUID(after.getAttribute("uuid"))
            .setFlowFileEntryDate(after.getEntryDate()).setLineageStartDate(after.getLineageStartDate())
            .setAttributes(previous, updated).setTransitUri(transitUri).setRelationship(relationship)
            .setCurrentContentClaim(claim.getResourceClaim().getContainer(), claim.getResourceClaim().getSection(),
                claim.getResourceClaim().getId(), claim.getOffset(), after.getSize());
        events.registerEvents(List.<ProvenanceEventRecord>of(builder.build()));
    }

    @Override
    public void close() throws IOException {
        events.close();
        contents.shutdown();
        flowFiles.close();
    }

    private static final class Lookup implements IdentifierLookup {
        @Override
        public List<String> getComponentIdentifiers() {
            return List.of(COMPONENT);
        }

        @Override
        public List<String> getComponentTypes() {
            return List.of(COMPONENT_TYPE);
        }

        @Override
        public List<String> getQueueIdentifiers() {
            return List.of();
        }
    }

    private final class SwapContext implements SwapManagerInitializationContext {
        @Override
        public FlowFileRepository getFlowFileRepository() {
            return flowFiles;
        }

        @Override
        public ResourceClaimManager getResourceClaimManager() {
            return claims;
        }

        @Override
        public EventReporter getEventReporter() {
            return EventReporter.NO_OP;
        }
    }
}
