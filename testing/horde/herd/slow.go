//go:build linux

package herd

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"sync"
	"time"
)

// SlowArgs are links on which a server must not wait for long, and how long they
// are kept up.
type SlowArgs struct {
	// Trickle send a request byte by byte, HalfOpen connect and say nothing, Mute
	// ask again and again and read no answer.
	Trickle, HalfOpen, Mute int
	For                     time.Duration
}

// SlowReply tells what became of them.
type SlowReply struct {
	// Opened are links that stood, Closed those that the server ended in time.
	Opened, Closed int
}

const (
	// trickleEvery is below what most servers wait for a byte.
	trickleEvery = 500 * time.Millisecond
	// muteRequests fill the socket of a client that does not read.
	muteRequests = 2000
)

// Slow keeps up slow links, beside the agents, for the time given.
func (s *Service) Slow(args SlowArgs, reply *SlowReply) error {
	ctx, cancel := context.WithTimeout(s.h.ctx, args.For)
	defer cancel()
	var (
		mu    sync.Mutex
		links sync.WaitGroup
	)
	kinds := slices.Concat(slices.Repeat([]func(context.Context, net.Conn, string) bool{trickle}, args.Trickle),
		slices.Repeat([]func(context.Context, net.Conn, string) bool{halfOpen}, args.HalfOpen),
		slices.Repeat([]func(context.Context, net.Conn, string) bool{mute}, args.Mute))
	for i, f := range kinds {
		links.Go(func() {
			d := net.Dialer{LocalAddr: localAddr(s.h.First+i, s.h.loopback), Timeout: dialTimeout}
			raw, err := d.DialContext(ctx, "tcp", s.h.address)
			if err != nil {
				return
			}
			defer raw.Close()
			defer context.AfterFunc(ctx, func() { raw.Close() })()
			conn := raw
			if i < args.Trickle || i >= args.Trickle+args.HalfOpen {
				secure := tls.Client(raw, s.h.tls)
				if secure.HandshakeContext(ctx) != nil {
					return
				}
				conn = secure
			}
			mu.Lock()
			reply.Opened++
			mu.Unlock()
			ended := f(ctx, conn, s.h.host)
			mu.Lock()
			defer mu.Unlock()
			if ended && ctx.Err() == nil {
				reply.Closed++
			}
		})
	}
	links.Wait()
	return nil
}

// request is one of somebody without a key.
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

func mute(ctx context.Context, conn net.Conn, host string) (ended bool) {
	req := request(host)
	for range muteRequests {
		if _, err := conn.Write(req); err != nil {
			return true
		}
	}
	<-ctx.Done()
	return false
}
