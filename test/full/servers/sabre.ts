import { account, type RealServer, startRealServer } from '../../support/real-server.ts';
import { needPackages } from '../../support/system-packages.ts';

/** sabre/dav's Digest on PHP's own server: qop=auth, nonces unchecked; no TLS, and one request a connection. */
export function startSabre(): Promise<RealServer> {
  needPackages('php-cli', 'php-sabre-dav');
  return startRealServer({
    plaintext: true,
    users: '',
    command: (file, { port }) => ['php', '-q', '-S', `127.0.0.1:${port}`, file],
    configuration: ({ folder }) => String.raw`<?php
require '/usr/share/php/Sabre/autoload.php';
$auth = new Sabre\HTTP\DigestAuth();
$auth->setRealm('${account.realm}');
$auth->init();
$accepted = $auth->getUsername() === '${account.username}' && $auth->validatePassword('${account.password}');
$method = $_SERVER['REQUEST_METHOD'];
$status = $accepted ? 200 : 401;
$line = $status . "\t" . $method . "\t" . ($_SERVER['HTTP_AUTHORIZATION'] ?? '-') . "\n";
file_put_contents('${folder}/access.log', $line, FILE_APPEND);
if (!$accepted) {
  $auth->requireLogin();
  exit;
}
header('Content-Type: text/plain');
echo $method . ' ' . $_SERVER['REQUEST_URI'] . ' ' . hash('sha256', file_get_contents('php://input')) . "  -\n";
`,
  });
}
