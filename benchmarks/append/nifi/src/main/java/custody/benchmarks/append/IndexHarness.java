package custody.benchmarks.append;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.stream.Stream;
import org.apache.lucene.document.LongPoint;
import org.apache.lucene.index.DirectoryReader;
import org.apache.lucene.index.IndexReader;
import org.apache.lucene.index.MultiReader;
import org.apache.lucene.index.Term;
import org.apache.lucene.search.BooleanClause.Occur;
import org.apache.lucene.search.BooleanQuery;
import org.apache.lucene.search.IndexSearcher;
import org.apache.lucene.search.MatchAllDocsQuery;
import org.apache.lucene.search.Query;
import org.apache.lucene.search.ScoreDoc;
import org.apache.lucene.search.Sort;
import org.apache.lucene.search.SortField;
import org.apache.lucene.search.TermQuery;
import org.apache.lucene.search.WildcardQuery;
import org.apache.lucene.store.FSDirectory;
import org.apache.nifi.provenance.ProvenanceEventRecord;
import org.apache.nifi.provenance.SearchableFields;
import org.apache.nifi.provenance.search.SearchableField;

/**
 * Has NiFi's repository index events, and asks the Lucene index that it made.
 *
 * <p>Arguments: the file of some events that name all components, the repository's folder, the attributes to index.
 * Orders come on stdin, one a line, and get one line each: {@code {"index": N}}, which N lines with an event each
 * follow; {@code {"open": true}}, after which nothing more is indexed; {@code {"ask": {...}, "warm": W, "timed": T}}.
 *
 * <p>The index is asked as NiFi asks it, by the same kinds of query in the same order, but directly: NiFi's own search
 * reads every event that it finds as well, which is another matter.
 */
public final class IndexHarness {
    private static final int BATCH_EVENTS = 1_000;
    private static final String THREADS = "Index Provenance Events";
    private static final String FIELDS =
        "EventType, FlowFileUUID, Filename, ProcessorID, Relationship, TransitURI, SourceQueueIdentifier";
    private static final OperatingSystemMXBean PROCESS =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, SearchableField> STANDARD = Map.of(
        "event_type", SearchableFields.EventType,
        "flowfile_uuid", SearchableFields.FlowFileUUID,
        "component_id", SearchableFields.ComponentID,
        "filename", SearchableFields.Filename);
    private static final String ATTRIBUTE = "attribute.";
    private static final Sort NEWEST_FIRST = new Sort(new SortField(null, SortField.Type.DOC, true));

    private final Path folder;
    private final BufferedReader lines;
    private final Repository repository;
    private IndexSearcher searcher;

    private IndexHarness(final Path folder, final Repository repository, final BufferedReader lines) {
        this.folder = folder;
        this.repository = repository;
        this.lines = lines;
    }

