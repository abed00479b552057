import java.io.InputStream;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.LongStream;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import org.apache.nifi.components.PropertyDescriptor;
import org.apache.nifi.components.PropertyValue;
import org.apache.nifi.components.state.StateManager;
import org.apache.nifi.components.state.StateMap;
import org.apache.nifi.controller.ConfigurationContext;
import org.apache.nifi.controller.status.ProcessGroupStatus;
import org.apache.nifi.controller.status.ProcessorStatus;
import org.apache.nifi.logging.ComponentLog;
import org.apache.nifi.provenance.ProvenanceEventRecord;
import org.apache.nifi.provenance.ProvenanceEventRepository;
import org.apache.nifi.provenance.ProvenanceEventType;
import org.apache.nifi.reporting.EventAccess;
import org.apache.nifi.reporting.ReportingContext;
import org.apache.nifi.reporting.ReportingInitializationContext;
import org.apache.nifi.reporting.ReportingTask;

/**
 * NiFi's SiteToSiteProvenanceReportingTask, triggered again and again until it has sent all events of a repository.
 *
 * The repository has so many events, each a function of its number. What NiFi gives the task else comes from proxies of
 * the interfaces of nifi-api. The name of the processor is another one at each trigger, as if a user changed it.
 *
 * Usage: NifiTask EVENTS SECONDS NAME=VALUE... [--tls AUTHORITY.pem CLIENT.p12]: properties of the task, and the
 * certificate that the server must have, with the key that is shown to it (password "changeit").
 */
public final class NifiTask {

    private static final String TASK = "org.apache.nifi.reporting.SiteToSiteProvenanceReportingTask";
    private static final String PROCESSOR = "5a1f6c1e-0195-1000-0000-000000000001";

    private final long events;
    private final Map<String, String> properties = new HashMap<>();
    private Map<String, String> state = new HashMap<>();
    private SSLContext tls;
    private int triggers;

    private NifiTask(final long events) {
        this.events = events;
    }

    public static void main(final String[] args) throws Exception {
        final NifiTask run = new NifiTask(Long.parseLong(args[0]));
        for (int at = 2; at < args.length; at++) {
            if (args[at].equals("--tls")) {
                run.tls = context(Path.of(args[at + 1]), Path.of(args[at + 2]));
                at += 2;
            } else {
                final String[] pair = args[at].split("=", 2);
                run.properties.put(pair[0], pair[1]);
            }
        }
        System.exit(run.sendAll(System.nanoTime() + TimeUnit.SECONDS.toNanos(Long.parseLong(args[1]))) ? 0 : 1);
    }

    private boolean sendAll(final long deadline) throws Exception {
        final ReportingTask task = (ReportingTask) Class.forName(TASK).getDeclaredConstructor().newInstance();
        task.initialize(made(ReportingInitializationContext.class, (proxy, method, args) -> switch (method.getName()) {
            case "getIdentifier" -> "5a1f6c1e-0195-1000-0000-00000000000a";
            case "getName" -> "provenance to custody";
            case "getLogger" -> made(ComponentLog.class, (log, each, texts) -> neutral(each));
            default -> neutral(method);
        }));
        for (final Method method : task.getClass().getMethods()) {
            // NiFi finds them by their annotations; releases differ in which of them make the client.
            if (List.of("setup", "onScheduled").contains(method.getName()) && method.getParameterCount() == 1) {
                method.invoke(task, context(ConfigurationContext.class));
            }
        }
        int failures = 0;
        while (sent() < events - 1 && System.nanoTime() < deadline) {
            triggers++;
            try {
                task.onTrigger((ReportingContext) context(ReportingContext.class));
            } catch (final RuntimeException error) {
                failures++;
                if (failures % 25 == 1) {
                    System.err.println(error);
                }
                Thread.sleep(50);
            }
        }
        System.out.println("left=" + (events - 1 - sent()) + " triggers=" + triggers + " failures=" + failures);
        return sent() == events - 1;
    }

    private long sent() {
        return Long.parseLong(state.getOrDefault("last_event_id", "-1"));
    }

    private Object context(final Class<?> type) {
        return made(type, (proxy, method, args) -> switch (method.getName()) {
            case "getProperty" -> property((PropertyDescriptor) args[0]);
            case "getEventAccess" -> made(EventAccess.class, this::ofEvents);
            case "getStateManager" -> made(StateManager.class, this::ofState);
            default -> neutral(method);
        });
    }

    private Object ofEvents(final Object proxy, final Method method, final Object[] args) {
        return switch (method.getName()) {
            case "getControllerStatus" -> flow();
            case "getProvenanceRepository" -> made(ProvenanceEventRepository.class, (it, each, none) ->
                    each.getName().equals("getMaxEventId") ? (Object) (events - 1) : neutral(each));
            case "getProvenanceEvents" -> LongStream
                    .range(Math.max(0, (long) args[0]), Math.min(events, (long) args[0] + (int) args[1]))
                    .mapToObj(NifiTask::event).toList();
            default -> neutral(method);
        };
    }

