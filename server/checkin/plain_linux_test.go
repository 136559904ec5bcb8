package checkin

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const agentsHead = "POST /api/fleet/agents/0123abcd/checkin HTTP/1.1\r\nHost: fleet.example:8220\r\nUser-Agent: Elastic Agent v9.1.0\r\n" +
	"Content-Length: 1024\r\nAccept: application/json\r\nAuthorization: ApiKey aWQ6c2VjcmV0\r\nContent-Type: application/json\r\n" +
	"Elastic-Api-Version: 2023-06-01\r\nAccept-Encoding: gzip\r\n\r\n"

// What an agent sends is plain.
func TestAnAgentsRequestIsPlain(t *testing.T) {
	got, head := new(plain).read(t.Context(), []byte(agentsHead+strings.Repeat("x", 1024)))
	if got == nil || head != len(agentsHead) {
		t.Fatalf("it is not, or its head has %d bytes", head)
	}
	want, err := http.ReadRequest(bufio.NewReader(strings.NewReader(agentsHead)))
	if err != nil {
		t.Fatal(err)
	}
	want = want.WithContext(t.Context())
	want.Body = nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("it is\n%+v\nand to net/http\n%+v", got, want)
	}
}

// Whatever is taken for plain is what measure lets through, and means the same to
// net/http.
func TestAPlainRequestIsWhatNetHTTPReads(t *testing.T) {
	some := func(of ...string) *rapid.Generator[string] { return rapid.SampledFrom(of) }
	header := rapid.Custom(func(t *rapid.T) string {
		name := some("Host", "Host", "host", "Content-Length", "content-length", "Connection", "Keep-Alive", "Pragma", "Trailer", "Accept", "X-1-A", "X--B", "X-b",
			"Authorization", "Cookie", "X_Y", "X Y", "-", "", "Å", "Cache-Control", "Proxy-Connection", "Te", "Content-Encoding").Draw(t, "name")
		value := rapid.OneOf(some("", "3", "003", "+3", "-0", "0", "close", "keep-alive", "no-cache", "a:80", "a b", " a", "a ", "Trailer"),
			rapid.StringMatching(`[ -~Å]{0,5}`)).Draw(t, "value")
		return name + some(":", ": ", ":  ", " :", "").Draw(t, "colon") + value + some("", " ").Draw(t, "end")
	})
	taken, p := 0, &plain{} // of which one tells nothing of the one before
	rapid.Check(t, func(t *rapid.T) {
		method, target, version := "POST ", "/api/fleet/agents/a-b_c.d/acks", " HTTP/1.1"
		headers := []string{"Host: fleet.example", "Content-Length: 3", "Accept: */*"}
		switch some("nothing", "method", "target", "version", "headers", "proper").Draw(t, "odd") { // else hardly any is plain
		case "method":
			method = some("POST  ", "GET ", "POSTS ", "post ").Draw(t, "method")
		case "target":
			target = rapid.OneOf(some("//a/b", "/", "", "*", "a", "http://a/b", "/a?b", "/a%20b", "/a b", "/../a", "/a:b"),
				rapid.StringMatching(`/[ -~]{0,5}`)).Draw(t, "target")
		case "version":
			version = some("  HTTP/1.1", " HTTP/1.0", " HTTP/1.10", "").Draw(t, "version")
		case "headers":
			headers = rapid.Permutation(append(headers, rapid.SliceOfN(header, 1, 3).Draw(t, "more")...)).Draw(t, "headers")
		case "proper":
			headers = rapid.SliceOfN(header, 0, 5).Draw(t, "headers")
		}
		lines := append([]string{method + target + version}, headers...)
		text := []byte(strings.Join(lines, "\r\n") + "\r\n\r\n" + some("abc", "abc", "abc", "ab", "abcd", "").Draw(t, "body"))
		got, at := p.read(t.Context(), text)
		if got == nil {
			return // net/http reads it
		}
		taken++
		head, size, err := measure(text)
		if err != nil || size != len(text) || at != head {
			t.Fatalf("%q is taken, with a head of %d bytes, and measured to %d of %d: %v", text, at, head, size, err)
		}
		want, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(text[:head])))
		if err != nil {
			t.Fatalf("%q is taken, and to net/http: %v", text, err)
		}
		want = want.WithContext(t.Context())
		want.Body = nil
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q is taken for\n%+v\nand to net/http is\n%+v", text, got, want)
		}
	})
	if taken == 0 {
		t.Error("none was plain")
	}
}

func TestARequestOfManyHeadersIsNotPlain(t *testing.T) {
	lines := "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n"
	for i := range plainHeaders - 2 {
		lines += fmt.Sprintf("X-%d: a\r\n", i)
	}
	p := &plain{}
	for range 2 { // the second time it knows them
		if r, _ := p.read(t.Context(), []byte(lines+"\r\n")); r == nil {
			t.Error("as many as there may be are too many")
		}
		if r, _ := p.read(t.Context(), []byte(lines+"X-More: a\r\n\r\n")); r != nil {
			t.Error("one more is not too many")
		}
	}
}

func BenchmarkHead(b *testing.B) {
	head := []byte(agentsHead)
	b.Run("plain", func(b *testing.B) {
		b.ReportAllocs()
		p, request := &plain{}, slices.Concat(head, make([]byte, 1024))
		for b.Loop() {
			p.read(b.Context(), request)
		}
	})
	b.Run("net/http", func(b *testing.B) {
		b.ReportAllocs()
		in := bufio.NewReader(nil)
		for b.Loop() {
			in.Reset(bytes.NewReader(head))
			if _, err := http.ReadRequest(in); err != nil {
				b.Fatal(err)
			}
		}
	})
}
