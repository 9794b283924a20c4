import { account, type RealServer, startRealServer } from '../../support/real-server.ts';
import { needPackages } from '../../support/system-packages.ts';

/** Tomcat 10 with its DigestAuthenticator (SHA-256 and MD5, qop=auth, nonces of five minutes). */
export function startTomcat(): Promise<RealServer> {
  needPackages('libtomcat10-embed-java', 'default-jdk-headless');
  const { realm, username, password } = account;
  const [user, word, name] = [username, password, realm].map((text) => JSON.stringify(text));
  return startRealServer({
    users: '',
    command: (file) => [
      ...[
        'java',
        '-XX:TieredStopAtLevel=1',
        '-Xshare:auto',
        '-cp',
        '/usr/share/java/tomcat10-embed-core.jar',
      ],
      ...['--source', '17', file],
    ],
    configuration: ({ folder, port }) => `
import jakarta.servlet.http.*;
import java.io.IOException;
import java.security.MessageDigest;
import java.util.HexFormat;
import org.apache.catalina.Context;
import org.apache.catalina.authenticator.DigestAuthenticator;
import org.apache.catalina.connector.Connector;
import org.apache.catalina.startup.Tomcat;
import org.apache.catalina.valves.AccessLogValve;
import org.apache.tomcat.util.descriptor.web.*;
import org.apache.tomcat.util.net.*;

class Server {
  static final String FOLDER = ${JSON.stringify(folder)};

  public static void main(String[] args) throws Exception {
    var tomcat = new Tomcat();
    tomcat.setBaseDir(FOLDER);
    tomcat.setSilent(true);
    tomcat.setConnector(connector());
    tomcat.getHost().getPipeline().addValve(accessLog());
    tomcat.addUser(${user}, ${word});
    tomcat.addRole(${user}, "client");
    protect(tomcat.addContext("", FOLDER));
    tomcat.start();
    tomcat.getServer().await();
  }

  static void protect(Context context) {
    Tomcat.addServlet(context, "echo", new Echo());
    context.addServletMappingDecoded("/*", "echo");
    var paths = new SecurityCollection();
    paths.addPatternDecoded("/*");
    var constraint = new SecurityConstraint();
    constraint.addCollection(paths);
    constraint.addAuthRole("client");
    context.addConstraint(constraint);
    context.setLoginConfig(new LoginConfig("DIGEST", ${name}, null, null));
    context.getPipeline().addValve(new DigestAuthenticator());
  }

  static Connector connector() {
    var host = new SSLHostConfig();
    var certificate = new SSLHostConfigCertificate(host, SSLHostConfigCertificate.Type.UNDEFINED);
    certificate.setCertificateFile(FOLDER + "/cert.pem");
    certificate.setCertificateKeyFile(FOLDER + "/key.pem");
    host.addCertificate(certificate);
    var connector = new Connector();
    connector.setPort(${port});
    connector.setProperty("address", "127.0.0.1");
    connector.setProperty("SSLEnabled", "true");
    connector.setSecure(true);
    connector.setScheme("https");
    connector.addSslHostConfig(host);
    return connector;
  }

  static AccessLogValve accessLog() {
    var log = new AccessLogValve();
    log.setDirectory(FOLDER);
    log.setPrefix("access.log");
    log.setSuffix("");
    log.setRotatable(false);
    log.setBuffered(false);
    log.setPattern("%s\\t%m\\t%{Authorization}i");
    return log;
  }
}

class Echo extends HttpServlet {
  @Override
  protected void service(HttpServletRequest request, HttpServletResponse response) throws IOException {
    try {
      var hash = MessageDigest.getInstance("SHA-256").digest(request.getInputStream().readAllBytes());
      var query = request.getQueryString() == null ? "" : "?" + request.getQueryString();
      response.setContentType("text/plain");
      response.getWriter().print(request.getMethod() + " " + request.getRequestURI() + query + " "
          + HexFormat.of().formatHex(hash) + "  -\\n");
    } catch (java.security.NoSuchAlgorithmException error) {
      throw new IOException(error);
    }
  }
}
`,
  });
}
