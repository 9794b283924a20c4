import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.time.Duration;

/** Asks the gateway for authors with HttpClient: java Client.java */
public class Client {
  private static final int ATTEMPTS = 6;

  public static void main(String[] args) throws Exception {
    String gateway = environment("GATEWAY", "http://127.0.0.1:8080");
    String query = "ids=" + URLEncoder.encode("'DEMO-2026-0001'", StandardCharsets.UTF_8) + "&site_name=demo";
    String path = "/api/manuscripts/v2/submissions/full/contributors/authors/submissionids";
    HttpRequest request = HttpRequest.newBuilder(URI.create(gateway + path + "?" + query))
        .header("X-Api-Key", environment("API_KEY", "demo-reporting-key"))
        .timeout(Duration.ofSeconds(120))
        .build();

    HttpResponse<String> response = send(request);
    boolean failed = response.statusCode() >= 400;
    // The JSON of an error of the gateway has code, detail and requestId. Others, such as 404, are the upstream's own.
    (failed ? System.err : System.out).println(response.body());
    if (failed) System.exit(1);
  }

  /** Sends the request again after 429 and 503, when Retry-After says so. */
  private static HttpResponse<String> send(HttpRequest request) throws Exception {
    HttpClient client = HttpClient.newBuilder().connectTimeout(Duration.ofSeconds(5)).build();
    for (int attempt = 1;; attempt++) {
      HttpResponse<String> response = client.send(request, BodyHandlers.ofString());
      boolean later = response.statusCode() == 429 || response.statusCode() == 503;
      if (!later || attempt == ATTEMPTS) return response;
      Thread.sleep(1000 * response.headers().firstValueAsLong("Retry-After").orElse(1));
    }
  }

  private static String environment(String name, String otherwise) {
    String value = System.getenv(name);
    return value == null ? otherwise : value;
  }
}
