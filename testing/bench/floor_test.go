//go:build linux

package bench

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
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
)

// floorServer makes this program the server of BenchmarkFloor.
const floorServer = "MUSTER_BENCH_FLOOR_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(floorServer) != "" {
		if err := serveFloor(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// floorAnswer is as long as the answer to a check-in without actions.
var floorAnswer = []byte(`{"ack_token":"","action":"checkin","actions":[]}`)

// serveFloor is a server that does nothing but read a request of gin's over TLS and
// answer it, until its input ends. It says where, and by which certificate.
func serveFloor() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	if err := pem.Encode(os.Stdout, &pem.Block{Type: "CERTIFICATE", Bytes: der}); err != nil {
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
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = s.Close()
	}()
	err = s.Serve(tls.NewListener(l, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}))
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// BenchmarkFloor measures what a check-in costs this machine before Muster does
// anything for it: the processor time of a server of gin's that answers each request
// at once, over 64 connections with TLS 1.3, a client beside it in another process.
// It authenticates nobody, decodes nothing and parks nothing. Goals that were set on
// another machine are read beside it.
func BenchmarkFloor(b *testing.B) {
	const connections = 64
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	server := exec.CommandContext(ctx, os.Args[0])
	server.Env = append(os.Environ(), floorServer+"=1")
	server.Stderr = os.Stderr
	said, err := server.StdoutPipe()
	if err == nil {
		_, err = server.StdinPipe() // it ends with this process
	}
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		stop()
		_ = server.Wait()
	}()
	in := bufio.NewReader(said)
	address, err := in.ReadString('\n')
	var text bytes.Buffer
	for err == nil && !strings.Contains(text.String(), "END CERTIFICATE") {
		var line string
		line, err = in.ReadString('\n')
		text.WriteString(line)
	}
	roots := x509.NewCertPool()
	if err != nil || !roots.AppendCertsFromPEM(text.Bytes()) {
		b.Fatalf("the server has not said where it is: %v", err)
	}
	clients := make([]*tls.Conn, connections)
	for i := range clients {
		d := tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, ServerName: "localhost"}}
		c, err := d.DialContext(ctx, "tcp", strings.TrimSpace(address))
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		clients[i] = c.(*tls.Conn)
	}
	body := strings.Repeat("x", 1000)
	request := fmt.Appendf(nil, "POST /api/fleet/agents/5c7c9b5e-6a3f-4f0e-9a53-6a3f4f0e9a53/checkin HTTP/1.1\r\nHost: localhost\r\nAuthorization: ApiKey %s\r\n"+
		"Content-Type: application/json\r\nUser-Agent: muster-agent\r\nContent-Length: %d\r\n\r\n%s", strings.Repeat("k", 60), len(body), body)

	before := cpu(b, server.Process.Pid)
	var left atomic.Int64
	left.Store(int64(b.N))
	var all sync.WaitGroup
	b.ResetTimer()
	for _, c := range clients {
		all.Go(func() {
			answers := bufio.NewReader(c)
			for left.Add(-1) >= 0 {
				if _, err := c.Write(request); err != nil {
					b.Error(err)
					return
				}
				resp, err := http.ReadResponse(answers, nil)
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
				}
				if err != nil || resp.StatusCode != http.StatusOK {
					b.Errorf("answered %v: %v", resp, err)
					return
				}
			}
		})
	}
	all.Wait()
	b.StopTimer()
	used := cpu(b, server.Process.Pid) - before
	b.ReportMetric(float64(used.Microseconds())/float64(b.N), "server-µs/op")
	b.ReportMetric(float64(b.N)/used.Seconds(), "per-server-core/s")
}
