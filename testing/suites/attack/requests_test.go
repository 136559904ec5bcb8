package attack_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/server/app"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/node/authority"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// In the corpus PATH and KEY stand for a path and a credential of the listener.
const (
	head     = " HTTP/1.1\r\nHost: localhost\r\nAuthorization: ApiKey KEY\r\n"
	post     = "POST PATH" + head
	smuggled = "GET /api/nothing/smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
	// last follows every text. Its answer shows where the server has seen the end of the
	// request before, and that the connection goes on.
	last = "GET /api/nothing/last HTTP/1.1\r\nHost: localhost\r\n\r\n"
)

// corpus are requests that servers and proxies have read differently, or that no client
// sends.
var corpus = map[string]string{
	"body":                                  post + "Content-Length: 3\r\n\r\nabc",
	"no body":                               "GET PATH" + head + "\r\n",
	"chunked":                               post + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
	"trailers":                              post + "Trailer: X-A\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-A: 1\r\n\r\n",
	"two requests":                          post + "Content-Length: 3\r\n\r\nabc" + smuggled,
	"space before colon, chunked":           post + "Transfer-Encoding : chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n" + smuggled,
	"space before colon, length":            post + "Content-Length : 3\r\n\r\nabc" + smuggled,
	"tab before colon":                      post + "Transfer-Encoding\t: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + smuggled,
	"chunked with a length":                 post + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n" + smuggled,
	"length with chunked":                   post + "Content-Length: 71\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled,
	"chunked twice":                         post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled,
	"chunked, identity":                     post + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + smuggled,
	"identity":                              post + "Transfer-Encoding: identity\r\nContent-Length: 3\r\n\r\nabc",
	"unknown coding":                        post + "Transfer-Encoding: xchunked\r\nContent-Length: 3\r\n\r\nabc" + smuggled,
	"coding in quotes":                      post + "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n",
	"coding with vertical tab":              post + "Transfer-Encoding: \x0bchunked\r\nContent-Length: 3\r\n\r\nabc" + smuggled,
	"coding with tab":                       post + "Transfer-Encoding:\tchunked\r\n\r\n0\r\n\r\n" + smuggled,
	"coding folded":                         post + "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" + smuggled,
	"coding in capitals":                    post + "TRANSFER-ENCODING: CHUNKED\r\n\r\n0\r\n\r\n" + smuggled,
	"chunked in HTTP/1.0":                   "POST PATH HTTP/1.0\r\nHost: localhost\r\nAuthorization: ApiKey KEY\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n" + smuggled,
	"two lengths":                           post + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc" + smuggled,
	"the same length twice":                 post + "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
	"lengths in a list":                     post + "Content-Length: 3, 3\r\n\r\nabc",
	"negative length":                       post + "Content-Length: -3\r\n\r\nabc",
	"length with a sign":                    post + "Content-Length: +3\r\n\r\nabc",
	"length in hex":                         post + "Content-Length: 0x3\r\n\r\nabc",
	"length with a fraction":                post + "Content-Length: 3.0\r\n\r\nabc",
	"empty length":                          post + "Content-Length:\r\n\r\nabc" + smuggled,
	"length with underscore":                post + "Content_Length: 71\r\n\r\n" + smuggled,
	"huge length":                           post + "Content-Length: 99999999999999999999\r\n\r\nabc",
	"length beyond the body":                post + "Content-Length: 5000\r\n\r\nabc",
	"length with leading zeros":             post + "Content-Length: 0003\r\n\r\nabc",
	"body of a GET":                         "GET PATH" + head + "Content-Length: 59\r\n\r\n" + smuggled,
	"body without a length":                 post + "\r\n" + smuggled,
	"chunk size with a sign":                post + "Transfer-Encoding: chunked\r\n\r\n+3\r\nabc\r\n0\r\n\r\n" + smuggled,
	"chunk size with 0x":                    post + "Transfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n" + smuggled,
	"chunk size with space":                 post + "Transfer-Encoding: chunked\r\n\r\n3 \r\nabc\r\n0\r\n\r\n" + smuggled,
	"chunk size too large":                  post + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nabc\r\n0\r\n\r\n",
	"chunk with extension":                  post + "Transfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\n\r\n" + smuggled,
	"chunk extension with bare line feed":   post + "Transfer-Encoding: chunked\r\n\r\n3;\nabc\r\n0\r\n\r\n" + smuggled,
	"chunk without its end":                 post + "Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n" + smuggled,
	"chunks with bare line feeds":           post + "Transfer-Encoding: chunked\r\n\r\n3\nabc\n0\n\n" + smuggled,
	"chunks without the last one":           post + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
	"trailer that is a length":              post + "Transfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 71\r\n\r\n" + smuggled,
	"no host":                               "POST PATH HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
	"two hosts":                             "GET PATH HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
	"empty host":                            "GET PATH HTTP/1.1\r\nHost:\r\nAuthorization: ApiKey KEY\r\n\r\n",
	"host with a space":                     "GET PATH HTTP/1.1\r\nHost: a b\r\nAuthorization: ApiKey KEY\r\n\r\n",
	"host with a slash":                     "GET PATH HTTP/1.1\r\nHost: a/b\r\nAuthorization: ApiKey KEY\r\n\r\n",
	"host with a user":                      "GET PATH HTTP/1.1\r\nHost: a@b\r\nAuthorization: ApiKey KEY\r\n\r\n",
	"host with a control character":         "GET PATH HTTP/1.1\r\nHost: a\x01b\r\nAuthorization: ApiKey KEY\r\n\r\n",
	"host that is not ASCII":                "GET PATH HTTP/1.1\r\nHost: \xc3\xa4\r\nAuthorization: ApiKey KEY\r\n\r\n",
	"other host in the target":              "GET http://elsewherePATH" + head + "\r\n",
	"empty name":                            "GET PATH" + head + ": x\r\n\r\n",
	"name with a space":                     "GET PATH" + head + "X Y: x\r\n\r\n",
	"name with a control character":         "GET PATH" + head + "X\x01: x\r\n\r\n",
	"name with a line feed":                 "GET PATH" + head + "X\n: x\r\n\r\n",
	"name that is not ASCII":                "GET PATH" + head + "X\xff: x\r\n\r\n",
	"name in brackets":                      "GET PATH" + head + "(X): x\r\n\r\n",
	"header without a colon":                "GET PATH" + head + "X\r\n\r\n",
	"value with a NUL":                      "GET PATH" + head + "X: a\x00b\r\n\r\n",
	"value with a bell":                     "GET PATH" + head + "X: \a\r\n\r\n",
	"value with a carriage return":          "GET PATH" + head + "X: a\rContent-Length: 5\r\n\r\n",
	"value that is not ASCII":               "GET PATH" + head + "X: \xff\xfe\r\n\r\n",
	"folded header":                         post + "X-Long: a\r\n b\r\nContent-Length: 3\r\n\r\nabc",
	"folded by a tab":                       post + "X-Long: a\r\n\tb\r\nContent-Length: 3\r\n\r\nabc",
	"fold before the first header":          "GET PATH HTTP/1.1\r\n Host: localhost\r\nHost: localhost\r\n\r\n",
	"bare line feeds":                       "POST PATH HTTP/1.1\nHost: localhost\nAuthorization: ApiKey KEY\nContent-Length: 3\n\nabc",
	"bare carriage returns":                 "GET PATH HTTP/1.1\rHost: localhost\r\r",
	"empty lines first":                     "\r\n\r\n" + "GET PATH" + head + "\r\n",
	"large header":                          "GET PATH" + head + "X: " + strings.Repeat("x", 30_000) + "\r\n\r\n",
	"many headers":                          "GET PATH" + head + strings.Repeat("X: xxxxxxxx\r\n", 3000) + "\r\n",
	"long target":                           "GET PATH?" + strings.Repeat("x", 30_000) + head + "\r\n",
	"header of 16 KiB":                      "GET PATH" + head + "X: " + strings.Repeat("x", 16<<10) + "\r\n\r\n",
	"no version":                            "GET PATH\r\n\r\n",
	"HTTP/0.9":                              "GET PATH HTTP/0.9\r\n\r\n",
	"HTTP/1.0":                              "GET PATH HTTP/1.0\r\nAuthorization: ApiKey KEY\r\n\r\n",
	"HTTP/1.0 that stays":                   "GET PATH HTTP/1.0\r\nHost: localhost\r\nAuthorization: ApiKey KEY\r\nConnection: keep-alive\r\n\r\n",
	"HTTP/1.2":                              "GET PATH HTTP/1.2\r\nHost: localhost\r\nAuthorization: ApiKey KEY\r\n\r\n",
	"HTTP/2.0":                              "GET PATH HTTP/2.0\r\nHost: localhost\r\nAuthorization: ApiKey KEY\r\n\r\n",
	"HTTP/2 preface":                        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	"version in small letters":              "GET PATH http/1.1\r\nHost: localhost\r\nAuthorization: ApiKey KEY\r\n\r\n",
	"version of two digits":                 "GET PATH HTTP/1.10\r\nHost: localhost\r\nAuthorization: ApiKey KEY\r\n\r\n",
	"two spaces in the first line":          "GET  PATH HTTP/1.1\r\nHost: localhost\r\nAuthorization: ApiKey KEY\r\n\r\n",
	"tab in the first line":                 "GET\tPATH\tHTTP/1.1\r\nHost: localhost\r\nAuthorization: ApiKey KEY\r\n\r\n",
	"space after the version":               "GET PATH HTTP/1.1 \r\nHost: localhost\r\nAuthorization: ApiKey KEY\r\n\r\n",
	"space in the target":                   "GET PATH/a b HTTP/1.1\r\nHost: localhost\r\nAuthorization: ApiKey KEY\r\n\r\n",
	"control character in the target":       "GET PATH\x01 HTTP/1.1\r\nHost: localhost\r\nAuthorization: ApiKey KEY\r\n\r\n",
	"half an escape in the target":          "GET PATH%2 HTTP/1.1\r\nHost: localhost\r\nAuthorization: ApiKey KEY\r\n\r\n",
	"escaped line end in the target":        "GET PATH%0d%0aX:%20y HTTP/1.1\r\nHost: localhost\r\nAuthorization: ApiKey KEY\r\n\r\n",
	"target without a slash":                "GET nothing HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"fragment":                              "GET PATH#part HTTP/1.1\r\nHost: localhost\r\nAuthorization: ApiKey KEY\r\n\r\n",
	"method with a control character":       "G\x01T PATH HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"empty method":                          " PATH HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"unknown method":                        "BREW PATH HTTP/1.1\r\nHost: localhost\r\nAuthorization: ApiKey KEY\r\n\r\n",
	"OPTIONS of everything":                 "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"CONNECT":                               "CONNECT elsewhere:443 HTTP/1.1\r\nHost: elsewhere:443\r\n\r\n",
	"TRACE":                                 "TRACE PATH HTTP/1.1\r\nHost: localhost\r\nAuthorization: ApiKey KEY\r\n\r\n",
	"100-continue":                          post + "Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
	"another expectation":                   post + "Expect: 200-ok\r\nContent-Length: 3\r\n\r\nabc",
	"upgrade":                               "GET PATH" + head + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
	"Connection names the length":           post + "Connection: Content-Length\r\nContent-Length: 3\r\n\r\nabc",
	"Connection: close":                     "GET PATH" + head + "Connection: close\r\n\r\n",
	"TLS in TLS":                            "\x16\x03\x01\x00\x10",
	"text":                                  "hello\r\n\r\n",
	"nothing but line ends":                 "\r\n\r\n\r\n\r\n",
	"half a request":                        "GET PA",
	"method override by a header":           post + "X-HTTP-Method-Override: DELETE\r\nContent-Length: 3\r\n\r\nabc",
	"Transfer-Encoding of another spelling": post + "Transfer_Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + smuggled,
}

