package gateway

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muster-fleet/muster/agent/backoff"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/watcher/probe"
)

const (
	// overlapLimit is how long an older poll may stay open beside a newer one.
	// Muster's server answers the older one at once.
	overlapLimit = 2 * time.Second
	// settle is how long a Fleet Server has to notice that an older poll was closed,
	// before the next one is sent.
	settle = 200 * time.Millisecond
	// urgentGap combines changes that happen together into one poll, and bounds the
	// polls for a component that flaps.
	urgentGap = 100 * time.Millisecond
	// progressGap is the time between polls for progress alone.
	progressGap = time.Second
	// fleetProgressGap is the same at a Fleet Server, where every report costs a new
	// connection and counts against the server's limits.
	fleetProgressGap = 30 * time.Second
	// pause is the time between two polls if the server did not park the first, so
	// that a server which always answers at once is not overloaded. It is varied by
	// half.
	pause = time.Second
	// parkedFor is the duration from which a poll counts as parked by the server. The
	// next poll then follows without a pause.
	parkedFor = 5 * time.Second

	// cutAfter is the duration from which a poll that ends without an answer of the server
	// counts as cut on its way, by a load balancer or a gateway whose idle time-out is shorter
	// than the poll: that of none is shorter, while a gateway that cannot connect to a server
	// gives up after 10 s or less. One that tries for longer holds each try for as long, and so
	// replaces the backoff.
	cutAfter = 20 * time.Second

	// unauthorizedLimit is how many 401 in a row count as a lost key and not as a
	// server that is being restored.
	unauthorizedLimit = 5
	// UnauthorizedWait is the mean wait from then on. An operator may restore the
	// key, so the agent never stops trying and never unenrols itself.
	UnauthorizedWait = 10 * time.Minute

	// The waits that Fleet Servers are sized for, after an answer that is an error and
	// does not say when to come again.
	fleetBase              = time.Minute
	fleetCap               = 10 * time.Minute
	fleetUnauthorizedLimit = 7
	fleetUnauthorizedWait  = time.Hour
)

// Server is the part of a client that the loop needs.
type Server interface {
	Checkin(ctx context.Context, r agentapi.CheckinRequest, sent func()) (agentapi.CheckinResponse, error)
}

var _ Server = (*Client)(nil)

// Loop keeps one long poll open. When the report changes it opens a second one beside it
// at Muster's server, and instead of it at others.
type Loop struct {
	Server Server
	// Muster means that the server is Muster's, which answers an older poll when a newer
	// one arrives. A Fleet Server forgets the newer poll of an agent when the older ends,
	// and would deliver nothing to it.
	Muster bool
	// Report returns the next report. It is called right before a poll is sent, so
	// no poll has an older report than the one before it.
	Report func() agentapi.CheckinRequest
	// Deliver stores an answer. The next poll, which confirms the ack token, is
	// sent after it has returned. After an error the token is not confirmed, and
	// the server sends the actions again.
	Deliver func(agentapi.CheckinResponse) error
	// Answered is called after an answer was stored, unless it is that of a poll which a newer one
	// has replaced: that is answered without what waits for the agent. nil: nothing is.
	Answered func()
	// Changes wakes the loop.
	Changes *Changes
	// URL returns the server's URL, for Fleet.
	URL func() string
	// Rand returns a number in [0,1); nil means math/rand.
	Rand func() float64
	Log  *slog.Logger

	mu   sync.Mutex
	link link
}

// link is the state that Fleet returns.
type link struct {
	answered time.Time // last answer
	parked   time.Time // when the newest poll was sent; zero if none is open
	err      string
	failed   int // tries in a row
	status   int // HTTP status of the last failed one; 0 if there was no answer
}

// fail records a failed check-in. unanswered is false if the server answered and the
// answer could not be stored, which is not a failed try.
func (k *link) fail(err error, unanswered bool) {
	k.err, k.failed, k.status = err.Error(), k.failed+1, 0
	if !unanswered {
		k.failed = 0
	}
	var refusal *StatusError
	if errors.As(err, &refusal) {
		k.status = refusal.HTTPStatus
	}
}

// poll is a running check-in.
type poll struct {
	started  time.Time
	sent     atomic.Bool
	replaced time.Time // when a newer poll began; zero for the newest
	cancel   context.CancelFunc
	closed   bool // cancelled to make room for a newer one
}

type result struct {
	poll *poll
	resp agentapi.CheckinResponse
	err  error
}

// run is the state of Run, used only by its goroutine.
type run struct {
	muster    bool
	polls     []*poll // oldest first, at most two
	urgent    uint64  // the counts of the newest poll's report
	progress  uint64
	lastStart time.Time
	// retry means that the newest poll failed, so its report must be sent again,
	// even if an older poll is open.
	retry bool
	// No poll is sent before blocked, which an error sets. No poll without urgent
	// changes is sent before paused.
	blocked, paused time.Time
	unauthorized    int
	backoff, fleet  backoff.Backoff
	// warned means that the log says already that polls are cut.
	warned bool
}

