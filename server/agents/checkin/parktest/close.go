package parktest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/agents/checkin"
)

func closeAnswers(t *testing.T, s *server) {
	polls := make([]*poll, 20)
	for i := range polls {
		polls[i] = s.beginParked(&poll{agent: fmt.Sprint("agent-", i), deadline: never, check: nothing})
	}
	s.wantCount(len(polls))
	if err := s.close(waitLimit); err != nil {
		t.Fatalf("close: %v", err)
	}
	if n := s.parker.Count(); n != 0 {
		t.Errorf("%d polls are left after close", n)
	}
	for _, p := range polls {
		s.wantAnswer(p, emptyBody)
	}
	s.wantAnswer(s.begin(&poll{agent: "late", deadline: never, check: nothing}), emptyBody)
	if err := s.close(waitLimit); err != nil {
		t.Errorf("closed twice: %v", err)
	}
}

func closeGivesUp(t *testing.T, s *server) {
	checking, release := make(chan struct{}), make(chan struct{})
	p := s.begin(&poll{agent: "a", deadline: never, check: func(context.Context) (*checkin.Answer, error) {
		close(checking)
		<-release
		return nil, nil
	}})
	<-checking
	err := s.close(quietPeriod)
	if !errors.Is(err, context.DeadlineExceeded) || strings.TrimSpace(err.Error()) == "" {
		t.Errorf("close is %v while a check lasts, want the context's error", err)
	}
	close(release)
	s.wantAnswer(p, emptyBody)
}
