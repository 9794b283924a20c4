package main

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

// plainTransport answers Digest challenges as the usual transports do: it keeps the parameters of the last challenge, and
// computes everything else anew for each request.
type plainTransport struct {
	username, password string
	next               http.RoundTripper
	mutex              sync.Mutex
	values             map[string]string
	count              int
}

// RoundTrip authenticates a request without a body. A second 401 in a row reaches the caller.
func (t *plainTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.send(request)
	if err != nil || response.StatusCode != http.StatusUnauthorized || request.ContentLength != 0 {
		return response, err
	}
	for _, line := range response.Header.Values("WWW-Authenticate") {
		if !strings.HasPrefix(line, "Digest ") {
			continue
		}
		values := map[string]string{}
		for _, match := range parameter.FindAllStringSubmatch(line[7:], -1) {
			values[strings.ToLower(match[1])] = match[2] + match[3]
		}
		t.mutex.Lock()
		t.values, t.count = values, 0
		t.mutex.Unlock()
		io.Copy(io.Discard, response.Body)
		response.Body.Close()
		return t.send(request)
	}
	return response, nil
}

// send sends a copy of the request, with an answer to the last challenge if there was one.
func (t *plainTransport) send(request *http.Request) (*http.Response, error) {
	t.mutex.Lock()
	values := t.values
	t.count++
	count := t.count
	t.mutex.Unlock()
	if values == nil {
		return t.next.RoundTrip(request)
	}
	algorithm := (&digestTransport{username: t.username, password: t.password}).prepare(values)
	if algorithm == nil {
		return t.next.RoundTrip(request)
	}
	signed := request.Clone(request.Context())
	signed.Header.Set("Authorization", t.answer(values, algorithm, count, request.Method, request.URL.RequestURI()))
	return t.next.RoundTrip(signed)
}

func (t *plainTransport) answer(values map[string]string, c *challenge, count int, method, uri string) string {
	random := make([]byte, 8)
	rand.Read(random)
	cnonce := hex.EncodeToString(random)
	ha1 := c.hashOf(fmt.Sprintf("%s:%s:%s", t.username, values["realm"], t.password))
	ha2 := c.hashOf(fmt.Sprintf("%s:%s", method, uri))
	parts := []string{
		fmt.Sprintf(`username="%s"`, t.username),
		fmt.Sprintf(`realm="%s"`, values["realm"]),
		fmt.Sprintf(`nonce="%s"`, values["nonce"]),
		fmt.Sprintf(`uri="%s"`, uri),
	}
	if c.qop {
		nc := fmt.Sprintf("%08x", count)
		response := c.hashOf(fmt.Sprintf("%s:%s:%s:%s:auth:%s", ha1, values["nonce"], nc, cnonce, ha2))
		parts = append(parts, "qop=auth", "nc="+nc, fmt.Sprintf(`cnonce="%s"`, cnonce), fmt.Sprintf(`response="%s"`, response))
	} else {
		parts = append(parts, fmt.Sprintf(`response="%s"`, c.hashOf(fmt.Sprintf("%s:%s:%s", ha1, values["nonce"], ha2))))
	}
	for _, name := range []string{"algorithm", "opaque"} {
		if value, ok := values[name]; ok {
			parts = append(parts, fmt.Sprintf(`%s="%s"`, name, value))
		}
	}
	return "Digest " + strings.Join(parts, ", ")
}
