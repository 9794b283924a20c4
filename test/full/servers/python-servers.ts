import { account, type RealServer, startRealServer } from '../../support/real-server.ts';
import type { Place } from '../../support/server-process.ts';
import { needPackages } from '../../support/system-packages.ts';

/** The common part of each program: its address, the account, its access log, and the echo. */
const common = ({ folder, port }: Place): string => `
import hashlib
FOLDER, PORT = ${JSON.stringify(folder)}, ${port}
REALM, USER, PASSWORD = ${[account.realm, account.username, account.password].map((text) => JSON.stringify(text)).join(', ')}
LOG = open(FOLDER + '/access.log', 'a', buffering=1)
def record(status, method, authorization):
    LOG.write('%s\\t%s\\t%s\\n' % (status, method, authorization or '-'))
def echo(method, target, body):
    return '%s %s %s  -\\n' % (method, target, hashlib.sha256(body).hexdigest())
`;

function startPython(program: string): Promise<RealServer> {
  return startRealServer({
    users: '',
    // Debian's own: its packages are not those of another Python on the path.
    command: (file) => ['/usr/bin/python3', file],
    configuration: (place) => `${common(place)}${program}`,
  });
}

/** CherryPy with its tool auth_digest (MD5, qop=auth, nonces of 600 s, nc unchecked). */
export function startCherryPy(): Promise<RealServer> {
  needPackages('python3-cherrypy3');
  return startPython(`
import cherrypy
from cherrypy.lib import auth_digest
class Echo:
    @cherrypy.expose
    def default(self, *parts, **query):
        request = cherrypy.request
        cherrypy.response.headers['Content-Type'] = 'text/plain'
        return echo(request.method, request.wsgi_environ['REQUEST_URI'], request.rfile.read())
def on_end():
    request = cherrypy.request
    record(str(cherrypy.response.status)[:3], request.method, request.headers.get('Authorization'))
cherrypy.tools.record = cherrypy.Tool('on_end_request', on_end)
cherrypy.config.update({
    'environment': 'production',
    'server.socket_host': '127.0.0.1',
    'server.socket_port': PORT,
    'server.ssl_module': 'builtin',
    'server.ssl_certificate': FOLDER + '/cert.pem',
    'server.ssl_private_key': FOLDER + '/key.pem',
})
cherrypy.quickstart(Echo(), '/', {'/': {
    'request.process_request_body': False,
    'tools.record.on': True,
    'tools.auth_digest.on': True,
    'tools.auth_digest.realm': REALM,
    'tools.auth_digest.get_ha1': auth_digest.get_ha1_dict_plain({USER: PASSWORD}),
    'tools.auth_digest.key': 'a key of the test',
}})
`);
}

/** Twisted's guard (MD5, qop=auth). @param lifetime seconds of a nonce, 900 when left out */
export function startTwisted(lifetime = 900): Promise<RealServer> {
  needPackages('python3-twisted');
  return startPython(`
from twisted.cred import checkers, credentials, portal
from twisted.internet import reactor, ssl
from twisted.web import guard, resource, server
from zope.interface import implementer
class Echo(resource.Resource):
    isLeaf = True
    def render(self, request):
        request.setHeader(b'content-type', b'text/plain')
        return echo(request.method.decode(), request.uri.decode(), request.content.read()).encode()
@implementer(portal.IRealm)
class Realm:
    def requestAvatar(self, avatar, mind, *interfaces):
        return resource.IResource, Echo(), lambda: None
class Site(server.Site):
    def log(self, request):
        record(request.code, request.method.decode(), request.getHeader('authorization'))
users = checkers.InMemoryUsernamePasswordDatabaseDontUse()
users.addUser(USER.encode(), PASSWORD.encode())
factory = guard.DigestCredentialFactory(b'md5', REALM.encode())
credentials.DigestCredentialFactory.CHALLENGE_LIFETIME_SECS = ${lifetime}
root = guard.HTTPAuthSessionWrapper(portal.Portal(Realm(), [users]), [factory])
context = ssl.DefaultOpenSSLContextFactory(FOLDER + '/key.pem', FOLDER + '/cert.pem')
reactor.listenSSL(PORT, Site(root), context, interface='127.0.0.1')
reactor.run()
`);
}

