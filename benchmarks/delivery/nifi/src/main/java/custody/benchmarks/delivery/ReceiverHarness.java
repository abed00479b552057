package custody.benchmarks.delivery;

import java.io.File;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collections;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.UUID;
import org.apache.nifi.admin.service.AuditService;
import org.apache.nifi.authorization.AuthorizationRequest;
import org.apache.nifi.authorization.AuthorizationResult;
import org.apache.nifi.authorization.Authorizer;
import org.apache.nifi.authorization.AuthorizerConfigurationContext;
import org.apache.nifi.authorization.AuthorizerInitializationContext;
import org.apache.nifi.bundle.Bundle;
import org.apache.nifi.bundle.BundleCoordinate;
import org.apache.nifi.bundle.BundleDetails;
import org.apache.nifi.connectable.Connection;
import org.apache.nifi.connectable.Funnel;
import org.apache.nifi.connectable.Port;
import org.apache.nifi.controller.FlowController;
import org.apache.nifi.controller.flow.FlowManager;
import org.apache.nifi.controller.repository.metrics.RingBufferEventRepository;
import org.apache.nifi.controller.status.history.VolatileComponentStatusRepository;
import org.apache.nifi.encrypt.PropertyEncryptorBuilder;
import org.apache.nifi.events.VolatileBulletinRepository;
import org.apache.nifi.groups.ProcessGroup;
import org.apache.nifi.nar.StandardExtensionDiscoveringManager;
import org.apache.nifi.registry.VariableRegistry;
import org.apache.nifi.util.NiFiProperties;

/**
 * The receiving side of a NiFi: its flow controller and repositories, with an input port that takes packets by RAW
 * Site-to-Site and a queue behind it that never is full.
 *
 * Usage: ReceiverHarness FOLDER SYNC TASKS, where SYNC says whether its repositories sync what they acknowledge, and
 * TASKS how many packets the port takes at once. Prints its port and the id of the input port; when standard input
 * ends, the packets and bytes in the queue.
 */
public final class ReceiverHarness {

    private static final String ALGORITHM = "NIFI_PBKDF2_AES_GCM_256";

    private ReceiverHarness() {
    }

    public static void main(final String[] args) throws Exception {
        final Path folder = Path.of(args[0]);
        final int socket = freePort();
        final NiFiProperties properties = properties(folder, Boolean.parseBoolean(args[1]), socket);
        final StandardExtensionDiscoveringManager extensions = new StandardExtensionDiscoveringManager();
        extensions.discoverExtensions(systemBundle(folder), Collections.emptySet());
        final FlowController controller = FlowController.createStandaloneInstance(
                new RingBufferEventRepository(1), properties, new Everybody(), (AuditService) null,
                new PropertyEncryptorBuilder("a key that encrypts nothing").setAlgorithm(ALGORITHM).build(),
                new VolatileBulletinRepository(), VariableRegistry.EMPTY_REGISTRY, extensions,
                new VolatileComponentStatusRepository(properties));
        controller.initializeFlow();
        final Connection queue = connect(controller.getFlowManager(), Integer.parseInt(args[2]));
        controller.onFlowInitialized(true);
        final ProcessGroup root = controller.getFlowManager().getRootGroup();
        final Port port = (Port) queue.getSource();
        root.startInputPort(port);
        while (!port.isRunning()) {
            Thread.sleep(20);
        }
        System.out.println("socket=" + socket + " port=" + port.getIdentifier());
        while (System.in.read() >= 0) {
            continue;
        }
        System.out.println("packets=" + queue.getFlowFileQueue().size().getObjectCount()
                + " bytes=" + queue.getFlowFileQueue().size().getByteCount());
        // Its threads would wait for work that never ends.
        Runtime.getRuntime().halt(0);
    }

    private static Connection connect(final FlowManager flow, final int tasks) {
        final ProcessGroup root = flow.getRootGroup();
        final Port port = flow.createPublicInputPort(UUID.randomUUID().toString(), "provenance");
        port.setMaxConcurrentTasks(tasks);
        root.addInputPort(port);
        final Funnel funnel = flow.createFunnel(UUID.randomUUID().toString());
        root.addFunnel(funnel);
        final Connection queue =
                flow.createConnection(UUID.randomUUID().toString(), "", port, funnel, Set.of());
        queue.getFlowFileQueue().setBackPressureObjectThreshold(0);
        queue.getFlowFileQueue().setBackPressureDataSizeThreshold("0 B");
        root.addConnection(queue);
        return queue;
    }