// reader is a server that reads requests.
type reader struct {
	addr   string
	client string // the address that connects to it
	tls    *tls.Config
	// connect returns a connection for one text.
	connect func(testing.TB) *tls.Conn

	mu   sync.Mutex
	seen map[string][]string // the requests that its handlers saw, by the client's address
}

func newReader() *reader { return &reader{seen: map[string][]string{}} }

func (r *reader) saw(client, request string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen[client] = append(r.seen[client], request)
}

func (r *reader) forget(client string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.seen, client)
}

func (r *reader) requests(client string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.seen[client])
}

// requestLog passes what a server logs of requests to the reader of its listener.
type requestLog struct {
	slog.Handler
	readers []*reader // each has clients of its own address
}

func (l requestLog) Enabled(context.Context, slog.Level) bool { return true }

func (l requestLog) Handle(_ context.Context, r slog.Record) error {
	if r.Message != "request" {
		return nil
	}
	values := map[string]string{}
	r.Attrs(func(a slog.Attr) bool {
		values[a.Key] = a.Value.String()
		return true
	})
	if strings.HasSuffix(values["path"], "/checkin") { // a poll, which may be answered before it is logged
		return nil
	}
	for _, reader := range l.readers {
		reader.saw(values["from"], values["method"]+" "+values["path"])
	}
	return nil
}

