import { account, apacheUsers, type RealServer, startRealServer } from '../../support/real-server.ts';
import { needPackages } from '../../support/system-packages.ts';

export interface WebrickOptions {
  /** Seconds; 1800 when left out. */
  readonly nonceLifetime?: number;
  /** Each response names the next nonce. */
  readonly nextNonce?: boolean;
  /** Counts are checked: for each opaque, and in their order. */
  readonly checkCount?: boolean;
}

/** Ruby's WEBrick with its DigestAuth (MD5, qop auth and auth-int). */
export function startWebrick(options: WebrickOptions = {}): Promise<RealServer> {
  needPackages('ruby', 'ruby-webrick');
  const { nonceLifetime = 1800, nextNonce = false, checkCount = false } = options;
  return startRealServer({
    users: apacheUsers(account.password),
    command: (file) => ['ruby', file],
    configuration: ({ folder, port }) => `
require 'webrick'
require 'webrick/https'
require 'digest'
folder = ${JSON.stringify(folder)}
log = File.open(folder + '/access.log', 'a')
log.sync = true
quiet = WEBrick::Log.new(File::NULL)
server = WEBrick::HTTPServer.new(
  BindAddress: '127.0.0.1', Port: ${port}, Logger: quiet,
  AccessLog: [[log, "%s\\t%m\\t%{Authorization}i"]],
  SSLEnable: true,
  SSLCertificate: OpenSSL::X509::Certificate.new(File.read(folder + '/cert.pem')),
  SSLPrivateKey: OpenSSL::PKey.read(File.read(folder + '/key.pem')))
auth = WEBrick::HTTPAuth::DigestAuth.new(
  Realm: ${JSON.stringify(account.realm)}, UserDB: WEBrick::HTTPAuth::Htdigest.new(folder + '/users'), Logger: quiet,
  NonceExpirePeriod: ${nonceLifetime}, NonceExpireDelta: 0, CheckNc: ${checkCount}, UseNextNonce: ${nextNonce})
server.mount_proc('/') do |request, response|
  auth.authenticate(request, response)
  response['Content-Type'] = 'text/plain'
  hash = Digest::SHA256.hexdigest(request.body || '')
  response.body = "#{request.request_method} #{request.unparsed_uri} #{hash}  -\\n"
end
trap('TERM') { server.shutdown }
server.start
`,
  });
}

/**
 * Serves the Rack application `guarded` of this program, which has the account and the echo, with TLS and an access
 * log.
 */
function startOnRack(program: string): Promise<RealServer> {
  return startRealServer({
    users: '',
    command: (file) => ['ruby', file],
    configuration: ({ folder, port }) => `
require 'rack'
require 'rack/handler/webrick'
require 'webrick/https'
require 'digest'
FOLDER, REALM, USER, PASSWORD = ${JSON.stringify([folder, account.realm, account.username, account.password])}
def echo_of(env)
  hash = Digest::SHA256.hexdigest(env['rack.input'].read)
  "#{env['REQUEST_METHOD']} #{env['REQUEST_URI'].sub(%r{^https?://[^/]+}, '')} #{hash}  -\\n"
end
${program}
log = File.open(FOLDER + '/access.log', 'a')
log.sync = true
app = lambda do |env|
  status, headers, body = guarded.call(env)
  log.write("#{status}\\t#{env['REQUEST_METHOD']}\\t#{env['HTTP_AUTHORIZATION'] || '-'}\\n")
  [status, headers, body]
end
Rack::Handler::WEBrick.run(app, Host: '127.0.0.1', Port: ${port}, Logger: WEBrick::Log.new(File::NULL), AccessLog: [],
  SSLEnable: true,
  SSLCertificate: OpenSSL::X509::Certificate.new(File.read(FOLDER + '/cert.pem')),
  SSLPrivateKey: OpenSSL::PKey.read(File.read(FOLDER + '/key.pem'))) { |server| trap('TERM') { server.shutdown } }
`,
  });
}

/** Rack's middleware Rack::Auth::Digest::MD5 on WEBrick: qop=auth, nonces without end, nc unchecked. */
export function startRack(): Promise<RealServer> {
  needPackages('ruby', 'ruby-webrick', 'ruby-rack');
  return startOnRack(`
require 'rack/auth/digest/md5'
echo = ->(env) { [200, { 'Content-Type' => 'text/plain' }, [echo_of(env)]] }
guarded = Rack::Auth::Digest::MD5.new(echo, REALM, 'a key of the test') { |user| user == USER ? PASSWORD : nil }
`);
}

/** Rails' HttpAuthentication::Digest on WEBrick: qop=auth, nonces of 300 s that change with the second, never stale. */
export function startRails(): Promise<RealServer> {
  needPackages('ruby', 'ruby-webrick', 'ruby-actionpack');
  return startOnRack(`
require 'action_controller'
class EchoController < ActionController::API
  include ActionController::HttpAuthentication::Digest::ControllerMethods
  before_action { authenticate_or_request_with_http_digest(REALM) { |user| user == USER ? PASSWORD : nil } }
  def echo
    response.content_type = 'text/plain'
    self.response_body = echo_of(request.env)
  end
end
KEYS = ActiveSupport::KeyGenerator.new('a key of the test')
guarded = lambda do |env|
  EchoController.action(:echo).call(env.merge('action_dispatch.key_generator' => KEYS, 'action_dispatch.http_auth_salt' => 'salt'))
end
`);
}