// Run polls until ctx ends, and then waits for the polls it has opened.
func (l *Loop) Run(ctx context.Context) {
	r := &run{
		muster: l.Muster, backoff: backoff.Backoff{Rand: l.Rand},
		fleet: backoff.Backoff{Base: fleetBase, Cap: fleetCap, Half: true, Rand: l.Rand},
	}
	results := make(chan result)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		urgent, progress, wake := l.Changes.counts()
		start, wait := r.next(urgent, progress, time.Now())
		if start {
			l.start(ctx, r, urgent, progress, results)
			continue
		}
		timer.Reset(wait)
		select {
		case <-wake:
		case <-timer.C:
		case res := <-results:
			r.remove(res.poll)
			l.finish(ctx, r, res)
		case <-ctx.Done():
		}
	}
	for _, p := range r.polls {
		p.cancel()
	}
	for len(r.polls) > 0 {
		res := <-results
		r.remove(res.poll)
		if res.err != nil {
			continue
		}
		if err := l.deliver(res.resp); err != nil {
			l.log().Warn("the last answer of the server was not stored; it will send it again", "error", err)
		}
	}
}

// idle is the longest the loop sleeps without a reason to wake.
const idle = time.Hour

// next returns whether to start a poll now, and otherwise how long to wait. It cancels an
// older poll that was replaced overlapLimit ago.
func (r *run) next(urgent, progress uint64, now time.Time) (start bool, wait time.Duration) {
	var at time.Time
	news := urgent != r.urgent || r.retry
	switch {
	case len(r.polls) == 0:
		at = r.paused
		if urgent != r.urgent {
			at = r.lastStart.Add(urgentGap)
		}
	case len(r.polls) > 1:
		older := r.polls[0]
		if over := older.replaced.Add(overlapLimit); now.Before(over) {
			return false, over.Sub(now)
		}
		older.cancel() // its result removes it
		return false, idle
	case news:
		at = r.lastStart.Add(urgentGap)
	case !r.polls[0].sent.Load():
		return false, idle // progress waits; the loop wakes when the poll is sent
	case progress != r.progress:
		at = r.lastStart.Add(progressGap)
		if !r.muster {
			at = r.lastStart.Add(fleetProgressGap)
		}
	default:
		return false, idle
	}
	if at.Before(r.blocked) {
		at = r.blocked
	}
	if at.After(now) {
		return false, at.Sub(now)
	}
	// The newer report must not overtake the older one, so it waits while the
	// older request is being sent. If that takes too long the older one is
	// cancelled.
	if len(r.polls) == 1 && !r.polls[0].sent.Load() {
		if over := r.polls[0].started.Add(overlapLimit); now.Before(over) {
			return false, over.Sub(now)
		}
		r.polls[0].cancel()
		return false, idle
	}
	if len(r.polls) == 1 && !r.muster {
		r.polls[0].closed = true
		r.polls[0].cancel() // the next one begins when its result has removed it
		return false, idle
	}
	return true, 0
}

