//go:build linux

package scenario

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"
	"golang.org/x/sync/errgroup"

	"github.com/muster-fleet/muster/testing/tools/loadtest/generator"
)

// FloorSubcommand is the argument of Options.Program that makes it call ServeFloor.
const FloorSubcommand = "floor-server"

// floorAnswer is as long as the answer to a check-in without actions.
var floorAnswer = []byte(`{"ack_token":"","action":"checkin","actions":[]}`)

// floorConnections bounds the connections to the bare server: each takes some dozen
// kilobytes on both sides, and more would not make the mean more precise.
const floorConnections = 4000

// ServeFloor runs two bare TLS servers until in ends, one of net/http alone and one with
// gin. Both read a request and answer it. It writes the address of each to out, followed
// by the certificate of their authority.
func ServeFloor(in io.ReadCloser, out io.WriteCloser) error {
	cert, authority, err := floorCertificate()
	if err != nil {
		return err
	}
	answer := func(w http.ResponseWriter, req *http.Request) {
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(floorAnswer) // the client notices a short answer
	}
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.POST("/api/fleet/agents/:id/checkin", func(c *gin.Context) { answer(c.Writer, c.Request) })
	var all errgroup.Group
	for _, handler := range []http.Handler{http.HandlerFunc(answer), engine} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		fmt.Fprintln(out, l.Addr())
		s := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
		all.Go(func() error {
			return s.Serve(tls.NewListener(l, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}}))
		})
		go func() {
			_, _ = io.Copy(io.Discard, in)
			_ = s.Close()
		}()
	}
	if err := pem.Encode(out, &pem.Block{Type: "CERTIFICATE", Bytes: authority}); err != nil {
		return err
	}
	if err := all.Wait(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// floorCertificate returns a certificate like those of Muster's own authority: ECDSA on
// P-256, in a chain with the authority's certificate, which it also returns in DER.
func floorCertificate() (cert tls.Certificate, authority []byte, err error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return cert, nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return cert, nil, err
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(MaxRun),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	if authority, err = x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey); err != nil {
		return cert, nil, err
	}
	if ca, err = x509.ParseCertificate(authority); err != nil {
		return cert, nil, err
	}
	leaf, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{"localhost"}, NotAfter: ca.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, ca, key.Public(), caKey)
	return tls.Certificate{Certificate: [][]byte{leaf, authority}, PrivateKey: key}, authority, err
}

// bareServer is a process that runs ServeFloor.
type bareServer struct {
	process       *exec.Cmd
	stop          context.CancelFunc
	plain, routed string // addresses of net/http alone and of gin
	roots         *x509.CertPool
}

func (r *run) startBareServer(ctx context.Context) (*bareServer, error) {
	ctx, stop := context.WithCancel(ctx)
	b := &bareServer{process: exec.CommandContext(ctx, r.Program, FloorSubcommand), stop: stop, roots: x509.NewCertPool()}
	b.process.Stderr = os.Stderr
	out, err := b.process.StdoutPipe()
	if err == nil {
		_, err = b.process.StdinPipe() // the pipe closes when this process ends
	}
	if err == nil {
		err = b.process.Start()
	}
	if err != nil {
		stop()
		return nil, fmt.Errorf("start a bare server: %w", err)
	}
	lines := bufio.NewScanner(out)
	var text bytes.Buffer
	for lines.Scan() {
		switch line := lines.Text(); {
		case b.plain == "":
			b.plain = line
		case b.routed == "":
			b.routed = line
		default:
			text.WriteString(line + "\n")
		}
		if strings.HasPrefix(lines.Text(), "-----END") {
			break
		}
	}
	if !b.roots.AppendCertsFromPEM(text.Bytes()) {
		b.close()
		return nil, errors.New("start a bare server: it wrote no address or certificate")
	}
	return b, nil
}

func (b *bareServer) close() {
	b.stop()
	_ = b.process.Wait() // it has been killed
}

func (b *bareServer) usage() sample { return usage([]int{b.process.Process.Pid}) }

// dial connects with a full handshake, since it has no session cache.
func (b *bareServer) dial(ctx context.Context, address string) (net.Conn, error) {
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: singleTimeout}, Config: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: b.roots, ServerName: "localhost"}}
	return d.DialContext(ctx, "tcp", address)
}

