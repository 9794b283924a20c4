// A reverse proxy of Go's standard library with a Digest transport, for the benchmark.
//
// Arguments: port, origin of the upstream, file of its authority, most connections, user name, password, and `plain` for
// a proxy and a transport without tuning.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"
	"sync"
)

func main() {
	if len(os.Args) < 7 {
		log.Fatal("arguments: port origin ca-file connections username password")
	}
	port, origin, caFile := os.Args[1], os.Args[2], os.Args[3]
	connections, err := strconv.Atoi(os.Args[4])
	if err != nil {
		log.Fatal(err)
	}
	upstream, err := url.Parse(origin)
	if err != nil {
		log.Fatal(err)
	}
	ca, err := os.ReadFile(caFile)
	if err != nil {
		log.Fatal(err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(ca) {
		log.Fatalf("no certificate in %s", caFile)
	}
	proxy := httputil.NewSingleHostReverseProxy(upstream)
	direct := proxy.Director
	proxy.Director = func(request *http.Request) {
		direct(request)
		request.Host = upstream.Host
	}
	next := &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: authorities},
		MaxConnsPerHost:     connections,
		MaxIdleConns:        connections,
		MaxIdleConnsPerHost: connections,
		DisableCompression:  true,
	}
	if len(os.Args) > 7 && os.Args[7] == "plain" {
		proxy.Transport = &plainTransport{username: os.Args[5], password: os.Args[6], next: next}
	} else {
		proxy.BufferPool = &bufferPool{}
		proxy.Transport = &digestTransport{username: os.Args[5], password: os.Args[6], next: next}
	}
	log.Fatal(http.ListenAndServe("127.0.0.1:"+port, proxy))
}

// bufferPool keeps the buffers with which bodies are copied.
type bufferPool struct{ pool sync.Pool }

func (b *bufferPool) Get() []byte {
	if buffer, ok := b.pool.Get().(*[]byte); ok {
		return *buffer
	}
	return make([]byte, 32*1024)
}

func (b *bufferPool) Put(buffer []byte) { b.pool.Put(&buffer) }