// marker is the header by which an answer of a handler differs from one of net/http.
const marker = "X-Request-Id"

// startReference starts a server of net/http alone, with the same limit of headers. wrap is
// around its TLS listener.
func startReference(t testing.TB, wrap func(net.Listener) net.Listener) *reader {
	t.Helper()
	ca, err := authority.Open(disk.OS{}, t.TempDir(), []string{"localhost"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := newReader()
	r.addr, r.client, r.connect = l.Addr().String(), "127.0.0.1", r.dial
	server := &http.Server{
		MaxHeaderBytes: 16 << 10, ReadHeaderTimeout: 5 * time.Second, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if strings.HasSuffix(req.URL.Path, "/acks") || strings.HasSuffix(req.URL.Path, "_preview") || req.URL.Path == agentapi.PathUploads {
				_, _ = io.Copy(io.Discard, req.Body)
			}
			r.saw(req.RemoteAddr, req.Method+" "+req.URL.Path)
			w.Header().Set(marker, "reference")
		}),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(wrap(tls.NewListener(l, ca.TLS()))) }()
	t.Cleanup(func() {
		server.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return r
}

// quiet is how long a server may be silent before the client ends its side, so that a
// server that waits for more acts on what it has.
const quiet = 50 * time.Millisecond

func (r *reader) dial(t testing.TB) *tls.Conn {
	c, err := (&tls.Dialer{NetDialer: from(r.client), Config: r.tls}).DialContext(t.Context(), "tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	return c.(*tls.Conn)
}

// polls makes connections whose first request was a poll that has been parked and answered.
type polls struct {
	reader *reader
	agent  *apptest.Agent

	mu     sync.Mutex
	parked *tls.Conn // the last connection, whose poll the next one ends
}

// connect parks a poll on a new connection, and returns the one before it.
func (p *polls) connect(t testing.TB) *tls.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	answered := p.parked
	p.parked = p.park(t)
	_ = answered.SetReadDeadline(time.Now().Add(apptest.WaitLimit))
	resp, err := http.ReadResponse(bufio.NewReader(answered), nil)
	if err != nil {
		t.Fatalf("a poll is not ended by the next one: %v", err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("a poll was answered %s: %v", resp.Status, err)
	}
	return answered
}

func (p *polls) park(t testing.TB) *tls.Conn {
	c := p.reader.dial(t)
	const body = `{"status":"online","message":"Running"}`
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: ApiKey %s\r\nContent-Length: %d\r\n\r\n%s", p.agent.Path("checkin"), p.agent.Key, len(body), body)
	return c
}

// ask sends text and then last, and returns the answers and the requests that handlers saw.
// Answers of handlers are shortened, since only how they end concerns the reading.
func (r *reader) ask(t testing.TB, text string) string {
	c := r.connect(t)
	defer c.Close()
	r.forget(c.LocalAddr().String()) // an earlier connection of this port
	if err := c.SetDeadline(time.Now().Add(apptest.WaitLimit)); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(c, text+last) // the server may close before it has all
	var out strings.Builder
	in := bufio.NewReader(c)
	ended, handled := false, 0
	for {
		if !ended {
			_ = c.SetReadDeadline(time.Now().Add(quiet))
		}
		_, err := in.Peek(1)
		if errors.Is(err, os.ErrDeadlineExceeded) && !ended {
			ended = true
			_ = c.CloseWrite()
			_ = c.SetReadDeadline(time.Now().Add(apptest.WaitLimit))
			continue
		}
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the connection goes on after %q", text)
			}
			break
		}
		_ = c.SetReadDeadline(time.Now().Add(apptest.WaitLimit))
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			fmt.Fprintf(&out, "no answer: %v\n", err)
			break
		}
		body, err := io.ReadAll(resp.Body)
		if resp.Header.Get(marker) != "" {
			handled++
			fmt.Fprintf(&out, "handled, close=%t\n", resp.Close)
		} else {
			resp.Header.Del("Date")
			fmt.Fprintf(&out, "%s %s, close=%t, %d\n", resp.Proto, resp.Status, resp.Close, resp.ContentLength)
			_ = resp.Header.Write(&out)
			fmt.Fprintf(&out, "%q %v\n", body, err)
		}
		if resp.Close {
			if rest, _ := io.ReadAll(in); len(rest) > 0 {
				fmt.Fprintf(&out, "and then %q\n", rest)
			}
			break
		}
		if seen := r.requests(c.LocalAddr().String()); handled > 0 && handled == len(seen) && seen[handled-1] == "GET /api/nothing/last" {
			break
		}
	}
	for _, request := range r.requests(c.LocalAddr().String()) {
		fmt.Fprintf(&out, "%q\n", request)
	}
	return out.String()
}

