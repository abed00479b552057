import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import org.apache.nifi.remote.Transaction;
import org.apache.nifi.remote.TransferDirection;
import org.apache.nifi.remote.client.SiteToSiteClient;
import org.apache.nifi.remote.protocol.SiteToSiteTransportProtocol;

/**
 * Delivers files with NiFi's own client, one transaction each, in their order, and each until it is completed.
 *
 * Usage: NifiSender URL PORT HTTP|RAW true|false SECONDS FILE...
 * The fourth argument says whether packets are compressed, the fifth how long may be tried in all.
 */
public final class NifiSender {

    private NifiSender() {
    }

    public static void main(final String[] args) throws Exception {
        final long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(Long.parseLong(args[4]));
        final List<Path> waiting = new ArrayList<>();
        for (final String file : Arrays.asList(args).subList(5, args.length)) {
            waiting.add(Path.of(file));
        }
        int tries = 0;
        int failures = 0;
        while (!waiting.isEmpty() && System.nanoTime() < deadline) {
            // A client of its own after each failure, as a task that is scheduled again has it.
            try (SiteToSiteClient client = client(args)) {
                while (!waiting.isEmpty()) {
                    tries++;
                    deliver(client, Files.readAllBytes(waiting.get(0)));
                    waiting.remove(0);
                }
            } catch (final Exception error) {
                failures++;
                Thread.sleep(100);
            }
        }
        System.out.println("left=" + waiting.size() + " tries=" + tries + " failures=" + failures);
        System.exit(waiting.isEmpty() ? 0 : 1);
    }

    private static SiteToSiteClient client(final String[] args) {
        return new SiteToSiteClient.Builder()
                .url(args[0])
                .portName(args[1])
                .transportProtocol(SiteToSiteTransportProtocol.valueOf(args[2]))
                .useCompression(Boolean.parseBoolean(args[3]))
                .timeout(10, TimeUnit.SECONDS)
                .nodePenalizationPeriod(100, TimeUnit.MILLISECONDS)
                .build();
    }

    private static void deliver(final SiteToSiteClient client, final byte[] content) throws Exception {
        final Transaction transaction = client.createTransaction(TransferDirection.SEND);
        if (transaction == null) {
            throw new IllegalStateException("nobody takes a transaction now");
        }
        try {
            final Map<String, String> attributes = new HashMap<>();
            attributes.put("reporting.task.transaction.id", UUID.randomUUID().toString());
            attributes.put("reporting.task.type", "SiteToSiteProvenanceReportingTask");
            attributes.put("mime.type", "application/json");
            transaction.send(content, attributes);
            transaction.confirm();
            transaction.complete();
        } catch (final Exception error) {
            transaction.error();
            throw error;
        }
    }
}
