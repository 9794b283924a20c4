package main

import (
	"crypto/md5"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
)

// digestTransport answers Digest challenges (RFC 7616: MD5 and SHA-256, qop=auth or none) with one nonce for all
// requests. It sends a request without a body again after a 401; one with a body needs a nonce that still counts.
type digestTransport struct {
	username, password string
	next               http.RoundTripper
	current            atomic.Pointer[challenge]
}

// challenge is one nonce with everything that its answers have in common.
type challenge struct {
	newHash            func() hash.Hash
	ha1, nonce, cnonce string
	qop                bool
	prefix             string
	count              atomic.Uint32
}

// RoundTrip authenticates the request. A second 401 in a row reaches the caller.
func (t *digestTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	used := t.current.Load()
	response, err := t.send(request, used)
	if err != nil || response.StatusCode != http.StatusUnauthorized || request.ContentLength != 0 {
		return response, err
	}
	fresh, err := t.challengeOf(response)
	if err != nil {
		response.Body.Close()
		return nil, err
	}
	// The connection can be used again only when the body has been read.
	io.Copy(io.Discard, response.Body)
	response.Body.Close()
	// Many requests may meet a 401 at the same time: the first one's nonce is for all of them.
	if !t.current.CompareAndSwap(used, fresh) {
		fresh = t.current.Load()
	}
	return t.send(request, fresh)
}

// send sends the request, with an answer to the challenge unless that is nil.
func (t *digestTransport) send(request *http.Request, c *challenge) (*http.Response, error) {
	if c == nil {
		return t.next.RoundTrip(request)
	}
	// A RoundTripper must not change the request that it was given.
	signed := *request
	signed.Header = request.Header.Clone()
	signed.Header.Set("Authorization", c.answer(request.Method, request.URL.RequestURI()))
	return t.next.RoundTrip(&signed)
}

var parameter = regexp.MustCompile(`(\w+)=(?:"([^"]*)"|([^\s,]+))`)

// challengeOf reads the first usable Digest challenge of a 401.
func (t *digestTransport) challengeOf(response *http.Response) (*challenge, error) {
	for _, line := range response.Header.Values("WWW-Authenticate") {
		if len(line) < 7 || !strings.EqualFold(line[:7], "Digest ") {
			continue
		}
		values := map[string]string{}
		for _, match := range parameter.FindAllStringSubmatch(line[7:], -1) {
			values[strings.ToLower(match[1])] = match[2] + match[3]
		}
		if c := t.prepare(values); c != nil {
			return c, nil
		}
	}
	return nil, errors.New("the upstream sent no Digest challenge that can be answered")
}

// prepare computes what the answers to a challenge have in common; nil if its algorithm or qop is unknown.
func (t *digestTransport) prepare(values map[string]string) *challenge {
	c := &challenge{nonce: values["nonce"]}
	switch strings.ToUpper(values["algorithm"]) {
	case "", "MD5":
		c.newHash = md5.New
	case "SHA-256":
		c.newHash = sha256.New
	default:
		return nil
	}
	for _, qop := range strings.Split(values["qop"], ",") {
		c.qop = c.qop || strings.TrimSpace(qop) == "auth"
	}
	if values["qop"] != "" && !c.qop {
		return nil
	}
	c.ha1 = c.hashOf(t.username + ":" + values["realm"] + ":" + t.password)
	random := make([]byte, 8)
	rand.Read(random)
	c.cnonce = hex.EncodeToString(random)
	c.prefix = fmt.Sprintf(`Digest username="%s", realm="%s", nonce="%s"`, t.username, values["realm"], c.nonce)
	if opaque, ok := values["opaque"]; ok {
		c.prefix += fmt.Sprintf(`, opaque="%s"`, opaque)
	}
	if algorithm, ok := values["algorithm"]; ok {
		c.prefix += ", algorithm=" + algorithm
	}
	return c
}

// answer is the Authorization of one request.
func (c *challenge) answer(method, uri string) string {
	ha2 := c.hashOf(method + ":" + uri)
	if !c.qop {
		response := c.hashOf(c.ha1 + ":" + c.nonce + ":" + ha2)
		return c.prefix + `, uri="` + uri + `", response="` + response + `"`
	}
	nc := fmt.Sprintf("%08x", c.count.Add(1))
	response := c.hashOf(c.ha1 + ":" + c.nonce + ":" + nc + ":" + c.cnonce + ":auth:" + ha2)
	return c.prefix + `, uri="` + uri + `", qop=auth, nc=` + nc + `, cnonce="` + c.cnonce + `", response="` + response + `"`
}

func (c *challenge) hashOf(text string) string {
	h := c.newHash()
	io.WriteString(h, text)
	return hex.EncodeToString(h.Sum(nil))
}
