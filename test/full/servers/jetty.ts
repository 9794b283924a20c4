import { account, type RealServer, startRealServer } from '../../support/real-server.ts';
import { needPackages } from '../../support/system-packages.ts';

const JARS = ['http', 'io', 'security', 'server', 'util'].map((name) => `/usr/share/java/jetty9-${name}.jar`);

/** Jetty 9 with its DigestAuthenticator (MD5, qop=auth, nc in a window). @param lifetime seconds of a nonce */
export function startJetty(lifetime = 60): Promise<RealServer> {
  needPackages('libjetty9-java', 'default-jdk-headless', 'openssl');
  const { realm, username, password } = account;
  const [user, word, name] = [username, password, realm].map((text) => JSON.stringify(text));
  return startRealServer({
    users: '',
    command: (file) => [
      ...['java', '-XX:TieredStopAtLevel=1', '-Xshare:auto'],
      ...['-cp', [...JARS, '/usr/share/java/servlet-api.jar'].join(':'), '--source', '17', file],
    ],
    configuration: ({ folder, port }) => `
import java.io.*;
import java.security.MessageDigest;
import java.util.HexFormat;
import javax.servlet.http.*;
import org.eclipse.jetty.security.*;
import org.eclipse.jetty.security.authentication.DigestAuthenticator;
import org.eclipse.jetty.server.*;
import org.eclipse.jetty.server.handler.AbstractHandler;
import org.eclipse.jetty.util.security.*;
import org.eclipse.jetty.util.ssl.SslContextFactory;

class Main {
  static final String FOLDER = ${JSON.stringify(folder)};

  public static void main(String[] args) throws Exception {
    System.setProperty("org.eclipse.jetty.util.log.class", "org.eclipse.jetty.util.log.StdErrLog");
    System.setProperty("org.eclipse.jetty.LEVEL", "WARN");
    keys();
    var server = new Server();
    server.addConnector(connector(server));
    var lines = new PrintWriter(new FileWriter(FOLDER + "/access.log", true), true);
    server.setRequestLog((request, response) -> {
      var authorization = request.getHeader("Authorization");
      lines.println(response.getStatus() + "\\t" + request.getMethod() + "\\t" + (authorization == null ? "-" : authorization));
    });
    server.setHandler(guarded());
    server.start();
  }

  static void keys() throws Exception {
    new ProcessBuilder("openssl", "pkcs12", "-export", "-in", FOLDER + "/cert.pem", "-inkey", FOLDER + "/key.pem",
        "-out", FOLDER + "/keys.p12", "-passout", "pass:word").start().waitFor();
  }

  static ServerConnector connector(Server server) {
    var tls = new SslContextFactory.Server();
    tls.setKeyStorePath(FOLDER + "/keys.p12");
    tls.setKeyStorePassword("word");
    var connector = new ServerConnector(server, tls);
    connector.setHost("127.0.0.1");
    connector.setPort(${port});
    return connector;
  }

  static SecurityHandler guarded() {
    var users = new UserStore();
    users.addUser(${user}, new Password(${word}), new String[] {"client"});
    var login = new HashLoginService(${name});
    login.setUserStore(users);
    var constraint = new Constraint(Constraint.__DIGEST_AUTH, "client");
    constraint.setAuthenticate(true);
    var mapping = new ConstraintMapping();
    mapping.setPathSpec("/*");
    mapping.setConstraint(constraint);
    var authenticator = new DigestAuthenticator();
    authenticator.setMaxNonceAge(${lifetime * 1000});
    var security = new ConstraintSecurityHandler();
    security.addConstraintMapping(mapping);
    security.setAuthenticator(authenticator);
    security.setLoginService(login);
    security.setRealmName(${name});
    security.setHandler(new Echo());
    return security;
  }
}

class Echo extends AbstractHandler {
  @Override
  public void handle(String target, Request base, HttpServletRequest request, HttpServletResponse response)
      throws IOException {
    try {
      var hash = MessageDigest.getInstance("SHA-256").digest(request.getInputStream().readAllBytes());
      response.setContentType("text/plain");
      response.getWriter().print(request.getMethod() + " " + base.getOriginalURI() + " "
          + HexFormat.of().formatHex(hash) + "  -\\n");
      base.setHandled(true);
    } catch (java.security.NoSuchAlgorithmException error) {
      throw new IOException(error);
    }
  }
}
`,
  });
}
