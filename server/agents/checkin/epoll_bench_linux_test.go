package checkin_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/testing/kit/processor"
)

const (
	benchAgents = 4_000
	benchEnv    = "CHECKIN_BENCH_SERVER"
)

// BenchmarkEpollParker parks agents over TLS and wakes them all, with their clients in
// another process. It reports the cost of an agent in this process: live heap and
// resident memory right after a collection, and processor time for an answer and the next
// poll.
func BenchmarkEpollParker(b *testing.B) {
	a := &actions{}
	s := newPollServer(b, a, nil)
	heap, rss := memory(b)
	clients := exec.CommandContext(b.Context(), os.Args[0], "-test.run=^$", "-test.bench=^BenchmarkEpollParkerClients$", "-test.benchtime=1x", "-test.timeout=5m")
	clients.Env = append(os.Environ(), benchEnv+"="+s.addr)
	clients.Stderr = os.Stderr
	in, err := clients.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := clients.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := clients.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		in.Close()
		_ = clients.Wait()
	}()
	lines := bufio.NewScanner(out)
	answered := func() { // all have their answers
		for lines.Scan() {
			if strings.HasSuffix(lines.Text(), "answered") { // the first is on the line of the benchmark's name
				return
			}
		}
		b.Fatal("the clients ended: ", lines.Err())
	}
	ids := agentIDs(benchAgents)
	takenOver := func() {
		s.parked(len(ids))
		for _, id := range ids {
			s.eventually("it is taken over", func() bool { return s.parker.TestOnlyTakenOver(id) })
		}
	}
	takenOver()
	heapParked, rssParked := memory(b)
	body := `{"ack_token":"1","action":"checkin","actions":[` + strings.Repeat("x", 1_000) + `]}`
	cpu := processor.Spent(b)
	var last time.Duration
	for b.Loop() {
		a.put(body, ids...)
		begin := time.Now()
		s.parker.Wake(ids...)
		answered()
		last += time.Since(begin)
		takenOver()
	}
	n := float64(len(ids))
	b.ReportMetric(float64(heapParked-heap)/n, "heap-B/agent")
	b.ReportMetric(float64(rssParked-rss)/n, "rss-B/agent")
	b.ReportMetric(float64((processor.Spent(b)-cpu).Microseconds())/n/float64(b.N), "cpu-µs/answer+poll")
	b.ReportMetric(float64(last.Milliseconds())/float64(b.N), "ms-until-last")
	b.ReportMetric(0, "ns/op")
}

// memory is the live heap and the resident set, in bytes.
func memory(b *testing.B) (heap, rss int64) {
	b.Helper()
	runtime.GC()
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	_, line, _ := bytes.Cut(status, []byte("VmRSS:"))
	kib, err := strconv.ParseInt(strings.Fields(string(line))[0], 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return int64(m.HeapAlloc), kib << 10
}

// BenchmarkEpollParkerClients is BenchmarkEpollParker's other process, and measures nothing: it opens
// the connections, reads an answer from each, and polls again.
func BenchmarkEpollParkerClients(b *testing.B) {
	addr := os.Getenv(benchEnv)
	if addr == "" {
		return
	}
	s := &pollServer{t: b, addr: addr, client: &tls.Config{InsecureSkipVerify: true}} // with the key exchange that agents have
	conns := make([]*agentConn, benchAgents)
	var dialing sync.WaitGroup
	for w := range 8 {
		dialing.Go(func() {
			for i := w; i < len(conns); i += 8 {
				conns[i] = s.dial(fmt.Sprint("agent-", i))
			}
		})
	}
	dialing.Wait()
	answers := make(chan struct{}, len(conns))
	ended := make(chan struct{})
	for _, c := range conns {
		go func() {
			for {
				_ = c.SetReadDeadline(time.Time{})
				var length int
				for {
					line, err := c.answers.ReadString('\n')
					if err != nil {
						return
					}
					if v, ok := strings.CutPrefix(line, "Content-Length: "); ok {
						length, _ = strconv.Atoi(strings.TrimSpace(v))
					}
					if line == "\r\n" {
						break
					}
				}
				if _, err := c.answers.Discard(length); err != nil {
					return
				}
				answers <- struct{}{}
				c.poll()
			}
		}()
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	for n := 0; ; {
		select {
		case <-answers:
			if n++; n%len(conns) == 0 {
				fmt.Println("answered")
			}
		case <-ended:
			return
		}
	}
}