// listeners are a server's two listeners and, for each, the reference.
type listeners struct {
	reference *reader
	targets   []target
}

// target is a path of a listener.
type target struct {
	name, path, key string
	*reader
}

func startListeners(t testing.TB) listeners {
	t.Helper()
	agents, afterPoll, admin := newReader(), newReader(), newReader()
	s := apptest.Start(t, func(o *app.Options) {
		o.Log = slog.New(requestLog{slog.DiscardHandler, []*reader{agents, afterPoll, admin}})
	})
	agent := s.Enroll("web-01", "1.0.0")
	agents.client, admin.client = "127.0.0.2", "127.0.0.3"
	agents.addr, admin.addr = strings.TrimPrefix(s.AgentURL, "https://"), strings.TrimPrefix(s.AdminURL, "https://")
	config := s.Client.Transport.(*http.Transport).TLSClientConfig.Clone()
	config.NextProtos = []string{"http/1.1"}
	config.InsecureSkipVerify, config.VerifyConnection, config.VerifyPeerCertificate = true, nil, nil // the reference has another certificate
	reference := startReference(t, func(l net.Listener) net.Listener { return l })
	agents.tls, agents.connect, admin.tls, admin.connect, reference.tls = config, agents.dial, config, admin.dial, config
	parked := &polls{reader: &reader{addr: agents.addr, client: "127.0.0.4", tls: config}, agent: agent}
	afterPoll.addr, afterPoll.connect = agents.addr, parked.connect
	parked.parked = parked.park(t)
	t.Cleanup(func() { parked.parked.Close() })
	apptest.Eventually(t, "the first poll to be parked", func() string {
		if limits(t, s).AgentsParked == 0 {
			return "none is"
		}
		return ""
	})
	return listeners{reference, []target{
		{"agents", "/api/nothing", agent.Key, agents},
		{"agents, after a poll", "/api/nothing", agent.Key, afterPoll},
		{"agents, body read", agent.Path("acks"), agent.Key, agents},
		{"agents, upload begun", agentapi.PathUploads, agent.Key, agents},
		{"admin", "/api/nothing", s.AdminKey, admin},
		{"admin, body read", "/api/v1/upgrade_preview", s.AdminKey, admin},
	}}
}

