package limit

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// enrollmentsPerSecond is how many hosts one enrollment token enrols in a second, at most ten
	// times as many at once: a site of a thousand hosts may be started with one command. It is a
	// fraction of what a server stores in a second, so agents notice nothing of it.
	enrollmentsPerSecond = 100
	// enrollmentsPerHour is how many it enrols in an hour. A site of that many hosts is large; one of
	// 100,000 with a single token takes five hours, or a change of the configuration. Whoever has
	// found a token can leave so many agents in the store, of some 100 KB each at most.
	enrollmentsPerHour = 20_000
	// enrollmentBurst is for how many seconds a token may have enrolled nothing before.
	enrollmentBurst = 10
)

// tokens bound the enrolments with each enrollment token at this server.
type tokens struct {
	perSecond, perHour int

	mu sync.Mutex
	by map[string]*token // by the id of the enrollment key
}

type token struct {
	rate  *rate.Limiter
	since time.Time // the hour that count is of began then
	count int
}

// use counts an enrolment, or returns how long to wait, and the key of the configuration with the
// limit that is reached.
func (s *tokens) use(id string, now time.Time) (wait time.Duration, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.by[id]
	if t == nil {
		for old, t := range s.by {
			if now.Sub(t.since) >= time.Hour {
				delete(s.by, old)
			}
		}
		if s.by == nil {
			s.by = map[string]*token{}
		}
		t = &token{rate: rate.NewLimiter(rate.Limit(s.perSecond), enrollmentBurst*s.perSecond), since: now}
		s.by[id] = t
	}
	if now.Sub(t.since) >= time.Hour {
		t.since, t.count = now, 0
	}
	switch {
	case t.count >= s.perHour:
		return t.since.Add(time.Hour).Sub(now), "limits.enrollments_per_hour"
	case !t.rate.AllowN(now, 1):
		return time.Second, "limits.enrollments_per_second"
	}
	t.count++
	return 0, ""
}

// Enrol counts an enrolment with an enrollment token, by the id of its key. Beyond the limits of
// tokens it returns a *fleet.Error of kind TooMany with RetryAfter.
func (a *Admission) Enrol(tokenID string) error {
	wait, key := a.tokens.use(tokenID, time.Now())
	if key == "" {
		return nil
	}
	p := a.requests[Enroll]
	p.limited.Add(1)
	most := a.Limits.EnrollmentsPerHour
	if key == "limits.enrollments_per_second" {
		most = a.Limits.EnrollmentsPerSecond
	}
	after := wait + p.jitter()
	return tooMany(after, "the enrollment token has enrolled as many hosts as it may, %d (`%s` of the server): retry in %s, or enrol with another token", most, key, after.Round(time.Second))
}