/** Flask-HTTPAuth: nonce and opaque live in the cookie of a session; HTTP/1.0, so each request has a connection. */
export function startFlask(): Promise<RealServer> {
  needPackages('python3-flask-httpauth');
  return startPython(`
from flask import Flask, request
from flask_httpauth import HTTPDigestAuth
app = Flask('echo')
app.config['SECRET_KEY'] = 'a key of the test'
auth = HTTPDigestAuth(realm=REALM)
auth.get_password(lambda user: PASSWORD if user == USER else None)
@app.route('/<path:path>', methods=['GET', 'POST'])
@auth.login_required
def echoed(path):
    return echo(request.method, request.environ['RAW_URI'], request.get_data()), {'Content-Type': 'text/plain'}
@app.after_request
def after(response):
    record(response.status_code, request.method, request.headers.get('Authorization'))
    return response
app.run('127.0.0.1', PORT, ssl_context=(FOLDER + '/cert.pem', FOLDER + '/key.pem'), threaded=True)
`);
}

/** Paste's digest middleware: MD5, qop=auth, nonces without end, nc has to rise, or the nonce ends. HTTP/1.0. */
export function startPaste(): Promise<RealServer> {
  needPackages('python3-paste');
  return startPython(`
import ssl
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from paste.auth.digest import AuthDigestHandler, digest_password
def app(environ, start):
    start('200 OK', [('Content-Type', 'text/plain')])
    body = environ['wsgi.input'].read(int(environ.get('CONTENT_LENGTH') or 0))
    return [echo(environ['REQUEST_METHOD'], environ['TARGET'], body).encode()]
guarded = AuthDigestHandler(app, REALM, lambda environ, realm, user: digest_password(realm, USER, PASSWORD) if user == USER else None)
def recorded(environ, start):
    def begin(status, headers, *rest):
        record(status[:3], environ['REQUEST_METHOD'], environ.get('HTTP_AUTHORIZATION'))
        return start(status, headers, *rest)
    return guarded(environ, begin)
class Handler(WSGIRequestHandler):
    def get_environ(self):
        return dict(super().get_environ(), TARGET=self.path)
    def log_message(self, *args):
        pass
class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    def get_request(self):
        connection, address = super().get_request()
        return context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(FOLDER + '/cert.pem', FOLDER + '/key.pem')
make_server('127.0.0.1', PORT, recorded, Server, Handler).serve_forever()
`);
}

/** libsoup's server with its AuthDomainDigest (MD5, qop=auth, nonces without end, nc unchecked). */
export function startLibsoup(): Promise<RealServer> {
  needPackages('python3-gi', 'gir1.2-soup-3.0', 'glib-networking');
  return startPython(`
import gi
gi.require_version('Soup', '3.0')
from gi.repository import Gio, GLib, Soup
def handle(server, message, path, query):
    uri = message.get_uri()
    target = uri.get_path() + ('' if uri.get_query() is None else '?' + uri.get_query())
    body = message.get_request_body().flatten().get_data() or b''
    message.set_status(200, None)
    message.set_response('text/plain', Soup.MemoryUse.COPY, echo(message.get_method(), target, body).encode())
def finished(server, message, *rest):
    record(message.get_status(), message.get_method(), message.get_request_headers().get_one('Authorization'))
domain = Soup.AuthDomainDigest(realm=REALM)
domain.add_path('/')
domain.set_auth_callback(
    lambda domain, message, user: Soup.AuthDomainDigest.encode_password(user, REALM, PASSWORD) if user == USER else None)
server = Soup.Server()
server.set_tls_certificate(Gio.TlsCertificate.new_from_files(FOLDER + '/cert.pem', FOLDER + '/key.pem'))
server.add_handler(None, handle)
server.add_auth_domain(domain)
server.connect('request-finished', finished)
server.listen(Gio.InetSocketAddress.new_from_string('127.0.0.1', PORT), Soup.ServerListenOptions.HTTPS)
GLib.MainLoop().run()
`);
}