// unread are the targets whose handlers do not read bodies.
func (l listeners) unread() (out []target) {
	for _, to := range l.targets {
		if to.path == "/api/nothing" {
			out = append(out, to)
		}
	}
	return out
}

// differences sends text to targets and to the reference, and returns how their answers
// differ; nothing if they do not.
func (l listeners) differences(t testing.TB, text string, targets []target) (out []string) {
	for _, to := range targets {
		sent := strings.NewReplacer("PATH", to.path, "KEY", to.key).Replace(text)
		if got, want := to.ask(t, sent), l.reference.ask(t, sent); got != want {
			out = append(out, fmt.Sprintf("%s: %.300q is answered\n%sand by net/http\n%s", to.name, sent, got, want))
		}
	}
	return out
}

func (l listeners) compare(t testing.TB, text string, targets []target) {
	for _, d := range l.differences(t, text, targets) {
		t.Error(d)
	}
}

func TestMalformedRequestsAreReadAsByNetHTTP(t *testing.T) {
	l := startListeners(t)
	for name, text := range corpus {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l.compare(t, text, l.targets)
		})
	}
}

// lenient accepts a space before a colon, as a second parser of requests once did.
type lenient struct{ net.Listener }

func (l lenient) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return lenientConn{c}, err
}

type lenientConn struct{ net.Conn }

