package attack_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app"
	"github.com/muster-fleet/muster/server/app/apptest"
)

// attacker is the address that floods come from. The agents of apptest are at 127.0.0.1.
const attacker = "127.0.0.66"

func from(ip string) *net.Dialer {
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}, Timeout: apptest.WaitLimit}
}

func hostOf(t *testing.T, base string) string {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// secured connects with TLS and HTTP/1.1, from an address.
func secured(t *testing.T, s *apptest.Server, ip, base string) (*tls.Conn, error) {
	config := s.Client.Transport.(*http.Transport).TLSClientConfig.Clone()
	config.NextProtos = []string{"http/1.1"}
	c, err := (&tls.Dialer{NetDialer: from(ip), Config: config}).DialContext(t.Context(), "tcp", hostOf(t, base))
	if err != nil {
		return nil, err
	}
	return c.(*tls.Conn), c.SetDeadline(time.Now().Add(apptest.WaitLimit))
}

func limits(t testing.TB, s *apptest.Server) adminapi.ServerLimits {
	t.Helper()
	return *apptest.Decode[adminapi.KibanaStatus](t, s.Admin(http.MethodGet, "/api/status", nil)).Limits
}

const (
	// silentPerSecond connections come from one host, for silentFor: many more than there
	// are places for handshakes.
	silentPerSecond = 150
	silentFor       = 4 * time.Second
	// handshakeGoal is what a new agent's handshake may take meanwhile.
	handshakeGoal = time.Second
)

// One host opens connections and sends nothing, or the first byte of a handshake and then
// nothing. New agents are served all the time.
func TestSilentConnectionsDoNotLockAgentsOut(t *testing.T) {
	for name, text := range map[string]string{"silent": "", "stopped handshake": "\x16"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := apptest.Start(t)
			agents := hostOf(t, s.AgentURL)
			ctx, cancel := context.WithTimeout(t.Context(), silentFor)
			defer cancel()
			flood := make(chan struct{})
			var opened []net.Conn
			go func() {
				defer close(flood)
				for tick := time.NewTicker(time.Second / silentPerSecond); ctx.Err() == nil; <-tick.C {
					c, err := from(attacker).DialContext(ctx, "tcp", agents)
					if err == nil {
						opened = append(opened, c)
						_, _ = io.WriteString(c, text) // the server may have closed it
					}
				}
			}()
			defer func() {
				<-flood
				for _, c := range opened {
					c.Close()
				}
			}()
			time.Sleep(silentFor / 4) // the flood has taken what it can
			var took []time.Duration
			for tick := time.NewTicker(25 * time.Millisecond); ctx.Err() == nil; <-tick.C {
				begun := time.Now()
				c, err := secured(t, s, "127.0.0.1", s.AgentURL)
				if err != nil {
					t.Fatalf("after %d handshakes: %v", len(took), err)
				}
				took = append(took, time.Since(begun))
				c.Close()
			}
			slices.Sort(took)
			if p99 := took[len(took)*99/100]; p99 > handshakeGoal {
				t.Errorf("the p99 of %d handshakes is %s", len(took), p99)
			}
			<-flood
			if len(opened) < int(silentFor.Seconds())*silentPerSecond/2 {
				t.Errorf("only %d connections were opened", len(opened))
			}
		})
	}
}

// The admin API shares the process's files with agents: its connections are bounded, and one
// host leaves some for operators.
func TestSilentConnectionsDoNotLockOperatorsOut(t *testing.T) {
	const silent = 500
	s := apptest.Start(t)
	closed := make(chan struct{}, silent)
	for range silent {
		c, err := from(attacker).DialContext(t.Context(), "tcp", hostOf(t, s.AdminURL))
		if err != nil { // reset at once
			closed <- struct{}{}
			continue
		}
		defer c.Close()
		go func() {
			_, _ = c.Read(make([]byte, 1))
			closed <- struct{}{}
		}()
	}
	beforeTimeout := time.After(3 * time.Second) // net/http closes silent connections after five
	for range silent / 2 {                       // at least these are beyond its share
		select {
		case <-closed:
		case <-beforeTimeout:
			t.Fatal("one host has all the connections that it wants")
		}
	}
	c, err := secured(t, s, "127.0.0.1", s.AdminURL)
	if err != nil {
		t.Fatalf("an operator cannot connect: %v", err)
	}
	defer c.Close()
}

const (
	// strangerRequests send strangerBody each: together more than the memory for bodies,
	// of 32 MiB in this test.
	strangerRequests = 600
	strangerBody     = 64 << 10
)

// Strangers begin requests with bodies that never end, without a key or with one that is
// not valid. They are refused before their bodies are read, and take nothing from agents.
func TestBodiesOfStrangersTakeNoMemoryOfAgents(t *testing.T) {
	s := apptest.Start(t, func(o *app.Options) { o.Config.Limits.MemoryBytes = 256 << 20 })
	agent := s.Enroll("web-01", "1.0.0")
	const unknown = "Authorization: ApiKey aWQ6c2VjcmV0\r\n" // id:secret
	body := strings.Repeat("x", strangerBody)
	var (
		senders sync.WaitGroup
		refused atomic.Int64
		started = make(chan struct{}, strangerRequests)
	)
	for i := range strangerRequests {
		call := []string{agent.Path("checkin"), agent.Path("acks"), agent.Path("beacon"), "/api/fleet/agents/enroll"}[i%4]
		key := []string{"", unknown}[i/4%2]
		senders.Go(func() {
			begun := sync.OnceFunc(func() { started <- struct{}{} })
			defer begun()
			c, err := secured(t, s, attacker, s.AgentURL)
			if err != nil {
				return // it has its share of the connections
			}
			defer c.Close()
			fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n%s", call, key, 2*strangerBody, body)
			begun()
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Errorf("a stranger is not answered: %v", err)
				return
			}
			defer resp.Body.Close()
			switch resp.StatusCode {
			case http.StatusUnauthorized, http.StatusBadRequest:
				refused.Add(1)
			case http.StatusTooManyRequests: // more wait than its source's share
			default:
				t.Errorf("a stranger got %s", resp.Status)
			}
			// The server does not wait for the rest of the body.
			wait := time.Now()
			if _, err := io.Copy(io.Discard, c); errors.Is(err, context.DeadlineExceeded) || time.Since(wait) > apptest.WaitLimit/2 {
				t.Errorf("the connection of a refused stranger stays open: %v", err)
			}
		})
	}
	for range strangerRequests / 2 {
		<-started
	}
	long := `{"events":[]}` + strings.Repeat(" ", 300<<10)
	for range 20 {
		got := s.Agents(http.MethodPost, agent.Path("acks"), agent.Key, long)
		if got.Status != http.StatusOK {
			t.Errorf("an agent got %d: %s", got.Status, got.Body)
		}
	}
	senders.Wait()
	if refused.Load() < strangerRequests/2 {
		t.Errorf("only %d strangers were refused", refused.Load())
	}
	if got := limits(t, s).BodyBytes; got.Limited != 0 || got.Used != 0 {
		t.Errorf("the memory for bodies is %+v", got)
	}
}
