package custody.benchmarks.append;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.nifi.provenance.ProvenanceEventRecord;

/**
 * Threads that register batches, each the next one as soon as the last is acknowledged, until time is up.
 *
 * <p>Of events of one batch that NiFi holds for equal (same type, component, FlowFile, relatives, URI and
 * relationship, as when a step was tried again) it stores one. So only the different ones of a batch count.
 */
final class Load {
    private final Repository repository;
    private final List<List<ProvenanceEventRecord>> batches;
    private final int[] storable;
    private final long budgetNanos;
    private final CountDownLatch start = new CountDownLatch(1);

    Load(final Repository repository, final List<List<ProvenanceEventRecord>> batches, final double seconds) {
        this.repository = repository;
        this.batches = batches;
        this.storable = batches.stream().mapToInt(batch -> new HashSet<>(batch).size()).toArray();
        this.budgetNanos = Math.round(seconds * 1e9);
    }

    /** What one thread did: when it began and ended, how many events, and how long each acknowledgement took. */
    private record Share(long beginNanos, long endNanos, long events, long[] waitNanos) { }

    Answer run(final int threads) throws Exception {
        final ExecutorService pool = Executors.newFixedThreadPool(threads);
        try {
            final List<Future<Share>> running = new ArrayList<>();
            for (int thread = 0; thread < threads; thread++) {
                final int first = thread * batches.size() / threads;
                running.add(pool.submit(() -> work(first)));
            }
            start.countDown();
            final List<Share> shares = new ArrayList<>();
            for (final Future<Share> share : running) {
                shares.add(share.get());
            }
            return answer(shares);
        } finally {
            pool.shutdownNow();
        }
    }

    private Share work(final int first) throws InterruptedException {
        start.await();
        long[] waits = new long[4096];
        int done = 0;
        long events = 0;
        final long begin = System.nanoTime();
        long now = begin;
        while (now - begin < budgetNanos) {
            final int number = (first + done) % storable.length;
            repository.register(batches.get(number));
            final long acknowledged = System.nanoTime();
            if (done == waits.length) {
                waits = Arrays.copyOf(waits, 2 * done);
            }
            waits[done++] = acknowledged - now;
            events += storable[number];
            now = acknowledged;
        }
        return new Share(begin, now, events, Arrays.copyOf(waits, done));
    }

    private static Answer answer(final List<Share> shares) {
        final long begin = shares.stream().mapToLong(Share::beginNanos).min().orElseThrow();
        final long end = shares.stream().mapToLong(Share::endNanos).max().orElseThrow();
        final long[] waits = shares.stream().flatMapToLong(share -> Arrays.stream(share.waitNanos())).sorted().toArray();
        return new Answer(
            shares.stream().mapToLong(Share::events).sum(),
            (end - begin) / 1e9,
            waits.length,
            waits[(int) ((waits.length - 1) * 0.5)] / 1e6,
            waits[(int) ((waits.length - 1) * 0.99)] / 1e6,
            null,
            null);
    }
}