func (c lenientConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	copy(b, bytes.ReplaceAll(b[:n], []byte(" :"), []byte(": ")))
	return n, err
}

// The comparison itself notices a server that reads requests otherwise.
func TestAnotherReadingIsNoticed(t *testing.T) {
	l := startListeners(t)
	wrong := startReference(t, func(l net.Listener) net.Listener { return lenient{l} })
	wrong.tls = l.reference.tls
	targets := []target{{"lenient", "/api/nothing", "x", wrong}}
	if len(l.differences(t, corpus["space before colon, chunked"], targets)) == 0 {
		t.Error("a smuggled request is not noticed")
	}
	if got := l.differences(t, corpus["body"], targets); len(got) > 0 {
		t.Error(got)
	}
}

// These are refused, whatever net/http does: a proxy in front may read the other length.
func TestAmbiguousLengthsAreRefused(t *testing.T) {
	l := startListeners(t)
	for _, name := range []string{"space before colon, chunked", "space before colon, length", "tab before colon", "two lengths", "unknown coding", "coding with vertical tab", "chunked twice", "chunked, identity"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, to := range l.targets {
				sent := strings.NewReplacer("PATH", to.path, "KEY", to.key).Replace(corpus[name])
				if got := to.ask(t, sent); !strings.Contains(got, "close=true") || strings.Contains(got, "handled") {
					t.Errorf("%s answers\n%s", to.name, got)
				}
			}
		})
	}
}

// pieces are what the random requests insert.
var pieces = []string{
	"\r\n", "\n", "\r", " ", "\t", ":", ",", ";", "\x00", "\x0b", "\xff", "0", "1", "3\r\nabc\r\n", "0\r\n\r\n", "chunked", "Content-Length: 3\r\n", "Content-Length: 0\r\n",
	"Transfer-Encoding: chunked\r\n", "Transfer-Encoding : chunked\r\n", "Transfer-Encoding: identity\r\n", "Host: x\r\n", "Connection: close\r\n", "Expect: 100-continue\r\n", "HTTP/1.0", "HTTP/1.1", smuggled,
}

// mutate changes a text at some places.
func mutate(r *rand.Rand, text []byte) []byte {
	for range 1 + r.IntN(3) {
		at := r.IntN(len(text) + 1)
		switch r.IntN(3) {
		case 0:
			text = slices.Insert(text, at, []byte(pieces[r.IntN(len(pieces))])...)
		case 1:
			text = slices.Delete(text, at, min(at+1+r.IntN(4), len(text)))
		default:
			if at < len(text) {
				text[at] = byte(r.IntN(256))
			}
		}
	}
	return text
}

// inScope reports whether a text concerns the reading of requests alone: the listeners
// answer other paths by handlers that do not read bodies as the reference does.
func inScope(text []byte) bool { return !bytes.Contains(text, []byte("HEAD")) }

var seed = flag.Uint64("seed", 0, "of the random requests; by default the time")

// randomRequests is how many the test below sends, a few seconds' worth.
const randomRequests = 200

func TestRandomRequestsAreReadAsByNetHTTP(t *testing.T) {
	start := cmp.Or(*seed, uint64(time.Now().UnixNano()))
	t.Logf("to repeat: go test -run RandomRequests ./testing/suites/attack -seed %d", start)
	r := rand.New(rand.NewPCG(start, 0))
	l := startListeners(t)
	var texts [][]byte
	for _, text := range corpus {
		if len(text) < 1000 {
			texts = append(texts, []byte(text))
		}
	}
	slices.SortFunc(texts, bytes.Compare)
	var running sync.WaitGroup
	work := make(chan []byte)
	for range 8 { // most wait
		running.Go(func() {
			for text := range work {
				l.compare(t, string(text), l.unread())
			}
		})
	}
	for range randomRequests {
		if text := mutate(r, slices.Clone(texts[r.IntN(len(texts))])); inScope(text) {
			work <- text
		}
	}
	close(work)
	running.Wait()
}

// FuzzRequests compares for as long as one likes: go test -fuzz FuzzRequests ./testing/suites/attack
func FuzzRequests(f *testing.F) {
	for _, text := range corpus {
		f.Add([]byte(text))
	}
	l := startListeners(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) < 64<<10 && inScope(text) {
			l.compare(t, string(text), l.unread())
		}
	})
}