    public static void main(final String[] arguments) throws Exception {
        final PrintStream answers = System.out;
        System.setOut(System.err);
        final EventFile names = new EventFile(Path.of(arguments[0]));
        final Path folder = Path.of(arguments[1]);
        // Events of any age stay, so that times need not be moved.
        final Repository repository = new Repository(folder, false, names.lookup(), Map.of(
            Repository.PREFIX + "max.storage.time", "36500 days",
            Repository.PREFIX + "max.storage.size", "1000 GB",
            Repository.PREFIX + "indexed.fields", FIELDS,
            Repository.PREFIX + "indexed.attributes", arguments[2]));
        final IndexHarness harness = new IndexHarness(
            folder, repository, new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8)));
        for (String line = harness.lines.readLine(); line != null; line = harness.lines.readLine()) {
            answers.println(JSON.writeValueAsString(harness.answer(JSON.readTree(line))));
            answers.flush();
        }
        System.exit(0); // NiFi leaves threads behind that are no daemons
    }

    private Map<String, Object> answer(final JsonNode order) throws Exception {
        if (order.has("index")) {
            return index(order.get("index").asInt());
        }
        return order.has("ask") ? ask(order.get("ask"), order.get("warm").asInt(), order.get("timed").asInt()) : open();
    }

    /** Register events and wait until NiFi has indexed them; what parses them has no clock. */
    private Map<String, Object> index(final int events) throws Exception {
        final List<List<ProvenanceEventRecord>> batches = new ArrayList<>();
        Set<ProvenanceEventRecord> batch = new LinkedHashSet<>();
        for (int number = 0; number < events; number++) {
            final ProvenanceEventRecord event = EventFile.record(JSON.readTree(lines.readLine()));
            // Of equal events in one batch NiFi keeps one.
            if (batch.size() == BATCH_EVENTS || batch.contains(event)) {
                batches.add(List.copyOf(batch));
                batch = new LinkedHashSet<>();
            }
            batch.add(event);
        }
        batches.add(List.copyOf(batch));
        final long begin = System.nanoTime();
        final double beginCpu = LogHarness.cpuSeconds(THREADS);
        final long beginAll = PROCESS.getProcessCpuTime();
        for (final List<ProvenanceEventRecord> found : batches) {
            repository.register(found);
        }
        while (repository.waitingForIndex() > 0) {
            Thread.sleep(1);
        }
        final long end = System.nanoTime();
        final long all = PROCESS.getProcessCpuTime() - beginAll;
        Thread.sleep(50); // the last few events were taken from the queue and are being indexed
        return Map.of("seconds", (end - begin) / 1e9, "indexCpuSeconds", LogHarness.cpuSeconds(THREADS) - beginCpu,
            "processCpuSeconds", all / 1e9, "stored", repository.lastEventId() + 1);
    }

    private Map<String, Object> open() throws IOException {
        repository.close();
        final List<Path> folders;
        try (Stream<Path> found = Files.list(folder)) {
            folders = found.filter(path -> path.getFileName().toString().contains("index-")).sorted().toList();
        }
        final IndexReader[] readers = new IndexReader[folders.size()];
        long size = 0;
        for (int number = 0; number < readers.length; number++) {
            readers[number] = DirectoryReader.open(FSDirectory.open(folders.get(number)));
            try (Stream<Path> files = Files.list(folders.get(number))) {
                size += files.mapToLong(path -> path.toFile().length()).sum();
            }
        }
        searcher = new IndexSearcher(new MultiReader(readers));
        searcher.setQueryCache(null); // it keeps answers, and the same question is asked again and again here
        return Map.of("documents", searcher.getIndexReader().numDocs(), "bytes", size, "indexes", readers.length);
    }

    private Map<String, Object> ask(final JsonNode question, final int warm, final int timed) throws IOException {
        final Query query = query(question);
        final boolean isTotal = question.get("wanted").asText().equals("total");
        final int limit = question.get("limit").asInt();
        final long[] nanos = new long[timed];
        final Map<String, Object> answer = new HashMap<>();
        for (int number = -warm; number < timed; number++) {
            final long begin = System.nanoTime();
            final Object found = isTotal ? (Object) searcher.count(query) : newest(query, limit);
            if (number >= 0) {
                nanos[number] = System.nanoTime() - begin;
            }
            answer.put(isTotal ? "count" : "ids", found);
        }
        answer.put("nanos", nanos);
        return answer;
    }

    private long[] newest(final Query query, final int limit) throws IOException {
        final ScoreDoc[] hits = searcher.search(query, limit, NEWEST_FIRST).scoreDocs;
        final String id = SearchableFields.Identifier.getSearchableFieldName();
        final long[] ids = new long[hits.length];
        for (int number = 0; number < hits.length; number++) {
            ids[number] = searcher.doc(hits[number].doc).getField(id).numericValue().longValue();
        }
        return ids;
    }

    private static Query query(final JsonNode question) {
        final BooleanQuery.Builder all = new BooleanQuery.Builder();
        boolean isEmpty = true;
        for (final JsonNode pair : question.get("terms")) {
            all.add(new TermQuery(term(pair, "")), Occur.MUST);
            isEmpty = false;
        }
        for (final JsonNode pair : question.get("without")) {
            all.add(new TermQuery(term(pair, "")), Occur.MUST_NOT);
        }
        if (question.get("any_of").size() > 0) {
            final BooleanQuery.Builder any = new BooleanQuery.Builder();
            question.get("any_of").forEach(pair -> any.add(new TermQuery(term(pair, "")), Occur.SHOULD));
            all.add(any.build(), Occur.MUST);
            isEmpty = false;
        }
        if (!question.get("prefix").isNull()) {
            all.add(new WildcardQuery(term(question.get("prefix"), "*")), Occur.MUST);
            isEmpty = false;
        }
        if (!question.get("suffix").isNull()) {
            final Term suffix = term(question.get("suffix"), "");
            all.add(new WildcardQuery(new Term(suffix.field(), "*" + suffix.text())), Occur.MUST);
            isEmpty = false;
        }
        if (!question.get("times").isNull()) {
            final JsonNode times = question.get("times");
            all.add(LongPoint.newRangeQuery(SearchableFields.EventTime.getSearchableFieldName(),
                times.get(0).asLong(), times.get(1).asLong()), Occur.MUST);
            isEmpty = false;
        }
        return isEmpty ? new MatchAllDocsQuery() : all.build();
    }

    private static Term term(final JsonNode pair, final String after) {
        final String name = pair.get(0).asText();
        final SearchableField field = name.startsWith(ATTRIBUTE)
            ? SearchableFields.newSearchableAttribute(name.substring(ATTRIBUTE.length())) : STANDARD.get(name);
        return new Term(field.getSearchableFieldName(), pair.get(1).asText().toLowerCase(Locale.ROOT) + after);
    }
}
