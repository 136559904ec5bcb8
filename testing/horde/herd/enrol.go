//go:build linux

package herd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/muster-fleet/muster/server/agentapi"
)

const (
	// enrolTimeout bounds one request of an enrolment, as the agent does.
	enrolTimeout = 30 * time.Second
	// enrolTries bounds how often a host that is told to come later does so.
	enrolTries = 100
)

// EnrolArgs say how many hosts enrol, and how many of them at the same time.
type EnrolArgs struct{ Count, Workers int }

// EnrolReply tells how long each enrolment took that was accepted, on connections
// that stand, and all of them.
type EnrolReply struct {
	Latency  Latency
	From, To Instant
	// Limited are answers of 429; Failures must not happen.
	Limited, Failures int
	Texts             []string
}

// Enrol adds agents to the herd. They do not connect yet.
func (s *Service) Enrol(args EnrolArgs, reply *EnrolReply) error {
	if args.Count < 1 || args.Workers < 1 {
		return fmt.Errorf("enrol: %d agents by %d workers, want at least 1", args.Count, args.Workers)
	}
	h := s.h
	var (
		mu      sync.Mutex
		workers sync.WaitGroup
	)
	first := h.First + h.enrolled
	jobs := make(chan int, args.Count)
	for n := range args.Count {
		jobs <- first + n
	}
	close(jobs)
	enrolled := make([]*agent, args.Count)
	reply.From = Now()
	for w := range min(args.Workers, args.Count) {
		workers.Go(func() {
			e := h.newEnroller(w)
			defer e.client.CloseIdleConnections()
			for n := range jobs {
				a, took, limited, err := e.enrol(n)
				mu.Lock()
				reply.Limited += limited
				if err != nil {
					reply.Failures++
					reply.Texts = join(reply.Texts, []string{err.Error()})
				} else {
					reply.Latency.Add(took)
					h.enrolling.Add(1)
					enrolled[n-first] = a
				}
				mu.Unlock()
				if h.ctx.Err() != nil {
					return
				}
			}
		})
	}
	workers.Wait()
	reply.To = Now()
	reply.Latency.pack()
	if reply.Failures > 0 {
		return nil
	}
	if h.ctx.Err() != nil {
		return h.ctx.Err()
	}
	for _, a := range enrolled {
		l := h.loops[a.number%len(h.loops)]
		l.ask(func() {
			a.slot = len(l.agents)
			l.agents = append(l.agents, a)
		})
	}
	h.enrolled += len(enrolled)
	return nil
}

// enroller enrols one host after the other, on one connection.
type enroller struct {
	h      *Herd
	url    string
	client *http.Client
}

func (h *Herd) newEnroller(worker int) *enroller {
	d := net.Dialer{LocalAddr: localAddr(h.First+worker, h.loopback), Timeout: dialTimeout}
	return &enroller{h, h.Server + agentapi.PathEnroll, &http.Client{Timeout: enrolTimeout, Transport: &http.Transport{
		TLSClientConfig: h.tls.Clone(), DialContext: d.DialContext, MaxIdleConnsPerHost: 1, TLSHandshakeTimeout: dialTimeout,
	}}}
}

func (e *enroller) enrol(number int) (a *agent, took time.Duration, limited int, err error) {
	h := e.h
	a = &agent{number: number, host: fmt.Sprintf("host-%06d", number)}
	body, err := json.Marshal(agentapi.EnrollRequest{
		Type: "PERMANENT", Metadata: agentapi.EnrollMetadata{Local: h.says.metadata(a.host), Tags: h.Tags},
	})
	if err != nil {
		return nil, 0, 0, err
	}
	for range enrolTries {
		began := time.Now()
		resp, err := e.post(body)
		if err != nil {
			return nil, 0, limited, fmt.Errorf("enrol %s: %w", a.host, err)
		}
		text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		resp.Body.Close()
		took = time.Since(began)
		switch {
		case err != nil:
			return nil, 0, limited, fmt.Errorf("enrol %s: %w", a.host, err)
		case resp.StatusCode == http.StatusTooManyRequests:
			limited++
			seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
			if err != nil {
				return nil, 0, limited, fmt.Errorf("enrol %s: 429 without Retry-After", a.host)
			}
			select {
			case <-time.After(min(time.Duration(seconds)*time.Second, maxRetryAfter)):
			case <-h.ctx.Done():
				return nil, 0, limited, h.ctx.Err()
			}
			continue
		case resp.StatusCode != http.StatusOK:
			return nil, 0, limited, fmt.Errorf("enrol %s: answered %d: %s", a.host, resp.StatusCode, clip(text))
		}
		var got agentapi.EnrollResponse
		if err := json.NewDecoder(bytes.NewReader(text)).Decode(&got); err != nil || got.Item.ID == "" || got.Item.AccessAPIKey == "" {
			return nil, 0, limited, fmt.Errorf("enrol %s: the answer has no agent: %q", a.host, clip(text))
		}
		a.id, a.key = got.Item.ID, got.Item.AccessAPIKey
		return a, took, limited, nil
	}
	return nil, 0, limited, fmt.Errorf("enrol %s: told to come later %d times", a.host, enrolTries)
}

// post is bounded by the client's own limit.
func (e *enroller) post(body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(e.h.ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "ApiKey "+e.h.Token)
	req.Header.Set("User-Agent", "Elastic Agent v"+e.h.Version)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(agentapi.HeaderAPIVersion, agentapi.APIVersion)
	return e.client.Do(req)
}