// bareRequest is as long as a check-in.
var bareRequest = fmt.Appendf(nil, "POST /api/fleet/agents/5c7c9b5e-6a3f-4f0e-9a53-6a3f4f0e9a53/checkin HTTP/1.1\r\nHost: localhost\r\nAuthorization: ApiKey %s\r\n"+
	"Content-Type: application/json\r\nUser-Agent: muster-agent\r\nContent-Length: 1000\r\n\r\n%s", strings.Repeat("k", 60), strings.Repeat("x", 1000))

// ask sends one request and reads the answer.
func ask(c net.Conn, answers *bufio.Reader) error {
	if _, err := c.Write(bareRequest); err != nil {
		return err
	}
	resp, err := http.ReadResponse(answers, nil)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
	}
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return err
}

// floor measures what a connection and an answer cost on this machine without Muster: a
// bare server does not authenticate, decode or park. It is the reference for comparing
// runs on different machines or at different times.
func (r *run) floor(ctx context.Context) error {
	return r.onBareServer(ctx, r.bareConnections, r.bareAnswers)
}

// onBareServer starts a bare server, calls measure, and stops the server.
func (r *run) onBareServer(ctx context.Context, measure ...func(context.Context, *bareServer) error) error {
	b, err := r.startBareServer(ctx)
	if err != nil {
		return err
	}
	defer b.close()
	for _, f := range measure {
		if err := f(ctx, b); err != nil {
			return fmt.Errorf("the bare server: %w", err)
		}
	}
	return nil
}

// bareConnections measures new connections with one request each, at the rate at which
// park connects the agents. As in park, all connections stay open until the last one is
// answered.
func (r *run) bareConnections(ctx context.Context, b *bareServer) error {
	n := min(r.Agents, floorConnections)
	r.logf("%d connections to a bare server, %.0f a second …", n, r.Ramp)
	conns := make([]net.Conn, n)
	defer func() {
		for _, c := range conns {
			if c != nil {
				_ = c.Close()
			}
		}
	}()
	before := b.usage()
	all, dialing := errgroup.WithContext(ctx)
	all.SetLimit(r.Dials)
	for i := range conns {
		if err := sleep(dialing, time.Duration(float64(i)/r.Ramp*float64(time.Second))-generator.Now().Sub(before.at)); err != nil {
			break // all.Wait or ctx has the reason
		}
		all.Go(func() error {
			c, err := b.dial(dialing, b.plain)
			if err != nil {
				return err
			}
			conns[i] = c
			if err := c.SetDeadline(time.Now().Add(singleTimeout)); err != nil {
				return err
			}
			return ask(c, bufio.NewReader(c))
		})
	}
	if err := errors.Join(all.Wait(), ctx.Err()); err != nil {
		return err
	}
	if cpu := b.usage().cpu - before.cpu; cpu > 0 {
		r.bareConnection = cpu / time.Duration(n)
		r.addDuration("floor", "server CPU per bare TLS connection with one request", r.bareConnection)
	}
	return nil
}

// bareAnswers measures requests on open connections.
func (r *run) bareAnswers(ctx context.Context, b *bareServer) error {
	end := time.Now().Add(r.warm() + r.Hold)
	var answered atomic.Int64
	all, asking := errgroup.WithContext(ctx)
	for range closedLoop {
		all.Go(func() error {
			c, err := b.dial(asking, b.routed)
			if err != nil {
				return err
			}
			defer c.Close()
			if err := c.SetDeadline(end.Add(singleTimeout)); err != nil {
				return err
			}
			answers := bufio.NewReader(c)
			for time.Now().Before(end) && asking.Err() == nil {
				if err := ask(c, answers); err != nil {
					return err
				}
				answered.Add(1)
			}
			return nil
		})
	}
	err := sleep(ctx, r.warm())
	n, before := -answered.Load(), b.usage()
	if err == nil {
		err = sleep(ctx, r.Hold)
	}
	n, after := n+answered.Load(), b.usage()
	if err = errors.Join(err, all.Wait()); err != nil {
		return err
	}
	r.add("floor", "bare answers", PerSecond, float64(n)/after.at.Sub(before.at).Seconds())
	if cpu := after.cpu - before.cpu; cpu > 0 && n > 0 {
		r.add("floor", "bare answers, per server core", PerSecond, float64(n)/cpu.Seconds())
		r.addDuration("floor", "server CPU per bare answer", cpu/time.Duration(n))
	}
	return nil
}
