import io.openlineage.client.OpenLineage;
import io.openlineage.client.OpenLineageClient;
import io.openlineage.client.transports.ApiKeyTokenProvider;
import io.openlineage.client.transports.HttpConfig;
import io.openlineage.client.transports.HttpTransport;
import java.net.URI;
import java.time.ZonedDateTime;
import java.util.List;
import java.util.UUID;

/** Emits the events of some runs, one about a dataset and one about a job: URL, API key, "gzip" or "plain", runs. */
public class OpenLineageProducer {
  public static void main(String[] arguments) throws Exception {
    ApiKeyTokenProvider key = new ApiKeyTokenProvider();
    key.setApiKey(arguments[1]);
    HttpConfig config = new HttpConfig();
    config.setUrl(URI.create(arguments[0]));
    config.setAuth(key);
    if (arguments[2].equals("gzip")) {
      config.setCompression(HttpConfig.Compression.GZIP);
    }
    OpenLineage maker = new OpenLineage(URI.create("https://example.org/producer"));
    ZonedDateTime time = ZonedDateTime.parse("2026-11-01T10:00:00.123456Z");
    try (OpenLineageClient client = new OpenLineageClient(new HttpTransport(config))) {
      OpenLineage.Job job = maker.newJobBuilder().namespace("garden").name("grow").build();
      for (int number = 0; number < Integer.parseInt(arguments[3]); number++) {
        OpenLineage.Run run = maker.newRunBuilder().runId(new UUID(0x7000L, number)).build();
        for (OpenLineage.RunEvent.EventType type :
            List.of(OpenLineage.RunEvent.EventType.START, OpenLineage.RunEvent.EventType.COMPLETE)) {
          client.emit(
              maker.newRunEventBuilder().eventTime(time).eventType(type).run(run).job(job)
                  .inputs(List.of(maker.newInputDatasetBuilder().namespace("lake://east").name("seed").build()))
                  .outputs(List.of(maker.newOutputDatasetBuilder().namespace("lake://east").name("tree").build()))
                  .build());
        }
      }
      client.emit(
          maker.newDatasetEventBuilder().eventTime(time)
              .dataset(maker.newStaticDatasetBuilder().namespace("lake://east").name("näss pot").build()).build());
      client.emit(maker.newJobEventBuilder().eventTime(time).job(job).build());
    }
    System.out.println("emitted");
  }
}
