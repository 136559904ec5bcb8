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
)

// FloorCommand is what Options.Program is started with to be a bare server: it calls
// ServeFloor.
const FloorCommand = "floor-server"

// floorAnswer is as long as the answer to a check-in without actions.
var floorAnswer = []byte(`{"ack_token":"","action":"checkin","actions":[]}`)

// ServeFloor is a server that does nothing but read a request of gin's over TLS and
// answer it, until in ends. It says on out where, and by which certificate.
func ServeFloor(in io.ReadCloser, out io.WriteCloser) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, NotAfter: time.Now().Add(MaxRun)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintln(out, l.Addr())
	if err := pem.Encode(out, &pem.Block{Type: "CERTIFICATE", Bytes: der}); err != nil {
		return err
	}
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.POST("/api/fleet/agents/:id/checkin", func(c *gin.Context) {
		if _, err := io.Copy(io.Discard, c.Request.Body); err != nil {
			c.Status(http.StatusBadRequest)
			return
		}
		c.Data(http.StatusOK, "application/json", floorAnswer)
	})
	s := &http.Server{Handler: engine, ReadHeaderTimeout: time.Minute}
	go func() {
		_, _ = io.Copy(io.Discard, in)
		_ = s.Close()
	}()
	err = s.Serve(tls.NewListener(l, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}))
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// floor measures what a check-in costs this machine before Muster does anything for
// it: a bare server authenticates nobody, decodes nothing and parks nothing. Goals that
// were set on another machine are read beside it.
func (r *run) floor(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	server := exec.CommandContext(ctx, r.Program, FloorCommand)
	server.Stderr = os.Stderr
	said, err := server.StdoutPipe()
	if err == nil {
		_, err = server.StdinPipe() // it ends with this process
	}
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		return fmt.Errorf("start a bare server: %w", err)
	}
	defer func() {
		stop()
		_ = server.Wait() // it has been killed
	}()
	clients, err := floorClients(ctx, bufio.NewReader(said))
	if err != nil {
		return fmt.Errorf("connect to the bare server: %w", err)
	}
	body := strings.Repeat("x", 1000)
	request := fmt.Appendf(nil, "POST /api/fleet/agents/5c7c9b5e-6a3f-4f0e-9a53-6a3f4f0e9a53/checkin HTTP/1.1\r\nHost: localhost\r\nAuthorization: ApiKey %s\r\n"+
		"Content-Type: application/json\r\nUser-Agent: muster-agent\r\nContent-Length: %d\r\n\r\n%s", strings.Repeat("k", 60), len(body), body)

	var answered atomic.Int64
	end := time.Now().Add(r.warm() + r.Hold)
	var all errgroup.Group
	for _, c := range clients {
		all.Go(func() error {
			defer c.Close()
			if err := c.SetDeadline(end.Add(singleTimeout)); err != nil {
				return err
			}
			answers := bufio.NewReader(c)
			for time.Now().Before(end) && ctx.Err() == nil {
				if _, err := c.Write(request); err != nil {
					return err
				}
				resp, err := http.ReadResponse(answers, nil)
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
				}
				if err == nil && resp.StatusCode != http.StatusOK {
					err = errors.New(resp.Status)
				}
				if err != nil {
					return err
				}
				answered.Add(1)
			}
			return nil
		})
	}
	pids := []int{server.Process.Pid}
	err = sleep(ctx, r.warm())
	n, before := -answered.Load(), usage(pids)
	if err == nil {
		err = sleep(ctx, r.Hold)
	}
	n, after := n+answered.Load(), usage(pids)
	if err = errors.Join(err, all.Wait()); err != nil {
		return fmt.Errorf("ask the bare server: %w", err)
	}
	r.add("floor", "bare answers", PerSecond, float64(n)/after.at.Since(before.at).Seconds())
	if cpu := after.cpu - before.cpu; cpu > 0 && n > 0 {
		r.add("floor", "bare answers, per server core", PerSecond, float64(n)/cpu.Seconds())
		r.took("floor", "server CPU per bare answer", cpu/time.Duration(n))
	}
	return nil
}

// floorClients connects to the server that says where it is, as often as agents go
// round in the closed loops.
func floorClients(ctx context.Context, said *bufio.Reader) ([]net.Conn, error) {
	address, err := said.ReadString('\n')
	var text bytes.Buffer
	for err == nil && !strings.Contains(text.String(), "END CERTIFICATE") {
		var line string
		line, err = said.ReadString('\n')
		text.WriteString(line)
	}
	roots := x509.NewCertPool()
	if err != nil || !roots.AppendCertsFromPEM(text.Bytes()) {
		return nil, fmt.Errorf("it has not said where it is: %w", errors.Join(err, io.ErrUnexpectedEOF))
	}
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: singleTimeout}, Config: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, ServerName: "localhost"}}
	clients := make([]net.Conn, spinners)
	for i := range clients {
		if clients[i], err = d.DialContext(ctx, "tcp", strings.TrimSpace(address)); err != nil {
			for _, c := range clients[:i] {
				_ = c.Close()
			}
			return nil, err
		}
	}
	return clients, nil
}