func (l *Loop) start(ctx context.Context, r *run, urgent, progress uint64, results chan<- result) {
	now := time.Now()
	for _, p := range r.polls {
		p.replaced = now
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &poll{started: now, cancel: cancel}
	r.polls = append(r.polls, p)
	r.urgent, r.progress, r.retry, r.lastStart = urgent, progress, false, now
	req := l.Report()
	go func() {
		defer cancel()
		resp, err := l.Server.Checkin(ctx, req, func() {
			p.sent.Store(true)
			l.update(func(k *link) { k.parked = time.Now() })
			l.Changes.markSent(urgent) // wakes Run as well
		})
		results <- result{poll: p, resp: resp, err: err}
	}()
}

func (r *run) remove(p *poll) {
	kept := r.polls[:0]
	for _, q := range r.polls {
		if q != p {
			kept = append(kept, q)
		}
	}
	r.polls = kept
}

func (l *Loop) finish(ctx context.Context, r *run, res result) {
	now := time.Now()
	err := res.err
	if err == nil {
		err = l.deliver(res.resp)
	}
	newest := res.poll.replaced.IsZero()
	if res.poll.closed {
		r.blocked = now.Add(settle)
	}
	switch {
	case err == nil:
		r.backoff.Reset()
		r.fleet.Reset()
		r.unauthorized = 0
		l.update(func(k *link) { k.answered, k.err, k.failed, k.status = now, "", 0, 0 })
		if newest && l.Answered != nil {
			l.Answered()
		}
		if newest {
			r.paused = now
			if now.Sub(res.poll.started) < parkedFor {
				r.paused = now.Add(pause/2 + time.Duration(l.random()*float64(pause)))
			}
		}
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return
	case !newest || errors.Is(err, context.Canceled):
		// Replaced or cancelled by the loop: only the newer poll matters.
	case res.poll.sent.Load() && now.Sub(res.poll.started) >= cutAfter && isCut(err):
		// The server had the poll, so it is no failure to wait for longer and longer after.
		r.backoff.Reset()
		r.fleet.Reset()
		r.retry, r.unauthorized = true, 0
		r.blocked = now.Add(waitFor(err, pause/2+time.Duration(l.random()*float64(pause)), l.Rand))
		l.update(func(k *link) { k.answered, k.err, k.failed, k.status = now, "", 0, 0 })
		l.logCut(r, now.Sub(res.poll.started), err)
	default:
		r.retry = true
		r.blocked = now.Add(l.waitAfter(r, err))
		l.update(func(k *link) { k.fail(err, res.err != nil) })
		l.log().Warn("check-in failed", "error", err, "again_in", r.blocked.Sub(now).Round(time.Millisecond).String())
	}
	if newest {
		l.update(func(k *link) { k.parked = time.Time{} })
	}
}

// isCut reports whether an error is that of a poll whose connection was closed, or of a gateway that
// gave up waiting for the server.
func isCut(err error) bool {
	var refusal *StatusError
	if errors.As(err, &refusal) {
		return refusal.HTTPStatus == http.StatusBadGateway || refusal.HTTPStatus == http.StatusGatewayTimeout
	}
	var broken *url.Error
	return errors.As(err, &broken) && !broken.Timeout()
}

// logCut warns once: the settings of a load balancer do not change by themselves.
func (l *Loop) logCut(r *run, after time.Duration, err error) {
	level := slog.LevelDebug
	if !r.warned {
		level, r.warned = slog.LevelWarn, true
	}
	l.log().Log(context.Background(), level, "a long poll was cut before the server answered it: unless the server was restarted, raise the idle time-out of what is between to six minutes, or lower checkin.poll_timeout", "after", after.Round(time.Second).String(), "error", err)
}

func (l *Loop) waitAfter(r *run, err error) time.Duration {
	wait := r.backoff.Next()
	var refusal *StatusError
	if !errors.As(err, &refusal) {
		r.unauthorized = 0
		return wait
	}
	limit, lost := unauthorizedLimit, UnauthorizedWait
	if !r.muster {
		limit, lost, wait = fleetUnauthorizedLimit, fleetUnauthorizedWait, r.fleet.Next()
	}
	if refusal.HTTPStatus == http.StatusUnauthorized {
		r.unauthorized++
	} else {
		r.unauthorized = 0
	}
	if r.unauthorized >= limit {
		wait = lost/2 + time.Duration(l.random()*float64(lost))
	}
	return waitFor(err, wait, l.Rand)
}

// waitFor returns the wait after a failure: the server's Retry-After, else backoff. It
// adds up to a tenth at random, so that agents with the same Retry-After do not return
// together. RetryAfter is bounded where it is read.
func waitFor(err error, backoff time.Duration, random func() float64) time.Duration {
	var refusal *StatusError
	if !errors.As(err, &refusal) || refusal.RetryAfter <= 0 {
		return backoff
	}
	if random == nil {
		random = rand.Float64
	}
	return refusal.RetryAfter + time.Duration(random()*float64(refusal.RetryAfter)/10)
}

func (l *Loop) deliver(resp agentapi.CheckinResponse) error {
	if len(resp.Actions) == 0 && resp.AckToken == "" {
		return nil
	}
	return l.Deliver(resp)
}

// Fleet returns the state of the link, from memory.
func (l *Loop) Fleet(now time.Time) probe.Fleet {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.link
	f := probe.Fleet{URL: l.URL(), State: probe.Starting, Error: k.err, FailedTries: k.failed, LastStatus: k.status}
	// A poll that has been open for a while counts as an answer: the TLS
	// connection to the server works.
	if !k.parked.IsZero() && now.Sub(k.parked) >= overlapLimit && k.parked.After(k.answered) {
		k.answered, f.Error, f.FailedTries, f.LastStatus = k.parked, "", 0, 0
	}
	if !k.answered.IsZero() {
		at := k.answered
		f.LastCheckin, f.State = &at, probe.Healthy
	}
	if f.Error != "" {
		f.State = probe.Degraded
	}
	return f
}

func (l *Loop) update(change func(*link)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.link)
}

func (l *Loop) random() float64 {
	if l.Rand != nil {
		return l.Rand()
	}
	return rand.Float64()
}

func (l *Loop) log() *slog.Logger {
	if l.Log != nil {
		return l.Log
	}
	return slog.New(slog.DiscardHandler)
}
