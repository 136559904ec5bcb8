package replica_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/limit"
	"github.com/muster-fleet/muster/server/replica"
	"github.com/muster-fleet/muster/server/replica/replicatest"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/sqlite"
)

// asked is a store that notes for whom enrollment keys are read, and lets an operator
// wait for one.
type asked struct {
	store.Store
	free chan struct{}

	mu     sync.Mutex
	urgent []bool
}

func (s *asked) EnrollmentKeys() store.Collection[fleet.EnrollmentKey] {
	return askedKeys{s.Store.EnrollmentKeys(), s}
}

func (s *asked) take() []bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.urgent = nil }()
	return s.urgent
}

type askedKeys struct {
	store.Collection[fleet.EnrollmentKey]
	of *asked
}

func (k askedKeys) Get(ctx context.Context, id string) (fleet.EnrollmentKey, error) {
	urgent := store.Waits(ctx) != nil
	k.of.mu.Lock()
	k.of.urgent = append(k.of.urgent, urgent)
	k.of.mu.Unlock()
	if urgent {
		<-k.of.free
	}
	return k.Collection.Get(ctx, id)
}

// A fleet that comes back waits for an operator's request, for a moment, and for
// nobody who only looks on.
func TestAgentsStepAsideForAnOperator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		var keys *asked
		s := replicatest.Start(t, replicatest.OnPipes, func(o *replica.Options) {
			keys = &asked{Store: o.Store, free: free}
			o.Store = keys
		})
		agent := func() time.Duration {
			t.Helper()
			s.Client.CloseIdleConnections()
			begin := time.Now()
			if got, err := s.Do(t.Context(), replicatest.Request{URL: s.AgentURL + "/api/status"}); err != nil || got.Status != http.StatusOK {
				t.Fatalf("an agent got %d, %v", got.Status, err)
			}
			return time.Since(begin)
		}
		if got := agent(); got != 0 {
			t.Errorf("with nobody at the admin API an agent waits %s", got)
		}
		if got := s.Agents(http.MethodPost, agentapi.PathEnroll, s.Token, agentapi.EnrollRequest{Type: "PERMANENT", Metadata: agentapi.EnrollMetadata{Local: replicatest.Metadata("web", "1.0.0")}}); got.Status != http.StatusOK {
			t.Fatalf("enrolling got %d: %s", got.Status, got.Body)
		}
		urgent := keys.take()
		if len(urgent) == 0 || urgent[0] {
			t.Errorf("what an agent asks for is urgent: %v", urgent)
		}

		var operator sync.WaitGroup
		operator.Go(func() { s.Admin(http.MethodGet, "/api/fleet/enrollment_api_keys/none", nil) })
		time.Sleep(time.Millisecond)
		if got := keys.take(); len(got) != 1 || !got[0] {
			t.Errorf("what an operator asks for is urgent: %v", got)
		}
		if got, want := agent(), limit.AsideTime-time.Millisecond; got != want {
			t.Errorf("while an operator waits an agent waits %s, want %s", got, want)
		}
		close(free)
		operator.Wait()
		if got := agent(); got != 0 {
			t.Errorf("when the operator has its answer an agent waits %s", got)
		}

		time.Sleep(time.Second)
		watching, leave := context.WithCancel(t.Context())
		operator.Go(func() {
			_, _ = s.Do(watching, replicatest.Request{Method: http.MethodGet, URL: s.AdminURL + "/api/v1/events", Header: replicatest.With("Authorization", "ApiKey "+s.AdminKey)})
		})
		time.Sleep(time.Millisecond)
		if got := agent(); got != 0 {
			t.Errorf("while an operator watches events an agent waits %s", got)
		}
		leave()
		operator.Wait()
	})
}

// While a fleet comes back its check-ins have all the readers of the store. Who asks the
// admin API is let in beside them, with a key and with a session, and can log in.
func TestAnOperatorIsLetInBesideTheFleet(t *testing.T) {
	s := replicatest.Start(t)
	s.Enroll("web-1", "1.0.0")
	logIn := s.Admin(http.MethodPost, "/api/v1/session", map[string]string{"api_key": s.AdminKey})
	if logIn.Status != http.StatusOK {
		t.Fatalf("the log-in got %d: %s", logIn.Status, logIn.Body)
	}
	session, _, _ := strings.Cut(logIn.Header.Get("Set-Cookie"), ";")

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var fleets sync.WaitGroup
	over := make(chan struct{})
	defer fleets.Wait()
	defer close(over)
	for range sqlite.DefaultReaders {
		reads := make(chan struct{})
		fleets.Go(func() {
			err := s.Store.Agents().Facts(ctx, store.AgentFilter{}, func(string, fleet.StatusFacts) {
				close(reads)
				<-over
			})
			if err != nil {
				t.Error(err)
			}
		})
		select {
		case <-reads:
		case <-ctx.Done():
			t.Fatal("a reader of the store was not had")
		}
	}
	if got := s.Admin(http.MethodPost, "/api/v1/session", map[string]string{"api_key": s.AdminKey}); got.Status != http.StatusOK {
		t.Errorf("the log-in of an operator got %d: %s", got.Status, got.Body)
	}
	for _, with := range [][]string{{"Authorization", "ApiKey " + s.AdminKey}, {"Cookie", session}} {
		got, err := s.Do(ctx, replicatest.Request{Method: http.MethodGet, URL: s.AdminURL + "/api/fleet/agents?perPage=20", Header: replicatest.With(with...)})
		if err != nil || got.Status != http.StatusOK {
			t.Errorf("with %s an operator got %d, %v: %s", with[0], got.Status, err, got.Body)
		}
	}
}
