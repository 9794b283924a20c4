import { account, type RealServer, startRealServer } from '../../support/real-server.ts';
import { needPackages } from '../../support/system-packages.ts';

/** Go with abbot/go-http-auth: MD5, qop=auth, nc has to rise. */
export function startGo(): Promise<RealServer> {
  needPackages('golang-go', 'golang-github-abbot-go-http-auth-dev');
  return startRealServer({
    users: '',
    command: (file) => [
      'sh',
      '-c',
      'mv "$1" "$1.go" && GO111MODULE=off GOPATH=/usr/share/gocode go build -o "$1" "$1.go" && exec "$1"',
      'sh',
      file,
    ],
    configuration: ({ folder, port }) => `
package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"sync"

	auth "github.com/abbot/go-http-auth"
)

const folder = ${JSON.stringify(folder)}

type recorded struct {
	http.ResponseWriter
	status int
}

func (r *recorded) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

func main() {
	digest := auth.NewDigestAuthenticator(${JSON.stringify(account.realm)}, func(user, realm string) string {
		if user == ${JSON.stringify(account.username)} {
			return ${JSON.stringify(account.password)}
		}
		return ""
	})
	digest.PlainTextSecrets = true
	lines, err := os.OpenFile(folder+"/access.log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		log.Fatal(err)
	}
	var mutex sync.Mutex
	guarded := digest.Wrap(func(w http.ResponseWriter, r *auth.AuthenticatedRequest) {
		hash := sha256.New()
		io.Copy(hash, r.Body)
		w.Header().Set("Content-Type", "text/plain")
		fmt.Fprintf(w, "%s %s %x  -\\n", r.Method, r.RequestURI, hash.Sum(nil))
	})
	handler := func(w http.ResponseWriter, r *http.Request) {
		response := &recorded{w, 200}
		guarded(response, r)
		authorization := r.Header.Get("Authorization")
		if authorization == "" {
			authorization = "-"
		}
		mutex.Lock()
		defer mutex.Unlock()
		fmt.Fprintf(lines, "%d\\t%s\\t%s\\n", response.status, r.Method, authorization)
	}
	server := &http.Server{Addr: "127.0.0.1:${port}", Handler: http.HandlerFunc(handler), ErrorLog: log.New(io.Discard, "", 0)}
	log.Fatal(server.ListenAndServeTLS(folder+"/cert.pem", folder+"/key.pem"))
}
`,
  });
}
