//go:build linux

package generator

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// h2Conn is the connection of an agent that speaks HTTP/2. It uses the standard
// library's client, which costs a goroutine and many times the memory.
type h2Conn struct {
	client *http.Client
	url    string
	ctx    context.Context //nolint:containedctx // canceled by close
	stop   context.CancelFunc
}

func newH2(g *Generator, a *agent) *h2Conn {
	config := g.tls.Clone()
	config.ClientSessionCache = nil // a ticket is for one protocol
	d := net.Dialer{LocalAddr: localAddr(a.number, g.loopback), Timeout: dialTimeout}
	// HTTP/2 alone: a server that is offered both takes HTTP/1.1.
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	l := &h2Conn{
		client: &http.Client{Transport: &http.Transport{TLSClientConfig: config, Protocols: protocols, DialContext: d.DialContext, TLSHandshakeTimeout: dialTimeout}},
		url:    g.Server,
	}
	l.ctx, l.stop = context.WithCancel(g.ctx)
	return l
}

func (c *h2Conn) close() {
	if c != nil {
		c.stop()
		c.client.CloseIdleConnections()
	}
}

// post sends a request in a goroutine of its own, and passes the answer to the loop.
func (c *h2Conn) post(l *loop, a *agent, call string, body []byte) {
	generation, path, key, version := a.generation, pathBeforeID+a.id+"/"+call, a.key, l.generator.Version
	l.generator.running.Go(func() {
		ans, err := c.do(path, key, version, body)
		l.do(func() {
			switch {
			case a.generation != generation:
			case err != nil:
				l.connectionLost(a)
			default:
				l.handleAnswer(a, ans)
			}
		})
	})
}

func (c *h2Conn) do(path, key, version string, body []byte) (answer, error) {
	req, err := http.NewRequestWithContext(c.ctx, http.MethodPost, c.url+path, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Authorization", "ApiKey "+key)
	req.Header.Set("User-Agent", "Elastic Agent v"+version)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(agentapi.HeaderAPIVersion, agentapi.APIVersion)
	resp, err := c.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	ans := answer{status: resp.StatusCode, retryAfter: -1}
	if resp.ProtoMajor != 2 {
		return ans, errors.New("the server does not speak HTTP/2")
	}
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s >= 0 {
		ans.retryAfter = min(time.Duration(s)*time.Second, maxRetryAfter)
	}
	ans.body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return ans, err
}
