package custody.benchmarks.append;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.function.Consumer;
import java.util.function.Function;
import org.apache.nifi.provenance.IdentifierLookup;
import org.apache.nifi.provenance.ProvenanceEventRecord;
import org.apache.nifi.provenance.ProvenanceEventType;
import org.apache.nifi.provenance.StandardProvenanceEventRecord;

/**
 * The events of the benchmark, as NiFi has them in memory before it registers them.
 *
 * <p>Read once, outside the clock. UPLOAD came with NiFi 2: it is a SEND here. What NiFi 1.28 has no field for
 * (component name, process group, content addresses, the event's origin) is left out.
 */
final class EventFile {
    private final List<ProvenanceEventRecord> events = new ArrayList<>();

    EventFile(final Path path) throws IOException {
        for (final JsonNode node : new ObjectMapper().readTree(path.toFile())) {
            events.add(record(node));
        }
    }

    /** The first events of the file, cut into batches of one size. */
    List<List<ProvenanceEventRecord>> batches(final int batchEvents, final int count) {
        final List<List<ProvenanceEventRecord>> batches = new ArrayList<>(count);
        for (int number = 0; number < count; number++) {
            batches.add(List.copyOf(events.subList(number * batchEvents, (number + 1) * batchEvents)));
        }
        return batches;
    }

    /** What a running NiFi knows of its components: it stores their ids and types as numbers. */
    IdentifierLookup lookup() {
        final List<String> ids = distinct(ProvenanceEventRecord::getComponentId);
        final List<String> types = distinct(ProvenanceEventRecord::getComponentType);
        return new IdentifierLookup() {
            @Override
            public List<String> getComponentIdentifiers() {
                return ids;
            }

            @Override
            public List<String> getComponentTypes() {
                return types;
            }

            @Override
            public List<String> getQueueIdentifiers() {
                return List.of();
            }
        };
    }

    private List<String> distinct(final Function<ProvenanceEventRecord, String> field) {
        return List.copyOf(new TreeSet<>(events.stream().map(field).toList()));
    }

    /** One event of custody's JSON as NiFi's record. */
    static ProvenanceEventRecord record(final JsonNode node) {
        final StandardProvenanceEventRecord.Builder builder = new StandardProvenanceEventRecord.Builder();
        builder.setEventType(type(node.get("event_type").asText()))
            .setEventTime(node.get("event_time").asLong())
            .setComponentId(node.get("component_id").asText())
            .setComponentType(node.get("component_type").asText())
            .setFlowFileUUID(node.get("flowfile_uuid").asText())
            .setEventDuration(node.path("event_duration").asLong(-1))
            .setFlowFileEntryDate(node.path("flowfile_entry_date").asLong())
            .setLineageStartDate(node.path("lineage_start_date").asLong())
            .setCurrentContentClaim(null, null, null, null, node.get("file_size").asLong())
            .setAttributes(attributes(node.path("previous_attributes")), attributes(node.path("updated_attributes")));
        if (node.has("previous_file_size")) {
            builder.setPreviousContentClaim(null, null, null, null, node.get("previous_file_size").asLong());
        }
        text(node, "transit_uri", builder::setTransitUri);
        text(node, "source_system_flowfile_identifier", builder::setSourceSystemFlowFileIdentifier);
        text(node, "alternate_identifier_uri", builder::setAlternateIdentifierUri);
        text(node, "details", builder::setDetails);
        text(node, "relationship", value -> builder.setRelationship(value));
        node.path("parent_uuids").forEach(uuid -> builder.addParentUuid(uuid.asText()));
        node.path("child_uuids").forEach(uuid -> builder.addChildUuid(uuid.asText()));
        if (builder.getEventType() == ProvenanceEventType.ROUTE && !node.has("relationship")) {
            builder.setRelationship("unknown"); // NiFi refuses a ROUTE without one; Site-to-Site JSON never has it
        }
        return builder.build();
    }

    private static ProvenanceEventType type(final String name) {
        return name.equals("UPLOAD") ? ProvenanceEventType.SEND : ProvenanceEventType.valueOf(name);
    }

    private static void text(final JsonNode node, final String field, final Consumer<String> setter) {
        if (node.hasNonNull(field)) {
            setter.accept(node.get(field).asText());
        }
    }

    private static Map<String, String> attributes(final JsonNode node) {
        final Map<String, String> attributes = new HashMap<>();
        node.fields().forEachRemaining(entry ->
            attributes.put(entry.getKey(), entry.getValue().isNull() ? null : entry.getValue().asText()));
        return attributes;
    }
}
