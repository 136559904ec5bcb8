// Package releasetest waits for servers that the tests of a release start in containers, which share
// the network of the machine.
package releasetest

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"
)

// waitLimit bounds the wait for a start, which takes a second, also in a container.
const waitLimit = time.Minute

// FreeAddress returns an address on loopback that was free just now.
func FreeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Ready waits until a server answers 200 at a URL, such as its /readyz.
func Ready(t *testing.T, url string) {
	t.Helper()
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // only whether it answers
	}}
	deadline := time.Now().Add(waitLimit)
	for {
		r, err := client.Get(url)
		if err == nil {
			_ = r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return
			}
			err = fmt.Errorf("%s answers %s", url, r.Status)
		}
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for the server: %v", err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
