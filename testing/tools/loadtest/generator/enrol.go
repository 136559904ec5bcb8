//go:build linux

package generator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

const (
	// enrolTimeout bounds one request; a real agent has the same limit.
	enrolTimeout = 30 * time.Second
	// enrolTries bounds how often a host tries again after a 429.
	enrolTries = 100
)

// EnrolArgs are how many hosts enrol, and how many of them at the same time.
type EnrolArgs struct{ Count, Workers int }

// EnrolReply is the result of Enrol.
type EnrolReply struct {
	// Latency is the time of each accepted request, on connections that are already
	// open. From and To are the start and the end of them all.
	Latency  Latency
	From, To MonoTime
	// Limited counts answers of 429. Failures counts what must never happen.
	Limited, Failures int
	Texts             []string
}

// Enrol adds agents to the generator. They do not connect yet.
func (s *Service) Enrol(args EnrolArgs, reply *EnrolReply) error {
	if args.Count < 1 || args.Workers < 1 {
		return fmt.Errorf("enrol: %d agents by %d workers, want at least 1", args.Count, args.Workers)
	}
	g := s.g
	var (
		mu      sync.Mutex
		workers sync.WaitGroup
	)
	first := g.First + g.enrolled
	jobs := make(chan int, args.Count)
	for n := range args.Count {
		jobs <- first + n
	}
	close(jobs)
	enrolled := make([]*agent, args.Count)
	reply.From = Now()
	for w := range min(args.Workers, args.Count) {
		workers.Go(func() {
			e := g.newEnroller(w)
			defer e.client.CloseIdleConnections()
			for n := range jobs {
				a, took, limited, err := e.enrol(n)
				mu.Lock()
				reply.Limited += limited
				if err != nil {
					reply.Failures++
					reply.Texts = appendTexts(reply.Texts, []string{err.Error()})
				} else {
					reply.Latency.Add(took)
					g.enrolling.Add(1)
					enrolled[n-first] = a
				}
				mu.Unlock()
				if g.ctx.Err() != nil {
					return
				}
			}
		})
	}
	workers.Wait()
	reply.To = Now()
	reply.Latency.export()
	if reply.Failures > 0 {
		return nil
	}
	if g.ctx.Err() != nil {
		return g.ctx.Err()
	}
	for _, a := range enrolled {
		l := g.loops[a.number%len(g.loops)]
		l.doAndWait(func() {
			a.slot = len(l.agents)
			l.agents = append(l.agents, a)
		})
	}
	g.enrolled += len(enrolled)
	return nil
}

// enroller enrols hosts one after the other over one connection.
type enroller struct {
	g      *Generator
	url    string
	client *http.Client
}

func (g *Generator) newEnroller(worker int) *enroller {
	d := net.Dialer{LocalAddr: localAddr(g.First+worker, g.loopback), Timeout: dialTimeout}
	return &enroller{g, g.Server + agentapi.PathEnroll, &http.Client{Timeout: enrolTimeout, Transport: &http.Transport{
		TLSClientConfig: g.tls.Clone(), DialContext: d.DialContext, MaxIdleConnsPerHost: 1, TLSHandshakeTimeout: dialTimeout,
	}}}
}

func (e *enroller) enrol(number int) (a *agent, took time.Duration, limited int, err error) {
	g := e.g
	a = &agent{number: number, host: fmt.Sprintf("host-%06d", number)}
	body, err := json.Marshal(agentapi.EnrollRequest{
		Type: "PERMANENT", Metadata: agentapi.EnrollMetadata{Local: g.template.metadata(a.host), Tags: g.Tags},
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
			case <-g.ctx.Done():
				return nil, 0, limited, g.ctx.Err()
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
		if err := e.ackPolicy(a.id, a.key, got.Item.PolicyID); err != nil {
			return nil, 0, limited, fmt.Errorf("enrol %s: %w", a.host, err)
		}
		return a, took, limited, nil
	}
	return nil, 0, limited, fmt.Errorf("enrol %s: answered 429 %d times", a.host, enrolTries)
}

// ackPolicy acknowledges the agent's policy before the server sends it. Otherwise it would be
// the agent's first action, and scenarios would count it.
func (e *enroller) ackPolicy(id, key, policyID string) error {
	body := appendAcks(nil, id, time.Now().UTC().Format(time.RFC3339), []string{fleet.PolicyAt{ID: policyID, Revision: 1}.ChangeID()})
	req, err := http.NewRequestWithContext(e.g.ctx, http.MethodPost, e.g.Server+strings.ReplaceAll(agentapi.PathAcks, "{id}", id), bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "ApiKey "+key)
	resp, err := e.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer)); err != nil {
		return fmt.Errorf("acknowledge the policy: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("acknowledge the policy: answered %d", resp.StatusCode)
	}
	return nil
}

func (e *enroller) post(body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(e.g.ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "ApiKey "+e.g.Token)
	req.Header.Set("User-Agent", "Elastic Agent v"+e.g.Version)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(agentapi.HeaderAPIVersion, agentapi.APIVersion)
	return e.client.Do(req)
}
