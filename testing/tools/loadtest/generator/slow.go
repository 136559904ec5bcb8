//go:build linux

package generator

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"sync"
	"time"
)

// SlowArgs are the numbers of slow connections by kind, and how long they are kept open.
type SlowArgs struct {
	// Trickle connections send a request byte by byte, HalfOpen ones send nothing,
	// Unread ones send many requests and read no answer.
	Trickle, HalfOpen, Unread int
	For                       time.Duration
}

// SlowReply is the result of Slow.
type SlowReply struct {
	// Opened counts established connections, Closed those that the server closed.
	Opened, Closed int
}

const (
	// trickleEvery is shorter than most servers' limit between two bytes.
	trickleEvery = 500 * time.Millisecond
	// unreadRequests have answers that fill the socket buffers of a client that does not
	// read.
	unreadRequests = 2000
)

// Slow keeps slow connections open beside the agents for args.For.
func (s *Service) Slow(args SlowArgs, reply *SlowReply) error {
	ctx, cancel := context.WithTimeout(s.g.ctx, args.For)
	defer cancel()
	var (
		mu    sync.Mutex
		conns sync.WaitGroup
	)
	kinds := slices.Concat(slices.Repeat([]func(context.Context, net.Conn, string) bool{trickle}, args.Trickle),
		slices.Repeat([]func(context.Context, net.Conn, string) bool{halfOpen}, args.HalfOpen),
		slices.Repeat([]func(context.Context, net.Conn, string) bool{unread}, args.Unread))
	for i, f := range kinds {
		conns.Go(func() {
			d := net.Dialer{LocalAddr: localAddr(s.g.First+i, s.g.loopback), Timeout: dialTimeout}
			raw, err := d.DialContext(ctx, "tcp", s.g.address)
			if err != nil {
				return
			}
			defer raw.Close()
			defer context.AfterFunc(ctx, func() { raw.Close() })()
			conn := raw
			if i < args.Trickle || i >= args.Trickle+args.HalfOpen {
				secure := tls.Client(raw, s.g.tls)
				if secure.HandshakeContext(ctx) != nil {
					return
				}
				conn = secure
			}
			mu.Lock()
			reply.Opened++
			mu.Unlock()
			ended := f(ctx, conn, s.g.host)
			mu.Lock()
			defer mu.Unlock()
			if ended && ctx.Err() == nil {
				reply.Closed++
			}
		})
	}
	conns.Wait()
	return nil
}

// request returns a request with an unknown key.
func request(host string) []byte {
	return appendRequest(nil, requestHead{host, "1.0.0", "c2xvdzpzbG93", "00000000-0000-4000-8000-000000000000", callCheckin, 0}, 0)
}

func trickle(ctx context.Context, conn net.Conn, host string) (ended bool) {
	for _, c := range request(host) {
		if _, err := conn.Write([]byte{c}); err != nil {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(trickleEvery):
		}
	}
	return false
}

func halfOpen(_ context.Context, conn net.Conn, _ string) (ended bool) {
	_, err := conn.Read(make([]byte, 1))
	return err != nil
}

func unread(ctx context.Context, conn net.Conn, host string) (ended bool) {
	req := request(host)
	for range unreadRequests {
		if _, err := conn.Write(req); err != nil {
			return true
		}
	}
	<-ctx.Done()
	return false
}