    @SuppressWarnings("unchecked")
    private Object ofState(final Object proxy, final Method method, final Object[] args) {
        if (method.getName().equals("setState")) {
            state = new HashMap<>((Map<String, String>) args[0]);
        }
        final Map<String, String> now = state;
        return !method.getName().equals("getState") ? neutral(method) : made(StateMap.class, (map, each, key) ->
                switch (each.getName()) {
                    case "toMap" -> now;
                    case "get" -> now.get((String) key[0]);
                    default -> neutral(each);
                });
    }

    private ProcessGroupStatus flow() {
        final ProcessorStatus processor = new ProcessorStatus();
        processor.setId(PROCESSOR);
        processor.setName("name " + triggers);
        processor.setGroupId("5a1f6c1e-0195-1000-0000-000000000000");
        final ProcessGroupStatus root = new ProcessGroupStatus();
        root.setId(processor.getGroupId());
        root.setName("NiFi Flow");
        root.setProcessorStatus(List.of(processor));
        return root;
    }

    private static ProvenanceEventRecord event(final long number) {
        return made(ProvenanceEventRecord.class, (proxy, method, args) -> switch (method.getName()) {
            case "getEventId" -> number;
            case "getEventType" -> number % 3 == 0 ? ProvenanceEventType.RECEIVE : ProvenanceEventType.SEND;
            case "getEventTime", "getFlowFileEntryDate", "getLineageStartDate" -> 1_772_409_600_000L + number;
            case "getEventDuration" -> -1L;
            case "getComponentId" -> PROCESSOR;
            case "getComponentType" -> "InvokeHTTP";
            case "getFlowFileUuid" -> String.format("%08x-0195-4000-8000-%012x", number % 7919, number);
            case "getFileSize" -> number % 1000;
            case "getTransitUri" -> "https://shop.example/orders/" + number;
            case "getUpdatedAttributes" -> Map.of("filename", "order-" + number + ".json", "region", "emea");
            case "getPreviousAttributes" -> Map.of("filename", "order-" + number + ".json");
            case "getParentUuids", "getChildUuids" -> List.of();
            default -> neutral(method);
        });
    }

    private PropertyValue property(final PropertyDescriptor descriptor) {
        final String text = properties.getOrDefault(descriptor.getName(), descriptor.getDefaultValue());
        final boolean isTls = descriptor.getName().equals("SSL Context Service") && tls != null;
        return made(PropertyValue.class, (proxy, method, args) -> switch (method.getName()) {
            case "getValue" -> isTls ? "tls" : text;
            case "isSet" -> isTls || text != null;
            case "asInteger" -> text == null ? null : Integer.valueOf(text);
            case "asBoolean" -> text == null ? null : Boolean.valueOf(text);
            case "asTimePeriod" -> text == null
                    ? null : ((TimeUnit) args[0]).convert(Long.parseLong(text.split(" ")[0]), TimeUnit.SECONDS);
            case "evaluateAttributeExpressions" -> proxy;
            // Whatever a release calls the method that gives the context.
            case "asControllerService" -> !isTls ? null : made((Class<?>) args[0], (service, each, none) ->
                    each.getReturnType() == SSLContext.class ? tls : neutral(each));
            default -> neutral(method);
        });
    }

    private static SSLContext context(final Path authority, final Path client) throws Exception {
        final char[] password = "changeit".toCharArray();
        final KeyStore own = KeyStore.getInstance("PKCS12");
        final KeyStore trusted = KeyStore.getInstance("PKCS12");
        trusted.load(null, null);
        try (InputStream key = Files.newInputStream(client); InputStream certificate = Files.newInputStream(authority)) {
            own.load(key, password);
            trusted.setCertificateEntry("authority", CertificateFactory.getInstance("X.509").generateCertificate(certificate));
        }
        final KeyManagerFactory keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        keys.init(own, password);
        final TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(trusted);
        final SSLContext context = SSLContext.getInstance("TLS");
        context.init(keys.getKeyManagers(), trust.getTrustManagers(), null);
        return context;
    }

    /** Returns what a method returns that has nothing to say. */
    private static Object neutral(final Method method) {
        final Class<?> type = method.getReturnType();
        if (type == boolean.class) {
            return false;
        }
        return type == long.class ? (Object) 0L : type == int.class ? (Object) 0 : null;
    }

    private static <T> T made(final Class<T> type, final InvocationHandler handler) {
        return type.cast(Proxy.newProxyInstance(NifiTask.class.getClassLoader(), new Class<?>[] {type},
                (proxy, method, args) -> switch (method.getName()) {
                    case "toString" -> type.getSimpleName();
                    case "hashCode" -> System.identityHashCode(proxy);
                    case "equals" -> proxy == args[0];
                    default -> handler.invoke(proxy, method, args);
                }));
    }
}