    private static NiFiProperties properties(final Path folder, final boolean sync, final int socket) throws Exception {
        final Map<String, String> values = new TreeMap<>();
        values.put("nifi.flow.configuration.file", folder.resolve("flow.xml.gz").toString());
        values.put("nifi.flow.configuration.json.file", folder.resolve("flow.json.gz").toString());
        values.put("nifi.flow.configuration.archive.enabled", "false");
        values.put("nifi.flowcontroller.autoResumeState", "true");
        values.put("nifi.flowcontroller.graceful.shutdown.period", "1 sec");
        values.put("nifi.state.management.configuration.file", stateFile(folder).toString());
        values.put("nifi.state.management.provider.local", "local-provider");
        values.put("nifi.database.directory", folder.resolve("database").toString());
        values.put("nifi.flowfile.repository.implementation",
                "org.apache.nifi.controller.repository.WriteAheadFlowFileRepository");
        values.put("nifi.flowfile.repository.directory", folder.resolve("flowfiles").toString());
        values.put("nifi.flowfile.repository.checkpoint.interval", "20 secs");
        values.put("nifi.flowfile.repository.always.sync", Boolean.toString(sync));
        values.put("nifi.swap.manager.implementation", "org.apache.nifi.controller.FileSystemSwapManager");
        values.put("nifi.queue.swap.threshold", "20000");
        values.put("nifi.content.repository.implementation",
                "org.apache.nifi.controller.repository.FileSystemRepository");
        values.put("nifi.content.repository.directory.default", folder.resolve("contents").toString());
        values.put("nifi.content.repository.archive.enabled", "false");
        values.put("nifi.content.repository.always.sync", Boolean.toString(sync));
        values.put("nifi.content.claim.max.appendable.size", "50 KB");
        values.put("nifi.provenance.repository.implementation",
                "org.apache.nifi.provenance.WriteAheadProvenanceRepository");
        values.put("nifi.provenance.repository.directory.default", folder.resolve("provenance").toString());
        values.put("nifi.provenance.repository.max.storage.time", "30 days");
        values.put("nifi.provenance.repository.max.storage.size", "10 GB");
        values.put("nifi.provenance.repository.always.sync", Boolean.toString(sync));
        values.put("nifi.remote.input.host", "127.0.0.1");
        values.put("nifi.remote.input.secure", "false");
        values.put("nifi.remote.input.socket.port", Integer.toString(socket));
        values.put("nifi.remote.input.http.enabled", "false");
        values.put("nifi.web.http.port", Integer.toString(socket));
        values.put("nifi.sensitive.props.key", "a key that encrypts nothing");
        values.put("nifi.sensitive.props.algorithm", ALGORITHM);
        values.put("nifi.nar.library.directory", folder.resolve("lib").toString());
        return NiFiProperties.createBasicNiFiProperties((String) null, values);
    }

    private static Path stateFile(final Path folder) throws Exception {
        final Path file = folder.resolve("state.xml");
        Files.createDirectories(folder);
        return Files.writeString(file, "<stateManagement><local-provider><id>local-provider</id><class>"
                + "org.apache.nifi.controller.state.providers.local.WriteAheadLocalStateProvider</class>"
                + "<property name=\"Directory\">" + folder.resolve("state") + "</property>"
                + "</local-provider></stateManagement>");
    }

    private static Bundle systemBundle(final Path folder) {
        final BundleDetails details = new BundleDetails.Builder()
                .workingDir(new File(folder.toString()))
                .coordinate(new BundleCoordinate(BundleCoordinate.DEFAULT_GROUP, "system", BundleCoordinate.DEFAULT_VERSION))
                .build();
        return new Bundle(details, ReceiverHarness.class.getClassLoader());
    }

    private static int freePort() throws Exception {
        try (ServerSocket probe = new ServerSocket(0)) {
            return probe.getLocalPort();
        }
    }

    /** Lets everybody do everything, as a NiFi without TLS does. */
    private static final class Everybody implements Authorizer {

        @Override
        public AuthorizationResult authorize(final AuthorizationRequest request) {
            return AuthorizationResult.approved();
        }

        @Override
        public void initialize(final AuthorizerInitializationContext context) {
        }

        @Override
        public void onConfigured(final AuthorizerConfigurationContext context) {
        }

        @Override
        public void preDestruction() {
        }
    }
}
